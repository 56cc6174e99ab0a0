"""The messages about leaders and sessions in a log, decoded into columns.

Each function keeps the rows of one template and cuts its fields out of the column payload, so a program that has them
alone, read with where="template_id IN (21, 22, 24)", spares the rest. `log_messages` decodes any message in full, given
its class; these need no class and no Python worker. Source: Aeron `LogPublisher`; schema 111, templates 21, 22 and 24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....service_api.types import CloseReason, TimeUnit
from ....service_api.wire.log.fields import MESSAGE_HEADER_LENGTH
from ....service_api.wire.log.layout import (
    FIELD_OFFSETS,
    NEW_LEADERSHIP_TERM_EVENT,
    SESSION_CLOSE_EVENT,
    SESSION_OPEN_EVENT,
)
from .log_columns import BLOCK_LENGTH, block_enum, block_integer, check_columns, read_integer
from .sql import DataFrame, sql

_COLUMNS: Final = ("recording_id", "position", "template_id", "leadership_term_id", "timestamp", "payload")
_CLOSE_REASON: Final = block_enum(
    FIELD_OFFSETS[SESSION_CLOSE_EVENT]["close_reason"], {reason: reason.name for reason in CloseReason}
)
_UNIT_NAMES: Final[Mapping[int, str]] = {TimeUnit.MILLIS: "ms", TimeUnit.MICROS: "us", TimeUnit.NANOS: "ns"}


def new_terms(log: DataFrame) -> DataFrame:
    """Decode each NewLeadershipTermEvent: the first entry of a leadership term.

    Needs recording_id, position, template_id, leadership_term_id, timestamp, payload; gives the first two,
    leadership_term_id, timestamp, term_base_log_position (bytes), leader_member_id, log_session_id,
    time_unit ("ms", "us", "ns"; NULL from Aeron before 1.26, whose unit is ms) and app_version ("1.2.3", or NULL).
    """
    check_columns(log, "new_terms", *_COLUMNS)
    at = FIELD_OFFSETS[NEW_LEADERSHIP_TERM_EVENT]
    return sql(
        f"""
        SELECT recording_id, position, leadership_term_id, timestamp, term_base_log_position, leader_member_id,
            log_session_id, time_unit,
            CASE WHEN version <> 0 THEN concat_ws('.', version >> 16, (version >> 8) & 255, version & 255) END
                AS app_version
        FROM (
            SELECT recording_id, position, leadership_term_id, timestamp,
                {block_integer(at["term_base_log_position"], 8)} AS term_base_log_position,
                CAST({block_integer(at["leader_member_id"], 4)} AS INT) AS leader_member_id,
                CAST({block_integer(at["log_session_id"], 4)} AS INT) AS log_session_id,
                {block_enum(at["time_unit"], _UNIT_NAMES)} AS time_unit,
                {block_integer(at["app_version"], 4)} AS version
            FROM log
            WHERE template_id = {NEW_LEADERSHIP_TERM_EVENT}
        )
        """,
        log=log,
    )


def sessions_opened(log: DataFrame) -> DataFrame:
    """Decode each SessionOpenEvent.

    Needs what `new_terms` does, cluster_session_id and correlation_id; gives recording_id, position,
    leadership_term_id, timestamp, cluster_session_id, correlation_id, response_stream_id, response_channel and
    encoded_principal (bytes, as the authenticator wrote them). The last two are NULL where the message is fragmented
    and the log was not read with messages=true.
    """
    check_columns(log, "sessions_opened", *_COLUMNS, "cluster_session_id", "correlation_id")
    return sql(
        f"""
        SELECT recording_id, position, leadership_term_id, timestamp, cluster_session_id, correlation_id,
            response_stream_id, response_channel, encoded_principal
        FROM events
        WHERE template_id = {SESSION_OPEN_EVENT}
        """,
        events=_session_events(log),
    )


def sessions_closed(log: DataFrame) -> DataFrame:
    """Decode each SessionCloseEvent.

    Needs what `new_terms` does and cluster_session_id; gives recording_id, position, leadership_term_id, timestamp,
    cluster_session_id and close_reason (CLIENT_ACTION, SERVICE_ACTION, TIMEOUT).
    """
    check_columns(log, "sessions_closed", *_COLUMNS, "cluster_session_id")
    return sql(
        f"""
        SELECT recording_id, position, leadership_term_id, timestamp, cluster_session_id,
            {_CLOSE_REASON} AS close_reason
        FROM log
        WHERE template_id = {SESSION_CLOSE_EVENT}
        """,
        log=log,
    )


def session_ends(log: DataFrame) -> DataFrame:
    """Put what was said of each session when it was opened beside what was said when it was closed.

    Needs what `sessions_opened` does; gives recording_id, cluster_session_id, correlation_id, opened_position,
    opened_timestamp, response_stream_id, response_channel, encoded_principal, closed_position, closed_timestamp and
    close_reason; NULL where the log has not the one or the other.
    """
    check_columns(log, "session_ends", *_COLUMNS, "cluster_session_id", "correlation_id")
    opened_at = f"CASE WHEN template_id = {SESSION_OPEN_EVENT} THEN position END"
    closed_at = f"CASE WHEN template_id = {SESSION_CLOSE_EVENT} THEN position END"
    return sql(
        f"""
        SELECT recording_id, cluster_session_id,
            max_by(correlation_id, {opened_at}) AS correlation_id,
            max({opened_at}) AS opened_position,
            max_by(timestamp, {opened_at}) AS opened_timestamp,
            max_by(response_stream_id, {opened_at}) AS response_stream_id,
            max_by(response_channel, {opened_at}) AS response_channel,
            max_by(encoded_principal, {opened_at}) AS encoded_principal,
            max({closed_at}) AS closed_position,
            max_by(timestamp, {closed_at}) AS closed_timestamp,
            max_by(close_reason, {closed_at}) AS close_reason
        FROM events
        GROUP BY recording_id, cluster_session_id
        """,
        events=_session_events(log),
    )


def _session_events(log: DataFrame) -> DataFrame:
    """Decode the messages that open and close sessions.

    Behind the block are two fields of bytes, each with its length before it. Each step reads one number more.
    """
    stream_id = block_integer(FIELD_OFFSETS[SESSION_OPEN_EVENT]["response_stream_id"], 4)
    return sql(
        f"""
        SELECT *, string({_bytes("channel_begin", "channel_length")}) AS response_channel,
            {_bytes("principal_begin", read_integer("principal_begin", 4, is_signed=False))} AS encoded_principal
        FROM (
            SELECT *, CASE WHEN channel_begin + 3 + channel_length <= length(payload)
                THEN CAST(channel_begin + 4 + channel_length AS INT) END AS principal_begin
            FROM (
                SELECT *, {read_integer("channel_begin", 4, is_signed=False)} AS channel_length
                FROM (
                    SELECT *, CAST({stream_id} AS INT) AS response_stream_id, {_CLOSE_REASON} AS close_reason,
                        CAST({BLOCK_LENGTH} AS INT) + {MESSAGE_HEADER_LENGTH + 1} AS channel_begin
                    FROM log
                    WHERE template_id IN ({SESSION_OPEN_EVENT}, {SESSION_CLOSE_EVENT})
                )
            )
        )
        """,
        log=log,
    )


def _bytes(begin: str, length: str) -> str:
    """The bytes behind their length, which is at byte `begin`; NULL where the payload ends before they do."""
    data = f"substr(payload, {begin} + 4, try_cast({length} AS INT))"
    return f"CASE WHEN {begin} + 3 + {length} <= length(payload) THEN {data} END"
