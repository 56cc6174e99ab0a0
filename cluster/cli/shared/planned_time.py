"""A command that waits for a planned time, by the clock of its own machine.

The command waits, not the cluster: nothing is left behind in the cluster where the command is interrupted, and a
scheduler such as cron or a systemd timer may do the waiting in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from ....archive.tool.output import EXIT_USAGE, fail

PLAN_LIMIT: Final = timedelta(days=7)
"""A time that is farther away is refused: it is a slip of the pen, or work for a scheduler."""
_LATE_LIMIT: Final = timedelta(minutes=1)
"""A time that was less than this ago is now: the command took a moment to start."""
_LOOK_INTERVAL_S: Final = 10.0
"""How often the clock is read: it may be set, and a machine that sleeps does not count."""

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Wait until this time, such as 2026-12-01T02:00:00Z. [default: now]",
        show_default=False,
    ),
]


def read_planned_time(text: str, now_ms: int) -> int:
    """Return a planned time in milliseconds since the Unix epoch.

    Raises:
        Exit: it is no time, has no time zone, was more than a minute ago, or is farther away than `PLAN_LIMIT`.
    """
    try:
        planned = datetime.fromisoformat(text)
    except ValueError:
        planned = datetime.min
    if planned.tzinfo is None:
        fail(f"--at={text} expected a date and a time with a time zone, such as 2026-12-01T02:00:00Z", EXIT_USAGE)
    planned_ms = round(planned.timestamp() * 1_000)
    left = timedelta(milliseconds=planned_ms - now_ms)
    if not -_LATE_LIMIT <= left <= PLAN_LIMIT:
        found = "is over" if left < timedelta(0) else "is too far away"
        fail(f"--at={text} {found}: expected a time within the next {PLAN_LIMIT.days} days", EXIT_USAGE)
    return planned_ms


def wait_until_planned(planned_ms: int, *, clock_ms: Callable[[], int], sleep: Callable[[float], object]) -> None:
    """Return once a clock has come to a planned time, in milliseconds since the Unix epoch."""
    while (left_s := (planned_ms - clock_ms()) / 1_000) > 0:
        sleep(min(left_s, _LOOK_INTERVAL_S))
