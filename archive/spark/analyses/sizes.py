"""The lengths of messages, and the bytes that the log adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....service_api.errors import ConfigurationError
from .log_columns import TEMPLATE_NAME, check_columns
from .sql import DataFrame, sql
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
    message = f"CASE WHEN is_padding THEN '(padding)' ELSE {TEMPLATE_NAME} END AS message,"
    quantiles = ", ".join(
        f"element_at(quantiles, {place}) AS length_p{int(100 * q)}" for place, q in enumerate(_QUANTILES, 1)
    )
    return sql(
        f"""
        SELECT recording_id, {names} {message if "template_id" in by else ""}
            messages, frames, message_bytes, length_min, {quantiles}, length_max, length_mean, log_bytes,
            1 - message_bytes / log_bytes AS overhead_share
        FROM (
            SELECT recording_id, {names} is_padding, count(length) AS messages,
                sum(frames) AS frames, sum(message_length) AS message_bytes, min(length) AS length_min,
                percentile_approx(length, `array`({", ".join(map(str, _QUANTILES))}), {_ACCURACY}) AS quantiles,
                max(length) AS length_max, avg(length) AS length_mean, sum(log_bytes) AS log_bytes
            FROM (SELECT *, CASE WHEN NOT is_padding THEN message_length END AS length FROM messages)
            GROUP BY recording_id, {names} is_padding
        )
        ORDER BY recording_id, log_bytes DESC {"".join(f", {name}" for name in by)}
        """,
        messages=whole_messages(log, padding=True),
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
    power = "CAST(1 AS BIGINT) << (length(bin(message_length)) - 1)"
    begin = f"CASE WHEN message_length = 0 THEN 0 ELSE {power} END"
    end = "CASE WHEN from_length = 0 THEN 1 ELSE 2 * from_length END"
    if bin_bytes is not None:
        begin, end = f"message_length - message_length % {bin_bytes}", f"from_length + {bin_bytes}"
    return sql(
        f"""
        SELECT recording_id, {names} from_length, {end} AS to_length, messages, message_bytes
        FROM (
            SELECT recording_id, {names} from_length, count(*) AS messages, sum(message_length) AS message_bytes
            FROM (SELECT *, {begin} AS from_length FROM messages)
            GROUP BY recording_id, {names} from_length
        )
        ORDER BY recording_id, {names} from_length
        """,
        messages=whole_messages(log),
    )


def _check_groups(log: DataFrame, by: Sequence[str]) -> str:
    """Return the columns as the begin of a list, with a comma after each."""
    for name in by:
        if name not in MESSAGE_FIELDS:
            raise ConfigurationError(f"messages have no such column: by={name!r} expected {', '.join(MESSAGE_FIELDS)}")
    check_columns(log, "sizes of messages", *by)
    return "".join(f"{name}, " for name in by)
