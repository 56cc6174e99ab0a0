"""Clients whose every operation is noted: what they asked, when, and what they were told.

    requester   `request`: exactly once; an outcome that is unknown is waited for as long as the session lasts
    offerer     `offer`: at most once, never sent again; without an answer in time nobody knows
    reader      linearizable queries

All of them draw from one generator each, and think between two operations, so the rate is bounded: an outage makes
them wait, not queue. A user's service gets what its `simulation_request` makes; then nothing is known about answers,
but that they are those of the members.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

from ...client import (
    ClientConfig,
    ClusterClient,
    ConnectRejectedError,
    QueryRefusedError,
    RejectedError,
    RequestFailedError,
    RequestIndeterminateError,
)
from ...cluster.testing.simulation.clients.history import ClientOperation, History
from ...cluster.testing.simulation.clients.service_work import DrawRequest
from ...service_api import ClusterError, ClusterTimeoutError, SessionClosedError
from ...service_api.wire.session import EventCode
from .models import ObjectKey, object_key
from .service import (
    ACCOUNT_COUNT,
    LIST_COUNT,
    REGISTER_COUNT,
    ChaosAnswer,
    ChaosOperation,
    ChaosOperationKind,
)

_IN_FLIGHT_LIMIT: Final = 4
_KEY_IN_FLIGHT_LIMIT: Final = 6
"""The search for a linearization costs the more, the more operations of one object overlap."""
_OFFER_TIMEOUT_S: Final = 4.0
_QUERY_TIMEOUT_S: Final = 3.0
_RETRY_MIN_S: Final = 0.05
_RETRY_MAX_S: Final = 0.5
_FULL_PAUSE_S: Final = 0.02
_DRAIN_S: Final = 20.0
_VALUES: Final = 1 << 24
_CLOSE_RATE: Final = 0.002
"""How often a session ends in order, and another one begins."""
_TIMEOUT_RATE: Final = 0.3
"""How often a request is given little time: its outcome is unknown for a while then."""


class AskedRequest(NamedTuple):
    """A request, and the answer that came; without one, `answer_crc` is None."""

    cluster_session_id: int
    payload_crc: int
    answer_crc: int | None


@dataclass(slots=True)
class Notes:
    """What all clients of one round have noted."""

    history: History = field(default_factory=History)
    asked: list[AskedRequest] = field(default_factory=list)
    answered_ns: list[tuple[int, int]] = field(default_factory=list)
    """When a request or message was sent, and when its answer came, in the order of answers."""
    errors: list[tuple[int, str]] = field(default_factory=list)
    """When a client was told of an error, and its kind: no fault, an error is what it should be told."""
    resent_count: int = 0
    session_count: int = 0

    def note_answer(self, invoked_ns: int, now_ns: int) -> None:
        """Note an answer to a request or message."""
        self.answered_ns.append((invoked_ns, now_ns))


class ChaosClient:
    """One client application: a session after another until `stop`."""

    def __init__(
        self, number: int, config: ClientConfig, notes: Notes, random: Random, now_ns: Callable[[], int], *, rate: float
    ) -> None:
        self.number = number
        self.notes = notes
        self._config = config
        self._random = random
        self._now_ns = now_ns
        self._think_s = 1 / rate
        self._stopped = asyncio.Event()
        self._operation_count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} operations={self._operation_count}>"

    def stop(self) -> None:
        """Begin nothing more; `run` ends when what is under way has its outcome, or after 20 s."""
        self._stopped.set()

    async def run(self) -> None:
        """Use the cluster until `stop`."""
        pause_s = _RETRY_MIN_S
        while not self._stopped.is_set():
            config = replace(self._config, random=Random(self._random.getrandbits(64)).random)
            try:
                client = await self._connect(config)
            except (ClusterTimeoutError, ConnectRejectedError, SessionClosedError) as error:
                self._note_error(error)
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
                continue
            pause_s = _RETRY_MIN_S
            self.notes.session_count += 1
            try:
                await self._use(client)
            finally:
                self.notes.resent_count += client.resent_request_count
                await client.aclose()

    async def _connect(self, config: ClientConfig) -> ClusterClient:
        return await ClusterClient.connect(config=config)

    async def _use(self, client: ClusterClient) -> None:
        """Use one session until it is lost, or should end."""
        raise NotImplementedError

    async def _pause(self, duration_s: float) -> None:
        """Let time pass; stopping ends it."""
        try:
            async with asyncio.timeout(duration_s):
                await self._stopped.wait()
        except TimeoutError:
            return

    async def _think(self) -> None:
        await self._pause(self._random.expovariate(1 / self._think_s))

    def _note_error(self, error: Exception) -> None:
        self.notes.errors.append((self._now_ns(), type(error).__name__))

    def _invoke(self, operation: ChaosOperation) -> ClientOperation:
        key = object_key(operation)
        return self.notes.history.invoke(None, key, operation.kind.name.lower(), operation, now_ns=self._now_ns())

    def _acknowledge(self, operation: ClientOperation, answer: bytes, *, log_position: int = 0) -> None:
        """Take in an answer; `log_position` is known for queries only, the rest is in the members' journals."""
        now_ns, asked = self._now_ns(), operation.argument
        assert isinstance(asked, ChaosOperation)
        try:
            read = ChaosAnswer.decode(answer)
        except ValueError as error:
            self.notes.history.report(f"{operation}: {error}")
            self.notes.history.give_up(operation)
            return
        if (read.client, read.number) != (asked.client, asked.number):
            self.notes.history.report(f"{operation} was given the answer to another one: {read}")
        if not operation.is_query:
            self.notes.note_answer(operation.invoked_ns, now_ns)
        self.notes.history.acknowledge(operation, read.outcome, log_position=log_position, now_ns=now_ns)

    def _draw_write(self) -> ChaosOperation | None:
        """Draw an operation that goes through the log; None while its object is busy."""
        chance = self._random
        kind = chance.choices(
            (
                ChaosOperationKind.GET,
                ChaosOperationKind.PUT,
                ChaosOperationKind.SWAP,
                ChaosOperationKind.APPEND,
                ChaosOperationKind.NEXT_ID,
                ChaosOperationKind.TRANSFER,
            ),
            (10, 15, 15, 30, 10, 20),
        )[0]
        number = self._operation_count + 1
        value = self.number * _VALUES + number
        key = a = b = c = 0
        if kind in (ChaosOperationKind.GET, ChaosOperationKind.PUT, ChaosOperationKind.SWAP):
            key, a = chance.randrange(REGISTER_COUNT), value
            if kind is ChaosOperationKind.SWAP:
                a, b = self._expected(key), value
        elif kind is ChaosOperationKind.APPEND:
            key, a = chance.randrange(LIST_COUNT), value
        elif kind is ChaosOperationKind.TRANSFER:
            a, b = chance.sample(range(ACCOUNT_COUNT), 2)
            c = chance.randint(1, 400)
        operation = ChaosOperation(self.number, number, kind, key, a, b, c)
        if self.notes.history.pending_count_of(object_key(operation)) >= _KEY_IN_FLIGHT_LIMIT:
            return None
        self._operation_count = number
        return operation

    def _expected(self, key: int) -> int:
        """Return what a register holds as far as the history knows, for a swap that has a chance."""
        for operation in reversed(self.notes.history.operations[-200:]):
            asked = operation.argument
            if operation.key == ("register", key) and operation.is_acknowledged and isinstance(asked, ChaosOperation):
                assert isinstance(operation.outcome, tuple)
                if asked.kind is ChaosOperationKind.PUT:
                    return asked.a
                return (
                    asked.b if asked.kind is ChaosOperationKind.SWAP and operation.outcome[0] else operation.outcome[1]
                )
        return 0


