"""Reading a recording from its files: frames, complete messages, and the reason why the reading ended.

This works on any archive directory, whether an archive is running on it or not, and changes nothing. A
`FrameReader` is a plain iterator over blocks read with `pread`, so that an incomplete file is a reason to stop
and never a fault of the process, as it would be with mmap. `read_messages` joins fragments.
`AsyncFrameReader` reads in a thread, batch by batch. Bounds: one block (1 MiB, or one frame if that is
longer) and one message (16 MiB).
Source: samples set A README §1-§3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from ...service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
    align,
    unpack_header,
)
from ...service_api.wire.log.log_rules import FIRST_ENTRY_LENGTH, Before, what_follows
from ..cold.file_system import readable_disk
from ..disk.file_system import ReadableFileSystem, opened, read_fully
from ..errors import ArchiveError, ArchiveErrorCode
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.frame_rules import PAGE_LENGTH, find_before, find_blank_page, frame_rules_of, may_end_torn
from .log_end import FollowingBytes, LogEnd

BLOCK_LENGTH_BYTES: Final = 1 << 20
_FIRST_BLOCK_LENGTH_BYTES: Final = 1 << 16
"""Many readers want one frame: blocks begin short, and double."""

ASYNC_BATCH_FRAMES: Final = 1024

NO_BEGINNING: Final = "fragments without a beginning"
NO_END: Final = "a message without an end"
TOO_LONG: Final = "a message longer than any may be"


class StopReason(StrEnum):
    """Why a reader stopped."""

    STOP_POSITION = "stop position reached"
    BLANK = "frame length 0"
    NO_SEGMENT = "no segment file"
    FILE_CUT = "incomplete file"
    BAD_FRAME = "bad frame"
    UNKNOWN_FRAME = "unknown frame"
    """In its place, and of a type that an application has chosen. Nobody here can tell what it means, nor that it is
    wrong: Aeron's tool accepts it, though its archive does not replay it. Source: Aeron `BufferClaim.headerType`."""
    UNDECIDABLE = "last frame may be incomplete"
    """A part of it that a disk writes at once is all zeros, and no checksum says whether it was written so."""


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
        return self.position + align(self.frame_length)


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

    Each frame is checked against the rules of the recording; the first that does not fit ends the iteration. So does
    the last frame of a recording that was not stopped and has no checksums, if it may be torn: a start refuses it, too.
    After it, `stop_reason` says why, `detail` what exactly, and `position` where. Without a stop position the
    reader goes to the recording's own, or to where nothing was written. `before` is what lies before the first frame of
    a log; without it the reader looks.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        *,
        start_position: int | None = None,
        stop_position: int | None = None,
        checksummed: bool | None = None,
        file_system: ReadableFileSystem | None = None,
        before: Before | None = None,
    ) -> None:
        self.position = descriptor.start_position if start_position is None else start_position
        self.stop_reason: StopReason | None = None
        self.detail = ""
        self.before = before
        """The kind of bytes before the next frame of a log; None: not looked for."""
        self._is_inside_frame = False
        self._block_length_bytes = _FIRST_BLOCK_LENGTH_BYTES
        self._descriptor = descriptor
        self._directory = directory
        self._rules = frame_rules_of(descriptor, checksummed=checksummed)
        self._may_end_torn = not self._rules.checksummed and may_end_torn(descriptor)
        self._stop_position = descriptor.stop_position if stop_position is None else stop_position
        self._file_system = readable_disk(directory) if file_system is None else file_system
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

    def ending(self) -> LogEnd:
        """Return how the recording ends where the reading ended; `open` while the reading has not ended.

        `stopped` also where the reading came to the stop position that it was given. What a running archive writes
        meanwhile is no damage: what seems wrong is read a second time.
        """
        reason = self.stop_reason
        if reason is StopReason.STOP_POSITION or self._descriptor.state is RecordingState.DELETED:
            return LogEnd(self.position, "stopped")
        if reason is None:
            return LogEnd(self.position, "open")
        if reason is StopReason.UNDECIDABLE:
            fault = f"{reason.value}: {self.detail}"
            return LogEnd(self.position, "open") if self.has_grown() else LogEnd(self.position, "damaged", fault)
        is_blank = (
            reason in (StopReason.BLANK, StopReason.NO_SEGMENT, StopReason.FILE_CUT) and not self._is_inside_frame
        )
        following = FollowingBytes(
            self._file_system, self._directory, self._descriptor, self.position, checksummed=self._rules.checksummed
        )
        end = following.judge(f"{reason.value}: {self.detail}", is_blank=is_blank)
        return LogEnd(self.position, "open") if end.fault is not None and self.has_grown() else end

    def has_grown(self) -> bool:
        """Whether a valid frame lies by now where the reading ended a moment ago."""
        again = FrameReader(
            self._directory,
            self._descriptor,
            start_position=self.position,
            stop_position=self._stop_position,
            checksummed=self._rules.checksummed,
            file_system=self._file_system,
            before=self.before,
        )
        return next(iter(again), None) is not None

    def _segment_frames(self, handle: int, base_position: int) -> Iterator[Frame]:
        """Yield the frames of one segment file from `position` on, until one ends the reading or the file is
        full.
        """
        full = self._descriptor.segment_file_length
        length = min(self._file_system.file_length(handle), full)
        end = base_position + length
        rules, limit, is_log = self._rules, self._stop_position, self._rules.is_cluster_written
        following: Before | None = None
        block, block_position = b"", self.position
        while self.position < end and (limit is None or self.position < limit):
            position = self.position
            offset = position - block_position
            if offset + HEADER_LENGTH > len(block):
                block, block_position, offset = self._read(handle, base_position, end), position, 0
            if len(block) - offset < HEADER_LENGTH:
                available = len(block) - offset
                detail = f"file ends inside a frame header: available={available}"
                self._stop(StopReason.FILE_CUT, detail, is_inside_frame=True)
                return
            header = unpack_header(block, offset)
            frame_length, frame_type = header.frame_length, header.type
            if frame_length == 0:
                self._stop(StopReason.BLANK, "nothing was written from here on")
                return
            fault = rules.find_header_fault(header, position)
            if fault is None and is_log:
                if offset + FIRST_ENTRY_LENGTH > len(block):
                    block, block_position, offset = self._read(handle, base_position, end), position, 0
                before = self.find_before()
                fault = rules.find_order_fault(header, before, block, offset, position)
                following = what_follows(header, before)
            if fault is not None:
                is_unknown = rules.is_unknown(header, position)
                self._stop(StopReason.UNKNOWN_FRAME if is_unknown else StopReason.BAD_FRAME, fault)
                return
            aligned = header.aligned_length
            if limit is not None and position + aligned > limit:
                self._stop(StopReason.BAD_FRAME, f"frame runs past the end: frame_length={frame_length} end={limit}")
                return
            if position + aligned > end:
                detail = f"file ends inside a frame: frame_length={frame_length}"
                self._stop(StopReason.FILE_CUT, detail, is_inside_frame=True)
                return
            if rules.needs_body(header):
                if offset + aligned > len(block):
                    block, block_position, offset = self._read(handle, base_position, end, aligned), position, 0
                    if len(block) < aligned:
                        self._stop(StopReason.FILE_CUT, "file became shorter while it was read", is_inside_frame=True)
                        return
                fault = rules.find_body_fault(header, block, offset)
                if fault is not None:
                    self._stop(StopReason.BAD_FRAME, fault)
                    return
            if frame_type == TYPE_PADDING:
                payload = b""
            else:
                payload = block[offset + HEADER_LENGTH : offset + frame_length]
                page = self._find_blank_page(position, frame_length, payload) if self._may_end_torn else None
                if page is not None and self._is_last(position + aligned):
                    detail = f"only zeros from file offset={page} on, and no checksum to check it"
                    self._stop(StopReason.UNDECIDABLE, f"frame_length={frame_length}, {detail}")
                    return
            self.position, self.before = position + aligned, following
            yield Frame(position, *header, payload)
        if length < full and (limit is None or self.position < limit):
            self._stop(StopReason.FILE_CUT, f"file_length={length} expected={full}")

    def find_before(self) -> Before:
        """Find what lies before the next frame of a log: before the first one that is read, this has to look."""
        if self.before is not None:
            return self.before

        def read(position: int, length: int) -> bytes:
            base_position = self._descriptor.segment_base_position(position)
            path = self._directory / self._descriptor.segment_file_name(base_position)
            with opened(self._file_system, path) as handle:
                return read_fully(self._file_system, handle, length, position - base_position)

        try:
            self.before, _ = find_before(self._rules, self._descriptor.start_position, self.position, read)
        except OSError:
            self.before = Before.UNKNOWN  # who reads what lies there is told of it
        return self.before

    def _find_blank_page(self, position: int, frame_length: int, payload: bytes) -> int | None:
        """Find where in its file a data frame is blank, which could be the last and torn; None if it surely is not."""
        offset = position - self._descriptor.segment_base_position(position)
        if offset % PAGE_LENGTH + frame_length <= PAGE_LENGTH:
            return None
        return find_blank_page(bytes(HEADER_LENGTH) + payload, offset, frame_length)

    def _is_last(self, end_position: int) -> bool:
        """Whether no frame begins where the one before ends."""
        base_position = self._descriptor.segment_base_position(end_position)
        path = self._directory / self._descriptor.segment_file_name(base_position)
        try:
            with opened(self._file_system, path) as handle:
                data = read_fully(self._file_system, handle, HEADER_LENGTH, end_position - base_position)
        except FileNotFoundError:
            return True
        header = unpack_header(data.ljust(HEADER_LENGTH, b"\0"))
        return self._rules.find_header_fault(header, end_position) is not None

    def _read(self, handle: int, base_position: int, end: int, at_least: int = 0) -> bytes:
        """Read the block that begins at `position`, never past the end of the file."""
        wanted = min(max(self._block_length_bytes, at_least), end - self.position)
        self._block_length_bytes = min(2 * self._block_length_bytes, BLOCK_LENGTH_BYTES)
        return read_fully(self._file_system, handle, wanted, self.position - base_position)

    def _stop(self, reason: StopReason, detail: str, *, is_inside_frame: bool = False) -> None:
        self.stop_reason = reason
        self.detail = detail
        self._is_inside_frame = is_inside_frame


