"""The ingress connections: clients' messages come in, and their egress goes out, on one connection.

The hot path is one call per received chunk. All connections receive into one shared buffer, which works because the
loop asks for a buffer and reports what it put there without anything in between; only an incomplete frame is kept per
connection. Session messages of the connection's session and term are stamped in place and appended to the log;
everything else (connects, keep-alives, closes, fragments, strays) is rare and takes the slow path as a decoded
message.

Bounds: while more than the ingress window is appended and not delivered, no connection is read. What clients do not
take of their egress is bounded in all, by `egress_tracker`.

Connections take turns: in one turn of the loop each is read once, at most `RECEIVE_BUFFER_BYTES`. The one that fills
the window is read last when reading goes on; otherwise a greedy client that the loop asks first would fill the window
again each time, and no other would ever be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from trimaran.service_api import ClusterError, LocalProtocolError, RemoteProtocolError
from trimaran.service_api.authenticator import CREDENTIALS_LIMIT_BYTES
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import Listener, NetworkStack, Purpose, as_stream_transport, has_peer_closed
from trimaran.service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    NULL_VALUE,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, TYPE_SETUP, align, encode_message, unpack_header
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, decode_message, peek_header
from trimaran.service_api.wire.queries import QueryRequest
from trimaran.service_api.wire.request import REQUEST_BLOCK_LENGTH
from trimaran.service_api.wire.session import (
    INGRESS_MESSAGES,
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE,
    AdminRequest,
    AdminRequestType,
    ChallengeResponse,
    EventCode,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from trimaran.service_api.wire.session_frame import PREFIX_LENGTH, session_prefix
from trimaran.service_api.wire.stream import MessageAssembler

from ...core import events as ev
from ...core.log.log_publisher import LogPublisher
from .egress_tracker import DEFAULT_LIMIT_BYTES, HIGH_WATER_BYTES, EgressTracker, WaitingEgress

RECEIVE_BUFFER_BYTES: Final = 512 << 10
_WRITE_LIMIT_BYTES: Final = 1 << 20
"""The longest write that goes to a transport as it is."""
_LINGER_S: Final = 10.0
"""How long a connection that ends may take to read what it was sent."""
_LINGER_LIMIT_BYTES: Final = 1 << 20
"""With more in its transport a connection that is cut off is dropped at once: this memory is wanted."""
_MAX_FRAME_LENGTH: Final = 65504
_LOOK_LIMIT: Final = 1000
"""Connections looked at in one go for whether their clients have left."""

_ADMIN_TYPES: Final = frozenset(AdminRequestType)

logger = structlog.get_logger()


class IngressOwner(Protocol):
    """What ingress needs of the consensus module's agent."""

    @property
    def publisher(self) -> LogPublisher | None:
        """The leader's publisher of entries, or None while this member does not lead."""

    def post(self, event: object) -> None:
        """Hand an event to the core."""

    def on_query(self, connection_id: int, request: QueryRequest) -> None:
        """Take a query; it is answered on its connection."""

    def schedule_flush(self) -> None:
        """Send and record what has been appended, once this turn of the loop is over."""

    def monotonic_ns(self) -> int:
        """Now, for durations."""

    def stamp(self) -> int:
        """Now, for log entries: never below the newest time in the log."""

    def is_window_full(self) -> bool:
        """Whether more is appended and not delivered than the ingress window allows."""


