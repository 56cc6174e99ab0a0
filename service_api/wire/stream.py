"""Bytes in, whole frames out: the reading half of every control-plane connection, without a socket.

`FrameParser` cuts a byte stream into frames, `MessageAssembler` joins the fragments of a message. Both are
bounded: a peer that announces more than the limit is refused before anything of that size is stored. The
data plane does not come through here; it works on whole received chunks in place.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import LocalProtocolError, RemoteProtocolError
from .frame import (
    CONTROL_TYPES,
    FLAG_BEGIN,
    FLAG_END,
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    RECORDED_TYPES,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
    ReadableBuffer,
    align,
)


class StreamFrame(NamedTuple):
    """One received frame: its header fields in wire order, and its bytes.

    For a status frame the fields from `term_offset` on mean other things; decode `raw` with `StatusFrame`.
    """

    frame_length: int
    version: int
    flags: int
    type: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int
    raw: bytes
    """The `frame_length` bytes of the frame, header included, without the alignment padding."""

    @property
    def payload(self) -> bytes:
        """The bytes after the header."""
        return self.raw[HEADER_LENGTH:]


_new_frame: Final = tuple.__new__


class FrameParser:
    """Cuts a byte stream into frames.

    Holds at most one incomplete frame of `max_frame_length` bytes and what arrived with it. The first error
    is final: the stream has lost its framing, so frames that came in the same chunk are dropped and later
    calls raise again.
    """

    __slots__ = ("_buffer", "_error", "_max_frame_length", "_types")

    def __init__(
        self,
        max_frame_length: int = 65536,
        *,
        types: frozenset[int] = RECORDED_TYPES | CONTROL_TYPES,
        buffer: bytearray | None = None,
    ) -> None:
        self._max_frame_length = max_frame_length
        self._types = types
        self._buffer = bytearray() if buffer is None else buffer
        """What has arrived and is in no frame yet. A caller that passes one also fills it and uses `take`."""
        self._error: RemoteProtocolError | None = None

    def __repr__(self) -> str:
        return f"<FrameParser buffered={len(self._buffer)} max_frame_length={self._max_frame_length}>"

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an incomplete frame are held."""
        return len(self._buffer)

    def feed(self, data: ReadableBuffer) -> list[StreamFrame]:
        """Take in `data` and return every frame that is now whole, in order.

        Raises:
            RemoteProtocolError: a length, version or type that no frame can have; the peer's fault.
        """
        buffer = self._buffer
        source = data  # most often it is whole frames, and needs no copying in and out
        if buffer:
            buffer += data
            source = buffer
        if self._error is not None:
            raise self._error
        position = 0
        frames: list[StreamFrame] = []
        last = len(source) - HEADER_LENGTH
        while position <= last and (frame := self._frame_at(source, position)) is not None:
            frames.append(frame)
            position += (frame.frame_length + 31) & -32
        if source is buffer:
            del buffer[:position]
        elif position != len(source):
            buffer += data[position:]
        return frames

    def take(self) -> StreamFrame | None:
        """Take the first frame from the buffer; None while it is incomplete. Otherwise as `feed`.

        Raises:
            RemoteProtocolError: a length, version or type that no frame can have; the peer's fault.
        """
        frame = self._frame_at(self._buffer, 0)
        if frame is not None:
            del self._buffer[: align(frame.frame_length)]
        return frame

    def _frame_at(self, source: ReadableBuffer, position: int) -> StreamFrame | None:
        if self._error is not None:
            raise self._error
        if len(source) - position < HEADER_LENGTH:
            return None
        header = FRAME_HEADER.unpack_from(source, position)
        frame_length, version, _, frame_type, *_ = header
        if not HEADER_LENGTH <= frame_length <= self._max_frame_length:
            self._fail(f"frame_length={frame_length} expected=32..{self._max_frame_length}")
        if version != 0:
            self._fail(f"frame version={version} expected=0")
        if frame_type not in self._types:
            self._fail(f"frame type={frame_type} expected one of {sorted(self._types)}")
        if position + ((frame_length + 31) & -32) > len(source):
            return None
        return _new_frame(StreamFrame, (*header, bytes(source[position : position + frame_length])))

    def _fail(self, reason: str) -> None:
        self._buffer.clear()
        self._error = RemoteProtocolError(reason)
        raise self._error


class MessageAssembler:
    """Joins the data frames of one stream into complete messages.

    Holds at most one incomplete message of `max_message_length` bytes; a longer one is the peer's error.
    """

    __slots__ = ("_length", "_max_message_length", "_parts")

    def __init__(self, max_message_length: int = MAX_MESSAGE_LENGTH) -> None:
        if max_message_length > MAX_MESSAGE_LENGTH:
            raise LocalProtocolError(f"max_message_length={max_message_length} limit={MAX_MESSAGE_LENGTH}")
        self._max_message_length = max_message_length
        self._parts: list[bytes] = []
        self._length = 0

    def __repr__(self) -> str:
        return f"<MessageAssembler fragments={len(self._parts)} length={self._length}>"

    @property
    def is_assembling(self) -> bool:
        """Whether the beginning of a message is held and its end has not come."""
        return bool(self._parts)

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete message are held."""
        return self._length

    def clear(self) -> None:
        """Drop an incomplete message: its end will not come."""
        self._parts.clear()
        self._length = 0

    def append(self, frame: StreamFrame) -> bytes | None:
        """Take one frame; give the message that it completes, if any. Padding frames give none.

        Raises:
            RemoteProtocolError: fragments out of order, another kind of frame, or too long a message.
        """
        return self.append_fragment(frame.type, frame.flags, frame.payload)

    def append_fragment(self, frame_type: int, flags: int, payload: bytes) -> bytes | None:
        """Take one frame as its parts; otherwise as `append`.

        Raises:
            RemoteProtocolError: fragments out of order, or a message that is too long.
        """
        if frame_type == TYPE_PADDING and not self._parts:
            return None
        if frame_type != TYPE_DATA:
            raise RemoteProtocolError(f"frame type={frame_type} inside a message, expected={TYPE_DATA}")
        if self._length + len(payload) > self._max_message_length:
            length = self._length + len(payload)
            raise RemoteProtocolError(f"message too long: length={length} limit={self._max_message_length}")
        begins = bool(flags & FLAG_BEGIN)
        if begins == bool(self._parts):
            raise RemoteProtocolError(f"fragment out of order: flags={flags:#04x} fragments_before={len(self._parts)}")
        if flags & UNFRAGMENTED == UNFRAGMENTED:
            return payload
        self._parts.append(payload)
        self._length += len(payload)
        if not flags & FLAG_END:
            return None
        message = b"".join(self._parts)
        self.clear()
        return message
