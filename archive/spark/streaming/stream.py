"""Following a live log: `spark.readStream.format("aeron_archive")`.

The problem: a stream must show each entry of a cluster's log exactly once, while members die, are wiped and lag behind,
leaders change, and the query itself is killed. What an archive has recorded is not enough to go by: a suffix that no
majority had is replaced after an election, and a row that was shown cannot be taken back.

The idea: an offset is a position in the log, and the log up to a committed position never changes. So a batch is a
range of positions; reading it again, from whichever member, gives the same rows. Spark writes the range into its
checkpoint before it reads, and that it is done after the sink has it. What lies between is done again after a crash,
with the same range: a sink that keeps one result for each range or position has each row once.

Where the commit position comes from:

- *the directories alone* (the default, always on): what `recording.log` and the log prove, see `commit_proof`.
  Safe without any configuration, and late: it moves at snapshots and when a leadership term begins.
- *`commitFrom=HOST:PORT,...`*: members are asked on their consensus endpoints with every batch. Milliseconds behind the
  cluster. One that cannot be reached makes the stream late, never wrong.
- *`committed=POSITION`* or *`committed=false`*: the user says so; the latter for recordings that are no cluster's log.

Rejected: a position that a majority of the directories has recorded (not committed until an entry of the current term
is: Raft paper §5.4.2), and a position that each member publishes in a file of its own (a write on the path of every
commit, to say what it already answers).

Invariant: what is handed out is committed, and the directory it is read from was fitted to a leadership term as of
which it is; `stream_planner` decides that. A batch names every directory that has it: one that disappears while it is
read is replaced by the next one, which goes on behind the rows that were given.

A directory with groups has several logs. Their rows are one stream with a column `group`, as in a batch read, and an
offset is a position in each; see `stream_groups`.

Retention does not know of a stream that reads files. One that falls behind the oldest segment of every member ends with
an error; `keep_all`, or a query that runs, prevents it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ....service_api.errors import ClusterError
from ....service_api.types import TimeUnit
from ...errors import ArchiveError, CorruptionError
from ...files.vector.scan import FrameScanner
from ...log.member_directory import locate_archive
from ...reading.frame_batches import DEFAULT_BATCH_LENGTH_BYTES, FrameSelection, find_problem
from ...reading.log_frames import add_group_column
from ...reading.vector.messages import MessageBlockJoiner
from ..source.batch_reader import BatchShaper
from ..source.catalog_tables import find_options
from ..source.columns import check_struct
from ..source.error_lines import said_in_one_line
from ..source.groups import count_groups, without_group
from ..source.partitions import ReadSettings, find_read_time_unit
from .stream_cut import NO_LIMIT
from .stream_offset import RowOptions
from .stream_options import StreamOptions, parse_stream_options
from .stream_plan import StreamPlan, make_stream_plan
from .stream_planner import LogRange, StreamLogSource

RangeReader = Callable[[StreamLogSource, int, int], Iterator[Any]]
"""Yields the record batches of all frames or messages in [start_position, stop_position) of a source."""


class RangePartition(InputPartition):
    """One task's part of a batch, and how its rows are read; `group_index` is that of a directory with groups."""

    def __init__(self, log_range: LogRange, settings: ReadSettings, group_index: int | None) -> None:
        super().__init__(log_range)
        self.log_range = log_range
        self.settings = settings
        self.group_index = group_index


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one log, or of those of groups, for Spark: plans on the driver, reads on the executors.

    Spark makes one that lives as long as the query and plans, and one more for each batch to `read` with. Options and
    columns are checked when the first method is called: an error of the constructor PySpark covers with one of its own.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options)
        self._schema = schema
        self._plan: StreamPlan | None = None
        self._time_units: dict[int | None, TimeUnit] = {}

    @functools.cached_property
    def _options(self) -> StreamOptions:
        return parse_stream_options(find_options(self._schema, self._given))

    @functools.cached_property
    def _columns(self) -> tuple[str, ...]:
        return check_struct(self._schema if self._group_count is None else without_group(self._schema))

    @functools.cached_property
    def _group_count(self) -> int | None:
        return count_groups(self._options.read)

    @functools.cached_property
    def _rows(self) -> RowOptions:
        read = self._options.read
        return RowOptions(messages=read.messages, padding=read.padding, where=read.where.sql)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plan": None}

    # --- on the driver

    @said_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # the name is Spark's
        """Return the offset of a new query; a checkpoint goes before it."""
        return self._planned().initial_offset()

    @said_in_one_line()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # the name is Spark's
        """Return what `maxBytesPerTrigger` says.

        Raises:
            ConfigurationError: an option is unknown or wrong.
        """
        return ReadMaxBytes(self._options.max_batch_bytes)

    @said_in_one_line()
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's
        """Return the end of the next batch: committed, recorded, between two frames, within the limit."""
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else NO_LIMIT
        return self._planned().latest_offset(start, limit_bytes)

    @said_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the name is Spark's
        """End at what is committed now."""
        self._planned().freeze()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802  # the name is Spark's
        """Say for the query's progress how far the log is known to be committed."""
        return None if self._plan is None else self._plan.newest()

    @said_in_one_line()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Split a batch, which may be one that an earlier run has begun."""
        read = self._options.read
        ranges = self._planned().plan_ranges(start, end)
        return [
            RangePartition(
                log_range,
                ReadSettings(
                    columns=self._columns,
                    time_unit=self._find_time_unit(group_index, log_range.sources[0]),
                    row_filter=read.where if group_index is None else read.where.bind_group(group_index),
                    messages=read.messages,
                    padding=read.padding,
                    checksums=read.checksums,
                ),
                group_index,
            )
            for group_index, log_range in ranges
        ]

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            self._plan = make_stream_plan(self._options, self._rows, self._group_count)
        return self._plan

    def _find_time_unit(self, group_index: int | None, source: StreamLogSource) -> TimeUnit:
        """Find the unit of timestamps, once for each log: it is the same at every member, and for ever."""
        if group_index not in self._time_units:
            location = locate_archive(source.archive)
            self._time_units[group_index] = find_read_time_unit(self._options.read, location, self._columns)
        return self._time_units[group_index]

    # --- on an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as record batches; nothing for the empty one that Spark makes by itself."""
        if not isinstance(partition, RangePartition):
            return
        full = to_arrow_schema(self._schema, timezone="UTC")
        group_index = partition.group_index
        of_frames = full if group_index is None else to_arrow_schema(without_group(self._schema), timezone="UTC")
        with said_in_one_line():
            for batch in read_from_any(partition.log_range, partial(read_range, partition.settings, of_frames)):
                yield batch if group_index is None else add_group_column(batch, group_index, full)


