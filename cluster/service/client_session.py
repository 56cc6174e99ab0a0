"""A client session inside the service container: the object that a service gets, and the path of its egress.

Egress is packed per session into one buffer and written once after a batch of deliveries. Only the leader has an
outlet; on followers and in replay what a service offers is counted and discarded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from hashlib import blake2b
from typing import Final, NoReturn, Protocol

from ...service_api import LocalProtocolError
from ...service_api.payloads import plain_bytes
from ...service_api.types import EGRESS_STREAM_ID, ClusterSessionId
from ...service_api.wire.frame import (
    FRAME_HEADER,
    TYPE_DATA,
    UNFRAGMENTED,
    FrameLayout,
    HeaderField,
    encode_message,
)
from ...service_api.wire.request import REQUEST_MESSAGE
from ...service_api.wire.session import SESSION_MESSAGE
from ...service_api.wire.session_frame import (
    PAYLOAD_OFFSET,
    PREFIX_LENGTH,
    REQUEST_PAYLOAD_OFFSET,
    SessionField,
    session_prefix,
)

MTU_LENGTH_BYTES: Final = 65504
_LARGEST_SINGLE_PAYLOAD: Final = MTU_LENGTH_BYTES - PAYLOAD_OFFSET
_LARGEST_SINGLE_REPLY: Final = MTU_LENGTH_BYTES - REQUEST_PAYLOAD_OFFSET
_ALL_INDIRECTLY: Final = -1
"""No message is as short, so each is offered by the method that digests it."""

_EGRESS_FIELDS: Final = HeaderField.FRAME_LENGTH, SessionField.UP_TO_TIMESTAMP, SessionField.TIMESTAMP
_REPLY_FIELDS: Final = SessionField.REQUEST_SEQUENCE, SessionField.ACKNOWLEDGED_SEQUENCE
_EGRESS: Final = FrameLayout(*_EGRESS_FIELDS).head
_REPLY: Final = FrameLayout(*_EGRESS_FIELDS, *_REPLY_FIELDS).head
_REPLY_PARTS: Final = FrameLayout(SessionField.TIMESTAMP, *_REPLY_FIELDS, base=SessionField.TIMESTAMP.offset).head

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
        "_headers",
        "_headers_length",
        "_headers_time",
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
        # The headers of the last message: messages that came together have the same time, and often one length.
        self._headers = b""
        self._headers_length = self._headers_time = -1
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
        self._headers_length = -1
        frame = FRAME_HEADER.pack(0, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, EGRESS_STREAM_ID, 0, 0)
        header = frame[SessionField.UP_TO_TIMESTAMP.offset :]
        self._constant = header + session_prefix(SESSION_MESSAGE, leadership_term_id, self.id)
        self._reply_constant = header + session_prefix(REQUEST_MESSAGE, leadership_term_id, self.id)

    def disconnect(self) -> None:
        """Stop sending: this member does not lead, or the client is gone."""
        self._outlet = None
        self._out = None

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client; counted and discarded where this member does not lead."""
        if self._closing:
            return False
        out = self._out
        # Refused on every member, also where it goes nowhere. No call for the usual kinds: this is the hot path.
        if type(payload) is memoryview:
            length = payload.nbytes
        else:
            if type(payload) is not bytes:
                payload = plain_bytes("payload", payload)
            length = len(payload)
        container = self._container
        if length > container.direct_offer_limit:
            return self._offer_indirectly(payload)
        if out is None:
            if not container.is_open:
                container.refuse("session.offer")
            container.discarded_egress_count += 1
            return True
        if not out:
            container.dirty_sessions.append(self)  # refuses it where offers are not legal
        time = container.time
        if length != self._headers_length or time != self._headers_time:
            self._headers_length, self._headers_time = length, time
            self._headers = _EGRESS.pack(length + PAYLOAD_OFFSET, self._constant, time)
        out += self._headers
        try:
            out += payload
        except TypeError:  # a view with gaps: nothing of it was added
            out += bytes(payload)
        if length & 31:
            out += _PADDING[length & 31]
        return True

    def offer_reply(self, sequence: int, code: int, reply: bytes) -> None:
        """Send the reply to a request, also when the session is closing; otherwise as `offer`."""
        out, container = self._out, self._container
        if container.digest is not None:
            container.absorb(OutputMark.REPLY, self.id, sequence, code, reply)
        if out is None:
            container.discarded_egress_count += 1
            return
        if not out:
            container.dirty_sessions.append(self)
        length = len(reply)
        if length > _LARGEST_SINGLE_REPLY:
            message = self._reply_constant[-PREFIX_LENGTH:] + _REPLY_PARTS.pack(container.time, sequence, code) + reply
            out += encode_message(message, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)
            return
        length += REQUEST_PAYLOAD_OFFSET
        out += _REPLY.pack(length, self._reply_constant, container.time, sequence, code)
        out += reply
        if length & 31:
            out += _PADDING[length & 31]

    def close(self) -> None:
        """Ask for the session to be closed."""
        if not self._container.is_open:
            self._container.refuse("session.close")
        if not self._closing:
            if self._container.digest is not None:
                self._container.absorb(OutputMark.CLOSE, self.id)
            self._container.close_session(self.id)
            self._closing = True

    def refuse_offer(self) -> NoReturn:
        """Raise the error of an offer that is not legal now."""
        self._container.refuse("session.offer")

    def mark_closing(self) -> None:
        """Remember that the service asked for this before the snapshot that the session comes from."""
        self._closing = True

    def flush(self) -> None:
        """Write what was offered in this batch."""
        out, outlet = self._out, self._outlet
        if out and outlet is not None:
            self._out = bytearray()
            outlet.write(out)

    def _offer_indirectly(self, payload: bytes | bytearray | memoryview) -> bool:
        """Offer what is too long for one frame, or is to be digested: slower than `offer`, with the same frames."""
        container, out = self._container, self._out
        if not container.is_open:
            container.refuse("session.offer")
        payload = plain_bytes("payload", payload)
        if container.digest is not None:
            container.absorb(OutputMark.MESSAGE, self.id, payload=payload)
        if len(payload) > max(_LARGEST_SINGLE_PAYLOAD, self._max_payload_length):
            raise LocalProtocolError(f"egress payload too long: length={len(payload)} limit={self._max_payload_length}")
        if out is None:
            container.discarded_egress_count += 1
            return True
        if not out:
            container.dirty_sessions.append(self)
        message = self._constant[-PREFIX_LENGTH:] + container.time.to_bytes(8, "little", signed=True) + payload
        out += encode_message(message, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)
        return True


