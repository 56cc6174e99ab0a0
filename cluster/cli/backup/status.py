"""`trimaran backup status`: what the agent of a directory says of itself, and what a store has."""

from __future__ import annotations

from dataclasses import dataclass
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
    format_time,
    new_table,
    print_error,
    print_object,
    print_rows,
)
from ....service_api import ClusterError
from ....service_api.groups.group import Group
from ...operating.backup.fetching import no_backup_at
from ...operating.backup.groups import backup_directories
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

    Of a URL the store itself is asked which backups it has, where each ends, and when it last got something new. Of a
    backup of groups it shows where each ends, and the time as of which all groups can be restored.

    Exit status: 0; 3 the agent does not run, or the store does not answer; 10 it is further behind than --max-behind,
    or a store that `backup ship --follow` writes is further behind it than that and two intervals.
    """
    if "://" in place:
        _show_store(place, output)
        return
    found = backup_directories(Path(place))
    if len(found) > 1:
        _show_groups(found, max_behind, output)
        return
    directory = found[0][1]
    view = _read_view(directory)
    print_object(view.row, output, lambda: _table(view))
    problem = view.find_problem(max_behind)
    if problem is not None:
        fail(*problem)


@dataclass(slots=True, frozen=True)
class _View:
    """The backup in one directory: its status, and what follows from it now."""

    status: BackupStatus
    age_s: float
    is_running: bool
    stores: list[dict[str, Any]]

    @property
    def row(self) -> dict[str, Any]:
        return {
            "is_running": self.is_running,
            "age_s": self.age_s,
            "lag_bytes": self.status.lag_bytes,
            **self.status.model_dump(),
            "as_of": _date(self.status.as_of_ms),
            "stores": self.stores,
        }

    def find_problem(self, max_behind: float) -> tuple[str, int] | None:
        """Say what is wrong, and with which exit status the command ends then."""
        status = self.status
        if not self.is_running:
            return f"the agent does not run: it wrote {status.state} {self.age_s:.0f} s ago", _EXIT_NOT_RUNNING
        if status.behind_s > max_behind:
            return f"the backup is {status.behind_s:.0f} s behind", EXIT_UNHEALTHY
        for store in self.stores:
            if store["age_s"] is None or store["age_s"] > max_behind + 2 * store["interval_s"]:
                why = store["last_failure"] or "its copies take long"
                return f"{store['url']} is behind the backup: {why}", EXIT_UNHEALTHY
        return None


def _read_view(directory: Path) -> _View:
    status = read_status(directory / "cluster")
    now_ms = SystemClock().epoch_time()
    age_s = max(0, now_ms - status.written_ms) / 1_000
    is_running = status.state != "CLOSED" and age_s * 1_000 <= FRESH_MS
    stores = [_store_row(found, status, now_ms) for found in read_store_statuses(directory)]
    return _View(status, age_s, is_running, stores)


def _show_groups(found: list[tuple[Group, Path]], max_behind: float, output: OutputFormat) -> None:
    """Print where the backup of each group ends, and the time that all of them reach."""
    rows, problems = list[dict[str, Any]](), list[tuple[str, int]]()
    for group, directory in found:
        try:
            view = _read_view(directory)
        except ClusterError as error:
            rows.append({"group": group.to_text(), "state": None, "recorded_position": None, "as_of_ms": None})
            problem: tuple[str, int] | None = str(error), _EXIT_NOT_RUNNING
        else:
            rows.append({"group": group.to_text(), **view.row})
            problem = view.find_problem(max_behind)
        if problem is not None:
            problems.append((f"{group}: {problem[0]}", problem[1]))
    times = [row["as_of_ms"] for row in rows]
    common_ms = None if None in times else min(times)
    row = {"as_of_ms": common_ms, "as_of": _date(common_ms), "groups": rows}
    print_object(row, output, lambda: _groups_table(rows, common_ms))
    for text, _ in problems:
        print_error(text)
    if problems:
        raise typer.Exit(problems[0][1])


def _groups_table(rows: list[dict[str, Any]], common_ms: int | None) -> Table:
    table = new_table("group", "state", "log to", "behind", "as of", numbers=["log to", "behind"])
    for row in rows:
        behind = "-" if row["state"] is None else f"{row['behind_s']:.1f} s"
        state = "no backup" if row["state"] is None else row["state"] if row["is_running"] else "not running"
        as_of = _date(row["as_of_ms"]) or "not known"
        table.add_row(row["group"], state, format_number(row["recorded_position"]), behind, as_of)
    table.add_row("all", "", "", "", _date(common_ms) or "not known")
    return table


def _date(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


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


def _table(view: _View) -> Table:
    status = view.status
    stopped = f"not running; {status.state} {view.age_s:.0f} s ago"
    table = new_table("what", "is", folding=["is"])
    for what, text in (
        ("state", f"{status.state}: {status.reason}" if view.is_running else stopped),
        ("cluster", status.cluster_id or "not known yet"),
        ("source", "none" if status.source_member_id is None else f"member {status.source_member_id}"),
        ("log", f"{format_number(status.log_start_position)} to {format_number(status.recorded_position)}"),
        ("as of", _date(status.as_of_ms) or "not known"),
        ("behind", f"{format_number(status.lag_bytes)} bytes, {status.behind_s:.1f} s"),
        ("snapshots", f"{status.snapshot_count}, newest at {format_number(status.snapshot_position)}"),
        ("failures", f"{status.failure_count} {status.last_failure}".strip()),
        *((store["url"], _describe_store(store)) for store in view.stores),
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
