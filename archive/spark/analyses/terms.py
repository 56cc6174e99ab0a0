"""Who led when: the leadership terms of a log, and the same as bars to draw."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from .log_columns import (
    aligned_length,
    begins_message,
    check_columns,
    end_position,
    micros_between,
    payload_length,
)
from .log_events import new_terms

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "template_id", "leadership_term_id", "timestamp"),
)


def term_timeline(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Give one row for each leadership term: who led, from where to where, how much, and how long nothing came after.

    Needs recording_id, position, frame_length, flags, type, template_id, leadership_term_id, timestamp of frames (or
    of messages), and of the NewLeadershipTermEvents payload. `events` is where these are read from: the log itself
    unless told, so name a DataFrame with payloads where `log` was read without them.

    Gives, ordered by recording_id and leadership_term_id:

    - recording_id, leadership_term_id, leader_member_id;
    - start_position and stop_position, length_bytes: the range of the log, in bytes, padding included;
    - first_timestamp and last_timestamp of its entries; hand_over_us: microseconds from the last one to the first
      of the next term, in which nothing was appended (NULL for the last term, negative if the new leader's clock is
      behind);
    - frames (padding included), messages, payload_bytes: what follows the headers of the frames;
    - time_unit ("ms", "us", "ns"), app_version, log_session_id: what the leader said when it began. These and
      leader_member_id are NULL where that entry was purged with the beginning of the log.

    A term in which no leader appended anything is not in the log and not here.

    Cost: two passes over the log and one over its NewLeadershipTermEvents; frames that name no term (padding and the
    later frames of long messages) are compared with each term's range. Nothing but the terms is ordered.
    """
    check_columns(log, "term_timeline", *_COLUMNS)
    spans = _spans(log)
    unnamed = (
        log.where(F.col("leadership_term_id").isNull())
        .alias("f")
        .join(F.broadcast(spans).alias("s"), _lies_in_span())
        .groupBy("s.recording_id", "s.leadership_term_id")
        .agg(*_totals(), F.max(F.col("position") + aligned_length()).alias("stop_position"))
    )
    keys = ["recording_id", "leadership_term_id"]
    counted = ("frames", "messages", "payload_bytes")
    whole = (
        spans.drop("until_position", "from_position")
        .unionByName(unnamed, allowMissingColumns=True)
        .groupBy(*keys)
        .agg(
            F.min("start_position").alias("start_position"),
            F.max("stop_position").alias("stop_position"),
            F.min("first_timestamp").alias("first_timestamp"),
            F.max("last_timestamp").alias("last_timestamp"),
            *(F.sum(name).alias(name) for name in counted),
        )
    )
    began = new_terms(log if events is None else events).drop("position", "timestamp", "term_base_log_position")
    following = F.lead("first_timestamp").over(Window.partitionBy("recording_id").orderBy("leadership_term_id"))
    return (
        whole.join(F.broadcast(began), keys, "left")
        .withColumn("hand_over_us", micros_between(F.col("last_timestamp"), following))
        .select(
            *(*keys, "leader_member_id", "start_position", "stop_position"),
            (F.col("stop_position") - F.col("start_position")).alias("length_bytes"),
            *("first_timestamp", "last_timestamp", "hand_over_us"),
            *(*counted, "time_unit", "app_version", "log_session_id"),
        )
        .orderBy(*keys)
    )


def leaders(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Give bars to draw: who led from when to when, and the stretches in which nobody did.

    Needs what `term_timeline` does. Gives recording_id, leadership_term_id, leader_member_id, is_led, from_timestamp,
    to_timestamp and duration_us, in the order of time. A term is led from its first entry to its last; between that and
    the first entry of the next is a row with is_led = false, the next term's id, and no leader_member_id.

    Cost: that of `term_timeline`.
    """
    by_recording = Window.partitionBy("recording_id").orderBy("leadership_term_id")
    ended = F.lag("last_timestamp").over(by_recording)
    led = F.struct(
        F.lit(True).alias("is_led"),
        F.col("leader_member_id"),
        F.col("first_timestamp").alias("from_timestamp"),
        F.col("last_timestamp").alias("to_timestamp"),
    )
    unled = F.struct(
        F.lit(False).alias("is_led"),
        F.lit(None).cast("int").alias("leader_member_id"),
        F.col("ended").alias("from_timestamp"),
        F.col("first_timestamp").alias("to_timestamp"),
    )
    bars = F.when(F.col("ended").isNull(), F.array(led)).otherwise(F.array(unled, led))
    return (
        term_timeline(log, events=events)
        .withColumn("ended", ended)
        .select("recording_id", "leadership_term_id", F.inline(bars))
        .select(
            *("recording_id", "leadership_term_id", "leader_member_id", "is_led", "from_timestamp", "to_timestamp"),
            micros_between(F.col("from_timestamp"), F.col("to_timestamp")).alias("duration_us"),
        )
        .orderBy("recording_id", "from_timestamp", "is_led")
    )


def _spans(log: DataFrame) -> DataFrame:
    """One row for each term, from the frames that name it; from_position and until_position part the whole log."""
    by_recording = Window.partitionBy("recording_id").orderBy("leadership_term_id")
    begin = F.col("start_position")
    return (
        log.where(F.col("leadership_term_id").isNotNull())
        .groupBy("recording_id", "leadership_term_id")
        .agg(
            F.min("position").alias("start_position"),
            F.max(end_position()).alias("stop_position"),
            F.min("timestamp").alias("first_timestamp"),
            F.max("timestamp").alias("last_timestamp"),
            *_totals(),
        )
        .withColumn("from_position", F.when(F.lag(begin).over(by_recording).isNull(), F.lit(0)).otherwise(begin))
        .withColumn("until_position", F.coalesce(F.lead(begin).over(by_recording), F.lit((1 << 63) - 1)))
    )


def _totals() -> tuple[Column, ...]:
    return (
        F.count(F.lit(1)).alias("frames"),
        F.count_if(begins_message()).alias("messages"),
        F.sum(payload_length()).alias("payload_bytes"),
    )


def _lies_in_span() -> Column:
    return (
        (F.col("f.recording_id") == F.col("s.recording_id"))
        & (F.col("f.position") >= F.col("s.from_position"))
        & (F.col("f.position") < F.col("s.until_position"))
    )
