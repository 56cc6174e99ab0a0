"""`trimaran backup status`: what the agent of a directory says of itself, and what a store has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from ....archive.stored.backup_files import find_backups
from ....archive.tool.output import (
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    fail,
    format_number,
    new_table,
    print_object,
    print_rows,
)
from ...operating.backup.fetching import no_backup_at
from ...operating.backup.status import FRESH_MS, BackupStatus, read_status
from ...operating.backup.store_status import StoreStatus, read_store_statuses
from ...runtime.ground.system_clock import SystemClock

_EXIT_NOT_RUNNING: Final = 3


def show_status(
    place: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="The directory of the backup, or the store that it is copied to.")
    ],
    max_behind: Annotated[
        float, typer.Option("--max-behind", min=0, metavar="SECONDS", help="Exit with 10 if it is further behind.")
    ] = 60.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a backup is doing, where its log and snapshots end, and how far it is behind the cluster.

    Of a URL the store itself is asked which backups it has, where each ends, and when it last got something new.

    Exit status: 0; 3 the agent does not run, or the store does not answer; 10 it is further behind than --max-behind,
    or a store that `backup ship --follow` writes is further behind it than that and two intervals.
    """
    if "://" in place:
        _show_store(place, output)
        return
    directory = Path(place)
    status = read_status(directory / "cluster")
    now_ms = SystemClock().epoch_time()
    age_s = max(0, now_ms - status.written_ms) / 1_000
    is_running = status.state != "CLOSED" and age_s * 1_000 <= FRESH_MS
    stores = [_store_row(found, status, now_ms) for found in read_store_statuses(directory)]
    row = {
        "is_running": is_running,
        "age_s": age_s,
        "lag_bytes": status.lag_bytes,
        **status.model_dump(),
        "stores": stores,
    }
    print_object(row, output, lambda: _table(status, age_s, stores, is_running=is_running))
    if not is_running:
        fail(f"the agent does not run: it wrote {status.state} {age_s:.0f} s ago", _EXIT_NOT_RUNNING)
    if status.behind_s > max_behind:
        fail(f"the backup is {status.behind_s:.0f} s behind", EXIT_UNHEALTHY)
    for store in stores:
        if store["age_s"] is None or store["age_s"] > max_behind + 2 * store["interval_s"]:
            fail(
                f"{store['url']} is behind the backup: {store['last_failure'] or 'its copies take long'}",
                EXIT_UNHEALTHY,
            )


def _show_store(url: str, output: OutputFormat) -> None:
    """Print what the store has.

    Raises:
        ConfigurationError: it has no backup.
        StoreError: it refused, or did not answer.
    """
    now_ms = SystemClock().epoch_time()
    rows = []
    for found in find_backups(url):
        contents = found.index.backup
        assert contents is not None
        rows.append(
            {
                "url": found.url,
                "log_start_position": contents.log_start_position,
                "log_stop_position": contents.log_stop_position,
                "snapshot_positions": contents.snapshot_positions,
                "bytes": sum(file.length for file in found.index.files),
                "objects": sum(len(file.objects) for file in found.index.files),
                "age_s": max(0, now_ms - contents.written_ms) / 1_000,
            }
        )
    if not rows:
        raise no_backup_at(url)
    print_rows(rows, output, title=url, empty="no backup")


def _store_row(store: StoreStatus, status: BackupStatus, now_ms: int) -> dict[str, Any]:
    """Describe one store; its age is None while it has nothing."""
    age_ms = store.age_ms(status.recorded_position, now_ms)
    return {
        **store.model_dump(),
        "age_s": None if age_ms is None else age_ms / 1_000,
        "lag_bytes": max(0, status.recorded_position - (store.log_stop_position or status.log_start_position)),
    }


def _table(status: BackupStatus, age_s: float, stores: list[dict[str, Any]], *, is_running: bool) -> Table:
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
        *((store["url"], _describe_store(store)) for store in stores),
    ):
        table.add_row(what, text)
    return table


def _describe_store(store: dict[str, Any]) -> str:
    failures = (
        f"; {store['failure_count']} failures, the last {store['last_failure']}" if store["failure_count"] else ""
    )
    if store["age_s"] is None:
        return f"nothing yet{failures}"
    position = format_number(store["log_stop_position"])
    return f"log to {position}, behind {format_number(store['lag_bytes'])} bytes, {store['age_s']:.1f} s{failures}"