class OutputMark(IntEnum):
    """What an output is, in a digest of outputs."""

    MESSAGE = 1
    REPLY = 2
    CLOSE = 3
    TIMER = 4
    CANCEL = 5
    OFFER = 6


_OUTPUT: Final = struct.Struct("<Bqqqqq")
"""Of an output in a digest: its mark, cluster time, three numbers, and the length of the payload that follows."""


class EgressContainer:
    """What the sessions of one container share; the service agent holds one.

    It is open while a log-ordered callback may run. Closed, it refuses offers without a look at every one of them: all
    that a session has to send is flushed then, so the next offer is the first one, which has to enter a list, and the
    list is one that takes nothing.
    """

    __slots__ = (
        "close_session",
        "digest",
        "direct_offer_limit",
        "dirty_sessions",
        "discarded_egress_count",
        "is_open",
        "time",
    )

    def __init__(self, close_session: Callable[[ClusterSessionId], None]) -> None:
        self.close_session = close_session
        self.dirty_sessions: list[ContainerClientSession] = _CLOSED
        self.discarded_egress_count = 0
        self.is_open = False
        """Whether a log-ordered callback may run now."""
        self.time = 0
        """Cluster time of the entry being delivered."""
        self.digest: blake2b | None = None
        """Of what services give out, while outputs are digested."""
        self.direct_offer_limit = _LARGEST_SINGLE_PAYLOAD
        """The longest message that `offer` sends by itself; `_ALL_INDIRECTLY` while outputs are digested."""

    def open(self) -> None:
        """Log-ordered callbacks follow: what they may call is legal."""
        self.is_open = True
        self.dirty_sessions = []

    def close(self) -> None:
        """Write the egress of every session that has any, one write a session, and refuse what is offered from now."""
        sessions, self.dirty_sessions = self.dirty_sessions, _CLOSED
        self.is_open = False
        for session in sessions:
            session.flush()

    def begin_digest(self) -> None:
        """Digest what services give out from now on."""
        self.digest = blake2b(digest_size=16)
        self.direct_offer_limit = _ALL_INDIRECTLY

    def end_digest(self) -> bytes | None:
        """Return the digest of what was given out, and digest no more; None where nothing was digested."""
        digest, self.digest = self.digest, None
        self.direct_offer_limit = _LARGEST_SINGLE_PAYLOAD
        return None if digest is None else digest.digest()

    def absorb(
        self,
        mark: OutputMark,
        number: int,
        second: int = 0,
        third: int = 0,
        payload: bytes | bytearray | memoryview = b"",
    ) -> None:
        """Take an output into the digest; only while there is one."""
        assert self.digest is not None
        self.digest.update(_OUTPUT.pack(mark, self.time, number, second, third, len(payload)))
        self.digest.update(payload)

    def abandon(self) -> None:
        """Drop the egress of every session that has any, and refuse what is offered from now."""
        sessions, self.dirty_sessions = self.dirty_sessions, _CLOSED
        self.is_open = False
        for session in sessions:
            session.disconnect()

    def refuse(self, call: str) -> NoReturn:
        """Raise the error of a call that is not legal now.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError(
            f"{call} is only legal in log-ordered callbacks: not in on_start, on_role_change, on_query, "
            "on_take_snapshot or on_terminate, and not outside callbacks"
        )


class _NothingMayBeOffered(list[ContainerClientSession]):
    """Stands for the sessions that have egress while there may be none."""

    def append(self, session: ContainerClientSession) -> NoReturn:
        session.refuse_offer()


_CLOSED: Final = _NothingMayBeOffered()
