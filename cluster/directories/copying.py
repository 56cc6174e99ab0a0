"""Writes a member's directory from a survey: complete under its name, or not at all.

Everything is written into a hidden directory beside the target, synced, read back and checked; only then it gets the
target's name, in one step. So an import that is interrupted leaves nothing that a node could start on, and the next one
removes what it left. The source is opened for reading only.

A recording cannot be half with checksums and half without: its catalog entry says it once, and a tool that verifies it,
our tools or Aeron's, holds every data frame against that. Hence a log without checksums either goes on without them, or
gets them here, in every frame: CRC-32 in the place of the session id, as Aeron's `ArchiveTool checksum` puts it. The
default is the latter, since a node's own default is checksums. Nothing else of a frame is changed, so positions stay.
A log with CRC-32C goes on with CRC-32C. One with checksums of an unknown kind gets CRC-32: no node could go on with it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...archive import RecordingDescriptor
from ...archive.disk.file_system import OsFileSystem, write_fully
from ...archive.errors import CorruptionError
from ...archive.files.catalog import read_catalog
from ...archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from ...archive.format.layout import SegmentSlice
from ...archive.reading.verify import verify_recording
from ...archive.store.stamping import copy_frames
from ...service_api import ClusterError, ConfigurationError
from ...service_api.types import NULL_POSITION
from ...service_api.wire.checksum import ChecksumKind
from ..core.log.recording_log import RecordedSnapshot, RecordingLog
from ..runtime.files.node_state_file import NodeStateFile
from ..runtime.files.recording_log_file import RecordingLogFile
from .survey import Progress, SourceSnapshotSet, Survey

_BLOCK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_BLOCK_BYTES)
_SYNC_LEVEL: Final = 2


def expect_free(target: Path) -> None:
    """Refuse a target that is there already, unless it is an empty directory.

    Raises:
        ConfigurationError: something is there.
    """
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise ConfigurationError(f"target is there already: {target}; name a directory that is not there, or is empty")


@contextlib.contextmanager
def written_whole(target: Path, purpose: str) -> Iterator[Path]:
    """Give a directory to write in, beside a target; at the end of the block it is the target, durably.

    If the block raises it is removed, and the target is as it was. What an interrupted one has left is removed first.

    Raises:
        ClusterError: something else is where it would be written.
        ConfigurationError: something is at the target.
        OSError: the disk refused.
    """
    disk, working = OsFileSystem(), target.with_name(f".{target.name}.{purpose}")
    expect_free(target)
    remove_unfinished(working)
    disk.make_directory(working)
    try:
        yield working
        for directory in (*(each for each in working.rglob("*") if each.is_dir()), working):
            disk.sync_directory(directory)
        expect_free(target)
        disk.rename(working, target)
        disk.sync_directory(target.parent)
    finally:
        with contextlib.suppress(OSError):
            remove_unfinished(working)


def remove_unfinished(path: Path) -> None:
    """Remove a directory that was not finished, if there is one.

    Raises:
        ClusterError: something else is there.
        OSError: the disk refused.
    """
    if path.is_symlink() or path.is_file():
        raise ClusterError(f"expected a directory that was not finished, or nothing: path={path}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def length_bytes(survey: Survey) -> int:
    """Return how much an import writes: whole segments."""
    return sum(len(_segment_bases(descriptor)) * descriptor.segment_file_length for descriptor in survey.recordings)


def expect_room(survey: Survey, targets: list[Path]) -> None:
    """Refuse to begin what does not fit on the disks.

    Raises:
        ConfigurationError: too little is free.
    """
    needed: dict[int, int] = {}
    for target in targets:
        parent = next(path for path in target.absolute().parents if path.exists())
        device = parent.stat().st_dev
        needed[device] = needed.get(device, 0) + length_bytes(survey)
        free = shutil.disk_usage(parent).free
        if needed[device] > free:
            raise ConfigurationError(f"not enough space: needed={needed[device]} free={free} bytes on {parent}")


def write_member(
    survey: Survey,
    target: Path,
    *,
    as_is: bool,
    now_ms: int,
    log_blocks: Iterable[bytes] | None = None,
    on_progress: Progress = lambda count: None,
) -> list[RecordingDescriptor]:
    """Write a member's directory, check it, and give it its name. Gives the recordings as they are there.

    `as_is` copies frames byte for byte, whose checksums must be of a known kind; otherwise every data frame gets one.
    `log_blocks` are whole frames that stand for those of the log, from its start to its stop position.

    Raises:
        ClusterError: what was written is not what it should be.
        ConfigurationError: something is at the target.
        OSError: the disk refused.
    """
    disk = OsFileSystem()
    with written_whole(target, "importing") as working:
        disk.make_directory(working / "archive")
        disk.make_directory(working / "cluster")
        recordings = [
            replace(
                descriptor,
                checksummed=descriptor.checksummed or not as_is,
                checksum_kind=written_checksum(descriptor),
                unknown_checksum=0,
                stop_timestamp_ms=now_ms if descriptor.stop_timestamp_ms is None else descriptor.stop_timestamp_ms,
            )
            for descriptor in sorted(survey.recordings, key=lambda descriptor: descriptor.recording_id)
        ]
        for descriptor in recordings:
            if log_blocks is not None and descriptor.recording_id == survey.log.recording_id:
                _write_log(descriptor, log_blocks, working / "archive", on_progress)
            else:
                _copy_recording(survey, descriptor, working / "archive", on_progress)
        _write_catalog(survey, recordings, working / "archive")
        _write_recording_log(survey, working / "cluster")
        _write_node_state(survey, working / "cluster", now_ms)
        _check(working / "archive", on_progress)
    return recordings


def written_checksum(descriptor: RecordingDescriptor) -> ChecksumKind:
    """Return which checksum a recording gets, if it gets one: its own, or CRC-32."""
    return descriptor.checksum_kind if descriptor.is_checkable else ChecksumKind.CRC32


def _segment_bases(descriptor: RecordingDescriptor) -> list[int]:
    """The segments that a recording has: when one is full, the next is there."""
    assert descriptor.stop_position is not None
    first = descriptor.segment_base_position(descriptor.start_position)
    last = descriptor.segment_base_position(descriptor.stop_position)
    return list(range(first, last + 1, descriptor.segment_file_length))


def _copy_recording(survey: Survey, descriptor: RecordingDescriptor, directory: Path, on_progress: Progress) -> None:
    disk = OsFileSystem()
    bases, stop_position = _segment_bases(descriptor), descriptor.stop_position
    is_log = descriptor.recording_id == survey.log.recording_id
    assert stop_position is not None
    for base in bases:
        name = descriptor.segment_file_name(base)
        target = disk.open_file(directory / name, create=True)
        try:
            disk.set_length(target, descriptor.segment_file_length)
            position = max(base, descriptor.start_position)
            part = SegmentSlice(base, position, min(base + descriptor.segment_file_length, stop_position))
            if position < part.stop_position:
                source = disk.open_file(survey.source.archive / name, writable=False)
                try:
                    for end, _ in copy_frames(
                        disk, source, target, descriptor, part, is_stamped=descriptor.checksummed
                    ):
                        on_progress(end - position)
                        position = end
                except CorruptionError as error:
                    raise ClusterError(f"the source has changed since it was read: {error}") from error
                finally:
                    disk.close_file(source)
            if is_log and base == bases[-1]:
                # The node goes on here: a file that was written to its end is cheaper to sync.
                _write_zeros(target, max(base, stop_position) - base, descriptor.segment_file_length)
            disk.sync_file(target)
        finally:
            disk.close_file(target)


def _write_log(
    descriptor: RecordingDescriptor, blocks: Iterable[bytes], directory: Path, on_progress: Progress
) -> None:
    """Write frames that are given; a block may go on in the next segment, where a term begins."""
    disk, position, stop_position = OsFileSystem(), descriptor.start_position, descriptor.stop_position
    assert stop_position is not None
    given = iter(blocks)
    rest = memoryview(b"")
    for base in _segment_bases(descriptor):
        end = base + descriptor.segment_file_length
        handle = disk.open_file(directory / descriptor.segment_file_name(base), create=True)
        try:
            disk.set_length(handle, descriptor.segment_file_length)
            while position < min(end, stop_position):
                if not rest:
                    rest = memoryview(next(given))
                length = min(len(rest), end - position)
                write_fully(disk, handle, rest[:length], position - base)
                rest, position = rest[length:], position + length
                on_progress(length)
            if end > stop_position:
                # The member goes on here: a file that was written to its end is cheaper to sync.
                _write_zeros(handle, position - base, descriptor.segment_file_length)
            disk.sync_file(handle)
        finally:
            disk.close_file(handle)


def _write_zeros(handle: int, offset: int, end: int) -> None:
    while offset < end:
        length = min(len(_ZEROS), end - offset)
        write_fully(OsFileSystem(), handle, memoryview(_ZEROS)[:length], offset)
        offset += length


def _write_file(path: Path, data: bytes) -> None:
    disk = OsFileSystem()
    handle = disk.open_file(path, create=True)
    try:
        write_fully(disk, handle, data, 0)
        disk.sync_file(handle)
    finally:
        disk.close_file(handle)


def _write_catalog(survey: Survey, recordings: list[RecordingDescriptor], directory: Path) -> None:
    """Write the entries of what was copied; ids stay, also the next one, so none is ever given twice."""
    next_recording_id = max(survey.source.next_recording_id, recordings[-1].recording_id + 1)
    _write_file(directory / CATALOG_FILE_NAME, encode_catalog(recordings, next_recording_id=next_recording_id))


def _write_recording_log(survey: Survey, directory: Path) -> None:
    """Write terms and snapshots in the order in which they came to be."""
    file = RecordingLogFile.open(directory, file_sync_level=_SYNC_LEVEL)
    try:
        log = file.recording_log
        for found in survey.snapshots:
            if found.entries[0].is_seed:
                _write_set(log, found)
        for term in survey.terms:
            log.append_term(
                recording_id=term.recording_id,
                leadership_term_id=term.leadership_term_id,
                term_base_log_position=term.term_base_log_position,
                timestamp=term.timestamp,
            )
            for found in survey.snapshots:
                if found.entries[0].leadership_term_id == term.leadership_term_id and not found.entries[0].is_seed:
                    _write_set(log, found)
        last = survey.terms[-1] if survey.terms else None
        if last is not None and last.log_position != NULL_POSITION and last.log_position == survey.stop_position:
            log.commit_log_position(last.leadership_term_id, last.log_position)
        file.persist()
    finally:
        file.close()


def _write_set(log: RecordingLog, found: SourceSnapshotSet) -> None:
    for entry in reversed(found.entries):  # the module's comes last: it makes the set one
        log.append_snapshot(RecordedSnapshot.of(entry))


def _write_node_state(survey: Survey, directory: Path, now_ms: int) -> None:
    """Write the highest term that this member has voted in or followed: it may vote in none of them again."""
    file = NodeStateFile.open(directory, file_sync_level=_SYNC_LEVEL)
    try:
        file.propose_max_candidate_term_id(candidate_term_id(survey), survey.stop_position, now_ms)
    finally:
        file.close()


def candidate_term_id(survey: Survey) -> int:
    """The candidate term that an imported member begins with."""
    newest = max(entry.leadership_term_id for entry in survey.source.recording_log.entries if entry.is_valid)
    return max(survey.source.candidate_term_id, newest)


def _check(directory: Path, on_progress: Callable[[int], None]) -> None:
    """Read back what was written.

    Raises:
        ClusterError: it is not right; the source has changed meanwhile, or the disk does not keep what it takes.
    """
    for entry in read_catalog(OsFileSystem(), directory).entries:
        verdict = verify_recording(OsFileSystem(), directory, entry)
        if not verdict.is_ok or verdict.warnings:
            what = "; ".join([*verdict.problems, *verdict.warnings])
            raise ClusterError(f"the copy is not valid: recording_id={verdict.recording_id}: {what}")
        on_progress(verdict.stop_position - verdict.start_position)
