"""The recordings of one archive as Arrow record batches. `log_frames` has `archive.frames`, which begins here.

Needs `trimaran[arrow]`, which is imported only when this is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...service_api.distribution import install_advice
from ...service_api.errors import ConfigurationError
from ...service_api.types import RecordingId, TimeUnit
from ..cold.file_system import readable_disk
from ..disk.file_system import ReadableFileSystem
from ..disk_errors import disk_facts_of
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError
from ..files.catalog import read_catalog
from ..files.log_end import LogEnd
from ..files.reader import FrameReader
from ..format.catalog import CATALOG_FILE_NAME, CatalogEntry
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.member_directory import ArchiveLocation
from ..log.time_unit import find_time_unit
from .frame_columns import choose_columns

if TYPE_CHECKING:
    from ..files.vector.scan import FrameBlock

DEFAULT_BATCH_LENGTH_BYTES: Final = 1 << 22


@dataclass(slots=True, frozen=True)
class ReadProblem:
    """Where the frames of a recording end although it says that it goes on, and why.

    `recording_id` and `position` are None where an entry of the catalog itself is damaged.
    """

    recording_id: RecordingId | None
    position: int | None
    reason: str


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
    from ..files.vector.scan import FrameScanner
    from .vector.columns import BatchMaker
    from .vector.messages import MessageBlockJoiner

    scanner = FrameScanner(
        location.directory,
        descriptor,
        start_position=selection.start_position,
        stop_position=selection.stop_position,
        bound_position=selection.bound_position,
        checksummed=selection.checksums,
        block_length_bytes=selection.batch_length_bytes,
        file_system=location.file_system,
    )
    maker = BatchMaker(schema, descriptor.recording_id)
    blocks: Iterator[FrameBlock] = iter(MessageBlockJoiner(scanner) if selection.reassemble else scanner)
    for block in blocks:
        kept: FrameBlock | None = block if selection.padding else block.without_padding()
        if kept is not None:
            yield maker.make(kept)
        on_progress(scanner.position)
    problem = find_problem(descriptor, selection, scanner.ending())
    if problem is not None:
        on_problem(problem)


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
        ArchiveError: no such directory or recording, or a start position where none can be.
        OSError: the disk or the store refused.
    """
    from pyarrow import RecordBatchReader

    from ..files.vector.scan import check_block_length

    entries = find_entries(location.directory, recording_id, location.file_system)
    check_block_length(selection.batch_length_bytes)
    for entry in entries:
        if entry.problem is None and entry.descriptor is not None:
            FrameReader(location.directory, entry.descriptor, start_position=selection.start_position)
    return RecordBatchReader.from_batches(schema, _read_entries(location, entries, selection, schema, on_problem))


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
