"""The incoming bytes of one client's connection, and the protocol that the loop calls.

Session messages of the connection's sessions and term are stamped in place and appended to the log. Queries are handed
over a run at a time. Everything else (connects, keep-alives, closes, fragments, strays) is rare and takes the slow path
as a decoded message, see `ingress_messages`. Its egress goes out in `egress_pipe`; who may stay is in
`connection_life`.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.cluster_id import is_other_cluster
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.net.transport import as_accepted_transport, has_peer_closed
from ....service_api.types import INGRESS_STREAM_ID
from ....service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_SETUP,
    UNFRAGMENTED,
    UNFRAGMENTED_DATA,
    FrameLayout,
    HeaderField,
    align,
    unpack_header,
)
from ....service_api.wire.link_frames import SetupFrame
from ....service_api.wire.queries import QUERY_HEADER, read_query
from ....service_api.wire.session_frame import PAYLOAD_OFFSET, SessionField
from ....service_api.wire.stream import MessageAssembler
from ..watching.stage_watch import StageWatch
from .connection_life import UNOPENED_FRAME_LIMIT, WINDOW, ConnectionHub, ConnectionLife
from .connection_state import ConnectionState
from .egress_pipe import MAX_FRAME_LENGTH
from .egress_tracker import HIGH_WATER_BYTES
from .gathered_ingress import GATHERED_PART_BYTES, GatheredIngress
from .ingress_messages import take_message

_ENDING: Final = ConnectionState.ENDING
_HEADERS: Final = FrameLayout(HeaderField.FRAME_LENGTH, HeaderField.KIND, SessionField.MESSAGE_HEADER).head


class IngressHub(ConnectionHub, Protocol):
    """The ingress of a member, as the incoming bytes of its connections see it."""

    buffer: bytearray
    """The buffer that every connection receives into."""
    view: memoryview
    stages: StageWatch
    gathered: GatheredIngress

    def register(self, connection: IngressBytes) -> int:
        """Number a new connection."""

    def change_unfinished(self, difference_bytes: int) -> None:
        """Count what is unfinished."""


class IngressBytes(asyncio.BufferedProtocol):
    """The incoming bytes of one client's connection."""

    __slots__ = (
        "_assembler",
        "_carry",
        "_holds",
        "_ingress",
        "_kept_bytes",
        "_meant_cluster_id",
        "_prefixes",
        "connection_id",
        "egress",
        "frame_limit",
        "last_activity_ns",
        "life",
        "sole_prefix",
        "unfinished_bytes",
    )

    def __init__(self, ingress: IngressHub, accepted: AcceptedConnection) -> None:
        self._ingress = ingress
        self.life: Final = ConnectionLife(ingress, accepted, self)
        self.egress: Final = self.life.egress
        accepted.is_excused = self._is_not_read
        self.connection_id = 0
        self.last_activity_ns = 0
        self.unfinished_bytes = 0
        self._carry = b""
        self._prefixes = self.life.prefixes
        self.sole_prefix = b""
        """The beginning of the messages of its only session; empty if it has no session, or many."""
        self.frame_limit = UNOPENED_FRAME_LIMIT
        """The longest frame that is believed of a client that holds no session."""
        self._meant_cluster_id: int | None = None
        """The cluster that the client's setup frame names; None until that frame has come."""
        self._assembler = MessageAssembler()
        self._holds = 0
        """The reasons why it is not read: a set of bits."""
        self._kept_bytes = 0
        """The bytes of `_carry` that were gathered and came too late to be taken: whole frames may be among them."""

    def __repr__(self) -> str:
        return f"<IngressBytes id={self.connection_id} {self.life.state.name} unfinished={self.unfinished_bytes}>"

    @property
    def next_prefix(self) -> bytes:
        """Return how its next bytes begin if they are a message: `sole_prefix`, empty within a frame or a message."""
        return b"" if self._carry or self._assembler.is_assembling else self.sole_prefix

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: a connection is there."""
        self.egress.transport = stream = as_accepted_transport(transport)
        stream.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.life.accepted.attach(stream)
        self.last_activity_ns = self._ingress.owner.monotonic_ns()
        self.connection_id = self.life.connection_id = self._ingress.register(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what is gathered, and end the life: the connection is gone."""
        self.egress.waiting = None
        self._ingress.gathered.take()
        self.life.lost()

    def pause_writing(self) -> None:
        """Let egress wait: the transport is full."""
        self.egress.pause()

    def resume_writing(self) -> None:
        """Send what waits: the transport has room again."""
        self.egress.resume()

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
        self._kept_bytes += len(data)
        self._count_unfinished()

    def take(self, buffer: bytearray, start: int, end: int) -> None:
        """Take what was received: it begins with a frame, and may end within one."""
        stages = self._ingress.stages
        begin_ns = stages.received_ns = stages.monotonic_ns()
        try:
            consumed = self._receive(buffer, start, end)
        except ClusterError as error:
            self.life.refuse_bytes(str(error))
            return
        if consumed != end or self._carry or self.unfinished_bytes:
            self._carry = bytes(memoryview(buffer)[consumed:end])
            self._count_unfinished()
        self.last_activity_ns = end_ns = stages.monotonic_ns()
        if end_ns - begin_ns >= stages.slow_ns:
            stages.look("ingress", begin_ns, end_ns)

    # --- reasons not to read

    def hold(self, reason: int) -> None:
        """Stop reading for a reason."""
        self._holds |= reason
        self._update_reading()

    def resume(self, reason: int) -> None:
        """Read again, if no other reason is left."""
        self._holds &= ~reason
        self._update_reading()
        if self._carry and (self._kept_bytes or self._meant_cluster_id is None):
            asyncio.get_running_loop().call_soon(self._receive_early)

    def begin_held(self) -> None:
        """Apply a hold that came before the transport read. Resume first: uvloop ignores a second `pause_reading`."""
        transport = self.egress.transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()
            self._update_reading()

    def _update_reading(self) -> None:
        transport = self.egress.transport
        if transport is None or transport.is_closing():
            return
        if self._holds:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _receive_early(self) -> None:
        """Take what came before a transport knew that it is not to be read, or was kept."""
        if self._carry and not self._holds & WINDOW and self.egress.transport is not None:
            self._kept_bytes = 0
            self.get_buffer(-1)
            self.buffer_updated(0)

    def _is_not_read(self) -> bool:
        return bool(self._holds & WINDOW)

    def abort_if_peer_closed(self) -> None:
        """Drop the connection if it is not read, the client has left, and nothing that it sent can be lost by it."""
        transport = self.egress.transport
        if transport is None or transport.is_closing() or not self._holds:
            return
        # What is kept would be unread in the socket, had it not been gathered.
        is_kept = self._kept_bytes and self._carry
        if not is_kept and has_peer_closed(transport, if_unread=not self.life.session_ids):
            self.egress.abort()

    # --- what is unfinished

    def drop_unfinished(self) -> int:
        """Drop what is unfinished, of a connection that is over; return how many bytes were counted for it."""
        counted_bytes, self.unfinished_bytes = self.unfinished_bytes, 0
        self._carry = b""
        self._assembler.clear()
        return counted_bytes

    def _count_unfinished(self) -> None:
        if self.life.state is _ENDING:
            return
        unfinished_bytes = len(self._carry) + self._assembler.held_bytes
        difference_bytes = unfinished_bytes - self.unfinished_bytes
        self.unfinished_bytes = unfinished_bytes
        if difference_bytes:
            self._ingress.change_unfinished(difference_bytes)

    # --- frames

    def _receive(self, buffer: bytearray, offset: int, end: int) -> int:
        """Take every whole frame of `buffer[offset:end]`; return the offset of the incomplete one."""
        owner, stages = self._ingress.owner, self._ingress.stages
        publisher = owner.publisher
        while True:
            prefixes = self._prefixes
            if prefixes and publisher is not None and not self._assembler.is_assembling:
                appended = publisher.append_ingress(buffer, offset, end, prefixes=prefixes, timestamp=owner.stamp())
                if appended != offset:
                    offset = appended
                    if stages.received_ns >= stages.next_ns:
                        stages.begin(publisher.log_buffer.append_position)
                    owner.schedule_flush()
                    if owner.is_window_full():
                        self._ingress.on_window_filled(self.connection_id)
            if self._meant_cluster_id is not None and not self._assembler.is_assembling:
                offset = self._receive_questions(buffer, offset, end, self._meant_cluster_id)
            if end - offset < HEADER_LENGTH or (self._meant_cluster_id is None and self._holds & WINDOW):
                return offset
            frame_length, version, flags, frame_type, *_ = unpack_header(buffer, offset)
            if not HEADER_LENGTH <= frame_length <= MAX_FRAME_LENGTH or version:
                raise RemoteProtocolError(
                    f"ingress frame_length={frame_length} version={version} expected=32..{MAX_FRAME_LENGTH} and 0"
                )
            if frame_length > self.frame_limit and not self.life.holds_session():
                raise RemoteProtocolError(
                    f"ingress frame_length={frame_length} limit={self.frame_limit} before a session is open"
                )
            frame_end = offset + align(frame_length)
            if frame_end > end:
                return offset
            self._on_frame(frame_type, flags, bytes(buffer[offset : offset + frame_length]))
            offset = frame_end
            publisher = owner.publisher

    def _receive_questions(self, buffer: bytearray, offset: int, end: int, meant_cluster_id: int) -> int:
        """Take the whole, unfragmented queries at `offset`; return the offset of what follows, for the slow path."""
        ingress, unpack, frame_limit = self._ingress, _HEADERS.unpack_from, self.frame_limit
        while end - offset >= PAYLOAD_OFFSET:
            frame_length, kind, message_header = unpack(buffer, offset)
            if (
                message_header != QUERY_HEADER
                or kind != UNFRAGMENTED_DATA
                or not HEADER_LENGTH <= frame_length <= frame_limit
                or offset + align(frame_length) > end
                or is_other_cluster(meant_cluster_id, ingress.find_cluster_id(), whole=ingress.whole_cluster_id)
            ):
                break
            question = read_query(bytes(buffer[offset + HEADER_LENGTH : offset + frame_length]))
            ingress.owner.on_query(self.connection_id, question)
            offset += align(frame_length)
        return offset

    def _on_frame(self, frame_type: int, flags: int, frame: bytes) -> None:
        """Take one frame that is not an ordinary session message."""
        meant_cluster_id = self._meant_cluster_id
        if meant_cluster_id is None:
            self._on_setup(frame_type, frame)
            return
        if frame_type != TYPE_DATA:
            raise RemoteProtocolError(f"ingress frame type={frame_type} expected={TYPE_DATA}")
        if flags & UNFRAGMENTED != UNFRAGMENTED and not self.life.has_shown_session():
            raise RemoteProtocolError("message in fragments before a session is open")
        message = self._assembler.append_fragment(frame_type, flags, frame[HEADER_LENGTH:])
        if message is not None:
            take_message(self.life, message, meant_cluster_id)
        elif self._assembler.is_assembling:
            self._count_unfinished()

    def _on_setup(self, frame_type: int, frame: bytes) -> None:
        """Take the first frame."""
        if frame_type != TYPE_SETUP:
            raise RemoteProtocolError(f"ingress begins with frame type={frame_type} expected={TYPE_SETUP}")
        setup = SetupFrame.decode(frame)
        if setup.stream_id != INGRESS_STREAM_ID:
            raise RemoteProtocolError(f"setup frame: stream_id={setup.stream_id} expected={INGRESS_STREAM_ID}")
        self._meant_cluster_id = setup.cluster_id
        self.life.set_up()
