"""`trimaran backup prune`: remove old backups from a store, the old past of backups, and what nobody needs then."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

import typer

from ....archive.stored.backup_files import cluster_stores
from ....archive.stored.pruning import prune
from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api import ConfigurationError
from ...operating.backup.retention import DAY_MS, BackupRetention
from ...operating.backup.shortening import shorten, shorten_directory
from ...runtime.ground.host import Host
from ...runtime.ground.system_clock import SystemClock
from ..shared.event_loop import run_command_loop

_PAUSE_S: Final = 1.0

KeepDaysOption = Annotated[
    float | None,
    typer.Option(
        "--keep-days",
        min=0,
        metavar="DAYS",
        help="Every point in time of so many days before the newest snapshot stays; older log goes.",
    ),
]


def retention_of(keep_days: float | None, keep_snapshots: int | None) -> BackupRetention:
    """Make of options what stays."""
    keep_ms = None if keep_days is None else int(keep_days * DAY_MS)
    return BackupRetention(keep_snapshots=keep_snapshots, keep_ms=keep_ms)


def prune_backups(
    place: Annotated[str, typer.Argument(metavar="DIR|URL", help="A backup's directory, or a store with backups.")],
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Of a store: the newest backups of each cluster that stay.")
    ] = None,
    keep_days: KeepDaysOption = None,
    keep_snapshots: Annotated[
        int | None,
        typer.Option("--keep-snapshots", min=1, help="The newest snapshots that stay. This alone removes no log."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; print what would go.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Of a store: how long to wait for who writes now.")
    ] = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Remove what need not stay: old backups from a store, and log and snapshots that are older than is kept.

    A restore to any time that is kept remains possible. A segment that a member has in cold storage always stays.
    Members and backups wait with what they write to a store until a prune has ended. On a directory no agent may run;
    give the agent the same options instead.
    """
    if keep is None and keep_days is None and keep_snapshots is None:
        raise typer.BadParameter("expected --keep, --keep-days or --keep-snapshots")
    retention = retention_of(keep_days, keep_snapshots)
    if "://" in place:
        rows = _prune_store(place, keep, retention, wait, is_dry_run=dry_run)
    elif keep is not None:
        raise typer.BadParameter(f"--keep is for a store, and {place} is one backup: expected --keep-days")
    else:
        rows = [_prune_directory(Path(place), retention, is_dry_run=dry_run)]
    print_rows(rows, output, title=f"{place}: would be removed" if dry_run else place, empty="nothing is there")


def _prune_directory(path: Path, retention: BackupRetention, *, is_dry_run: bool) -> dict[str, Any]:
    with redirect_stdout(sys.stderr):  # the archive logs what it repairs
        found = run_command_loop(
            shorten_directory(path, retention, host=Host.of_operating_system(), is_dry_run=is_dry_run)
        )
    return {
        "directory": str(path),
        "log_start_position": found.log_start_position,
        "removed_log_bytes": found.removed_log_bytes,
        "removed_snapshots": found.removed_snapshot_positions,
        "kept_snapshots": found.snapshot_positions,
    }


def _prune_store(
    url: str, keep: int | None, retention: BackupRetention, wait_s: float, *, is_dry_run: bool
) -> list[dict[str, Any]]:
    stores = cluster_stores(url)
    if not stores:
        raise ConfigurationError(f"nothing is at {url}: expected the URL of a store that backups or members write to")
    clock, never = SystemClock(), Event()
    deadline_ns = clock.monotonic_ns() + int(wait_s * 1e9)

    def pause() -> bool:
        never.wait(_PAUSE_S)
        return clock.monotonic_ns() < deadline_ns

    pruned = [
        prune(
            store,
            keep_count=keep,
            clock_ms=clock.epoch_time,
            shorten=lambda index: shorten(index, retention),
            is_dry_run=is_dry_run,
            wait=pause,
        )
        for store in stores
    ]
    return [
        {
            "url": found.url,
            "removed_backups": found.removed_backups,
            "kept_backups": found.kept_backups,
            "shortened_backups": found.shortened_backups,
            "removed_objects": found.removed_count,
            "kept_segments": found.kept_segment_count,
        }
        for found in pruned
    ]
