"""Finds the member that a backup copies from: asks all of them how they are, and ranks those that can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ....service_api import ClusterError
from ....service_api.cluster_id import ClusterId
from ....service_api.documents.member_status import MemberStatus, is_in_term, leads
from ....service_api.net.transport import NetworkStack
from ...core.vocabulary.configuration import MemberKind
from ...documents.query import query_status
from ...settings.member_endpoints import MemberEndpoints


class BackupSource(StrEnum):
    """Which member a backup is to copy from. Source: aeron.md §6.1, source type."""

    FOLLOWER = "follower"
    """A follower; the leader only while no follower can be used."""
    LEADER = "leader"
    """The leader alone."""
    ANY = "any"


class NoSourceError(ClusterError):
    """No member can be copied from."""

    def __init__(self, message: str, informed: Sequence[MemberEndpoints] = ()) -> None:
        super().__init__(message)
        self.informed = informed
        """Members of the cluster that are in a term all the same: they know where the others are. Newest first."""


@dataclass(slots=True, frozen=True)
class FoundSource:
    """A member that can be used, and what all of them said."""

    member: MemberEndpoints
    status: MemberStatus
    commit_position: int
    """The highest of all members."""
    leader_append_position: int | None = None
    """How far the leader has appended its log, committed or not. None: no leader of the newest term answered, or fewer
    than a majority did, so another leader may be further."""


async def find_source(
    members: Sequence[MemberEndpoints],
    wanted: BackupSource,
    *,
    cluster_id: ClusterId,
    recorded_position: int,
    avoided: Collection[int],
    network: NetworkStack,
    timeout_s: float,
) -> FoundSource:
    """Ask every member, and choose one that is in a term and has what comes after `recorded_position`.

    A witness has no state of services in its snapshots, so it is none.

    Members that failed before are `avoided` while there is another.

    Raises:
        NoSourceError: no member can be used; it says what each of them answered.
    """

    async def ask(member: MemberEndpoints) -> MemberStatus | str:
        try:
            return await query_status(member.consensus, timeout_s, cluster_id=cluster_id, network=network)
        except ClusterError as error:
            return str(error)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(member)) for member in members]
    answers = [(member, task.result()) for member, task in zip(members, asked, strict=True)]
    statuses = [(member, status) for member, status in answers if isinstance(status, MemberStatus)]
    commit_position = max((status.commit_position for _, status in statuses), default=0)
    usable = [
        (member, status)
        for member, status in statuses
        if status.commit_position >= recorded_position
        and is_in_term(status)
        and not _is_witness(status)  # it has no snapshot of a service
        and (wanted is not BackupSource.LEADER or leads(status))
    ]
    if not usable:
        told = "; ".join(f"member {member.member_id}: {_describe(status)}" for member, status in answers)
        informed = sorted((each for each in statuses if is_in_term(each[1])), key=lambda each: -each[1].commit_position)
        raise NoSourceError(
            f"no member to copy from: wanted={wanted} recorded_position={recorded_position}: {told}",
            [member for member, _ in informed],
        )

    def rank(found: tuple[MemberEndpoints, MemberStatus]) -> tuple[bool, bool, int]:
        member, status = found
        is_second_choice = wanted is BackupSource.FOLLOWER and leads(status)
        return member.member_id in avoided, is_second_choice, -status.commit_position

    member, status = min(usable, key=rank)
    is_known = 2 * len(statuses) > len(members)
    return FoundSource(
        member, status, commit_position, _leader_append_position([s for _, s in statuses]) if is_known else None
    )


def _leader_append_position(statuses: Sequence[MemberStatus]) -> int | None:
    newest = max((-1 if status.leadership_term_id is None else status.leadership_term_id) for status in statuses)
    leaders = [status for status in statuses if leads(status) and status.leadership_term_id == newest]
    return leaders[0].append_position if leaders else None


def _is_witness(status: MemberStatus) -> bool:
    return any(one.member_id == status.member_id and one.kind == MemberKind.WITNESS for one in status.members)


def _describe(answer: MemberStatus | str) -> str:
    if isinstance(answer, str):
        return answer
    kind = " witness" if _is_witness(answer) else ""
    return f"{answer.state}{kind} commit_position={answer.commit_position}"
