"""The columns of a recording's frames: one table for everything that shows frames as rows.

From it come the types of Arrow and Spark, the encodings and JSON rows of an export, and the table in
docs/archive-frames.md. A new column is a row here, and what `vector.columns` and `files.reader` read for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from ...service_api.errors import ConfigurationError


class ColumnType(Enum):
    """What the values of a column are; the value is how the documentation calls it."""

    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    TIMESTAMP = "timestamp, UTC"
    BINARY = "binary"


class Encoding(Enum):
    """How a Parquet file holds a column."""

    PLAIN = "plain"
    DELTA = "delta"
    """Values that rise from row to row by nearly the same."""
    DICTIONARY = "dictionary"
    """Few values, again and again."""


class FrameColumn(NamedTuple):
    """One column."""

    name: str
    type: ColumnType
    encoding: Encoding
    meaning: str


_PLAIN, _DELTA, _DICTIONARY = Encoding
_INT16, _INT32, _INT64, _TIMESTAMP, _BINARY = ColumnType

_HEADER: Final = (
    FrameColumn("recording_id", _INT64, _DICTIONARY, "which recording of the archive"),
    FrameColumn("position", _INT64, _DELTA, "where the frame begins, in bytes of the recording"),
    FrameColumn("frame_length", _INT32, _PLAIN, "bytes of the header and the payload, without alignment"),
    FrameColumn("version", _INT16, _DICTIONARY, "always 0"),
    FrameColumn(
        "flags",
        _INT16,
        _DICTIONARY,
        "128: the first frame of a message; 64: the last; 192: all of it; other bits are the application's",
    ),
    FrameColumn("type", _INT32, _DICTIONARY, "1 data, 0 padding"),
    FrameColumn("term_offset", _INT32, _DELTA, "where the frame begins, in bytes of its term buffer"),
    FrameColumn("session_id", _INT32, _PLAIN, "the publication; with checksums, the CRC-32 or CRC-32C"),
    FrameColumn("stream_id", _INT32, _DICTIONARY, "the stream; 100 is the log of a cluster"),
    FrameColumn("term_id", _INT32, _DICTIONARY, "the term buffer, counted from the initial term id of the recording"),
    FrameColumn("reserved_value", _INT64, _PLAIN, "0 in a log"),
)
_MESSAGE: Final = (
    FrameColumn(
        "template_id",
        _INT32,
        _DICTIONARY,
        "which message of the cluster schema (111) begins here; null for padding, later fragments and other payloads",
    ),
    FrameColumn(
        "block_length",
        _INT32,
        _DICTIONARY,
        "bytes of the message's fields, after the 8 of its SBE header; in a session message the application's bytes "
        "follow: after 24, or 40 in a request; null where template_id is",
    ),
    FrameColumn("leadership_term_id", _INT64, _DICTIONARY, "of the message; null where it has none"),
    FrameColumn("cluster_session_id", _INT64, _DICTIONARY, "of the message; null where it has none"),
    FrameColumn("correlation_id", _INT64, _PLAIN, "of the message; null where it has none"),
    FrameColumn(
        "timestamp",
        _TIMESTAMP,
        _DELTA,
        "of the message; null where it has none; in the unit of the cluster's clock, given by `time_unit` "
        "(default: what the log says)",
    ),
)
_PAYLOAD: Final = FrameColumn(
    "payload",
    _BINARY,
    _PLAIN,
    "everything after the frame's header: the SBE message, then the application's bytes",
)

COLUMNS: Final[Mapping[str, FrameColumn]] = MappingProxyType({c.name: c for c in (*_HEADER, *_MESSAGE, _PAYLOAD)})
"""All columns by name, in their order."""

FRAME_COLUMNS: Final = tuple(COLUMNS)
HEADER_COLUMNS: Final = tuple(column.name for column in _HEADER)
"""What a frame's header says, and where it lies."""
MESSAGE_COLUMNS: Final = tuple(column.name for column in _MESSAGE)
"""What the first bytes of a payload say, where they begin a message of the cluster's log. Only these can be null."""


GROUP_COLUMN: Final = "group"
"""The column that says which group's log a row is of, where a member's directory has groups; an int32."""


def choose_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of columns; None stands for all.

    Raises:
        ConfigurationError: there is no such column, or one is named twice.
    """
    names = FRAME_COLUMNS if columns is None else tuple(columns)
    for name in names:
        if name not in COLUMNS:
            raise ConfigurationError(f"no such column: column={name!r} expected some of {', '.join(FRAME_COLUMNS)}")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"a column is named twice: columns={','.join(names)}")
    return names


def columns_as_markdown() -> str:
    """Write the table of the documentation."""
    rows = [f"| `{column.name}` | {column.type.value} | {column.meaning} |" for column in COLUMNS.values()]
    return "\n".join(("| column | type | meaning |", "|---|---|---|", *rows)) + "\n"
