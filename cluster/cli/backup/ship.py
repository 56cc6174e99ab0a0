"""`trimaran backup ship`: bring an object store up to what a backup has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ....archive.tool.output import OutputFormat, OutputOption, new_table, print_object
from ....service_api.types import NULL_VALUE
from ...operating.backup.shipping import ship_backup
from ...operating.backup.store_follower import StoreFollower
from ...runtime.ground.host import Host
from ...runtime.ground.system_clock import SystemClock
from ..shared.event_loop import run_command_loop
from ..shared.logging import configure_logging
from .stopping import run_until_signal


def ship_to_store(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup; its agent may run.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: s3://bucket/name, gs://..., file:///...")],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Copy again and again, until SIGTERM or SIGINT.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="With --follow: from one copy to the next.")
    ] = 10.0,
    log_format: Annotated[str, typer.Option("--log-format", help="auto, console or json.")] = "auto",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Bring an object store up to what a backup has: each copy sends what is new.

    A reader of the store never sees half of anything. Encryption and storage class are the store's. With --follow a
    copy that fails is tried again, and `trimaran backup status DIR` says how far the store has come.
    """
    if follow:
        configure_logging(log_format, member_id=NULL_VALUE)
        follower = StoreFollower(directory, url, interval_s=interval, host=Host.of_operating_system())
        run_command_loop(run_until_signal(follower.run()))
        return
    shipped = ship_backup(directory, url, clock_ms=SystemClock().epoch_time)
    row: dict[str, Any] = {
        "url": shipped.url,
        "log_start_position": shipped.contents.log_start_position,
        "log_stop_position": shipped.contents.log_stop_position,
        "snapshot_positions": shipped.contents.snapshot_positions,
        "written_objects": shipped.written_count,
        "written_bytes": shipped.written_bytes,
        "removed_objects": shipped.removed_count,
    }
    table = new_table("what", "is", folding=["is"])
    for what, value in row.items():
        table.add_row(what, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    print_object(row, output, lambda: table)