class ChaosRequester(ChaosClient):
    """Uses `request`."""

    async def _use(self, client: ClusterClient) -> None:
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not (client.is_closed or self._stopped.is_set()):
                if len(tasks) >= _IN_FLIGHT_LIMIT or not self._begin(client, group, tasks):
                    await self._pause(_FULL_PAUSE_S)
                    continue
                if self._random.random() < _CLOSE_RATE:
                    break
                await self._think()
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=_DRAIN_S)
                for task in late:
                    task.cancel()

    def _begin(self, client: ClusterClient, group: asyncio.TaskGroup, tasks: set[asyncio.Task[None]]) -> bool:
        operation = self._draw_write()
        if operation is None:
            return False
        task = group.create_task(self._ask(client, operation))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return True

    async def _ask(self, client: ClusterClient, asked: ChaosOperation) -> None:
        operation, payload, history = self._invoke(asked), asked.encode(), self.notes.history
        answer: bytes | None = None
        try:
            answer = await self._request(client, payload)
            self._acknowledge(operation, answer)
        except (RejectedError, SessionClosedError) as error:
            self._note_error(error)
            history.reject(operation)
        except RequestIndeterminateError as error:
            self._note_error(error)
            if not client.is_closed:
                history.report(f"{operation}: given up in a session that goes on: {error}")
            history.give_up(operation)
        except ClusterError as error:
            history.report(f"{operation}: {error!r}")
            history.give_up(operation)
        except asyncio.CancelledError:
            history.give_up(operation)
            raise
        finally:
            crc = None if answer is None else zlib.crc32(answer)
            self.notes.asked.append(AskedRequest(client.cluster_session_id, zlib.crc32(payload), crc))

    async def _request(self, client: ClusterClient, payload: bytes) -> bytes:
        """Ask, and wait for the outcome as long as there can be one."""
        timeout_s = self._random.uniform(0.01, 1.0) if self._random.random() < _TIMEOUT_RATE else None
        try:
            return await client.request(payload, timeout_s=timeout_s)
        except RequestIndeterminateError as error:
            self._note_error(error)
            return await error.resolve()


