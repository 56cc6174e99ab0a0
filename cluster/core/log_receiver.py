"""A follower's gate to the log: bytes of the live log or of a catch-up replay in, whole verified frames out.

Frames say where they belong, so two streams of the same log merge by one rule: what begins where this log ends is
taken, what lies below is a duplicate and dropped, what lies above is a gap and an error. Every frame is checked
before it is taken: its place, its length, its checksum; what this member acknowledges is what the leader wrote.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from service_api import RemoteProtocolError
from service_api.types import LOG_STREAM_ID
from service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, TYPE_PADDING, align, position_of, term_of

from .log_buffer import LogBuffer

_FRAME: Final = struct.Struct("<ixxHiiii")
"""frame_length, type, term_offset, session_id (checksum), stream_id, term_id."""


class LogReceiver:
    """Appends received frames to a `LogBuffer`. Only a follower holds one."""

    __slots__ = ("_checksums", "_initial_term_id", "_log_buffer", "_term_length_bytes")

    def __init__(self, log_buffer: LogBuffer, *, initial_term_id: int, term_length_bytes: int, checksums: bool) -> None:
        self._log_buffer = log_buffer
        self._initial_term_id = initial_term_id
        self._term_length_bytes = term_length_bytes
        self._checksums = checksums

    def accept(self, buffer: bytearray, start: int, end: int) -> int:
        """Take the whole frames at the start of `buffer[start:end]`; gives the offset of the first incomplete one.

        Raises: RemoteProtocolError: a gap, or a frame that cannot be part of this log (the leader's or the network's
        fault).
        """
        log_buffer, term_length = self._log_buffer, self._term_length_bytes
        term_id, term_offset = self._place()
        unpack, checksums = _FRAME.unpack_from, self._checksums
        offset = run_start = start
        view = memoryview(buffer)
        while end - offset >= HEADER_LENGTH:
            frame_length, frame_type, frame_term_offset, session_id, stream_id, frame_term_id = unpack(buffer, offset)
            length = (frame_length + 31) & -32
            if frame_length < HEADER_LENGTH or length > term_length - frame_term_offset:
                raise RemoteProtocolError(
                    f"log frame_length={frame_length} term_offset={frame_term_offset} "
                    f"position={log_buffer.append_position}"
                )
            if offset + length > end:
                break
            if frame_term_offset != term_offset or frame_term_id != term_id:
                self._append(view, run_start, offset)
                self._check_duplicate(frame_term_id, frame_term_offset)
                offset += length
                run_start = offset
                continue
            if frame_type == TYPE_DATA and checksums:
                crc = crc32(view[offset + 32 : offset + length])
                if crc - ((crc & 0x80000000) << 1) != session_id:
                    position = log_buffer.append_position + offset - run_start
                    raise RemoteProtocolError(
                        f"log frame checksum: position={position} expected={session_id} actual={crc}"
                    )
            elif frame_type not in (TYPE_DATA, TYPE_PADDING):
                raise RemoteProtocolError(f"log frame type={frame_type} expected={TYPE_DATA} or {TYPE_PADDING}")
            if stream_id != LOG_STREAM_ID:
                raise RemoteProtocolError(f"log frame stream_id={stream_id} expected={LOG_STREAM_ID}")
            offset += length
            term_offset += length
            if term_offset == term_length:
                self._append(view, run_start, offset)
                run_start = offset
                term_id, term_offset = self._place()
        self._append(view, run_start, offset)
        view.release()
        return offset

    def needed_bytes(self, buffer: bytearray, start: int, end: int) -> int:
        """Tell how long the incomplete frame at `start` is, or one header if not even that is there."""
        if end - start < HEADER_LENGTH:
            return HEADER_LENGTH
        frame_length: int = _FRAME.unpack_from(buffer, start)[0]
        return align(frame_length)

    def _place(self) -> tuple[int, int]:
        return term_of(
            self._log_buffer.append_position,
            initial_term_id=self._initial_term_id,
            term_length_bytes=self._term_length_bytes,
        )

    def _check_duplicate(self, term_id: int, term_offset: int) -> None:
        position = position_of(
            term_id,
            term_offset,
            initial_term_id=self._initial_term_id,
            term_length_bytes=self._term_length_bytes,
        )
        if position >= self._log_buffer.append_position:
            raise RemoteProtocolError(
                f"gap in the log: position={position} expected={self._log_buffer.append_position}"
            )

    def _append(self, view: memoryview, start: int, end: int) -> None:
        if end > start:
            self._log_buffer.append(bytes(view[start:end]))
