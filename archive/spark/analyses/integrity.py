"""Checks a log: frames without gaps, in order of position, term and time.

The data source checks each frame as it reads, and ends a recording where one is wrong; `problems` says where. This
checks what a DataFrame holds, wherever it came from: a join, an export, a copy in another system.

No window runs over all frames: each block of 16 MiB is checked by itself, and then the edges of the blocks, of
which there is a row each.
"""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_DATA, TYPE_PADDING
from .engine import Column, DataFrame, F, Window
from .log_columns import begins_message, check_columns, end_position, ends_message, is_data

BLOCK_LENGTH_BYTES: Final = 1 << 24
_INT32_MAX: Final = (1 << 31) - 1
FINDING_LIMIT: Final = 1000
"""Findings that are kept of each block: the first ones."""

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "term_offset", "stream_id", "term_id"),
    *("leadership_term_id", "timestamp"),
)


def integrity(log: DataFrame) -> DataFrame:
    """Return what is wrong with a log of frames: one row for each finding, none for a log without faults.

    Needs recording_id, position, frame_length, flags, type, term_offset, stream_id, term_id, leadership_term_id and
    timestamp of all frames of one range, padding included.

    Gives, ordered by recording_id and position: recording_id, position (of the frame at which it shows), finding,
    expected and actual (as text). The findings:

    - "position": not a multiple of 32; "frame_length": shorter than a header; "type": neither data nor padding;
    - "gap", "overlap": the frame begins after or before the end of the one before it;
    - "term_offset", "term_id", "stream_id": the frame's header does not go on where the one before it ended;
    - "fragments": a message begins inside another, or goes on without a beginning;
    - "leadership_term", "timestamp": it goes back. Time may go back by little where the leadership term changes, as
      leaders have clocks of their own.

    Of each 16 MiB the first thousand findings are given.

    Cost: one pass, one shuffle, and a sort by position within each 16 MiB.
    """
    check_columns(log, "integrity", *_COLUMNS)
    in_block = Window.partitionBy("recording_id", "block").orderBy("position")
    earlier = in_block.rowsBetween(Window.unboundedPreceding, -1)
    frames = (
        log.select(*_COLUMNS)
        .withColumn("block", F.floor(F.col("position") / F.lit(BLOCK_LENGTH_BYTES)))
        .withColumn("frame", _frame())
        .withColumns(
            {
                "before": F.lag("frame").over(in_block),
                "term_before": F.last("leadership_term_id", ignorenulls=True).over(earlier),
                "time_before": F.last("timestamp", ignorenulls=True).over(earlier),
            }
        )
    )
    order = [
        _goes_back("leadership_term", "term_before", "leadership_term_id", "position"),
        _goes_back("timestamp", "time_before", "timestamp", "position"),
    ]
    found = F.array_compact(F.array(*_alone(), *_pair("before", "frame"), *order))
    named = {name: F.when(F.col(name).isNotNull(), F.col("position")) for name in ("leadership_term_id", "timestamp")}
    blocks = frames.groupBy("recording_id", "block").agg(
        F.min_by("frame", "position").alias("first"),
        F.max_by("frame", "position").alias("last"),
        *(F.min(at).alias(f"{name}_at") for name, at in named.items()),
        *(F.min_by(name, at).alias(f"first_{name}") for name, at in named.items()),
        *(F.max_by(name, at).alias(f"last_{name}") for name, at in named.items()),
        F.slice(F.sort_array(F.flatten(F.collect_list(found))), 1, FINDING_LIMIT).alias("found"),
    )
    return _with_edges(blocks).orderBy("recording_id", "position", "finding")


def _frame() -> Column:
    """What the frame after it is held against."""
    return F.struct(
        F.col("position"),
        end_position().alias("end"),
        (F.col("position") - F.col("term_offset")).alias("base"),
        F.col("term_offset"),
        F.col("term_id"),
        F.col("stream_id"),
        (is_data() & ~ends_message()).alias("is_inside"),
        (is_data() & ~begins_message()).alias("goes_on"),
    )


