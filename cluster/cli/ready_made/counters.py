"""`trimaran counters`: counters and rate limits of a cluster that serves them (`trimaran up counters`).

Exit status: 0; 1 the service said no, or nobody is admitted; 2 wrong usage; 3 no leader in time; 12 refused.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

import typer

from ....client.ready_made import SyncCountersClient
from ....service_api.ready_made.counters import (
    AdmissionAnswer,
    AskAdmission,
    Counted,
    CountUp,
    DefineRateLimit,
    DeleteCounter,
    ReadCounter,
    SetCounter,
)
from .client import EntryLimitOption
from .service_commands import FieldFlag, ServiceCommands, exit_unless, show_row, show_rows

_COUNTERS: Final = ServiceCommands(
    "counters", "Counters and rate limits of a cluster that serves them.", SyncCountersClient
)
app: Final = _COUNTERS.app

_NAME: Final = FieldFlag("The counter.")
_LIMIT: Final = FieldFlag("The rate limit.", metavar="LIMIT")


def _show_value(counted: Counted) -> None:
    typer.echo(counted.value)


def _show_admission(answer: AdmissionAnswer) -> int:
    show_row(answer)
    return exit_unless(answer.is_admitted)


_COUNTERS.message(
    "add visits 5 --maximum 100",
    CountUp,
    "Add to a counter, and print its value.",
    show=_show_value,
    name=_NAME,
    amount=FieldFlag("May be negative.", "AMOUNT"),
    minimum=FieldFlag("Refuse what would go below."),
    maximum=FieldFlag("Refuse what would go beyond."),
)
_COUNTERS.message(
    "set visits 0 --expected 5",
    SetCounter,
    "Set a counter, and print its value.",
    show=_show_value,
    name=_NAME,
    value=FieldFlag("The new value."),
    expected=FieldFlag("Only if the counter has this value."),
)
_COUNTERS.message(
    "get visits", ReadCounter, "Print a counter's value; 0 if it was never set.", show=_show_value, name=_NAME
)
_COUNTERS.message(
    "delete visits", DeleteCounter, "Forget a counter; exit status 1 if there is none.", show=exit_unless, name=_NAME
)
_COUNTERS.message(
    "limit login 5 60",
    DefineRateLimit,
    "Define a rate limit, or change it.",
    show=show_row,
    name=_LIMIT,
    count=FieldFlag("Admissions of each key."),
    period_s=FieldFlag("The time in which they are admitted.", metavar="SECONDS"),
    burst=FieldFlag("At once. [default: COUNT]", metavar="COUNT"),
)
_COUNTERS.message(
    "admit login 203.0.113.7",
    AskAdmission,
    "Ask whether a key may pass under a rate limit; exit status 1 if not.",
    show=_show_admission,
    limit=_LIMIT,
    key=FieldFlag("Who or what is limited."),
    cost=FieldFlag("How much it counts; 0 only looks.", minimum=0),
)


@_COUNTERS.command("list vis")
def list_counters(
    counters: SyncCountersClient,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that begin so.")] = "",
    limit: EntryLimitOption = 1_000,
) -> None:
    """Print counters by name, one JSON object on each line."""
    show_rows(islice(counters.scan(prefix), limit))


@_COUNTERS.command("limits")
def list_limits(counters: SyncCountersClient) -> None:
    """Print all rate limits, one JSON object on each line."""
    show_rows(counters.limits())
