"""Queries and admin requests as coroutines: ask, wait for the answer, and forget what nobody waits for any more."""

from __future__ import annotations

import asyncio

from ..service_api.errors import ClusterError, LocalProtocolError
from ..service_api.payloads import plain_bytes
from ..service_api.types import NULL_VALUE
from .conductor import ClientConductor
from .errors import IndeterminateError
from .protocol.admin import AdminWish
from .protocol.queries import QueryOptions, QueryResult


async def query(
    conductor: ClientConductor,
    payload: bytes | bytearray | memoryview,
    *,
    max_staleness_s: float | None,
    min_log_position: int,
    read_from: int | None,
    service_id: int | None,
    timeout_s: float | None,
) -> QueryResult:
    """Ask a query, and wait for the answer. See `ClusterClient.query` for arguments and errors.

    Raises:
        LocalProtocolError: arguments that exclude each other.
        ClusterTimeoutError: no answer in time.
    """
    if max_staleness_s is None and read_from is not None:
        raise LocalProtocolError(f"read_from={read_from} needs max_staleness_s: without it only the leader answers")
    if max_staleness_s is not None and not max_staleness_s >= 0:
        raise LocalProtocolError(f"max_staleness_s={max_staleness_s} expected at least 0")
    options = QueryOptions(
        max_staleness_ns=None if max_staleness_s is None else int(min(max_staleness_s, 1e9) * 1e9),
        min_log_position=min_log_position,
        read_from=read_from,
        service_id=NULL_VALUE if service_id is None else service_id,
        limit_s=conductor.protocol.config.call_timeout_s if timeout_s is None else max(timeout_s, 0.0),
    )
    waiter: asyncio.Future[QueryResult | ClusterError] = conductor.loop.create_future()

    def on_done(outcome: QueryResult | ClusterError) -> None:
        if not waiter.done():
            waiter.set_result(outcome)

    asked = conductor.begin_query(bytes(plain_bytes("payload", payload)), options, on_done)
    try:
        outcome = await waiter
    finally:
        conductor.protocol.queries.forget(asked)
    if isinstance(outcome, ClusterError):
        raise outcome
    return outcome


async def ask_admin(conductor: ClientConductor, wish: AdminWish, timeout_s: float) -> int:
    """Make an admin request, and wait for what comes of it. See `ClusterClient.take_snapshot` for the errors.

    Raises:
        IndeterminateError: no answer in time: it may have been done.
    """
    waiter: asyncio.Future[int | ClusterError] = conductor.loop.create_future()

    def on_done(outcome: int | ClusterError) -> None:
        if not waiter.done():
            waiter.set_result(outcome)

    correlation_id: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while (correlation_id := conductor.begin_admin(wish, on_done)) is None:
                await conductor.wait_until(conductor.protocol.can_ask_leader)
            outcome = await waiter
    except TimeoutError:
        said = "asked" if correlation_id is not None else "no leader to ask"
        raise IndeterminateError(
            f"the outcome of the {wish.request_type.name.lower()} is not known: {said} timeout_s={timeout_s:g}"
        ) from None
    finally:
        if correlation_id is not None:
            conductor.protocol.admin.forget(correlation_id)
    if isinstance(outcome, ClusterError):
        raise outcome
    return outcome
