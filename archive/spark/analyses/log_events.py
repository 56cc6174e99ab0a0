"""The messages in which a log says who leads and who comes and goes, decoded into columns.

Each function keeps the rows of one template and cuts its fields out of the column payload. The filter on template_id
reaches the data source, so that only these messages' payloads are read.
Source: Aeron `LogPublisher`; schema 111, templates 21, 22 and 24.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from service_api.types import CloseReason, TimeUnit

from .log_columns import (
    NEW_LEADERSHIP_TERM_EVENT,
    SESSION_CLOSE_EVENT,
    SESSION_OPEN_EVENT,
    block_enum,
    block_integer,
    block_version,
    check_columns,
    var_data,
)

_COLUMNS: Final = ("recording_id", "position", "template_id", "leadership_term_id", "timestamp", "payload")
_UNIT_NAMES: Final = {TimeUnit.MILLIS: "ms", TimeUnit.MICROS: "us", TimeUnit.NANOS: "ns"}


def new_terms(log: DataFrame) -> DataFrame:
    """Decode each NewLeadershipTermEvent: the first entry of a leadership term.

    Needs recording_id, position, template_id, leadership_term_id, timestamp, payload; gives the first two,
    leadership_term_id, timestamp, term_base_log_position (bytes), leader_member_id, log_session_id,
    time_unit ("ms", "us", "ns"; NULL from Aeron before 1.26, whose unit is ms) and app_version ("1.2.3", or NULL).
    """
    check_columns(log, "new_terms", *_COLUMNS)
    unit = block_enum(40, TimeUnit)
    return _only(log, NEW_LEADERSHIP_TERM_EVENT).select(
        "recording_id",
        "position",
        "leadership_term_id",
        "timestamp",
        block_integer(24, 8).alias("term_base_log_position"),
        block_integer(32, 4).cast("int").alias("leader_member_id"),
        block_integer(36, 4).cast("int").alias("log_session_id"),
        _unit_name(unit).alias("time_unit"),
        block_version(44).alias("app_version"),
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
        "recording_id",
        "position",
        "leadership_term_id",
        "timestamp",
        "cluster_session_id",
        "correlation_id",
        block_integer(32, 4).cast("int").alias("response_stream_id"),
        var_data(0).cast("string").alias("response_channel"),
        var_data(1).alias("encoded_principal"),
    )


def sessions_closed(log: DataFrame) -> DataFrame:
    """Decode each SessionCloseEvent.

    Needs what `new_terms` does and cluster_session_id; gives recording_id, position, leadership_term_id, timestamp,
    cluster_session_id and close_reason (CLIENT_ACTION, SERVICE_ACTION, TIMEOUT).
    """
    check_columns(log, "sessions_closed", *_COLUMNS, "cluster_session_id")
    return _only(log, SESSION_CLOSE_EVENT).select(
        "recording_id",
        "position",
        "leadership_term_id",
        "timestamp",
        "cluster_session_id",
        block_enum(24, CloseReason).alias("close_reason"),
    )


def _only(log: DataFrame, template_id: int) -> DataFrame:
    return log.where(F.col("template_id") == template_id)


def _unit_name(unit: Column) -> Column:
    return F.coalesce(*(F.when(unit == member.name, F.lit(name)) for member, name in _UNIT_NAMES.items()))
