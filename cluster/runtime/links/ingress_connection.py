"""One client's connection: its frames come in, its egress goes out.

Session messages of the connection's sessions and term are stamped in place and appended to the log; everything else
(connects, keep-alives, closes, fragments, strays) is rare and takes the slow path as a decoded message.

A connection on which no session is open has little time, and may send little: a setup frame, then single frames of
`_UNOPENED_FRAME_LIMIT` bytes at most, so what a stranger's frame says of its length is not believed. A client's
connections to followers count as its session's, for the client shows its token there, too.

A connection may carry many sessions, see `sessions`. What goes out to them in one turn of the loop is one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from trimaran.service_api import ClusterError, LocalProtocolError, RemoteProtocolError
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.permissions import Permission, describe_refusal
from trimaran.service_api.authenticator import CREDENTIALS_LIMIT_BYTES
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, describe_other_cluster, is_other_cluster
from trimaran.service_api.net.connection_gate import AcceptedConnection
from trimaran.service_api.net.transport import as_accepted_transport, has_peer_closed
from trimaran.service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    NULL_VALUE,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_SETUP,
    UNFRAGMENTED,
    align,
    encode_message,
    unpack_header,
)
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
    refusal_of_requests,
)
from trimaran.service_api.wire.session_frame import PREFIX_LENGTH, ingress_prefixes
from trimaran.service_api.wire.stream import MessageAssembler

from ...core import events as ev
from ..watching.stage_watch import StageWatch
from .egress_tracker import HIGH_WATER_BYTES, EgressTracker, WaitingEgress
from .farewell import LINGER_S, Farewell, FarewellHub
from .gathered_ingress import GATHERED_PART_BYTES, GatheredIngress
from .ingress_owner import IngressOwner

_UNOPENED_FRAME_LIMIT: Final = 16 << 10
"""The longest frame before a session is open: four times what credentials may have."""
_WRITE_LIMIT_BYTES: Final = 1 << 20
"""The longest write that goes to a transport as it is."""
_LINGER_LIMIT_BYTES: Final = 1 << 20
"""With more in its transport a connection that is cut off is dropped at once: this memory is wanted."""
_MAX_FRAME_LENGTH: Final = 65504

_MESSAGE_BLOCK: Final = SESSION_MESSAGE[0].to_bytes(2, "little")
_OPENS_SESSIONS: Final = frozenset({CallerRole.CLIENT, CallerRole.OPERATOR})
"""Whose certificates are enough for a session; its name is the principal."""

_ADMIN_TYPES: Final = frozenset(AdminRequestType)

logger = structlog.get_logger()


class IngressHub(FarewellHub, Protocol):
    """What all connections of a member's ingress share."""

    owner: IngressOwner
    buffer: bytearray
    """Where every connection receives."""
    view: memoryview
    session_open_timeout_s: float
    find_cluster_id: Callable[[], int]
    """Gives the cluster that this member belongs to; 0 while that is not known."""
    whole_cluster_id: int
    stages: StageWatch
    gathered: GatheredIngress

    @property
    def egress(self) -> EgressTracker:
        """What waits for clients."""

    def register(self, connection: IngressConnection) -> int:
        """Number a new connection."""

    def forget(self, connection: IngressConnection) -> None:
        """Tell the core that a connection is gone, once."""

    def change_unfinished(self, difference_bytes: int) -> None:
        """Count what is unfinished."""

    def on_window_filled(self, connection_id: int) -> None:
        """Stop reading; this connection is read last when reading goes on."""


