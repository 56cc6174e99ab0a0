"""Who of the old members still runs: each is asked at its consensus endpoint.

An old cluster with a majority goes on by itself, and two clusters would answer the same clients. A member whose machine
does not answer may be cut off from here alone, so silence is no proof: it counts as living unless the operator says
that it is gone. An endpoint where nobody listens, on a machine that answers, is proof.

Two more things would lose what clients were told of. Members that live and directories that are here may be a majority
*together*: then the members of these directories are to be started, and nothing is lost. And a member that lives may
have more log than the best of the directories. Who wants to go on all the same gives that member up by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, parse_cluster_id
from ....service_api.documents.member_status import MemberStatus
from ....service_api.types import NULL_VALUE, MemberId
from ...core.vocabulary.configuration import Configuration, ConfiguredMember
from ...core.vocabulary.members import quorum_threshold
from ...documents.query import Outcome, StatusQueryError, query_status
from .choice import SalvageChoice

_TIMEOUT_S: Final = 3.0
_GONE: Final = frozenset({Outcome.REFUSED, Outcome.OTHER_CLUSTER})


@dataclass(slots=True, frozen=True)
class OldMember:
    """What came of asking one member."""

    member_id: MemberId
    endpoint: str
    votes: bool
    may_live: bool
    found: str
    """What was found, for people."""
    status: MemberStatus | None = None
    """How it is; None unless it runs."""


async def ask_old_members(
    configuration: Configuration, *, cluster_id: ClusterId, gone: Collection[int]
) -> list[OldMember]:
    """Ask every member that may have log; those that the operator says are gone are not asked."""
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(_ask(member, cluster_id, is_gone=member.member_id in gone))
            for member in configuration.members
        ]
    return [task.result() for task in asking]


async def _ask(member: ConfiguredMember, cluster_id: ClusterId, *, is_gone: bool) -> OldMember:
    asked = OldMember(member.member_id, member.consensus, member.kind.votes, False, "gone, as the operator says")
    if is_gone:
        return asked
    try:
        status = await query_status(asked.endpoint, _TIMEOUT_S)
    except StatusQueryError as error:
        return replace(asked, may_live=error.outcome not in _GONE, found=str(error))
    answered = parse_cluster_id(status.cluster_id or "")
    if NULL_CLUSTER_ID not in (answered, cluster_id) and answered != cluster_id:
        return replace(asked, found="a member of another cluster answers there")
    if status.member_id != asked.member_id:
        return replace(asked, found=f"member {status.member_id} answers there")
    return replace(asked, may_live=True, found="runs", status=status)


def why_not_gone(choice: SalvageChoice, found: Sequence[OldMember], *, abandoned: Collection[int] = ()) -> str | None:
    """Return why no new cluster may be made of a choice; None where nothing that is alive would lose by it.

    `abandoned` are members that the operator gives up, with what only they have.
    """
    configuration, chosen = choice.configuration, choice.chosen
    assert configuration is not None
    assert chosen is not None
    living = [member for member in found if member.may_live]
    voters, needed = configuration.voter_ids, quorum_threshold(len(configuration.voter_ids))
    told = "; ".join(f"member {member.member_id} at {member.endpoint}: {member.found}" for member in living)
    living_voters = {member.member_id for member in living if member.votes}
    if len(living_voters) >= needed:
        return (
            f"{len(living_voters)} of {len(voters)} voters of the old cluster may be alive, and {needed} are a "
            f"majority: {told}. Stop those that run, or replace the others with `trimaran member replace`; of a "
            "machine that is gone for good say so with --gone ID"
        )
    kept_voters = living_voters - {*abandoned}
    undamaged = [each.member_id for each in choice.holdings if each.is_usable and not each.damage]
    startable = sorted((voters & {each for each in undamaged if each is not None}) - kept_voters)
    if kept_voters and len(kept_voters) + len(startable) >= needed:
        instead = f"member {startable[0]}" if len(startable) == 1 else f"members {', '.join(map(str, startable))}"
        return (
            f"voters {sorted(kept_voters)} may be alive, and with {startable}, whose directories are given, they are a "
            f"majority of {sorted(voters)}: {told}. Start {instead} instead, on the directories as they are: then "
            "nothing is lost. Of a machine that is gone for good say so with --gone ID; give up a member that runs, "
            "and what only it has, with --abandon ID"
        )
    for member in living:
        status = member.status
        if status is None or member.member_id in abandoned:
            continue
        its = NULL_VALUE if status.leadership_term_id is None else status.leadership_term_id, status.append_position
        if its > (chosen.last_term_id, chosen.end_position) or status.commit_position > chosen.end_position:
            return (
                f"member {member.member_id} at {member.endpoint} runs and has more: its log ends in term {its[0]} at "
                f"position={its[1]}, commit_position={status.commit_position}, and that of {chosen.name} in term "
                f"{chosen.last_term_id} at position={chosen.end_position}. Stop member {member.member_id} and give its "
                "directory as well, or give up what only it has with --abandon ID"
            )
    return None
