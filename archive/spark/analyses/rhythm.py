"""The busiest and the silent periods of a log."""

from __future__ import annotations

from typing import Final

from .log_columns import ALIGNED_LENGTH, BEGINS_MESSAGE, END_POSITION, check_columns, check_interval, micros_between
from .sql import DataFrame, sql

_COLUMNS: Final = ("recording_id", "position", "frame_length", "flags", "type", "timestamp")


def bursts(log: DataFrame, *, window: str = "1 second", limit: int = 20) -> DataFrame:
    """Return the busiest windows of time, the one with the most messages first.

    Needs recording_id, position, frame_length, flags, type and timestamp. `window` is a length of time as Spark writes
    it; `limit` is how many windows of each recording are given.

    Gives recording_id, from_timestamp, to_timestamp, first_position (of the window's first message), messages (of all
    kinds), log_bytes (of the first frame of each, with header and alignment: all bytes, where the log was read with
    messages=true), messages_per_s, and times_mean: how many times the mean of the recording's windows that hold a
    message at all.

    Cost: one pass; a row for each window is sorted, so choose windows that are few against the messages.
    """
    check_columns(log, "bursts", *_COLUMNS)
    seconds = f"({micros_between('from_timestamp', 'to_timestamp')} / 1e6)"
    return sql(
        f"""
        SELECT recording_id, from_timestamp, to_timestamp, first_position, messages, log_bytes,
            messages / {seconds} AS messages_per_s, times_mean
        FROM (
            SELECT recording_id, bucket.`start` AS from_timestamp, bucket.`end` AS to_timestamp,
                first_position, messages, log_bytes,
                messages / avg(messages) OVER (PARTITION BY recording_id) AS times_mean,
                row_number() OVER (PARTITION BY recording_id ORDER BY messages DESC, first_position) AS place
            FROM (
                SELECT recording_id, bucket, count(*) AS messages, sum({ALIGNED_LENGTH}) AS log_bytes,
                    min(position) AS first_position
                FROM (
                    SELECT *, `window`(timestamp, '{check_interval(window)}') AS bucket
                    FROM log
                    WHERE {BEGINS_MESSAGE} AND timestamp IS NOT NULL
                )
                GROUP BY recording_id, bucket
            )
        )
        WHERE place <= {limit}
        ORDER BY recording_id, messages DESC, first_position
        """,
        log=log,
    )


def gaps(log: DataFrame, *, longer_than_us: int = 1_000_000) -> DataFrame:
    """Return the silent stretches: where more than `longer_than_us` microseconds are between two entries of the log.

    Needs recording_id, position, frame_length and timestamp, which must not go back within the log (`integrity` says
    so). Gives, the longest first: recording_id, from_timestamp, to_timestamp, gap_us, from_position (the end of the
    last entry's first frame before) and to_position (where the first entry after begins), and over_terms: whether the
    leadership term changed meanwhile, if the log has the column leadership_term_id.

    Cost: one pass. A gap of that length lies between two intervals of that length, so the frames are first reduced to
    one row for each interval that holds any; only these rows are ordered. So a short gap in a long log costs more.
    """
    check_columns(log, "gaps", "recording_id", "position", "frame_length", "timestamp")
    names_term = "leadership_term_id" in log.columns
    before = "OVER (PARTITION BY recording_id ORDER BY stretch)"
    of_term = """, min_by(leadership_term_id, position) AS first_term,
                    max_by(leadership_term_id, position) AS last_term"""
    over_terms = f", lag(last_term) {before} <> first_term AS over_terms"
    return sql(
        f"""
        SELECT *
        FROM (
            SELECT recording_id, from_timestamp, to_timestamp,
                {micros_between("from_timestamp", "to_timestamp")} AS gap_us,
                from_position, to_position {", over_terms" if names_term else ""}
            FROM (
                SELECT recording_id, lag(last_timestamp) {before} AS from_timestamp, first_timestamp AS to_timestamp,
                    lag(last_end) {before} AS from_position, first_position AS to_position
                    {over_terms if names_term else ""}
                FROM (
                    SELECT recording_id, CAST(floor(unix_micros(timestamp) / {longer_than_us}) AS BIGINT) AS stretch,
                        min(position) AS first_position, min_by(timestamp, position) AS first_timestamp,
                        max_by(timestamp, position) AS last_timestamp,
                        max_by({END_POSITION}, position) AS last_end {of_term if names_term else ""}
                    FROM log
                    WHERE timestamp IS NOT NULL
                    GROUP BY 1, 2
                )
            )
        )
        WHERE gap_us > {longer_than_us}
        ORDER BY gap_us DESC, to_position
        """,
        log=log,
    )
