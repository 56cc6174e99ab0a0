"""Finding and checking the frames of a recording a block at a time.

A frame says where it lies: its term offset follows from its position. So the slots of 32 bytes whose third
word holds their own term offset are the candidates, found by one comparison over the block. They are the
frames if each ends where the next one begins, which one more comparison shows. Headers are then gathered and
checked by the same rules as `FrameRules.find_header_fault`, a column at a time.

Nothing is decided here but "this is right": at the first frame that is not, or where a file ends, the scanner
asks a `FrameReader` at that position, which says what is wrong in its own words, or hands over the frame. So
there is one set of rules and reasons.

Blocks are read with `pread_into` into one buffer that is used again: a file cut while it is read is a reason to
stop, where with mmap the process would die of SIGBUS.
Rejected: following the lengths in Python (0.23 us a frame); pointer doubling over all slots (a fifteenth of
the rate); a sparse index beside the segments, which the comparison makes needless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....service_api.errors import ConfigurationError
from ....service_api.wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    HeaderField,
    align,
    unpack_header,
)
from ....service_api.wire.log.log_rules import Before
from ...cold.file_system import readable_disk
from ...disk.file_system import ReadableFileSystem
from ...format.descriptor import RecordingDescriptor
from ...format.frame_rules import find_blank_page, frame_rules_of, may_end_torn
from ..log_end import LogEnd
from ..reader import Frame, FrameReader, StopReason
from .checksums import BlockChecksums
from .log_rules import LogColumns

BLOCK_LENGTH_BYTES: Final = 1 << 19
"""How much is read at once: it should stay in the core's second-level cache until it has been looked at."""

MIN_BLOCK_LENGTH_BYTES: Final = 1 << 16
MAX_BLOCK_LENGTH_BYTES: Final = 1 << 26

SLOT: Final = 32
SPARE_SLOTS: Final = 2
"""Slots behind a block: code that gathers the beginnings of payloads need not look where the last one ends."""

LENGTH: Final = HeaderField.FRAME_LENGTH.word
KIND: Final = HeaderField.KIND.word
TERM_OFFSET: Final = HeaderField.TERM_OFFSET.word
SESSION_ID: Final = HeaderField.CHECKSUM.word
STREAM_ID: Final = HeaderField.STREAM_ID.word
TERM_ID: Final = HeaderField.TERM_ID.word
"""The words of a header; KIND is version, flags and type; words 6 and 7 are the reserved value."""

_ROWS: Final = "V32"
_DATA: Final = TYPE_DATA << 16
_PADDING: Final = TYPE_PADDING << 16
_KIND_BUT_FLAGS: Final = ~(0xFF << 8)
_STREAM_AND_TERM: Final = 2
_HEADER_LENGTH: Final = np.uint32(HEADER_LENGTH)


