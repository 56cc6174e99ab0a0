"""The recordings of one archive as Arrow record batches. `log_frames` has `archive.frames`, which begins here.

Needs `trimaran[arrow]`, which is imported only when this is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...service_api.distribution import install_advice
from ...service_api.errors import ConfigurationError
from ...service_api.types import RecordingId, TimeUnit
from ..cold.file_system import readable_disk
from ..disk.file_system import ReadableFileSystem
from ..disk_errors import disk_facts_of
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError, below_oldest
from ..files.catalog import read_catalog
from ..files.log_end import LogEnd
from ..format.catalog import CATALOG_FILE_NAME, CatalogEntry
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.member_directory import ArchiveLocation
from ..log.time_unit import find_time_unit
from .frame_columns import choose_columns

if TYPE_CHECKING:
    from ..files.vector.scan import FrameBlock, FrameScanner

DEFAULT_BATCH_LENGTH_BYTES: Final = 1 << 22


@dataclass(slots=True, frozen=True)
class ReadProblem:
    """Where the frames of a recording end although it says that it goes on, and why.

    `recording_id` and `position` are None where an entry of the catalog itself is damaged.
    """

    recording_id: RecordingId | None
    position: int | None
    reason: str

    def of_group(self, group_index: int) -> ReadProblem:
        """Return the problem with the group in its reason."""
        return replace(self, reason=f"group {group_index}: {self.reason}")


@dataclass(slots=True, frozen=True, kw_only=True)
class FrameSelection:
    """The selection of a read: the arguments of `frames` with the same names."""

    start_position: int | None = None
    stop_position: int | None = None
    bound_position: int | None = None
    checksums: bool | None = None
    reassemble: bool = False
    padding: bool = True
    batch_length_bytes: int = DEFAULT_BATCH_LENGTH_BYTES

    @property
    def has_positions(self) -> bool:
        """Whether it names a position, which is one of one recording."""
        return not (self.start_position is self.stop_position is self.bound_position is None)


def find_archive_time_unit(location: ArchiveLocation) -> TimeUnit:
    """Find the unit of the timestamps in an archive: what its logs say, or its snapshots; milliseconds if none does.

    Raises:
        ArchiveError: there is no archive.
        OSError: the disk or the store refused.
    """
    entries = find_entries(location.directory, None, location.file_system)
    return find_time_unit(location, [e.descriptor for e in entries if e.descriptor is not None and e.problem is None])


def make_schema(columns: Sequence[str] | None, time_unit: TimeUnit) -> Any:
    """Make the `pyarrow.Schema` of these columns, or of all.

    Raises:
        ConfigurationError: no numpy or pyarrow, no such column, or one is named twice.
    """
    try:
        from .vector.columns import frame_schema
    except ImportError as error:
        message = f"record batches need numpy and pyarrow: {install_advice('arrow')} ({error})"
        raise ConfigurationError(message) from error
    return frame_schema(choose_columns(columns), time_unit=time_unit)


def read_batches(
    location: ArchiveLocation,
    descriptor: RecordingDescriptor,
    selection: FrameSelection,
    schema: Any,  # a pyarrow.Schema, from `frame_schema`
    on_problem: Callable[[ReadProblem], None],
    on_progress: Callable[[int], None] = lambda position: None,
) -> Iterator[Any]:
    """Yield the record batches of one recording; `on_problem` is told at the end if they end too early.

    `on_progress` is told the position after each batch.
    """
    from .vector.columns import BatchMaker

    maker = BatchMaker(schema, descriptor.recording_id)
    wanted_position = descriptor.start_position if selection.start_position is None else selection.start_position
    position: int | None = _find_begin(location, descriptor, selection)
    while position is not None:
        scanner = _open_scanner(location, descriptor, selection, position)
        for block in _blocks_of(scanner, selection):
            kept = block if selection.padding else block.without_padding()
            if kept is not None and kept.first_position < wanted_position:
                kept = kept.choose(kept.positions >= wanted_position)
            if kept is not None:
                yield maker.make(kept)
            on_progress(scanner.position)
        end = scanner.ending()
        # Damage before the first position that is asked for is passed over.
        position = None if end.resumes_at is None or end.resumes_at > wanted_position else end.resumes_at
    problem = find_problem(descriptor, selection, end)
    if problem is not None:
        on_problem(problem)


def _find_begin(location: ArchiveLocation, descriptor: RecordingDescriptor, selection: FrameSelection) -> int:
    """Find where to begin: a frame or message at or before the first position that is asked for."""
    from .vector.boundaries import find_frame_before

    if selection.start_position is None:
        return descriptor.start_position
    return find_frame_before(location, descriptor, selection.start_position, of_messages=selection.reassemble)


def _open_scanner(
    location: ArchiveLocation, descriptor: RecordingDescriptor, selection: FrameSelection, position: int
) -> FrameScanner:
    from ..files.vector.scan import FrameScanner

    return FrameScanner(
        location.directory,
        descriptor,
        start_position=position,
        stop_position=selection.stop_position,
        bound_position=selection.bound_position,
        checksummed=selection.checksums,
        block_length_bytes=selection.batch_length_bytes,
        file_system=location.file_system,
    )


def _blocks_of(scanner: FrameScanner, selection: FrameSelection) -> Iterator[FrameBlock]:
    from .vector.messages import MessageBlockJoiner

    return iter(MessageBlockJoiner(scanner) if selection.reassemble else scanner)


def find_problem(descriptor: RecordingDescriptor, selection: FrameSelection, end: LogEnd) -> ReadProblem | None:
    """Return what ended the reading of a selection before its end: damage, or that the recording ends there."""
    damage, stop_position = end.damage, selection.stop_position
    if damage is None and stop_position is not None and end.kind == "open":
        damage = (
            f"{end.fault or 'nothing was written from here on'}; expected frames up to stop_position={stop_position}"
        )
    return None if damage is None else ReadProblem(descriptor.recording_id, end.position, damage)


def find_entries(
    directory: Path, recording_id: int | None, file_system: ReadableFileSystem | None = None
) -> list[CatalogEntry]:
    """Pick the catalog entries to read: the one with this id, or all that are VALID or damaged.

    Raises:
        ArchiveError: no archive is there, or it has no such recording.
        OSError: the catalog cannot be read.
    """
    try:
        entries = read_catalog(readable_disk(directory) if file_system is None else file_system, directory).entries
    except (FileNotFoundError, NotADirectoryError) as error:
        place = str(error.filename or disk_facts_of(error).get("file", directory)).removesuffix(f"/{CATALOG_FILE_NAME}")
        raise ArchiveError(f"not an archive directory: no {CATALOG_FILE_NAME} in {place}") from error
    if recording_id is None:
        return [e for e in entries if e.descriptor is None or e.descriptor.state is RecordingState.VALID]
    found = [e for e in entries if e.descriptor is not None and e.descriptor.recording_id == recording_id]
    if not found:
        raise ArchiveError(
            f"no such recording: known={[e.descriptor.recording_id for e in entries if e.descriptor is not None]}",
            code=ArchiveErrorCode.UNKNOWN_RECORDING,
            recording_id=recording_id,
        )
    return found


def open_recordings(
    location: ArchiveLocation,
    recording_id: int | None,
    selection: FrameSelection,
    schema: Any,  # a pyarrow.Schema, from `frame_schema`
    on_problem: Callable[[ReadProblem], None],
) -> Any:
    """Make the `pyarrow.RecordBatchReader` of an archive; what can be checked before the first batch, is.

    Raises:
        ConfigurationError: the length of batches is out of bounds.
        ArchiveError: no such directory or recording, or a start position before the oldest.
        OSError: the disk or the store refused.
    """
    from pyarrow import RecordBatchReader

    from ..files.vector.scan import check_block_length

    entries = find_entries(location.directory, recording_id, location.file_system)
    check_block_length(selection.batch_length_bytes)
    for entry in entries:
        if entry.problem is None and entry.descriptor is not None:
            _check_start(entry.descriptor, selection.start_position)
    return RecordBatchReader.from_batches(schema, _read_entries(location, entries, selection, schema, on_problem))


def _check_start(descriptor: RecordingDescriptor, position: int | None) -> None:
    if position is not None and position < descriptor.start_position:
        raise below_oldest(descriptor.recording_id, position=position, oldest_position=descriptor.start_position)


def _read_entries(
    location: ArchiveLocation,
    entries: Sequence[CatalogEntry],
    selection: FrameSelection,
    schema: Any,
    on_problem: Callable[[ReadProblem], None],
) -> Iterator[Any]:
    for entry in entries:
        if entry.descriptor is None or entry.problem is not None:
            recording_id = None if entry.descriptor is None else entry.descriptor.recording_id
            on_problem(ReadProblem(recording_id, None, f"catalog entry at offset={entry.offset}: {entry.problem}"))
            continue
        yield from read_batches(location, entry.descriptor, selection, schema, on_problem)


def raise_problem(problem: ReadProblem) -> None:
    """End the reading with an error.

    Raises:
        CorruptionError: always.
    """
    raise CorruptionError(problem.reason, recording_id=problem.recording_id, position=problem.position)
