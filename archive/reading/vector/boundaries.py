"""Finds frame boundaries at which a recording can be cut, without an index and without reading it from the beginning.

A partition is to begin near a position that somebody chose, and two tasks that know nothing of each other, the one
that ends there and the one that begins, have to agree on the frame.

*Terms.* No frame and no message crosses the end of a term, so the beginning of a term is always a place to cut.

*Inside a term.* A frame says where it lies (see `scan`), so the slots that hold valid headers for their
own place are candidates. Each true frame of sound data is one, but a payload may hold what looks like one. Let A be
the longest frame (the mtu, aligned). In the window [p, p + 2A) all candidates are gathered. If each of them ends where
the next one begins, they are one chain. A true frame begins in [p, p + A), because none is longer than A; all that
follows a true frame on the chain is true; so every candidate from p + A on is a true frame. The first of these is the
cut. What stands before it may be false: it is not used.

*Where there is no such chain*, because a payload looks like frames, or frames are damaged, or the term or the recording
ends within the window, the place is passed over, and the next place is tried, every 64 KiB and wherever a partition is
to begin, at the latest the end of the term. A place that is passed over leads to the next one that somebody else may
begin with, so a later place never has an earlier cut. Both tasks decide the same from the same bytes, so no row is lost
or read twice. And it is checked: a task reads up to the cut and has to arrive there exactly; if it does not, that is
reported as damage.

*Messages* are cut at the first frame that begins one, or at padding, from there on.

Rejected: the driver reading all headers (a 100th of the time of the query, but of a whole archive on one machine); a
sparse index beside the segments, which a real Aeron's do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ....service_api.wire.frame import FLAG_BEGIN, TYPE_PADDING, unpack_header
from ....service_api.wire.frame_rules import FrameRules
from ...files.vector.scan import KIND, MIN_BLOCK_LENGTH_BYTES, SLOT, FrameScanner
from ...format.descriptor import RecordingDescriptor
from ...format.frame_rules import frame_rules_of
from ...format.layout import first_base_position
from ...log.log_file import LogFile
from ...log.member_directory import ArchiveLocation

GRID_BYTES: Final = 1 << 16
"""Places are tried at multiples of this; the shortest term is as long."""

_TERM_OFFSET_WORD: Final = 2
_WORDS: Final = SLOT // 4


@dataclass(slots=True, frozen=True, kw_only=True)
class CutRules:
    """Where a recording may be cut: every `split_bytes`, up to `end_position`, at frames or at messages.

    A segment's beginning is such a place, too, unless `split_bytes` holds several segments.
    """

    split_bytes: int
    end_position: int
    of_messages: bool

    def next_place(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Find the first chosen place behind `position`; `end_position` if there is none before it."""
        first = first_base_position(descriptor.start_position, term_length_bytes=descriptor.term_buffer_length)
        segment_length = descriptor.segment_file_length
        if self.split_bytes >= segment_length:
            step = self.split_bytes - self.split_bytes % segment_length
            place = first + ((position - first) // step + 1) * step
        else:
            base = descriptor.segment_base_position(position)
            step = self.split_bytes - self.split_bytes % SLOT
            place = min(base + ((position - base) // step + 1) * step, base + segment_length)
        return min(place, self.end_position)


def find_cut(location: ArchiveLocation, descriptor: RecordingDescriptor, place: int, rules: CutRules) -> int:
    """Find where the partition begins that was to begin at `place`: there, or at the next place that can be a cut.

    The beginning and the end of what is read are cuts as they are.

    Raises:
        OSError: the disk or the store refused.
    """
    term_length = descriptor.term_buffer_length
    while place < rules.end_position:
        if place <= descriptor.start_position or place % term_length == 0:
            return place
        found = _find_sure_frame(location, descriptor, place, rules)
        if found is not None:
            return found
        place = min(place - place % GRID_BYTES + GRID_BYTES, rules.next_place(descriptor, place))
    return rules.end_position


def find_start(location: ArchiveLocation, descriptor: RecordingDescriptor, position: int, rules: CutRules) -> int:
    """Find a place whose cut is at or before `position`, and near it: the first try is twice the longest frame before.

    Raises:
        OSError: the disk or the store refused.
    """
    position = min(position, rules.end_position)
    first = max(descriptor.start_position, position - position % descriptor.term_buffer_length)
    distance = 2 * _longest_frame(descriptor)
    while position - distance > first:
        place = (position - distance) & -SLOT
        if find_cut(location, descriptor, place, rules) <= position:
            return place
        distance *= 4
    return first


def find_frame_before(
    location: ArchiveLocation, descriptor: RecordingDescriptor, position: int, *, of_messages: bool
) -> int:
    """Find a frame, or one that begins a message, at or before a position that is not before the recording's.

    It is near: a reader from there on passes over little.

    Raises:
        OSError: the disk or the store refused.
    """
    term_end = position - position % descriptor.term_buffer_length + descriptor.term_buffer_length
    rules = CutRules(split_bytes=GRID_BYTES, end_position=term_end, of_messages=of_messages)
    return find_cut(location, descriptor, find_start(location, descriptor, position, rules), rules)


def _longest_frame(descriptor: RecordingDescriptor) -> int:
    return (descriptor.mtu_length + SLOT - 1) & -SLOT


def _find_sure_frame(
    location: ArchiveLocation, descriptor: RecordingDescriptor, place: int, rules: CutRules
) -> int | None:
    """Find the first frame that is surely one in the window that begins at `place`."""
    longest = _longest_frame(descriptor)
    window_end = place + 2 * longest
    term_length = descriptor.term_buffer_length
    if window_end > min(rules.end_position, place - place % term_length + term_length):
        return None
    data = LogFile(location, descriptor).read(place, window_end - place)
    frames = _find_valid_headers(data, place, frame_rules_of(descriptor))
    ends = [position + length for position, length in frames]
    if not frames or frames[0][0] >= place + longest:
        return None
    if any(end != following for end, (following, _) in zip(ends, frames[1:], strict=False)):
        return None
    sure = next((position for position, _ in frames if position >= place + longest), None)
    if sure is None or not rules.of_messages:
        return sure
    return _find_message(location, descriptor, sure, rules.end_position)


def _find_valid_headers(data: bytes, position: int, rules: FrameRules) -> list[tuple[int, int]]:
    """Find (position, aligned length) of whatever looks like a frame in `data`, which begins at `position`.

    Only headers are looked at: the last frame may go on behind the data.
    """
    words = np.frombuffer(data, "<i4", len(data) // SLOT * _WORDS).reshape(-1, _WORDS)
    expected = position % rules.term_length_bytes + np.arange(0, len(words) * SLOT, SLOT)
    found = []
    for slot in (words[:, _TERM_OFFSET_WORD] == expected).nonzero()[0].tolist():
        header = unpack_header(data, slot * SLOT)
        if rules.find_header_fault(header, position + slot * SLOT) is None:
            found.append((position + slot * SLOT, header.aligned_length))
    return found


def _find_message(
    location: ArchiveLocation, descriptor: RecordingDescriptor, position: int, end_position: int
) -> int | None:
    """Find the first frame from the frame at `position` on that begins a message, or is padding, or the term's end."""
    term_end = position - position % descriptor.term_buffer_length + descriptor.term_buffer_length
    scanner = FrameScanner(
        location.directory,
        descriptor,
        start_position=position,
        bound_position=end_position,
        checksummed=False,
        block_length_bytes=MIN_BLOCK_LENGTH_BYTES,
        file_system=location.file_system,
    )
    for block in scanner:
        if block.position >= term_end:
            return term_end
        kinds = block.headers[:, KIND]
        rows = ((kinds >> 8 & FLAG_BEGIN != 0) | (kinds >> 16 == TYPE_PADDING)).nonzero()[0]
        if len(rows):
            return int(block.positions[rows[0]])
    return None