@dataclass(slots=True, frozen=True)
class FrameBlock:
    """Valid frames in the order of the recording, at least one. Use it before the next one is taken.

    `words` is the block as int64, with spare slots behind it, and is used again for the next block; the frames
    begin at `slots` of it, 32 bytes each. `headers` are copies of theirs: with checksums those in `words` are
    used up.
    """

    words: NDArray[np.int64]
    slots: NDArray[np.int64]
    headers: NDArray[np.int32]
    position: int
    """Where `words` begins."""
    joined_positions: NDArray[np.int64] | None = None
    """Where each row begins, if `words` is not as it lies in the recording: messages were joined."""

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where each frame begins."""
        if self.joined_positions is not None:
            return self.joined_positions
        return self.slots * SLOT + self.position

    @property
    def first_position(self) -> int:
        """Where the first frame begins."""
        if self.joined_positions is not None:
            return int(self.joined_positions[0])
        return self.position + int(self.slots[0]) * SLOT

    @property
    def last_position(self) -> int:
        """Where the last frame begins."""
        if self.joined_positions is not None:
            return int(self.joined_positions[-1])
        return self.position + int(self.slots[-1]) * SLOT

    def __len__(self) -> int:
        return len(self.slots)

    def without_padding(self) -> FrameBlock | None:
        """Leave out padding frames; None if there are no others."""
        is_data = self.headers[:, KIND] >> 16 != TYPE_PADDING
        if is_data.all():
            return self
        if not is_data.any():
            return None
        return FrameBlock(self.words, self.slots[is_data], self.headers[is_data], self.position)

    def choose(self, rows: NDArray[np.bool_]) -> FrameBlock | None:
        """Leave out the rows that are not marked; None if none is left."""
        if not rows.any():
            return None
        joined = self.joined_positions
        joined = None if joined is None else joined[rows]
        return FrameBlock(self.words, self.slots[rows], self.headers[rows], self.position, joined)


class FrameScanner:
    """Iterates over the frames of [start_position, stop_position) of a recording, a block at a time; once.

    The frames, and `position`, `stop_reason` and `detail` at the end, are those of a `FrameReader` with the
    same arguments. Frames that end beyond `bound_position` are left out, as if they had not been recorded
    yet. Memory: one block, however long the recording is.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        *,
        start_position: int | None = None,
        stop_position: int | None = None,
        bound_position: int | None = None,
        checksummed: bool | None = None,
        block_length_bytes: int = BLOCK_LENGTH_BYTES,
        file_system: ReadableFileSystem | None = None,
    ) -> None:
        self._directory = directory
        self._file_system = readable_disk(directory) if file_system is None else file_system
        self.descriptor: Final = descriptor
        self._rules = frame_rules_of(descriptor, checksummed=checksummed)
        self._stop_position = stop_position
        self._bound_position = bound_position
        self._last_reader = self._reader_at(start_position)
        self.position = self._last_reader.position
        self._log_columns = LogColumns(self._rules) if self._rules.is_cluster_written else None
        self._before: Before | None = None
        """The kind of bytes before the next frame of a log; None: not looked for."""
        self.stop_reason: StopReason | None = None
        self.detail = ""
        self.is_bound_reached = False
        """Whether the scan ended at `bound_position`, or at a frame that crosses it."""
        limits = (descriptor.stop_position if stop_position is None else stop_position, bound_position)
        self._limit = min((limit for limit in limits if limit is not None), default=1 << 63)
        check_block_length(block_length_bytes)
        length = max(block_length_bytes, 2 * descriptor.mtu_length)
        slot_count = min(length, MAX_BLOCK_LENGTH_BYTES) // SLOT
        self._buffer: NDArray[np.uint8] = np.zeros((slot_count + SPARE_SLOTS) * SLOT, np.uint8)
        self._words = self._buffer.view(np.int64)
        self._rows = self._buffer.view(_ROWS)
        self._term_offsets = self._buffer.view(np.int32)[TERM_OFFSET::8]
        self._offsets = np.arange(0, slot_count * SLOT, SLOT, dtype=np.int32)
        self._differences = np.empty(slot_count, np.int32)
        self._is_candidate = np.empty(slot_count, np.bool_)
        self._checksums = BlockChecksums(slot_count, self._rules.checksum_kind) if self._rules.checksummed else None

    def __repr__(self) -> str:
        reason = "reading" if self.stop_reason is None else f"{self.stop_reason.value}: {self.detail}"
        return f"<FrameScanner recording={self.descriptor.recording_id} position={self.position} {reason}>"

    def __iter__(self) -> Iterator[FrameBlock]:
        while self.stop_reason is None:
            base_position = self.descriptor.segment_base_position(self.position)
            name = self.descriptor.segment_file_name(base_position)
            try:
                handle = self._file_system.open_file(self._directory / name, writable=False)
            except FileNotFoundError:
                yield from self._look_closely()
                continue
            try:
                yield from self._segment_blocks(handle, base_position)
            finally:
                self._file_system.close_file(handle)

    def _segment_blocks(self, handle: int, base_position: int) -> Iterator[FrameBlock]:
        full = base_position + self.descriptor.segment_file_length
        file_end = min(base_position + self._file_system.file_length(handle), full)
        while self.stop_reason is None and self.position < full:
            block = None
            if self.position < min(file_end, self._limit):
                block = self._read_block(handle, base_position, file_end)
            if block is None:
                yield from self._look_closely()
            else:
                yield block

    def _read_block(self, handle: int, base_position: int, file_end: int) -> FrameBlock | None:
        """Read from `position` on, to the end of the term at most, and move it after the valid frames found.

        None when there is none.
        """
        position = self.position
        term_count, term_offset = divmod(position, self._rules.term_length_bytes)
        end = min(file_end, self._limit, position - term_offset + self._rules.term_length_bytes)
        wanted = min(len(self._offsets) * SLOT, end - position)
        got = self._file_system.pread_into(handle, self._buffer.data[:wanted], position - base_position)
        slots = self._find_candidates(got // SLOT, term_offset)
        headers: NDArray[np.int32] = self._rows.take(slots).view(np.int32).reshape(-1, 8)
        slots, headers = _follow(slots, headers)
        count = valid = self._count_valid(slots, headers, term_count, got)
        if valid and self._checksums is not None:
            count = self._count_valid_checksums(slots[:valid], headers[:valid])
        if count == valid and count < len(slots) and self._is_padding(headers[count], int(slots[count]), file_end):
            count += 1
        if count and self._may_be_torn(slots[count - 1], headers[count - 1], position):
            count -= 1
        if self._log_columns is not None and count:
            before = self._last_reader.find_before() if self._before is None else self._before
            count, self._before = self._log_columns.count_valid(self._words, slots[:count], headers[:count], before)
        if not count:
            return None
        block = FrameBlock(self._words, slots[:count], headers[:count], position)
        self.position = block.last_position + align(int(headers[count - 1, LENGTH]))
        return block

    def _is_padding(self, header: NDArray[np.int32], slot: int, file_end: int) -> bool:
        """Return whether this is a valid padding frame that goes on after the block, and whose bytes say nothing."""
        fields = unpack_header(header.data)
        position = self.position + slot * SLOT
        return (
            fields.type == TYPE_PADDING
            and self._rules.find_header_fault(fields, position) is None
            and not self._rules.needs_body(fields)
            and position + fields.aligned_length <= min(file_end, self._limit)
        )

    def _may_be_torn(self, slot: np.int64, header: NDArray[np.int32], position: int) -> bool:
        """Return whether the last frame of a block is one that a `FrameReader` has to judge, should none follow it."""
        if self._checksums is not None or not may_end_torn(self.descriptor):
            return False
        length, begin = int(header[LENGTH]), int(slot) * SLOT
        if header[KIND] >> 16 == TYPE_PADDING:
            return False
        offset = position + begin - self.descriptor.segment_base_position(position)
        return find_blank_page(self._buffer.data[begin : begin + length], offset, length) is not None

    def _find_candidates(self, slot_count: int, term_offset: int) -> NDArray[np.int64]:
        """Find the slots that hold their own term offset; `term_offset` is that of the first slot."""
        differences, is_candidate = self._differences[:slot_count], self._is_candidate[:slot_count]
        np.subtract(self._term_offsets[:slot_count], self._offsets[:slot_count], out=differences)
        np.equal(differences, term_offset, out=is_candidate)
        return is_candidate.nonzero()[0]

    def _count_valid(
        self, slots: NDArray[np.int64], headers: NDArray[np.int32], term_count: int, available: int
    ) -> int:
        """Count the frames at the beginning whose headers are valid and which lie in the block whole.

        All but the last frame end where the next one begins, so the last alone can go beyond the block, which ends with
        the term at the latest. Padding that does is looked at by itself.
        """
        rules = self._rules
        if not len(slots) or rules.mtu_length_bytes < HEADER_LENGTH:
            return 0
        words = headers.view(np.int64)
        is_valid = words[:, _STREAM_AND_TERM] == self._identity(term_count)
        kinds = headers[:, KIND] & _KIND_BUT_FLAGS
        # As unsigned numbers lengths below 32 are the greatest.
        lengths = headers[:, LENGTH].view(np.uint32) - _HEADER_LENGTH
        is_frame = (kinds == _DATA) & (lengths <= rules.mtu_length_bytes - HEADER_LENGTH)
        if not is_frame.all():
            is_frame |= (kinds == _PADDING) & (lengths <= rules.term_length_bytes - HEADER_LENGTH)
        is_valid &= is_frame
        count = len(slots) if is_valid.all() else int(is_valid.argmin())
        if count and (int(slots[count - 1]) * SLOT + align(int(headers[count - 1, LENGTH]))) > available:
            count -= 1
        return count

    def _identity(self, term_count: int) -> int:
        """The stream id and the term id of the frames of a term as one number."""
        return int.from_bytes(self._rules.identity(term_count), "little", signed=True)

    def _count_valid_checksums(self, slots: NDArray[np.int64], headers: NDArray[np.int32]) -> int:
        """Count the frames at the beginning whose checksums are valid; padding parts runs of data frames."""
        padding = (headers[:, KIND] >> 16 == TYPE_PADDING).nonzero()[0].tolist()
        begin = 0
        for index in (*padding, len(slots)):
            if begin < index:
                count = self._count_valid_data(slots[begin:index], headers[begin:index])
                if count < index - begin:
                    return begin + count
            if index < len(slots) and not self._is_checksum_valid(int(slots[index]) * SLOT):
                return int(index)
            begin = index + 1
        return len(slots)

    def _count_valid_data(self, slots: NDArray[np.int64], headers: NDArray[np.int32]) -> int:
        """Count the frames at the beginning of a run of data frames whose checksums are valid."""
        assert self._checksums is not None
        if self._checksums.are_valid(self._buffer, slots, headers):
            return len(slots)
        self._rows.put(slots, headers.view(_ROWS).ravel())
        for index, offset in enumerate((slots * SLOT).tolist()):
            if not self._is_checksum_valid(offset):
                return index
        return len(slots)

    def _is_checksum_valid(self, offset: int) -> bool:
        view = self._buffer.data
        return self._rules.find_checksum_fault(unpack_header(view, offset), view, offset) is None

    def ending(self) -> LogEnd:
        """Return how the recording ends where the scan ended; see `FrameReader.ending`."""
        if self.stop_reason is StopReason.STOP_POSITION:
            return LogEnd(self.position, "stopped")
        return self._last_reader.ending()

    def _look_closely(self) -> Iterator[FrameBlock]:
        """Let a `FrameReader` say why there is no frame at `position`, or take the one it finds."""
        self._last_reader = reader = self._reader_at(self.position)
        reader.before = self._before
        is_bound = self._bound_position is not None and self.position >= self._bound_position
        frame = None if is_bound else next(iter(reader), None)
        if is_bound or (frame is not None and frame.end_position > self._limit):
            self.is_bound_reached = self._bound_position is not None
            self._stop(StopReason.STOP_POSITION, f"bound_position={self._bound_position}")
        elif frame is None:
            assert reader.stop_reason is not None
            self._stop(reader.stop_reason, reader.detail)
        else:
            self.position, self._before = frame.end_position, reader.before
            yield _block_of(frame)

    def _reader_at(self, start_position: int | None) -> FrameReader:
        return FrameReader(
            self._directory,
            self.descriptor,
            start_position=start_position,
            stop_position=self._stop_position,
            checksummed=self._rules.checksummed,
            file_system=self._file_system,
        )

    def _stop(self, reason: StopReason, detail: str) -> None:
        self.stop_reason = reason
        self.detail = detail


def check_block_length(length_bytes: int) -> None:
    """Refuse a block length that nobody can mean.

    Raises:
        ConfigurationError: it is not from 64 KiB to 64 MiB.
    """
    if not MIN_BLOCK_LENGTH_BYTES <= length_bytes <= MAX_BLOCK_LENGTH_BYTES:
        raise ConfigurationError(
            f"block or batch length: length_bytes={length_bytes} "
            f"expected {MIN_BLOCK_LENGTH_BYTES} to {MAX_BLOCK_LENGTH_BYTES}"
        )


def _follow(candidates: NDArray[np.int64], headers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Keep the candidates that follow each other from the block's first slot on, by their lengths.

    Where a payload holds what looks like frames, or the chain ends, candidates are left out: one step for each
    such place, so never more than one for each frame.
    """
    if not len(candidates) or candidates[0] != 0:
        return candidates[:0], headers[:0]
    lengths = headers[:, LENGTH].copy()
    lengths += SLOT - 1
    lengths >>= 5
    following = candidates + lengths
    is_break = following[:-1] != candidates[1:]
    if not is_break.any():
        return candidates, headers
    breaks = is_break.nonzero()[0]
    kept = []
    begin = 0
    for index in breaks.tolist():
        if index < begin:
            continue
        kept.append(np.arange(begin, index + 1))
        begin = int(np.searchsorted(candidates, following[index]))
        if begin <= index or begin == len(candidates) or candidates[begin] != following[index]:
            break
    else:
        kept.append(np.arange(begin, len(candidates)))
    chain = np.concatenate(kept)
    return candidates[chain], headers[chain]


def _block_of(frame: Frame) -> FrameBlock:
    """Make a block of one frame; of padding only the header."""
    data = FRAME_HEADER.pack(*frame[1:10]) + frame.payload
    data += bytes(-len(data) % SLOT + SPARE_SLOTS * SLOT)
    words = np.frombuffer(data, np.int64)
    headers = words[:4].view(np.int32).reshape(1, 8)
    return FrameBlock(words, np.zeros(1, np.int64), headers, frame.position)
