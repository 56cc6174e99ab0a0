"""Finds the parts of a log that a filter can match, from the heads of few of them.

In a log leadership terms never decrease, and within a leadership term timestamps never do (over a change of leaders
they may: Aeron's leaders each have a clock). So the first message at a place and that at a later one say what can lie
between: if both are of one term, all timestamps between theirs; in any case all terms between theirs. Places are looked
at by halves: where the two ends of a run rule it out, or are both asked for, nothing in it is read. So a range of times
costs about twice the logarithm of the number of places; over a network each head is two requests. Many changes of
leaders may make it more, so there is a limit: what is not decided by then is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....service_api.types import TimeUnit
from ...files.vector.scan import MIN_BLOCK_LENGTH_BYTES, FrameScanner
from ...format.descriptor import RecordingDescriptor
from ...log.member_directory import ArchiveLocation
from ...reading.vector.columns import BatchMaker, frame_schema
from .intervals import ANY_VALUE, Intervals
from .timestamps import to_microseconds

HEAD_LIMIT: Final = 1_000
"""How many heads are looked at for one recording: some milliseconds each on a disk, a minute in all in a store."""


class LogHead(NamedTuple):
    """What the first message at a place says that has both."""

    leadership_term_id: int
    timestamp_us: int


@dataclass(slots=True, frozen=True)
class WantedTimes:
    """What rows are asked for, by their leadership term and their timestamp in microseconds."""

    leadership_term_ids: Intervals
    timestamps_us: Intervals

    @property
    def is_all(self) -> bool:
        """Whether any row may be asked for."""
        return self.leadership_term_ids == ANY_VALUE and self.timestamps_us == ANY_VALUE

    def are_all_between(self, first: LogHead, behind: LogHead) -> bool:
        """Whether all rows between two messages are wanted."""
        is_one_term = first.leadership_term_id == behind.leadership_term_id
        return self.leadership_term_ids.holds_all(first.leadership_term_id, behind.leadership_term_id) and (
            self.timestamps_us == ANY_VALUE
            or (is_one_term and self.timestamps_us.holds_all(first.timestamp_us, behind.timestamp_us))
        )

    def may_lie_between(self, first: LogHead, behind: LogHead | None) -> bool:
        """Whether a wanted row can lie from a message on and before a later one; None: up to the end."""
        if behind is None:
            return first.leadership_term_id <= self.leadership_term_ids.high
        if not self.leadership_term_ids.meets(first.leadership_term_id, behind.leadership_term_id):
            return False
        if first.leadership_term_id != behind.leadership_term_id:
            return True
        return self.timestamps_us.meets(first.timestamp_us, behind.timestamp_us)


def choose_runs(
    place_count: int,
    find_head: Callable[[int], LogHead | None],
    wanted: WantedTimes,
    head_limit: int = HEAD_LIMIT,
) -> list[tuple[int, int]]:
    """Choose, from places numbered from 0, the runs [begin, end) that may hold wanted rows; ascending, none adjacent.

    `find_head` is asked once at most for a place; None is a head that nobody can read, which rules out nothing. Where
    all of a run is wanted it is taken, and so is every run that is left after `head_limit` heads.
    """
    heads: dict[int, LogHead | None] = {}
    chosen: list[tuple[int, int]] = []

    def head_of(index: int) -> LogHead | None:
        if index not in heads:
            heads[index] = find_head(index)
        return heads[index]

    def take(begin: int, end: int) -> None:
        if chosen and chosen[-1][1] == begin:
            begin, _ = chosen.pop()
        chosen.append((begin, end))

    # A stack instead of recursion; the left half is on top, so that places come in order.
    runs = [(0, place_count)] if place_count else []
    while runs:
        begin, end = runs.pop()
        if len(heads) >= head_limit:
            take(begin, end)
            continue
        first = head_of(begin)
        is_last = end == place_count
        behind = None if is_last else head_of(end)
        if first is not None and (is_last or behind is not None) and not wanted.may_lie_between(first, behind):
            continue
        is_all_wanted = first is not None and behind is not None and wanted.are_all_between(first, behind)
        if end - begin == 1 or is_all_wanted:
            take(begin, end)
        else:
            middle = (begin + end) // 2
            runs += [(middle, end), (begin, middle)]
    return chosen


def read_head(
    location: ArchiveLocation, descriptor: RecordingDescriptor, position: int, time_unit: TimeUnit
) -> LogHead | None:
    """Read the head at the frame at `position`; None if its first 64 KiB hold no message with a term and a timestamp.

    Raises:
        OSError: the disk or the store refused.
    """
    scanner = FrameScanner(
        location.directory,
        descriptor,
        start_position=position,
        bound_position=position + max(MIN_BLOCK_LENGTH_BYTES, descriptor.mtu_length),
        checksummed=False,
        block_length_bytes=MIN_BLOCK_LENGTH_BYTES,
        file_system=location.file_system,
    )
    schema = frame_schema(("leadership_term_id", "timestamp"), time_unit=time_unit)
    block = next(iter(scanner), None)
    if block is None:
        return None
    batch = BatchMaker(schema, descriptor.recording_id).make(block)
    terms, times = batch.column(0), to_microseconds(batch.column(1))
    for row in (terms.is_valid().to_numpy(False) & times.is_valid().to_numpy(False)).nonzero()[0][:1].tolist():
        return LogHead(terms[row].as_py(), times[row].value)
    return None
