"""Expressions of SQL over the frames of a log, which all analyses share.

A log is a DataFrame with the columns of `FRAME_COLUMNS`, or those of them that an analysis names.
Nothing here runs a job, and nothing needs a Python worker: the fields of the few messages that are decoded (terms,
sessions opened and closed) are cut out of the payload by functions of the engine. Each expression is in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ....service_api.errors import ConfigurationError
from ....service_api.wire.checksum import CRC32C_POLYNOMIAL, ChecksumKind, make_crc_table
from ....service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
)
from ....service_api.wire.log.fields import MESSAGE_HEADER_LENGTH
from ....service_api.wire.log.layout import MESSAGE_NAMES, SESSION_MESSAGE_HEADER
from ...reading.frame_columns import GROUP_COLUMN
from .sql import DataFrame, is_on_spark

INT64_MAX: Final = (1 << 63) - 1
_SERVICE_ID_SHIFT: Final = 56


def check_columns(frame: DataFrame, what: str, *names: str) -> None:
    """Refuse a DataFrame that lacks a column, or that holds the logs of groups where one log is meant.

    Groups have the same recording ids and positions: an analysis of one log would mix them without a word.

    Raises:
        ConfigurationError: which columns `what` needs and has not got; or how to choose a group.
    """
    if GROUP_COLUMN in frame.columns and GROUP_COLUMN not in names:
        raise ConfigurationError(
            f"{what} is of one log, and this DataFrame has a column {GROUP_COLUMN}: choose one, such as "
            f'log.where("{GROUP_COLUMN} = 0").drop("{GROUP_COLUMN}"), or load the directory of one group'
        )
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ConfigurationError(
            f"{what} needs more columns: missing={','.join(missing)} has={','.join(frame.columns)}"
        )


def check_interval(interval: str) -> str:
    """Return a length of time as Spark writes it, such as "5 minutes".

    Raises:
        ConfigurationError: it is no such text.
    """
    if re.fullmatch(r"\s*\d+ [a-z]+( \d+ [a-z]+)*\s*", interval, re.ASCII | re.IGNORECASE) is None:
        raise ConfigurationError(f"interval={interval!r} expected a length of time, such as '5 minutes'")
    return interval


def has_flags(flags: int) -> str:
    """Test whether a row has all of these flags."""
    return f"((flags & {flags}) = {flags})"


def micros_between(earlier: str, later: str) -> str:
    """Count the microseconds between two timestamps; negative if the clock went back."""
    return f"(unix_micros({later}) - unix_micros({earlier}))"


def aligned(length: str) -> str:
    """Round a length up to the alignment of frames."""
    return f"((CAST({length} AS BIGINT) + {FRAME_ALIGNMENT - 1}) & {-FRAME_ALIGNMENT})"


IS_DATA: Final = f"(type = {TYPE_DATA})"
"""The condition that a row is a data frame, not padding."""
IS_PADDING: Final = f"(type = {TYPE_PADDING})"
BEGINS_MESSAGE: Final = f"({IS_DATA} AND {has_flags(FLAG_BEGIN)})"
"""The condition that a row is the first frame of a message."""
ENDS_MESSAGE: Final = f"({IS_DATA} AND {has_flags(FLAG_END)})"
ALIGNED_LENGTH: Final = aligned("frame_length")
"""The bytes of the log that a frame takes, its alignment included."""
END_POSITION: Final = f"(position + {ALIGNED_LENGTH})"
"""The position at which the frame after this one begins."""
PAYLOAD_LENGTH: Final = f"(CASE WHEN {IS_DATA} THEN CAST(frame_length AS BIGINT) - {HEADER_LENGTH} ELSE 0 END)"
"""The number of bytes after the frame's header; 0 for padding."""
APPLICATION_LENGTH: Final = (
    f"(CASE WHEN template_id = {SESSION_MESSAGE_HEADER}"
    f" THEN message_length - {MESSAGE_HEADER_LENGTH} - block_length END)"
)
"""The number of bytes that an application sent in a session message: after the fields of the message, or request.

Needs template_id, block_length and message_length of whole messages; NULL for other messages.
"""
SERVICE_ID: Final = (
    f"CAST(CASE WHEN cluster_session_id < 0 THEN (cluster_session_id & {INT64_MAX}) >> {_SERVICE_ID_SHIFT} END AS INT)"
)
"""The service that offered a message; NULL where a client did.

A service's messages have the session id -2^63 + service_id * 2^56 + n.
"""
CLIENT_SESSION_ID: Final = "(CASE WHEN cluster_session_id >= 0 THEN cluster_session_id END)"
"""The session of a client; NULL where a service offered the message."""
TEMPLATE_NAME: Final = "(CASE template_id {} END)".format(
    " ".join(f"WHEN {template} THEN '{name}'" for template, name in MESSAGE_NAMES.items())
)
"""The name of the message of a row; NULL for a template that no log has."""
EXTENT: Final = f"""min(position) AS start_position, max({END_POSITION}) AS stop_position,
    min(timestamp) AS first_timestamp, max(timestamp) AS last_timestamp,
    count(*) AS frames, count(*) FILTER (WHERE {BEGINS_MESSAGE}) AS messages"""
