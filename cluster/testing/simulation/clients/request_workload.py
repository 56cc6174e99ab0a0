"""A client application that uses `request`: it numbers nothing, resends nothing, and believes every answer.

Its operations are those of `workload`, on the same registers and in the same history, so that what a request does is
held against everything else. What becomes of a request is noted as the client says it:

    a reply            acknowledged, with the log position that the service answered from
    RejectedError      it never ran: were its value ever shown, or its payload in the log as run, that is a fault
    indeterminate      it waits for `resolve`; if that says never, or the caller went away, the outcome stays unknown

It may use many sessions at once, over one shared connection or each with its own; or one with each group of a cluster
that has groups. Everything it does follows from a generator of its own.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from .....client import (
    ClientConfig,
    ClusterClient,
    RejectedError,
    RequestIndeterminateError,
    SharedConnection,
)
from .....service_api import ClusterError, SessionClosedError
from .....service_api.groups.group import GroupTable
from ..services.registers import Answer, AnswerStatus, Request, RequestKind
from .history import ClientOperation, History
from .paths import NO_SESSION, GroupSessions, OneSession, Path
from .register_model import RegisterOutcome, Swap
from .workload import KINDS, WorkloadSettings

REQUESTER_CLIENT_IDS: Final = 1 << 30
"""The client ids of requesters begin here."""

_SESSIONS: Final = 1 << 12
_SEQUENCES: Final = 1 << 24
_RETRY_MIN_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0
_FULL_PAUSE_S: Final = 0.02
_TIMEOUT_RATE: Final = 0.5
"""How often a request is given a time, rather than as long as it takes."""
_ACROSS_RATE: Final = 0.03
"""How often keys are tried that may be of two groups."""
_CANCEL_RATE: Final = 0.03
"""How often the caller goes away, some time after it asked."""


@dataclass(slots=True)
class _Numbers:
    """What tells the requests of one session from all others."""

    client_id: int
    sequence: int = 0
    asking_count: int = 0
    """How many have no outcome yet."""


class RequestWorkload:
    """One client application. A session that is lost is followed by another one."""

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        *,
        history: History,
        random: Random,
        now_ns: Callable[[], int],
        settings: WorkloadSettings,
        parallel_count: int = 1,
        shares_connection: bool = True,
        histories: Sequence[History] = (),
    ) -> None:
        """With a `parallel_count` of more than 1 it has so many sessions, which share one connection or do not.

        With `histories`, one for each group, it goes to the group of each key, with one session for each, and `history`
        gets what it has to report.
        """
        self.number = number
        self.history = history
        self._histories = histories or (history,)
        self._table = GroupTable(len(self._histories))
        self._shares_connection = shares_connection
        self.acknowledged_count = 0
        self.rejected_count = 0
        self.resolved_count = 0
        """Outcomes that were unknown first, and told later."""
        self.resent_count = 0
        self.session_count = 0
        self.is_stopping = False
        self.config, self._settings, self._random, self._now_ns = config, settings, random, now_ns
        self._stopped = asyncio.Event()
        self._parallel_count = parallel_count
        self._in_flight: dict[ClientOperation, None] = {}
        self._issued_count = 0
        self._last_seen: dict[int, int] = {}

    def __repr__(self) -> str:
        return (
            f"<RequestWorkload {self.number} acknowledged={self.acknowledged_count} rejected={self.rejected_count}"
            f" resolved={self.resolved_count} in_flight={len(self._in_flight)} stopping={self.is_stopping}>"
        )

    def stop(self) -> None:
        """Ask nothing more; `run` ends when everything has its outcome, or the session is lost."""
        self.is_stopping = True
        self._stopped.set()

    def abandon(self) -> None:
        """The process of this client has died: nobody will hear of what is in flight."""
        self.is_stopping = True
        for operation in [*self._in_flight]:
            self._give_up(operation)

    async def run(self) -> None:
        """Use the cluster until `stop`, in one session after another."""
        has_groups = self._table.group_count > 1
        if self._parallel_count == 1 or has_groups or not self._shares_connection:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._parallel_count):
                    tasks.create_task(self._run_sessions(self._enter_groups if has_groups else self._connect))
            return
        config = self._draw_config()
        async with SharedConnection(config=config) as shared, asyncio.TaskGroup() as tasks:

            async def connect() -> Path:
                return OneSession(await shared.connect())

            for _ in range(self._parallel_count):
                tasks.create_task(self._run_sessions(connect))

    def _draw_config(self) -> ClientConfig:
        return replace(self.config, random=Random(self._random.getrandbits(64)).random)

    async def _connect(self) -> Path:
        return OneSession(await ClusterClient.connect(config=self._draw_config()))

    async def _enter_groups(self) -> Path:
        return await GroupSessions.open(self._draw_config(), self._table, self._random)

    async def _run_sessions(self, connect: Callable[[], Awaitable[Path]]) -> None:
        pause_s = _RETRY_MIN_S
        while not self.is_stopping:
            try:
                path = await connect()
            except NO_SESSION:
                await self._pause(pause_s * (1 - self._random.random() / 2))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
                continue
            pause_s = _RETRY_MIN_S
            self.session_count += 1
            try:
                await self._use(path, _Numbers(REQUESTER_CLIENT_IDS + self.number * _SESSIONS + self.session_count))
            finally:
                self.resent_count += path.resent_count
                await path.aclose()

    async def _use(self, path: Path, numbers: _Numbers) -> None:
        """Ask until the session is lost, or is to end; then wait for every outcome."""
        settings, chance = self._settings, self._random
        async with asyncio.TaskGroup() as tasks:
            while not (path.is_closed or self.is_stopping):
                is_spent = settings.operation_limit is not None and self._issued_count >= settings.operation_limit
                if is_spent or numbers.asking_count >= settings.in_flight_limit:
                    await self._pause(_FULL_PAUSE_S)
                    continue
                request = self._draw_request(numbers)
                if request is None:
                    await self._pause(_FULL_PAUSE_S)
                    continue
                self._issued_count += 1
                padding = chance.randint(0, 64 if chance.random() < 0.9 else settings.padding_max_bytes)
                timeout_s = chance.expovariate(0.1 / settings.think_mean_s) if chance.random() < _TIMEOUT_RATE else None
                payload = request.encode(padding_length=padding)
                numbers.asking_count += 1
                task = tasks.create_task(self._ask(path, request, payload, timeout_s))
                task.add_done_callback(lambda _: _count_down(numbers))
                if chance.random() < _CANCEL_RATE:
                    delay_s = chance.expovariate(1 / settings.think_mean_s)
                    asyncio.get_running_loop().call_later(delay_s, task.cancel)
                if chance.random() < settings.close_rate:
                    break
                if isinstance(path, GroupSessions) and chance.random() < _ACROSS_RATE:
                    await self._ask_across(path)
                if chance.random() > settings.burst_rate:
                    await self._pause(chance.expovariate(1 / settings.think_mean_s))

    async def _ask_across(self, path: GroupSessions) -> None:
        one, other = self._random.choices(self._settings.keys, k=2)
        try:
            fault = await path.find_fault_across(one, other)
        except NO_SESSION:
            return
        if fault is not None:
            self.history.report(fault)

    async def _ask(self, path: Path, request: Request, payload: bytes, timeout_s: float | None) -> None:
        """Ask, and note what comes of it."""
        try:
            client = await path.client_for(request.key)
        except NO_SESSION:
            return  # nothing was asked
        operation = self._invoke(request)
        try:
            try:
                reply = await client.request(payload, timeout_s=timeout_s)
            except RequestIndeterminateError as error:
                reply = await error.resolve()
                self.resolved_count += 1
        except (RejectedError, SessionClosedError):
            self._reject(operation)
        except RequestIndeterminateError as error:
            if not client.is_closed:
                self.history.report(f"{operation}: given up in a session that goes on: {error}")
            self._give_up(operation)
        except ClusterError as error:
            self.history.report(f"client={operation.client_id} {operation}: {error!r}")
            self._give_up(operation)
        except asyncio.CancelledError:
            self._give_up(operation)
            raise
        else:
            self._acknowledge(operation, request, reply)

    def _draw_request(self, numbers: _Numbers) -> Request | None:
        settings, chance = self._settings, self._random
        key = chance.choice(settings.keys)
        if self._history_of(key).pending_count_of(key) >= settings.key_in_flight_limit:
            return None
        kinds = (RequestKind.GET, RequestKind.PUT, RequestKind.APPEND, RequestKind.COMPARE_AND_SET)
        kind = chance.choices(kinds, (20, 20, 40, 20))[0]
        numbers.sequence += 1
        value = numbers.client_id * _SEQUENCES + numbers.sequence
        expected = self._last_seen.get(key, 0) if kind is RequestKind.COMPARE_AND_SET else 0
        return Request(kind, key, numbers.sequence, numbers.client_id, value, expected)

    async def _pause(self, duration_s: float) -> None:
        """Let time pass; stopping ends it."""
        try:
            async with asyncio.timeout(duration_s):
                await self._stopped.wait()
        except TimeoutError:
            return

    # --- the history

    def _history_of(self, key: Hashable) -> History:
        assert isinstance(key, int)
        return self._histories[self._table.group_of(key)]

    def _invoke(self, request: Request) -> ClientOperation:
        argument: int | Swap | None = request.argument
        if request.kind is RequestKind.COMPARE_AND_SET:
            argument = Swap(request.expected, request.argument)
        elif request.kind is RequestKind.GET:
            argument = None
        operation = self._history_of(request.key).invoke(
            request.client_id, request.key, KINDS[request.kind], argument, now_ns=self._now_ns()
        )
        operation.sequence = request.sequence
        self._in_flight[operation] = None
        return operation

    def _acknowledge(self, operation: ClientOperation, request: Request, reply: bytes) -> None:
        if self._in_flight.pop(operation, self) is self:
            return  # the process is dead
        history = self._history_of(operation.key)
        try:
            answer = Answer.decode(reply)
        except (struct.error, ValueError):
            history.report(f"{operation}: a reply that is none: length={len(reply)}")
            history.give_up(operation)
            return
        if (answer.client_id, answer.sequence) != (request.client_id, request.sequence):
            history.report(f"{operation}: got the reply to another request: {answer}")
        now_ns = self._now_ns()
        for write in answer.writes:
            history.sight(operation.key, write.value, log_position=write.log_position, now_ns=now_ns)
        values = tuple(write.value for write in answer.writes)
        outcome = RegisterOutcome(answer.status is AnswerStatus.OK, values)
        history.acknowledge(operation, outcome, log_position=answer.log_position, now_ns=now_ns)
        self.acknowledged_count += 1
        if request.kind is not RequestKind.GET and outcome.succeeded:
            self._last_seen[request.key] = request.argument
        elif values:
            self._last_seen[request.key] = values[-1]

    def _reject(self, operation: ClientOperation) -> None:
        if self._in_flight.pop(operation, self) is not self:
            self._history_of(operation.key).reject(operation)
            self.rejected_count += 1

    def _give_up(self, operation: ClientOperation) -> None:
        if self._in_flight.pop(operation, self) is not self:
            self._history_of(operation.key).give_up(operation)


def _count_down(numbers: _Numbers) -> None:
    numbers.asking_count -= 1
