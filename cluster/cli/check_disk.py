"""`trimaran check-disk DIR`: what a sync costs on the disk of a directory, before a member lives there.

A commit waits for a sync on the leader and on a majority, so a sync is the least time that a client waits, and its 99th
percentile is where the tail begins.

Exit status: 0 the disk is quick enough; 1 or 2 it cannot be written; 10 it is so slow that `trimaran health` would
report its member.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.files.sync_speed import BLOCK_BYTES, measure_syncs
from ...archive.tool.output import (
    EXIT_OK,
    EXIT_TERMINATED,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    new_table,
    print_object,
)
from ..runtime.ground.system_clock import SystemClock
from ..settings.fields import WatchingSettings
from .interchange.passes import pass_bar

GOOD_P99_MS: Final = 10.0
"""Below this a disk is quick: an election or a busy moment does not turn on a single sync."""

_SYNC_LIMIT: Final = 2_000
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_DEFAULT_SLOW_MS: Final[int] = WatchingSettings.model_fields["sync_slow_ms"].default


class DiskReport(BaseModel):
    """The object that `trimaran check-disk -o json` prints, always with all of these keys. Times in milliseconds."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    directory: str
    sync_count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    good_p99_ms: float
    """Below this p99 the disk is `good`."""
    slow_p99_ms: float
    """From this p99 on the disk is `too slow`."""
    verdict: str
    """`good`, `usable` or `too slow`."""
    detail: str
    """The consequence for a cluster, as one line."""


def check_disk(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", exists=True, file_okay=False, help="Where a member is to have its directory, or has it."
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=600, help="Measure for so long at most.")] = 5.0,
    sync_slow_ms: Annotated[
        int, typer.Option("--sync-slow-ms", min=1, help="The setting of the members: from here on a sync is slow.")
    ] = _DEFAULT_SLOW_MS,
) -> None:
    """Measure what syncs cost on the disk of a directory, and say whether that is enough for a member.

    It writes a file of 16 MiB into the directory, syncs 4 KiB of it at a time as a member syncs its log, and removes
    the file. A member that runs there meanwhile shares the disk with it.

    Exit status 0: quick enough; 2: the directory cannot be written; 10: too slow, as trimaran health would report it.
    """
    with pass_bar("syncing", _SYNC_LIMIT * BLOCK_BYTES) as on_synced, _ended_in_order():
        durations_ns = measure_syncs(
            directory,
            sync_count=_SYNC_LIMIT,
            limit_ns=round(seconds * _NS_PER_S),
            monotonic_ns=SystemClock().monotonic_ns,
            on_synced=on_synced,
        )
    report = judge_syncs(str(directory), durations_ns, slow_ms=sync_slow_ms)
    print_object(report.model_dump(mode="json"), output, lambda: disk_table(report))
    raise typer.Exit(EXIT_UNHEALTHY if report.verdict == "too slow" else EXIT_OK)


def judge_syncs(directory: str, durations_ns: list[int], *, slow_ms: float) -> DiskReport:
    """Say whether a disk is quick enough whose syncs took so long; the durations are in ascending order."""
    count = len(durations_ns)
    p50_ms, p99_ms, max_ms = (
        durations_ns[index] / _NS_PER_MS for index in (count // 2, (99 * count - 1) // 100, count - 1)
    )
    one_by_one = f"a client that waits for each answer gets at most {1_000 / max(p50_ms, 0.001):,.0f} a second"
    if p99_ms >= slow_ms:
        verdict = "too slow"
        detail = f"{one_by_one}; a member here is reported as sync_slow, and does not keep the leadership"
    elif p99_ms >= GOOD_P99_MS:
        verdict = "usable"
        detail = f"{one_by_one}; one in a hundred commits takes {p99_ms:,.1f} ms or longer"
    else:
        verdict, detail = "good", one_by_one
    return DiskReport(
        directory=directory,
        sync_count=count,
        p50_ms=round(p50_ms, 3),
        p99_ms=round(p99_ms, 3),
        max_ms=round(max_ms, 3),
        good_p99_ms=GOOD_P99_MS,
        slow_p99_ms=slow_ms,
        verdict=verdict,
        detail=detail,
    )


def disk_table(report: DiskReport) -> RenderableType:
    """Draw the verdict, and the figures beside what is needed."""
    style = {"good": "bold green", "usable": "bold yellow"}.get(report.verdict, "bold red")
    table = new_table("syncs", "p50", "p99", "max", "good below", "slow from", numbers=["syncs", "p50", "p99", "max"])
    table.add_row(
        f"{report.sync_count:,}",
        *(f"{value_ms:,.2f} ms" for value_ms in (report.p50_ms, report.p99_ms, report.max_ms)),
        *(f"p99 {value_ms:g} ms" for value_ms in (report.good_p99_ms, report.slow_p99_ms)),
    )
    return Group(Text(f"{report.verdict}: {report.detail}", style=style), "", table)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does, so that the file is removed."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise typer.Exit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
