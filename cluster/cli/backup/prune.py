"""`trimaran backup prune`: remove old backups from a store, and what no backup and no member needs then."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ....archive.stored.backup_files import cluster_stores
from ....archive.stored.pruning import prune
from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api import ConfigurationError
from ...runtime.ground.system_clock import SystemClock


def prune_store(
    url: Annotated[str, typer.Argument(metavar="URL", help="The store: as for `backup ship` and cold_storage_url.")],
    keep: Annotated[int, typer.Option("--keep", min=1, help="The newest backups of each cluster that stay.")],
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for those who write now.")
    ] = 600.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Remove old backups from a store, and the log that no backup and no member's cold storage needs then.

    Members and backups wait with what they write until it has ended. If it is cut off, run it again.
    """
    stores = cluster_stores(url)
    if not stores:
        raise ConfigurationError(f"nothing is at {url}: expected the URL of a store that backups or members write to")
    rows = []
    for store in stores:
        clock, deadline = SystemClock(), time.monotonic() + wait

        def pause(deadline: float = deadline) -> bool:
            time.sleep(1.0)
            return time.monotonic() < deadline

        pruned = prune(store, keep_count=keep, clock_ms=clock.epoch_time, wait=pause)
        rows.append(
            {
                "url": pruned.url,
                "removed_backups": pruned.removed_backups,
                "kept_backups": pruned.kept_backups,
                "removed_objects": pruned.removed_count,
                "kept_segments": pruned.kept_segment_count,
            }
        )
    print_rows(rows, output, title=url, empty="nothing is there")
