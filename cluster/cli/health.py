"""`trimaran health`: ask every member at once, say what is wrong, and end with a status that a script can act on.

`trimaran status` asks whether a cluster can work. This command asks whether it is as it should be: a cluster of three
with one member down still works, and is not healthy, because with another one down it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.text import Text

from trimaran.archive.tool.output import (
    EXIT_OK,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    new_table,
    print_object,
)
from trimaran.service_api import ConfigurationError
from trimaran.service_api.quantities import parse_size_bytes

from .shared.cluster_report import ClusterReport, MemberReport, ask_cluster, exit_status
from .shared.setting_flags import load_consensus_endpoints, with_member_flags
from .shared.watching import TimeoutOption

HEALTH_SCHEMA_VERSION: Final = 1
WAIT_INTERVAL_S: Final = 0.5
"""Between two questions of `--wait`."""


class ProblemKind(StrEnum):
    """What can be wrong, to count and filter by."""

    NO_ANSWER = "no_answer"
    """A member did not give its status."""
    NO_LEADER = "no_leader"
    """No member leads."""
    NO_QUORUM = "no_quorum"
    """There is a leader, but no majority in its term: nothing commits."""
    NOT_IN_TERM = "not_in_term"
    """A member answers, but is in an election or in another term than the leader."""
    BEHIND = "behind"
    """A member's durable log, or what its service was given, is further behind the leader's than allowed."""
    DIFFERS = "differs"
    """A member does not hear another one, because their settings differ."""


class Problem(BaseModel):
    """One thing that is wrong."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: ProblemKind
    member_id: int | None
    """The member it is about; None for the cluster."""
    detail: str


class HealthReport(BaseModel):
    """What `trimaran health -o json` prints: one object, always with all of these keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = HEALTH_SCHEMA_VERSION
    asked_at_ms: int
    is_healthy: bool
    exit_status: int
    """0 healthy, 3 no member can be reached, 10 unhealthy, 11 no leader."""
    verdict: str
    """The state of the cluster as one line for people."""
    problems: list[Problem]


@with_member_flags
def health(
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    max_lag: Annotated[
        str, typer.Option("--max-lag", metavar="BYTES", help="How far a member may be behind, such as 16MiB.")
    ] = "16MiB",
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="SECONDS", help="Wait up to this long until the cluster is healthy."),
    ] = 0.0,
    **settings: Any,
) -> None:
    """Check whether a cluster is healthy: every member answers, all are in one term, and none is far behind.

    The members come from flags, TRIMARAN_* variables and a TOML file, as for `trimaran node`.

    Exit status 0: healthy; 2: wrong usage; 3: no member can be reached; 10: unhealthy, such as a member that is down;
    11: members answer, but there is no leader.
    """
    endpoints = load_consensus_endpoints(settings)
    try:
        lag_limit_bytes = parse_size_bytes(max_lag)
    except ValueError:
        raise ConfigurationError(f"bad size: --max-lag={max_lag!r} expected a size, such as 16MiB") from None
    report = asyncio.run(_ask_until_well(endpoints, timeout, lag_limit_bytes, wait))
    print_object(report.model_dump(mode="json"), output, lambda: health_table(report))
    raise typer.Exit(report.exit_status)


def health_table(report: HealthReport) -> RenderableType:
    """Draw the verdict, and a line for each problem."""
    word = "healthy" if report.is_healthy else "unhealthy"
    verdict = Text(f"{word}: {report.verdict}", style="bold green" if report.is_healthy else "bold red")
    if report.is_healthy:
        return verdict
    table = new_table("member", "problem", "detail", numbers=["member"])
    for problem in report.problems:
        member = "-" if problem.member_id is None else str(problem.member_id)
        table.add_row(member, Text(problem.kind.value, style="red"), Text(problem.detail))
    return Group(verdict, "", table)


async def _ask_until_well(
    endpoints: Mapping[int, str], timeout_s: float, lag_limit_bytes: int, wait_s: float
) -> HealthReport:
    """Ask until the cluster is well, or the time is up; give the last report."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        report = diagnose(await ask_cluster(endpoints, timeout_s), lag_limit_bytes=lag_limit_bytes)
        if report.is_healthy or loop.time() + WAIT_INTERVAL_S > deadline_s:
            return report
        await asyncio.sleep(WAIT_INTERVAL_S)


def diagnose(report: ClusterReport, *, lag_limit_bytes: int) -> HealthReport:
    """Find what is wrong in what the members answered."""
    problems = [
        problem
        for member in report.members
        for problem in (*_of_member(member, report, lag_limit_bytes), *_differences(member))
    ]
    if report.answered_count and report.leader_member_id is None:
        problems.insert(0, Problem(kind=ProblemKind.NO_LEADER, member_id=None, detail=report.verdict))
    elif report.leader_member_id is not None and not report.has_quorum:
        problems.insert(0, Problem(kind=ProblemKind.NO_QUORUM, member_id=None, detail=report.verdict))
    return HealthReport(
        asked_at_ms=report.asked_at_ms,
        is_healthy=not problems,
        exit_status=exit_status(report) or (EXIT_UNHEALTHY if problems else EXIT_OK),
        verdict=report.verdict,
        problems=problems,
    )


def _differences(member: MemberReport) -> list[Problem]:
    differing = [] if member.status is None else member.status.differing_members
    return [
        Problem(
            kind=ProblemKind.DIFFERS,
            member_id=member.member_id,
            detail=f"does not hear member {other.member_id}: {other.detail}",
        )
        for other in differing
    ]


def _of_member(member: MemberReport, report: ClusterReport, lag_limit_bytes: int) -> list[Problem]:
    status, leader_id = member.status, report.leader_member_id

    def problem(kind: ProblemKind, detail: str) -> list[Problem]:
        return [Problem(kind=kind, member_id=member.member_id, detail=detail)]

    if status is None:
        return problem(ProblemKind.NO_ANSWER, f"{member.outcome.value}: {member.detail or member.endpoint}")
    if leader_id is None:
        return []  # that is the cluster's problem, and not one of each member
    if (status.leader_member_id, status.leadership_term_id) != (leader_id, report.leadership_term_id):
        term = "no term" if status.leadership_term_id is None else f"term {status.leadership_term_id}"
        election = status.last_election
        reason = "" if election is None or election.duration_s is not None else f": {election.reason}"
        return problem(ProblemKind.NOT_IN_TERM, f"{status.state} in {term}{reason}")
    lag_bytes = member.append_lag_bytes or 0
    if lag_bytes > lag_limit_bytes:
        return problem(ProblemKind.BEHIND, f"its log is {lag_bytes:,} bytes behind the leader's")
    undelivered_bytes = status.commit_position - status.delivered_position
    if undelivered_bytes > lag_limit_bytes:
        return problem(ProblemKind.BEHIND, f"its service is {undelivered_bytes:,} bytes behind what is committed")
    return []