class UserRequester(ChaosRequester):
    """Sends what a user's service makes."""

    def __init__(
        self,
        number: int,
        config: ClientConfig,
        notes: Notes,
        random: Random,
        now_ns: Callable[[], int],
        *,
        rate: float,
        draw_request: DrawRequest,
    ) -> None:
        super().__init__(number, config, notes, random, now_ns, rate=rate)
        self._draw_request = draw_request

    def _begin(self, client: ClusterClient, group: asyncio.TaskGroup, tasks: set[asyncio.Task[None]]) -> bool:
        payload = bytes(self._draw_request(self._random, self._operation_count))
        self._operation_count += 1
        task = group.create_task(self._ask_user(client, payload))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return True

    async def _ask_user(self, client: ClusterClient, payload: bytes) -> None:
        crc: int | None = None
        begun_ns = self._now_ns()
        try:
            crc = zlib.crc32(await self._request(client, payload))
            self.notes.note_answer(begun_ns, self._now_ns())
        except RequestFailedError as error:
            self._note_error(error)
            self.notes.note_answer(begun_ns, self._now_ns())
        except (RejectedError, RequestIndeterminateError, SessionClosedError) as error:
            self._note_error(error)
        finally:
            self.notes.asked.append(AskedRequest(client.cluster_session_id, zlib.crc32(payload), crc))