"""Aggregates of any rows of a log: where and when they begin and end, how many frames and messages they are."""


def has_valid_checksum(log: DataFrame, kind: ChecksumKind, prefix: str = "") -> str:
    """Test whether the session id of a data frame is its checksum, as where recordings have some; NULL without a frame.

    The checksum covers the payload and the zeros up to the next frame. `prefix` is that of the columns type,
    frame_length, session_id and payload, such as "a.".
    """
    length = f"CAST({aligned(f'({prefix}frame_length - {HEADER_LENGTH})')} AS INT)"
    compute = _crc32c if kind is ChecksumKind.CRC32C and is_on_spark(log) else "{kind}({data})".format
    crc = compute(kind=kind.label, data=f"rpad({prefix}payload, {length}, x'00')")
    session_id = f"(CAST({prefix}session_id AS BIGINT) & {0xFFFF_FFFF})"
    return f"({prefix}type = {TYPE_DATA} AND {session_id} = {crc})"


def _crc32c(data: str, **_: str) -> str:
    """The CRC-32C of bytes, in Spark's SQL.

    Spark has no function for it, and a function in Python would need a worker: it goes through the bytes with a table,
    at 1.5 us a byte. So few frames are looked at. The report's engine brings one.
    """
    table = ", ".join(f"{entry}L" for entry in make_crc_table(CRC32C_POLYNOMIAL))
    index = "CAST(((register ^ CAST(conv(byte, 16, -10) AS BIGINT)) & 255) + 1 AS INT)"
    step = f"(register, byte) -> shiftright(register, 8) ^ element_at(array({table}), {index})"
    return f"(aggregate(regexp_extract_all(hex({data}), '(..)', 1), {0xFFFF_FFFF}L, {step}) ^ {0xFFFF_FFFF}L)"


def read_integer(begin: str, length: int, *, is_signed: bool) -> str:
    """Read the little-endian integer of `length` bytes from byte `begin` of the payload, counted from 1, as a BIGINT.

    NULL where the payload ends before it.
    """
    value = f"CAST(conv(hex(reverse(substr(payload, {begin}, {length}))), 16, -10) AS BIGINT)"
    if is_signed and length < 8:
        half = 1 << (8 * length - 1)
        value = f"(({value} + {half}) % {2 * half} - {half})"
    return f"(CASE WHEN length(payload) >= {begin} + {length - 1} THEN {value} END)"


BLOCK_LENGTH: Final = read_integer("1", 2, is_signed=False)
"""The length of the SBE block in the column payload, in bytes."""


def block_integer(offset: int, length: int) -> str:
    """Read the little-endian integer of `length` bytes at `offset` of the SBE block in the column payload.

    NULL where the block ends before it: an older version of the schema wrote the message.
    """
    value = read_integer(str(MESSAGE_HEADER_LENGTH + offset + 1), length, is_signed=True)
    return f"(CASE WHEN {BLOCK_LENGTH} >= {offset + length} THEN {value} END)"


def block_enum(offset: int, names: Mapping[int, str]) -> str:
    """Read an enum of the SBE block as one of `names`, by its value; NULL where it has another value."""
    cases = " ".join(f"WHEN {int(value)} THEN '{name}'" for value, name in names.items())
    return f"(CASE {block_integer(offset, 4)} {cases} END)"
