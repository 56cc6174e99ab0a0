"""Waiting for what a running member says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...cluster.documents.query import StatusQueryError, query_status
from ...cluster.settings.config import parse_members
from ...service_api.documents.member_status import MemberStatus, is_in_term
from ...service_api.errors import ClusterTimeoutError
from .processes import ClusterProcesses

_LOOK_INTERVAL_S: Final = 0.02
_ASK_TIMEOUT_S: Final = 2.0


def consensus_endpoint(cluster: ClusterProcesses, member_id: int) -> str:
    """Where a member answers questions."""
    return parse_members(f"0=127.0.0.1:{cluster.base_ports[member_id]}")[0].consensus


async def wait_for_status(
    cluster: ClusterProcesses, member_id: int, is_so: Callable[[MemberStatus], bool], *, time_limit_s: float
) -> MemberStatus:
    """Ask a member how it is until it is so; one that does not listen yet is asked again.

    Raises:
        ClusterTimeoutError: it was not so within the time limit.
        ProcessError: a member has ended.
    """
    endpoint = consensus_endpoint(cluster, member_id)
    deadline = time.monotonic() + time_limit_s
    last: MemberStatus | None = None
    while time.monotonic() < deadline:
        cluster.check_running()
        try:
            last = await query_status(endpoint, _ASK_TIMEOUT_S, network=cluster.network)
        except StatusQueryError:
            last = None
        if last is not None and is_so(last):
            return last
        await asyncio.sleep(_LOOK_INTERVAL_S)
    raise ClusterTimeoutError(f"waited {time_limit_s:g} s for member {member_id}, which says: {last}")


async def wait_until_serving(cluster: ClusterProcesses, *, time_limit_s: float) -> None:
    """Wait until every member leads or follows.

    Raises:
        ClusterTimeoutError: one did not within the time limit.
        ProcessError: a member has ended.
    """
    for member_id in range(cluster.member_count):
        await wait_for_status(cluster, member_id, is_in_term, time_limit_s=time_limit_s)


async def wait_until_delivered(
    cluster: ClusterProcesses, position: int, *, member_ids: Iterable[int] | None = None, time_limit_s: float
) -> None:
    """Wait until these members, or all, are in a term of a cluster with an id and have delivered the log so far.

    Raises:
        ClusterTimeoutError: one did not within the time limit.
        ProcessError: a member has ended.
    """

    def is_so(status: MemberStatus) -> bool:
        return is_in_term(status) and status.delivered_position >= position and bool(status.cluster_id)

    for member_id in cluster.members if member_ids is None else member_ids:
        await wait_for_status(cluster, member_id, is_so, time_limit_s=time_limit_s)