class Offerer(ChaosClient):
    """Uses `offer`, and listens."""

    def __init__(
        self, number: int, config: ClientConfig, notes: Notes, random: Random, now_ns: Callable[[], int], *, rate: float
    ) -> None:
        super().__init__(number, config, notes, random, now_ns, rate=rate)
        self._waiting: dict[int, tuple[ClientOperation, int]] = {}
        """By the operation's number: what was offered, and until when an answer is waited for."""
        self._answered = asyncio.Event()

    async def _connect(self, config: ClientConfig) -> ClusterClient:
        return await ClusterClient.connect(egress_listener=self, config=config)

    async def _use(self, client: ClusterClient) -> None:
        try:
            while not (client.is_closed or self._stopped.is_set()):
                self._forget_late()
                operation = None if len(self._waiting) >= _IN_FLIGHT_LIMIT else self._draw_write()
                if operation is not None:
                    self._offer(client, operation)
                if self._random.random() < _CLOSE_RATE:
                    break
                await self._think()
            while self._waiting and not client.is_closed:
                self._forget_late()
                self._answered.clear()
                try:
                    async with asyncio.timeout(_FULL_PAUSE_S):
                        await self._answered.wait()
                except TimeoutError:
                    pass
        finally:
            for waiting, _ in self._waiting.values():
                self.notes.history.give_up(waiting)
            self._waiting.clear()

    def _offer(self, client: ClusterClient, asked: ChaosOperation) -> None:
        operation = self._invoke(asked)
        try:
            is_taken = client.try_offer(asked.encode())
        except SessionClosedError:
            is_taken = False
        if is_taken:
            self._waiting[asked.number] = operation, self._now_ns() + round(_OFFER_TIMEOUT_S * 1e9)
        else:
            self.notes.history.reject(operation)

    def _forget_late(self) -> None:
        now_ns = self._now_ns()
        for number, (operation, deadline_ns) in [*self._waiting.items()]:
            if deadline_ns < now_ns:
                del self._waiting[number]
                self.notes.history.give_up(operation)
                self.notes.errors.append((now_ns, "no answer"))

    # --- EgressListener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take an answer; one that was given up is dropped."""
        data = bytes(payload)
        try:
            number = ChaosAnswer.decode(data).number
        except ValueError as error:
            self.notes.history.report(f"{self!r}: {error}")
            return
        operation, _ = self._waiting.pop(number, (None, 0))
        if operation is not None:
            self._acknowledge(operation, data)
            self._answered.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing is sent again."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """The end of a session is seen at the next offer."""


class Reader(ChaosClient):
    """Uses linearizable queries."""

    async def _use(self, client: ClusterClient) -> None:
        while not (client.is_closed or self._stopped.is_set()):
            await self.read(client, self._draw_read())
            await self._think()

    def _draw_read(self) -> ChaosOperation:
        chance = self._random
        kind = chance.choice((ChaosOperationKind.GET, ChaosOperationKind.READ_LIST, ChaosOperationKind.BALANCES))
        count = {ChaosOperationKind.GET: REGISTER_COUNT, ChaosOperationKind.READ_LIST: LIST_COUNT}.get(kind, 1)
        self._operation_count += 1
        return ChaosOperation(self.number, self._operation_count, kind, chance.randrange(count))

    async def read(self, client: ClusterClient, asked: ChaosOperation) -> None:
        """Ask one query, and note what came of it."""
        operation, history = self._invoke(asked), self.notes.history
        operation.is_query = True
        try:
            result = await client.query(asked.encode(), timeout_s=_QUERY_TIMEOUT_S)
        except (ClusterTimeoutError, SessionClosedError) as error:
            self._note_error(error)
            history.reject(operation)
        except QueryRefusedError as error:
            history.report(f"{operation}: {error}")
            history.reject(operation)
        except asyncio.CancelledError:
            history.reject(operation)
            raise
        else:
            self._acknowledge(operation, result.payload, log_position=result.log_position)

    async def read_all(self, client: ClusterClient) -> None:
        """Read every object once."""
        keys: list[tuple[ChaosOperationKind, ObjectKey]] = [
            *((ChaosOperationKind.GET, ("register", key)) for key in range(REGISTER_COUNT)),
            *((ChaosOperationKind.READ_LIST, ("list", key)) for key in range(LIST_COUNT)),
            (ChaosOperationKind.BALANCES, ("bank", 0)),
        ]
        for kind, (_, key) in keys:
            self._operation_count += 1
            await self.read(client, ChaosOperation(self.number, self._operation_count, kind, key))
