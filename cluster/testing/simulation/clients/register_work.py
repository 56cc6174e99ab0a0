"""The work of clients of the simulation's own service: operations on registers.

An operation is asked for in one of four ways. `register_operations` says how often, for messages and requests.

    message       numbered, and sent in order. What is not answered is sent again, in order, when the path to a leader
                  stands again. When the session is lost, nobody can tell what became of its unanswered messages
    request       with `request`, which is believed: a reply is what came of it; `RejectedError` says that it never ran,
                  so if its value is ever shown, or its payload in the log as run, that is a fault; what is
                  indeterminate waits for `resolve`. Now and then its caller goes away
    query         linearizable: an operation of the history like any other
    stale query   a `StaleRead`, held against the log after the run by `stale_reads`

Messages and requests of one session share its numbers, so a session has one or the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from .....client import QueryRefusedError, QueryResult, RejectedError, RequestIndeterminateError
from .....service_api import ClusterError, SessionClosedError
from .....service_api.groups.group import Group
from ..services.registers import QUERY, Answer, Request
from .application import Lane, OperationRow, Session
from .history import History, StaleRead
from .paths import NO_SESSION, GroupSessions
from .register_notes import RegisterNotes
from .register_operations import GET, OPERATIONS, RegisterOperation
from .register_session import RegisterSession
from .stale_reads import DRIFT_ALLOWED

_SESSIONS: Final = 1 << 16
"""Client ids of one application: one for each session."""
_SEQUENCES: Final = 1 << 24
"""Values of one session: one for each message or request."""
_SMALL_PADDING_BYTES: Final = 64
_PADDING_MAX_BYTES: Final = 3_000
"""Most operations are small; one in ten has up to this much after it, so that messages are cut into fragments."""
_TIMEOUT_RATE: Final = 0.5
"""How often a request is given a time, rather than as long as it takes."""
_CANCEL_RATE: Final = 0.03
"""How often the caller of a request goes away, some time after it asked."""
_ACROSS_WEIGHT: Final = 3.0
"""Among requests: attempts at keys that may be of two groups."""

_ROWS: Final = [row for row in OPERATIONS.values() if row.request_kind is not None]


class RegisterWork:
    """The operations of one application on registers."""

    def __init__(
        self,
        number: int,
        *,
        histories: Sequence[History],
        now_ns: Callable[[], int],
        keys: Sequence[int],
        timer_keys: Sequence[int] = (),
        unit_s: float,
        group: Group | None = None,
        key_in_flight_limit: int = 8,
    ) -> None:
        """Make the work of application `number`.

        Args:
            number: No other application of the histories has this one.
            histories: One for each group whose keys are among the `keys`; the first gets reports about no key.
            now_ns: A clock that all clients of the histories share.
            keys: These are used for everything but timers.
            timer_keys: These are read, appended to, and written by timers.
            unit_s: The heartbeat timeout, to which times of requests, queries and timers are in proportion.
            group: The only group that sessions are with; None: there is one, or each key has its own.
            key_in_flight_limit: The most operations of all clients with one key that are not answered.
        """
        self.lanes: list[Lane] = []
        self._number, self._group, self._has_groups = number, group, len(histories) > 1
        self._keys, self._timer_keys, self._all_keys = keys, timer_keys, (*keys, *timer_keys)
        self._unit_s, self._key_in_flight_limit = unit_s, key_in_flight_limit
        self._notes = RegisterNotes(histories, now_ns)

    def __repr__(self) -> str:
        return f"<RegisterWork {self._number} {self._notes!r}>"

    def make_session(self, number: int) -> RegisterSession:
        """Make a session with a client id of its own."""
        return RegisterSession(number, self._group, self._number * _SESSIONS + number, self._notes)

    def abandon(self) -> None:
        """Give up everything: nobody will hear what became of it."""
        self._notes.give_up_all()

    # --- the tables

    def messages(self) -> list[OperationRow]:
        """Return the table of messages."""
        rows = [OperationRow(row.name, row.messages, partial(self._send, row, self._keys)) for row in _ROWS]
        if self._timer_keys:
            rows += [
                OperationRow(row.name, row.timer_key_messages, partial(self._send, row, self._timer_keys))
                for row in _ROWS
            ]
        return rows

    def requests(self) -> list[OperationRow]:
        """Return the table of requests."""
        rows = [OperationRow(row.name, row.requests, partial(self._ask, row)) for row in _ROWS]
        if self._has_groups:
            rows.append(OperationRow("keys of two groups", _ACROSS_WEIGHT, self._ask_across))
        return rows

    def queries(self, *, stale_weight: float = 1.0) -> list[OperationRow]:
        """Return the table of queries."""
        return [OperationRow("query", 1.0, self._query), OperationRow("stale query", stale_weight, self._query_stale)]

    # --- messages and requests

    def _draw(
        self, row: RegisterOperation, keys: Sequence[int], session: RegisterSession, random: Random
    ) -> tuple[Hashable, Request, bytes] | None:
        """Draw a message or request; None if its key has enough in flight."""
        key = random.choice(keys)
        if self._notes.history_of(key).pending_count_of(key) >= self._key_in_flight_limit:
            return None
        assert row.request_kind is not None
        session.sequence += 1
        value = session.client_id * _SEQUENCES + session.sequence
        last_seen = self._notes.last_seen.get(key, 0)
        delay_ms = random.randint(0, int(2_000 * self._unit_s)) if row.is_later else 0
        request = Request(row.request_kind, key, session.sequence, session.client_id, value, last_seen, delay_ms)
        padding_length = random.randint(0, _SMALL_PADDING_BYTES if random.random() < 0.9 else _PADDING_MAX_BYTES)
        return row.argue(value, last_seen), request, request.encode(padding_length=padding_length)

    def _send(
        self, row: RegisterOperation, keys: Sequence[int], session: RegisterSession, random: Random
    ) -> asyncio.Future[None] | None:
        drawn = self._draw(row, keys, session, random)
        if drawn is None:
            return None
        argument, request, payload = drawn
        if row.ends_session:
            session.end()
        operation = self._notes.invoke(session.client_id, request.key, row.name, argument)
        return session.send(request.sequence, operation, payload)

    def _ask(
        self, row: RegisterOperation, session: RegisterSession, random: Random
    ) -> Coroutine[Any, Any, None] | None:
        drawn = self._draw(row, self._keys, session, random)
        return None if drawn is None else self._request(row.name, *drawn, session, random)

    async def _request(
        self, name: str, argument: Hashable, request: Request, payload: bytes, session: Session, random: Random
    ) -> None:
        """Ask, and note what comes of it."""
        timeout_s = self._draw_time_s(random) if random.random() < _TIMEOUT_RATE else None
        task = asyncio.current_task()
        assert task is not None
        if random.random() < _CANCEL_RATE:
            asyncio.get_running_loop().call_later(self._draw_time_s(random) / 10, task.cancel)
        try:
            client = await session.path.client_for(request.key)
        except NO_SESSION:
            return  # nothing was asked
        operation = self._notes.invoke(request.client_id, request.key, name, argument)
        operation.sequence = request.sequence
        history = self._notes.history_of(request.key)
        try:
            try:
                reply = await client.request(payload, timeout_s=timeout_s)
            except RequestIndeterminateError as error:
                reply = await error.resolve()
        except (RejectedError, SessionClosedError):
            self._notes.reject(operation)
        except RequestIndeterminateError as error:
            if not client.is_closed:
                history.report(f"{operation}: given up in a session that goes on: {error}")
        except ClusterError as error:
            history.report(f"client={operation.client_id} {operation}: {error!r}")
        else:
            answer = self._notes.decode(reply)
            if answer is not None:
                if (answer.client_id, answer.sequence) != (request.client_id, request.sequence):
                    history.report(f"{operation}: got the reply to another request: {answer}")
                self._notes.acknowledge(operation, answer, answer.log_position)
        finally:
            self._notes.give_up(operation)

    async def _ask_across(self, session: Session, random: Random) -> None:
        """Ask for two keys at once, which may be of two groups."""
        assert isinstance(session.path, GroupSessions)
        try:
            fault = await session.path.find_fault_across(*random.choices(self._keys, k=2))
        except NO_SESSION:
            return
        if fault is not None:
            self._notes.report(fault)

    # --- queries

    async def _query(self, session: Session, random: Random) -> None:
        """Ask what a register holds."""
        key = random.choice(self._all_keys)
        operation = self._notes.invoke(None, key, GET, None)
        operation.is_query = True
        try:
            told = await self._ask_state(session, random, key)
            if told is not None:
                result, answer = told
                self._notes.acknowledge(operation, answer, result.log_position)
                if result.staleness_s:
                    self._notes.history_of(key).report(f"{operation} a query has staleness_s={result.staleness_s}")
        finally:
            self._notes.give_up(operation)

    async def _query_stale(self, session: Session, random: Random) -> None:
        """Ask what a register holds, or held not long ago."""
        key = random.choice(self._all_keys)
        max_staleness_s = random.choice((0.0, 0.02, 0.3, 2.0)) * self._unit_s
        asked: dict[str, Any] = {  # Any: options of a query
            "max_staleness_s": max_staleness_s,
            "min_log_position": random.choice((0, self._notes.seen_position)),
            "read_from": None if random.random() < 0.7 else random.randrange(3),
        }
        history, invoked_ns = self._notes.history_of(key), self._notes.now_ns()
        told = await self._ask_state(session, random, key, **asked)
        if told is None:
            return
        result, answer = told
        read = StaleRead(
            key=key,
            values=self._notes.see(key, answer, result.log_position),
            member_id=result.member_id,
            log_position=result.log_position,
            staleness_ns=round(result.staleness_s * 1e9),
            invoked_ns=invoked_ns,
            returned_ns=self._notes.now_ns(),
        )
        history.stale_reads.append(read)
        if (
            result.staleness_s > max_staleness_s * DRIFT_ALLOWED
            or result.log_position < asked["min_log_position"]
            or asked["read_from"] not in (None, result.member_id)
        ):
            history.report(f"not what was asked for: {read} {asked}")

    async def _ask_state(
        self,
        session: Session,
        random: Random,
        key: int,
        **options: Any,  # Any: as `ClusterClient.query` takes them
    ) -> tuple[QueryResult, Answer] | None:
        """Query a register; None where no valid answer comes."""
        history, timeout_s = self._notes.history_of(key), self._unit_s * random.uniform(0.5, 4.0)
        try:
            client = await session.path.client_for(key)
            result = await client.query(QUERY.pack(key), timeout_s=timeout_s, **options)
        except NO_SESSION:
            return None
        except QueryRefusedError as error:
            history.report(f"a query was refused: {error}")
            return None
        answer = self._notes.decode(result.payload)
        if answer is None:
            return None
        if answer.log_position > result.log_position:
            history.report(f"a query says log_position={result.log_position} and shows {answer.log_position}")
        return result, answer

    def _draw_time_s(self, random: Random) -> float:
        return random.expovariate(1 / self._unit_s)
