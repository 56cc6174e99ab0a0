"""Reading a recording from its files: frames, complete messages, and the reason why the reading ended.

This works on any archive directory, whether an archive is running on it or not, and changes nothing. A
`FrameReader` is a plain iterator over blocks read with `pread`, so that a file cut short is a reason to stop
and never a fault of the process, as it would be with mmap. `read_messages` joins fragments.
`AsyncFrameReader` reads in a thread, batch by batch. Bounds: one block (1 MiB, or one frame if that is
longer) and one message (16 MiB).
Source: samples set A README §1-§3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
)

from .descriptor import RecordingDescriptor
from .errors import ArchiveError, ArchiveErrorCode
from .file_system import FileSystem, OsFileSystem, read_fully
from .frame_check import FrameRules, HeaderFields

BLOCK_LENGTH_BYTES: Final = 1 << 20
ASYNC_BATCH_FRAMES: Final = 1024


class StopReason(StrEnum):
    """Why a reader stopped."""

    STOP_POSITION = "stop position reached"
    BLANK = "frame length 0"
    NO_SEGMENT = "no segment file"
    FILE_CUT = "file cut short"
    BAD_FRAME = "bad frame"


class Frame(NamedTuple):
    """One recorded frame: where it lies, its header fields in wire order, and its payload (empty for
    padding).
    """

    position: int
    frame_length: int
    version: int
    flags: int
    type: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int
    payload: bytes

    @property
    def end_position(self) -> int:
        """The position just after the frame."""
        return self.position + ((self.frame_length + 31) & -32)


class RecordedMessage(NamedTuple):
    """One complete message: the position of its first frame, the end of its last, and the joined payloads.

    `session_id` is that of the first frame; with checksums it is the checksum of that frame.
    """

    position: int
    end_position: int
    frame_count: int
    session_id: int
    payload: bytes


class FrameReader:
    """Iterates over the frames of [start_position, stop_position) of a recording; once.

    Each frame is checked against the rules of the recording; the first that does not fit ends the iteration.
    After it, `stop_reason` says why, `detail` what exactly, and `position` where. Without a stop position the
    reader goes to the recording's own, or to where nothing was written.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        *,
        start_position: int | None = None,
        stop_position: int | None = None,
        checksummed: bool | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        self.position = descriptor.start_position if start_position is None else start_position
        self.stop_reason: StopReason | None = None
        self.detail = ""
        self._descriptor = descriptor
        self._directory = directory
        self._rules = FrameRules.of(descriptor, checksummed=checksummed)
        self._stop_position = descriptor.stop_position if stop_position is None else stop_position
        self._file_system = OsFileSystem() if file_system is None else file_system
        if self.position < descriptor.start_position or self.position % 32:
            raise ArchiveError(
                f"cannot read: start_position={descriptor.start_position}",
                code=ArchiveErrorCode.INVALID_POSITION,
                recording_id=descriptor.recording_id,
                position=self.position,
            )

    def __repr__(self) -> str:
        reason = "reading" if self.stop_reason is None else f"{self.stop_reason.value}: {self.detail}"
        return f"<FrameReader recording={self._descriptor.recording_id} position={self.position} {reason}>"

    def __iter__(self) -> Iterator[Frame]:
        while self.stop_reason is None:
            if self._stop_position is not None and self.position >= self._stop_position:
                self._stop(StopReason.STOP_POSITION, f"stop_position={self._stop_position}")
                return
            base_position = self._descriptor.segment_base_position(self.position)
            name = self._descriptor.segment_file_name(base_position)
            try:
                handle = self._file_system.open_file(self._directory / name, writable=False)
            except FileNotFoundError:
                self._stop(StopReason.NO_SEGMENT, f"expected={name}")
                return
            try:
                yield from self._segment_frames(handle, base_position)
            finally:
                self._file_system.close_file(handle)

    def _segment_frames(self, handle: int, base_position: int) -> Iterator[Frame]:
        """Yield the frames of one segment file from `position` on, until one ends the reading or the file is
        full.
        """
        full = self._descriptor.segment_file_length
        length = min(self._file_system.file_length(handle), full)
        end = base_position + length
        rules, limit = self._rules, self._stop_position
        block, block_position = b"", self.position
        while self.position < end and (limit is None or self.position < limit):
            position = self.position
            offset = position - block_position
            if offset + HEADER_LENGTH > len(block):
                block, block_position, offset = self._read(handle, base_position, end), position, 0
            if len(block) - offset < HEADER_LENGTH:
                self._stop(StopReason.FILE_CUT, f"file ends inside a frame header: available={len(block) - offset}")
                return
            fields: HeaderFields = FRAME_HEADER.unpack_from(block, offset)
            frame_length, frame_type = fields[0], fields[3]
            if frame_length == 0:
                self._stop(StopReason.BLANK, "nothing was written from here on")
                return
            fault = rules.find_header_fault(fields, position)
            if fault is not None:
                self._stop(StopReason.BAD_FRAME, fault)
                return
            aligned = (frame_length + 31) & -32
            if limit is not None and position + aligned > limit:
                self._stop(StopReason.BAD_FRAME, f"frame runs past the end: frame_length={frame_length} end={limit}")
                return
            if position + aligned > end:
                self._stop(StopReason.FILE_CUT, f"file ends inside a frame: frame_length={frame_length}")
                return
            if frame_type == TYPE_PADDING:
                payload = b""
            else:
                if offset + aligned > len(block):
                    block, block_position, offset = (
                        self._read(handle, base_position, end, aligned),
                        position,
                        0,
                    )
                fault = rules.find_checksum_fault(fields, block, offset)
                if fault is not None:
                    self._stop(StopReason.BAD_FRAME, fault)
                    return
                payload = block[offset + HEADER_LENGTH : offset + frame_length]
            self.position = position + aligned
            yield Frame(position, *fields, payload)
        if length < full and (limit is None or self.position < limit):
            self._stop(StopReason.FILE_CUT, f"file_length={length} expected={full}")

    def _read(self, handle: int, base_position: int, end: int, at_least: int = 0) -> bytes:
        """Read the block that begins at `position`, never past the end of the file."""
        wanted = min(max(BLOCK_LENGTH_BYTES, at_least), end - self.position)
        return read_fully(self._file_system, handle, wanted, self.position - base_position)

    def _stop(self, reason: StopReason, detail: str) -> None:
        self.stop_reason = reason
        self.detail = detail


