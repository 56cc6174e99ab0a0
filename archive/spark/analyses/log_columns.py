"""Column expressions over the frames of a log, which all analyses share.

A log is a DataFrame with the columns of `FRAME_COLUMNS`, or those of them that an analysis names.
Nothing here runs a job, and nothing needs a Python worker: the fields of the few messages that are decoded (terms,
sessions opened and closed) are cut out of the payload by Spark's own functions.
"""

from __future__ import annotations

from enum import IntEnum
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
from .engine import Column, DataFrame, F

_SERVICE_ID_SHIFT: Final = 56
_INT64_SIGN: Final = 1 << 63


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


def is_data() -> Column:
    """Whether a row is a data frame, not padding."""
    return F.col("type") == TYPE_DATA


def is_padding() -> Column:
    """Whether a row is a padding frame."""
    return F.col("type") == TYPE_PADDING


def has_flags(flags: int) -> Column:
    """Whether a row has all of these flags."""
    return F.col("flags").bitwiseAND(F.lit(flags).cast("short")) == flags


def begins_message() -> Column:
    """Whether a row is the first frame of a message."""
    return is_data() & has_flags(FLAG_BEGIN)


def ends_message() -> Column:
    """Whether a row is the last frame of a message."""
    return is_data() & has_flags(FLAG_END)


def aligned_length() -> Column:
    """How many bytes of the log a frame takes, its alignment included."""
    length = F.col("frame_length").cast("long")
    return F.shiftleft(F.shiftright(length + (FRAME_ALIGNMENT - 1), 5), 5)


def end_position() -> Column:
    """Where the frame after this one begins."""
    return F.col("position") + aligned_length()


def payload_length() -> Column:
    """How many bytes follow the frame's header; 0 for padding."""
    return F.when(is_data(), F.col("frame_length").cast("long") - HEADER_LENGTH).otherwise(F.lit(0).cast("long"))


def application_length() -> Column:
    """How many bytes an application sent in a session message: what follows the message's fields, requests' included.

    Needs template_id, block_length and message_length of whole messages; NULL for other messages.
    """
    sent = F.col("message_length") - MESSAGE_HEADER_LENGTH - F.col("block_length")
    return F.when(F.col("template_id") == SESSION_MESSAGE_HEADER, sent)


def service_id() -> Column:
    """Which service offered a message; NULL where a client did.

    A service's messages have the session id -2^63 + service_id * 2^56 + n.
    """
    session_id = F.col("cluster_session_id")
    return F.when(session_id < 0, F.shiftright(session_id.bitwiseXOR(F.lit(-_INT64_SIGN)), _SERVICE_ID_SHIFT)).cast(
        "int"
    )


def client_session_id() -> Column:
    """The session of a client; NULL where a service offered the message."""
    return F.when(F.col("cluster_session_id") >= 0, F.col("cluster_session_id"))


def micros_between(earlier: Column, later: Column) -> Column:
    """How many microseconds are between two timestamps; negative if the clock went back."""
    return F.unix_micros(later) - F.unix_micros(earlier)


def has_valid_checksum(kind: ChecksumKind, prefix: str = "") -> Column:
    """Whether the session id of a data frame is its checksum, as where recordings have some; NULL without a frame.

    The checksum covers the payload and the zeros up to the next frame. `prefix` is that of the columns type,
    frame_length, session_id and payload, such as "a.".
    """
    unaligned = F.col(f"{prefix}frame_length") - HEADER_LENGTH
    aligned = F.shiftleft(F.shiftright(unaligned + (FRAME_ALIGNMENT - 1), 5), 5)
    compute = _crc32c if kind is ChecksumKind.CRC32C else F.crc32
    crc = compute(F.rpad(f"{prefix}payload", aligned, F.lit(b"\0")))
    signed = F.when(crc >= 1 << 31, crc - (1 << 32)).otherwise(crc)
    return (F.col(f"{prefix}type") == TYPE_DATA) & (F.col(f"{prefix}session_id") == signed)


