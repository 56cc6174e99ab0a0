"""A client session inside the service container: what a service gets, and where its egress goes.

Egress is packed per session into one buffer and written once after a batch of deliveries. Only the leader has an
outlet; on followers and in replay what a service offers is counted and discarded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

from service_api import LocalProtocolError
from service_api.types import EGRESS_STREAM_ID, ClusterSessionId
from service_api.wire.frame import FRAME_HEADER, HEADER_LENGTH, TYPE_DATA, UNFRAGMENTED, encode_message
from service_api.wire.request import REQUEST_HEADER_LENGTH, REQUEST_MESSAGE
from service_api.wire.session import SESSION_MESSAGE_HEADER, SessionMessageHeader

MTU_LENGTH_BYTES: Final = 65504
_OVERHEAD: Final = HEADER_LENGTH + SESSION_MESSAGE_HEADER.size
_LARGEST_SINGLE_PAYLOAD: Final = MTU_LENGTH_BYTES - _OVERHEAD

_EGRESS: Final = struct.Struct("<i52sq")
"""frame_length, the 52 bytes that are the same for every message of a session and term, timestamp."""

_REPLY_OVERHEAD: Final = HEADER_LENGTH + REQUEST_HEADER_LENGTH
_LARGEST_SINGLE_REPLY: Final = MTU_LENGTH_BYTES - _REPLY_OVERHEAD

_REPLY: Final = struct.Struct("<i52sqqq")
"""As `_EGRESS`, then request_sequence and code."""

_REPLY_PARTS: Final = struct.Struct("<qqq")

_PADDING: Final = tuple(bytes(-length & 31) for length in range(32))
"""Zeros that align a frame, by frame length modulo 32."""


class EgressOutlet(Protocol):
    """Where a session's egress goes on the leader: an ingress connection."""

    def write(self, data: bytes | bytearray) -> None:
        """Send frames; the buffer is given away."""


