"""A report as text: two small tables that fit into 100 columns, or JSON.

One table has what changes with every message, the other what is looked at when something is wrong: who the process
is, who uses it, and what its last election was about or why it did not answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ....archive.tool.output import ABSENT, format_duration, format_number, new_table
from ....service_api.documents.member_status import ElectionStatus, MemberStatus
from .cluster_report import ClusterReport, MemberReport

_STATE_STYLES: Final = {"LEADER": "bold green", "FOLLOWER": "green"}
_ELECTING_STYLE: Final = "yellow"
_ORDINARY_STATES: Final = frozenset({"INIT", "ACTIVE"})
_COMMIT_LENGTH: Final = 8
_FAILED_STYLE: Final = "red"
ROLES_OF_KINDS: Final = {"learner": "LEARNER", "witness": "WITNESS", "standby": "STANDBY", None: "NO MEMBER"}
"""What a member's kind says that its role does not."""


def status_table(report: ClusterReport) -> Group:
    """Draw a report: the verdict, the positions, the processes."""
    verdict = Text(report.verdict, style="bold green" if report.has_quorum else "bold red")
    cluster = Text(f"cluster {report.cluster_id or 'not known yet'}", style="dim")
    tables = [_positions(report), _processes(report), *_standbys(report)]
    return Group(verdict, cluster, *(part for table in tables for part in ("", table)))


def _positions(report: ClusterReport) -> Table:
    numbers = ["member", "term", "append", "commit", "delivered", "lag"]
    table = new_table("member", "role", "state", *numbers[1:], numbers=numbers, folding=["role", "state"])
    for member in report.members:
        status = member.status
        role = ROLES_OF_KINDS.get(member.kind)
        if status is None:
            failed = Text(member.outcome, style=_FAILED_STYLE)
            table.add_row(str(member.member_id), role or ABSENT, failed, *[ABSENT] * 5)
            continue
        table.add_row(
            str(member.member_id),
            role or status.role,
            draw_member_state(status),
            format_number(status.leadership_term_id),
            format_number(status.append_position),
            format_number(status.commit_position),
            format_number(status.delivered_position),
            format_number(member.append_lag_bytes),
        )
    return table


def _standbys(report: ClusterReport) -> Iterator[Table]:
    """Whose log each standby takes, what it has offered, as the leader knows it, and who has that."""
    statuses = [member.status for member in report.members if member.status is not None]
    leader = next((status for status in statuses if status.member_id == report.leader_member_id), None)
    if leader is None or not leader.standbys:
        return
    sources = {status.member_id: status.log_source_id for status in statuses}
    numbers = ["standby", "follows", "snapshot"]
    table = new_table(*numbers, "age", "members that have it", numbers=numbers)
    for standby in leader.standbys:
        position, age_s = standby.snapshot_position, standby.snapshot_age_s
        having = [
            str(status.member_id)
            for status in statuses
            if position is not None and status.snapshot_position is not None and status.snapshot_position >= position
        ]
        table.add_row(
            str(standby.member_id),
            format_number(sources.get(standby.member_id)),
            format_number(position),
            ABSENT if age_s is None else format_duration(age_s),
            ", ".join(having) or ABSENT,
        )
    yield table


def draw_member_state(status: MemberStatus) -> Text:
    """Return the state in the term or election, with how far a snapshot has come, or the module's if not ordinary."""
    fetch = status.snapshot_fetch
    if fetch is not None:
        done = f"{100 * fetch.copied_bytes // fetch.length_bytes} %" if fetch.length_bytes else "asks"
        return Text(f"{status.state} snapshot of {fetch.leader_member_id}: {done}", style=_ELECTING_STYLE)
    if status.module_state in _ORDINARY_STATES:
        return Text(status.state, style=_STATE_STYLES.get(status.state, _ELECTING_STYLE))
    return Text(f"{status.state} {status.module_state}", style=_ELECTING_STYLE)


def draw_sync_p99(status: MemberStatus) -> Text:
    """Return the p99 of a member's syncs in milliseconds, marked from the setting on that calls a sync slow."""
    syncs = status.syncs
    if syncs is None:
        return Text(ABSENT)
    return Text(f"{1_000 * syncs.p99_s:,.1f} ms", style=_FAILED_STYLE if syncs.p99_s >= syncs.slow_s else "")


def _processes(report: ClusterReport) -> Table:
    reason = "last election, or why there is no answer"
    table = new_table(
        *("member", "pid", "up", "version", "sessions", "clients", "sync p99", reason),
        numbers=["member", "pid", "up", "sessions", "clients", "sync p99"],
        folding=["version", reason],
    )
    for member in report.members:
        table.add_row(str(member.member_id), *_process_cells(member))
    return table


def _process_cells(member: MemberReport) -> tuple[str | Text, ...]:
    status = member.status
    if status is None:
        return *[ABSENT] * 6, Text(member.detail or member.outcome, style=_FAILED_STYLE)
    return (
        str(status.pid),
        format_duration(status.uptime_s),
        Text(_version(status)),
        format_number(status.session_count),
        format_number(status.connection_count),
        draw_sync_p99(status),
        _reason(status),
    )


def _version(status: MemberStatus) -> str:
    """Return the version of a member, with the beginning of its commit, which tells builds of one version apart."""
    if status.commit is None:
        return status.version
    changed = "+" if status.commit.endswith("+") else ""
    return f"{status.version} {status.commit[:_COMMIT_LENGTH]}{changed}"


def _reason(status: MemberStatus) -> Text:
    """Say whom the member does not hear, or in what its state differs; without these, what its last election was."""
    if status.differing_members:
        other = status.differing_members[0]
        return Text(f"does not hear member {other.member_id}: {other.detail}", style=_FAILED_STYLE)
    if status.state_differences:
        return Text(status.state_differences[0].detail, style=_FAILED_STYLE)
    return Text("none yet" if status.last_election is None else describe_election(status.last_election))


def describe_election(election: ElectionStatus) -> str:
    """Return when an election was, how long it took, and why it was; of one that goes on, why the member waits."""
    if election.duration_s is None:
        refusal = "" if election.refusal is None else f"; {election.refusal}"
        return f"for {format_duration(election.age_s)} now: {election.reason}{refusal}"
    return f"{format_duration(election.age_s)} ago, took {format_duration(election.duration_s)}: {election.reason}"
