"""Statuses and answers as members would give them, for the tests of what is made of them."""

from __future__ import annotations

from trimaran.cluster.cli.shared.cluster_report import MemberReport
from trimaran.cluster.documents.query import Outcome
from trimaran.service_api.documents.document import RoleName
from trimaran.service_api.documents.member_status import ConfiguredMemberStatus, ElectionStatus, MemberStatus

LINK_CLOSED = ElectionStatus(
    reason="link to leader 0 closed",
    reason_kind="leader_link_closed",
    age_s=3.25,
    duration_s=0.041,
    leadership_term_id=3,
)


def member_status(
    member_id: int,
    *,
    state: str = "FOLLOWER",
    leader: int | None = 1,
    term: int | None = 3,
    append: int = 123_456,
    commit: int | None = None,
    election: ElectionStatus | None = LINK_CLOSED,
    members: str = "",
    configuration_position: int = 0,
) -> MemberStatus:
    """A member in a term, or in an election if `state` says so; the winner of an election has its role from then on.

    `members` are those of its configuration, as `0 1 3:learner`; none of a member that does not say.
    """
    role: RoleName = "LEADER" if state.startswith("LEADER") else "FOLLOWER"
    return MemberStatus(
        member_id=member_id,
        cluster_id="3f9a0c12d45e77b1",
        version="0.1.0",
        pid=4711 + member_id,
        uptime_s=12.5,
        role=role,
        state=state,
        leader_member_id=leader,
        leadership_term_id=term,
        configuration_position=configuration_position,
        members=[
            ConfiguredMemberStatus(
                member_id=int(each), kind=kind or "voter", consensus=f"127.0.0.1:{9001 + 100 * int(each)}"
            )
            for each, _, kind in (member.partition(":") for member in members.split())
        ],
        append_position=append,
        commit_position=append if commit is None else commit,
        delivered_position=append if commit is None else commit,
        session_count=7,
        connection_count=6,
        last_election=election,
    )


def answered(status: MemberStatus) -> MemberReport:
    return MemberReport(
        member_id=status.member_id,
        endpoint=f"127.0.0.1:{9001 + 100 * status.member_id}",
        outcome=Outcome.ANSWERED,
        detail=None,
        status=status,
    )


def failed(
    member_id: int, outcome: Outcome = Outcome.REFUSED, detail: str = "no process listens there"
) -> MemberReport:
    return MemberReport(
        member_id=member_id,
        endpoint=f"127.0.0.1:{9001 + 100 * member_id}",
        outcome=outcome,
        detail=detail,
        status=None,
    )
