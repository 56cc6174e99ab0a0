"""Walks over a log from one offset to the next: finds where a batch may end, and where it can be split.

Frames are read and checked as a batch would read them, so that a range is handed out only where it can be read. Nothing
is kept but positions; the bytes are in the page cache then for those who read them next. With `messages` a cut lies
behind a complete message, so that no batch holds half of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....service_api.wire.checksum import crc32
from ....service_api.wire.frame import FLAG_BEGIN, FLAG_END, HEADER_LENGTH, TYPE_DATA
from ...files.reader import StopReason
from ...files.vector.scan import KIND, LENGTH, SLOT, FrameBlock, FrameScanner
from ...format.descriptor import RecordingDescriptor
from ...format.layout import UNSYNCED_LIMIT_BYTES
from .stream_offset import LogOffset

NO_LIMIT: Final = 1 << 62
_DATA_AND_BEGIN: Final = TYPE_DATA << 16 | FLAG_BEGIN << 8


class DivergenceError(Exception):
    """The log holds something else where the stream has read before: the argument says what and where."""


class Cut(NamedTuple):
    """Where a batch can end, the last frame before it that begins a message, and where the batch can be split.

    The latter are inside the batch and ascend.
    """

    position: int
    frame_position: int
    frame_checksum: int
    split_positions: tuple[int, ...]

    def offset(self, leadership_term_id: int) -> LogOffset:
        """Make the offset of this place, which is committed as of this term."""
        return LogOffset(
            position=self.position,
            leadership_term_id=leadership_term_id,
            frame_position=self.frame_position,
            frame_checksum=self.frame_checksum,
        )


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchCutRules:
    """How a range is cut."""

    is_by_message: bool = False
    limit_bytes: int = NO_LIMIT
    """At most so much, but one frame (or message) at least."""
    split_bytes: int = NO_LIMIT
    """A split is made at the first place that is so far behind the last one."""
    checksums: bool | None = None
    """Whether checksums are checked; None where the catalog says that there are some."""


class LogWalk:
    """Walks over one member's log from an offset to `bound_position` at most; `cut` is the furthest place found."""

    def __init__(
        self,
        archive: Path,
        descriptor: RecordingDescriptor,
        start: LogOffset,
        *,
        bound_position: int,
        rules: BatchCutRules,
        judges_blank: bool = False,
    ) -> None:
        self.cut: Cut | None = None
        self.ending = ""
        """Why the walk ended before the bound and the limit: what was found there; empty where the log just ends."""
        self.is_limited = False
        """Whether the limit ended the walk."""
        self._start = start
        self._rules = rules
        self._bound_position = bound_position
        self._judges_blank = judges_blank
        """Whether it is asked what follows where nothing was written yet."""
        self._has_known_frame = descriptor.start_position <= start.frame_position
        self._scanner = FrameScanner(
            archive,
            descriptor,
            start_position=start.frame_position if self._has_known_frame else start.position,
            bound_position=bound_position,
            checksummed=rules.checksums,
        )
        self._split_positions: list[int] = []
        self._last_begin = (start.frame_position, start.frame_checksum)
        self._is_inside_message = False

    def __repr__(self) -> str:
        return f"<LogWalk start={self._start.position} cut={self.cut} ending={self.ending!r}>"

    def run(self) -> Cut | None:
        """Walk; gives `cut`, None where there is nothing to be had behind the start.

        Raises:
            DivergenceError: this is not the log that the stream has read up to its start, or not the one that the
                bound is of.
            OSError: the disk refused.
        """
        for block in self._scanner:
            if self._take(block):
                self.is_limited = True
                return self.cut
        self.ending = self._find_damage() or ""
        return self.cut

    def _find_damage(self) -> str | None:
        """Return what is wrong where the walk ended.

        That nothing was written there yet, a write is torn, or the last one may be, is nothing wrong: the member is
        behind. What lies after
        the blank is asked only where the member is far behind, or the caller wants it: a whole segment may have to be
        read for the answer.
        """
        scanner = self._scanner
        is_near = self._bound_position - scanner.position <= UNSYNCED_LIMIT_BYTES or self._bound_position >= NO_LIMIT
        if scanner.stop_reason is StopReason.BLANK and is_near and not self._judges_blank:
            return None
        if scanner.stop_reason is StopReason.UNDECIDABLE:
            return None
        return scanner.ending().damage

    @property
    def end_position(self) -> int:
        """Where the walk ended."""
        return self._scanner.position

    @property
    def is_bound_inside_frame(self) -> bool:
        """Whether a valid frame crosses the bound: then the bound is none of this log."""
        scanner = self._scanner
        return scanner.is_bound_reached and self._start.position <= scanner.position < self._bound_position

    def _take(self, block: FrameBlock) -> bool:
        """Take in a block; tells whether the limit is reached."""
        positions, headers = block.positions, block.headers
        ends = positions + (headers[:, LENGTH].astype(np.int64) + (SLOT - 1) & -SLOT)
        first = self._check_known(block, positions, ends) if positions[0] < self._start.position else 0
        kinds = headers[:, KIND]
        is_data = kinds >> 16 == TYPE_DATA
        is_boundary = self._find_boundaries(kinds, is_data)
        is_boundary[:first] = False
        rows = is_boundary.nonzero()[0]
        limit = self._start.position + self._rules.limit_bytes
        count = int(np.searchsorted(ends[rows], limit, side="right"))
        if not count and self.cut is None and len(rows):
            count = 1
        if count:
            self._cut_at(block, int(rows[count - 1]), ends)
            self._add_splits(ends[rows[:count]])
        self._remember_last_begin(block, len(block) - 1)
        return self.cut is not None and int(ends[-1]) > limit

    def _check_known(self, block: FrameBlock, positions: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
        """Check the frames that the stream has read before; gives the row behind them."""
        start = self._start
        if int(positions[0]) == start.frame_position and checksum_of(block, 0) != start.frame_checksum:
            raise DivergenceError(
                f"different frame at position={start.frame_position}: checksum={checksum_of(block, 0)} "
                f"expected={start.frame_checksum}"
            )
        first = int(np.searchsorted(positions, start.position))
        if first and int(ends[first - 1]) > start.position:
            raise DivergenceError(f"expected a frame that ends at position={start.position}")
        return first

    def _find_boundaries(self, kinds: NDArray[np.int32], is_data: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Tell behind which frames a batch may end."""
        if not self._rules.is_by_message:
            return np.ones(len(kinds), np.bool_)
        is_boundary: NDArray[np.bool_] = is_data & (kinds >> 8 & FLAG_END != 0)
        for row in (~is_data).nonzero()[0].tolist():  # padding ends nothing
            is_boundary[row] = is_boundary[row - 1] if row else not self._is_inside_message
        self._is_inside_message = not is_boundary[-1]
        return is_boundary

    def _cut_at(self, block: FrameBlock, row: int, ends: NDArray[np.int64]) -> None:
        self._remember_last_begin(block, row)
        self.cut = Cut(int(ends[row]), *self._last_begin, ())

    def _add_splits(self, ends: NDArray[np.int64]) -> None:
        """Note where the range up to the cut can be split."""
        assert self.cut is not None
        last = self._split_positions[-1] if self._split_positions else self._start.position
        while (index := int(np.searchsorted(ends, last + self._rules.split_bytes))) < len(ends):
            last = int(ends[index])
            self._split_positions.append(last)
        splits = tuple(position for position in self._split_positions if position < self.cut.position)
        self.cut = self.cut._replace(split_positions=splits)

    def _remember_last_begin(self, block: FrameBlock, row: int) -> None:
        """Note the last frame up to this row that begins a message: the leader's term and clock are in it.

        A later fragment may be identical in two logs, and so is padding.
        """
        rows = (block.headers[: row + 1, KIND] & _DATA_AND_BEGIN == _DATA_AND_BEGIN).nonzero()[0]
        if len(rows) and int(block.positions[rows[-1]]) >= self._start.position:
            self._last_begin = int(block.positions[rows[-1]]), checksum_of(block, int(rows[-1]))


def checksum_of(block: FrameBlock, row: int) -> int:
    """Compute the CRC-32 of the payload of a data frame of a block."""
    begin = int(block.slots[row]) * SLOT + HEADER_LENGTH
    end = begin + int(block.headers[row, LENGTH]) - HEADER_LENGTH
    return crc32(block.words.view(np.uint8).data[begin:end])
