"""The asyncio shell around `ClientProtocol`: clock, one timer, one write per turn of the loop.

`ClientConductor` dials, writes and wakes; it decides nothing. What is offered during a turn of the loop is joined and
written once, at its end.

Time is the loop's, so that a client runs on a simulated loop too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Final

from ..service_api.errors import ClusterError, RemoteProtocolError
from ..service_api.wire.pieces import CLIENT_RECEIVE_BYTES
from ..service_api.wire.session import KeepAliveAnswer
from .config import ClientConfig, to_ns
from .connection import Connection, ConnectionShare, describe_connection_error, dial_member
from .egress import EgressListener, EgressQueue
from .protocol.admin import AdminWish, OnDone
from .protocol.client_state import ClientState
from .protocol.effects import Dial, Disconnect
from .protocol.neighbours import Neighbours
from .protocol.protocol import ClientProtocol
from .protocol.queries import PendingQuery, QueryOptions, QueryResult
from .protocol.requests import RequestBatch

_TIMER_SLACK_S: Final = 0.0005
"""Timers may fire half a millisecond early (uvloop counts whole ones); firing late costs nothing here."""

_DRAIN_LOOK_S: Final = 0.005
"""How often a drain looks whether the system has taken what was written: no transport tells when it took the last
byte, unless it is to hold back writers all the time."""


class ClientConductor:
    """Runs one `ClientProtocol` on the current event loop; owns its connections, dials and timer.

    Bounds: the protocol's outgoing window, the egress queue (then no socket is read), one dial per member.
    """

    def __init__(
        self,
        config: ClientConfig,
        listener: EgressListener | None,
        *,
        random: Callable[[], float],
        share: ConnectionShare | None = None,
    ) -> None:
        """With a `share` the session has no connections of its own."""
        self.loop = asyncio.get_running_loop()
        self._share = share
        self._defer: Callable[[Callable[[], None]], object] = self.loop.call_soon if share is None else share.defer
        self.egress_queue = EgressQueue(config.egress_queue_limit) if listener is None else None
        self.protocol = ClientProtocol(
            config,
            listener or self._queue(),
            random=random,
            share=None if share is None else share.session,
            neighbours=Neighbours.of(self.loop, config.network),
        )
        self.protocol.on_dial_due(self._set_timer)
        self._call_timeout_ns = to_ns(config.call_timeout_s)
        self._connections: dict[int, Connection] = {}
        self._dials: dict[int, asyncio.Task[None]] = {}
        # Dicts as sets that keep their order: futures hash by address, and a run must be the same twice.
        self._ending: dict[asyncio.Future[None], None] = {}
        """Cancelled dials and aborted connections that have not come to their end."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = -1
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._end_calls: dict[Callable[[], None], None] = {}
        self.is_flush_scheduled = False
        """True while a flush is due at the end of this turn of the loop."""

    def _queue(self) -> EgressQueue:
        assert self.egress_queue is not None
        return self.egress_queue

    # Used by the client

    def start(self) -> None:
        """Begin to connect."""
        self.protocol.start(self._now_ns())
        self._after_input()

    def schedule_flush(self) -> None:
        """Write at the end of this turn of the loop."""
        if not self.is_flush_scheduled:
            self.is_flush_scheduled = True
            self._defer(self.flush)

    def begin_request(self, payload: bytes, timeout_s: float | None) -> asyncio.Future[bytes]:
        """Send a request at the end of this turn of the loop, or when there is room and a leader; gives its reply.

        Raises:
            LocalProtocolError: the payload is too long.
            RejectedError: the cluster takes no requests.
            SessionClosedError: for good.
        """
        protocol, loop = self.protocol, self.loop
        if len(payload) > protocol.request_limit:
            protocol.check_request(payload)
        # As `_begin_requests` does, without a call.
        now_ns = int(loop.time() * 1e9)
        if now_ns >= protocol.alive_until_ns:
            protocol.doubt(now_ns)
        deadline_ns = now_ns + (self._call_timeout_ns if timeout_s is None else to_ns(timeout_s))
        future: asyncio.Future[bytes] = loop.create_future()
        protocol.requests.submit(future, payload, deadline_ns)
        if deadline_ns < self._timer_ns:
            self._set_timer()
        if not self.is_flush_scheduled:
            self.is_flush_scheduled = True
            self._defer(self.flush)
        return future

    def begin_batch(self, payloads: Sequence[bytes], timeout_s: float | None) -> RequestBatch:
        """Send requests as `begin_request` does, and raise as it does, before one is sent; at least one payload."""
        protocol = self.protocol
        protocol.check_request(max(payloads, key=len))
        batch = RequestBatch(self.loop.create_future(), payloads, self._begin_requests(timeout_s))
        protocol.requests.submit_batch(batch)
        if batch.deadline_ns < self._timer_ns:
            self._set_timer()
        self.schedule_flush()
        return batch

    def _begin_requests(self, timeout_s: float | None) -> int:
        """Return the deadline in ns of requests that are made now."""
        protocol, now_ns = self.protocol, int(self.loop.time() * 1e9)
        if now_ns >= protocol.alive_until_ns:
            protocol.doubt(now_ns)
        return now_ns + (self._call_timeout_ns if timeout_s is None else to_ns(timeout_s))

    @property
    def has_session(self) -> bool:
        """Whether the session has not ended."""
        return self.protocol.state is not ClientState.CLOSED

    def call_at_end(self, call: Callable[[], None]) -> None:
        """Have a function called once the session has ended, or now if it has."""
        if self.has_session:
            self._end_calls[call] = None
        else:
            call()

    def forget_at_end(self, call: Callable[[], None]) -> None:
        """Call a function no more."""
        self._end_calls.pop(call, None)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that an input may make true."""
        while not condition():
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def drain(self) -> None:
        """Wait until the system has taken, from the leader's connection, all that was offered up to now."""
        self.flush()
        target = self.protocol.begin_drain()
        if target is None:
            return
        while not self.protocol.is_drained(target, self._unsent_bytes(target.connection_id)):
            timer = self.loop.call_later(_DRAIN_LOOK_S, self._wake)
            try:
                await self._wait_for_news()
            finally:
                timer.cancel()
        self.protocol.end_drain(target)

    def begin_query(
        self, payload: bytes, options: QueryOptions, on_done: Callable[[QueryResult | ClusterError], None]
    ) -> PendingQuery:
        """Ask a query, at the end of this turn of the loop, for as long as its limit.

        Raises:
            SessionClosedError: for good.
            LocalProtocolError: the payload is too long.
            BackPressureError: too many are under way.
        """
        protocol = self.protocol
        if protocol.state is ClientState.CLOSING or protocol.state is ClientState.CLOSED:
            raise protocol.closed_error()
        query = protocol.queries.begin(payload, options, on_done, self._now_ns())
        self.schedule_flush()
        if protocol.queries.deadline_ns < self._timer_ns:
            self._set_timer()
        return query

    def begin_admin(self, wish: AdminWish, on_done: OnDone) -> int | None:
        """Make an admin request, at the end of this turn of the loop; None if there is no leader just now.

        Raises:
            SessionClosedError: for good.
            BackPressureError: too many are under way.
        """
        correlation_id = self.protocol.request_admin(wish, on_done)
        self.schedule_flush()
        return correlation_id

    async def drain_requests(self) -> None:
        """Wait until every request made up to now has its outcome.

        Raises:
            ClusterError: the client closed meanwhile, with the reason.
        """
        requests = self.protocol.requests
        end_sequence = requests.end_sequence
        if not requests.outstanding_count:
            return
        # Once more where a caller was cancelled, or its time was over, meanwhile: that is no outcome.
        while outcomes := requests.outstanding(end_sequence):
            await asyncio.wait(outcomes)
        if self.protocol.state is ClientState.CLOSED:
            raise self.protocol.closed_error()

    def _unsent_bytes(self, connection_id: int) -> int:
        connection = self._connections.get(connection_id)
        return sys.maxsize if connection is None else connection.unsent_bytes

    def close(self) -> None:
        """Begin an orderly end."""
        self.protocol.close(self._now_ns())
        self._after_input()

    def abort(self) -> None:
        """End at once."""
        self.protocol.abort()
        self._after_input()

    async def wait_ended(self) -> None:
        """Wait until nothing of this client is left on the loop."""
        while self._ending:
            await asyncio.wait(list(self._ending))

    def on_room(self) -> None:
        """Read again once the iterator has made room enough."""
        if self._queue().is_low:
            self._set_reading(True)

    # Called by the connections

    def on_connected(self, connection: Connection) -> None:
        """Take a dialled connection into use, if it is still wanted."""
        connection_id = connection.connection_id
        if connection_id not in self._dials:
            connection.abort()
            return
        self._connections[connection_id] = connection
        if not self.protocol.is_reading:
            connection.set_reading(False)
        self.protocol.on_connected(connection_id, self._now_ns())
        self._after_input()

    def on_received(self, connection: Connection, data: memoryview) -> int:
        """Pass received bytes to the protocol; return how many of them it has consumed.

        What a listener offers meanwhile is written at the end of this, without a callback of the loop for it: where
        each of many sessions receives one message in a turn, that callback is a sixth of what the session costs.
        """
        is_alone = self._share is None
        done, end = 0, CLIENT_RECEIVE_BYTES
        while end < len(data):
            done = self._receive_piece(connection, data[:end], done)
            if self.is_flush_scheduled:
                self.flush()
            end += CLIENT_RECEIVE_BYTES
        if not is_alone:
            return self._receive_piece(connection, data, done)
        self.is_flush_scheduled = True
        try:
            return self._receive_piece(connection, data, done)
        finally:
            self.flush()

    def _receive_piece(self, connection: Connection, data: memoryview, done: int) -> int:
        """Let the protocol handle the whole frames of `data[done:]`; give where they end."""
        connection_id = connection.connection_id
        protocol = self.protocol
        while True:
            try:
                done += protocol.receive_data(connection_id, data[done:], self._now_ns())
            except RemoteProtocolError as error:
                self._on_bad_peer(connection, error)
                done = len(data)
            except Exception as error:
                context = {"message": "an egress listener raised", "exception": error, "protocol": connection}
                self.loop.call_exception_handler(context)
                consumed = protocol.consumed_bytes(connection_id)
                done = len(data) if consumed is None else done + consumed
                continue
            break
        if protocol.is_changed:
            self._after_input()
        if protocol.requests.has_unsent and protocol.requests.pump():
            self.schedule_flush()
        queue = self.egress_queue
        if queue is not None:
            if self._waiters and queue.messages:
                self._wake()
            if protocol.is_reading and queue.is_full:
                self._set_reading(False)
        return done

    def on_lost(self, connection_id: int, reason: str) -> None:
        """Note the end of a connection."""
        if self._connections.pop(connection_id, None) is not None:
            self.protocol.on_disconnected(connection_id, self._now_ns(), reason)
            self._after_input()

    def flush(self) -> None:
        """Write what waits, connection by connection, where the socket has room."""
        self.is_flush_scheduled = False
        protocol = self.protocol
        for connection_id, publisher in protocol.outgoing():
            connection = self._connections.get(connection_id)
            if connection is not None and connection.is_writable:
                connection.write(publisher.take())
        if protocol.requests.has_unsent and protocol.requests.pump():
            self.schedule_flush()
        if self._waiters and not protocol.is_waiting:
            self._wake()

    def on_taken(self, connection_id: int) -> None:
        """Write what has waited for the connection, which has taken what was written before."""
        if self.protocol.has_unsent(connection_id):
            self.schedule_flush()

    def on_keep_alive_answer(self, connection_id: int, answer: KeepAliveAnswer) -> None:
        """Take an answer that came for all sessions of a connection."""
        self.protocol.on_keep_alive_answer(connection_id, answer, self._now_ns())
        if self.protocol.is_changed:
            self._after_input()

    def want(self, endpoint: str) -> None:
        """Take a connection into use that stands, and on which the session was spoken to."""
        self.protocol.want(endpoint, self._now_ns())
        self._after_input()

    # Inside

    def _now_ns(self) -> int:
        return int(self.loop.time() * 1e9)

    def _on_bad_peer(self, connection: Connection, error: RemoteProtocolError) -> None:
        """Drop a connection whose bytes make no sense; the protocol dials again after a back-off."""
        if self.protocol.state is not ClientState.CONNECTING:
            message = "a cluster member sent invalid bytes; the client reconnects"
            self.loop.call_exception_handler({"message": message, "exception": error, "protocol": connection})
        self._connections.pop(connection.connection_id, None)
        self._end_connection(connection)
        self.protocol.on_disconnected(connection.connection_id, self._now_ns(), str(error))
        self._after_input()

    def _after_input(self) -> None:
        """Perform the effects, write, set the timer, wake the waiting callers."""
        protocol = self.protocol
        protocol.is_changed = False
        for effect in protocol.take_effects():
            match effect:
                case Dial():
                    # Not `create_task`: with eager tasks a dial over a connection that is up ends before it is noted.
                    dialling = self._dial(effect)
                    task = asyncio.Task(dialling, loop=self.loop, name=f"client-dial-{effect.endpoint}")
                    self._dials[effect.connection_id] = task
                case Disconnect():
                    self._disconnect(effect)
        self.schedule_flush()
        self._set_timer()
        self._wake()
        if self._share is not None:
            self._share.look()
        if self._end_calls and not self.has_session:
            calls, self._end_calls = self._end_calls, {}
            for call in calls:
                call()

    async def _dial(self, dial: Dial) -> None:
        config, share = self.protocol.config, self._share
        is_patient = share is not None and self.protocol.state is not ClientState.CONNECTING
        try:
            async with asyncio.timeout(None if is_patient else min(config.dial_timeout_s, config.connect_timeout_s)):
                if share is not None:
                    self.on_connected(await share.attach(dial.connection_id, dial.endpoint))
                    return
                await dial_member(self, dial.connection_id, dial.endpoint, config)
        except OSError as error:
            self._dials.pop(dial.connection_id, None)
            self.protocol.on_disconnected(dial.connection_id, self._now_ns(), describe_connection_error(error))
            self._after_input()
        finally:
            self._dials.pop(dial.connection_id, None)

    def _disconnect(self, effect: Disconnect) -> None:
        task = self._dials.pop(effect.connection_id, None)
        connection = self._connections.pop(effect.connection_id, None)
        if connection is not None:
            self._end_connection(connection)
        elif task is not None:
            task.cancel()
            self._watch(task)

    def _end_connection(self, connection: Connection) -> None:
        self._watch(connection.lost)
        connection.abort()

    def _watch(self, ending: asyncio.Future[None]) -> None:
        if not ending.done():
            self._ending[ending] = None
            ending.add_done_callback(self._ending.pop)

    def _set_timer(self) -> None:
        deadline_ns = self.protocol.next_deadline_ns()
        if self._timer is not None and deadline_ns is not None and self._timer_ns <= deadline_ns:
            return  # it looks again when it is due: deadlines move on with most inputs, and are seldom reached
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ns is not None:
            self._timer_ns = deadline_ns
            self._timer = self.loop.call_at(deadline_ns / 1e9 + _TIMER_SLACK_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns, deadline_ns = self._now_ns(), self.protocol.next_deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            self._set_timer()
            return
        self.protocol.poll(now_ns)
        self._after_input()

    def _set_reading(self, is_reading: bool) -> None:
        if self._share is not None:
            # Its neighbours are on the same socket: nobody else may wait for this application.
            if not is_reading:
                limit = self.protocol.config.egress_queue_limit
                self.protocol.give_up(f"egress() is not read: egress_queue_limit={limit} messages wait")
                self._after_input()
            return
        self.protocol.is_reading = is_reading
        for connection in self._connections.values():
            connection.set_reading(is_reading)

    def _wake(self) -> None:
        """Let everyone look at its condition again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
