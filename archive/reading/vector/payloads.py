"""The bytes of many payloads, as an Arrow binary column holds them: one buffer, and where each begins and ends.

Fields are gathered by their offsets, for all rows in one call. They lie at any byte, so the buffer is looked at as
overlapping rows of the width wanted, one for each byte; taking some of these copies `width` bytes for each.
"""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_REPLACEMENT: Final = "\ufffd".encode()
"""What stands for a byte outside ASCII in a text."""


class Payloads:
    """Payloads in one buffer; those that are NULL in the column are empty here."""

    def __init__(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._data = data
        self.starts: Final = starts
        self.ends: Final = ends

    @classmethod
    def of(cls, column: Any) -> Self:
        """Look at a `pyarrow.BinaryArray`, or a large one, without copying it."""
        width: type[np.signedinteger[Any]] = np.int64 if pa.types.is_large_binary(column.type) else np.int32
        _, offset_buffer, data_buffer = column.buffers()
        count = len(column)
        if offset_buffer is None or not count:
            return cls(np.zeros(0, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64))
        offsets = np.frombuffer(offset_buffer, width)[column.offset : column.offset + count + 1].astype(np.int64)
        data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
        starts, ends = offsets[:-1], offsets[1:]
        if column.null_count:
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            ends = np.where(is_null, starts, ends)
        return cls(data, starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, chosen: NDArray[Any]) -> Payloads:
        """Look at some of them, by a mask or by their numbers."""
        return Payloads(self._data, self.starts[chosen], self.ends[chosen])

    def gather(self, at: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Take the value of `dtype` at each of these places; what lies beyond the buffer is zero.

        A place has to lie in the buffer or just behind it; whether the value belongs to the payload, the caller
        knows.
        """
        width = dtype.itemsize
        if not len(at) or not width:
            return np.zeros(len(at), dtype)
        if int(at.max()) + width > len(self._data):
            self._data = np.concatenate([self._data, np.zeros(width, np.uint8)])
        rows = np.ndarray((len(self._data) - width + 1,), f"V{width}", self._data, strides=(1,))
        # Indexed, 5 ns for each: `take` would make all overlapping rows contiguous first.
        return rows[at].view(dtype)

    def slices(self, starts: NDArray[np.int64], ends: NDArray[np.int64], is_there: NDArray[np.bool_]) -> Any:
        """Copy a piece of each payload into a `pyarrow.BinaryArray`; NULL where `is_there` is not true.

        The buffer as it lies is an array of twice as many values, piece, gap, piece, gap; taking every other one
        leaves the copying to Arrow: a memcpy for each piece.
        """
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        begins = np.where(is_there, starts, 0)
        offsets = np.empty(2 * count + 1, np.int64)
        offsets[0:-1:2] = begins
        offsets[1::2] = np.where(is_there, ends, 0)
        offsets[-1] = len(self._data)
        data = pa.py_buffer(self._data)
        both = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(offsets), data])
        taken = np.arange(0, 2 * count, 2, dtype=np.int64)
        return both.take(pa.array(taken, mask=None if is_there.all() else ~is_there)).cast(pa.binary())


def as_string_column(column: Any) -> Any:
    """Turn a column of US-ASCII bytes into one of strings; a byte above 0x7F becomes U+FFFD, as in the codec."""
    validity, offset_buffer, data_buffer = column.buffers()
    count = len(column)
    if not count or data_buffer is None:
        return column.cast(pa.string())
    assert column.offset == 0
    offsets = np.frombuffer(offset_buffer, np.int32)[: count + 1]
    data = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    is_high = data > 0x7F
    if is_high.any():
        places = np.concatenate([[0], np.cumsum(np.where(is_high, len(_REPLACEMENT), 1))])
        replaced = np.zeros(places[-1], np.uint8)
        replaced[places[:-1]] = np.where(is_high, _REPLACEMENT[0], data)
        for index in range(1, len(_REPLACEMENT)):
            replaced[places[:-1][is_high] + index] = _REPLACEMENT[index]
        offset_buffer = pa.py_buffer(places[offsets].astype(np.int32))
        data_buffer = pa.py_buffer(replaced)
    return pa.Array.from_buffers(pa.string(), count, [validity, offset_buffer, data_buffer])
