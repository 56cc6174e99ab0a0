"""The records of an error log as Aeron keeps it in a mark file: each distinct error once, with how often and when.

One record follows the other, each begins at a multiple of 8, and the first length of zero ends the log:

    0    int32   length of the record with this header, without the padding after it
    4    int32   how often it was observed
    8    int64   the last time, milliseconds since the Unix epoch
    16   int64   the first time
    24   UTF-8   the text

Source: Agrona `DistinctErrorLog`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

RECORD_HEADER: Final = struct.Struct("<iiqq")
RECORD_ALIGNMENT: Final = 8


@dataclass(slots=True, frozen=True)
class ErrorRecord:
    """One record, and where it lies in the area of the log. Times in milliseconds since the Unix epoch."""

    offset: int
    end: int
    """Where the next record begins."""
    count: int
    last_ms: int
    first_ms: int
    text: bytes

    @property
    def headline(self) -> str:
        """The first line of the text."""
        return self.text.partition(b"\n")[0].decode(errors="replace")


def error_records(area: bytes) -> Iterator[ErrorRecord]:
    """Walk over the records of a log up to its end, or to what cannot be one."""
    offset = 0
    while offset + RECORD_HEADER.size <= len(area):
        length, count, last_ms, first_ms = RECORD_HEADER.unpack_from(area, offset)
        if length < RECORD_HEADER.size or offset + length > len(area) or count < 0:
            return
        end = offset + length + -length % RECORD_ALIGNMENT
        yield ErrorRecord(offset, end, count, last_ms, first_ms, area[offset + RECORD_HEADER.size : offset + length])
        offset = end
