"""A run of uniform frames, handled as a whole: a few passes in C instead of a pass of Python for each frame.

Most frames of a log resemble the one before: data frames of one length, each directly after the other. A run of them is
a table with a row for each frame, and a field of all frames is a column: a slice with a step. A copy of the run in an
`array` gives columns in half the time that a `memoryview` takes, and a column is compared as bytes.

Whether a run is valid, its columns of 4-byte words tell:

    offset of the column    field                                expected
    0                       frame length                         that of the first row
    4                       version, flags and type              that of the first row
    8                       term offset                          a row's length more than in the row before
    16, 20                  stream id, term id                   that of the first row

The expected term offsets are made by arithmetic on long integers, whose lanes of 32 bits are the rows. The checksums,
the column at offset 12, take one call of the CRC for all, which also covers the columns 4, 16 and 20. The idea: the CRC
register after a valid payload is known, it is the checksum in the header before it, inverted. So the header after a
payload is overwritten with words that bring the register from there to where it starts, and the words that must be
those of the first row stay where they are:

    offset  header of the next frame                              register after it
    0       checksum of this frame (4 bytes)                      the one after four zeros, at the start
    4       version, flags and type, unchanged                    known
    8       a constant (8 bytes), see `restart_word`              known
    16      stream id, term id and reserved value, unchanged      0xffffffff, where every CRC starts

Then one call over payload, header, payload, ... to the end of the last payload gives the checksum of the last frame if
all are valid. A wrong frame leaves a difference in the register, and what follows cannot remove it: a step of the
register is one-to-one. Only the differences of two wrong frames can cancel each other, with a probability of 2^-32, the
same with which a CRC misses damage at all. CRC-32 and CRC-32C differ in nothing but the polynomial.

A frame of 96 bytes takes 0.03 us this way where the CRC is fast, fifteen times as much in a loop over frames. A run
only says "these frames are valid": where it cannot say that, the caller's loop checks the frame and says why.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import Final, Self

from .checksum import ChecksumKind
from .frame import HEADER_LENGTH, FrameField, HeaderField, ReadableBuffer
from .log.layout import SESSION_MESSAGE_HEADER

MIN_RUN_FRAMES: Final = 16
"""A shorter run is not worth its passes, which have a fixed cost of 5 us."""

LONGEST_RUN_BYTES: Final = 256 << 10
"""The most that a caller should take as one run: the copy should stay in the core's second-level cache."""

_SHORT_RUN_FRAMES: Final = 64
"""What is tried where frames of another length or kind follow within the longest run."""

MOST_FRAMES: Final = LONGEST_RUN_BYTES // HEADER_LENGTH

_FRAME_LENGTH: Final = HeaderField.FRAME_LENGTH.word
_TERM_OFFSET: Final = HeaderField.TERM_OFFSET.word
_CHECKSUM: Final = HeaderField.CHECKSUM.word
_AS_IN_FIRST: Final = HeaderField.KIND.word, HeaderField.STREAM_ID.word, HeaderField.TERM_ID.word
"""The columns, besides the length, that hold the same in every row."""

_RESERVED_VALUE: Final = HeaderField.RESERVED_VALUE.word, HeaderField.RESERVED_VALUE.word + 1
_BLOCK_AND_TEMPLATE: Final = HEADER_LENGTH >> 2
"""The column of a log's messages that holds the length of their block and their template id."""

_KIND_BYTES: Final = slice(HeaderField.KIND.offset, HeaderField.TERM_OFFSET.offset)
_IDENTITY_BYTES: Final = slice(HeaderField.STREAM_ID.offset, HEADER_LENGTH)

_START: Final = 0xFFFF_FFFF
IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"
"""Columns are read in the byte order of the machine, and frames have this one."""

_COUNT: Final = int.from_bytes(b"".join(number.to_bytes(4, "little") for number in range(MOST_FRAMES)), "little")
_ONES: Final = int.from_bytes(b"\1\0\0\0" * MOST_FRAMES, "little")
"""As `_COUNT`, lanes of 32 bits, one for each row."""


