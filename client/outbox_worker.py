"""Does what services want done outside: the worker of an outbox.

The worker asks the leader what is pending, does it, and settles what is done. The questions are linearizable, so what
another worker has settled before is not asked for again. What the worker, the leader or the receiver of an effect
leaves undone by dying is pending still, and comes again with the same key.

An effect whose handler raises waits alone, and those of its lane behind it; `outbox.lanes` says which. Tasks of one
worker: one that asks, one that settles what is done without a result, and `concurrency` that do effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

import structlog

from ..service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError, LocalProtocolError, leaves_of
from ..service_api.outbox.effects import EffectKey, PendingEffect, cut_reason
from ..service_api.outbox.protocol import SettledAs, SettledRow
from ..service_api.typed import Command, Effect, ServiceError
from .cluster_client import ClusterClient
from .errors import IndeterminateError, RejectedError, RequestFailedError
from .outbox.calls import EffectReader, FoundOutbox, OutboxCalls, choose_outbox
from .outbox.lanes import EffectLanes, HeldEffect
from .typed.exchange import Route
from .typed.typed_client import TypedClient, client_for, route_of

Handler = Callable[[PendingEffect[Any]], Awaitable[Command[Any] | None]]
"""Does an effect, and returns once it is done for good: None, or a command that tells the typed service what came of
it. What it raises means that the effect is not done."""

FIRST_PAUSE_S: Final = 0.1
PAUSE_LIMIT_S: Final = 10.0
ATTEMPT_LIMIT: Final = 100
"""With the default pauses an effect is given up after 16 minutes, or 20 s where others are done meanwhile."""
_SETTLED_AT_ONCE: Final = 500
_SHOWN_LENGTH: Final = 200
_WALK_SHARE: Final = 10
"""Of the time, one part in so many is spent with asking, where much is pending."""
_LOST: Final = (ClusterTimeoutError, IndeterminateError, RejectedError)
"""What a leader that is away leads to; the session goes on."""

_log = structlog.get_logger(__name__)


class OutboxWorker:
    """Does the effects of one outbox, each at least once.

        async def charge(effect):
            await payments.post(effect.payload, headers={"Idempotency-Key": str(effect.key)})

        async with ClusterClient.connect(endpoints) as cluster:
            await OutboxWorker(cluster, charge).run()

    An effect whose handler raises is tried again after pauses of its own, from `first_pause_s` on, each twice as long
    as the one before, up to `pause_limit_s`. While other effects are done, the receiver is there: then a pause is at
    most twice `first_pause_s`. After `attempt_limit` attempts the worker gives it up: it stays in the
    service's state until an operator retries or drops it (`trimaran outbox`).

    By default effects are done in order, one at a time, and those behind one that fails wait. With `concurrency` up to
    so many are done at once, in any order, but those with equal `order_key` in order, one at a time.

    Two workers at the same time both do what is pending; run one, or let the receiver tell by the key.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        handler: Handler,
        *,
        effect: type[Effect] | None = None,
        name: str = "",
        service_id: int | None = None,
        concurrency: int = 1,
        order_key: Callable[[PendingEffect[Any]], Hashable] | None = None,
        attempt_limit: int | None = ATTEMPT_LIMIT,
        first_pause_s: float = FIRST_PAUSE_S,
        pause_limit_s: float = PAUSE_LIMIT_S,
        interval_s: float = FIRST_PAUSE_S,
        timeout_s: float = 30.0,
    ) -> None:
        """Take the outbox of a cluster by the class of its effects, which the handler gets; without a class, by bytes.

        `name` and `service_id` say which outbox it is where a class or a service has several. `interval_s` is how often
        the leader is asked while nothing is pending, `timeout_s` bounds each question and each settlement. Without
        `attempt_limit` nothing is given up.

        Raises:
            ConfigurationError: a number cannot be used.
        """
        for setting, value in (("concurrency", concurrency), ("attempt_limit", attempt_limit)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{setting}={value} expected a whole number from 1 on")
        self._cluster = cluster
        self._handler = handler
        self._effect = effect
        self._name = name
        self._service_id = service_id
        self._concurrency = concurrency
        self._order_key = order_key
        self._attempt_limit = attempt_limit
        self._first_pause_s = first_pause_s
        self._pause_limit_s = max(pause_limit_s, first_pause_s)
        self._interval_s = interval_s
        self._calls = OutboxCalls(cluster, timeout_s=timeout_s)
        self._reader = EffectReader(effect)
        self._found: FoundOutbox | None = None
        self._typed: TypedClient | None = None

    def __repr__(self) -> str:
        return f"<OutboxWorker {self._found or self._name} {self._cluster!r}>"

    async def run(self) -> None:
        """Do what is pending until cancelled.

        Raises:
            SessionClosedError: the client's session has ended; connect again, and run another worker.
            LocalProtocolError: the cluster has no such outbox, or several; or the handler returned something that is
                neither None nor a command of the service.
            QueryRefusedError, RemoteProtocolError: the service does not hand queries or requests to its outbox.
        """
        await _Run(self, is_once=False).go()

    async def run_once(self) -> int:
        """Try everything once that is pending now, and settle it; return how many effects were done.

        Raises:
            ClusterTimeoutError: no leader answered in time.

        Also what `run` raises.
        """
        return await _Run(self, is_once=True).go()

    async def find(self) -> FoundOutbox:
        """Find the outbox that the worker is for; otherwise as `run`."""
        if self._found is None:
            all_found = await self._calls.find_all(self._name, service_id=self._service_id)
            self._found = choose_outbox(all_found, self._name, self._effect)
        return self._found

    def lane_of(self, effect: PendingEffect[Any]) -> Hashable:
        """Return what effects have in common that are done in order."""
        if self._order_key is not None:
            return self._order_key(effect)
        return None if self._concurrency == 1 else effect.key

    async def result_route(self, outbox: FoundOutbox, result: object) -> Route:
        """Return how the command is written that a handler returned.

        Raises:
            LocalProtocolError: it is no command of the service that the outbox is of.
        """
        if not isinstance(result, Command) or outbox.service_name is None:
            raise LocalProtocolError(
                f"the handler of {outbox} returned type={type(result).__name__}, expected None, or a Command where the "
                "service is typed"
            )
        if self._typed is None:
            self._typed = client_for(self._cluster, outbox.service_name)
        return await route_of(self._typed, type(result))


class _Run:
    """One run of a worker: what it has read, and what it is about to settle."""

    def __init__(self, worker: OutboxWorker, *, is_once: bool) -> None:
        self._worker, self._is_once = worker, is_once
        self._calls = worker._calls
        self._lanes = EffectLanes(worker.lane_of)
        self._rows: dict[EffectKey, tuple[SettledRow, HeldEffect]] = {}
        """What is to be settled, in the order in which it was done."""
        self._ready, self._to_settle = asyncio.Event(), asyncio.Event()
        self._success_count = 0
        """Effects whose handler returned."""
        self._done_count = 0
        """Effects that are settled as done."""
        self._is_over = False
        self._now_s = asyncio.get_running_loop().time
        self._outbox: FoundOutbox

    async def go(self) -> int:
        if self._is_once:
            self._outbox = await self._worker.find()
            await self._walk()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._settle())
                await self._do_all()
                self._is_over = True
                self._to_settle.set()
        except BaseExceptionGroup as group:
            error = next(iter(leaves_of(group)))
            raise error from error.__cause__
        return self._done_count

    async def _do_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if not self._is_once:
                tasks.create_task(self._ask())
            for _ in range(self._worker._concurrency):
                tasks.create_task(self._do_effects())

    # --- asking

    async def _ask(self) -> None:
        """Read what is pending, again and again."""
        interval_s = self._worker._interval_s
        while True:
            began_s = self._now_s()
            try:
                self._outbox = await self._worker.find()
                await self._walk()
            except _LOST as error:
                self._check_session(error)
                _log.warning("outbox.round_failed", reason=str(error))
            await asyncio.sleep(max(interval_s, _WALK_SHARE * (self._now_s() - began_s)))

    async def _walk(self) -> None:
        self._lanes.begin_walk()
        async for answer in self._calls.pages(self._outbox):
            for row in answer.effects:
                payload = self._worker._reader.read(row, answer.outboxes[0])
                self._lanes.add(PendingEffect(EffectKey(row.log_position, row.number), payload))
            self._ready.set()
        self._lanes.end_walk()

    # --- doing

    async def _do_effects(self) -> None:
        while (held := await self._next()) is not None:
            await self._do(held)
            self._ready.set()

    async def _next(self) -> HeldEffect | None:
        """Wait for the next effect that is due; None when one round is over."""
        while True:
            held = self._lanes.take(self._now_s())
            if held is not None or self._is_once:
                return held
            self._ready.clear()
            due_s = self._lanes.next_due_s()
            try:
                async with asyncio.timeout_at(due_s):
                    await self._ready.wait()
            except TimeoutError:
                pass

    async def _do(self, held: HeldEffect) -> None:
        try:
            result = await self._worker._handler(held.effect)
        except Exception as error:
            self._on_failed(held, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._on_failed(held, error)  # something that the handler waited for was cancelled
        else:
            self._success_count += 1
            if result is None:
                self._settle_later(held, SettledAs.DONE)
            else:
                await self._settle_result(held, result)

    def _on_failed(self, held: HeldEffect, error: BaseException) -> None:
        worker = self._worker
        doublings = held.on_failed(self._success_count)
        facts = {
            "outbox": str(self._outbox),
            "key": str(held.key),
            "effect": repr(held.effect.payload)[:_SHOWN_LENGTH],
            "attempt": held.attempt_count,
            "reason": repr(error),
        }
        # The first time with the trace, which the later ones would only repeat.
        trace = error if held.attempt_count == 1 else None
        if worker._attempt_limit is not None and held.attempt_count >= worker._attempt_limit:
            _log.error("outbox.effect_given_up", **facts, exc_info=trace)
            self._settle_later(held, SettledAs.GIVEN_UP, cut_reason(repr(error)))
            return
        pause_s = min(worker._first_pause_s * 2**doublings, worker._pause_limit_s)
        _log.warning("outbox.effect_failed", **facts, pause_s=pause_s, exc_info=trace)
        self._lanes.put_back(held, float("inf") if self._is_once else self._now_s() + pause_s)

    # --- settling

    def _settle_later(self, held: HeldEffect, settled_as: SettledAs, reason: str = "") -> None:
        self._rows[held.key] = SettledRow(*held.key, settled_as, held.attempt_count, reason), held
        self._lanes.release(held)
        self._to_settle.set()

    async def _settle(self) -> None:
        """Settle what is done, as much as there is at once."""
        while self._rows or not self._is_over:
            if not self._rows:
                self._to_settle.clear()
                await self._to_settle.wait()
                continue
            some = dict(list(self._rows.items())[:_SETTLED_AT_ONCE])
            try:
                reply = await self._calls.settle(self._outbox, [row for row, _ in some.values()])
            except _LOST as error:
                await self._wait_for_leader(error)
                continue
            refused = {EffectKey(*key) for key in reply.refused}
            for key, (row, held) in some.items():
                del self._rows[key]
                if key in refused:
                    _log.error("outbox.give_up_refused", outbox=str(self._outbox), key=str(key))
                    self._lanes.put_back(held, self._now_s() + self._worker._pause_limit_s)
                    continue
                self._lanes.settle(key)
                self._done_count += row.settled_as is SettledAs.DONE
            self._ready.set()

    async def _settle_result(self, held: HeldEffect, result: Command[Any]) -> None:
        """Settle an effect, and have the service run a command at the same position; its lane waits for that."""
        try:
            route = await self._worker.result_route(self._outbox, result)
            payload = route.payload(result)
        except LocalProtocolError:
            raise
        except ClusterError as error:
            self._check_session(error)
            self._on_failed(held, error)
            return
        facts = {"outbox": str(self._outbox), "key": str(held.key), "result": repr(result)[:_SHOWN_LENGTH]}
        row = SettledRow(*held.key, SettledAs.DONE)
        while True:
            try:
                reply = await self._calls.settle(self._outbox, [row], result=payload)
                if reply.answer:
                    route.read(reply.answer)
            except _LOST as error:
                await self._wait_for_leader(error)
                continue
            except ServiceError as error:
                _log.warning("outbox.result_refused", **facts, reason=str(error))
            except RequestFailedError as error:
                _log.error("outbox.result_failed", **facts, reason=error.text)
            break
        self._lanes.settle(held.key)
        self._lanes.release(held)
        self._done_count += 1

    async def _wait_for_leader(self, error: ClusterError) -> None:
        self._check_session(error)
        _log.warning("outbox.round_failed", reason=str(error))
        await asyncio.sleep(self._worker._interval_s)

    def _check_session(self, error: ClusterError) -> None:
        """Raise an error again if the session has ended."""
        if self._worker._cluster.is_closed:
            raise error