class IngressConnection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, ingress: IngressHub, accepted: AcceptedConnection) -> None:
        self._ingress = ingress
        self._accepted = accepted
        accepted.is_needed = self._holds_session
        accepted.is_excused = self._is_not_read
        accepted.end = self._end_now
        self._has_claimed = False
        """Whether it has shown something for a session, which the core may not have looked at yet."""
        self.unfinished_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._carry = b""
        self._prefixes: dict[bytes, ClusterSessionId] = {}
        """What the messages and requests of the sessions on it begin with; both of each session, while it is bound."""
        self.sole_prefix = b""
        """What the messages of the only session on it begin with; empty where there are none, or many."""
        self._is_kept = False
        """Whether whole frames may wait in `_carry`, because nobody was to be read when they were gathered."""
        self._batch: bytearray | None = None
        """What goes out at the end of this turn, where more than one session is bound."""
        self._is_set_up = False
        self._meant_cluster_id: int = NULL_CLUSTER_ID
        """The cluster that the client's setup frame names."""
        self._waiting: WaitingEgress | None = None
        """None while the socket takes what it is given."""
        self._is_choked = False
        self._is_ingress_paused = False
        self._is_ending = False
        self._assembler = MessageAssembler()
        self.connection_id = 0
        self.last_activity_ns = 0
        self.session_ids: dict[ClusterSessionId, int] = {}
        """The sessions whose messages are taken on it, and the term of each binding."""

    def __repr__(self) -> str:
        return f"<IngressConnection id={self.connection_id} sessions={len(self.session_ids)}>"

    @property
    def session_id(self) -> ClusterSessionId | None:
        """The session on it, for log lines; the first of many."""
        return next(iter(self.session_ids), None)

    @property
    def next_prefix(self) -> bytes:
        """What its next bytes begin with if they are a message: `sole_prefix`, or empty within a frame or a message."""
        return b"" if self._carry or self._assembler.is_assembling else self.sole_prefix

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
        self._transport = as_accepted_transport(transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._accepted.attach(self._transport)
        self.last_activity_ns = self._ingress.owner.monotonic_ns()
        self.connection_id = self._ingress.register(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._waiting = None
        self._ingress.gathered.take()
        self._accepted.leave()
        self._ingress.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the loop receives into, after what is gathered there."""
        ingress, carry = self._ingress, self._carry
        if not carry:
            return ingress.free_view
        begin = ingress.gathered.end
        end = begin + len(carry)
        ingress.buffer[begin:end] = carry
        return ingress.view[end:]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what the loop has received, or gather it with what other connections bring."""
        ingress, carry = self._ingress, self._carry
        gathered = ingress.gathered
        if (
            nbytes <= GATHERED_PART_BYTES
            and self.sole_prefix
            and not carry
            and gathered.is_worth_it
            and not self._assembler.is_assembling
        ):
            gathered.add(self, nbytes)
            return
        start = gathered.end
        end = start + len(carry) + nbytes
        gathered.take()
        if self._carry is carry:
            self.take(ingress.buffer, start, end)
        else:
            self.take_rest(ingress.view[start:end])

    def take_rest(self, data: memoryview) -> None:
        """Take what was received; the beginning of its first frame may have come just before."""
        whole = bytearray(self._carry)
        whole += data
        self.take(whole, 0, len(whole))

    def keep(self, data: memoryview) -> None:
        """Keep what was received while reading is paused, until it goes on."""
        self._carry += data
        self._is_kept = True
        self._count_unfinished()

    def take(self, buffer: bytearray, start: int, end: int) -> None:
        """Take what was received: it begins with a frame, and may end within one."""
        ingress, stages = self._ingress, self._ingress.stages
        begin_ns = stages.received_ns = stages.monotonic_ns()
        try:
            consumed = self._receive(buffer, start, end)
        except ClusterError as error:
            self._log_refused(str(error))
            self.abort()
            ingress.forget(self)  # what is gathered of it came after bytes that make no sense
            return
        if consumed != end or self._carry or self.unfinished_bytes:
            self._carry = bytes(memoryview(buffer)[consumed:end])
            self._count_unfinished()
        self.last_activity_ns = end_ns = stages.monotonic_ns()
        if end_ns - begin_ns >= stages.slow_ns:
            stages.look("ingress", begin_ns, end_ns)

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
        if self._transport is not None and not self._transport.is_closing():
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
        self._flush_batch()
        self._waiting = None
        self._is_ending = True
        message = self._encode_end(reason)
        self._ingress.forget(self)
        transport, self._transport = self._transport, None
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _LINGER_LIMIT_BYTES:
            transport.abort()
            return
        transport.set_protocol(Farewell(transport, self._ingress, self.connection_lost))
        transport.write(message)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    # --- the agent

    def bind(self, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """Accept messages of this session and term."""
        self._unbind(session_id)
        self._accepted.admit()
        self.session_ids[session_id] = leadership_term_id
        for prefix in ingress_prefixes(leadership_term_id, session_id):
            self._prefixes[prefix] = session_id
        self._find_sole_prefix()

    def unbind(self) -> None:
        """Stop taking session messages."""
        self.session_ids.clear()
        self._prefixes.clear()
        self.sole_prefix = b""

    def release(self, session_id: ClusterSessionId) -> None:
        """A session has ended, or is on another connection; after the last, what waits here is freed soon."""
        self._unbind(session_id)
        if self._waiting is not None and not self.session_ids:
            asyncio.get_running_loop().call_later(LINGER_S, self._abort_if_waiting)

    def _unbind(self, session_id: ClusterSessionId) -> None:
        leadership_term_id = self.session_ids.pop(session_id, None)
        if leadership_term_id is not None:
            for prefix in ingress_prefixes(leadership_term_id, session_id):
                del self._prefixes[prefix]
            self._find_sole_prefix()

    def _find_sole_prefix(self) -> None:
        self.sole_prefix = next(iter(self._prefixes)) if len(self.session_ids) == 1 else b""

    def send(self, message: Message, *, close_after: bool = False) -> None:
        """Send a session message."""
        self.write(encode_message(message.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MAX_FRAME_LENGTH))
        if close_after:
            self.close()

    def write(self, data: bytes | bytearray) -> None:
        """Send egress frames; the caller gives the buffer away. What the socket does not take waits, within bounds.

        One session writes once a turn by itself. Where there are more, all that they write in a turn goes out at its
        end: a call of the system for each of a thousand sessions costs more than their messages.
        """
        batch = self._batch
        if batch is not None:
            batch += data
            if len(batch) >= _WRITE_LIMIT_BYTES:
                self._flush_batch()
        elif len(self.session_ids) > 1:
            self._batch = bytearray(data)
            asyncio.get_running_loop().call_soon(self._flush_batch)
        else:
            self._write(data)

    def _flush_batch(self) -> None:
        """Send what was written in this turn."""
        batch, self._batch = self._batch, None
        if batch:
            self._write(batch)

    def _write(self, data: bytes | bytearray) -> None:
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
        if self._carry and (self._is_kept or not self._is_set_up):
            asyncio.get_running_loop().call_soon(self._receive_early)

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

    def _receive_early(self) -> None:
        """Take what came before a transport knew that it is not to be read, or was kept."""
        if self._carry and not self._is_ingress_paused and self._transport is not None:
            self._is_kept = False
            self.get_buffer(-1)
            self.buffer_updated(0)

    def drop_unfinished(self) -> int:
        """Drop what is unfinished, of a connection that is over; return how many bytes were counted for it."""
        counted_bytes, self.unfinished_bytes = self.unfinished_bytes, 0
        self._carry = b""
        self._assembler.clear()
        return counted_bytes

    def abort_if_peer_closed(self) -> None:
        """Drop the connection if it is not read, the client has left, and nothing that it sent can be lost by it."""
        transport = self._transport
        if transport is None or transport.is_closing() or not (self._is_choked or self._is_ingress_paused):
            return
        # What is kept would be unread in the socket, had it not been gathered.
        is_kept = self._is_kept and bool(self._carry)
        if not is_kept and has_peer_closed(transport, if_unread=not self.session_ids):
            self.abort()

    def close(self) -> None:
        """Close once everything is written, which may not take long."""
        self._flush_batch()
        transport = self._transport
        if transport is None or self._is_ending:
            return
        self._is_ending = True
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        if self._waiting is None:
            transport.close()

    def refuse(self, reason: str) -> None:
        """End a connection whose client has gone too far, with one line that says why."""
        self._log_refused(reason)
        self.end_with(reason)

    def _log_refused(self, reason: str) -> None:
        ids = {"connection_id": self.connection_id, "session_id": self.session_id}
        self._accepted.log_ended("ingress.refused", reason, **ids)

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

    def _receive(self, buffer: bytearray, offset: int, end: int) -> int:
        """Take every whole frame of `buffer[offset:end]`; gives the offset of the incomplete one."""
        owner, stages = self._ingress.owner, self._ingress.stages
        publisher = owner.publisher
        while True:
            prefixes = self._prefixes
            if prefixes and publisher is not None and not self._assembler.is_assembling:
                appended = publisher.append_ingress(buffer, offset, end, prefixes=prefixes, timestamp=owner.stamp())
                if appended != offset:
                    offset = appended
                    if stages.is_ready:
                        stages.begin(publisher.log_buffer.append_position)
                    owner.schedule_flush()
                    if owner.is_window_full():
                        self._ingress.on_window_filled(self.connection_id)
            if end - offset < HEADER_LENGTH or (self._is_ingress_paused and not self._is_set_up):
                return offset
            frame_length, version, flags, frame_type, *_ = unpack_header(buffer, offset)
            if not HEADER_LENGTH <= frame_length <= _MAX_FRAME_LENGTH or version:
                raise RemoteProtocolError(
                    f"ingress frame_length={frame_length} version={version} expected=32..{_MAX_FRAME_LENGTH} and 0"
                )
            if frame_length > _UNOPENED_FRAME_LIMIT and not self._has_claimed and not self._holds_session():
                raise RemoteProtocolError(
                    f"ingress frame_length={frame_length} limit={_UNOPENED_FRAME_LIMIT} before a session is open"
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
            self._meant_cluster_id = setup.cluster_id
            self._accepted.expect("session", self._ingress.session_open_timeout_s)
            return
        if frame_type != TYPE_DATA:
            raise RemoteProtocolError(f"ingress frame type={frame_type} expected={TYPE_DATA}")
        if flags & UNFRAGMENTED != UNFRAGMENTED and not self._has_shown_session():
            raise RemoteProtocolError("message in fragments before a session is open")
        message = self._assembler.append_fragment(frame_type, flags, frame[HEADER_LENGTH:])
        if message is not None:
            self._on_message(message)
        elif self._assembler.is_assembling:
            self._count_unfinished()

    def _holds_session(self) -> bool:
        return self._accepted.is_admitted or self._ingress.owner.holds_session(self.connection_id)

    def _has_shown_session(self) -> bool:
        """As `_holds_session`; what was shown in this pass of the loop counts, too."""
        if self._has_claimed and not self._holds_session():
            self._ingress.owner.take_soon()
        return self._holds_session()

    def _is_not_read(self) -> bool:
        return self._is_ingress_paused

    def _encode_end(self, reason: str, correlation_id: int = NULL_VALUE) -> bytes:
        event = SessionEvent(
            cluster_session_id=ClusterSessionId(NULL_VALUE) if self.session_id is None else self.session_id,
            correlation_id=CorrelationId(correlation_id),
            leadership_term_id=TermId(NULL_VALUE),
            leader_member_id=MemberId(NULL_VALUE),
            code=EventCode.ERROR,
            version=0,
            leader_heartbeat_timeout_ns=None,
            detail=reason,
        )
        return encode_message(event.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MAX_FRAME_LENGTH)

    def _end_now(self, reason: str) -> None:
        """Free the descriptor at once; a client that has said what it is gets a message, if its socket takes it."""
        transport, self._transport = self._transport, None
        self._waiting = None
        self._is_ending = True
        message = self._encode_end(reason)
        self._ingress.forget(self)
        if transport is None:
            return
        if self._is_set_up and not transport.is_closing() and not transport.get_write_buffer_size():
            transport.write(message)
            transport.close()
        else:
            transport.abort()

    def _count_unfinished(self) -> None:
        if self._is_ending:
            return
        unfinished_bytes = len(self._carry) + self._assembler.held_bytes
        difference_bytes = unfinished_bytes - self.unfinished_bytes
        self.unfinished_bytes = unfinished_bytes
        if difference_bytes:
            self._ingress.change_unfinished(difference_bytes)

    def _refuse_asker(self, kind: str, reason: str, encoded: bytes) -> None:
        """End the connection of a client that can have no session here, for what it means or shows.

        A request for a session is answered, which ends the client's search; without one it would try elsewhere.
        """
        _, template_id, schema_id, _ = peek_header(encoded)
        is_request = (template_id, schema_id) == (SessionConnectRequest.TEMPLATE_ID, SessionConnectRequest.SCHEMA_ID)
        if is_request and self._transport is not None:
            request = SessionConnectRequest.decode(encoded)
            self._transport.write(self._encode_end(reason, request.correlation_id))
        self._accepted.refuse(kind, reason)

    def _on_message(self, encoded: bytes) -> None:
        ingress, connection_id = self._ingress, self.connection_id
        post, soon = ingress.owner.post, ingress.owner.post_soon
        if is_other_cluster(self._meant_cluster_id, ingress.find_cluster_id(), whole=ingress.whole_cluster_id):
            reason = describe_other_cluster(ingress.find_cluster_id(), expected=self._meant_cluster_id)
            self._refuse_asker("other_cluster", reason, encoded)
            return
        _, template_id, schema_id, _ = peek_header(encoded)
        if (template_id, schema_id) == (SessionMessageHeader.TEMPLATE_ID, SessionMessageHeader.SCHEMA_ID):
            self._on_session_message(encoded)
            return
        if (template_id, schema_id) == (QueryRequest.TEMPLATE_ID, QueryRequest.SCHEMA_ID):
            self._ingress.owner.on_query(connection_id, QueryRequest.decode(encoded))
            return
        if (template_id, schema_id) == (AdminRequest.TEMPLATE_ID, AdminRequest.SCHEMA_ID):
            accepted, request = self._accepted, _decode_admin_request(encoded)
            is_permitted = accepted.may(Permission[(request.request_type or AdminRequestType.SNAPSHOT).name])
            post(ev.ClientAdmin(connection_id, request, accepted.caller, accepted.address, is_permitted))
            return
        if (template_id, schema_id) == (SessionKeepAlive.TEMPLATE_ID, SessionKeepAlive.SCHEMA_ID):
            term_id, session_id = SessionKeepAlive.unpack(encoded)
            if not self._ingress.owner.is_keep_alive_known(connection_id, term_id, session_id):
                soon(ev.ClientKeepAlive(connection_id, term_id, session_id))
            return
        message = decode_message(encoded, registry=INGRESS_MESSAGES)
        is_asking = isinstance(message, (SessionConnectRequest, ChallengeResponse))
        if is_asking and not self._accepted.may(Permission.SESSION):
            self._refuse_asker("no_right", describe_refusal(Permission.SESSION, self._accepted.caller), encoded)
        elif isinstance(message, SessionConnectRequest):
            soon(ev.ClientConnect(connection_id, message, self._certified_principal(), self._accepted.address))
        elif isinstance(message, SessionCloseRequest):
            soon(ev.ClientClose(connection_id, message.leadership_term_id, message.cluster_session_id))
        elif isinstance(message, ChallengeResponse):
            self._on_challenge_response(message)
        else:
            raise RemoteProtocolError(f"ingress message {type(message).__name__} is not one that clients send here")

    def _certified_principal(self) -> bytes:
        """Who the client is by its certificate; empty where the authenticator has to decide."""
        caller = self._accepted.caller
        return caller.name.encode() if caller.role in _OPENS_SESSIONS else b""

    def _on_challenge_response(self, message: ChallengeResponse) -> None:
        length = len(message.encoded_credentials)
        if length > CREDENTIALS_LIMIT_BYTES:
            raise RemoteProtocolError(f"credentials too long: length={length} limit={CREDENTIALS_LIMIT_BYTES}")
        self._has_claimed = True
        self._ingress.owner.post_soon(
            ev.ClientChallengeResponse(
                self.connection_id, message.correlation_id, message.cluster_session_id, message.encoded_credentials
            )
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
        if _MESSAGE_BLOCK + encoded[len(_MESSAGE_BLOCK) : PREFIX_LENGTH] not in self._prefixes:
            owner.post(ev.ClientStray(self.connection_id, header.leadership_term_id, header.cluster_session_id))
            return
        block_length = peek_header(encoded)[0]
        if block_length not in (SessionMessageHeader.LAYOUT.block_length, REQUEST_BLOCK_LENGTH):
            raise RemoteProtocolError(f"session message: block_length={block_length} expected=24 or 40")
        if len(encoded) < MESSAGE_HEADER_LENGTH + block_length:
            raise RemoteProtocolError(f"incomplete session message: {block_length=} length={len(encoded)}")
        if block_length in publisher.refused_blocks:
            # It was told so when its session opened.
            if block_length == REQUEST_BLOCK_LENGTH:
                self.refuse(refusal_of_requests(publisher.refused_ingress))
            else:
                self.refuse("the service takes no messages: it has no on_session_message")
            return
        timestamp = owner.stamp().to_bytes(8, "little", signed=True)
        stamped = encoded[:PREFIX_LENGTH] + timestamp + encoded[SESSION_HEADER_LENGTH:]
        try:
            publisher.append_message(stamped)
        except LocalProtocolError as error:
            raise RemoteProtocolError(str(error)) from error
        owner.schedule_flush()
        if owner.is_window_full():
            self._ingress.on_window_filled(self.connection_id)


def _decode_admin_request(encoded: bytes) -> AdminRequest:
    """Read an admin request; one of a type that is unknown here has none, and gets an answer."""
    *ids, request_type = AdminRequest.unpack(encoded)
    if request_type in _ADMIN_TYPES:
        return AdminRequest.decode(encoded)
    term_id, session_id, correlation_id = ids
    return AdminRequest(
        leadership_term_id=term_id, cluster_session_id=session_id, correlation_id=correlation_id, request_type=None
    )