def _with_edges(blocks: DataFrame) -> DataFrame:
    """Put the findings inside the blocks and those between them into rows."""
    by_recording = Window.partitionBy("recording_id").orderBy("block")
    so_far = by_recording.rowsBetween(Window.unboundedPreceding, -1)
    order = [
        _goes_back("leadership_term", "term_before", "first_leadership_term_id", "leadership_term_id_at"),
        _goes_back("timestamp", "time_before", "first_timestamp", "timestamp_at"),
    ]
    return (
        blocks.withColumn("last_before", F.lag("last").over(by_recording))
        .withColumns(
            {
                "term_before": F.last("last_leadership_term_id", ignorenulls=True).over(so_far),
                "time_before": F.last("last_timestamp", ignorenulls=True).over(so_far),
            }
        )
        .withColumn("edges", F.array_compact(F.array(*_pair("last_before", "first"), *order)))
        .select("recording_id", F.inline(F.concat("found", "edges")))
    )


def _alone() -> list[Column]:
    """What can be wrong with a frame by itself."""
    position, length, kind = (F.col(name) for name in ("position", "frame_length", "type"))
    return [
        _finding(position % FRAME_ALIGNMENT != 0, "position", position, F.lit("a multiple of 32"), position),
        _finding(length < HEADER_LENGTH, "frame_length", position, F.lit("32 or more"), length),
        _finding(~kind.isin(TYPE_DATA, TYPE_PADDING), "type", position, F.lit("0 or 1"), kind),
    ]


def _pair(before: str, after: str) -> list[Column]:
    """What can be wrong between two frames, structs as `_frame` makes them; nothing where the first is NULL."""

    def was(name: str) -> Column:
        return F.col(f"{before}.{name}")

    def now(name: str) -> Column:
        return F.col(f"{after}.{name}")

    position = now("position")
    adjoins = position == was("end")
    same_buffer = now("base") == was("base")
    next_term_id = F.when(same_buffer, was("term_id")).otherwise(was("term_id").cast("long") + 1)
    wrapped = F.when(next_term_id > _INT32_MAX, next_term_id - (1 << 32)).otherwise(next_term_id)
    expected_offset = position - was("base")
    inside = F.when(was("is_inside"), F.lit("the message goes on")).otherwise(F.lit("a message begins"))
    goes_on = F.when(now("goes_on"), F.lit("a message goes on")).otherwise(F.lit("a message begins"))
    return [
        _finding(position > was("end"), "gap", position, was("end"), position),
        _finding(position < was("end"), "overlap", position, was("end"), position),
        _finding(
            adjoins & ~same_buffer & (now("term_offset") != 0),
            *("term_offset", position, expected_offset, now("term_offset")),
        ),
        _finding(adjoins & (now("term_id") != wrapped), "term_id", position, wrapped, now("term_id")),
        _finding(now("stream_id") != was("stream_id"), "stream_id", position, was("stream_id"), now("stream_id")),
        _finding(adjoins & (was("is_inside") != now("goes_on")), "fragments", position, inside, goes_on),
    ]


def _goes_back(finding: str, before: str, after: str, at: str) -> Column:
    """A value that is smaller than the one before it; nothing where one of the two is NULL."""
    was, now = F.col(before), F.col(after)
    return _finding(now < was, finding, F.col(at), F.concat(was.cast("string"), F.lit(" or more")), now)


def _finding(condition: Column, name: str, position: Column, expected: Column, actual: Column) -> Column:
    """One finding, as a struct; NULL where the condition is not true."""
    return F.when(
        condition,
        F.struct(
            position.alias("position"),
            F.lit(name).alias("finding"),
            expected.cast("string").alias("expected"),
            actual.cast("string").alias("actual"),
        ),
    )
