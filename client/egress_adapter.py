"""Decodes what one connection receives.

Nearly every frame is an unfragmented application message of our session. The loop recognises one with a
single unpack and hands its payload to the listener as a view of the receive buffer: no object per message but
the view. Replies to requests have a loop like it. Everything else takes the general path, which checks each field and
joins fragments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import EGRESS_STREAM_ID
from trimaran.service_api.wire.frame import FRAME_HEADER, HEADER_LENGTH, TYPE_DATA, TYPE_PADDING, UNFRAGMENTED
from trimaran.service_api.wire.request import (
    REPLY_HEADER,
    REQUEST_BLOCK_LENGTH,
    REQUEST_HEADER_LENGTH,
    REQUEST_MESSAGE,
)
from trimaran.service_api.wire.session import SESSION_MESSAGE
from trimaran.service_api.wire.stream import MessageAssembler

from .egress import EgressListener
from .ingress_publisher import PAYLOAD_OFFSET, REQUEST_PAYLOAD_OFFSET

# frame_length, (version, flags, type), stream_id, SBE header, leadership_term_id, cluster_session_id,
# timestamp
_EGRESS_HEADERS: Final = struct.Struct("<iI8xi12xQqqq")
# The same, then request_sequence and code
_REPLY_HEADERS: Final = struct.Struct("<iI8xi12xQqqqqq")
_TIMESTAMP_OFFSET: Final = PAYLOAD_OFFSET - 8


@lru_cache(maxsize=256)
def _uniform_frames(length: int) -> struct.Struct:
    """Lay out an application message in a frame of this aligned length.

    frame_length and kind in one number, stream_id, SBE header to session id, timestamp.
    """
    return struct.Struct(f"<Q8xi12x{_TIMESTAMP_OFFSET - HEADER_LENGTH}sq{length - PAYLOAD_OFFSET}x")


_WHOLE_DATA_FRAME: Final = int.from_bytes(struct.pack("<BBH", 0, UNFRAGMENTED, TYPE_DATA), "little")
_SESSION_MESSAGE: Final = int.from_bytes(struct.pack("<HHHH", *SESSION_MESSAGE), "little")


_REPLY: Final = int.from_bytes(struct.pack("<HHHH", *REQUEST_MESSAGE), "little")


class ClientSessionState:
    """What the protocol and its connections know together about the session."""

    __slots__ = ("cluster_session_id", "foreign_egress_count", "leadership_term_id", "stale_egress_count")

    def __init__(self) -> None:
        self.cluster_session_id = -1
        self.leadership_term_id = -1
        self.stale_egress_count = 0
        """Messages dropped because they came from the leader of an earlier term."""
        self.foreign_egress_count = 0
        """Messages dropped because they belong to another session, or are of an unknown kind."""


class EgressAdapter:
    """Cuts received bytes into frames; application messages go to the listener, the rest to `on_control`.

    Holds at most one incomplete message of `max_message_length_bytes`; a frame longer than `mtu_length_bytes`
    is the peer's error.
    """

    __slots__ = (
        "_assembler",
        "_listener",
        "_mtu_length_bytes",
        "_on_answer",
        "_on_control",
        "_session",
        "consumed_bytes",
    )

    def __init__(
        self,
        session: ClientSessionState,
        listener: EgressListener,
        *,
        on_control: Callable[[bytes], None],
        on_answer: Callable[[int, int, bytes], None],
        mtu_length_bytes: int,
        max_message_length_bytes: int,
    ) -> None:
        self._session = session
        self._listener = listener
        self._on_control = on_control
        self._on_answer = on_answer
        """Takes the sequence of a request, a code and a reply."""
        self._mtu_length_bytes = mtu_length_bytes
        self._assembler = MessageAssembler(max_message_length_bytes)
        self.consumed_bytes = 0
        """How far the last call to `receive` came, also when it raised."""

    def receive(self, data: memoryview) -> None:
        """Handle the whole frames at the beginning of `data`; see `consumed_bytes` for where the rest begins.

        Raises:
            RemoteProtocolError: a frame that the protocol does not have.
            Exception: whatever the listener raised; its message counts as consumed.
        """
        session, on_message = self._session, self._listener.on_message
        cluster_session_id, leadership_term_id = session.cluster_session_id, session.leadership_term_id
        unpack, max_frame_length = _EGRESS_HEADERS.unpack_from, self._mtu_length_bytes
        # Fragments never come between, so only the general path needs to know whether a message is being
        # joined.
        is_assembling = self._assembler.is_assembling
        offset, end = 0, len(data)
        try:
            while end - offset >= PAYLOAD_OFFSET:
                length, kind, stream, sbe_header, term, session_id, timestamp = unpack(data, offset)
                if (
                    kind != _WHOLE_DATA_FRAME
                    or sbe_header != _SESSION_MESSAGE
                    or session_id != cluster_session_id
                    or term < leadership_term_id
                    or stream != EGRESS_STREAM_ID
                    or not PAYLOAD_OFFSET <= length <= max_frame_length
                    or is_assembling
                ):
                    if sbe_header == _REPLY and not is_assembling:
                        start, offset = offset, self._receive_replies(data, offset)
                        if offset > start:
                            continue
                    length = self._check_frame(data, offset)
                    start, offset = offset, offset + ((length + 31) & -32)
                    if offset > end:
                        offset = start
                        break
                    self._receive_frame(data[start : start + length])
                    cluster_session_id = session.cluster_session_id
                    leadership_term_id = session.leadership_term_id
                    is_assembling = self._assembler.is_assembling
                    continue
                start = offset
                aligned = (length + 31) & -32
                if start + aligned > end:
                    break
                offset += aligned
                on_message(timestamp, term, data[start + PAYLOAD_OFFSET : start + length])
                whole = (end - offset) // aligned * aligned
                if not whole:
                    continue
                # What follows is uniform as a rule: frames that say the same of everything but time and payload.
                head, body = length | kind << 32, data[start + HEADER_LENGTH : start + _TIMESTAMP_OFFSET].tobytes()
                for run_head, run_stream, message, timestamp in _uniform_frames(aligned).iter_unpack(
                    data[offset : offset + whole]
                ):
                    if run_head != head or message != body or run_stream != EGRESS_STREAM_ID:
                        break
                    start, offset = offset, offset + aligned
                    on_message(timestamp, term, data[start + PAYLOAD_OFFSET : start + length])
        finally:
            self.consumed_bytes = offset

    def _receive_replies(self, data: memoryview, offset: int) -> int:
        """Handle the whole, unfragmented replies that `data` goes on with; give where they end."""
        session, on_answer = self._session, self._on_answer
        cluster_session_id, leadership_term_id = session.cluster_session_id, session.leadership_term_id
        unpack, max_frame_length, end = _REPLY_HEADERS.unpack_from, self._mtu_length_bytes, len(data)
        while end - offset >= REQUEST_PAYLOAD_OFFSET:
            length, kind, stream, sbe_header, term, session_id, _, sequence, code = unpack(data, offset)
            next_offset = offset + ((length + 31) & -32)
            if (
                kind != _WHOLE_DATA_FRAME
                or sbe_header != _REPLY
                or session_id != cluster_session_id
                or term < leadership_term_id
                or stream != EGRESS_STREAM_ID
                or not REQUEST_PAYLOAD_OFFSET <= length <= max_frame_length
                or next_offset > end
            ):
                break
            on_answer(sequence, code, bytes(data[offset + REQUEST_PAYLOAD_OFFSET : offset + length]))
            offset = next_offset
        return offset

    def _check_frame(self, data: memoryview, offset: int) -> int:
        """Check the header of any frame and give its frame_length."""
        header = FRAME_HEADER.unpack_from(data, offset)
        frame_length, version, frame_type, stream_id = header[0], header[1], header[3], header[6]
        if not HEADER_LENGTH <= frame_length <= self._mtu_length_bytes:
            raise RemoteProtocolError(
                f"egress frame_length={frame_length} expected={HEADER_LENGTH}..{self._mtu_length_bytes}"
            )
        if version != 0 or frame_type not in (TYPE_DATA, TYPE_PADDING):
            raise RemoteProtocolError(
                f"egress frame version={version} type={frame_type} expected version=0 type={TYPE_DATA}"
            )
        if stream_id != EGRESS_STREAM_ID:
            raise RemoteProtocolError(f"egress frame stream_id={stream_id} expected={EGRESS_STREAM_ID}")
        return int(frame_length)

    def _receive_frame(self, frame: memoryview) -> None:
        """Handle a frame that was checked; a fragment completes a message, or waits for the next."""
        frame_type = frame[6] | frame[7] << 8
        message = self._assembler.append_fragment(frame_type, frame[5], bytes(frame[HEADER_LENGTH:]))
        if message is not None:
            self._receive_message(message)

    def _receive_message(self, message: bytes) -> None:
        """Tell application messages, also those in the words of another schema version, from the others."""
        is_session_message = len(message) >= 8 and message[2:6] == _TEMPLATE_AND_SCHEMA
        if not is_session_message:
            self._on_control(message)
            return
        block_length = int.from_bytes(message[:2], "little")
        if block_length < 24 or len(message) < 8 + block_length:
            raise RemoteProtocolError(f"egress message cut short: block_length={block_length} length={len(message)}")
        term, session_id, timestamp = _SESSION_FIELDS.unpack_from(message, 8)
        session = self._session
        if session_id != session.cluster_session_id:
            session.foreign_egress_count += 1
        elif term < session.leadership_term_id:
            session.stale_egress_count += 1
        elif block_length == REQUEST_BLOCK_LENGTH:
            sequence, code = REPLY_HEADER.unpack_from(message)[-2:]
            self._on_answer(sequence, code, message[REQUEST_HEADER_LENGTH:])
        else:
            self._listener.on_message(timestamp, term, memoryview(message)[8 + block_length :])


_TEMPLATE_AND_SCHEMA: Final = struct.pack("<HH", *SESSION_MESSAGE[1:3])
_SESSION_FIELDS: Final = struct.Struct("<qqq")
