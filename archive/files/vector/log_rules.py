"""The rules of a cluster's log and of its snapshots, `log_rules`, for a block of frames: a column at a time.

A block says only "these are valid": where it cannot say that, one frame is left to a `FrameReader`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    TYPE_PADDING,
    UNFRAGMENTED,
    UNFRAGMENTED_DATA,
    HeaderField,
)
from ....service_api.wire.frame_rules import FrameRules
from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER, VAR_DATA_COUNTS
from ....service_api.wire.log.log_rules import OTHER_FLAGS, Before, find_length_fault
from ....service_api.wire.sbe import MESSAGE_HEADER

_LENGTH: Final = HeaderField.FRAME_LENGTH.word
_KIND: Final = HeaderField.KIND.word
_TERM_OFFSET: Final = HeaderField.TERM_OFFSET.word
_RESERVED_VALUE: Final = HeaderField.RESERVED_VALUE.long
_LONGS: Final = FRAME_ALIGNMENT // 8

_AFTER_END: Final = np.array(
    [
        [(1 << 64) - (1 << 8 * max(0, min(8, length - 8 * long))) if length else 0 for long in range(_LONGS)]
        for length in range(FRAME_ALIGNMENT)
    ],
    np.uint64,
).view(np.int64)
"""By the length of a frame modulo 32: which bits of its last 32 bytes lie behind its end."""


class LogColumns:
    """Checks blocks of one log or snapshot."""

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules

    def count_valid(
        self,
        words: NDArray[np.int64],
        slots: NDArray[np.int64],
        headers: NDArray[np.int32],
        before: Before,
    ) -> tuple[int, Before]:
        """Count the frames at the beginning that a log may hold there, of frames that every recording may hold.

        They begin at `slots` of `words`, 32 bytes each, one after the other in one term; `before` is what lies before
        the first. Gives what lies before the frame after them, too.
        """
        if before is Before.LOST_END:
            return 0, before
        is_valid = headers.view(np.int64)[:, _RESERVED_VALUE] == 0
        kinds = headers[:, _KIND]
        lengths = headers[:, _LENGTH]
        is_whole = kinds == UNFRAGMENTED_DATA
        last_slots = slots + (lengths - 1 >> 5)
        is_data = None
        if before is Before.FRAGMENT or not is_whole.all():
            is_data = kinds >> 16 != TYPE_PADDING
            is_valid &= self._are_ordered(kinds, is_data, lengths, headers[:, _TERM_OFFSET], before)
            last_slots = np.where(is_data, last_slots, slots)  # padding may go on behind the block, and has no end
        parts = lengths & FRAME_ALIGNMENT - 1
        if parts.any():
            after_end = np.bitwise_or.reduce(words.reshape(-1, _LONGS)[last_slots] & _AFTER_END[parts], axis=1)
            is_valid &= after_end == 0 if is_data is None else (after_end == 0) | ~is_data
        if self._rules.is_cluster_log:
            self._check_lengths(words, slots, lengths, is_whole, is_valid)
        count = len(slots) if is_valid.all() else int(is_valid.argmin())
        if not count:
            return 0, before
        if is_data is None or is_data[count - 1]:
            return count, Before.MESSAGE if kinds[count - 1] >> 8 & FLAG_END else Before.FRAGMENT
        return count, Before.MESSAGE if is_data[:count].any() else before

    def _are_ordered(
        self,
        kinds: NDArray[np.int32],
        is_data: NDArray[np.bool_],
        lengths: NDArray[np.int32],
        term_offsets: NDArray[np.int32],
        before: Before,
    ) -> NDArray[np.bool_]:
        """Find the frames whose flags are a log's, and fit to those of the frame before."""
        flags = kinds >> 8 & 0xFF
        begins, ends = flags & FLAG_BEGIN != 0, flags & FLAG_END != 0
        is_valid: NDArray[np.bool_] = flags & OTHER_FLAGS == 0
        is_valid &= is_data | (flags == UNFRAGMENTED)
        is_open = is_data & ~ends
        is_full = lengths == self._rules.mtu_length_bytes
        has_room = term_offsets + ((lengths + 31) & -32) < self._rules.term_length_bytes
        is_valid &= ~is_open | (is_full & has_room)
        is_valid &= begins | ((term_offsets != 0) & (lengths > HEADER_LENGTH))
        is_inside = np.empty(len(kinds), np.bool_)
        is_inside[1:] = is_open[:-1]
        is_inside[0] = not begins[0] if before is Before.UNKNOWN else before is Before.FRAGMENT
        # Padding, and a message, come after the end of a message: another order is looked at by itself.
        is_valid &= begins != is_inside
        return is_valid

    def _check_lengths(
        self,
        words: NDArray[np.int64],
        slots: NDArray[np.int64],
        lengths: NDArray[np.int32],
        is_whole: NDArray[np.bool_],
        is_valid: NDArray[np.bool_],
    ) -> None:
        """Mark the first frame that holds another message than one of a session, and does not fit it."""
        begins = words[slots * _LONGS + _LONGS]
        templates = begins >> 16 & 0xFFFF
        is_other = is_whole & (templates != SESSION_MESSAGE_HEADER)
        if not is_other.any():
            return
        has_rest = lengths - (HEADER_LENGTH + MESSAGE_HEADER.size) != begins & 0xFFFF
        for template_id, count in VAR_DATA_COUNTS.items():
            if count:
                has_rest |= templates == template_id
        is_other &= has_rest
        view = words.view(np.uint8).data
        for row in is_other.nonzero()[0].tolist():
            length, begin = int(lengths[row]), (int(slots[row]) + 1) * FRAME_ALIGNMENT
            end = begin + ((length + 31) & -32) - HEADER_LENGTH
            if find_length_fault(length, UNFRAGMENTED, view[begin:end]) is not None:
                is_valid[row] = False
                return