class FrameRun:
    """Frames of one aligned `length`, each directly after the other, from `offset` of `buffer` on, as a table.

    `limit` is how many may belong to it: at most `LONGEST_RUN_BYTES // length`, all of them whole in the buffer.
    `count` is the number of rows: at first `limit`, then what `keep_uniform` leaves.
    """

    __slots__ = ("_longs", "_row", "count", "length", "view")

    def __init__(self, buffer: ReadableBuffer, offset: int, length: int, limit: int) -> None:
        self.view = memoryview(buffer)[offset : offset + limit * length]
        """The bytes of the run."""
        self.length = length
        self.count = limit
        self._row = length >> 3
        self._longs: array[int] | None = None

    def __repr__(self) -> str:
        return f"<FrameRun count={self.count} length={self.length}>"

    @classmethod
    def probe(cls, buffer: ReadableBuffer, offset: int, length: int, limit: int) -> Self | None:
        """Return the frames from `offset` on as a run, if they are worth it; otherwise None.

        `limit` says how many there are. The last frame of a run starts as the first one does, with its length and kind.
        The longest of three lengths is taken for which that is true: the look costs next to nothing, and columns of
        frames that are not uniform would be made for nothing.
        """
        if limit * length > LONGEST_RUN_BYTES:
            limit = LONGEST_RUN_BYTES // length
        if limit < MIN_RUN_FRAMES or not IS_LITTLE_ENDIAN:
            return None
        start = buffer[offset : offset + 8]
        last = offset + (limit - 1) * length
        if buffer[last : last + 8] == start:
            return cls(buffer, offset, length, limit)
        for count in (_SHORT_RUN_FRAMES, MIN_RUN_FRAMES):
            last = offset + (count - 1) * length
            if count < limit and buffer[last : last + 8] == start:
                return cls(buffer, offset, length, count)
        return None

    def count_valid(
        self,
        *,
        term_offset: int,
        checksummed: bool,
        kind: ChecksumKind = ChecksumKind.CRC32,
        is_log: bool = False,
        is_snapshot: bool = False,
    ) -> int:
        """Return the number of leading frames that are valid, as far as that can be said of the run as a whole.

        Each has the first frame's length, kind, stream id and term id, the term offset that follows from its place, and
        with `checksummed` a valid checksum of this `kind`. The first begins at `term_offset`; all lie in one term. The
        result is 0 where the run is too short, or where some checksum is wrong.

        With `is_log` each holds a message of the first one's template id with zeros behind it, and has a reserved value
        of 0, as the first one has. With `is_snapshot` the same holds, but for the template id.
        """
        length, row, count = self.length, self.length >> 2, self.count
        words = array("I")
        words.frombytes(self.view)
        first = bytes(self.view[:HEADER_LENGTH])
        count = _count_uniform(words, _FRAME_LENGTH, row, count)
        for column in () if checksummed else _AS_IN_FIRST:
            count = _count_uniform(words, column, row, count)
        offsets = words[_TERM_OFFSET : count * row : row].tobytes()
        count = count_agreeing(offsets, term_offsets(term_offset, length, count), 4)
        if is_log or is_snapshot:
            if is_log:
                count = _count_of_messages(words, row, count)
            count = _count_ended(self.view, words, length, count, checksummed=checksummed)
        if count < MIN_RUN_FRAMES:
            return 0
        del words[count * row :]
        if not checksummed or _are_valid(words, row, first, kind):
            return count
        uniform = min(_count_uniform(words, column, row, count) for column in _AS_IN_FIRST)
        if uniform == count or uniform < MIN_RUN_FRAMES:
            return 0
        return FrameRun(self.view, 0, length, uniform).count_valid(
            term_offset=term_offset, checksummed=True, kind=kind, is_log=is_log, is_snapshot=is_snapshot
        )

    def keep_uniform(self, *fields: FrameField) -> None:
        """Shorten the run to the leading frames that have the first frame's values in these 8-byte fields."""
        longs, row, count = self._longs or self._read_longs(), self._row, self.count
        for field in fields:
            values = longs[field.long : count * row : row].tobytes()
            count = count_agreeing(values, values[:8] * count, 8)
        if count < self.count:
            self.count, self.view = count, self.view[: count * self.length]
            del longs[count * row :]

    def holds(self, *expected: tuple[FrameField, bytes]) -> bool:
        """Whether these 8-byte fields have these values in all frames."""
        longs, row, count = self._longs or self._read_longs(), self._row, self.count
        return all(longs[field.long :: row].tobytes() == value * count for field, value in expected)

    def column(self, field: FrameField) -> array[int]:
        """Return an 8-byte field of all frames, as signed numbers."""
        longs = self._longs or self._read_longs()
        return longs[field.long :: self._row]

    def stamp(self, *columns: tuple[FrameField, bytes]) -> None:
        """Set these 8-byte fields of all frames, in the view: a column holds a value for each frame."""
        longs, row = self._longs or self._read_longs(), self._row
        for field, values in columns:
            longs[field.long :: row] = array("q", values)
        self.view[:] = memoryview(longs).cast("B")

    def _read_longs(self) -> array[int]:
        """Copy the frames as 8-byte words, of which columns are slices."""
        self._longs = longs = array("q")
        longs.frombytes(self.view)
        return longs


def term_offsets(first: int, length: int, count: int) -> bytes:
    """Lay out `first`, `first + length`, ... as int32, little endian; `MOST_FRAMES` at most, each below 2^31."""
    steps, ones = _lanes(length, count)
    return (steps + first * ones).to_bytes(4 * count, "little")


