"""One client application of a simulation: draws requests, follows leaders, and keeps the history of what it saw.

It uses the real `ClusterClient` as an application should. Requests of a session are numbered and sent in order; what is
not answered is sent again, in order, when the path to a leader stands again. When a session is lost, nobody can tell
what became of its unanswered requests: their outcomes stay unknown, and the next session begins under another client
id. Now and then it closes its session on purpose, with requests in flight or without, or asks the service to.

Everything it does follows from its generator, its settings, and what it receives when.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from .....client import ClientConfig, ClusterClient, ConnectRejectedError
from .....service_api import ClusterTimeoutError, SessionClosedError
from .....service_api.wire.session import EventCode
from ..services.registers import (
    ANSWER_LIMIT,
    Answer,
    AnswerStatus,
    Request,
    RequestKind,
)
from .history import ClientOperation, History
from .queries import QueryMix
from .register_model import (
    APPEND,
    CLOSE,
    COMPARE_AND_SET,
    GET,
    PUT,
    WRITE_LATER,
    RegisterOutcome,
    Swap,
    written_value,
)

KINDS: Final = {
    RequestKind.GET: GET,
    RequestKind.PUT: PUT,
    RequestKind.COMPARE_AND_SET: COMPARE_AND_SET,
    RequestKind.APPEND: APPEND,
    RequestKind.WRITE_LATER: WRITE_LATER,
    RequestKind.CLOSE: CLOSE,
}
"""What the model calls each kind of request."""

_SESSIONS: Final = 1 << 16
"""Client ids of one workload: one for each session."""
_SEQUENCES: Final = 1 << 24
"""Values of one session: one for each request."""
_RETRY_MIN_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0
_FULL_PAUSE_S: Final = 0.02
"""Before another look whether the client takes a request again."""


@dataclass(slots=True, frozen=True, kw_only=True)
class WorkloadSettings:
    """What a workload does, and how much of it. Rates are of 1."""

    keys: tuple[int, ...] = (0, 1, 2, 3)
    """These are used for everything but timers."""
    timer_keys: tuple[int, ...] = (4,)
    """These are read, appended to, and written by timers."""
    in_flight_limit: int = 4
    """Requests of this client that are not answered, at most."""
    key_in_flight_limit: int = 8
    """Requests of all clients with one history and one key that are not answered, at most."""
    think_mean_s: float = 0.02
    """Between two requests, when it is not a burst."""
    burst_rate: float = 0.05
    """How often a burst of up to `in_flight_limit` x 4 requests begins, as fast as answers come."""
    idle_rate: float = 0.005
    """How often there is a pause of up to `idle_max_s`."""
    idle_max_s: float = 3.0
    timer_rate: float = 0.03
    timer_delay_max_ms: int = 2_000
    close_rate: float = 0.002
    """How often the session ends after a request: half of these ends are asked of the service."""
    operation_limit: int | None = None
    """Requests issued in all; then the client only keeps its session. None: no limit."""
    padding_max_bytes: int = 3_000
    """Most requests are small; one in ten has up to this much after it, so that messages are cut into fragments."""

    def __post_init__(self) -> None:
        assert 1 <= self.in_flight_limit <= ANSWER_LIMIT
        assert self.keys
        assert self.key_in_flight_limit >= 1


@dataclass(slots=True)
class _Unanswered:
    """A request that was offered."""

    operation: ClientOperation
    payload: bytes


class Workload:
    """A coroutine, `run`, and the numbers of what it has done."""

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        *,
        history: History,
        random: Random,
        now_ns: Callable[[], int],
        settings: WorkloadSettings | None = None,
        queries: QueryMix | None = None,
    ) -> None:
        """Make the client application `number`; no other of the run has this one. With `queries` it makes those, too.

        `now_ns` is a clock that all clients of the history share. The config's `random` is replaced.
        """
        self.number = number
        self.settings = settings or WorkloadSettings()
        self.history = history
        self.now_ns = now_ns
        self.acknowledged_count = 0
        self.resent_count = 0
        self.gap_count = 0
        """Requests that came to the service before those they followed."""
        self.session_count = 0
        self.lost_session_count = 0
        """Sessions that ended when neither this client nor its request to the service meant them to."""
        self.refused_connect_count = 0
        self.is_stopping = False
        self._queries = queries
        self._random = random
        self.config = config
        self._session: _Session | None = None
        self._burst_count = 0
        self._issued_count = 0
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<Workload {self.number} acknowledged={self.acknowledged_count} sessions={self.session_count}"
            f" stopping={self.is_stopping} {self._session!r}>"
        )

    def stop(self) -> None:
        """Issue no more requests; `run` ends when all that are in flight are answered, or their session is lost."""
        self.is_stopping = True
        self._stopped.set()
        if self._session is not None:
            self._session.wake.set()

    def abandon(self) -> None:
        """The process of this client has died: nobody will hear of what is in flight."""
        self.is_stopping = True
        if self._queries is not None:
            self._queries.abandon()
        if self._session is not None:
            self._session.give_up()

    async def run(self) -> None:
        """Use the cluster until `stop`. When cancelled, what is in flight stays unknown."""
        while not self.is_stopping:
            session = _Session(self, self.number * _SESSIONS + self.session_count + 1)
            client = await self._connect(session)
            if client is None:
                return
            self.session_count += 1
            self._session = session
            try:
                await self._use_and_query(session, client)
            finally:
                session.give_up()
                self._session = None
                await client.aclose()

    async def _connect(self, session: _Session) -> ClusterClient | None:
        """Open a session, trying for ever; None when it is time to stop."""
        pause_s = _RETRY_MIN_S
        chance = Random(self._random.getrandbits(64))
        config = replace(self.config, random=chance.random)
        while not self.is_stopping:
            try:
                return await ClusterClient.connect([], egress_listener=session, config=config)
            except (ClusterTimeoutError, ConnectRejectedError, SessionClosedError):
                self.refused_connect_count += 1
            try:
                async with asyncio.timeout(pause_s * (1 - chance.random() / 2)):
                    await self._stopped.wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
        return None

    async def _use_and_query(self, session: _Session, client: ClusterClient) -> None:
        if self._queries is None:
            await self._use(session, client)
            return
        async with asyncio.TaskGroup() as tasks:
            querying = tasks.create_task(self._queries.run(client))
            await self._use(session, client)
            querying.cancel()

    async def _use(self, session: _Session, client: ClusterClient) -> None:
        """Send requests until the session is lost, or is to end."""
        chance = self._random
        while not client.is_closed:
            if not session.send(client):
                await session.pause(_FULL_PAUSE_S)
            elif self.is_stopping or session.is_ending:
                if not session.unanswered:
                    return
                await session.pause(None)
            elif len(session.unanswered) >= self.settings.in_flight_limit or self._is_spent():
                await session.pause(None)
            elif not self._issue(session):
                await session.pause(_FULL_PAUSE_S)
            elif chance.random() < self.settings.close_rate:
                if chance.random() < 0.5:
                    return
                session.is_ending = True
            else:
                await self._think(session, client)
        if not session.is_ending:
            self.lost_session_count += 1

    async def _think(self, session: _Session, client: ClusterClient) -> None:
        """Let time pass between two requests; what must be sent again is sent meanwhile."""
        settings, chance = self.settings, self._random
        if self._burst_count:
            self._burst_count -= 1
            return
        drawn = chance.random()
        if drawn < settings.burst_rate:
            self._burst_count = chance.randint(1, 4 * settings.in_flight_limit)
            return
        pause_s = chance.expovariate(1 / settings.think_mean_s)
        if drawn > 1 - settings.idle_rate:
            pause_s = chance.random() * settings.idle_max_s
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_s
        while not client.is_closed and not self.is_stopping and (left_s := until - loop.time()) > 0:
            await session.pause(left_s)
            session.send(client)

    def _is_spent(self) -> bool:
        limit = self.settings.operation_limit
        return limit is not None and self._issued_count >= limit

    def _issue(self, session: _Session) -> bool:
        """Queue one more request; False when every key that was drawn has enough in flight."""
        settings, chance = self.settings, self._random
        is_timed = len(settings.timer_keys) > 0 and chance.random() < 2 * settings.timer_rate
        key = chance.choice(settings.keys)
        if is_timed:
            key = chance.choice(settings.timer_keys)
        if self.history.pending_count_of(key) >= settings.key_in_flight_limit:
            return False
        sequence = session.next_sequence
        value = session.client_id * _SEQUENCES + sequence
        kind, expected, delay_ms = self._draw_kind(is_timed), 0, 0
        if chance.random() < settings.close_rate / 2:
            kind, session.is_ending = RequestKind.CLOSE, True
        if kind is RequestKind.COMPARE_AND_SET:
            expected = session.last_seen.get(key, 0)
        elif kind is RequestKind.WRITE_LATER:
            delay_ms = chance.randint(0, settings.timer_delay_max_ms)
        request = Request(kind, key, sequence, session.client_id, value, expected, delay_ms)
        padding_length = (
            chance.randint(0, 64) if chance.random() < 0.9 else chance.randint(0, settings.padding_max_bytes)
        )
        self._issued_count += 1
        session.queue(request, request.encode(padding_length=padding_length))
        return True

    def _draw_kind(self, is_timed: bool) -> RequestKind:
        if is_timed:
            return self._random.choices((RequestKind.WRITE_LATER, RequestKind.GET, RequestKind.APPEND), (4, 3, 1))[0]
        kinds = (RequestKind.GET, RequestKind.PUT, RequestKind.APPEND, RequestKind.COMPARE_AND_SET)
        return self._random.choices(kinds, (30, 25, 25, 20))[0]


class _Session:
    """One cluster session of a workload: the listener of its client, and what it has in flight."""

    def __init__(self, workload: Workload, client_id: int) -> None:
        self.client_id = client_id
        self.unanswered: dict[int, _Unanswered] = {}
        """By sequence, in order: invoked, and not answered."""
        self.last_seen: dict[int, int] = {}
        """By key, the value written last as far as this session knows."""
        self.next_sequence = 1
        self.is_ending = False
        """Whether the session is to end once everything is answered."""
        self.wake = asyncio.Event()
        """Set when something came that may let the workload go on."""
        self._workload = workload
        self._history = workload.history
        self._next_to_send = 1
        self._answers: dict[int, bytes] = {}
        """The latest, to be held against those that come again."""

    def __repr__(self) -> str:
        return f"<Session client={self.client_id} next={self.next_sequence} unanswered={[*self.unanswered]}>"

    def queue(self, request: Request, payload: bytes) -> None:
        """Note the invocation of a request; `send` offers it."""
        argument: int | Swap | None = request.argument
        if request.kind is RequestKind.COMPARE_AND_SET:
            argument = Swap(request.expected, request.argument)
        elif request.kind in (RequestKind.GET, RequestKind.CLOSE):
            argument = None
        operation = self._history.invoke(
            self.client_id, request.key, KINDS[request.kind], argument, now_ns=self._workload.now_ns()
        )
        self.unanswered[request.sequence] = _Unanswered(operation, payload)
        self.next_sequence += 1

    def send(self, client: ClusterClient) -> bool:
        """Offer what is to be sent, in order; False if the client did not take all of it."""
        for sequence, unanswered in self.unanswered.items():
            if sequence >= self._next_to_send:
                try:
                    if not client.try_offer(unanswered.payload):
                        return False
                except SessionClosedError:
                    return False
                self._next_to_send = sequence + 1
        return True

    def give_up(self) -> None:
        """The session is gone: nobody will say what became of the rest."""
        for unanswered in self.unanswered.values():
            self._history.give_up(unanswered.operation)
        self.unanswered.clear()

    async def pause(self, limit_s: float | None) -> None:
        """Wait until something comes, or the time is over."""
        try:
            async with asyncio.timeout(limit_s):
                await self.wake.wait()
        except TimeoutError:
            pass
        self.wake.clear()

    # --- EgressListener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take an answer."""
        data = bytes(payload)
        self.wake.set()
        try:
            answer = Answer.decode(data)
        except (struct.error, ValueError):
            self._report(f"an answer that is none: length={len(data)}")
            return
        if answer.client_id != self.client_id or not 0 < answer.sequence < self.next_sequence:
            self._report(f"an answer to nothing it has asked: {answer}")
        elif answer.status is AnswerStatus.GAP:
            self._on_gap(answer)
        else:
            known = self._answers.setdefault(answer.sequence, data)
            if known != data:
                self._report(f"request {answer.sequence} was answered {Answer.decode(known)} and then {answer}")
            elif answer.sequence in self.unanswered:
                self._on_answer(answer)

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Send again what is not answered."""
        self._send_again()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """See whether the session has ended."""
        self.wake.set()

    def _on_answer(self, answer: Answer) -> None:
        operation = self.unanswered.pop(answer.sequence).operation
        history, now_ns, key = self._history, self._workload.now_ns(), operation.key
        for write in answer.writes:
            history.sight(key, write.value, log_position=write.log_position, now_ns=now_ns)
        outcome = RegisterOutcome(answer.status is AnswerStatus.OK, tuple(write.value for write in answer.writes))
        history.acknowledge(operation, outcome, log_position=answer.log_position, now_ns=now_ns)
        self._workload.acknowledged_count += 1
        assert isinstance(key, int)
        if outcome.values:
            self.last_seen[key] = outcome.values[-1]
        written = written_value(operation)
        if written is not None and outcome.succeeded and operation.kind != WRITE_LATER:
            self.last_seen[key] = written
        if len(self._answers) > ANSWER_LIMIT:
            del self._answers[next(iter(self._answers))]

    def _on_gap(self, answer: Answer) -> None:
        """A request went astray and a later one did not: begin again at the first one that is not answered."""
        if answer.sequence in self.unanswered:
            self._workload.gap_count += 1
            self._send_again()

    def _send_again(self) -> None:
        first = next(iter(self.unanswered), self.next_sequence)
        self._workload.resent_count += sum(sequence < self._next_to_send for sequence in self.unanswered)
        self._next_to_send = min(self._next_to_send, first)
        self.wake.set()

    def _report(self, fault: str) -> None:
        self._history.report(f"client={self.client_id} {fault}")
