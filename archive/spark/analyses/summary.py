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
from .engine import Column, DataFrame, F
from .log_columns import aligned_length, check_columns, extent, is_data, is_padding, micros_between, payload_length

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
    is_client = F.col("cluster_session_id") >= 0
    unaligned = F.when(is_data(), F.col("frame_length").cast("long"))
    duration = micros_between(F.col("first_timestamp"), F.col("last_timestamp"))
    return (
        log.groupBy("recording_id")
        .agg(
            *extent(),
            F.min("leadership_term_id").alias("first_term"),
            F.max("leadership_term_id").alias("last_term"),
            F.count_distinct("leadership_term_id").alias("terms"),
            F.count_if(_is(SESSION_MESSAGE_HEADER) & is_client).alias("client_messages"),
            F.count_if(_is(SESSION_MESSAGE_HEADER) & ~is_client).alias("service_messages"),
            F.count_distinct(F.when(is_client, F.col("cluster_session_id"))).alias("sessions"),
            F.count_if(_is(SESSION_OPEN_EVENT)).alias("sessions_opened"),
            F.count_if(_is(SESSION_CLOSE_EVENT)).alias("sessions_closed"),
            F.count_if(_is(TIMER_EVENT)).alias("timers_fired"),
            F.count_if(_is(CLUSTER_ACTION_REQUEST)).alias("actions"),
            F.sum(payload_length()).alias("payload_bytes"),
            (F.count_if(is_data()) * HEADER_LENGTH).alias("header_bytes"),
            F.coalesce(F.sum(F.when(is_data(), aligned_length()) - unaligned), F.lit(0)).alias("alignment_bytes"),
            F.coalesce(F.sum(F.when(is_padding(), aligned_length())), F.lit(0)).alias("padding_bytes"),
        )
        .withColumn("length_bytes", F.col("stop_position") - F.col("start_position"))
        .withColumn("duration_us", duration)
        .withColumn("messages_per_s", F.try_divide(F.col("messages"), F.col("duration_us") / 1e6))
        .select(
            *("recording_id", "start_position", "stop_position", "length_bytes"),
            *("first_timestamp", "last_timestamp", "duration_us", "frames", "messages", "messages_per_s"),
            *("first_term", "last_term", "terms", "client_messages", "service_messages"),
            *("sessions", "sessions_opened", "sessions_closed", "timers_fired", "actions"),
            *("payload_bytes", "header_bytes", "alignment_bytes", "padding_bytes"),
        )
        .orderBy("recording_id")
    )


def _is(template_id: int) -> Column:
    return F.col("template_id") == template_id
