"""Which member's answer is shown: the leader's, if there is one, since it knows most.

All members are asked at once, so a member that is down costs nothing but its row. A leader that was cut off may still
take itself for one: the highest leadership term counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from trimaran.service_api.errors import ClusterError

from ...documents.inspection import ViewT, inspect_member
from ...documents.query import StatusQueryError


class UnreachableError(ClusterError):
    """No member answered."""


async def ask_for_best(
    endpoints: Mapping[int, str], view: type[ViewT], timeout_s: float, *, offset: int, limit: int
) -> ViewT:
    """Ask every member at once; give the leader's answer, or that of whoever knows the highest term.

    Raises:
        UnreachableError: nobody answers; it says why, for each member.
    """
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_ask(member_id, endpoint, view, timeout_s, offset, limit), name=f"inspect-{member_id}")
            for member_id, endpoint in endpoints.items()
        ]
    results = [task.result() for task in asked]
    views = [result for result in results if not isinstance(result, str)]
    if not views:
        raise UnreachableError(f"no member answers: {'; '.join(r for r in results if isinstance(r, str))}")
    return max(views, key=lambda v: (v.role == "LEADER", -1 if v.leadership_term_id is None else v.leadership_term_id))


async def _ask(
    member_id: int, endpoint: str, view: type[ViewT], timeout_s: float, offset: int, limit: int
) -> ViewT | str:
    try:
        answer = await inspect_member(endpoint, view, timeout_s, offset=offset, limit=limit)
    except StatusQueryError as error:
        return f"member {member_id}: {error}"
    if answer.answered_by != member_id:
        return f"member {member_id}: {endpoint} answers as member {answer.answered_by}"
    return answer
