"""`trimaran backup prune`: remove old backups from a store, and what no backup and no member needs then."""

from __future__ import annotations

from threading import Event
from typing import Annotated, Final

import typer

from ....archive.stored.backup_files import cluster_stores
from ....archive.stored.pruning import prune
from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api import ConfigurationError
from ...runtime.ground.system_clock import SystemClock

_PAUSE_S: Final = 1.0


def prune_store(
    url: Annotated[str, typer.Argument(metavar="URL", help="The store: as for `backup ship` and cold_storage_url.")],
    keep: Annotated[int, typer.Option("--keep", min=1, help="The newest backups of each cluster that stay.")],
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for those who write now.")
    ] = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Remove old backups from a store, and the log that no backup and no member's cold storage needs then.

    Members and backups wait with what they write until it has ended. After one that was cut off, the next one says
    which object is in its way.
    """
    stores = cluster_stores(url)
    if not stores:
        raise ConfigurationError(f"nothing is at {url}: expected the URL of a store that backups or members write to")
    clock, never = SystemClock(), Event()
    deadline_ns = clock.monotonic_ns() + int(wait * 1e9)

    def pause() -> bool:
        never.wait(_PAUSE_S)
        return clock.monotonic_ns() < deadline_ns

    pruned = [prune(store, keep_count=keep, clock_ms=clock.epoch_time, wait=pause) for store in stores]
    rows = [
        {
            "url": found.url,
            "removed_backups": found.removed_backups,
            "kept_backups": found.kept_backups,
            "removed_objects": found.removed_count,
            "kept_segments": found.kept_segment_count,
        }
        for found in pruned
    ]
    print_rows(rows, output, title=url, empty="nothing is there")
