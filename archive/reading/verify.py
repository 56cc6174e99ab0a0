"""Checking recordings frame by frame, without changing anything.

Every frame of every segment: alignment, term offset, term id, stream id, type, length, and the CRC-32 where
the recording has checksums. The catalog entry too. Beyond the stop position only zeros may lie.

The first wrong frame ends a recording, for what lies behind it cannot be trusted to be frames. When asked to go on, the
search is for the next place where a right frame begins; what lies in between is one problem, however much it is.
Source: samples set A README §10; Aeron `ArchiveTool verify`, which marks the entry invalid by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trimaran.service_api.wire.frame import FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_DATA
from trimaran.service_api.wire.frame_rules import FrameRules

from ..disk.file_system import FileSystem, ReadableFileSystem, read_fully
from ..files.catalog import CatalogEntry
from ..files.reader import Frame, FrameReader, StopReason, first_nonzero
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.frame_rules import find_blank_page, frame_rules_of
from ..format.layout import parse_segment_file_name
from .fast_forward import skip_valid_frames

PROGRESS_INTERVAL_FRAMES: Final = 4096

_BLOCK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class RecordingVerdict:
    """What was found in one recording. `stop_position` is where its frames end; `warnings` do not count as
    wrong.
    """

    recording_id: int
    state: RecordingState | None
    start_position: int = 0
    stop_position: int = 0
    frame_count: int = 0
    checksummed: bool = False
    skipped: bool = False
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_recording(
    file_system: FileSystem,
    directory: Path,
    entry: CatalogEntry,
    *,
    checksums: bool | None = None,
    is_last_segment_only: bool = False,
    is_fault_tolerant: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> RecordingVerdict:
    """Walk all frames of the recording of a catalog entry, or those of its last segment only.

    `checksums` says whether frames carry a CRC-32; None takes what the catalog entry says. A deleted
    recording is skipped. `is_fault_tolerant` goes on behind what is wrong. `on_progress` is told the position now and
    then.
    """
    descriptor = entry.descriptor
    if descriptor is None:
        return RecordingVerdict(-1, None, problems=[f"catalog entry at offset={entry.offset}: {entry.problem}"])
    verdict = RecordingVerdict(
        descriptor.recording_id,
        descriptor.state,
        start_position=descriptor.start_position,
        stop_position=descriptor.start_position,
        checksummed=descriptor.checksummed if checksums is None else checksums,
    )
    if descriptor.state is RecordingState.DELETED:
        verdict.skipped = True
        return verdict
    if entry.problem is not None:
        verdict.problems.append(f"catalog: {entry.problem}")
        return verdict
    if entry.stale_checksum:
        verdict.warnings.append("catalog entry checksum not renewed when the stop position was filled in")
    if is_last_segment_only:
        verdict.start_position = verdict.stop_position = _last_segment_start(file_system, directory, descriptor)
    _walk_frames(file_system, directory, descriptor, verdict, on_progress)
    problem_count = 0
    while is_fault_tolerant and len(verdict.problems) > problem_count:
        problem_count = len(verdict.problems)
        end = verdict.stop_position
        position = find_next_frame(file_system, directory, descriptor, end, checksummed=verdict.checksummed)
        if position is not None:
            verdict.problems[-1] += f"; {position - verdict.stop_position} bytes lost, frames go on at {position}"
            verdict.stop_position = position
            _walk_frames(file_system, directory, descriptor, verdict, on_progress)
    stray = list(_find_stray_bytes(file_system, directory, descriptor, verdict))
    if stray and descriptor.stop_position is None and _has_grown(file_system, directory, descriptor, verdict):
        verdict.warnings.append("the recording is growing: it was checked up to where it ended")
    else:
        verdict.problems.extend(stray)
    return verdict


def _walk_frames(
    file_system: FileSystem,
    directory: Path,
    descriptor: RecordingDescriptor,
    verdict: RecordingVerdict,
    on_progress: Callable[[int], None] | None,
) -> None:
    """Walk the frames from the verdict's stop position on, and say there how it went."""
    skipped_count, position = skip_valid_frames(
        file_system,
        directory,
        descriptor,
        start_position=verdict.stop_position,
        checksummed=verdict.checksummed,
        on_progress=on_progress,
    )
    verdict.frame_count += skipped_count
    reader = FrameReader(
        directory,
        descriptor,
        start_position=position,
        checksummed=verdict.checksummed,
        file_system=file_system,
    )
    last: Frame | None = None
    for frame in reader:
        last = frame
        verdict.frame_count += 1
        if on_progress is not None and verdict.frame_count % PROGRESS_INTERVAL_FRAMES == 0:
            on_progress(reader.position)
    verdict.stop_position = reader.position
    reason = reader.stop_reason
    assert reason is not None
    if reason is StopReason.STOP_POSITION:
        return
    is_cut_inside = reason is StopReason.FILE_CUT and _is_inside_frame(reader.detail)
    undecidable = _find_undecidable(descriptor, verdict, last)
    if undecidable is not None and reason is not StopReason.BAD_FRAME and not is_cut_inside:
        verdict.problems.append(undecidable)
    elif reason in (StopReason.BLANK, StopReason.NO_SEGMENT) and descriptor.stop_position is None:
        verdict.warnings.append(f"no stop position: active, or not stopped in order; frames end: {reason.value}")
    elif reason is StopReason.FILE_CUT and descriptor.stop_position is None and not is_cut_inside:
        verdict.warnings.append(f"last segment shorter than it should be: {reader.detail}")
    else:
        expected = f" stop_position={descriptor.stop_position}" if descriptor.stop_position is not None else ""
        verdict.problems.append(f"position={reader.position}{expected}: {reason.value}: {reader.detail}")