def read_range(
    settings: ReadSettings, schema: Any, source: StreamLogSource, start_position: int, stop_position: int
) -> Iterator[Any]:
    """Yield the record batches of all frames, or messages, in [start_position, stop_position) of one archive.

    Raises:
        ArchiveError: not all of them are there.
        OSError: the disk refused.
    """
    scanner = FrameScanner(
        source.archive,
        source.descriptor,
        start_position=start_position,
        stop_position=stop_position,
        checksummed=settings.checksums,
        block_length_bytes=DEFAULT_BATCH_LENGTH_BYTES,
    )
    shaper = BatchShaper(settings, source.descriptor.recording_id, schema)
    for block in MessageBlockJoiner(scanner) if settings.messages else scanner:
        batch = shaper.shape(block)
        if batch is not None:
            yield batch
    problem = find_problem(source.descriptor, FrameSelection(stop_position=stop_position), scanner.ending())
    if problem is not None:
        raise CorruptionError(problem.reason, recording_id=problem.recording_id, position=problem.position)


def read_from_any(log_range: LogRange, read_range: RangeReader) -> Iterator[Any]:
    """Read a range from the first source that has it; where one fails the next goes on behind the rows that were given.

    Their logs are identical in the range, so the rows are.

    Raises:
        ArchiveError: all of them failed; says where each one did.
    """
    given_count = 0
    failures = []
    for source in log_range.sources:
        row_count = 0
        try:
            for batch in read_range(source, log_range.start_position, log_range.stop_position):
                first = max(given_count - row_count, 0)
                row_count += batch.num_rows
                if first < batch.num_rows:
                    given_count += batch.num_rows - first
                    yield batch.slice(first)
            return
        except (ClusterError, OSError) as error:
            failures.append(f"{source.archive}: {error}")
    raise ArchiveError(
        f"no member has the log from position={log_range.start_position} up to {log_range.stop_position}: "
        + "; ".join(failures),
        position=log_range.start_position,
    )
