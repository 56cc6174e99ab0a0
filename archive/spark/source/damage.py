"""The damage in an archive as a DataFrame: the ranges that a read in PERMISSIVE mode leaves out, and torn writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from ...reading.frame_batches import ReadProblem
from .batch_reader import find_problems
from .error_lines import said_in_one_line
from .groups import GroupPartition, GroupsReadPlan, count_groups, plan_groups
from .options import ReadOptions, parse_options
from .partitions import FramePartition, ReadPlan, plan_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def problems(spark: SparkSession, path: str, **options: object) -> DataFrame:
    """List what a read of `path` with these options would leave out.

    Columns: `recording_id` (long) and `position` (long), both null where the catalog itself is damaged, and `reason`
    (string). `options` are those of the data source, as keywords: `problems(spark, path, recordingId="all")`. Every
    frame is checked; a row means that frames from `position` on are left out, up to the next right one. Where a
    recording without a stop position ends in a torn write, such as a last frame with a wrong checksum, that is a row,
    too. Of a member with groups, each reason begins with the group.
    """
    spark.dataSource.register(_ProblemsDataSource)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return spark.read.format(_ProblemsDataSource.name()).options(**texts).load(str(path))


class _ProblemsDataSource(DataSource):
    """Reads as `aeron_archive` does and gives the problems instead of the rows."""

    @classmethod
    def name(cls) -> str:
        return "aeron_archive_problems"

    def schema(self) -> StructType:
        return StructType().add("recording_id", LongType()).add("position", LongType()).add("reason", StringType())

    def reader(self, schema: StructType) -> DataSourceReader:
        with said_in_one_line():
            return _ProblemsReader(parse_options(self.options), schema)


class _ProblemsReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with said_in_one_line():
            plan: ReadPlan | GroupsReadPlan
            group_count = count_groups(self._options)
            if group_count is None:
                plan = plan_read(self._options, ("position",))
            else:
                plan = plan_groups(self._options, ("position",), group_count)
        # What was found while planning is a partition, too.
        return [InputPartition(part) for part in (plan.problems, *plan.partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        value = partition.value
        found: list[ReadProblem] = []
        if isinstance(value, GroupPartition):
            find_problems(value.frames, found.append)
            found = [problem.of_group(value.group_index) for problem in found]
        elif isinstance(value, FramePartition):
            find_problems(value, found.append)
        else:
            found.extend(value)
        if found:
            columns = zip(*[(problem.recording_id, problem.position, problem.reason) for problem in found], strict=True)
            schema = to_arrow_schema(self._schema, timezone="UTC")
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
