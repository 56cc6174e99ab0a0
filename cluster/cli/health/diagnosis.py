"""What is wrong with a cluster, judged by what its members say of themselves.

`trimaran status` asks whether a cluster can work; this asks whether it is as it should be. A cluster of three with one
member down still works and is not healthy: one more and it stops.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from trimaran.archive.tool.output import EXIT_NO_LEADER, EXIT_UNHEALTHY, EXIT_UNREACHABLE

from ..status.report import ClusterReport, MemberReport

HEALTH_SCHEMA_VERSION: Final = 1


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
        exit_status=_exit_status(report, problems),
        verdict=report.verdict,
        problems=problems,
    )


def _exit_status(report: ClusterReport, problems: list[Problem]) -> int:
    if not report.answered_count:
        return EXIT_UNREACHABLE
    if report.leader_member_id is None:
        return EXIT_NO_LEADER
    return EXIT_UNHEALTHY if problems else 0


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
