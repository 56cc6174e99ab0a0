"""Client sessions: how much and how evenly they send, and how each began and ended."""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import UNFRAGMENTED
from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from .engine import DataFrame, F, Window, WindowSpec
from .log_columns import application_length, check_columns, client_session_id, has_flags, micros_between, service_id
from .log_events import session_ends
from .whole_messages import whole_messages

QUANTILES: Final = (0.5, 0.99)
ACCURACY: Final = 10_000
"""Of `percentile_approx`: a rank is wrong by a ten-thousandth of the values at most."""


def session_traffic(log: DataFrame, *, interval: str | None = "1 second") -> DataFrame:
    """Return how much each session sent, and the time between its messages, for each interval or for the whole log.

    Needs recording_id, position, frame_length, flags, type, term_id, template_id, block_length, cluster_session_id and
    timestamp of frames (or of messages). `interval` is a length of time as Spark writes it ("1 second", "5 minutes"),
    None for one row for each session.

    Gives, ordered by recording_id, session and interval:

    - recording_id, cluster_session_id (NULL for what services offered), service_id (NULL for clients);
    - from_timestamp and to_timestamp: the interval; without one, the first and last message. Intervals without a
      message have no row;
    - messages, application_bytes: what the application gave to send, without the SBE header and block: 32 bytes, or
      48 of a request;
    - messages_per_s, bytes_per_s: over the interval (NULL if first and last message came at the same time);
    - gap_us_p50, gap_us_p99 and gap_us_max: microseconds from the message before, of the same session, to each of
      these (NULL for a session's first message). Approximate to a ten-thousandth of the ranks, the maximum exact.

    Cost: that of `whole_messages`, one shuffle by session, and a sort by position within each session.
    """
    gap = micros_between(F.lag("timestamp").over(_by_session()), F.col("timestamp"))
    sent = _session_messages(log).withColumn("gap_us", gap)
    if interval is None:
        groups = sent.groupBy(*_SESSION)
        begin, end = F.min("timestamp"), F.max("timestamp")
    else:
        timed = sent.where(F.col("timestamp").isNotNull())  # Spark's window leaves the others out by itself
        groups = timed.withColumn("interval", F.window("timestamp", interval)).groupBy(*_SESSION, "interval")
        begin, end = F.first("interval.start"), F.first("interval.end")
    counted = groups.agg(
        begin.alias("from_timestamp"),
        end.alias("to_timestamp"),
        F.count(F.lit(1)).alias("messages"),
        F.sum("application_length").alias("application_bytes"),
        F.percentile_approx("gap_us", list(QUANTILES), ACCURACY).alias("quantiles"),
        F.max("gap_us").alias("gap_us_max"),
    )
    seconds = micros_between(F.col("from_timestamp"), F.col("to_timestamp")) / 1e6
    return counted.select(
        *_SESSION,
        *("from_timestamp", "to_timestamp", "messages", "application_bytes"),
        F.try_divide("messages", seconds).alias("messages_per_s"),
        F.try_divide("application_bytes", seconds).alias("bytes_per_s"),
        *(F.col("quantiles")[i].alias(f"gap_us_p{int(q * 100)}") for i, q in enumerate(QUANTILES)),
        "gap_us_max",
    ).orderBy("recording_id", "cluster_session_id", "service_id", "from_timestamp")


def session_lives(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return one row for each client session: when and how it began and ended, and what it did in between.

    Needs what `session_traffic` does, leadership_term_id and correlation_id, and of SessionOpenEvents and
    SessionCloseEvents payload; `events` is where these are read from, the log itself unless told.

    Gives, ordered by recording_id and cluster_session_id:

    - recording_id, cluster_session_id, correlation_id (of the client's connect request);
    - opened_position and opened_timestamp: NULL if it was opened before this log begins;
    - closed_position, closed_timestamp and close_reason (CLIENT_ACTION, SERVICE_ACTION, TIMEOUT): NULL while open;
    - state: "open" at the end of the log, "closed" by its client or a service, or "timed out";
    - lifetime_us: microseconds from open to close, to the last entry of the log if it is still open;
    - response_stream_id, response_channel, encoded_principal (bytes, as the authenticator wrote them);
    - messages, application_bytes, and longest_idle_us: the longest time between two of its entries, opening and
      closing among them. Keep-alives are not in the log, so a session can be idle for long and well.

    Cost: that of `whole_messages`, one shuffle by session, a sort by position within each, and one pass over `events`.
    """
    of_session = ["recording_id", "cluster_session_id"]
    last = F.coalesce("closed_timestamp", "log_end")
    state = F.when(F.col("closed_position").isNull(), "open").when(F.col("close_reason") == "TIMEOUT", "timed out")
    return (
        _activity(log)
        .join(session_ends(log if events is None else events), of_session, "left")
        .select(
            *(*of_session, "correlation_id", "opened_position", "opened_timestamp"),
            *("closed_position", "closed_timestamp", "close_reason", state.otherwise("closed").alias("state")),
            micros_between(F.col("opened_timestamp"), last).alias("lifetime_us"),
            *("response_stream_id", "response_channel", "encoded_principal"),
            *("messages", "application_bytes", "longest_idle_us"),
        )
        .orderBy(*of_session)
    )


_SESSION: Final = ("recording_id", "cluster_session_id", "service_id")
_COLUMNS: Final = ("template_id", "block_length", "cluster_session_id", "timestamp")


def _session_messages(log: DataFrame) -> DataFrame:
    """The application's messages: where, when, whose, how long."""
    check_columns(log, "traffic of sessions", *_COLUMNS)
    # Fragments say nothing of their message: those of all messages are put together before the others are left out.
    messages = whole_messages(log.where((F.col("template_id") == SESSION_MESSAGE_HEADER) | ~has_flags(UNFRAGMENTED)))
    return messages.where(F.col("template_id") == SESSION_MESSAGE_HEADER).select(
        *("recording_id", "position", "timestamp"),
        service_id().alias("service_id"),
        client_session_id().alias("cluster_session_id"),
        application_length().alias("application_length"),
    )


def _activity(log: DataFrame) -> DataFrame:
    """One row for each client session that the log has any entry of, and when the log ends."""
    check_columns(log, "lives of sessions", *_COLUMNS)
    # What is no client's is spread, not put into one partition of its own.
    alone = F.coalesce(client_session_id(), -1 - F.col("position"))
    in_session = Window.partitionBy("recording_id", alone).orderBy("position")
    idle = micros_between(F.lag("timestamp").over(in_session), F.col("timestamp"))
    length = application_length()
    log_end = F.max("last_timestamp").over(Window.partitionBy("recording_id"))
    return (
        whole_messages(log)
        .withColumn("idle_us", idle)
        .withColumn("cluster_session_id", client_session_id())
        .groupBy("recording_id", "cluster_session_id")
        .agg(
            F.count(length).alias("messages"),
            F.coalesce(F.sum(length), F.lit(0)).alias("application_bytes"),
            F.max("idle_us").alias("longest_idle_us"),
            F.max("timestamp").alias("last_timestamp"),
        )
        .withColumn("log_end", log_end)
        .where(F.col("cluster_session_id").isNotNull())
    )


def _by_session() -> WindowSpec:
    return Window.partitionBy(*_SESSION).orderBy("position")
