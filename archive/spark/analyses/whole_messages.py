"""Complete messages out of frames: one row each, however many frames it took."""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import UNFRAGMENTED
from ...reading.frame_columns import MESSAGE_COLUMNS
from .engine import DataFrame, F, Window
from .log_columns import (
    aligned_length,
    begins_message,
    check_columns,
    ends_message,
    has_flags,
    is_data,
    is_padding,
    payload_length,
)

MESSAGE_FIELDS: Final = MESSAGE_COLUMNS
_COLUMNS: Final = ("recording_id", "position", "frame_length", "flags", "type", "term_id")


def whole_messages(log: DataFrame, *, padding: bool = False) -> DataFrame:
    """Return one row for each complete message of a log of frames; a log read with messages=true stays as it is.

    Needs recording_id, position, frame_length, flags, type, term_id and what is wanted of template_id, block_length,
    leadership_term_id, cluster_session_id, correlation_id, timestamp. Gives recording_id, position (of the first
    frame), these fields, message_length (bytes, SBE header included), frames and log_bytes (what the message takes in
    the log, with headers and alignment). Messages without a beginning or an end are left out. With `padding` padding
    frames are rows, too, of message_length 0 and without fields, and the column is_padding tells them.

    Cost: two passes. Only the frames of fragmented messages are ordered, within the term buffer that each lies in,
    which no message leaves.
    """
    check_columns(log, "whole_messages", *_COLUMNS)
    fields = [name for name in MESSAGE_FIELDS if name in log.columns]
    whole = is_data() & has_flags(UNFRAGMENTED)
    lengths = (
        payload_length().alias("message_length"),
        F.lit(1).cast("long").alias("frames"),
        aligned_length().alias("log_bytes"),
    )
    told = [is_padding().alias("is_padding")] if padding else []
    unfragmented = log.where((whole | is_padding()) if padding else whole).select(
        *("recording_id", "position", *fields), *lengths, *told
    )
    in_term = Window.partitionBy("recording_id", "term_id").orderBy("position")
    first_position = F.last(F.when(begins_message(), F.col("position")), ignorenulls=True).over(in_term)
    parts = log.where(is_data() & ~has_flags(UNFRAGMENTED)).select(
        "recording_id",
        "position",
        first_position.alias("first_position"),
        ends_message().alias("is_end"),
        *fields,
        *lengths,
    )
    fragmented = (
        parts.where(F.col("first_position").isNotNull())
        .groupBy("recording_id", "first_position")
        .agg(
            *(F.max(name).alias(name) for name in fields),
            *(F.sum(name).alias(name) for name in ("message_length", "frames", "log_bytes")),
            F.bool_or("is_end").alias("is_ended"),
        )
        .where("is_ended")
        .drop("is_ended")
        .withColumnRenamed("first_position", "position")
    )
    if padding:
        fragmented = fragmented.withColumn("is_padding", F.lit(False))
    return unfragmented.unionByName(fragmented)
