"""The lengths of messages, and the bytes that the log adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....service_api.errors import ConfigurationError
from .engine import Column, DataFrame, F
from .log_columns import check_columns, template_name
from .whole_messages import MESSAGE_FIELDS, whole_messages

_QUANTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 10_000


def payload_sizes(log: DataFrame, *, by: Sequence[str] = ("template_id",)) -> DataFrame:
    """Return how long the messages are, and the share of the log that is not messages.

    Needs recording_id, position, frame_length, flags, type, term_id and the columns of `by`, which are some of
    template_id, cluster_session_id, leadership_term_id.

    Gives, the group with the most bytes first: recording_id; the columns of `by`; with template_id also message, the
    name of the template; messages, frames; message_bytes (SBE headers included) and of one message length_min,
    length_p50, length_p90, length_p99, length_max and length_mean (bytes; percentiles approximate to a ten-thousandth
    of the ranks); log_bytes: what they take in the log, with frame headers and alignment; overhead_share: the part of
    log_bytes that is not message, from 0 to 1. Padding frames are a group of their own, named "(padding)" and of
    overhead 1.

    Cost: that of `whole_messages`, and one shuffle of a row for each group and partition.
    """
    names = _check_groups(log, by)
    length = F.when(~F.col("is_padding"), F.col("message_length"))
    name = F.when(F.col("is_padding"), "(padding)").otherwise(template_name())
    named = [name.alias("message")] if "template_id" in names else []
    return (
        whole_messages(log, padding=True)
        .groupBy("recording_id", "is_padding", *names)
        .agg(
            F.count(length).alias("messages"),
            F.sum("frames").alias("frames"),
            F.sum("message_length").alias("message_bytes"),
            F.min(length).alias("length_min"),
            F.percentile_approx(length, list(_QUANTILES), _ACCURACY).alias("quantiles"),
            F.max(length).alias("length_max"),
            F.avg(length).alias("length_mean"),
            F.sum("log_bytes").alias("log_bytes"),
        )
        .select(
            "recording_id",
            *names,
            *named,
            *("messages", "frames", "message_bytes", "length_min"),
            *(F.col("quantiles")[i].alias(f"length_p{int(100 * q)}") for i, q in enumerate(_QUANTILES)),
            *("length_max", "length_mean", "log_bytes"),
            (1 - F.col("message_bytes") / F.col("log_bytes")).alias("overhead_share"),
        )
        .orderBy("recording_id", F.desc("log_bytes"), *names)
    )


def payload_histogram(
    log: DataFrame, *, by: Sequence[str] = ("template_id",), bin_bytes: int | None = None
) -> DataFrame:
    """Return how many messages there are of each length.

    Needs what `payload_sizes` does. Gives, in order: recording_id, the columns of `by`, from_length and to_length (the
    bin, in bytes: from_length <= length < to_length), messages and message_bytes. Bins are `bin_bytes` wide; without it
    they double: 0, 1, 2-3, 4-7, 8-15, ... bytes. Empty bins have no row.

    Cost: that of `whole_messages`, and one shuffle of a row for each group, bin and partition.

    Raises:
        ConfigurationError: `bin_bytes` is below 1, or a column of `by` is not there.
    """
    names = _check_groups(log, by)
    if bin_bytes is not None and bin_bytes < 1:
        raise ConfigurationError(f"a bin of a histogram has a width: bin_bytes={bin_bytes} expected 1 or more")
    begin, end = _bin(bin_bytes)
    return (
        whole_messages(log)
        .groupBy("recording_id", *names, begin.alias("from_length"), end.alias("to_length"))
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("message_length").alias("message_bytes"))
        .orderBy("recording_id", *names, "from_length")
    )


def _bin(bin_bytes: int | None) -> tuple[Column, Column]:
    """The bin of a message's length: where it begins, and where the next one does."""
    length = F.col("message_length")
    if bin_bytes is not None:
        begin = length - length % bin_bytes
        return begin, begin + bin_bytes
    power = F.expr("shiftleft(CAST(1 AS BIGINT), length(bin(message_length)) - 1)")
    return F.when(length == 0, 0).otherwise(power), F.when(length == 0, 1).otherwise(2 * power)


def _check_groups(log: DataFrame, by: Sequence[str]) -> list[str]:
    names = list(by)
    for name in names:
        if name not in MESSAGE_FIELDS:
            raise ConfigurationError(f"messages have no such column: by={name!r} expected {', '.join(MESSAGE_FIELDS)}")
    check_columns(log, "sizes of messages", *names)
    return names
