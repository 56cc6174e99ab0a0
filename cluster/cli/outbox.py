"""`trimaran outbox`: the effects that the services of a cluster want done outside, and those that workers gave up.

Exit status: 0; 1 there is no such outbox or effect; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType

from ...archive.tool.output import (
    EXIT_FAILED,
    OutputFormat,
    OutputOption,
    cell,
    fail,
    new_group,
    new_table,
    print_line,
    print_object,
)
from ...client import ClientConfig, ClusterClient, QueryRefusedError
from ...client.outbox.calls import FoundOutbox, OutboxCalls, describe_effect
from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.outbox import EffectKey
from ...service_api.outbox.protocol import SettledAs, SettledRow
from .ready_made.client import EntryLimitOption, UserOption, WaitOption, config_of_client, errors_as_exits
from .shared.event_loop import run_command_loop
from .shared.every_group import of_every_group
from .shared.setting_flags import with_client_flags

app: Final = new_group("Effects that services want done outside; what workers gave up.")

SCHEMA_VERSION: Final = 1
_SETTLED_AT_ONCE: Final = 500

NameOption = Annotated[str, typer.Option("--name", metavar="OUTBOX", help="Only the outbox of this name.")]
ServiceOption = Annotated[
    int | None, typer.Option("--service", min=0, metavar="ID", help="Only the outboxes of this service.")
]
KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="What was given up, as `list` shows it: 1472-0.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All that was given up.")]

Work = Callable[[OutboxCalls, list[FoundOutbox]], Awaitable[None]]


@app.command("list", epilog="Example: trimaran outbox list --name payments --config trimaran-data/cluster.toml")
@with_client_flags
@of_every_group
def list_effects(
    name: NameOption = "",
    service: ServiceOption = None,
    pending: Annotated[bool, typer.Option("--pending", help="Show what is pending, too.")] = False,
    limit: EntryLimitOption = 100,
    output: OutputOption = OutputFormat.TABLE,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Show the outboxes of a cluster, and the effects that workers gave up, oldest first.

    -o json prints one object, -o jsonl an effect per line.
    """

    async def show(calls: OutboxCalls, found: list[FoundOutbox]) -> None:
        effects: list[dict[str, Any]] = []
        for outbox in found:
            for is_given_up in (True, False) if pending else (True,):
                effects += await _read_effects(calls, outbox, is_given_up, limit - len(effects))
        if output is OutputFormat.JSONL:
            for effect in effects:
                print_line(effect)
            return
        outboxes = [_describe_outbox(each) for each in found]
        document = {"schema_version": SCHEMA_VERSION, "outboxes": outboxes, "effects": effects}
        print_object(document, output, lambda: _draw(outboxes, effects))

    _run(show, name, service, settings, user, timeout)