class Ingress:
    """The ingress endpoint and its connections."""

    def __init__(
        self,
        owner: IngressOwner,
        *,
        egress_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        trim_memory: Callable[[], None] = lambda: None,
    ) -> None:
        self.owner = owner
        self.egress: Final = EgressTracker(egress_limit_bytes, owner.monotonic_ns, trim_memory=trim_memory)
        self.buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.connections: dict[int, IngressConnection] = {}
        """By number, in the order in which they are read again after a pause."""
        self.farewells: dict[asyncio.Transport, None] = {}
        """Connections that have been ended, while their clients read why."""
        self._next_connection_id = 1
        self._listener: Listener | None = None
        self.is_paused = False
        """Whether no connection is read."""
        self._paused_until_ns = 0
        self._looked_id = 0
        """The last connection that was looked at for whether its client has left."""

    def __repr__(self) -> str:
        return f"<Ingress connections={len(self.connections)} paused={self.is_paused}>"

    async def start(self, network: NetworkStack, endpoint: Endpoint) -> None:
        """Listen.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        self._listener = await network.listen(Purpose.INGRESS, endpoint, lambda: IngressConnection(self))

    def register(self, connection: IngressConnection) -> int:
        """Number a new connection."""
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        self.connections[connection_id] = connection
        if self.is_paused:
            connection.pause()
            # Once more later: uvloop, and asyncio until Python 3.11.3, begin to read after `connection_made`, whatever
            # was asked for in it.
            asyncio.get_running_loop().call_soon(connection.begin_paused)
        return connection_id

    def forget(self, connection: IngressConnection) -> None:
        """Tell the core that a connection is gone, once."""
        self.egress.end(connection)
        if self.connections.pop(connection.connection_id, None) is not None:
            self.owner.post(ev.ClientDisconnected(connection.connection_id))

    def unbind_all(self) -> None:
        """Stop taking session messages: this member does not lead any more."""
        for connection in self.connections.values():
            connection.unbind()

    def pause(self) -> None:
        """Stop reading every connection: the ingress window is full, or the leader holds."""
        self.is_paused = True
        for connection in self.connections.values():
            connection.pause()

    def on_window_filled(self, connection: IngressConnection) -> None:
        """Stop reading; the connection that filled the window is the last one that is read when reading goes on."""
        self.connections[connection.connection_id] = self.connections.pop(connection.connection_id)
        self.pause()

    def resume(self) -> None:
        """Read again, if reading was paused."""
        if self.is_paused:
            self.is_paused = False
            self._paused_until_ns = self.owner.monotonic_ns()
            for connection in self.connections.values():
                connection.resume()

    def last_activity_ns(self, connection_id: int) -> int | None:
        """When a connection last brought anything, or could not, because it was not read.

        None for a connection that is gone.
        """
        connection = self.connections.get(connection_id)
        if connection is None:
            return None
        if self.is_paused:
            return self.owner.monotonic_ns()
        return max(connection.last_activity_ns, self._paused_until_ns)

    def close_half_open_connections(self) -> None:
        """Drop connections that are not read and whose clients have left; to be called once in a while.

        Or a leader that is suspended for long would run out of sockets: clients give up one that is silent and dial
        again. What the session's own connection still holds of messages is kept for when it is read again. Each call
        looks at `_LOOK_LIMIT` connections at most, in turn: 3 us each.
        """
        looked = sorted(number for number in self.connections if number > self._looked_id)[:_LOOK_LIMIT]
        for number in looked:
            self.connections[number].abort_if_peer_closed()
        self._looked_id = looked[-1] if len(looked) == _LOOK_LIMIT else 0

    @property
    def egress_waiting_bytes(self) -> int:
        """How much egress has been written and not been taken by the sockets yet, of all connections."""
        return self.egress.held_bytes + sum(
            connection.unsent_bytes for connection in self.connections.values() if not connection.is_egress_waiting
        )

    def look_at_egress(self) -> None:
        """Keep what clients have not taken within its limit, and give memory back; to be called once in a while."""
        self.egress.look(self.connections.values())

    def close(self) -> None:
        """Stop listening, let what is written go out, and drop every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in [*self.connections.values()]:
            connection.close()
        for transport in [*self.farewells]:
            transport.abort()


