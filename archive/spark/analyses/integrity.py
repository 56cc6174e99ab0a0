"""Checks a log: frames without gaps, in order of position, term and time.

The data source checks each frame as it reads, and ends a recording where one is wrong; `problems` says where. This
checks what a DataFrame holds, wherever it came from: a join, an export, a copy in another system.

No window runs over all frames: each block of 16 MiB is checked by itself. Of it remain the frames that are wrong, those
at its edges, and the frame before each, which are few. These are put in order and judged once more, across the blocks.
"""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_DATA, TYPE_PADDING
from .log_columns import BEGINS_MESSAGE, END_POSITION, ENDS_MESSAGE, IS_DATA, check_columns
from .sql import DataFrame, sql

BLOCK_LENGTH_BYTES: Final = 1 << 24
FINDING_LIMIT: Final = 1000
"""Findings that are kept of each block: the first ones."""

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "term_offset", "stream_id", "term_id"),
    *("leadership_term_id", "timestamp"),
)


_ADJOINS: Final = "position = end_position_before"
_NEXT_TERM_ID: Final = f"""((CAST(term_id_before AS BIGINT) + CASE WHEN base = base_before THEN 0 ELSE 1 END
    + {1 << 31}) % {1 << 32} - {1 << 31})"""
_FINDINGS: Final = (
    ("position", f"position % {FRAME_ALIGNMENT} <> 0", f"'a multiple of {FRAME_ALIGNMENT}'", "position"),
    ("frame_length", f"frame_length < {HEADER_LENGTH}", f"'{HEADER_LENGTH} or more'", "frame_length"),
    ("type", f"type NOT IN ({TYPE_DATA}, {TYPE_PADDING})", "'0 or 1'", "type"),
    ("gap", "position > end_position_before", "end_position_before", "position"),
    ("overlap", "position < end_position_before", "end_position_before", "position"),
    (
        "term_offset",
        f"{_ADJOINS} AND base <> base_before AND term_offset <> 0",
        "position - base_before",
        "term_offset",
    ),
    ("term_id", f"{_ADJOINS} AND term_id <> {_NEXT_TERM_ID}", _NEXT_TERM_ID, "term_id"),
    ("stream_id", "stream_id <> stream_id_before", "stream_id_before", "stream_id"),
    (
        "fragments",
        f"{_ADJOINS} AND is_inside_before <> goes_on",
        "CASE WHEN is_inside_before THEN 'the message goes on' ELSE 'a message begins' END",
        "CASE WHEN goes_on THEN 'a message goes on' ELSE 'a message begins' END",
    ),
    ("leadership_term", "term < term_before", "CAST(term_before AS STRING) || ' or more'", "term"),
    ("timestamp", "time < time_before", "CAST(time_before AS STRING) || ' or more'", "time"),
)
"""What can be wrong with a frame, alone or after the one before: name, condition, expected and actual value.

A condition is not true where there is no frame before.
"""


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
    names = ", ".join(f"CASE WHEN {condition} THEN '{name}' END" for name, condition, _, _ in _FINDINGS)
    expected = " ".join(f"WHEN '{name}' THEN CAST({value} AS STRING)" for name, _, value, _ in _FINDINGS)
    actual = " ".join(f"WHEN '{name}' THEN CAST({value} AS STRING)" for name, _, _, value in _FINDINGS)
    in_block = "PARTITION BY recording_id, block ORDER BY position"
    return sql(
        f"""
        WITH frames AS (
            SELECT recording_id, position, CAST(floor(position / {BLOCK_LENGTH_BYTES}) AS BIGINT) AS block,
                frame_length, type, term_offset, stream_id, term_id, position - term_offset AS base,
                {END_POSITION} AS end_position,
                ({IS_DATA} AND NOT {ENDS_MESSAGE}) AS is_inside, ({IS_DATA} AND NOT {BEGINS_MESSAGE}) AS goes_on,
                leadership_term_id AS term, timestamp AS time,
                leadership_term_id AS last_term, timestamp AS last_time
            FROM log
        ), paired AS (
            SELECT *, lead(position) OVER ({in_block}) IS NULL AS is_last, {_before(in_block)}
            FROM frames
        ), counted AS (
            SELECT *, count(CASE WHEN findings <> '' THEN 1 END) OVER (
                    {in_block} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS wrong_count
            FROM (SELECT *, concat_ws(',', {names}) AS findings FROM paired)
        ), judged AS (
            SELECT recording_id, position, block, frame_length, type, term_offset, stream_id, term_id, base,
                end_position, is_inside, goes_on, term, time, is_last,
                coalesce(term, term_before) AS last_term, coalesce(time, time_before) AS last_time,
                (findings <> '' AND wrong_count <= {FINDING_LIMIT}) OR end_position_before IS NULL
                    OR (term IS NOT NULL AND term_before IS NULL) OR (time IS NOT NULL AND time_before IS NULL)
                    AS is_judged
            FROM counted
        ), kept AS (
            SELECT *, {_before("PARTITION BY recording_id ORDER BY position")}
            FROM (SELECT *, lead(is_judged) OVER ({in_block}) AS is_next_judged FROM judged)
            WHERE is_judged OR is_next_judged OR is_last
        ), found AS (
            SELECT *, row_number() OVER (PARTITION BY recording_id, block ORDER BY position, finding) AS finding_number
            FROM (SELECT *, explode(split(concat_ws(',', {names}), ',')) AS finding FROM kept)
            WHERE is_judged AND finding <> ''
        )
        SELECT recording_id, position, finding,
            CASE finding {expected} END AS expected, CASE finding {actual} END AS actual
        FROM found
        WHERE finding_number <= {FINDING_LIMIT}
        ORDER BY recording_id, position, finding
        """,
        log=log,
    )


def _before(window: str) -> str:
    """What the frame before has, and the last term and time before."""
    names = ("end_position", "base", "term_id", "stream_id", "is_inside")
    lags = (f"lag({name}) OVER ({window}) AS {name}_before" for name in names)
    earlier = f"OVER ({window} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    lasts = (
        f"max_by(last_{name}, CASE WHEN last_{name} IS NOT NULL THEN position END) {earlier} AS {name}_before"
        for name in ("term", "time")
    )
    return ", ".join((*lags, *lasts))
