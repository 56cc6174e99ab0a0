"""Checking recordings frame by frame, without changing anything.

Every frame of every segment: alignment, term offset, term id, stream id, type, length, and the CRC-32 where
the recording has checksums. The catalog entry too. Beyond the stop position only zeros may lie.

The first frame that is not valid ends a recording, for what lies after it cannot be trusted to be frames. When asked to
go on, it continues where the next valid frame begins; what lies in between is one problem, however much it is.
Source: samples set A README §10; Aeron `ArchiveTool verify`, which marks the entry invalid by itself. A frame of a type
that we do not know is a problem, and no reason to mark anything: Aeron's tool accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..disk.file_system import ReadableFileSystem
from ..files.fast_forward import skip_valid_frames
from ..files.log_end import LogEnd, first_nonzero
from ..files.reader import FrameReader, StopReason
from ..format.catalog import CatalogEntry
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.log_file import LogFile
from ..log.member_directory import ArchiveLocation

UNKNOWN_CHECKSUM: Final = "frames carry checksums that are neither CRC-32 nor CRC-32C: they were not checked"
"""What is said of a recording of which only the structure is checked."""

PROGRESS_INTERVAL_FRAMES: Final = 4096


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
    checksum: str = "none"
    """What the catalog says that frames carry: none, crc32, crc32c or unknown."""
    skipped: bool = False
    is_unknown: bool = False
    """Whether the problem is a frame that nobody here can read, and that may be what an application meant."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def is_damaged(self) -> bool:
        """Whether something is wrong that can only be damage."""
        return bool(self.problems) and not self.is_unknown


def verify_recording(
    file_system: ReadableFileSystem,
    directory: Path,
    entry: CatalogEntry,
    *,
    checksums: bool | None = None,
    is_last_segment_only: bool = False,
    is_fault_tolerant: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> RecordingVerdict:
    """Walk all frames of the recording of a catalog entry, or those of its last segment only.

    `checksums` says whether frames carry a checksum; None takes what the catalog entry says. A deleted
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
        checksummed=descriptor.is_checkable if checksums is None else checksums,
        checksum=descriptor.checksum_label,
    )
    if descriptor.state is RecordingState.DELETED:
        verdict.skipped = True
        return verdict
    if entry.problem is not None:
        verdict.problems.append(f"catalog: {entry.problem}")
        return verdict
    if descriptor.checksummed and not descriptor.is_checkable:
        verdict.warnings.append(UNKNOWN_CHECKSUM)
    if entry.stale_checksum:
        verdict.warnings.append("catalog entry checksum not renewed when the stop position was filled in")
    log = LogFile(ArchiveLocation(file_system, directory), descriptor)
    if is_last_segment_only:
        verdict.start_position = verdict.stop_position = _last_segment_start(log)
    reader, end = _walk_frames(log, verdict, on_progress)
    while is_fault_tolerant and end.resumes_at is not None:
        lost = f"{end.resumes_at - end.position} bytes lost, frames go on at {end.resumes_at}"
        verdict.problems[-1] = f"{_place(end, descriptor)}: {end.fault}; {lost}"
        verdict.stop_position = end.resumes_at
        reader, end = _walk_frames(log, verdict, on_progress)
    # A last frame that may be incomplete is a problem already.
    stray = [] if reader.stop_reason is StopReason.UNDECIDABLE else list(_find_stray_bytes(log, verdict))
    if stray and descriptor.stop_position is None and reader.has_grown():
        verdict.warnings.append("the recording is growing: it was checked up to where it ended")
    else:
        verdict.problems.extend(stray)
    return verdict


def _walk_frames(
    log: LogFile, verdict: RecordingVerdict, on_progress: Callable[[int], None] | None
) -> tuple[FrameReader, LogEnd]:
    """Walk the frames from the verdict's stop position on, and say there how it went; gives the end.

    Here, as in Aeron's `ArchiveTool verify`, a torn write at the end is wrong, too: nobody but a start may cut it.
    """
    descriptor = log.descriptor
    skipped_count, position = skip_valid_frames(
        *log.location,
        descriptor,
        start_position=verdict.stop_position,
        checksummed=verdict.checksummed,
        on_progress=on_progress,
    )
    verdict.frame_count += skipped_count
    reader = log.reader(position, checksummed=verdict.checksummed)
    for _ in reader:
        verdict.frame_count += 1
        if on_progress is not None and verdict.frame_count % PROGRESS_INTERVAL_FRAMES == 0:
            on_progress(reader.position)
    verdict.stop_position = reader.position
    end, reason = reader.ending(), reader.stop_reason
    assert reason is not None
    verdict.is_unknown = verdict.is_unknown or reason is StopReason.UNKNOWN_FRAME
    if end.fault is not None:
        verdict.problems.append(f"{_place(end, descriptor)}: {end.damage or end.fault}")
    elif reason is StopReason.FILE_CUT:
        verdict.warnings.append(f"last segment shorter than it should be: {reader.detail}")
    elif end.kind == "open":
        verdict.warnings.append(f"no stop position: active, or not stopped in order; frames end: {reason.value}")
    return reader, end


def _place(end: LogEnd, descriptor: RecordingDescriptor) -> str:
    stop = "" if descriptor.stop_position is None else f" stop_position={descriptor.stop_position}"
    return f"position={end.position}{stop}"


def _last_segment_start(log: LogFile) -> int:
    """Return where the last segment with frames in it begins, of those that are there."""
    start, stop = log.descriptor.start_position, log.descriptor.stop_position
    bases = [base for base in log.segment_base_positions() if stop is None or base < stop]
    return max(start, bases[-1]) if bases else start


def _find_stray_bytes(log: LogFile, verdict: RecordingVerdict) -> Iterator[str]:
    """Return where bytes other than zero lie after the end, or before the start within the first segment."""
    (file_system, directory), descriptor = log.location, log.descriptor
    for base_position in log.segment_base_positions():
        name = descriptor.segment_file_name(base_position)
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
                yield f"{end}: bytes after the end of the recording: file={name} offset={stray}"
        finally:
            file_system.close_file(handle)