class MessageReader:
    """Iterates over the complete messages among frames; once.

    `incomplete_message_count` counts beginnings without an end and the reverse: a reader that starts inside a
    message, or a recording that ends inside one, has one.
    """

    def __init__(self, frames: Iterator[Frame] | FrameReader) -> None:
        self.incomplete_message_count = 0
        self._frames = iter(frames)

    def __iter__(self) -> Iterator[RecordedMessage]:
        parts: list[Frame] = []
        length = 0
        for frame in self._frames:
            if frame.type != TYPE_DATA:
                continue
            if frame.flags == UNFRAGMENTED:
                self._drop(parts)
                yield RecordedMessage(frame.position, frame.end_position, 1, frame.session_id, frame.payload)
                continue
            if frame.flags & FLAG_BEGIN:
                self._drop(parts)
                length = 0
            elif not parts:
                self.incomplete_message_count += frame.flags & FLAG_END != 0
                continue
            parts.append(frame)
            length += len(frame.payload)
            if length > MAX_MESSAGE_LENGTH:
                self._drop(parts)
            elif frame.flags & FLAG_END:
                payload = b"".join(part.payload for part in parts)
                first = parts[0]
                yield RecordedMessage(first.position, frame.end_position, len(parts), first.session_id, payload)
                parts.clear()
        self._drop(parts)

    def _drop(self, parts: list[Frame]) -> None:
        if parts:
            self.incomplete_message_count += 1
            parts.clear()


class AsyncFrameReader:
    """Iterates over frames as `FrameReader` does, reading in a thread so that the event loop never waits for
    a disk.
    """

    def __init__(self, reader: FrameReader) -> None:
        self.reader: Final = reader

    async def __aiter__(self) -> AsyncIterator[Frame]:
        frames = iter(self.reader)
        loop = asyncio.get_running_loop()
        while batch := await loop.run_in_executor(None, _take_batch, frames):
            for frame in batch:
                yield frame


def _take_batch(frames: Iterator[Frame]) -> list[Frame]:
    return list(islice(frames, ASYNC_BATCH_FRAMES))
