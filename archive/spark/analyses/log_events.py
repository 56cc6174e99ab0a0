"""The messages about leaders and sessions in a log, decoded into columns.

Each function keeps the rows of one template and cuts its fields out of the column payload, so a program that has them
alone, read with where="template_id IN (21, 22, 24)", spares the rest. `log_messages` decodes any message in full, given
its class; these need no class and no Python worker. Source: Aeron `LogPublisher`; schema 111, templates 21, 22 and 24.
"""

from __future__ import annotations

from typing import Final

from ....service_api.types import CloseReason, TimeUnit
from ....service_api.wire.log.layout import (
    FIELD_OFFSETS,
    NEW_LEADERSHIP_TERM_EVENT,
    SESSION_CLOSE_EVENT,
    SESSION_OPEN_EVENT,
)
from .engine import Column, DataFrame, F
from .log_columns import block_enum, block_integer, block_version, check_columns, var_data

_COLUMNS: Final = ("recording_id", "position", "template_id", "leadership_term_id", "timestamp", "payload")
_UNIT_NAMES: Final = {TimeUnit.MILLIS: "ms", TimeUnit.MICROS: "us", TimeUnit.NANOS: "ns"}


def new_terms(log: DataFrame) -> DataFrame:
    """Decode each NewLeadershipTermEvent: the first entry of a leadership term.

    Needs recording_id, position, template_id, leadership_term_id, timestamp, payload; gives the first two,
    leadership_term_id, timestamp, term_base_log_position (bytes), leader_member_id, log_session_id,
    time_unit ("ms", "us", "ns"; NULL from Aeron before 1.26, whose unit is ms) and app_version ("1.2.3", or NULL).
    """
    check_columns(log, "new_terms", *_COLUMNS)
    at = FIELD_OFFSETS[NEW_LEADERSHIP_TERM_EVENT]
    unit = block_enum(at["time_unit"], TimeUnit)
    return _only(log, NEW_LEADERSHIP_TERM_EVENT).select(
        "recording_id",
        "position",
        "leadership_term_id",
        "timestamp",
        block_integer(at["term_base_log_position"], 8).alias("term_base_log_position"),
        block_integer(at["leader_member_id"], 4).cast("int").alias("leader_member_id"),
        block_integer(at["log_session_id"], 4).cast("int").alias("log_session_id"),
        _unit_name(unit).alias("time_unit"),
        block_version(at["app_version"]).alias("app_version"),
    )


def sessions_opened(log: DataFrame) -> DataFrame:
    """Decode each SessionOpenEvent.

    Needs what `new_terms` does, cluster_session_id and correlation_id; gives recording_id, position,
    leadership_term_id, timestamp, cluster_session_id, correlation_id, response_stream_id, response_channel and
    encoded_principal (bytes, as the authenticator wrote them). The last two are NULL where the message is fragmented
    and the log was not read with messages=true.
    """
    check_columns(log, "sessions_opened", *_COLUMNS, "cluster_session_id", "correlation_id")
    return _only(log, SESSION_OPEN_EVENT).select(
        *("recording_id", "position", "leadership_term_id", "timestamp", "cluster_session_id", "correlation_id"),
        *_response(),
    )


def sessions_closed(log: DataFrame) -> DataFrame:
    """Decode each SessionCloseEvent.

    Needs what `new_terms` does and cluster_session_id; gives recording_id, position, leadership_term_id, timestamp,
    cluster_session_id and close_reason (CLIENT_ACTION, SERVICE_ACTION, TIMEOUT).
    """
    check_columns(log, "sessions_closed", *_COLUMNS, "cluster_session_id")
    return _only(log, SESSION_CLOSE_EVENT).select(
        *("recording_id", "position", "leadership_term_id", "timestamp", "cluster_session_id"),
        block_enum(FIELD_OFFSETS[SESSION_CLOSE_EVENT]["close_reason"], CloseReason).alias("close_reason"),
    )


def session_ends(log: DataFrame) -> DataFrame:
    """Put what was said of each session when it was opened beside what was said when it was closed.

    Needs what `sessions_opened` does; gives recording_id, cluster_session_id, correlation_id, opened_position,
    opened_timestamp, response_stream_id, response_channel, encoded_principal, closed_position, closed_timestamp and
    close_reason; NULL where the log has not the one or the other.
    """
    check_columns(log, "session_ends", *_COLUMNS, "cluster_session_id", "correlation_id")
    opened = F.struct(
        *("correlation_id", F.col("position").alias("opened_position"), F.col("timestamp").alias("opened_timestamp")),
        *_response(),
    )
    closed = F.struct(
        *(F.col("position").alias("closed_position"), F.col("timestamp").alias("closed_timestamp")),
        block_enum(FIELD_OFFSETS[SESSION_CLOSE_EVENT]["close_reason"], CloseReason).alias("close_reason"),
    )
    is_open, is_close = (F.col("template_id") == template for template in (SESSION_OPEN_EVENT, SESSION_CLOSE_EVENT))
    return (
        log.where(is_open | is_close)
        .groupBy("recording_id", "cluster_session_id")
        .agg(
            F.max_by(opened, F.when(is_open, F.col("position"))).alias("opened"),
            F.max_by(closed, F.when(is_close, F.col("position"))).alias("closed"),
        )
        .select("recording_id", "cluster_session_id", "opened.*", "closed.*")
    )


def _response() -> tuple[Column, ...]:
    """Where a client's session sends to, and who it is."""
    at = FIELD_OFFSETS[SESSION_OPEN_EVENT]
    return (
        block_integer(at["response_stream_id"], 4).cast("int").alias("response_stream_id"),
        var_data(0).cast("string").alias("response_channel"),
        var_data(1).alias("encoded_principal"),
    )


def _only(log: DataFrame, template_id: int) -> DataFrame:
    return log.where(F.col("template_id") == template_id)


def _unit_name(unit: Column) -> Column:
    return F.coalesce(*(F.when(unit == member.name, F.lit(name)) for member, name in _UNIT_NAMES.items()))
