"""A follower's gate to the log: bytes of the live log or of a catch-up replay in, whole verified frames out.

Frames say where they belong, so two streams of the same log merge by one rule: what begins where this log ends is
taken, what lies below is a duplicate and dropped, what lies above is a gap and an error. Every frame is checked
before it is taken: its place, its length, its checksum; what this member acknowledges is what the leader wrote.

Between the frames the leader says how far the log is committed, in frames that are of the link and not of the log.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.checksum import crc32
from trimaran.service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_COMMIT,
    TYPE_DATA,
    TYPE_PADDING,
    align,
    position_of,
    term_of,
)
from trimaran.service_api.wire.frame_run import LONGEST_RUN_BYTES, count_valid_frames

from .log_buffer import LogBuffer

_FRAME: Final = struct.Struct("<iIiIii")
"""frame_length; version, flags and type in one number; term_offset, session_id (checksum), stream_id, term_id."""

_COMMIT: Final = struct.Struct("<iH18xq")
"""frame_length; version and flags in one number; reserved_value, which is the position in a commit frame."""

_UNIFORM_FRAMES: Final = 16
"""After so many frames of one length, those that follow are looked at as a run."""


@lru_cache(maxsize=256)
def _data_frames(length: int) -> struct.Struct:
    """Lay out a data frame of this aligned length: the fields of `_FRAME`, then the payload with its padding."""
    return struct.Struct(f"<iIiIii8x{length - HEADER_LENGTH}s")


class LogReceiver:
    """Appends received frames to a `LogBuffer`. Only a follower holds one."""

    __slots__ = ("_checksums", "_committed", "_initial_term_id", "_log_buffer", "_term_length_bytes")

    def __init__(self, log_buffer: LogBuffer, *, initial_term_id: int, term_length_bytes: int, checksums: bool) -> None:
        self._log_buffer = log_buffer
        self._initial_term_id = initial_term_id
        self._term_length_bytes = term_length_bytes
        self._checksums = checksums
        self._committed: tuple[int, int] | None = None

    def accept(self, buffer: bytearray, start: int, end: int) -> int:
        """Take the whole frames at the start of `buffer[start:end]`; gives the offset of the first incomplete one.

        Raises: RemoteProtocolError: a gap, or a frame that cannot be part of this log (the leader's or the network's
        fault).
        """
        offset = run_start = start
        term_length = self._term_length_bytes
        term_id, term_offset = self._place()
        view = memoryview(buffer)
        uniform_length = 0
        while end - offset >= HEADER_LENGTH:
            frame_length, kind, frame_term_offset, _, stream_id, frame_term_id = _FRAME.unpack_from(buffer, offset)
            length = (frame_length + 31) & -32
            if frame_length < HEADER_LENGTH or length > term_length - frame_term_offset or stream_id != LOG_STREAM_ID:
                raise RemoteProtocolError(
                    f"log frame_length={frame_length} term_offset={frame_term_offset} stream_id={stream_id} "
                    f"expected a frame of stream_id={LOG_STREAM_ID} at position={self._log_buffer.append_position}"
                )
            if offset + length > end:
                break
            if kind >> 16 == TYPE_COMMIT:
                self._append(view, run_start, offset)
                self._on_commit_frame(buffer, offset, frame_term_id)
                offset = run_start = offset + HEADER_LENGTH
                continue
            if frame_term_offset != term_offset or frame_term_id != term_id:
                self._append(view, run_start, offset)
                self._check_duplicate(frame_term_id, frame_term_offset)
                offset += length
                run_start = offset
                continue
            if kind >> 16 == TYPE_DATA and self._checksums:
                frame_limit = min(end - offset, term_length - term_offset) // length
                taken = 0
                if length == uniform_length:
                    run_limit = min(frame_limit, LONGEST_RUN_BYTES // length)
                    taken = length * count_valid_frames(
                        view, offset, run_limit, length=length, term_offset=term_offset, checksummed=True
                    )
                if not taken:
                    taken = self._verify(view, offset, length, min(frame_limit, _UNIFORM_FRAMES), term_id, term_offset)
                    uniform_length = length if taken == _UNIFORM_FRAMES * length else 0
            elif kind >> 16 == TYPE_DATA or (kind >> 16 == TYPE_PADDING and term_offset + length == term_length):
                taken = length
            else:
                # The checksum covers neither the type nor padding, so padding has to be where padding belongs.
                raise RemoteProtocolError(
                    f"log frame type={kind >> 16} frame_length={frame_length} term_offset={term_offset} "
                    f"expected={TYPE_DATA}, or {TYPE_PADDING} to the end of the term"
                )
            offset += taken
            term_offset += taken
            if term_offset == term_length:
                self._append(view, run_start, offset)
                run_start = offset
                term_id, term_offset = self._place()
        self._append(view, run_start, offset)
        view.release()
        return offset

    def take_committed(self) -> tuple[int, int] | None:
        """Take what the newest commit frame since the last call said: a leadership term id, and a position."""
        committed, self._committed = self._committed, None
        return committed

    def _on_commit_frame(self, buffer: bytearray, offset: int, leadership_term_id: int) -> None:
        frame_length, kind, position = _COMMIT.unpack_from(buffer, offset)
        if frame_length != HEADER_LENGTH or kind:
            raise RemoteProtocolError(
                f"commit frame_length={frame_length} version and flags={kind:#06x} expected={HEADER_LENGTH} and 0"
            )
        self._committed = leadership_term_id, position

    def _verify(
        self, view: memoryview, offset: int, length: int, frame_limit: int, term_id: int, term_offset: int
    ) -> int:
        """Check the data frames of one aligned length that begin at `offset`, up to a limit. Gives the bytes checked.

        Stops before a frame that is of another length or kind, or elsewhere in the log: that is for the caller to
        judge.

        Raises:
            RemoteProtocolError: a checksum is wrong.
        """
        checksum, begin = crc32, term_offset
        for frame_length, kind, at, session_id, stream_id, frame_term_id, body in _data_frames(length).iter_unpack(
            view[offset : offset + frame_limit * length]
        ):
            if (
                (frame_length + 31) & -32 != length
                or kind >> 16 != TYPE_DATA
                or at != term_offset
                or frame_term_id != term_id
                or stream_id != LOG_STREAM_ID
            ):
                break
            if checksum(body) != session_id:
                position = self._log_buffer.append_position
                raise RemoteProtocolError(
                    f"log frame checksum: term_id={term_id} term_offset={at} after position={position} "
                    f"expected={session_id:#010x} actual={checksum(body):#010x}"
                )
            term_offset += length
        return term_offset - begin

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
