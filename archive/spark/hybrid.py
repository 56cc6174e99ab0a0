"""`read_log`: a log as one DataFrame, full segments from the Parquet of an export, the rest from the archive.

A Python data source cannot hand Parquet to Spark's own reader, which is vectorised, takes single columns and counts
rows without reading any. So this is a union of two reads, planned together: the data source leaves out exactly the
positions that the files hold. What it reads is planned again by each query, so a log that grows is read to its end.

Of a directory with groups, each group's log is planned so with its own export, and the column `group` is added.

The files of an export are trusted where they are surely of these segments: the export says of the recording what the
catalog says, its options are those of the read, and the segment was not changed after its file was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...service_api.errors import ConfigurationError
from ...service_api.types import TimeUnit
from ..format.descriptor import RecordingDescriptor
from ..log.log_file import LogFile
from ..log.member_directory import ArchiveLocation, locate_archive
from ..reading.export import (
    MANIFEST_NAME,
    ExportFormat,
    ExportPart,
    ExportRefusedError,
    closed_file_name,
    is_current,
    plan_parts,
    read_manifest,
    recording_identity,
)
from ..reading.frame_columns import GROUP_COLUMN, choose_columns
from .source.columns import frame_struct
from .source.data_source import SHORT_NAME, register
from .source.groups import choose_groups, count_groups, group_struct, options_of_group
from .source.options import ReadOptions, expect_one_log, parse_options
from .source.partitions import choose_recordings, find_bound, find_read_time_unit

_PADDING: Final = 0


@dataclass(slots=True, frozen=True)
class LogPlan:
    """What a read takes from where."""

    files: tuple[str, ...]
    """Parquet files, each of one full segment."""
    ranges: tuple[tuple[int, int, int], ...]
    """What they hold: recording id, and from which position to which."""
    is_all: bool
    """Nothing else is asked for: no frame has to be read from the archive."""


def read_log(
    spark: SparkSession, path: str | Path, *, parquet: str | Path | None = None, **options: object
) -> DataFrame:
    """Read a log: what `spark.read.format("aeron_archive").options(...).load(path)` gives, faster where it can be.

    `parquet` is the directory of an export of this archive (`trimaran archive export`); full segments that it has are
    read from there, everything else from the archive. `options` are those of the data source, as keywords:
    `read_log(spark, path, parquet="log", messages=True, columns="position,template_id")`.

    Raises:
        ConfigurationError: an option is wrong, or the export is of another archive, or holds something else.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    register(spark)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    raw = spark.read.format(SHORT_NAME).options(**texts)
    if parquet is None:
        return raw.load(str(path))
    parsed = parse_options({"path": str(path), **texts})
    group_count = count_groups(parsed)
    if group_count is None:
        plan = plan_log(parsed, Path(parquet))
        return _join(raw, parsed, plan, lambda: _read_files(spark, parsed, plan.files))
    groups = choose_groups(parsed, group_count)
    parts = [_read_group(spark, raw.option("group", str(index)), parsed, Path(parquet), index) for index in groups]
    return reduce(DataFrame.union, parts) if parts else raw.load(str(path))


def _read_group(
    spark: SparkSession, raw: DataFrameReader, options: ReadOptions, parquet: Path, group_index: int
) -> DataFrame:
    """Read the log of one group from its export and its archive, with the column of the group where it is asked for."""
    names = choose_columns(options.columns and [name for name in options.columns if name != GROUP_COLUMN])
    own = options_of_group(options, group_index, names)
    plan = plan_log(own, parquet / f"{GROUP_COLUMN}={group_index}")

    def read_files() -> DataFrame:
        files = _read_files(spark, own, plan.files).withColumn(GROUP_COLUMN, F.lit(group_index).cast("int"))
        return files.select(*group_struct(options.columns).names)

    return _join(raw, options, plan, read_files)


def _join(raw: DataFrameReader, options: ReadOptions, plan: LogPlan, read_files: Callable[[], DataFrame]) -> DataFrame:
    """Join what files have with what only the archive has."""
    if not plan.files:
        return raw.load(options.path)
    found = read_files()
    if plan.is_all:
        return found
    rest = raw.option("exceptPositions", ",".join(f"{name}:{start}-{stop}" for name, start, stop in plan.ranges))
    return found.union(rest.load(options.path))


