"""`trimaran backup restore`: a new cluster of a backup, as it was at its end, at a position or at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from ....archive.tool.output import OutputFormat, OutputOption, new_table, print_object
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ...operating.backup.fetching import fetch_backup
from ...operating.backup.restoring import Restored, restore_backup
from ...runtime.ground.system_clock import SystemClock
from ...settings.member_endpoints import parse_members
from ..interchange.passes import pass_bar
from ..replay import parse_time_option
from ..shared.new_cluster import NewClusterIdOption, NewDirectoryOption, NewMembersOption, choose_cluster_id


def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="DIR|URL", help="The backup: a directory, or its URL in a store.")
    ],
    members: NewMembersOption,
    directory: NewDirectoryOption,
    position: Annotated[
        int | None, typer.Option("--position", min=0, help="As it was at this log position. [default: all of it]")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="As it was at this time: a date (UTC), or a number as in the log.")
    ] = None,
    cluster_id: NewClusterIdOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write the directories of a new cluster that goes on from a backup.

    The new cluster has another cluster id, so nothing of the old cluster can join it, and both can run at once. Copy
    each directory to the machine of its member.
    """
    new_id = choose_cluster_id(cluster_id)
    with _as_directory(source, directory) as local, pass_bar("restoring", None) as on_progress:
        restored = restore_backup(
            local,
            parse_members(members),
            directory,
            cluster_id=new_id,
            now_ms=SystemClock().epoch_time(),
            position=position,
            time=parse_time_option(time),
            on_progress=on_progress,
        )
    print_restored(restored, new_id, output)


def print_restored(restored: Restored, cluster_id: ClusterId, output: OutputFormat) -> None:
    """Print which cluster was made, of how much log, and where its directories are."""
    row = {
        "cluster_id": format_cluster_id(cluster_id),
        "log_position": restored.log_position,
        "leadership_term_id": restored.record.leadership_term_id,
        "end_position": restored.record.end_position,
        "directories": [str(path) for path in restored.directories],
    }
    table = new_table("what", "is", folding=["is"])
    for what, value in row.items():
        table.add_row(what, ", ".join(value) if isinstance(value, list) else str(value))
    print_object(row, output, lambda: table)


@contextmanager
def _as_directory(source: str, target: Path) -> Iterator[str]:
    """Give the backup as a directory; one in a store is fetched to where the new directories will be, and removed."""
    if "://" not in source:
        yield source
        return
    with TemporaryDirectory(prefix=".backup-", dir=target.absolute().parent) as place:
        fetched = Path(place) / "backup"
        fetch_backup(source, fetched)
        yield str(fetched)
