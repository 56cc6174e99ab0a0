"""A report as text: two small tables that fit into 100 columns, or JSON.

One table has what changes with every message, the other what is looked at when something is wrong: who the process
is, who uses it, and what its last election was about or why it did not answer.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cluster.status import ElectionStatus

from .report import ClusterReport, MemberReport

WIDTH_IN_PIPE: Final = 100

_ABSENT: Final = "-"
_STATE_STYLES: Final = {"LEADER": "bold green", "FOLLOWER": "green"}
_ELECTING_STYLE: Final = "yellow"
_FAILED_STYLE: Final = "red"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def make_console() -> Console:
    """Make the console for standard output: as wide as the terminal, 100 columns and no colour in a pipe."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console(highlight=False)
    return Console(highlight=False, width=WIDTH_IN_PIPE)


def as_json(report: ClusterReport, *, indent: int | None = None) -> str:
    """Write a report as one JSON object; without `indent`, on one line."""
    return report.model_dump_json(indent=indent)


def as_table(report: ClusterReport) -> Group:
    """Draw a report: the verdict, the positions, the processes."""
    verdict = Text(report.verdict, style="bold green" if report.has_quorum else "bold red")
    return Group(verdict, "", _positions(report), "", _processes(report))


def _new_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def _positions(report: ClusterReport) -> Table:
    table = _new_table()
    table.add_column("member", justify="right", no_wrap=True)
    for heading in ("role", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("term", "append", "commit", "delivered", "lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    for member in report.members:
        status = member.status
        if status is None:
            failed = Text(member.outcome, style=_FAILED_STYLE)
            table.add_row(str(member.member_id), _ABSENT, failed, *[_ABSENT] * 5)
            continue
        table.add_row(
            str(member.member_id),
            status.role,
            Text(status.state, style=_STATE_STYLES.get(status.state, _ELECTING_STYLE)),
            _number(status.leadership_term_id),
            _number(status.append_position),
            _number(status.commit_position),
            _number(status.delivered_position),
            _number(member.append_lag_bytes),
        )
    return table


def _processes(report: ClusterReport) -> Table:
    table = _new_table()
    table.add_column("member", justify="right", no_wrap=True)
    table.add_column("pid", justify="right", no_wrap=True)
    table.add_column("up", justify="right", no_wrap=True)
    table.add_column("version", overflow="fold")
    for heading in ("sessions", "clients"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("last election, or why there is no answer", overflow="fold")
    for member in report.members:
        table.add_row(str(member.member_id), *_process_cells(member))
    return table


def _process_cells(member: MemberReport) -> tuple[str | Text, ...]:
    status = member.status
    if status is None:
        return *[_ABSENT] * 5, Text(member.detail or member.outcome, style=_FAILED_STYLE)
    election = status.last_election
    return (
        str(status.pid),
        format_duration(status.uptime_s),
        Text(status.version),
        _number(status.session_count),
        _number(status.connection_count),
        Text("none yet" if election is None else describe_election(election)),
    )


def describe_election(election: ElectionStatus) -> str:
    """Say when an election was, how long it took, and why it was."""
    if election.duration_s is None:
        return f"for {format_duration(election.age_s)} now: {election.reason}"
    return f"{format_duration(election.age_s)} ago, took {format_duration(election.duration_s)}: {election.reason}"


def format_duration(duration_s: float) -> str:
    """Write a duration in its two largest units: `41 ms`, `3.2 s`, `5 min 10 s`, `2 d 3 h`."""
    if duration_s < 1:
        return f"{round(duration_s * 1000)} ms"
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    for index, (length, unit) in enumerate(_UNITS):
        if seconds >= length:
            smaller, smaller_unit = _UNITS[index + 1] if index + 1 < len(_UNITS) else (1, "s")
            rest = seconds % length // smaller
            return f"{seconds // length} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{seconds} s"


def _number(value: int | None) -> str:
    return _ABSENT if value is None else f"{value:,}"