def _crc32c(data: Column) -> Column:
    """The CRC-32C of bytes, as a long.

    Spark has no function for it, and a function in Python would need a worker: it goes through the bytes with a table,
    at 1.5 us a byte. So few frames are looked at. The report's engine brings one.
    """
    of_engine = getattr(F, "crc32c", None)
    if of_engine is not None:
        return of_engine(data)  # type: ignore[no-any-return]
    table = F.array(*map(F.lit, make_crc_table(CRC32C_POLYNOMIAL)))

    def step(register: Column, byte: Column) -> Column:
        index = register.bitwiseXOR(F.conv(byte, 16, -10).cast("long")).bitwiseAND(F.lit(0xFF))
        return F.shiftright(register, 8).bitwiseXOR(F.element_at(table, (index + 1).cast("int")))

    digits = F.regexp_extract_all(F.hex(data), F.lit("(..)"), F.lit(1))
    return F.aggregate(digits, F.lit(0xFFFF_FFFF), step).bitwiseXOR(F.lit(0xFFFF_FFFF))


def block_integer(offset: int, length: int) -> Column:
    """Read the little-endian integer of `length` bytes at `offset` of the SBE block in the column payload.

    NULL where the block ends before it: an older version of the schema wrote the message.
    """
    value = _integer(MESSAGE_HEADER_LENGTH + offset, length, is_signed=True)
    return F.when(_block_length() >= offset + length, value)


def block_enum(offset: int, members: type[IntEnum]) -> Column:
    """Read an enum of the SBE block as the name of its member; NULL where it has none of these values."""
    value = block_integer(offset, 4)
    return F.coalesce(*(F.when(value == int(member), F.lit(member.name)) for member in members))


def block_version(offset: int) -> Column:
    """Read a semantic version of the SBE block, as "1.2.3"; NULL where none was given."""
    value = block_integer(offset, 4)
    parts = (F.shiftright(value, 16), F.shiftright(value, 8).bitwiseAND(F.lit(255)), value.bitwiseAND(F.lit(255)))
    return F.when(value != 0, F.concat_ws(".", *(part.cast("string") for part in parts)))


def var_data(index: int) -> Column:
    """Read the bytes of the variable-length field number `index` after the SBE block in the column payload.

    NULL where the payload ends before they do: the frame is the first of a fragmented message.
    """
    offset = _block_length() + MESSAGE_HEADER_LENGTH
    for _ in range(index):
        offset = offset + 4 + _integer(offset, 4, is_signed=False)
    length = _integer(offset, 4, is_signed=False)
    data = F.substr("payload", (offset + 5).try_cast("int"), length.try_cast("int"))
    return F.when(offset + 4 + length <= F.length("payload"), data)


def template_name() -> Column:
    """What the message of a row is called; NULL where it is none of a log."""
    names = (F.when(F.col("template_id") == template, F.lit(name)) for template, name in MESSAGE_NAMES.items())
    return F.coalesce(*names)


def _block_length() -> Column:
    return _integer(0, 2, is_signed=False)


def _integer(offset: int | Column, length: int, *, is_signed: bool) -> Column:
    """Read a little-endian integer of the payload, as a long; NULL where the payload ends before it."""
    begin = F.lit(offset + 1) if isinstance(offset, int) else (offset + 1).try_cast("int")  # NULL beyond any payload
    # Each step names the one before it once: the text of an expression grows with every name of it.
    digits = F.reverse(F.hex(F.substr("payload", begin, F.lit(length))))
    value = F.conv(F.regexp_replace(digits, "(.)(.)", "$2$1"), 16, -10).cast("long")
    if is_signed and length < 8:
        unused = 64 - 8 * length
        value = F.shiftright(F.shiftleft(value, unused), unused)
    return F.when(F.length("payload") >= begin + (length - 1), value)


def extent() -> list[Column]:
    """Aggregates of any rows of a log: where and when they begin and end, how many frames and messages they are."""
    return [
        F.min("position").alias("start_position"),
        F.max(end_position()).alias("stop_position"),
        F.min("timestamp").alias("first_timestamp"),
        F.max("timestamp").alias("last_timestamp"),
        F.count(F.lit(1)).alias("frames"),
        F.count_if(begins_message()).alias("messages"),
    ]
