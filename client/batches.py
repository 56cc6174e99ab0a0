"""Batches of requests as coroutines: begin, wait for every outcome, and give them by position.

A batch has one future, however long it is: no task, and no future for each request. See `RequestBatch` for the part
without a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar, cast

from ..service_api.errors import ClusterError, ClusterTimeoutError
from .conductor import ClientConductor
from .errors import RejectedError
from .protocol.requests import RequestBatch
from .reopening import Reopening

T = TypeVar("T")


async def request_batch(
    conductor: ClientConductor, payloads: Sequence[bytes], timeout_s: float | None
) -> list[bytes | ClusterError]:
    """Make requests in one session, at least one, and return what came of each.

    Raises:
        LocalProtocolError, RejectedError, SessionClosedError: none was begun.
    """
    return (await _run(conductor, payloads, timeout_s)).outcomes


async def request_batch_in_any_session(
    reopening: Reopening, payloads: Sequence[bytes], limit_s: float
) -> list[bytes | ClusterError]:
    """Make requests as `request_batch` does; those that a session ended without, the next one is given.

    Raises:
        LocalProtocolError, RejectedError, SessionClosedError: none was begun.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    outcomes: list[bytes | ClusterError] = []
    while True:
        rest = payloads[len(outcomes) :]
        conductor: ClientConductor | None = None
        try:
            left_s = await reopening.wait(ends_s - loop.time())
            conductor = reopening.conductor
            batch = await _run(conductor, rest, left_s)
        except ClusterError as error:
            if conductor is not None and not conductor.has_session and not reopening.is_closed:
                continue
            if isinstance(error, ClusterTimeoutError):
                error = RejectedError(f"timed out before it was sent: {error}")
            if not outcomes:
                raise error from None
            return outcomes + [error] * len(rest)
        if batch.sent_count == len(rest) or conductor.has_session or reopening.is_closed:
            return outcomes + batch.outcomes
        outcomes += batch.outcomes[: batch.sent_count]


def results_of(outcomes: Sequence[T | ClusterError]) -> list[T]:
    """Return the results of a batch if there is no error among its outcomes.

    Raises:
        ClusterError: the first one by position, with a note that says which it is, and how many there are.
    """
    errors = [(position, each) for position, each in enumerate(outcomes) if isinstance(each, ClusterError)]
    if errors:
        position, error = errors[0]
        error.add_note(f"position={position} of {len(outcomes)} in the batch, errors={len(errors)}")
        raise error
    return cast("list[T]", outcomes)


async def _run(conductor: ClientConductor, payloads: Sequence[bytes], timeout_s: float | None) -> RequestBatch:
    batch = conductor.begin_batch(payloads, timeout_s)
    try:
        await batch.future
    except asyncio.CancelledError:
        conductor.protocol.requests.withdraw(batch)
        raise
    return batch
