"""The busiest and the silent periods of a log."""

from __future__ import annotations

from typing import Final

from .engine import DataFrame, F, Window
from .log_columns import aligned_length, begins_message, check_columns, end_position, micros_between

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
    of_recording = Window.partitionBy("recording_id")
    seconds = micros_between(F.col("from_timestamp"), F.col("to_timestamp")) / 1e6
    return (
        log.where(begins_message() & F.col("timestamp").isNotNull())
        .groupBy("recording_id", F.window("timestamp", window).alias("window"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum(aligned_length()).alias("log_bytes"),
            F.min("position").alias("first_position"),
        )
        .withColumns(
            {
                "times_mean": F.col("messages") / F.avg("messages").over(of_recording),
                "rank": F.row_number().over(of_recording.orderBy(F.desc("messages"), "first_position")),
                "from_timestamp": F.col("window.start"),
                "to_timestamp": F.col("window.end"),
            }
        )
        .where(F.col("rank") <= limit)
        .select(
            *("recording_id", "from_timestamp", "to_timestamp", "first_position", "messages", "log_bytes"),
            (F.col("messages") / seconds).alias("messages_per_s"),
            "times_mean",
        )
        .orderBy("recording_id", F.desc("messages"), "first_position")
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
    term = F.col("leadership_term_id") if names_term else F.lit(None).cast("long")
    in_order = Window.partitionBy("recording_id").orderBy("interval")
    entry = F.struct(F.col("position"), F.col("timestamp"), end_position().alias("end_position"), term.alias("term"))
    intervals = (
        log.where(F.col("timestamp").isNotNull())
        .withColumn("interval", F.floor(F.unix_micros("timestamp") / F.lit(longer_than_us)))
        .groupBy("recording_id", "interval")
        .agg(F.min(entry).alias("first"), F.max(entry).alias("last"))
    )
    last = F.lag("last").over(in_order)
    return (
        intervals.withColumn("before", last)
        .select(
            *("recording_id", F.col("before.timestamp").alias("from_timestamp")),
            F.col("first.timestamp").alias("to_timestamp"),
            micros_between(F.col("before.timestamp"), F.col("first.timestamp")).alias("gap_us"),
            F.col("before.end_position").alias("from_position"),
            F.col("first.position").alias("to_position"),
            *([(F.col("before.term") != F.col("first.term")).alias("over_terms")] if names_term else []),
        )
        .where(F.col("gap_us") > longer_than_us)
        .orderBy(F.desc("gap_us"), "to_position")
    )
