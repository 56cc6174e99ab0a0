"""Remembers which ranges of a member's log are copies from another member's disk, and counts independent copies.

The problem: members vote on which bytes of the log are valid by what they have on disk. A bit that flipped on one disk
unseen is copied, as valid, to a member with a new disk. Then two of three disks hold the wrong bytes, and there was one
source of them.

The idea: *a range is a copy if its bytes were read from another member's disk*: log replication, a catch-up replay, a
repair, and the state before a snapshot that another member sent. Log that came live, as the leader appended it, is no
copy: each member wrote it from memory to a disk of its own. A member remembers the sources of each copied range, those
of its source included, and tells them to the others. Members that share a source count as one source
(`count_independent`).

A range stops to be a copy when the member cuts it off, or when the range was delivered here and the resulting state was
that of a majority of independent members (`digests.digest_comparison`): then its bytes were valid.

A member id names every disk that the member ever had. That joins sources which are independent, never the reverse.

Bounds: `RANGE_LIMIT` ranges, `TEXT_LIMIT` characters; beyond these the two ranges that are nearest to each other become
one, with the sources of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ....service_api import RemoteProtocolError
from ....service_api.types import MemberId

RANGE_LIMIT: Final = 16
TEXT_LIMIT: Final = 4_000
OPEN_END: Final = 1 << 62
"""The end of a range that is being copied."""

_TEXT: Final = re.compile(r"(\d{1,19})-(\d{1,19}):(\d{1,10}(?:,\d{1,10})*)")


@dataclass(slots=True, frozen=True)
class CopiedRange:
    """The range [position, stop_position) of a log, which was read from other members' disks."""

    position: int
    stop_position: int
    source_ids: frozenset[MemberId]

    def __str__(self) -> str:
        return f"{self.position}-{self.stop_position}:{','.join(map(str, sorted(self.source_ids)))}"


class LogCopies:
    """The copied ranges of one member's log: in order, apart from each other."""

    def __init__(self, ranges: Iterable[CopiedRange] = ()) -> None:
        self.ranges: list[CopiedRange] = []
        for each in ranges:
            self.note(each.position, each.stop_position, each.source_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogCopies) and other.ranges == self.ranges

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<LogCopies {self.encode_text()!r}>"

    def note(self, position: int, stop_position: int, source_ids: Iterable[MemberId]) -> None:
        """Note that a range was read from the disk of a source, which had it from the other sources."""
        if position >= stop_position:
            return
        self.drop(position, stop_position)
        noted = CopiedRange(position, stop_position, frozenset(source_ids))
        self.ranges = _merged(sorted([*self.ranges, noted], key=lambda each: each.position))

    def drop(self, position: int, stop_position: int) -> None:
        """Forget what is noted of a range: it was cut off, or its bytes are known to be valid."""
        self.ranges = [part for each in self.ranges for part in _without(each, position, stop_position)]

    def find_sources(self, position: int, stop_position: int) -> frozenset[MemberId]:
        """Find the members from whose disks any part of a range was read."""
        overlaps = (each for each in self.ranges if each.position < stop_position and position < each.stop_position)
        return frozenset[MemberId]().union(*(each.source_ids for each in overlaps if position < stop_position))

    def encode_text(self) -> str:
        """Write the ranges in one line, such as `0-4096:2 8192-9216:0,2`."""
        return " ".join(map(str, self.ranges))

    @classmethod
    def decode_text(cls, text: str) -> LogCopies:
        """Read such a line.

        Raises:
            RemoteProtocolError: it is no such line.
        """
        words = text.split(" ") if text else []
        found = [_TEXT.fullmatch(word) for word in words]
        if len(words) > RANGE_LIMIT or None in found:
            raise RemoteProtocolError(f"copied ranges={text[:80]!r} expected at most {RANGE_LIMIT} like 0-4096:0,2")
        return cls(
            CopiedRange(int(each[1]), int(each[2]), frozenset(MemberId(int(one)) for one in each[3].split(",")))
            for each in found
            if each is not None
        )


def count_independent(
    member_ids: Iterable[MemberId], copies: Mapping[MemberId, LogCopies], position: int, stop_position: int
) -> int:
    """Count the independent sources of a range among members: those that share a source, directly or not, are one.

    A member is a source of itself. `copies` are those of all members, as far as they are known.
    """
    lineages: list[frozenset[MemberId]] = []
    for member_id in member_ids:
        lineage = _find_lineage(member_id, copies, position, stop_position)
        shared = [each for each in lineages if each & lineage]
        lineages = [each for each in lineages if not each & lineage]
        lineages.append(lineage.union(*shared))
    return len(lineages)


def _find_lineage(
    member_id: MemberId, copies: Mapping[MemberId, LogCopies], position: int, stop_position: int
) -> frozenset[MemberId]:
    """Find every member whose disk the bytes of a range may have been on, this one included."""
    known, found = frozenset[MemberId](), frozenset((member_id,))
    while found:
        known |= found
        sources = (copies[each].find_sources(position, stop_position) for each in found if each in copies)
        found = frozenset[MemberId]().union(*sources) - known
    return known


def _without(each: CopiedRange, position: int, stop_position: int) -> Iterator[CopiedRange]:
    """Give what is left of a range outside of another."""
    if each.stop_position <= position or stop_position <= each.position:
        yield each
        return
    if each.position < position:
        yield CopiedRange(each.position, position, each.source_ids)
    if stop_position < each.stop_position:
        yield CopiedRange(stop_position, each.stop_position, each.source_ids)


def _merged(ranges: list[CopiedRange]) -> list[CopiedRange]:
    merged: list[CopiedRange] = []
    for each in ranges:
        last = merged[-1] if merged else None
        if last is not None and last.stop_position == each.position and last.source_ids == each.source_ids:
            merged[-1] = CopiedRange(last.position, each.stop_position, each.source_ids)
        else:
            merged.append(each)
    while len(merged) > RANGE_LIMIT or (len(merged) > 1 and len(" ".join(map(str, merged))) > TEXT_LIMIT):
        at = min(range(1, len(merged)), key=lambda index: merged[index].position - merged[index - 1].stop_position)
        before, after = merged[at - 1], merged[at]
        joined = CopiedRange(before.position, after.stop_position, before.source_ids | after.source_ids)
        merged[at - 1 : at + 1] = [joined]
    return merged
