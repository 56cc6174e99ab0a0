"""Does what services want done outside: the worker of an outbox.

A round asks the leader what is pending, does it in order, and acknowledges what is done. The question is linearizable,
so what another worker has acknowledged before is not asked for again. What the worker, the leader or the receiver of an
effect leaves undone by dying is pending still, and comes in a later round with the same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ..service_api.errors import ClusterError, ClusterTimeoutError, RemoteProtocolError
from ..service_api.outbox.outbox import (
    ACKNOWLEDGED,
    BEGINNING,
    Effect,
    decode_effects,
    encode_acknowledgement,
    encode_question,
)
from .cluster_client import ClusterClient
from .errors import IndeterminateError

Handler = Callable[[Effect], Awaitable[None]]
"""Does an effect, and returns once it is done for good. What it raises means that it is not done."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0

_log = structlog.get_logger(__name__)


class EffectFailedError(ClusterError):
    """The handler raised; the cause says what."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(f"the handler failed: effect={effect.key}")
        self.effect = effect


class OutboxWorker:
    """Does the effects of one service, in order, each at least once.

        async def charge(effect):
            await payments.post(effect.payload, headers={"Idempotency-Key": str(effect.key)})

        async with ClusterClient.connect(endpoints) as cluster:
            await OutboxWorker(cluster, charge).run()

    An effect whose handler raises is tried again, after pauses of up to 10 s, and those behind it wait. Two workers at
    the same time both do what is pending; run one, or let the receiver tell by the key.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        handler: Handler,
        *,
        service_id: int | None = None,
        interval_s: float = FIRST_PAUSE_S,
        timeout_s: float = 30.0,
    ) -> None:
        """`interval_s` is how often the leader is asked while nothing is pending, `timeout_s` bounds each question."""
        self._cluster = cluster
        self._handler = handler
        self._service_id = service_id
        self._interval_s = interval_s
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<OutboxWorker {self._cluster!r}>"

    async def run(self) -> None:
        """Do what is pending, round by round, until cancelled.

        Raises:
            SessionClosedError: the client's session has ended; connect again, and run another worker.
            QueryRefusedError, RequestFailedError, RejectedError, RemoteProtocolError: the service does not hand queries
                or requests to its outbox.
        """
        pause_s = self._interval_s
        while True:
            try:
                done_count = await self.run_once()
            except (ClusterTimeoutError, IndeterminateError) as error:
                _log.warning("outbox.round_failed", reason=str(error))
            except EffectFailedError as error:
                effect, failure = error.effect, error.__cause__
                _log.warning("outbox.effect_failed", key=str(effect.key), reason=repr(failure))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, max(LONGEST_PAUSE_S, self._interval_s))
                continue
            else:
                pause_s = self._interval_s
                if done_count:
                    continue
            await asyncio.sleep(self._interval_s)

    async def run_once(self) -> int:
        """Ask once what is pending, do it, and acknowledge it; return how many effects were done.

        Raises:
            ClusterTimeoutError, IndeterminateError: nobody answered in time: what was done may come again.
            EffectFailedError: the handler raised; the cause says what. Effects before that one are acknowledged.
        """
        result = await self._cluster.query(
            encode_question(BEGINNING), service_id=self._service_id, timeout_s=self._timeout_s
        )
        done: list[Effect] = []
        try:
            for effect in decode_effects(result.payload):
                try:
                    await self._handler(effect)
                except Exception as error:
                    raise EffectFailedError(effect) from error
                done.append(effect)
        finally:
            if done:
                await self._acknowledge(done)
        return len(done)

    async def _acknowledge(self, done: list[Effect]) -> None:
        acknowledgement = encode_acknowledgement(effect.key for effect in done)
        reply = await self._cluster.request(acknowledgement, timeout_s=self._timeout_s)
        if reply != ACKNOWLEDGED:
            raise RemoteProtocolError(f"acknowledgement: reply={reply!r} expected {ACKNOWLEDGED!r}: not of an outbox")
