"""`archive.frames`: recordings as Arrow record batches, for pandas, Polars, DuckDB and Spark.

Needs `trimaran[arrow]`, which is imported only when this is used. The result is a `pyarrow.RecordBatchReader`: an
iterator of batches that knows their schema, and that whatever speaks Arrow reads directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimaran.service_api.distribution import install_advice
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import RecordingId, TimeUnit

from ..cold.file_system import readable_disk
from ..disk.file_system import ReadableFileSystem
from ..disk_errors import disk_facts_of
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError
from ..files.catalog import CATALOG_FILE_NAME, CatalogEntry, read_catalog
from ..files.log_end import LogEnd
from ..files.reader import FrameReader
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.member_directory import ArchiveLocation, locate_archive
from ..log.time_unit import find_time_unit
from .frame_columns import choose_columns

if TYPE_CHECKING:
    from .vector.scan import FrameBlock

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


def frames(
    path: Path | str,
    *,
    recording_id: int | None = None,
    start_position: int | None = None,
    stop_position: int | None = None,
    bound_position: int | None = None,
    columns: Sequence[str] | None = None,
    time_unit: TimeUnit | None = None,
    checksums: bool | None = None,
    reassemble: bool = False,
    padding: bool = True,
    batch_length_bytes: int = DEFAULT_BATCH_LENGTH_BYTES,
    on_problem: Callable[[ReadProblem], None] | None = None,
) -> Any:
    """Read the frames of an archive directory, or a member's, ours or a real Aeron's, as Arrow record batches.

    `path` may be a URL that fsspec knows, such as `s3://bucket/archive`, given as text.
    Gives a `pyarrow.RecordBatchReader`. All VALID recordings in the order of the catalog, or the one with
    `recording_id`, whatever its state. A batch holds the frames of about `batch_length_bytes` of a recording
    (64 KiB to 64 MiB), which bounds the memory. docs/archive-frames.md lists the columns.

    - `start_position` is a frame boundary; without `stop_position` reading ends where the recording does.
      Positions need a `recording_id`.
    - `bound_position`: frames that end beyond it are left out, such as what is not committed yet.
    - `columns`: only these, in this order. Without `payload` no payload is copied.
    - `time_unit`: the unit of the cluster's clock, which the column `timestamp` then has; None: what the log says.
    - `checksums`: whether each CRC-32 is checked; None checks where the catalog says that there is one.
    - `reassemble`: complete messages instead of frames, each as if one frame had been long enough for it.
    - `padding`: whether padding frames are rows; they are never messages.

    Raises:
        ConfigurationError: no pyarrow, no such column, positions without a recording id, no library for the URL.
        ArchiveError: no such directory or recording, or a start position where none can be.
        OSError: the disk or the store refused, also from the iteration.
        CorruptionError: from the iteration, after the rows before the damage. With `on_problem`, that is called
            instead and reading goes on with the next recording.
    """
    schema = make_schema(columns, time_unit or TimeUnit.MILLIS)
    if recording_id is None and not (start_position is stop_position is bound_position is None):
        raise ConfigurationError("positions are those of one recording: expected a recording_id with them")
    selection = FrameSelection(
        start_position=start_position,
        stop_position=stop_position,
        bound_position=bound_position,
        checksums=checksums,
        reassemble=reassemble,
        padding=padding,
        batch_length_bytes=batch_length_bytes,
    )
    location = locate_archive(path)
    entries = find_entries(location.directory, recording_id, location.file_system)
    if time_unit is None and "timestamp" in schema.names:
        schema = make_schema(columns, find_archive_time_unit(location))
    return _open(location, entries, selection, schema, on_problem or _raise_problem)


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
    directory: Path,
    descriptor: RecordingDescriptor,
    selection: FrameSelection,
    schema: Any,  # a pyarrow.Schema, from `frame_schema`
    on_problem: Callable[[ReadProblem], None],
    on_progress: Callable[[int], None] = lambda position: None,
    file_system: ReadableFileSystem | None = None,
) -> Iterator[Any]:
    """Yield the record batches of one recording; `on_problem` is told at the end if they end too early.

    `on_progress` is told the position after each batch.
    """
    from .vector.columns import BatchMaker
    from .vector.messages import MessageBlockJoiner
    from .vector.scan import FrameScanner

    scanner = FrameScanner(
        directory,
        descriptor,
        start_position=selection.start_position,
        stop_position=selection.stop_position,
        bound_position=selection.bound_position,
        checksummed=selection.checksums,
        block_length_bytes=selection.batch_length_bytes,
        file_system=file_system,
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


def _open(
    location: ArchiveLocation,
    entries: Sequence[CatalogEntry],
    selection: FrameSelection,
    schema: Any,
    on_problem: Callable[[ReadProblem], None],
) -> Any:
    """Check what can be checked before the first batch is asked for."""
    from pyarrow import RecordBatchReader

    from .vector.scan import check_block_length

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
        yield from read_batches(
            location.directory, entry.descriptor, selection, schema, on_problem, file_system=location.file_system
        )


def _raise_problem(problem: ReadProblem) -> None:
    raise CorruptionError(problem.reason, recording_id=problem.recording_id, position=problem.position)