def _find_undecidable(descriptor: RecordingDescriptor, verdict: RecordingVerdict, last: Frame | None) -> str | None:
    """Say that the last frame of a recording that was not stopped may be torn; an archive refuses to start on that."""
    if last is None or last.type != TYPE_DATA or verdict.checksummed or descriptor.stop_position is not None:
        return None
    offset = last.position - descriptor.segment_base_position(last.position)
    page = find_blank_page(bytes(HEADER_LENGTH) + last.payload, offset, last.frame_length)
    if page is None:
        return None
    return (
        f"position={last.position}: last frame may be incomplete: frame_length={last.frame_length}, only zeros from "
        f"file offset={page} on, and no checksum to tell"
    )


def _base_positions(file_system: ReadableFileSystem, directory: Path, recording_id: int) -> list[int]:
    """Give where the segment files of a recording begin, in order."""
    parsed = map(parse_segment_file_name, file_system.list_directory(directory))
    return sorted(found[1] for found in parsed if found is not None and found[0] == recording_id)


def _last_segment_start(file_system: FileSystem, directory: Path, descriptor: RecordingDescriptor) -> int:
    """Give where the last segment with frames in it begins, of those that are there."""
    stop_position = descriptor.stop_position
    bases = [
        base
        for base in _base_positions(file_system, directory, descriptor.recording_id)
        if stop_position is None or base < stop_position
    ]
    return max(descriptor.start_position, bases[-1]) if bases else descriptor.start_position


def find_next_frame(
    file_system: ReadableFileSystem,
    directory: Path,
    descriptor: RecordingDescriptor,
    position: int,
    *,
    checksummed: bool | None = None,
) -> int | None:
    """Find where the next right frame begins behind `position`, where one is wrong; None: there is none.

    `checksummed` says whether frames carry a CRC-32; None takes what the descriptor says.
    """
    rules = frame_rules_of(descriptor, checksummed=checksummed)
    first = position + FRAME_ALIGNMENT
    for base_position in _base_positions(file_system, directory, descriptor.recording_id):
        end = base_position + descriptor.segment_file_length
        if end <= first:
            continue
        handle = file_system.open_file(directory / descriptor.segment_file_name(base_position), writable=False)
        try:
            end = base_position + min(file_system.file_length(handle), descriptor.segment_file_length)
            if descriptor.stop_position is not None:
                end = min(end, descriptor.stop_position)
            found = _find_frame_in(file_system, handle, rules, base_position, max(first, base_position), end)
        finally:
            file_system.close_file(handle)
        if found is not None:
            return found
    return None


def _find_frame_in(
    file_system: ReadableFileSystem, handle: int, rules: FrameRules, base_position: int, position: int, end: int
) -> int | None:
    """Search [position, end) of one segment, a window at a time; windows overlap by the longest frame."""
    while position < end:
        term_end = min(end, position - position % rules.term_length_bytes + rules.term_length_bytes)
        window_end = min(term_end, position + _BLOCK_BYTES)
        wanted = min(term_end, window_end + rules.mtu_length_bytes) - position
        data = read_fully(file_system, handle, wanted, position - base_position)
        found = next(rules.find_valid_frames(data, position), None)
        if found is not None:
            return found
        position = window_end
    return None


def _has_grown(
    file_system: FileSystem, directory: Path, descriptor: RecordingDescriptor, verdict: RecordingVerdict
) -> bool:
    """Whether a right frame has appeared by now where the frames ended a moment ago."""
    reader = FrameReader(
        directory,
        descriptor,
        start_position=verdict.stop_position,
        checksummed=verdict.checksummed,
        file_system=file_system,
    )
    return next(iter(reader), None) is not None


def _is_inside_frame(detail: str) -> bool:
    return detail.startswith("file ends inside")


def _find_stray_bytes(
    file_system: FileSystem, directory: Path, descriptor: RecordingDescriptor, verdict: RecordingVerdict
) -> Iterator[str]:
    """Say where bytes other than zero lie behind the end, or in front of the start within the first segment."""
    for name in file_system.list_directory(directory):
        parsed = parse_segment_file_name(name)
        if parsed is None or parsed[0] != descriptor.recording_id:
            continue
        base_position = parsed[1]
        if base_position + descriptor.segment_file_length <= descriptor.start_position:
            verdict.warnings.append(f"detached: file={name}")
            continue
        handle = file_system.open_file(directory / name, writable=False)
        try:
            full, length = descriptor.segment_file_length, file_system.file_length(handle)
            if length > full:
                yield f"file longer than a segment: file={name} file_length={length} expected={full}"
                length = full
            if base_position <= descriptor.start_position:
                stray = first_nonzero(file_system, handle, 0, min(length, descriptor.start_position - base_position))
                if stray is not None:
                    yield f"position={base_position + stray}: bytes before the start position: file={name}"
            stray = first_nonzero(file_system, handle, max(0, verdict.stop_position - base_position), length)
            if stray is not None:
                end = f"position={verdict.stop_position}"
                yield f"{end}: bytes behind the end of the recording: file={name} offset={stray}"
        finally:
            file_system.close_file(handle)
