"""`trimaran backup ship`: bring an object store up to what a backup has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trimaran.archive.tool.output import OutputFormat, OutputOption, new_table, print_object

from ...backup.shipping import ship_backup
from ...runtime.system_clock import SystemClock


def ship_to_store(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup; its agent may run.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: s3://bucket/name, gs://..., file:///...")],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Bring an object store up to what a backup has: closed segments and snapshots once, the newest segment each time.

    A reader of the store never sees half of anything. Encryption and storage class are the store's.
    """
    shipped = ship_backup(directory, url, now_ms=SystemClock().epoch_time())
    row: dict[str, Any] = {
        "url": url,
        "log_start_position": shipped.manifest.log_start_position,
        "log_stop_position": shipped.manifest.log_stop_position,
        "snapshot_positions": shipped.manifest.snapshot_positions,
        "written_objects": shipped.written_count,
        "written_bytes": shipped.written_bytes,
        "removed_objects": shipped.removed_count,
    }
    table = new_table("what", "is", folding=["is"])
    for what, value in row.items():
        table.add_row(what, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    print_object(row, output, lambda: table)