@app.command("retry", epilog="Example: trimaran outbox retry --all --name payments --config trimaran-data/cluster.toml")
@with_client_flags
def retry_effects(
    keys: KeysArgument = None,
    is_all: AllOption = False,
    name: NameOption = "",
    service: ServiceOption = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Have effects done that were given up, with the keys that they had, and print how many."""
    _settle_in_groups(SettledAs.RETRIED, _keys_of(keys, is_all), name, service, settings, user, timeout)


@app.command("drop", epilog="Example: trimaran outbox drop 1472-0 --config trimaran-data/cluster.toml")
@with_client_flags
def drop_effects(
    keys: KeysArgument = None,
    is_all: AllOption = False,
    name: NameOption = "",
    service: ServiceOption = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Forget effects, which will not be done, and print how many. A KEY may also be of an effect that is pending."""
    _settle_in_groups(SettledAs.DROPPED, _keys_of(keys, is_all), name, service, settings, user, timeout)


def _settle_in_groups(
    settled_as: SettledAs,
    keys: list[EffectKey] | None,
    name: str,
    service_id: int | None,
    settings: dict[str, Any],
    user: str,
    timeout_s: float,
) -> None:
    """Settle all effects of every group that the settings name; keys are given by each group for itself."""

    def settle(**settings: Any) -> None:
        _run(partial(_settle, settled_as, keys), name, service_id, settings, user, timeout_s)

    of_groups = settle if keys is not None else of_every_group(settle)
    of_groups(**settings)


def _run(work: Work, name: str, service_id: int | None, settings: dict[str, Any], user: str, timeout_s: float) -> None:
    """Find the outboxes, and do something with them.

    Raises:
        ConfigurationError: settings that cannot be used.
        typer.Exit: there is no outbox (1), or as `errors_as_exits`.
    """
    config = config_of_client(settings, user, timeout_s)

    async def run(config: ClientConfig) -> None:
        async with ClusterClient.connect(config=config) as cluster:
            calls = OutboxCalls(cluster, timeout_s=timeout_s)
            try:
                found = await calls.find_all(name, service_id=service_id)
            except (QueryRefusedError, RemoteProtocolError) as error:
                fail(f"no service answers for an outbox: {error}", EXIT_FAILED)
            if not found:
                fail(f"name={name} expected an outbox of the cluster's services", EXIT_FAILED)
            await work(calls, found)

    with errors_as_exits():
        run_command_loop(run(config))


def _keys_of(texts: Sequence[str] | None, is_all: bool) -> list[EffectKey] | None:
    """Return the keys that are named; None for all.

    Raises:
        ConfigurationError: neither or both are given, or a text is no key.
    """
    if bool(texts) == is_all:
        raise ConfigurationError("expected one KEY at least, or --all")
    return None if is_all else [_parse_key(text) for text in texts or ()]


def _parse_key(text: str) -> EffectKey:
    position, _, number = text.partition("-")
    if not (position.isdecimal() and number.isdecimal()):
        raise ConfigurationError(f"KEY={text} expected a key of `trimaran outbox list`, such as 1472-0")
    return EffectKey(int(position), int(number))


async def _read_effects(calls: OutboxCalls, outbox: FoundOutbox, is_given_up: bool, limit: int) -> list[dict[str, Any]]:
    effects: list[dict[str, Any]] = []
    if limit <= 0:
        return effects
    async for answer in calls.pages(outbox, is_given_up=is_given_up):
        effects += [
            {
                "outbox": outbox.facts.name,
                "service": outbox.service_name,
                "service_id": outbox.service_id,
                "key": str(EffectKey(row.log_position, row.number)),
                "state": "given_up" if is_given_up else "pending",
                "attempt_count": row.attempt_count,
                "reason": row.reason,
                **describe_effect(row, answer.outboxes[0]),
            }
            for row in answer.effects
        ]
        if len(effects) >= limit:
            break
    return effects[:limit]


async def _settle(
    settled_as: SettledAs, keys: list[EffectKey] | None, calls: OutboxCalls, found: list[FoundOutbox]
) -> None:
    """Settle effects of the outboxes, and print how many; a key that is in several is of the one that is named.

    Raises:
        ConfigurationError: keys are given, and there are several outboxes.
        typer.Exit: there was no such effect (1).
    """
    if keys is not None and len(found) > 1:
        names = ", ".join(map(str, found))
        raise ConfigurationError(f"the cluster has several outboxes: {names}; say which one: --name, or --service")
    settled_count = 0
    for outbox in found:
        chosen = await _given_up_keys(calls, outbox) if keys is None else keys
        for first in range(0, len(chosen), _SETTLED_AT_ONCE):
            rows = [SettledRow(*key, settled_as) for key in chosen[first : first + _SETTLED_AT_ONCE]]
            settled_count += (await calls.settle(outbox, rows)).settled_count
    typer.echo(settled_count)
    if not settled_count:
        raise typer.Exit(EXIT_FAILED)


async def _given_up_keys(calls: OutboxCalls, outbox: FoundOutbox) -> list[EffectKey]:
    return [
        EffectKey(row.log_position, row.number)
        async for answer in calls.pages(outbox, is_given_up=True)
        for row in answer.effects
    ]


def _describe_outbox(outbox: FoundOutbox) -> dict[str, Any]:
    facts = outbox.facts
    return {
        "outbox": facts.name,
        "service": outbox.service_name,
        "service_id": outbox.service_id,
        "effect": facts.effect_name or None,
        "pending_count": facts.pending_count,
        "given_up_count": facts.given_up_count,
    }


def _draw(outboxes: Iterable[dict[str, Any]], effects: Sequence[dict[str, Any]]) -> RenderableType:
    counts = new_table("outbox", "service", "effect", "pending", "given up", numbers=["pending", "given up"])
    for each in outboxes:
        counts.add_row(*map(cell, _cells(each, "outbox", "service", "effect", "pending_count", "given_up_count")))
    if not effects:
        return counts
    table = new_table("key", "outbox", "state", "attempts", "effect", "reason", numbers=["attempts"])
    for each in effects:
        table.add_row(*map(cell, _cells(each, "key", "outbox", "state", "attempt_count", "effect", "reason")))
    return Group(counts, "", table)


def _cells(row: dict[str, Any], *names: str) -> list[Any]:
    return [str(row[name]) if isinstance(row[name], dict) else row[name] for name in names]
