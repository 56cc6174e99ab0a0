"""A report about a cluster, made of the status of each member.

The members are asked at once, but each answers at its own moment and about itself: positions of a cluster under load
are some microseconds apart, and a member that was cut off may still claim to lead an old term. So the leader is the one
of the highest term (`find_leader`), and it has a quorum when a majority, the leader included, answers *in its term*.

Settings only begin a cluster. Who the members are, and who has a vote, is what the leader says; without a leader, the
member with the newest configuration. Members that settings do not know are asked in a second round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict

from ....archive.tool.output import EXIT_NO_LEADER, EXIT_OK, EXIT_UNHEALTHY, EXIT_UNREACHABLE
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.documents.document import printable_line
from ....service_api.documents.member_status import (
    ConfiguredMemberStatus,
    MemberStatus,
    find_leader,
    is_in_term_of,
)
from ....service_api.net.transport import SOCKETS, NetworkStack
from ...core.vocabulary.configuration import MemberKind
from ...core.vocabulary.members import quorum_threshold
from ...documents.query import Outcome, StatusQueryError, query_status
from ...runtime.ground.system_clock import SystemClock

REPORT_SCHEMA_VERSION: Final = 1


class MemberReport(BaseModel):
    """One member: what came of asking it, and its status if it answered."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    member_id: int
    endpoint: str
    """Its consensus endpoint, which was asked."""
    kind: str | None = None
    """`voter`, `learner`, `witness` or `standby`; None if it is no member: it was removed, or never added."""
    outcome: Outcome
    detail: str | None
    """What happened instead of an answer, as a sentence."""
    append_lag_bytes: int | None = None
    """How far its recording is behind the leader's; None without an answer or without a leader."""
    commit_lag_bytes: int | None = None
    """How far the commit position it knows of is behind the leader's."""
    status: MemberStatus | None


class ClusterReport(BaseModel):
    """What `trimaran status -o json` prints: one object, always with all of these keys.

    `members` are in the order in which they were asked, those that did not answer included: first those of the
    settings, also where they are no members any more, then those that only the cluster itself knows.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = REPORT_SCHEMA_VERSION
    cluster_id: str | None
    """The cluster of the leader, or without one of the members that answer; None if it is not known or not one."""
    group: str
    """Which of the cluster's groups answers, as `index/count`; empty: none does, or the cluster has no groups."""
    asked_at_ms: int
    """When the members were asked: milliseconds since the Unix epoch, by the clock of who asked."""
    verdict: str
    """All of the following as one line for people."""
    has_quorum: bool
    """Whether there is a leader and a majority of the voters answered in its term: then `status` ends with 0."""
    leader_member_id: int | None
    """The member that leads in the highest term; None when nobody does."""
    leadership_term_id: int | None
    """The highest leadership term that a member takes part in."""
    commit_position: int | None
    """The highest commit position that a member knows of."""
    member_count: int
    """How many members the cluster has, voters or not."""
    answered_count: int
    """How many of them answered."""
    in_term_count: int
    """How many members, the leader included, lead or follow in the leader's term."""
    voter_count: int
    """How many members have a vote."""
    voters_in_term_count: int
    """How many of these lead or follow in the leader's term."""
    quorum_count: int
    """How many voters make a majority."""
    members: list[MemberReport]


async def ask_cluster(
    endpoints: Mapping[int, str],
    timeout_s: float,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> ClusterReport:
    """Ask every member at once and put their answers together; takes at most `timeout_s`.

    It takes up to twice as long where the cluster has members that are not in `endpoints`, or elsewhere than there.
    With a `cluster_id` the answer of another cluster's member is no answer, and its outcome says so.
    """
    asked_at_ms = SystemClock().epoch_time()
    answers = await ask_members(endpoints, timeout_s, cluster_id=cluster_id, network=network)
    elsewhere = find_members_elsewhere(answers)
    if elsewhere:
        again = await ask_members(elsewhere, timeout_s, cluster_id=cluster_id, network=network)
        answers = [*{answer.member_id: answer for answer in (*answers, *again)}.values()]
    return make_report(answers, asked_at_ms=asked_at_ms)


def find_members_elsewhere(answers: Sequence[MemberReport]) -> dict[int, str]:
    """Find where the cluster itself has members that were not asked, or did not answer where they were asked."""
    asked = {answer.member_id: answer.endpoint for answer in answers if answer.outcome is not Outcome.ANSWERED}
    answered = {answer.member_id for answer in answers} - asked.keys()
    return {
        member.member_id: member.consensus
        for member in _find_members(answers)
        if member.member_id not in answered and asked.get(member.member_id) != member.consensus
    }


def _find_members(answers: Sequence[MemberReport]) -> Sequence[ConfiguredMemberStatus]:
    """Find who the members are; where nobody says so, all that were asked, with a vote."""
    statuses = [answer.status for answer in answers if answer.status is not None and answer.status.members]
    leader = find_leader(statuses)
    if leader is not None:
        return leader.members
    newest = max(statuses, key=lambda status: status.configuration_position, default=None)
    if newest is not None:
        return newest.members
    return [
        ConfiguredMemberStatus(member_id=answer.member_id, kind=MemberKind.VOTER, consensus=answer.endpoint)
        for answer in answers
    ]


async def ask_members(
    endpoints: Mapping[int, str],
    timeout_s: float,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> list[MemberReport]:
    """Ask every member at once at its consensus endpoint; takes at most `timeout_s`, however many there are."""
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                _ask_member(member_id, endpoint, timeout_s, cluster_id, network), name=f"status-{member_id}"
            )
            for member_id, endpoint in endpoints.items()
        ]
    return [task.result() for task in asked]


