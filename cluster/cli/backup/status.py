"""`trimaran backup status`: what the agent of a directory says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from trimaran.archive.tool.output import (
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    fail,
    format_number,
    new_table,
    print_object,
)

from ...backup.status import FRESH_MS, BackupStatus, read_status
from ...runtime.system_clock import SystemClock

_EXIT_NOT_RUNNING: Final = 3


def show_status(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup.")],
    max_behind: Annotated[
        float, typer.Option("--max-behind", min=0, metavar="SECONDS", help="Exit with 10 if it is further behind.")
    ] = 60.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a backup is doing, where its log and snapshots end, and how far it is behind the cluster.

    Exit status: 0; 3 the agent does not run; 10 it is further behind than --max-behind.
    """
    status = read_status(directory / "cluster")
    age_s = max(0, SystemClock().epoch_time() - status.written_ms) / 1_000
    is_running = status.state != "CLOSED" and age_s * 1_000 <= FRESH_MS
    row = {
        "is_running": is_running,
        "age_s": age_s,
        "lag_bytes": status.lag_bytes,
        **status.model_dump(),
    }
    print_object(row, output, lambda: _table(status, age_s, is_running=is_running))
    if not is_running:
        fail(f"the agent does not run: it wrote {status.state} {age_s:.0f} s ago", _EXIT_NOT_RUNNING)
    if status.behind_s > max_behind:
        fail(f"the backup is {status.behind_s:.0f} s behind", EXIT_UNHEALTHY)


def _table(status: BackupStatus, age_s: float, *, is_running: bool) -> Table:
    table = new_table("what", "is", folding=["is"])
    for what, text in (
        (
            "state",
            f"{status.state}: {status.reason}" if is_running else f"not running; {status.state} {age_s:.0f} s ago",
        ),
        ("cluster", status.cluster_id or "not known yet"),
        ("source", "none" if status.source_member_id is None else f"member {status.source_member_id}"),
        ("log", f"{format_number(status.log_start_position)} to {format_number(status.recorded_position)}"),
        ("behind", f"{format_number(status.lag_bytes)} bytes, {status.behind_s:.1f} s"),
        ("snapshots", f"{status.snapshot_count}, newest at {format_number(status.snapshot_position)}"),
        ("failures", f"{status.failure_count} {status.last_failure}".strip()),
    ):
        table.add_row(what, text)
    return table
