"""Handles queries at a member: authorisation, waiting for a position, and the call of the service.

A query goes through two waits. First for a *read position*: the core confirms, for all that have come up to now in one
round, how far the log was committed when they came (`core.leadership_probe`). One that may be stale takes what was
confirmed before, if that is not too old. Then for delivery: the service has to have processed the log up to that
position. It answers from the state after everything that is delivered, and the answer says up to where that is.

The service is asked between two deliveries, on the loop, and never while delivery stands still for a snapshot, whose
capture may take several passes of the loop.

Bounds: queries that wait are counted, and their bytes, per connection and in all; more are refused at once as BUSY.
Each waits no longer than it says, and 60 s at most. Many that are ready are answered `_TOGETHER` at a time, or a few
milliseconds' worth where each takes long: the loop comes to its sockets meanwhile, and clients read the first answers
while the next ones are made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import structlog

from ....service_api.types import EGRESS_STREAM_ID, MemberId
from ....service_api.wire.frame import encode_message
from ....service_api.wire.queries import AskedQuery, QueryCode, QueryRequest, QueryResponse, write_answer
from ...core import effects as fx
from ...core import events as ev
from ...core.consensus_module import ConsensusModule

_COUNT_LIMIT: Final = 65_536
_BYTES_LIMIT: Final = 64 << 20
_CONNECTION_COUNT_LIMIT: Final = 16_384
_CONNECTION_BYTES_LIMIT: Final = 16 << 20
_LONGEST_WAIT_NS: Final = 60_000_000_000
_SWEEP_S: Final = 0.1
"""How often it is looked whether queries have waited for too long, while any wait."""

_TURN_NS: Final = 5_000_000
"""How long queries are answered before the loop may look at its sockets again."""

_TOGETHER: Final = 32
"""Queries that are answered before that, at most."""

_MTU_LENGTH_BYTES: Final = 65504

logger = structlog.get_logger()


class QueryOutlet(Protocol):
    """The egress of the client that asked."""

    def write(self, data: bytes | bytearray) -> None:
        """Send frames."""


class QueryConnection(Protocol):
    """The ingress connection of the client that asked."""

    @property
    def egress(self) -> QueryOutlet:
        """Its egress."""


class DeliveredLog(Protocol):
    """How far the service has come."""

    position: int


class Delivery(DeliveredLog, Protocol):
    """How far the service has come, and whether it stands still."""

    is_paused: bool


class QueryableService(Protocol):
    """Answers from its state."""

    def query(self, payload: memoryview, service_id: int) -> bytes:
        """Call `on_query` of the service with this id, or of the only one if it is -1. Its exceptions pass through."""


@dataclass(slots=True)
class _Query:
    """One query that waits."""

    number: int
    connection_id: int
    question: AskedQuery
    arrived_ns: int
    deadline_ns: int
    read_position: int = 0
    staleness_ns: int = 0

    @property
    def is_linearizable(self) -> bool:
        return self.question.max_staleness_ns is None

    def __lt__(self, other: _Query) -> bool:
        return (self.read_position, self.number) < (other.read_position, other.number)


@dataclass(slots=True)
class _Load:
    """What waits of one connection, or of all."""

    count: int = 0
    length: int = 0


class QueryHandler:
    """Takes queries, has their read positions confirmed, and answers them."""

    def __init__(
        self,
        module: ConsensusModule,
        service: QueryableService,
        delivery: Delivery,
        connections: Mapping[int, QueryConnection],
        *,
        post: Callable[[object], None],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._module = module
        self._ctx = module.ctx
        self._service, self._delivery, self._connections = service, delivery, connections
        self._post, self._monotonic_ns = post, monotonic_ns
        self._last_number = 0
        self._unconfirmed: deque[_Query] = deque()
        """In order of their numbers: they wait for a read position."""
        self._confirmed: list[_Query] = []
        """A heap by read position: they wait for delivery."""
        self._ready: deque[_Query] = deque()
        """The service has come far enough for them."""
        self._known: fx.ReadConfirmed | None = None
        """What was confirmed last. It stays true, in elections too; it only grows old."""
        self._load = _Load()
        self._loads: dict[int, _Load] = {}
        self._is_asking = False
        self._is_serving_scheduled = False
        self._sweep: asyncio.TimerHandle | None = None
        self.answered_count = 0
        self.refused_count = 0

    def __repr__(self) -> str:
        confirmed_count = len(self._confirmed) + len(self._ready)
        return f"<QueryHandler unconfirmed={len(self._unconfirmed)} confirmed={confirmed_count}>"

    @property
    def waiting_count(self) -> int:
        """Queries that wait for a read position, for delivery or for their turn."""
        return len(self._unconfirmed) + len(self._confirmed) + len(self._ready)

    def close(self) -> None:
        """Answer nothing more: the connections are about to be closed."""
        self._unconfirmed.clear()
        self._confirmed.clear()
        self._ready.clear()
        self._loads.clear()
        self._load = _Load()
        if self._sweep is not None:
            self._sweep.cancel()

    # --- inputs

    def on_query(self, connection_id: int, question: AskedQuery) -> None:
        """Take a query that a connection has brought, or say at once why not."""
        now_ns = self._monotonic_ns()
        wait_ns = min(max(question.timeout_ns, 0), _LONGEST_WAIT_NS)
        self._last_number += 1
        query = _Query(self._last_number, connection_id, question, now_ns, now_ns + wait_ns)
        refusal = self._why_not(query)
        if refusal is not None:
            self._refuse(query, *refusal)
            return
        self._count(query)
        if self._is_known_to(query):
            self._serve_soon()
            return
        self._unconfirmed.append(query)
        if not self._is_asking:
            # At the end of this pass of the loop: then one event, and one round, is for all that have come in it.
            self._is_asking = True
            asyncio.get_running_loop().call_soon(self._ask)

    def on_confirmed(self, effect: fx.ReadConfirmed) -> None:
        """A round is over: the queries that came before it began have their read position."""
        self._known = effect
        waiting = self._unconfirmed
        while waiting and waiting[0].number <= effect.through:
            self._confirm(waiting.popleft(), effect)
        self.serve()

    def on_election_started(self, effect: fx.ElectionStarted) -> None:
        """The next leader has to be asked; a stale answer that is found already is as good as before."""
        unconfirmed, self._unconfirmed = self._unconfirmed, deque()
        deposed = [query for query in (*self._confirmed, *self._ready) if query.is_linearizable]
        self._keep_confirmed(lambda query: not query.is_linearizable)
        for query in [*deposed, *unconfirmed]:
            code = QueryCode.NOT_LEADER if query.is_linearizable else QueryCode.TOO_STALE
            self._finish(query)
            self._refuse(query, code, f"an election began: {effect.reason}")

    def serve(self) -> None:
        """Answer what delivery has come far enough for. Not to be called while an entry is being delivered."""
        waiting, ready, delivery = self._confirmed, self._ready, self._delivery
        while waiting and waiting[0].read_position <= delivery.position:
            ready.append(heappop(waiting))
        if not ready or delivery.is_paused:
            return
        until_ns = self._monotonic_ns() + _TURN_NS
        answers: dict[int, list[bytes]] = {}
        for _ in range(min(len(ready), _TOGETHER)):
            query = ready.popleft()
            self._finish(query)
            if query.connection_id in self._connections:  # or nobody hears the answer
                answers.setdefault(query.connection_id, []).append(self._answer(query))
            if self._monotonic_ns() >= until_ns:
                break
        if ready:
            self._serve_soon()
        for connection_id, frames in answers.items():
            self._connections[connection_id].egress.write(frames[0] if len(frames) == 1 else b"".join(frames))

    # --- who may ask

    def _why_not(self, query: _Query) -> tuple[QueryCode, str] | None:
        """Return why a query cannot be taken."""
        question, module, ctx = query.question, self._module, self._ctx
        principal = module.sessions.principal_on(query.connection_id, question.cluster_session_id)
        if principal is None:
            return QueryCode.UNKNOWN_SESSION, f"no open session of this connection: id={question.cluster_session_id}"
        if not ctx.authorisation.is_authorised(QueryRequest.SCHEMA_ID, QueryRequest.TEMPLATE_ID, None, principal):
            return QueryCode.NOT_AUTHORISED, "the authorisation service refused it"
        if ctx.config.service_count == 0:
            code = QueryCode.NOT_LEADER if query.is_linearizable else QueryCode.TOO_STALE
            return code, "this member is a witness: it runs no service"
        if ctx.held is not None:
            code = QueryCode.NOT_LEADER if query.is_linearizable else QueryCode.TOO_STALE
            return code, f"this member holds before {ctx.held}"
        if ctx.is_comparing:
            code = QueryCode.NOT_LEADER if query.is_linearizable else QueryCode.TOO_STALE
            return code, "this member compares its log with the others': its state may be wrong"
        if query.is_linearizable and module.leader is None:
            return QueryCode.NOT_LEADER, f"leader_member_id={ctx.leader_member_id}"
        load, length = self._loads.get(query.connection_id, _NO_LOAD), len(question.payload)
        if (
            self._load.count >= _COUNT_LIMIT
            or self._load.length + length > _BYTES_LIMIT
            or load.count >= _CONNECTION_COUNT_LIMIT
            or load.length + length > _CONNECTION_BYTES_LIMIT
        ):
            return QueryCode.BUSY, f"waiting={self._load.count} of this connection={load.count}"
        is_helpless = module.leader is None and module.follower is None
        if is_helpless and (self._known is None or not self._is_fresh_enough(query, self._known)):
            return QueryCode.TOO_STALE, "no leader is known"
        return None

    def _is_fresh_enough(self, query: _Query, known: fx.ReadConfirmed) -> bool:
        limit_ns = query.question.max_staleness_ns
        return limit_ns is not None and query.arrived_ns - known.as_of_ns <= limit_ns

    def _is_known_to(self, query: _Query) -> bool:
        """Confirm a query with the known read position, if it accepts one that old; return whether it does."""
        known = self._known
        if known is None or not self._is_fresh_enough(query, known):
            return False
        self._confirm(query, known)
        return True

    def _confirm(self, query: _Query, confirmed: fx.ReadConfirmed) -> None:
        query.read_position = max(confirmed.log_position, query.question.min_log_position)
        query.staleness_ns = max(0, query.arrived_ns - confirmed.as_of_ns)
        if query.read_position <= self._delivery.position:
            self._ready.append(query)
        else:
            heappush(self._confirmed, query)

    def _keep_confirmed(self, is_kept: Callable[[_Query], bool]) -> None:
        """Forget the queries with a read position that are not to be answered any more."""
        self._confirmed = [query for query in self._confirmed if is_kept(query)]
        heapify(self._confirmed)
        self._ready = deque(query for query in self._ready if is_kept(query))

    def _ask(self) -> None:
        self._is_asking = False
        if self._unconfirmed:
            self._post(ev.ReadsWanted(self._unconfirmed[-1].number))

    # --- answers

    def _serve_soon(self) -> None:
        if not self._is_serving_scheduled:
            self._is_serving_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve_now)

    def _serve_now(self) -> None:
        self._is_serving_scheduled = False
        self.serve()

    def _answer(self, query: _Query) -> bytes:
        """Ask the service; give the frames of its answer."""
        position, question = self._delivery.position, query.question
        try:
            payload = self._service.query(memoryview(question.payload), question.service_id)
        except BaseException as error:  # an exit, too: it changes nothing that is replicated, and ends nobody else
            logger.warning("query.failed", log_position=position, error=repr(error), exc_info=error)
            self.refused_count += 1
            return self._refusal(query, QueryCode.SERVICE_FAILED, str(error) or type(error).__name__)
        self.answered_count += 1
        answer = write_answer(question, self._ctx.config.member_id, position, query.staleness_ns, payload)
        return encode_message(answer, stream_id=EGRESS_STREAM_ID, mtu_length=_MTU_LENGTH_BYTES)

    def _refuse(self, query: _Query, code: QueryCode, detail: str) -> None:
        self.refused_count += 1
        connection = self._connections.get(query.connection_id)
        if connection is not None:
            connection.egress.write(self._refusal(query, code, detail))

    def _refusal(self, query: _Query, code: QueryCode, detail: str) -> bytes:
        response = QueryResponse(
            correlation_id=query.question.correlation_id,
            cluster_session_id=query.question.cluster_session_id,
            member_id=MemberId(self._ctx.config.member_id),
            code=code,
            log_position=0,
            staleness_ns=query.staleness_ns,
            detail=detail,
        )
        return encode_message(response.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MTU_LENGTH_BYTES)

    # --- bounds

    def _count(self, query: _Query) -> None:
        length, of_connection = len(query.question.payload), self._loads.get(query.connection_id)
        if of_connection is None:
            of_connection = self._loads[query.connection_id] = _Load()
        for load in (self._load, of_connection):
            load.count += 1
            load.length += length
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._on_sweep)

    def _finish(self, query: _Query) -> None:
        length, of_connection = len(query.question.payload), self._loads[query.connection_id]
        for load in (self._load, of_connection):
            load.count -= 1
            load.length -= length
        if not of_connection.count:
            del self._loads[query.connection_id]

    def _on_sweep(self) -> None:
        """Refuse what has waited for too long."""
        self._sweep = None
        now_ns = self._monotonic_ns()
        waiting = (*self._unconfirmed, *self._confirmed, *self._ready)
        late = [query for query in waiting if query.deadline_ns <= now_ns]
        if late:
            self._unconfirmed = deque(query for query in self._unconfirmed if query.deadline_ns > now_ns)
            self._keep_confirmed(lambda query: query.deadline_ns > now_ns)
        for query in late:
            self._finish(query)
            what = f"delivered={self._delivery.position} wanted={query.read_position}"
            self._refuse(query, QueryCode.TIMED_OUT, what if query.read_position else "no majority has answered")
        if self.waiting_count:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._on_sweep)


_NO_LOAD: Final = _Load()