def make_report(answers: Sequence[MemberReport], *, asked_at_ms: int) -> ClusterReport:
    """Put the members' answers together into one picture."""
    statuses = [answer.status for answer in answers if answer.status is not None]
    leader = find_leader(statuses)
    kinds = {member.member_id: member.kind for member in _find_members(answers)}
    voters = {member_id for member_id, kind in kinds.items() if is_voter(kind)}
    in_term = {status.member_id for status in statuses if leader is not None and is_in_term_of(status, leader)}
    counts = _Counts(
        members=len(kinds),
        answered=sum(status.member_id in kinds for status in statuses),
        in_term=len(in_term & kinds.keys()),
        voters=len(voters),
        voters_in_term=len(in_term & voters),
    )
    has_quorum = leader is not None and counts.voters_in_term >= counts.quorum
    terms = [status.leadership_term_id for status in statuses if status.leadership_term_id is not None]
    commit_position = max((status.commit_position for status in statuses), default=None)
    cluster_ids = {status.cluster_id for status in (statuses if leader is None else [leader])} - {None}
    others = [answer.detail for answer in answers if answer.outcome is Outcome.OTHER_CLUSTER]
    return ClusterReport(
        cluster_id=cluster_ids.pop() if len(cluster_ids) == 1 else None,
        group=next((status.group for status in statuses if leader in (None, status)), ""),
        asked_at_ms=asked_at_ms,
        verdict=str(others[0]) if others and not statuses else _verdict(leader, statuses, counts),
        has_quorum=has_quorum,
        leader_member_id=None if leader is None else leader.member_id,
        leadership_term_id=max(terms, default=None),
        commit_position=commit_position,
        member_count=counts.members,
        answered_count=counts.answered,
        in_term_count=counts.in_term,
        voter_count=counts.voters,
        voters_in_term_count=counts.voters_in_term,
        quorum_count=counts.quorum,
        members=[_with_lag(answer, leader, kinds.get(answer.member_id)) for answer in answers],
    )


def is_voter(kind: str | None) -> bool:
    """Return whether a member of this kind has a vote."""
    return kind in (MemberKind.VOTER, MemberKind.WITNESS)


def exit_status(report: ClusterReport) -> int:
    """Return the status that says whether a cluster can work."""
    if not report.answered_count:
        return EXIT_UNREACHABLE
    if report.leader_member_id is None:
        return EXIT_NO_LEADER
    return EXIT_OK if report.has_quorum else EXIT_UNHEALTHY


async def _ask_member(
    member_id: int, endpoint: str, timeout_s: float, cluster_id: ClusterId, network: NetworkStack
) -> MemberReport:
    try:
        status = await query_status(endpoint, timeout_s, cluster_id=cluster_id, network=network)
        if status.member_id != member_id:
            raise StatusQueryError(Outcome.INVALID, f"{endpoint} answers as member {status.member_id}")
    except StatusQueryError as error:
        detail = printable_line(error.detail)
        return MemberReport(member_id=member_id, endpoint=endpoint, outcome=error.outcome, detail=detail, status=None)
    return MemberReport(member_id=member_id, endpoint=endpoint, outcome=Outcome.ANSWERED, detail=None, status=status)


def _with_lag(answer: MemberReport, leader: MemberStatus | None, kind: str | None) -> MemberReport:
    status = answer.status
    if status is None or leader is None:
        return answer.model_copy(update={"kind": kind})
    # A follower that answered a moment after its leader may seem to be ahead.
    return answer.model_copy(
        update={
            "kind": kind,
            "append_lag_bytes": max(0, leader.append_position - status.append_position),
            "commit_lag_bytes": max(0, leader.commit_position - status.commit_position),
        }
    )


@dataclass(slots=True, frozen=True, kw_only=True)
class _Counts:
    """The numbers of a report, as its fields say what they are."""

    members: int
    answered: int
    in_term: int
    voters: int
    voters_in_term: int

    @property
    def quorum(self) -> int:
        return quorum_threshold(self.voters)


def _verdict(leader: MemberStatus | None, statuses: Sequence[MemberStatus], counts: _Counts) -> str:
    """Say it in one line.

    Without a leader it names where the longest log ends: a member that has just started knows its log to be committed
    up to its newest snapshot only.
    """
    if not statuses:
        return f"no member answers: 0 of {counts.members}"
    if leader is None:
        end_position = max(status.append_position for status in statuses)
        return (
            f"no leader: {counts.answered} of {counts.members} members answer, the longest log ends at {end_position:,}"
        )
    commit = f"commit {max(status.commit_position for status in statuses):,}"
    leads = f"leader {leader.member_id} in term {leader.leadership_term_id}"
    if counts.voters_in_term < counts.quorum:
        return f"no quorum: {leads}, but only {counts.voters_in_term} of {counts.voters} voters in it, {commit}"
    if leader.module_state == "SUSPENDED":
        leads += ", suspended"
    return f"{leads}, {counts.in_term} of {counts.members} members, {commit}"
