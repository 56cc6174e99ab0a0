"""A member's directory with groups as one DataFrame: the rows of every group's log, and a column that says which.

The column `group` is there where the directory has groups, and nowhere else: the rows of one log look the same whether
or not Trimaran knows groups. It comes last, unless the option `columns` or a schema says otherwise. The option `group`
chooses some groups; the files of the others are not opened.

Positions of different groups have no common order. So what names a position is refused where several are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import IntegerType, StructField, StructType

from ....service_api.errors import ConfigurationError
from ...log.group_directories import find_group_count
from ...log.member_directory import locate
from ...log.member_groups import common_group_count, group_path, read_group_count
from ...reading.frame_batches import ReadProblem
from ...reading.frame_columns import GROUP_COLUMN
from .columns import frame_struct
from .filters import NO_ROW
from .options import Committed, ReadOptions, expect_one_log
from .partitions import FramePartition, plan_read


@dataclass(frozen=True)
class GroupPartition:
    """A partition of one group's log."""

    group_index: int
    frames: FramePartition


@dataclass(frozen=True)
class GroupsReadPlan:
    """The partitions of a read of several logs."""

    partitions: tuple[GroupPartition, ...]
    problems: tuple[ReadProblem, ...]


def count_groups(options: ReadOptions) -> int | None:
    """Read how many groups the directory of a read has, or each of several; None: it is one of one log.

    Raises:
        ConfigurationError: the file that says so cannot be read; directories say different things; or the options are
            about groups, and there are none.
    """
    count = read_group_count(options.path)
    if count is None and "," in options.path:
        count = common_group_count([part.strip() for part in options.path.split(",") if part.strip()])
    if count is None:
        expect_one_log(options)
    return count


def choose_groups(options: ReadOptions, group_count: int) -> tuple[int, ...]:
    """Return the groups that a read is of, in their order: those of the option `group` that `where` does not exclude.

    Raises:
        ConfigurationError: there is no such group, or options name positions and there are several groups.
    """
    chosen = options.groups if options.groups is not None else tuple(range(group_count))
    for index in chosen:
        if index >= group_count:
            raise ConfigurationError(f"option group: {index} expected 0 to {group_count - 1}: {options.path}")
    chosen = tuple(index for index in chosen if options.where.bind_group(index) != NO_ROW)
    positions = {
        "startPosition": options.start_position,
        "stopPosition": options.stop_position,
        "committed": None if isinstance(options.committed, Committed) else options.committed,
        "exceptPositions": options.excepted or None,
    }
    for name, value in positions.items():
        if value is not None:
            expect_one_group(name, value, chosen)
    return chosen


def expect_one_group(name: str, value: object, chosen: Sequence[int]) -> None:
    """Refuse an option that names a position or a recording, where several groups are read.

    Raises:
        ConfigurationError: there are.
    """
    if len(chosen) > 1:
        what = "recordings" if name == "recordingId" else "positions"
        raise ConfigurationError(
            f"{what} are those of one log: {name}={value} with {len(chosen)} groups expected one group, such as group=0"
        )


def group_struct(columns: Sequence[str] | None) -> StructType:
    """Make the schema of these columns, or of all, with the group's."""
    names = [name for name in columns or () if name != GROUP_COLUMN]
    frame = frame_struct(names if columns is not None else None)
    if columns is not None and GROUP_COLUMN not in columns:
        return frame
    fields = [*frame.fields]
    fields.insert(len(fields) if columns is None else [*columns].index(GROUP_COLUMN), _group_field())
    return StructType(fields)


def without_group(schema: StructType) -> StructType:
    """Return the columns of a schema that are those of a frame.

    Raises:
        ConfigurationError: the group's column is of another type.
    """
    for field in schema:
        if field.name == GROUP_COLUMN and field.dataType != IntegerType():
            raise ConfigurationError(
                f"column {GROUP_COLUMN} has another type: {field.dataType.simpleString()} expected int"
            )
    return StructType([field for field in schema if field.name != GROUP_COLUMN])


def plan_groups(options: ReadOptions, columns: tuple[str, ...], group_count: int) -> GroupsReadPlan:
    """Plan a batch read of the chosen groups, with these columns of frames.

    Raises:
        ConfigurationError: several directories are named; or see `choose_groups`.

    Also what `plan_read` raises.
    """
    chosen = choose_groups(options, group_count)
    place = locate(options.path)
    if find_group_count(place.directory, place.file_system) is None:
        raise ConfigurationError(
            f"several directories with groups: path={options.path}; a batch read takes one of them, each member has "
            "the rows of all groups"
        )
    partitions: list[GroupPartition] = []
    problems: list[ReadProblem] = []
    for index in chosen:
        plan = plan_read(options_of_group(options, index, columns), columns)
        partitions += [GroupPartition(index, frames) for frames in plan.partitions]
        problems += [problem.of_group(index) for problem in plan.problems]
    return GroupsReadPlan(tuple(partitions), tuple(problems))


def options_of_group(options: ReadOptions, group_index: int, columns: tuple[str, ...]) -> ReadOptions:
    """Return the options with which one group's log is read alone, with these columns of frames."""
    return replace(
        options,
        path=group_path(options.path, group_index),
        groups=None,
        columns=columns,
        where=options.where.bind_group(group_index),
    )


def _group_field() -> StructField:
    return StructField(GROUP_COLUMN, IntegerType(), nullable=False)
