"""The summary of a log in one row."""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import HEADER_LENGTH
from ....service_api.wire.log.layout import (
    CLUSTER_ACTION_REQUEST,
    SESSION_CLOSE_EVENT,
    SESSION_MESSAGE_HEADER,
    SESSION_OPEN_EVENT,
    TIMER_EVENT,
)
from .log_columns import (
    ALIGNED_LENGTH,
    CLIENT_SESSION_ID,
    EXTENT,
    IS_DATA,
    IS_PADDING,
    PAYLOAD_LENGTH,
    check_columns,
    micros_between,
)
from .sql import DataFrame, sql

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "template_id", "leadership_term_id"),
    *("cluster_session_id", "timestamp"),
)


def summary(log: DataFrame) -> DataFrame:
    """Return one row for each recording: how long it is, in bytes and in time, and how much of what is in it.

    Needs recording_id, position, frame_length, flags, type, template_id, leadership_term_id, cluster_session_id and
    timestamp of frames.

    Gives recording_id; start_position, stop_position, length_bytes; first_timestamp, last_timestamp, duration_us;
    frames, messages, messages_per_s (over the duration; NULL if there is none); first_term, last_term, terms (in the
    log); client_messages and service_messages; sessions (that sent anything, opened or closed), sessions_opened,
    sessions_closed; timers_fired; actions (snapshots, suspend and resume); payload_bytes (what follows the frames'
    headers), header_bytes, alignment_bytes and padding_bytes, which together are length_bytes where nothing is missing.

    Cost: one pass, and an exact count of the distinct sessions.
    """
    check_columns(log, "summary", *_COLUMNS)
    return sql(
        f"""
        SELECT recording_id, start_position, stop_position, stop_position - start_position AS length_bytes,
            first_timestamp, last_timestamp, duration_us,
            frames, messages, messages / nullif(duration_us / 1e6, 0) AS messages_per_s,
            first_term, last_term, terms, client_messages, service_messages,
            sessions, sessions_opened, sessions_closed, timers_fired, actions,
            payload_bytes, header_bytes, alignment_bytes, padding_bytes
        FROM (
            SELECT *, {micros_between("first_timestamp", "last_timestamp")} AS duration_us
            FROM (
                SELECT recording_id, {EXTENT},
                    min(leadership_term_id) AS first_term,
                    max(leadership_term_id) AS last_term,
                    count(DISTINCT leadership_term_id) AS terms,
                    {_count(SESSION_MESSAGE_HEADER, "cluster_session_id >= 0")} AS client_messages,
                    {_count(SESSION_MESSAGE_HEADER, "cluster_session_id < 0")} AS service_messages,
                    count(DISTINCT {CLIENT_SESSION_ID}) AS sessions,
                    {_count(SESSION_OPEN_EVENT)} AS sessions_opened,
                    {_count(SESSION_CLOSE_EVENT)} AS sessions_closed,
                    {_count(TIMER_EVENT)} AS timers_fired,
                    {_count(CLUSTER_ACTION_REQUEST)} AS actions,
                    sum({PAYLOAD_LENGTH}) AS payload_bytes,
                    {HEADER_LENGTH} * count(*) FILTER (WHERE {IS_DATA}) AS header_bytes,
                    coalesce(sum({ALIGNED_LENGTH} - frame_length) FILTER (WHERE {IS_DATA}), 0) AS alignment_bytes,
                    coalesce(sum({ALIGNED_LENGTH}) FILTER (WHERE {IS_PADDING}), 0) AS padding_bytes
                FROM log
                GROUP BY recording_id
            )
        )
        ORDER BY recording_id
        """,
        log=log,
    )


def _count(template_id: int, condition: str = "TRUE") -> str:
    return f"count(*) FILTER (WHERE template_id = {template_id} AND {condition})"
