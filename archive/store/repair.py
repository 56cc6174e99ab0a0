"""Finds where a recording ends after a crash, and tells a torn tail from corruption.

A crash may leave the last frames half written; they were never acknowledged and are cut. Anything else that does not
check out may have been acknowledged: nothing is touched and the archive refuses to start, naming the recording, the
position and the reason.

What a tear may look like depends on what ended. When only the process did, the kernel kept every write, and writes go
forward: a wrong frame with a valid one *after* it is corruption. When the machine did, any subset of the sectors of
the last batch may have survived. That batch begins at or before the first wrong frame and is at most `torn_limit_bytes`
long (`recording`): so a wrong frame is a tear when everything after it that is not zero lies within that
limit, and corruption when a valid frame follows and something lies beyond. After a mere process crash the limit has to
be 0: else a damaged frame among the last 4 MiB would be cut off with all that follows it.

What cannot be decided: a bit that flipped inside the last batch before a power loss looks like a sector that was not
written. If that batch had been acknowledged just before, this member loses the end of its log without a word, as if it
had lied about its last syncs. The other members still have it.

Only the highest segment can be torn (see `recording`), so only that is read; where it holds nothing
at all, as after an unsynced roll, the one before it is read too. Without checksums only structure can be
checked; a last frame that crosses a 4096-byte page and has a page part of zeros is then undecidable, and
refused as Aeron does. Every function here blocks. Source: samples set A README §10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header
from ...service_api.wire.log.log_rules import FIRST_ENTRY_LENGTH, Before, what_follows
from ..disk.file_system import opened, read_fully
from ..errors import VERIFY_ADVICE, CorruptionError
from ..files.segment_files import SegmentFiles
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import find_blank_page, frame_rules_of

_BLOCK_BYTES: Final = 1 << 20


@dataclass(slots=True, frozen=True)
class RepairResult:
    """Where the recording ends, and why: `reason` is what was found there, `cut` whether bytes had to be
    removed.
    """

    stop_position: int
    reason: str
    cut: bool


@dataclass(slots=True, frozen=True)
class TailEnd:
    """Where a recording ends, why, and the base position of the segment that holds that place."""

    stop_position: int
    reason: str
    base_position: int | None
    """None where there is no segment."""


@dataclass(slots=True, frozen=True)
class _Walk:
    """Where the valid frames of a segment end, why, and where the last one begins (None: there is none)."""

    end_position: int
    reason: str
    last_frame_position: int | None


OnDamage = Callable[[CorruptionError], object]
"""Told of damage that a search for the end has gone on behind."""


def repair_tail(
    files: SegmentFiles, descriptor: RecordingDescriptor, *, torn_limit_bytes: int, on_damage: OnDamage | None = None
) -> RepairResult:
    """Find the stop position of a recording without one, and make sure nothing but zeros follows it.

    Everything below the stop position, and the zeros after it, are durable when this returns. `torn_limit_bytes` is
    how far after a wrong frame a power loss may have left valid ones; 0 when the machine did not go down. With
    `on_damage` the end is looked for behind what is damaged; that has to be mended before anybody reads there.

    Raises:
        CorruptionError: frames that may have been acknowledged are not valid, or segments are missing.
        OSError: the disk refused.
    """
    files.remove_unpublished()
    end = find_tail(files, descriptor, torn_limit_bytes=torn_limit_bytes, on_damage=on_damage)
    if end.base_position is None:
        return RepairResult(end.stop_position, end.reason, cut=False)
    cut = files.clean_after(end.base_position, end.stop_position)
    return RepairResult(end.stop_position, end.reason, cut)


def find_tail(
    files: SegmentFiles, descriptor: RecordingDescriptor, *, torn_limit_bytes: int, on_damage: OnDamage | None = None
) -> TailEnd:
    """Find where a recording without a stop position ends, and change nothing. As `repair_tail` otherwise.

    Raises:
        CorruptionError: frames that may have been acknowledged are not valid, or segments are missing.
        OSError: the disk refused.
    """
    bases = files.base_positions()
    if not bases:
        if on_damage is not None:  # ours always has one: the catalog is told after a segment has its name
            on_damage(_missing(descriptor, descriptor.segment_base_position(descriptor.start_position), found="none"))
        return TailEnd(descriptor.start_position, "no segment file", None)
    _check_segments_adjoin(bases, descriptor, on_damage)
    walk = _walk_segment(files, descriptor, bases[-1], torn_limit_bytes, on_damage)
    stop_position, base = walk.end_position, bases[-1]
    if walk.last_frame_position is None and len(bases) > 1:
        # It was durable before the one after it got its name: no power loss has torn it.
        before = _walk_segment(files, descriptor, bases[-2], 0, on_damage)
        if before.end_position != base:
            walk, stop_position, base = before, before.end_position, bases[-2]
    return TailEnd(stop_position, walk.reason, base)


def _check_segments_adjoin(bases: list[int], descriptor: RecordingDescriptor, on_damage: OnDamage | None) -> None:
    expected = descriptor.segment_base_position(descriptor.start_position)
    for base in bases:
        if base != expected:
            damage = _missing(descriptor, expected, found=descriptor.segment_file_name(base))
            if on_damage is None or base < expected:
                raise damage
            on_damage(damage)
            expected = base
        expected += descriptor.segment_file_length


def _missing(descriptor: RecordingDescriptor, base_position: int, *, found: str) -> CorruptionError:
    return CorruptionError(
        f"segment file missing: expected={descriptor.segment_file_name(base_position)} found={found}; {VERIFY_ADVICE}",
        recording_id=descriptor.recording_id,
        position=max(base_position, descriptor.start_position),
    )


def _walk_segment(
    files: SegmentFiles,
    descriptor: RecordingDescriptor,
    base_position: int,
    torn_limit_bytes: int,
    on_damage: OnDamage | None,
) -> _Walk:
    """Walk the frames of one segment to where they end, and judge what is behind that place."""
    name = descriptor.segment_file_name(base_position)
    with opened(files.file_system, files.directory / name) as handle:
        length = min(files.file_system.file_length(handle), descriptor.segment_file_length)
        return _SegmentWalker(files, descriptor, handle, base_position, length, on_damage).walk(torn_limit_bytes)


class _SegmentWalker:
    """Reads one segment file in blocks and follows its frames; never reads past the end of the file."""

    def __init__(
        self,
        files: SegmentFiles,
        descriptor: RecordingDescriptor,
        handle: int,
        base_position: int,
        length: int,
        on_damage: OnDamage | None,
    ) -> None:
        self._file_system = files.file_system
        self._descriptor = descriptor
        self._rules = frame_rules_of(descriptor)
        self._handle = handle
        self._base_position = base_position
        self._length = length
        self._on_damage = on_damage
        self._block = b""
        self._block_offset = 0

    def walk(self, torn_limit_bytes: int) -> _Walk:
        """Follow the frames until one is not valid.

        Raises:
            CorruptionError: valid frames follow the wrong one and it is no tear, or the last one is undecidable.
        """
        offset = max(0, self._descriptor.start_position - self._base_position)
        last: int | None = None
        before = Before.UNKNOWN
        reason = "segment full" if self._length == self._descriptor.segment_file_length else "incomplete file"
        while offset < self._length:
            block, start = self._read(offset, 1)
            position = self._base_position + offset
            end, found, before = self._rules.skip_valid_frames(block, start, position, len(block), before)
            if found is not None:
                last = offset + found - start
                offset += end - start
                continue
            fault, frame_end, following = self._examine(offset, before)
            if fault is not None:
                if torn_limit_bytes == 0 or self._is_anything_written_from(offset + torn_limit_bytes):
                    resumes_at = self._find_following_frame(offset, fault)
                    if resumes_at is not None:
                        offset, before = resumes_at, Before.UNKNOWN
                        continue
                reason = fault
                break
            last = offset
            offset, before = frame_end, following
        if last is not None and not self._rules.checksummed:
            self._refuse_if_undecidable(last, offset)
        return _Walk(self._base_position + offset, reason, last)

    def _examine(self, offset: int, before: Before) -> tuple[str | None, int, Before]:
        """Check the frame at `offset`: what is wrong with it, where it ends, and what lies before the next one then."""
        if self._length - offset < HEADER_LENGTH:
            return f"file ends inside a frame header: available={self._length - offset}", offset, before
        block, start = self._read(offset, min(FIRST_ENTRY_LENGTH, self._length - offset))
        header = unpack_header(block, start)
        if header.frame_length == 0:
            return "frame length 0", offset, before
        position = self._base_position + offset
        fault = self._rules.find_header_fault(header, position)
        if fault is None:
            fault = self._rules.find_order_fault(header, before, block, start, position)
        if fault is not None:
            if self._rules.is_unknown(header, position):
                raise CorruptionError(
                    f"{fault}: an application may have chosen it, so it is not cut off; nothing was changed. Keep "
                    "this directory for the program that wrote it",
                    recording_id=self._descriptor.recording_id,
                    position=position,
                )
            return fault, offset, before
        aligned, following = header.aligned_length, what_follows(header, before)
        if offset + aligned > self._length:
            return (
                f"file ends inside a frame: frame_length={header.frame_length} available={self._length - offset}",
                offset,
                before,
            )
        if not self._rules.needs_body(header):
            return None, offset + aligned, following
        block, start = self._read(offset, aligned)
        return self._rules.find_body_fault(header, block, start), offset + aligned, following

    def _read(self, offset: int, length: int) -> tuple[bytes, int]:
        """Return a block that holds [offset, offset + length), and where in it that begins."""
        start = offset - self._block_offset
        if start < 0 or start + length > len(self._block):
            wanted = min(max(_BLOCK_BYTES, length), self._length - offset)
            self._block = read_fully(self._file_system, self._handle, wanted, offset)
            self._block_offset, start = offset, 0
        return self._block, start

    def _is_anything_written_from(self, offset: int) -> bool:
        """Whether there is a byte other than zero at `offset` or after it."""
        while offset < self._length:
            data = read_fully(self._file_system, self._handle, min(_BLOCK_BYTES, self._length - offset), offset)
            if data.count(0) != len(data):
                return True
            offset += len(data)
        return False

    def _find_following_frame(self, offset: int, fault: str) -> int | None:
        """Find the offset of the next valid frame after the wrong one at `offset`; None if this is a torn tail.

        Raises:
            CorruptionError: there is one, and nobody wants to go on behind damage.
        """
        term_length = self._descriptor.term_buffer_length
        position = self._base_position + offset + 32
        end = self._base_position + self._length
        while position < end:
            term_end = min(end, position - position % term_length + term_length)
            data = read_fully(self._file_system, self._handle, term_end - position, position - self._base_position)
            found = next(self._rules.find_valid_frames(data, position), None)
            if found is not None:
                damage = CorruptionError(
                    f"frame is not valid, and is not the last one: {fault}; a valid frame follows at "
                    f"position={found}; nothing was changed; {VERIFY_ADVICE}",
                    recording_id=self._descriptor.recording_id,
                    position=self._base_position + offset,
                )
                if self._on_damage is None:
                    raise damage
                self._on_damage(damage)
                return found - self._base_position
            position = term_end
        return None

    def _refuse_if_undecidable(self, last_offset: int, end_offset: int) -> None:
        """Raise when the last frame may be torn at a page boundary and there is no checksum to check it."""
        data = read_fully(self._file_system, self._handle, end_offset - last_offset, last_offset)
        header = unpack_header(data)
        frame_length = header.frame_length
        page = None if header.type == TYPE_PADDING else find_blank_page(data, last_offset, frame_length)
        if page is not None:
            raise CorruptionError(
                f"last frame may be incomplete: frame_length={frame_length}, only zeros from file "
                f"offset={page} on, and no checksum to check it. Nothing was changed. "
                "Restore this directory from another member, or turn checksums on for new recordings",
                recording_id=self._descriptor.recording_id,
                position=self._base_position + last_offset,
            )