class IncompleteMessage(NamedTuple):
    """Fragments that are no message: where they lie, how many there are, and what is missing."""

    position: int
    end_position: int
    frame_count: int
    missing: str


OnIncomplete = Callable[[IncompleteMessage], None]


class MessageJoiner:
    """Joins the fragments of messages, frame by frame.

    `incomplete_message_count` counts beginnings without an end and ends without a beginning: a reader that starts
    inside a message, or a recording that ends inside one, has one. `on_incomplete` is told of each run of fragments
    that are no message. A leader that dies inside a message leaves one without an end in the log; nothing leaves one
    without a beginning. Memory: the longest message, 16 MiB.
    """

    def __init__(self, on_incomplete: OnIncomplete | None = None) -> None:
        self.incomplete_message_count = 0
        self._on_incomplete = on_incomplete
        self._parts: list[Frame] = []
        self._length = 0
        self._stray: IncompleteMessage | None = None

    def __repr__(self) -> str:
        return f"<MessageJoiner fragments={len(self._parts)} incomplete={self.incomplete_message_count}>"

    def take(self, frame: Frame) -> RecordedMessage | None:
        """Take the next frame; return the message that it completes, if any."""
        if frame.type != TYPE_DATA:
            return None
        if frame.flags & FLAG_BEGIN:
            self.finish()
        if frame.flags & UNFRAGMENTED == UNFRAGMENTED:
            return RecordedMessage(frame.position, frame.end_position, 1, frame.session_id, frame.payload)
        parts = self._parts
        if not parts and not frame.flags & FLAG_BEGIN:
            self._add_stray(frame)
            return None
        parts.append(frame)
        self._length += len(frame.payload)
        if self._length > MAX_MESSAGE_LENGTH:
            self._drop(f"{TOO_LONG}: length={self._length} limit={MAX_MESSAGE_LENGTH}")
        elif frame.flags & FLAG_END:
            payload, first, count = b"".join(part.payload for part in parts), parts[0], len(parts)
            parts.clear()
            self._length = 0
            return RecordedMessage(first.position, frame.end_position, count, first.session_id, payload)
        return None

    def finish(self) -> None:
        """Count what is held as incomplete: nothing follows, or another message."""
        if self._parts:
            self._drop(NO_END)
        self._end_strays()

    def _drop(self, missing: str) -> None:
        parts = self._parts
        self.incomplete_message_count += 1
        self._tell(IncompleteMessage(parts[0].position, parts[-1].end_position, len(parts), missing))
        parts.clear()
        self._length = 0

    def _add_stray(self, frame: Frame) -> None:
        """Take a fragment that no beginning stands before: one run of them is one message."""
        before = self._stray
        if before is None:
            self._stray = IncompleteMessage(frame.position, frame.end_position, 1, NO_BEGINNING)
        else:
            count = before.frame_count + 1
            self._stray = IncompleteMessage(before.position, frame.end_position, count, NO_BEGINNING)
        if frame.flags & FLAG_END:
            self.incomplete_message_count += 1
            self._end_strays()

    def _end_strays(self) -> None:
        if self._stray is not None:
            self._tell(self._stray)
            self._stray = None

    def _tell(self, found: IncompleteMessage) -> None:
        if self._on_incomplete is not None:
            self._on_incomplete(found)


class MessageReader:
    """Iterates over the complete messages among frames; once. Otherwise as `MessageJoiner`."""

    def __init__(self, frames: Iterator[Frame] | FrameReader, *, on_incomplete: OnIncomplete | None = None) -> None:
        self._frames = iter(frames)
        self._joiner = MessageJoiner(on_incomplete)

    @property
    def incomplete_message_count(self) -> int:
        """How many messages had no beginning or no end so far."""
        return self._joiner.incomplete_message_count

    def __iter__(self) -> Iterator[RecordedMessage]:
        take = self._joiner.take
        for frame in self._frames:
            message = take(frame)
            if message is not None:
                yield message
        self._joiner.finish()


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
