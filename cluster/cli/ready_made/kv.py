"""`trimaran kv`: the key-value store of a cluster that serves it (`trimaran up kv`).

Keys and values are text in UTF-8; in lists, bytes that are no such text are shown as \\xNN.

Exit status: 0; 1 the service said no, or there is no such key; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import EXIT_FAILED, new_group, print_line
from ....client.ready_made import SyncKvClient
from ....service_api.ready_made.kv import key_range
from ..shared.setting_flags import with_client_flags
from .client import EntryLimitOption, UserOption, WaitOption, as_text, connected, read_argument

app: Final = new_group("The key-value store of a cluster that serves it.")

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]
PrefixArgument = Annotated[str, typer.Argument(metavar="PREFIX", help="Only keys that begin so.")]
ExpectedOption = Annotated[
    int | None,
    typer.Option("--expected", metavar="REVISION", help="Only if the key has this revision; 0: if there is none."),
]


@app.command("put", epilog="Example: trimaran kv put jobs/1 waiting --ttl 60 --config trimaran-data/cluster.toml")
@with_client_flags
def put_key_command(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="'-' reads standard input.", show_default=False)],
    expected: ExpectedOption = None,
    ttl: Annotated[float | None, typer.Option("--ttl", metavar="SECONDS", help="Delete the key after this.")] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Write a key, and print the revision."""
    data = read_argument(value)
    with connected(SyncKvClient, settings, user, timeout) as kv:
        typer.echo(kv.put(key, data, expected_revision=expected, ttl_s=ttl))


@app.command("get", epilog="Example: trimaran kv get jobs/1 --config trimaran-data/cluster.toml")
@with_client_flags
def get_key_command(key: KeyArgument, user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any) -> None:
    """Print a key's value; exit status 1 if there is no such key."""
    with connected(SyncKvClient, settings, user, timeout) as kv:
        value = kv.get(key)
    if value is None:
        raise typer.Exit(EXIT_FAILED)
    typer.echo(value)


@app.command("delete", epilog="Example: trimaran kv delete jobs/ --prefix --config trimaran-data/cluster.toml")
@with_client_flags
def delete_key_command(
    key: KeyArgument,
    prefix: Annotated[bool, typer.Option("--prefix", help="Delete all keys that begin so, at most 1,000.")] = False,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Delete a key, or those of a prefix, and print how many; exit status 1 if there is none."""
    with connected(SyncKvClient, settings, user, timeout) as kv:
        count = kv.delete_range(*key_range(key)) if prefix else int(kv.delete(key))
        typer.echo(count)
    raise typer.Exit(0 if count else EXIT_FAILED)


@app.command("list", epilog="Example: trimaran kv list jobs/ --config trimaran-data/cluster.toml")
@with_client_flags
def list_keys_command(
    prefix: PrefixArgument = "",
    limit: EntryLimitOption = 1_000,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print keys with their values in the order of keys, one JSON object on each line."""
    with connected(SyncKvClient, settings, user, timeout) as kv:
        for entry in islice(kv.scan(prefix), limit):
            print_line(
                {
                    "key": as_text(entry.key),
                    "value": as_text(entry.value),
                    "create_revision": entry.create_revision,
                    "mod_revision": entry.mod_revision,
                    "version": entry.version,
                    "expires_at_s": entry.expires_at_s,
                }
            )


@app.command("watch", epilog="Example: trimaran kv watch jobs/ --from 1 --config trimaran-data/cluster.toml")
@with_client_flags
def watch_keys_command(
    prefix: PrefixArgument = "",
    from_revision: Annotated[
        int | None, typer.Option("--from", min=1, metavar="REVISION", help="Begin there. [default: now]")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="End after this many.")] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print each change, one JSON object on each line, until Ctrl-C; the value of a deletion is null."""
    with connected(SyncKvClient, settings, user, timeout) as kv:
        for change in islice(kv.watch(prefix=prefix, from_revision=from_revision), limit):
            print_line(
                {
                    "revision": change.revision,
                    "key": as_text(change.key),
                    "value": None if change.value is None else as_text(change.value),
                    "version": change.version,
                    "is_expired": change.is_expired,
                }
            )
