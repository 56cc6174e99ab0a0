"""Joining the fragments of messages, block by block.

A joined message is shown as the frame that would have been written had the mtu been long enough: the header
of its first frame, with the length of the whole and the flags of an unfragmented frame. Most blocks hold no
fragment and pass through; of the others, only fragments are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ....service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    TYPE_DATA,
    UNFRAGMENTED,
)
from ...files.vector.scan import KIND, LENGTH, SLOT, SPARE_SLOTS, FrameBlock

_WHOLE = TYPE_DATA << 16 | UNFRAGMENTED << 8
_TYPE_AND_ENDS = ~(0xFF | ~UNFRAGMENTED << 8 & 0xFF00)
"""Of a kind: its type and the flags that begin and end a message."""


class MessageBlockJoiner:
    """Turns blocks of frames into blocks of complete messages; padding is left out.

    `incomplete_message_count` counts as `MessageReader` does. Memory: one message (16 MiB) besides the block.
    """

    def __init__(self, blocks: Iterable[FrameBlock]) -> None:
        self.incomplete_message_count = 0
        self._blocks = blocks
        self._first_header: NDArray[np.int32] | None = None
        self._first_position = 0
        self._parts: list[bytes] = []
        self._length = 0

    def __iter__(self) -> Iterator[FrameBlock]:
        for block in self._blocks:
            is_whole = block.headers[:, KIND] & _TYPE_AND_ENDS == _WHOLE
            if is_whole.all() and self._first_header is None:
                yield block
            elif (messages := self._join(block, is_whole)) is not None:
                yield messages
        self._drop()

    def _join(self, block: FrameBlock, is_whole: NDArray[np.bool_]) -> FrameBlock | None:
        """Keep the whole frames and put each message that is completed here in the place of its last fragment."""
        is_kept = is_whole.copy()
        headers, positions, slots = block.headers.copy(), block.positions, block.slots.copy()
        extra: list[bytes] = []
        next_slot = len(block.words) * 8 // SLOT
        view = block.words.view(np.uint8).data
        whole_before = is_whole.cumsum()
        whole_seen = 0
        is_fragment = ~is_whole & (headers[:, KIND] >> 16 == TYPE_DATA)
        for row in is_fragment.nonzero()[0].tolist():
            if whole_before[row] > whole_seen:
                self._drop()
                whole_seen = whole_before[row]
            begin = int(slots[row]) * SLOT + HEADER_LENGTH
            end = begin + int(headers[row, LENGTH]) - HEADER_LENGTH
            if not self._add(headers[row], int(positions[row]), bytes(view[begin:end])):
                continue
            assert self._first_header is not None
            is_kept[row] = True
            positions[row] = self._first_position
            headers[row] = self._first_header
            headers[row, LENGTH] = HEADER_LENGTH + self._length
            headers[row, KIND] = _WHOLE
            slots[row] = next_slot
            frame_length = HEADER_LENGTH + self._length
            extra += [bytes(HEADER_LENGTH), *self._parts, bytes(-frame_length % SLOT)]
            next_slot += (frame_length + SLOT - 1) // SLOT
            self._forget()
        if whole_before[-1] > whole_seen:
            self._drop()
        if not is_kept.any():
            return None
        words = block.words
        if extra:
            extra.append(bytes(SPARE_SLOTS * SLOT))
            words = np.concatenate([words, np.frombuffer(b"".join(extra), np.int64)])
        return FrameBlock(words, slots[is_kept], headers[is_kept], block.position, positions[is_kept])

    def _add(self, header: NDArray[np.int32], position: int, payload: bytes) -> bool:
        """Take the next fragment; tell whether it ends a message, whose parts are then `_parts`."""
        flags = int(header[KIND]) >> 8
        if flags & FLAG_BEGIN:
            self._drop()
            self._first_header, self._first_position = header.copy(), position
        elif self._first_header is None:
            self.incomplete_message_count += flags & FLAG_END != 0
            return False
        self._parts.append(payload)
        self._length += len(payload)
        if self._length > MAX_MESSAGE_LENGTH:
            self._drop()
            return False
        return flags & FLAG_END != 0

    def _drop(self) -> None:
        if self._first_header is not None:
            self.incomplete_message_count += 1
            self._forget()

    def _forget(self) -> None:
        self._first_header = None
        self._parts.clear()
        self._length = 0
