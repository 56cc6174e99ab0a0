"""Complete messages out of frames: one row each, however many frames it took."""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import UNFRAGMENTED
from ...reading.frame_columns import MESSAGE_COLUMNS
from .log_columns import (
    ALIGNED_LENGTH,
    BEGINS_MESSAGE,
    ENDS_MESSAGE,
    IS_DATA,
    IS_PADDING,
    PAYLOAD_LENGTH,
    check_columns,
    has_flags,
)
from .sql import DataFrame, sql

MESSAGE_FIELDS: Final = MESSAGE_COLUMNS
_COLUMNS: Final = ("recording_id", "position", "frame_length", "flags", "type", "term_id")


def whole_messages(log: DataFrame, *, padding: bool = False) -> DataFrame:
    """Return one row for each complete message of a log of frames; a log read with messages=true stays as it is.

    Needs recording_id, position, frame_length, flags, type, term_id and what is wanted of template_id, block_length,
    leadership_term_id, cluster_session_id, correlation_id, timestamp. Gives recording_id, position (of the first
    frame), these fields, message_length (bytes, SBE header included), frames and log_bytes (what the message takes in
    the log, with headers and alignment). Messages without a beginning or an end are left out. With `padding` padding
    frames are rows, too, of message_length 0 and without fields, and the column is_padding tells them.

    Cost: two passes. Only the frames of fragmented messages are ordered, within the term buffer that each lies in,
    which no message leaves.
    """
    check_columns(log, "whole_messages", *_COLUMNS)
    fields = [name for name in MESSAGE_FIELDS if name in log.columns]
    kept = "".join(f", {name}" for name in fields)
    greatest = "".join(f", max({name}) AS {name}" for name in fields)
    lengths = f"{PAYLOAD_LENGTH} AS message_length, CAST(1 AS BIGINT) AS frames, {ALIGNED_LENGTH} AS log_bytes"
    whole = f"({IS_DATA} AND {has_flags(UNFRAGMENTED)})"
    in_order = "OVER (PARTITION BY recording_id, term_id ORDER BY position)"
    return sql(
        f"""
        SELECT recording_id, position {kept}, {lengths} {f", {IS_PADDING} AS is_padding" if padding else ""}
        FROM log
        WHERE {whole} {f"OR {IS_PADDING}" if padding else ""}
        UNION ALL
        SELECT recording_id, first_position {greatest},
            sum(message_length), sum(frames), sum(log_bytes) {", FALSE" if padding else ""}
        FROM (
            SELECT recording_id, max(CASE WHEN {BEGINS_MESSAGE} THEN position END) {in_order} AS first_position,
                {ENDS_MESSAGE} AS is_end {kept}, {lengths}
            FROM log
            WHERE {IS_DATA} AND NOT {has_flags(UNFRAGMENTED)}
        )
        WHERE first_position IS NOT NULL
        GROUP BY recording_id, first_position
        HAVING bool_or(is_end)
        """,
        log=log,
    )
