"""`archive.frames`: recordings as Arrow record batches, for pandas, Polars, DuckDB and Spark.

Needs `trimaran[arrow]`, which is imported only when this is used. The result is a `pyarrow.RecordBatchReader`: an
iterator of batches that knows their schema, and that whatever speaks Arrow reads directly.

A member's directory with groups holds several logs. Their rows come one group after the other, with the column `group`:
positions and times of different groups have no common order, so no order is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...service_api.errors import ConfigurationError
from ...service_api.types import TimeUnit
from ..log.member_directory import ArchiveLocation, locate_archive
from ..log.member_groups import group_path, read_group_count
from .frame_batches import (
    DEFAULT_BATCH_LENGTH_BYTES,
    FrameSelection,
    ReadProblem,
    find_archive_time_unit,
    make_schema,
    open_recordings,
    raise_problem,
)
from .frame_columns import GROUP_COLUMN

OnReadProblem = Callable[[ReadProblem], None]


def frames(
    path: Path | str,
    *,
    group: int | Sequence[int] | None = None,
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
    on_problem: OnReadProblem | None = None,
) -> Any:
    """Read the frames of an archive directory, or a member's, ours or a real Aeron's, as Arrow record batches.

    `path` may be a URL that fsspec knows, such as `s3://bucket/archive`, given as text.
    Gives a `pyarrow.RecordBatchReader`. All VALID recordings in the order of the catalog, or the one with
    `recording_id`, whatever its state. A batch holds the frames of about `batch_length_bytes` of a recording
    (64 KiB to 64 MiB), which bounds the memory. docs/archive-frames.md lists the columns.

    - `group`: in the directory of a member with groups, the groups that are read; None: all. Their rows come one group
      after the other, with the column `group` (int32) last, unless `columns` says otherwise.
    - `start_position`: rows that begin before it are left out; it may lie between two frames. Without `stop_position`
      reading ends where the recording does. Positions need a `recording_id`, and one group.
    - `bound_position`: frames that end beyond it are left out, such as what is not committed yet.
    - `columns`: only these, in this order. Without `payload` no payload is copied.
    - `time_unit`: the unit of the cluster's clock, which the column `timestamp` then has; None: what the log says.
    - `checksums`: whether each CRC-32 is checked; None checks where the catalog says that there is one.
    - `reassemble`: complete messages instead of frames, each as if one frame had been long enough for it.
    - `padding`: whether padding frames are rows; they are never messages.

    Raises:
        ConfigurationError: no pyarrow, no such column or group, positions without a recording id or of several groups,
            no library for the URL.
        ArchiveError: no such directory or recording, or a start position before the oldest one.
        OSError: the disk or the store refused, also from the iteration.
        CorruptionError: from the iteration, after the rows before the damage. With `on_problem`, that is called
            instead and reading goes on with the next recording; its reason begins with the group, if there are groups.
    """
    selection = FrameSelection(
        start_position=start_position,
        stop_position=stop_position,
        bound_position=bound_position,
        checksums=checksums,
        reassemble=reassemble,
        padding=padding,
        batch_length_bytes=batch_length_bytes,
    )
    if recording_id is None and selection.has_positions:
        raise ConfigurationError("positions are those of one recording: expected a recording_id with them")
    chosen = _choose_groups(path, group, columns, has_positions=selection.has_positions)
    return _open(path, chosen, recording_id, columns, time_unit, selection, on_problem or raise_problem)


def add_group_column(batch: Any, group_index: int, schema: Any) -> Any:
    """Return a record batch of frames with the group's column where a `pyarrow.Schema` has it; as it is, without."""
    import pyarrow as pa

    index = schema.get_field_index(GROUP_COLUMN)
    if index < 0:
        return batch
    columns = [*batch.columns]
    columns.insert(index, pa.repeat(pa.scalar(group_index, pa.int32()), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _choose_groups(
    path: Path | str, group: int | Sequence[int] | None, columns: Sequence[str] | None, *, has_positions: bool
) -> tuple[int, ...] | None:
    """Return the groups to be read, in their order; None: the directory is of one log."""
    count = read_group_count(path)
    if count is None:
        if group is not None or GROUP_COLUMN in (columns or ()):
            raise ConfigurationError(
                f"{path} is read as one log: expected no group and no column {GROUP_COLUMN}, which are for the "
                "directory of a member with groups"
            )
        return None
    wanted = range(count) if group is None else [group] if isinstance(group, int) else group
    chosen = tuple(sorted(set(wanted)))
    if not chosen or not all(0 <= index < count for index in chosen):
        raise ConfigurationError(f"group={group!r} expected some of 0 to {count - 1}: {path}")
    if has_positions and len(chosen) > 1:
        raise ConfigurationError(
            f"positions are those of one log: {len(chosen)} groups in {path}; name one, such as group={chosen[0]}"
        )
    return chosen


def _open(
    path: Path | str,
    chosen: Sequence[int] | None,
    recording_id: int | None,
    columns: Sequence[str] | None,
    time_unit: TimeUnit | None,
    selection: FrameSelection,
    on_problem: OnReadProblem,
) -> Any:
    """Open one log, or every chosen group before the first batch is asked for: one that is missing is told at once."""
    names = None if columns is None else [name for name in columns if name != GROUP_COLUMN]
    if chosen is not None and columns is not None and (not names or len(columns) - len(names or ()) > 1):
        raise ConfigurationError(f"columns={[*columns]} expected {GROUP_COLUMN} once at most, and another column")
    schema = make_schema(names, time_unit or TimeUnit.MILLIS)
    paths = {0: path} if chosen is None else {index: group_path(str(path), index) for index in chosen}
    locations = {index: locate_archive(each) for index, each in paths.items()}
    if time_unit is None and "timestamp" in schema.names:
        schema = make_schema(names, _common_time_unit(locations, path))
    if chosen is None:
        return open_recordings(locations[0], recording_id, selection, schema, on_problem)
    import pyarrow as pa

    fields = [*schema]
    if columns is None or GROUP_COLUMN in columns:
        place = len(fields) if columns is None else [*columns].index(GROUP_COLUMN)
        fields.insert(place, pa.field(GROUP_COLUMN, pa.int32(), nullable=False))
    full = pa.schema(fields)
    readers = {
        index: open_recordings(location, recording_id, selection, schema, partial(_tell, on_problem, index))
        for index, location in locations.items()
    }

    def read() -> Iterator[Any]:
        for index, reader in readers.items():
            for batch in reader:
                yield add_group_column(batch, index, full)

    return pa.RecordBatchReader.from_batches(full, read())


def _common_time_unit(locations: dict[int, ArchiveLocation], path: Path | str) -> TimeUnit:
    units = {index: find_archive_time_unit(location) for index, location in locations.items()}
    if len(set(units.values())) > 1:
        said = ", ".join(f"group {index} {unit.name.lower()}" for index, unit in units.items())
        raise ConfigurationError(
            f"groups with different units of time in {path}: {said}; name a group with one of them, or a time_unit"
        )
    return next(iter(units.values()))


def _tell(on_problem: OnReadProblem, group_index: int, problem: ReadProblem) -> None:
    on_problem(problem.of_group(group_index))