class IngressConnection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, ingress: Ingress) -> None:
        self._ingress = ingress
        self._transport: asyncio.Transport | None = None
        self._carry = b""
        self._prefix: bytes | None = None
        self._is_set_up = False
        self._waiting: WaitingEgress | None = None
        """None while the socket takes what it is given."""
        self._is_choked = False
        self._is_ingress_paused = False
        self._is_ending = False
        self._assembler = MessageAssembler()
        self.connection_id = 0
        self.last_activity_ns = 0
        self.session_id: ClusterSessionId | None = None

    def __repr__(self) -> str:
        return f"<IngressConnection id={self.connection_id} session={self.session_id}>"

    @property
    def is_egress_waiting(self) -> bool:
        """Whether the transport is full, so that egress waits with `Ingress.egress`."""
        return self._waiting is not None

    @property
    def unsent_bytes(self) -> int:
        """How much the transport holds that the socket has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is there."""
        self._transport = as_stream_transport(transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.last_activity_ns = self._ingress.owner.monotonic_ns()
        self.connection_id = self._ingress.register(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._waiting = None
        self._ingress.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the loop receives into."""
        carried = len(self._carry)
        if carried:
            self._ingress.buffer[:carried] = self._carry
            return self._ingress.view[carried:]
        return self._ingress.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take what the loop has received."""
        ingress = self._ingress
        end = len(self._carry) + nbytes
        try:
            consumed = self._receive(ingress.buffer, end)
        except ClusterError as error:
            logger.warning(
                "ingress.refused",
                connection_id=self.connection_id,
                session_id=self.session_id,
                reason=str(error),
            )
            self._carry = b""
            self.abort()
            return
        self._carry = bytes(ingress.view[consumed:end]) if consumed != end else b""
        self.last_activity_ns = ingress.owner.monotonic_ns()

    def pause_writing(self) -> None:
        """The transport is full: what follows waits."""
        if self._waiting is None:
            self._waiting = self._ingress.egress.begin(self)
        else:
            self._waiting.is_socket_full = True

    def resume_writing(self) -> None:
        """The transport has room again."""
        if self._waiting is not None:
            self._ingress.egress.pump(self, self._waiting)

    # --- the egress tracker

    def send_now(self, data: bytes | bytearray) -> None:
        """Give the transport what waited."""
        if self._transport is not None:
            self._transport.write(data)

    def choke(self, is_choked: bool) -> None:
        """Do not read a client that does not read its egress; or read it again."""
        self._is_choked = is_choked
        self.update_reading()

    def on_all_sent(self) -> None:
        """Write straight to the transport again."""
        self._waiting = None
        if self._is_ending and self._transport is not None:
            self._transport.close()

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        """End the connection of a client that does not read; the last that it gets says why. Its session stays."""
        logger.warning(
            "egress.dropped",
            connection_id=self.connection_id,
            session_id=self.session_id,
            waiting_bytes=waiting_bytes,
            reason=reason,
        )
        self.end_with(f"{reason}; connect again, and read what you are sent")

    def end_with(self, reason: str) -> None:
        """End the connection with a message that says why, which the client has a while to read."""
        self._waiting = None
        self._is_ending = True
        self._ingress.forget(self)
        transport, self._transport = self._transport, None
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _LINGER_LIMIT_BYTES:
            transport.abort()
            return
        event = SessionEvent(
            cluster_session_id=ClusterSessionId(NULL_VALUE) if self.session_id is None else self.session_id,
            correlation_id=CorrelationId(NULL_VALUE),
            leadership_term_id=TermId(NULL_VALUE),
            leader_member_id=MemberId(NULL_VALUE),
            code=EventCode.ERROR,
            version=0,
            leader_heartbeat_timeout_ns=None,
            detail=reason,
        )
        transport.set_protocol(_Farewell(self, transport))
        transport.write(encode_message(event.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MAX_FRAME_LENGTH))
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    # --- the agent

    def bind(self, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """Accept messages of this session and term."""
        self.session_id = session_id
        self._prefix = session_prefix(SESSION_MESSAGE, leadership_term_id, session_id)

    def unbind(self) -> None:
        """Stop taking session messages."""
        self._prefix = None

    def release(self) -> None:
        """Its session has ended, or is on another connection: what waits here is freed soon, read or not."""
        self.unbind()
        if self._waiting is not None:
            asyncio.get_running_loop().call_later(_LINGER_S, self._abort_if_waiting)

    def send(self, message: Message, *, close_after: bool = False) -> None:
        """Send a session message."""
        self.write(encode_message(message.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MAX_FRAME_LENGTH))
        if close_after:
            self.close()

    def write(self, data: bytes | bytearray) -> None:
        """Send egress frames; the caller gives the buffer away. What the socket does not take waits, within bounds."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waiting = self._waiting
        if waiting is not None:
            if not self._is_ending:
                self._ingress.egress.add(self, waiting, data)
        elif len(data) <= _WRITE_LIMIT_BYTES:
            transport.write(data)
        else:
            self._write_long(data)

    def _write_long(self, data: bytes | bytearray) -> None:
        """Send what a transport should not hold at once: there it could not be dropped again."""
        egress = self._ingress.egress
        waiting = self._waiting = egress.begin(self)
        egress.add_long(self, waiting, data)

    def pause(self) -> None:
        """Stop reading: the ingress window is full."""
        self._is_ingress_paused = True
        self.update_reading()

    def resume(self) -> None:
        """Read again."""
        self._is_ingress_paused = False
        self.update_reading()

    def update_reading(self) -> None:
        """Read, or do not, as the window and the other side allow."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_choked or self._is_ingress_paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def begin_paused(self) -> None:
        """Do what `pause` asked for while the transport was made; one that has been told so does not listen twice."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.update_reading()

    def abort_if_peer_closed(self) -> None:
        """Drop the connection if it is not read, the client has left, and nothing that it sent can be lost by it."""
        transport = self._transport
        if transport is None or transport.is_closing() or not (self._is_choked or self._is_ingress_paused):
            return
        if has_peer_closed(transport, if_unread=self._prefix is None):
            self.abort()

    def close(self) -> None:
        """Close once everything is written, which may not take long."""
        transport = self._transport
        if transport is None or self._is_ending:
            return
        self._is_ending = True
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LINGER_S, self.abort)
        if self._waiting is None:
            transport.close()

    def abort(self) -> None:
        """Drop the connection now."""
        self._waiting = None
        self._ingress.egress.end(self)
        if self._transport is not None:
            self._transport.abort()

    def _abort_if_waiting(self) -> None:
        if self._waiting is not None:
            self.abort()

    # --- bytes in

    def _receive(self, buffer: bytearray, end: int) -> int:
        """Take every whole frame of `buffer[:end]`; gives the offset of the incomplete one."""
        offset = 0
        owner = self._ingress.owner
        publisher = owner.publisher
        while True:
            prefix = self._prefix
            if prefix is not None and publisher is not None and not self._assembler.is_assembling:
                appended = publisher.append_ingress(buffer, offset, end, prefix=prefix, timestamp=owner.stamp())
                if appended != offset:
                    offset = appended
                    owner.schedule_flush()
                    if owner.is_window_full():
                        self._ingress.on_window_filled(self)
            if end - offset < HEADER_LENGTH:
                return offset
            frame_length, version, flags, frame_type, *_ = unpack_header(buffer, offset)
            if not HEADER_LENGTH <= frame_length <= _MAX_FRAME_LENGTH or version:
                raise RemoteProtocolError(
                    f"ingress frame_length={frame_length} version={version} expected=32..{_MAX_FRAME_LENGTH} and 0"
                )
            frame_end = offset + align(frame_length)
            if frame_end > end:
                return offset
            self._on_frame(frame_type, flags, bytes(buffer[offset : offset + frame_length]))
            offset = frame_end
            publisher = owner.publisher

    def _on_frame(self, frame_type: int, flags: int, frame: bytes) -> None:
        """Take one frame that is not an ordinary session message."""
        if not self._is_set_up:
            if frame_type != TYPE_SETUP:
                raise RemoteProtocolError(f"ingress begins with frame type={frame_type} expected={TYPE_SETUP}")
            setup = SetupFrame.decode(frame)
            if setup.stream_id != INGRESS_STREAM_ID:
                raise RemoteProtocolError(f"setup frame: stream_id={setup.stream_id} expected={INGRESS_STREAM_ID}")
            self._is_set_up = True
            return
        if frame_type != TYPE_DATA:
            raise RemoteProtocolError(f"ingress frame type={frame_type} expected={TYPE_DATA}")
        message = self._assembler.append_fragment(frame_type, flags, frame[HEADER_LENGTH:])
        if message is not None:
            self._on_message(message)

    def _on_message(self, encoded: bytes) -> None:
        post, connection_id = self._ingress.owner.post, self.connection_id
        _, template_id, schema_id, _ = peek_header(encoded)
        if (template_id, schema_id) == (SessionMessageHeader.TEMPLATE_ID, SessionMessageHeader.SCHEMA_ID):
            self._on_session_message(encoded)
            return
        if (template_id, schema_id) == (QueryRequest.TEMPLATE_ID, QueryRequest.SCHEMA_ID):
            self._ingress.owner.on_query(connection_id, QueryRequest.decode(encoded))
            return
        if (template_id, schema_id) == (AdminRequest.TEMPLATE_ID, AdminRequest.SCHEMA_ID):
            post(ev.ClientAdmin(connection_id, _decode_admin_request(encoded)))
            return
        message = decode_message(encoded, registry=INGRESS_MESSAGES)
        if isinstance(message, SessionKeepAlive):
            self._on_keep_alive(message)
        elif isinstance(message, SessionConnectRequest):
            post(ev.ClientConnect(connection_id, message))
        elif isinstance(message, SessionCloseRequest):
            post(ev.ClientClose(connection_id, message.leadership_term_id, message.cluster_session_id))
        elif isinstance(message, ChallengeResponse):
            self._on_challenge_response(message)
        else:
            raise RemoteProtocolError(f"ingress message {type(message).__name__} is not one that clients send here")

    def _on_challenge_response(self, message: ChallengeResponse) -> None:
        length = len(message.encoded_credentials)
        if length > CREDENTIALS_LIMIT_BYTES:
            raise RemoteProtocolError(f"credentials too long: length={length} limit={CREDENTIALS_LIMIT_BYTES}")
        self._ingress.owner.post(
            ev.ClientChallengeResponse(
                self.connection_id, message.correlation_id, message.cluster_session_id, message.encoded_credentials
            )
        )

    def _on_keep_alive(self, message: SessionKeepAlive) -> None:
        self._ingress.owner.post(
            ev.ClientKeepAlive(self.connection_id, message.leadership_term_id, message.cluster_session_id)
        )

    def _on_session_message(self, encoded: bytes) -> None:
        """Take a session message that came in fragments, or is a stray."""
        owner = self._ingress.owner
        if len(encoded) < SESSION_HEADER_LENGTH:
            raise RemoteProtocolError(
                f"session message of length={len(encoded)} expected at least {SESSION_HEADER_LENGTH}"
            )
        header = SessionMessageHeader.decode(encoded)
        publisher = owner.publisher
        if publisher is None:
            return  # Only a leader answers strays; in an election they would fill the inbox.
        if self._prefix is None or encoded[2:PREFIX_LENGTH] != self._prefix[2:]:
            owner.post(ev.ClientStray(self.connection_id, header.leadership_term_id, header.cluster_session_id))
            return
        block_length = peek_header(encoded)[0]
        if block_length not in (SessionMessageHeader.LAYOUT.block_length, REQUEST_BLOCK_LENGTH):
            raise RemoteProtocolError(f"session message: block_length={block_length} expected=24 or 40")
        if len(encoded) < MESSAGE_HEADER_LENGTH + block_length:
            raise RemoteProtocolError(f"incomplete session message: {block_length=} length={len(encoded)}")
        timestamp = owner.stamp().to_bytes(8, "little", signed=True)
        stamped = encoded[:PREFIX_LENGTH] + timestamp + encoded[SESSION_HEADER_LENGTH:]
        try:
            publisher.append_message(stamped)
        except LocalProtocolError as error:
            raise RemoteProtocolError(str(error)) from error
        owner.schedule_flush()
        if owner.is_window_full():
            self._ingress.on_window_filled(self)


class _Farewell(asyncio.BufferedProtocol):
    """A connection that ends, while its client reads the last message: what still comes is dropped.

    Closing at once would reset the connection where something of the client is unread, and the reset would overtake
    the message.
    """

    def __init__(self, connection: IngressConnection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._farewells = connection._ingress.farewells
        self._farewells[transport] = None
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for what is dropped."""
        return self._connection._ingress.view

    def buffer_updated(self, nbytes: int) -> None:
        """Drop it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left."""
        self._deadline.cancel()
        self._farewells.pop(self._transport, None)
        self._connection.connection_lost(exc)


def _decode_admin_request(encoded: bytes) -> AdminRequest:
    """Read an admin request; one of a type that is unknown here has none, and gets an answer."""
    *ids, request_type = AdminRequest.unpack(encoded)
    if request_type in _ADMIN_TYPES:
        return AdminRequest.decode(encoded)
    term_id, session_id, correlation_id = ids
    return AdminRequest(
        leadership_term_id=term_id, cluster_session_id=session_id, correlation_id=correlation_id, request_type=None
    )
