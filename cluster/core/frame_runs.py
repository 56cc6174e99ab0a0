"""Frames of one length side by side, looked at all at once.

A `memoryview` with a stride compares or writes one field of every frame of a run in C: 2 to 10 ns a frame, against more
than 100 in a loop that unpacks each. Traffic is made of such runs: messages of one session and one length, one behind
another. Where frames differ, the loops that look at every frame are used; they say what is wrong, too.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SHORTEST_RUN: Final = 16
"""Frames; fewer are handled as fast one by one."""

LONGEST_RUN: Final = 1024
"""Frames; bounds what is built for one run."""

LONGEST_FRAME_BYTES: Final = 64 << 10
"""The overhead that runs save is nothing in longer frames, and a run's numbers must fit in 4 bytes."""

HEAD_WORD: Final = 0
"""frame_length, version, flags, type."""

STREAM_WORD: Final = 2
"""stream_id, term_id."""

RESERVED_WORD: Final = 3
PREFIX_WORDS: Final = (4, 5, 6)
"""Of a session message: message header, leadership term id, cluster session id."""

MESSAGE_WORD: Final = 4
SESSION_WORD: Final = 6
TIMESTAMP_WORD: Final = 7
TERM_OFFSET_HALF: Final = 2
CHECKSUM_HALF: Final = 3

_ONES: Final = struct.pack("<i", 1) * LONGEST_RUN
_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class FrameRun:
    """`count` frames of one aligned length in a buffer, as words: of 8 bytes, numbered from the frame's begin.

    Fields are compared and written as they lie in memory. Values are read only where that is this machine's order of
    bytes: on others `find` never finds a run.
    """

    __slots__ = ("_bytes", "_halves", "_step", "_words", "count", "length")

    def __init__(self, view: memoryview, offset: int, length: int, count: int) -> None:
        self.length, self.count = length, count
        self._bytes = view[offset : offset + length * count]
        self._words = self._bytes.cast("q")
        self._halves = self._bytes.cast("i")
        self._step = length >> 3

    @classmethod
    def find(cls, view: memoryview, offset: int, length: int, limit: int) -> FrameRun | None:
        """Take the frames of one aligned length from `offset` on, `limit` at most.

        None if they are too few, or the last one does not begin as the first one does: then it is not worth a look.
        """
        count = min(limit, LONGEST_RUN)
        last = offset + (count - 1) * length
        if count < SHORTEST_RUN or length > LONGEST_FRAME_BYTES or not _IS_LITTLE_ENDIAN:
            return None
        if view[offset : offset + 8] != view[last : last + 8]:
            return None
        return cls(view, offset, length, count)

    def first(self, offset: int, length: int) -> memoryview:
        """Give bytes of the first frame."""
        return self._bytes[offset : offset + length]

    def is_alike(self, *words: int) -> bool:
        """Whether these words are the same in every frame."""
        step, all_words = self._step, self._words
        end = (self.count - 1) * step
        return all(all_words[word:end:step] == all_words[word + step :: step] for word in words)

    def values(self, word: int) -> list[int]:
        """Read a word of every frame, as signed numbers."""
        return self._words[word :: self._step].tolist()

    def has_halves(self, half: int, values: bytes) -> bool:
        """Whether a half of a word (4 bytes, numbered from the frame's begin) is this in every frame, one by one."""
        return self._halves[half :: 2 * self._step] == memoryview(values).cast("i")

    def write_halves(self, half: int, values: bytes) -> None:
        """Write a half of a word (4 bytes) of every frame, one by one."""
        self._halves[half :: 2 * self._step] = memoryview(values).cast("i")

    def write_word(self, word: int, value: bytes) -> None:
        """Write the same 8 bytes into every frame."""
        self._words[word :: self._step] = memoryview(value * self.count).cast("q")

    def tails(self, offset: int) -> Iterable[tuple[bytes]]:
        """Give the bytes of each frame from an offset to its end."""
        return _tails(self.length, offset).iter_unpack(self._bytes)


def multiples(first: int, length: int, count: int) -> bytes:
    """Give `first`, `first + length`, ... as `count` numbers of 4 bytes, little endian, each of them below 2**31.

    The sum of two long numbers adds them all at once: no one of them carries into the next.
    """
    end = 4 * count
    from_zero, ones = int.from_bytes(_from_zero(length)[:end], "little"), int.from_bytes(_ONES[:end], "little")
    return (from_zero + first * ones).to_bytes(end, "little")


def pack_checksums(checksums: list[int]) -> bytes:
    """Lay out CRC-32s as frames hold them."""
    return struct.pack(f"<{len(checksums)}I", *checksums)


@lru_cache(maxsize=64)
def _from_zero(length: int) -> bytes:
    numbers = array("i", range(0, LONGEST_RUN * length, length))
    if not _IS_LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


@lru_cache(maxsize=256)
def _tails(length: int, offset: int) -> struct.Struct:
    return struct.Struct(f"{offset}x{length - offset}s")
