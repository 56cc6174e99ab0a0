"""`trimaran backup restore`: a new cluster of a backup, as it was at its end, at a position or at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from ....archive.log.group_directories import find_group_count
from ....archive.tool.output import OutputFormat, OutputOption, new_table, print_object
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ....service_api.quantities import format_date
from ...operating.backup.fetching import fetch_backup
from ...operating.backup.groups import backup_directories
from ...operating.backup.restoring import Restored, restore_backup
from ...operating.backup.restoring_groups import restore_groups
from ...runtime.ground.system_clock import SystemClock
from ...settings.member_endpoints import MemberEndpoints, parse_members
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
    each directory to the machine of its member. A backup of groups is restored to one time: the latest that the backups
    of all groups reach, or --time.
    """
    new_id = choose_cluster_id(cluster_id)
    if "://" not in source and find_group_count(Path(source)) is not None:
        if position is not None:
            raise typer.BadParameter("positions of different groups have no common order: expected --time")
        _restore_groups(Path(source), parse_members(members), directory, new_id, parse_time_option(time), output)
        return
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


def _restore_groups(
    source: Path,
    members: Sequence[MemberEndpoints],
    directory: Path,
    cluster_id: ClusterId,
    time: int | datetime | None,
    output: OutputFormat,
) -> None:
    with pass_bar("restoring", None) as on_progress:
        restored = restore_groups(
            backup_directories(source),
            members,
            directory,
            cluster_id=cluster_id,
            now_ms=SystemClock().epoch_time(),
            time=time,
            on_progress=on_progress,
        )
    row = {
        "cluster_id": format_cluster_id(cluster_id),
        "as_of": format_date(restored.time_ns // 1_000),
        "log_positions": [record.term_base_log_position for record in restored.records],
        "end_positions": [record.end_position for record in restored.records],
        "directories": [str(path) for path in restored.directories],
    }
    _print_row(row, output)


def print_restored(restored: Restored, cluster_id: ClusterId, output: OutputFormat) -> None:
    """Print which cluster was made, of how much log, and where its directories are."""
    row = {
        "cluster_id": format_cluster_id(cluster_id),
        "log_position": restored.log_position,
        "leadership_term_id": restored.record.leadership_term_id,
        "end_position": restored.record.end_position,
        "directories": [str(path) for path in restored.directories],
    }
    _print_row(row, output)


def _print_row(row: dict[str, Any], output: OutputFormat) -> None:
    table = new_table("what", "is", folding=["is"])
    for what, value in row.items():
        table.add_row(what, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
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