@lru_cache(maxsize=16)
def _lanes(length: int, count: int) -> tuple[int, int]:
    """Return 0, `length`, 2 * `length`, ... and 1, 1, ..., each as one integer with `count` lanes of 32 bits."""
    lanes = (1 << 32 * count) - 1
    return length * (_COUNT & lanes), _ONES & lanes


def count_agreeing(column: bytes, expected: bytes, width: int) -> int:
    """Return the number of leading rows that are as expected, in a column of `width` bytes for each row."""
    if column == expected:
        return len(column) // width
    difference = int.from_bytes(column, "little") ^ int.from_bytes(expected, "little")
    return ((difference & -difference).bit_length() - 1) // (8 * width)


def _count_uniform(words: array[int], column: int, row: int, count: int) -> int:
    """Return the number of leading rows, of `count`, that hold in a column what the first row holds there.

    `words` are the rows as 4-byte words; `column` is a word of the first row, and `row` the words of a row.
    """
    found = words[column : count * row : row]
    return count_agreeing(found.tobytes(), found[:1].tobytes() * count, 4)


def _count_of_messages(words: array[int], row: int, count: int) -> int:
    """Return the number of leading rows that hold messages of a log of one length.

    They have the first row's template id, and its block length unless they are session messages. `words` are the rows
    as 4-byte words, `row` is the words of a row.
    """
    blocks = words[_BLOCK_AND_TEMPLATE : count * row : row].tobytes()
    if blocks == blocks[:4] * count:  # nearly always: of one kind
        return count
    if blocks[2] == SESSION_MESSAGE_HEADER:
        return count_agreeing(blocks[2::4], blocks[2:3] * count, 1)
    return count_agreeing(blocks, blocks[:4] * count, 4)


def _count_ended(view: memoryview, words: array[int], length: int, count: int, *, checksummed: bool) -> int:
    """Return the number of leading rows, of one frame length, with zeros after the frame's end; 0 in doubt.

    Reserved values are looked at unless the checksums cover them. `words` are the rows of `view` as 4-byte words,
    `length` is the bytes of a row.
    """
    row, frame_length = length >> 2, words[_FRAME_LENGTH]
    if frame_length == length and checksummed:
        return count
    first_word = (frame_length + 3) >> 2
    if frame_length & 3:
        rows = bytes(view)
        for byte in range(frame_length, first_word << 2):
            if any(rows[byte : count * length : length]):
                return 0
    for column in range(first_word, row) if checksummed else (*_RESERVED_VALUE, *range(first_word, row)):
        if any(words[column : count * row : row]):
            return 0
    return count


def _are_valid(words: array[int], row: int, first: bytes, kind: ChecksumKind) -> bool:
    """Return whether every payload of a run has the checksum that its header carries.

    `words` are the rows as 4-byte words, whose headers are overwritten; `row` is the words of a row; `first` is the
    header of the first frame.
    """
    checksums = words[_CHECKSUM::row]
    last = checksums.pop()
    restart = array("I", [restart_word(first[_KIND_BYTES], first[_IDENTITY_BYTES], kind)])
    words[row::row] = checksums
    words[row + _TERM_OFFSET :: row] = array("I", bytes(4)) * len(checksums)
    words[row + _CHECKSUM :: row] = restart * len(checksums)
    return kind.compute(memoryview(words).cast("B")[HEADER_LENGTH:]) == last


@lru_cache(maxsize=64)
def restart_word(kind: bytes, rest: bytes, checksum: ChecksumKind) -> int:
    """Return the word that makes the CRC register start again after a header that was overwritten between two payloads.

    The header is then: the checksum of the payload before it, `kind` (4 bytes), four zeros, this word, `rest` (16
    bytes). After the four zeros the register is known, and before `rest` it must be what `rest` turns into the register
    that every CRC-32 starts with: that is traced back.
    """
    wanted = _rewind(_START ^ _advance(rest, 0, checksum), len(rest), checksum.polynomial)
    after_checksum = _advance(bytes(4), _START, checksum)
    return _rewind(wanted, 4, checksum.polynomial) ^ _advance(kind + bytes(4), after_checksum, checksum)


def _advance(data: bytes, register: int, checksum: ChecksumKind) -> int:
    """Return the CRC register after `data`, from `register` on."""
    return checksum.compute(data, register ^ _START) ^ _START


def _rewind(register: int, byte_count: int, polynomial: int) -> int:
    """Return the CRC register that so many zero bytes turn into `register`."""
    for _ in range(8 * byte_count):
        register = ((register ^ polynomial) << 1 | 1) if register >> 31 else register << 1
    return register
