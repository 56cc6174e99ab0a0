"""The leadership terms of a log, and the same as bars to draw."""

from __future__ import annotations

from typing import Final

from .engine import DataFrame, F, Window
from .log_columns import check_columns, extent, micros_between, payload_length
from .log_events import new_terms

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "template_id", "leadership_term_id", "timestamp"),
)


def term_timeline(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return one row for each leadership term: who led, from where to where, how much, and how long nothing came after.

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

    Cost: one pass over the log and two over `events`; frames that name no term (padding and the later frames of long
    messages) are compared with each term's range. Nothing but the terms is ordered.
    """
    check_columns(log, "term_timeline", *_COLUMNS)
    source = log if events is None else events
    keys = ["recording_id", "leadership_term_id"]
    began = new_terms(source).drop("position", "timestamp", "term_base_log_position")
    by_recording = Window.partitionBy("recording_id")
    first_term = F.min("leadership_term_id").over(by_recording)
    following = F.lead("first_timestamp").over(by_recording.orderBy("leadership_term_id"))
    return (
        _count_terms(log, source)
        .withColumn("leadership_term_id", F.coalesce("leadership_term_id", first_term))
        .groupBy(*keys)
        .agg(
            F.min("start_position").alias("start_position"),
            F.max("stop_position").alias("stop_position"),
            F.min("first_timestamp").alias("first_timestamp"),
            F.max("last_timestamp").alias("last_timestamp"),
            *(F.sum(name).alias(name) for name in _COUNTS),
        )
        .join(F.broadcast(began), keys, "left")
        .withColumn("hand_over_us", micros_between(F.col("last_timestamp"), following))
        .select(
            *(*keys, "leader_member_id", "start_position", "stop_position"),
            (F.col("stop_position") - F.col("start_position")).alias("length_bytes"),
            *("first_timestamp", "last_timestamp", "hand_over_us"),
            *(*_COUNTS, "time_unit", "app_version", "log_session_id"),
        )
        .orderBy(*keys)
    )


def leaders(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return bars to draw: who led from when to when, and the stretches in which nobody did.

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


_COUNTS: Final = ("frames", "messages", "payload_bytes")


def _count_terms(log: DataFrame, events: DataFrame) -> DataFrame:
    """Count the frames of each term; those before the first term that begins in this log have no leadership_term_id.

    Padding and the later frames of long messages do not name their term: it is the one whose first entry is the last
    before them.
    """
    begin = F.col("position")
    until = F.lead(begin).over(Window.partitionBy("recording_id").orderBy(begin))
    begins = new_terms(events).select(
        F.col("recording_id").alias("of_recording"),
        F.col("leadership_term_id").alias("of_term"),
        begin.alias("from_position"),
        F.coalesce(until, F.lit((1 << 63) - 1)).alias("until_position"),
    )
    lies_in = (
        F.col("leadership_term_id").isNull()
        & (F.col("recording_id") == F.col("of_recording"))
        & (begin >= F.col("from_position"))
        & (begin < F.col("until_position"))
    )
    return (
        log.select(*_COLUMNS)
        .join(F.broadcast(begins), lies_in, "left")
        .groupBy("recording_id", F.coalesce("leadership_term_id", "of_term").alias("leadership_term_id"))
        .agg(
            *extent(),
            F.sum(payload_length()).alias("payload_bytes"),
        )
    )
