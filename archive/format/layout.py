"""The layout of a recording: arithmetic on positions, without files.

A recording is cut into segment files of equal length. Segments are counted from the beginning of the *term*
in which the recording starts, so that a term never crosses two files; a recording that starts inside a term
has zeros before its start in its first file. File offset = position - base position of the segment.
Source: samples set A README §3; Aeron `AeronArchive.segmentFileBasePosition`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEGMENT_SUFFIX: Final = ".rec"

COLD_RECORD_NAME: Final = "cold-storage.json"
"""The file of a member's archive directory that says where its cold segments are."""

SEGMENT_LENGTH_LIMIT_BYTES: Final = 1 << 30
"""The longest segment file, and the longest term, as in Aeron."""

UNSYNCED_LIMIT_BYTES: Final = 4 << 20
"""How much may be written and not durable at any moment: the longest tear that a power loss can leave."""


class SegmentSlice(NamedTuple):
    """The part [start_position, stop_position) of a recording that lies in the segment at `base_position`."""

    base_position: int
    start_position: int
    stop_position: int


def segment_file_name(recording_id: int, base_position: int) -> str:
    """Name the file of a segment: `<recording id>-<base position>.rec`."""
    return f"{recording_id}-{base_position}{SEGMENT_SUFFIX}"


def first_base_position(start_position: int, *, term_length_bytes: int) -> int:
    """Compute where the first segment of a recording begins: the start of the term that holds
    `start_position`.
    """
    return start_position - start_position % term_length_bytes


def segment_base_position(
    position: int, *, start_position: int, term_length_bytes: int, segment_length_bytes: int
) -> int:
    """Compute the base position of the segment that holds `position`."""
    first = first_base_position(start_position, term_length_bytes=term_length_bytes)
    return position - (position - first) % segment_length_bytes


def clip(
    start_position: int,
    stop_position: int,
    *,
    recording_start_position: int,
    term_length_bytes: int,
    segment_length_bytes: int,
) -> Iterator[SegmentSlice]:
    """Cut the range [start_position, stop_position) at segment boundaries, in order; nothing for an empty
    range.
    """
    position = start_position
    while position < stop_position:
        base = segment_base_position(
            position,
            start_position=recording_start_position,
            term_length_bytes=term_length_bytes,
            segment_length_bytes=segment_length_bytes,
        )
        end = min(stop_position, base + segment_length_bytes)
        yield SegmentSlice(base, position, end)
        position = end