def plan_log(options: ReadOptions, parquet: Path) -> LogPlan:
    """Find what of a read is in an export.

    Raises:
        ConfigurationError: the export is of another archive, or holds something else.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    location = locate_archive(options.path)
    expect_one_log(options)
    descriptors, problems = choose_recordings(options, location)
    manifest = _read_manifest(parquet, options)
    columns = choose_columns(options.columns)
    if "timestamp" in _needed_columns(options):
        _check_time_unit(manifest, parquet, find_read_time_unit(options, location, columns))
    files: list[str] = []
    ranges: list[tuple[int, int, int]] = []
    is_all = not problems
    for descriptor in descriptors:
        known = manifest["recordings"].get(str(descriptor.recording_id))
        if known is not None and known != recording_identity(descriptor):
            raise ConfigurationError(
                f"{parquet} holds the export of another archive: recording_id={descriptor.recording_id} is {known} "
                f"there, and {recording_identity(descriptor)} in {location}"
            )
        parts = [] if known is None else list(_exported_parts(options, location, descriptor, parquet))
        files += [str(parquet / closed_file_name(part, ExportFormat.PARQUET)) for part in parts]
        ranges += _joined(descriptor, parts)
        is_all = is_all and _is_all(options, location, descriptor, ranges)
    if files and "timestamp" in _needed_columns(options):
        _check_file(Path(files[0]))
    return LogPlan(tuple(files), tuple(ranges), is_all)


def _read_manifest(parquet: Path, options: ReadOptions) -> dict[str, Any]:
    """Read what the export holds, and check that it is what the read asks for."""
    try:
        manifest = read_manifest(parquet / MANIFEST_NAME)
    except ExportRefusedError as error:
        raise ConfigurationError(str(error)) from error
    if manifest is None:
        raise ConfigurationError(f"no export: parquet={parquet} expected a directory that trimaran archive export made")
    wanted = {"format": ExportFormat.PARQUET.value, "messages": options.messages}
    for name, value in wanted.items():
        if manifest.get(name) != value:
            raise ConfigurationError(f"{parquet} holds another export: {name}={manifest.get(name)} expected {value}")
    columns = _needed_columns(options)
    missing = [name for name in columns if name not in (manifest.get("columns") or columns)]
    if missing:
        raise ConfigurationError(f"{parquet} holds no column {missing[0]}: expected {','.join(columns)}")
    return manifest


def _check_time_unit(manifest: dict[str, Any], parquet: Path, unit: TimeUnit) -> None:
    if manifest.get("time_unit") != unit.name:
        raise ConfigurationError(
            f"{parquet} holds another export: time_unit={manifest.get('time_unit')} expected {unit.name}, the unit of "
            "this log: export it again with --time-unit"
        )


def _check_file(file: Path) -> None:
    """Refuse an export with timestamps that Spark cannot read."""
    if str(pq.read_schema(file).field("timestamp").type) == "timestamp[ns, tz=UTC]":
        raise ConfigurationError(f"{file} has timestamps in nanoseconds: export it again with --overwrite")


def _exported_parts(
    options: ReadOptions, location: ArchiveLocation, descriptor: RecordingDescriptor, parquet: Path
) -> Iterator[ExportPart]:
    """Yield the full segments whose files are there and whose frames are all asked for."""
    bound = find_bound(options, location, descriptor, LogFile(location, descriptor).find_reach())
    names = set(os.listdir(parquet))
    for part in plan_parts(location, descriptor, bound):
        name = closed_file_name(part, ExportFormat.PARQUET)
        is_wanted = part.is_closed and part.start_position >= (options.start_position or 0)
        if is_wanted and name in names and _is_current(location, part, parquet / name):
            yield part


def _is_current(location: ArchiveLocation, part: ExportPart, file: Path) -> bool:
    changed_at_ns = LogFile(location, part.descriptor).changed_at_ns(part.base_position)
    return changed_at_ns is not None and is_current(file, changed_at_ns)


def _joined(descriptor: RecordingDescriptor, parts: Sequence[ExportPart]) -> list[tuple[int, int, int]]:
    """Join segments that follow each other."""
    ranges: list[tuple[int, int, int]] = []
    for part in parts:
        start, stop = part.start_position, part.base_position + descriptor.segment_file_length
        if ranges and ranges[-1][2] == start:
            start = ranges.pop()[1]
        ranges.append((descriptor.recording_id, start, stop))
    return ranges


def _is_all(
    options: ReadOptions,
    location: ArchiveLocation,
    descriptor: RecordingDescriptor,
    ranges: Sequence[tuple[int, int, int]],
) -> bool:
    """Return whether one range holds all that is asked for of a recording that has stopped."""
    if descriptor.stop_position is None:
        return False
    bound = find_bound(options, location, descriptor, descriptor.stop_position)
    start = max(descriptor.start_position, options.start_position or 0)
    stop = descriptor.stop_position if bound is None else min(bound, descriptor.stop_position)
    own = [(first, last) for recording_id, first, last in ranges if recording_id == descriptor.recording_id]
    return start >= stop or any(first <= start and stop <= last for first, last in own)


def _needed_columns(options: ReadOptions) -> tuple[str, ...]:
    """Return the requested columns, and after them those that decide which rows are read."""
    columns = choose_columns(options.columns)
    others = (*options.where.columns, *(() if options.padding else ("type",)))
    return (*columns, *(name for name in dict.fromkeys(others) if name not in columns))


def _read_files(spark: SparkSession, options: ReadOptions, files: Sequence[str]) -> DataFrame:
    """Read files with Spark's own reader, which is told the columns and so opens none to plan."""
    found = spark.read.schema(frame_struct(_needed_columns(options))).parquet(*files).where(options.where.sql)
    if not options.padding:
        found = found.where(F.col("type") != _PADDING)
    return found.select(*choose_columns(options.columns))
