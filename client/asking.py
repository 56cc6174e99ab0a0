"""Queries and admin requests as coroutines: ask, wait for the answer, and forget what nobody waits for any more."""

from __future__ import annotations

import asyncio
from functools import lru_cache

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
    timeout_s: float,
) -> QueryResult:
    """Ask a query, and wait for the answer. See `ClusterClient.query` for arguments and errors.

    Raises:
        LocalProtocolError: arguments that exclude each other.
        ClusterTimeoutError: no answer in time.
    """
    options = _make_options(max_staleness_s, min_log_position, read_from, service_id, timeout_s)
    waiter: asyncio.Future[QueryResult | ClusterError] = conductor.loop.create_future()

    def on_done(outcome: QueryResult | ClusterError) -> None:
        if not waiter.done():
            waiter.set_result(outcome)

    plain = payload if type(payload) is bytes else bytes(plain_bytes("payload", payload))
    asked = conductor.begin_query(plain, options, on_done)
    try:
        outcome = await waiter
    finally:
        conductor.protocol.queries.forget(asked)
    if isinstance(outcome, ClusterError):
        raise outcome
    return outcome


@lru_cache(maxsize=64, typed=True)
def _make_options(
    max_staleness_s: float | None,
    min_log_position: int,
    read_from: int | None,
    service_id: int | None,
    timeout_s: float,
) -> QueryOptions:
    """Check what a query asks for; most callers ask for the same again.

    Raises:
        LocalProtocolError: arguments that exclude each other, or are out of range.
    """
    if max_staleness_s is None and read_from is not None:
        raise LocalProtocolError(f"read_from={read_from} needs max_staleness_s: without it only the leader answers")
    if max_staleness_s is not None and not max_staleness_s >= 0:
        raise LocalProtocolError(f"max_staleness_s={max_staleness_s} expected at least 0")
    given: tuple[tuple[str, object, int], ...] = (
        ("min_log_position", min_log_position, 63),
        ("service_id", service_id, 31),
    )
    for name, value, bits in given:
        if value is not None and not (isinstance(value, int) and -1 <= value < 1 << bits):
            raise LocalProtocolError(f"{name}={value!r} expected an integer from -1 to {(1 << bits) - 1}")
    return QueryOptions(
        max_staleness_ns=None if max_staleness_s is None else int(min(max_staleness_s, 1e9) * 1e9),
        min_log_position=min_log_position,
        read_from=read_from,
        service_id=NULL_VALUE if service_id is None else service_id,
        limit_s=max(timeout_s, 0.0),
    )


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
