"""`trimaran counters`: counters and rate limits of a cluster that serves them (`trimaran up counters`).

Exit status: 0; 1 the service said no, or nobody is admitted; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import EXIT_FAILED, new_group, print_line
from ....client.ready_made import SyncCountersClient
from ..shared.setting_flags import with_client_flags
from .client import EntryLimitOption, NamePrefixArgument, UserOption, WaitOption, connected

app: Final = new_group("Counters and rate limits of a cluster that serves them.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The counter.", show_default=False)]
LimitArgument = Annotated[str, typer.Argument(metavar="LIMIT", help="The rate limit.", show_default=False)]
BoundOption = Annotated[int | None, typer.Option(metavar="NUMBER", help="Refuse what would go beyond.")]


@app.command("add", epilog="Example: trimaran counters add visits 5 --maximum 100 --config trimaran-data/cluster.toml")
@with_client_flags
def add_to_counter(
    name: NameArgument,
    amount: Annotated[int, typer.Argument(metavar="AMOUNT", help="May be negative.")] = 1,
    minimum: BoundOption = None,
    maximum: BoundOption = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Add to a counter, and print its value."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        typer.echo(counters.add(name, amount, minimum=minimum, maximum=maximum))


@app.command("set", epilog="Example: trimaran counters set visits 0 --expected 5 --config trimaran-data/cluster.toml")
@with_client_flags
def set_counter_value(
    name: NameArgument,
    value: Annotated[int, typer.Argument(metavar="VALUE", show_default=False)],
    expected: Annotated[
        int | None, typer.Option("--expected", metavar="VALUE", help="Only if the counter has this value.")
    ] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Set a counter, and print its value."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        typer.echo(counters.set(name, value, expected=expected))


@app.command("get", epilog="Example: trimaran counters get visits --config trimaran-data/cluster.toml")
@with_client_flags
def get_counter(name: NameArgument, user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any) -> None:
    """Print a counter's value; 0 if it was never set."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        typer.echo(counters.get(name))


@app.command("delete", epilog="Example: trimaran counters delete visits --config trimaran-data/cluster.toml")
@with_client_flags
def delete_counter_command(
    name: NameArgument, user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any
) -> None:
    """Forget a counter; exit status 1 if there is none."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        is_found = counters.delete(name)
    raise typer.Exit(0 if is_found else EXIT_FAILED)


@app.command("list", epilog="Example: trimaran counters list vis --config trimaran-data/cluster.toml")
@with_client_flags
def list_counters_command(
    prefix: NamePrefixArgument = "",
    limit: EntryLimitOption = 1_000,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Print counters by name, one JSON object on each line."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        for counted in islice(counters.scan(prefix), limit):
            print_line({"name": counted.name, "value": counted.value})


@app.command("limit", epilog="Example: trimaran counters limit login 5 60 --config trimaran-data/cluster.toml")
@with_client_flags
def define_limit_command(
    name: LimitArgument,
    count: Annotated[int, typer.Argument(metavar="COUNT", help="Admissions of each key.", show_default=False)],
    period: Annotated[float, typer.Argument(metavar="SECONDS", help="In which time.", show_default=False)],
    burst: Annotated[int | None, typer.Option("--burst", metavar="COUNT", help="At once. [default: COUNT]")] = None,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Define a rate limit, or change it."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        limit = counters.define_limit(name, count, period, burst=burst)
        print_line({"name": limit.name, "count": limit.count, "period_s": limit.period_s, "burst": limit.burst})


@app.command("limits", epilog="Example: trimaran counters limits --config trimaran-data/cluster.toml")
@with_client_flags
def list_limits_command(user: UserOption = "", timeout: WaitOption = 5.0, **settings: Any) -> None:
    """Print all rate limits, one JSON object on each line."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        for limit in counters.limits():
            print_line({"name": limit.name, "count": limit.count, "period_s": limit.period_s, "burst": limit.burst})


@app.command("admit", epilog="Example: trimaran counters admit login 203.0.113.7 --config trimaran-data/cluster.toml")
@with_client_flags
def ask_admission_command(
    limit: LimitArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Who or what is limited.", show_default=False)],
    cost: Annotated[int, typer.Option("--cost", min=0, help="How much it counts; 0 only looks.")] = 1,
    user: UserOption = "",
    timeout: WaitOption = 5.0,
    **settings: Any,
) -> None:
    """Ask whether a key may pass under a rate limit; exit status 1 if not."""
    with connected(SyncCountersClient, settings, user, timeout) as counters:
        answer = counters.admit(limit, key, cost)
        print_line(
            {
                "is_admitted": answer.is_admitted,
                "remaining": answer.remaining,
                "retry_after_s": round(answer.retry_after_s, 6),
            }
        )
    raise typer.Exit(0 if answer.is_admitted else EXIT_FAILED)
