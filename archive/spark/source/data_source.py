"""The data source `aeron_archive`: recordings, Aeron's or ours, as DataFrames.

    spark.read.format("aeron_archive").option("messages", "true").load("data/node-0")

Spark plans a query in a Python process of its own and reads each partition in another; instances of these classes are
what travels between them.

No filter of a query is taken over (`pushFilters`): Spark 4.3 keeps what a scan with such filters reads for all scans of
the same DataFrame, so that a query on it without a filter, or with two of them, gets wrong rows. The option `where`
belongs to the DataFrame instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...errors import CorruptionError
from ...reading.frame_batches import ReadProblem
from ...reading.log_frames import add_group_column
from ..streaming.stream import LogStreamReader
from .batch_reader import read_partition
from .catalog_tables import find_options, keep_options, table_options
from .columns import check_struct, frame_struct
from .error_lines import said_in_one_line
from .groups import GroupPartition, GroupsReadPlan, count_groups, group_struct, plan_groups, without_group
from .options import STREAM_OPTIONS, ReadMode, ReadOptions, parse_options
from .partitions import FramePartition, ReadPlan, plan_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_NAME: Final = "aeron_archive"


def register(spark: SparkSession) -> None:
    """Make `format("aeron_archive")` known to a session.

    Needed only where Spark cannot find the package `pyspark_trimaran` by itself.
    """
    spark.dataSource.register(AeronArchiveDataSource)


class AeronArchiveDataSource(DataSource):
    """Recordings as DataFrames; docs/spark.md has the options and columns."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)` and `USING`."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The columns asked for by the option `columns`, or all.

        Raises:
            ConfigurationError: an option is unknown or wrong.
        """
        with said_in_one_line():
            of_table = table_options(self.options)
            options = self.options if of_table is None else of_table
            parsed = parse_options(options, also=STREAM_OPTIONS)
            make_struct = frame_struct if count_groups(parsed) is None else group_struct
            schema = make_struct(parsed.columns)
            return schema if of_table is None else keep_options(schema, of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query.

        Raises:
            ConfigurationError: an option is unknown or wrong, or a column of the schema is.
        """
        with said_in_one_line():
            options = parse_options(find_options(schema, self.options))
            return AeronArchiveReader(options, schema, count_groups(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # the name is Spark's
        """Make the reader of a streaming query, which checks options and columns when it is first asked."""
        return LogStreamReader(self.options, schema)


class AeronArchiveReader(DataSourceReader):
    """Plans and reads the partitions of one query; Spark evaluates its filters."""

    def __init__(self, options: ReadOptions, schema: StructType, group_count: int | None = None) -> None:
        """`group_count` is that of a directory with groups.

        Raises:
            ConfigurationError: a column of the schema is unknown, named twice, or of another type.
        """
        self._options = options
        self._group_count = group_count
        self._schema = schema
        self._frame_schema = schema if group_count is None else without_group(schema)
        self._columns = check_struct(self._frame_schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read; Spark wants a list.

        Raises:
            ConfigurationError: what the options ask for is not there.
            ArchiveError: no such directory or recording.
            CorruptionError: an entry of the catalog is damaged, and the mode is FAILFAST.
            OSError: the disk or the store refused.
        """
        with said_in_one_line():
            plan: ReadPlan | GroupsReadPlan
            if self._group_count is None:
                plan = plan_read(self._options, self._columns)
            else:
                plan = plan_groups(self._options, self._columns, self._group_count)
            for problem in plan.problems:
                _problem_handler(self._options.mode)(problem)
            return [InputPartition(partition) for partition in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition; nothing for the empty one that Spark makes where there is none.

        Raises:
            CorruptionError: frames are not valid, and the mode is FAILFAST.
            OSError: the disk or the store refused.
        """
        value = partition.value
        frames = value.frames if isinstance(value, GroupPartition) else value
        if not isinstance(frames, FramePartition):
            return
        schema = to_arrow_schema(self._frame_schema, timezone="UTC")
        with said_in_one_line():
            batches = read_partition(frames, schema, _problem_handler(frames.settings.mode))
            if not isinstance(value, GroupPartition):
                yield from batches
                return
            full = to_arrow_schema(self._schema, timezone="UTC")
            for batch in batches:
                yield add_group_column(batch, value.group_index, full)


def _problem_handler(mode: ReadMode) -> Any:
    """What is done with a problem: raised, said in the log of the executor, or nothing."""
    return {ReadMode.FAILFAST: _raise, ReadMode.PERMISSIVE: _say, ReadMode.DROPMALFORMED: _ignore}[mode]


def _raise(problem: ReadProblem) -> None:
    raise CorruptionError(problem.reason, recording_id=problem.recording_id, position=problem.position)


def _say(problem: ReadProblem) -> None:
    """Print a line: what a worker prints to standard error is in the log of its executor."""
    where = f"recording_id={problem.recording_id} position={problem.position}"
    sys.stderr.write(f"aeron_archive: frames left out: {where}: {problem.reason}\n")


def _ignore(problem: ReadProblem) -> None:
    pass
