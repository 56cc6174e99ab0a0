"""Who of the old members still runs: each is asked at its consensus endpoint.

An old cluster with a majority goes on by itself, and two clusters would answer the same clients. A member whose machine
does not answer may be cut off from here alone, so silence is no proof: it counts as living unless the operator says
that it is gone. An endpoint where nobody listens, on a machine that answers, is proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, parse_cluster_id
from trimaran.service_api.types import MemberId

from ..core.members import quorum_threshold
from ..core.membership.configuration import Configuration
from ..documents.query import Outcome, StatusQueryError, query_status

_TIMEOUT_S: Final = 3.0
_GONE: Final = frozenset({Outcome.REFUSED, Outcome.OTHER_CLUSTER})


@dataclass(slots=True, frozen=True)
class OldMember:
    """What came of asking one member."""

    member_id: MemberId
    endpoint: str
    may_live: bool
    found: str
    """What was found, for people."""


async def ask_old_members(
    configuration: Configuration, *, cluster_id: ClusterId, gone: Collection[int]
) -> list[OldMember]:
    """Ask every voter; those that the operator says are gone are not asked."""
    voters = [member for member in configuration.members if member.kind.votes]
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(_ask(member.member_id, member.consensus, cluster_id, is_gone=member.member_id in gone))
            for member in voters
        ]
    return [task.result() for task in asking]


async def _ask(member_id: MemberId, endpoint: str, cluster_id: ClusterId, *, is_gone: bool) -> OldMember:
    if is_gone:
        return OldMember(member_id, endpoint, False, "gone, as the operator says")
    try:
        status = await query_status(endpoint, _TIMEOUT_S)
    except StatusQueryError as error:
        return OldMember(member_id, endpoint, error.outcome not in _GONE, str(error))
    answered = parse_cluster_id(status.cluster_id or "")
    if NULL_CLUSTER_ID not in (answered, cluster_id) and answered != cluster_id:
        return OldMember(member_id, endpoint, False, "a member of another cluster answers there")
    if status.member_id != member_id:
        return OldMember(member_id, endpoint, False, f"member {status.member_id} answers there")
    return OldMember(member_id, endpoint, True, "runs")


def why_not_gone(configuration: Configuration, found: list[OldMember]) -> str | None:
    """Return why no new cluster may be made; None if no majority of the old one can be alive."""
    living = [member for member in found if member.may_live]
    needed = quorum_threshold(len(configuration.voter_ids))
    if len(living) < needed:
        return None
    told = "; ".join(f"member {member.member_id} at {member.endpoint}: {member.found}" for member in living)
    return (
        f"{len(living)} of {len(configuration.voter_ids)} voters of the old cluster may be alive, and {needed} are a "
        f"majority: {told}. Stop those that run, or replace the others with `trimaran member replace`; of a machine "
        "that is gone for good say so with --gone ID"
    )