class ContainerClientSession:
    """One open client session in the service container."""

    __slots__ = (
        "_closing",
        "_constant",
        "_container",
        "_max_payload_length",
        "_out",
        "_outlet",
        "_reply_constant",
        "encoded_principal",
        "id",
    )

    def __init__(
        self,
        session_id: ClusterSessionId,
        encoded_principal: bytes,
        container: EgressContainer,
        *,
        max_payload_length: int,
    ) -> None:
        self.id = session_id
        self.encoded_principal = encoded_principal
        self._container = container
        self._max_payload_length = max_payload_length
        self._closing = False
        self._outlet: EgressOutlet | None = None
        self._out: bytearray | None = None
        self._constant = b""
        self._reply_constant = b""

    def __repr__(self) -> str:
        return f"<ClientSession id={self.id} closing={self._closing} connected={self._outlet is not None}>"

    @property
    def is_closing(self) -> bool:
        """Whether the service has asked for the session to be closed."""
        return self._closing

    def connect(self, outlet: EgressOutlet, leadership_term_id: int) -> None:
        """Leader: send egress to this connection from now on."""
        self._outlet = outlet
        self._out = bytearray()
        frame = FRAME_HEADER.pack(0, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, EGRESS_STREAM_ID, 0, 0)
        header = SESSION_MESSAGE_HEADER.pack(
            SessionMessageHeader.LAYOUT.block_length,
            SessionMessageHeader.TEMPLATE_ID,
            SessionMessageHeader.SCHEMA_ID,
            SessionMessageHeader.SCHEMA_VERSION,
            leadership_term_id,
            self.id,
            0,
        )
        self._constant = frame[4:] + header[:24]
        self._reply_constant = (
            frame[4:] + SESSION_MESSAGE_HEADER.pack(*REQUEST_MESSAGE, leadership_term_id, self.id, 0)[:24]
        )

    def disconnect(self) -> None:
        """Stop sending: this member does not lead, or the client is gone."""
        self._outlet = None
        self._out = None

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client; counted and discarded where this member does not lead."""
        if self._closing:
            return False
        out = self._out
        length = len(payload)
        if length > _LARGEST_SINGLE_PAYLOAD:
            self._offer_fragmented(payload)
            return True
        container = self._container
        if out is None:
            container.discarded_egress_count += 1
            return True
        if not out:
            container.dirty_sessions.append(self)
        length += _OVERHEAD
        out += _EGRESS.pack(length, self._constant, container.time)
        out += payload
        if length & 31:
            out += _PADDING[length & 31]
        return True

    def offer_reply(self, sequence: int, code: int, reply: bytes) -> None:
        """Send the reply to a request, also when the session is closing; otherwise as `offer`."""
        out, container = self._out, self._container
        if out is None:
            container.discarded_egress_count += 1
            return
        if not out:
            container.dirty_sessions.append(self)
        length = len(reply)
        if length > _LARGEST_SINGLE_REPLY:
            message = self._reply_constant[28:] + _REPLY_PARTS.pack(container.time, sequence, code) + reply
            out += encode_message(message, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)
            return
        length += _REPLY_OVERHEAD
        out += _REPLY.pack(length, self._reply_constant, container.time, sequence, code)
        out += reply
        if length & 31:
            out += _PADDING[length & 31]

    def close(self) -> None:
        """Ask for the session to be closed."""
        if not self._closing:
            self._container.close_session(self.id)
            self._closing = True

    def mark_closing(self) -> None:
        """Remember that the service asked for this before the snapshot that the session comes from."""
        self._closing = True

    def flush(self) -> None:
        """Write what was offered in this batch."""
        out, outlet = self._out, self._outlet
        if out and outlet is not None:
            self._out = bytearray()
            outlet.write(out)

    def _offer_fragmented(self, payload: bytes | bytearray | memoryview) -> None:
        if len(payload) > self._max_payload_length:
            raise LocalProtocolError(f"egress payload too long: length={len(payload)} limit={self._max_payload_length}")
        container, out = self._container, self._out
        if out is None:
            container.discarded_egress_count += 1
            return
        if not out:
            container.dirty_sessions.append(self)
        message = self._constant[28:] + container.time.to_bytes(8, "little", signed=True) + bytes(payload)
        out += encode_message(message, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)


class EgressContainer:
    """What the sessions of one container share; the service agent holds one."""

    __slots__ = ("_close_session", "_kept_count", "close_session", "dirty_sessions", "discarded_egress_count", "time")

    def __init__(self, close_session: Callable[[ClusterSessionId], None]) -> None:
        self.close_session = self._close_session = close_session
        self._kept_count = 0
        self.dirty_sessions: list[ContainerClientSession] = []
        self.discarded_egress_count = 0
        self.time = 0
        """Cluster time of the entry being delivered."""

    def begin_query(self) -> None:
        """Refuse every offer and close, until `end_query`.

        The first offer after a flush counts itself here, so it is enough to put something in the place of what it
        counts with that raises; offers in log order, which are many, need not look at anything more.
        """
        self.flush()
        self._kept_count = self.discarded_egress_count
        self.dirty_sessions = _NO_SESSIONS
        self.discarded_egress_count = _NO_COUNT
        self.close_session = _refuse_close

    def end_query(self) -> None:
        """Allow them again."""
        self.dirty_sessions = []
        self.discarded_egress_count = self._kept_count
        self.close_session = self._close_session

    def flush(self) -> None:
        """Write the egress of every session that has any: one write a session."""
        if self.dirty_sessions:
            sessions, self.dirty_sessions = self.dirty_sessions, []
            for session in sessions:
                session.flush()


class _NoSessions(list[ContainerClientSession]):
    """Stands for the sessions with egress while there must be none."""

    def append(self, session: ContainerClientSession) -> None:
        raise _illegal("ClientSession.offer")


class _NoCount(int):
    """Stands for the number of offers on a member that does not lead, while there must be none."""

    def __add__(self, other: int) -> int:
        raise _illegal("ClientSession.offer")


def _refuse_close(session_id: ClusterSessionId) -> None:
    raise _illegal("ClientSession.close")


def _illegal(call: str) -> LocalProtocolError:
    return LocalProtocolError(f"{call} is illegal in on_query, which may only read")


_NO_SESSIONS: Final = _NoSessions()
_NO_COUNT: Final = _NoCount()
