"""Blocks of frames as Arrow record batches: a buffer for each column, no Python object for a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....service_api.types import TimeUnit
from ....service_api.wire.frame import FLAG_BEGIN, FRAME_HEADER, HEADER_LENGTH, TYPE_DATA, FrameHeader
from ....service_api.wire.log.fields import (
    LOG_FIELDS,
    MESSAGE_HEADER_LENGTH,
    NOT_YET_APPENDED,
    FieldOffsets,
)
from ....service_api.wire.log.layout import LOG_SCHEMA_ID, SESSION_MESSAGE_HEADER
from ....service_api.wire.sbe import INT64_NULL
from ...files.vector.scan import KIND, LENGTH, SLOT, FrameBlock
from ..frame_columns import COLUMNS, ColumnType

_TIME_UNITS: Final[Mapping[TimeUnit, str]] = {TimeUnit.MILLIS: "ms", TimeUnit.MICROS: "us", TimeUnit.NANOS: "ns"}
_ARROW_TYPES: Final[Mapping[ColumnType, Any]] = {
    ColumnType.INT16: pa.int16(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.BINARY: pa.binary(),
}
_HEADER: Final = np.dtype([*zip(FrameHeader._fields, FRAME_HEADER.format[1:], strict=True)]).newbyteorder("<")
"""A frame header as numpy sees it: its fields by name."""
_SHORTEST_MESSAGE: Final = HEADER_LENGTH + MESSAGE_HEADER_LENGTH
_SESSION_FIELDS: Final = LOG_FIELDS[SESSION_MESSAGE_HEADER]
_LAST_SESSION_OFFSET: Final = max(offset for offset in _SESSION_FIELDS if offset is not None)
_SESSION_MESSAGE: Final = SESSION_MESSAGE_HEADER << 16
_TEMPLATE: Final = 0xFFFF << 16
_TYPE_AND_BEGIN: Final = ~0x7FFF


def frame_schema(columns: Sequence[str], *, time_unit: TimeUnit = TimeUnit.MILLIS) -> Any:
    """Make the Arrow schema of these columns, in the order given; `choose_columns` checks names of a user."""
    types = {**_ARROW_TYPES, ColumnType.TIMESTAMP: pa.timestamp(_TIME_UNITS[time_unit], tz="UTC")}
    return pa.schema([pa.field(name, types[COLUMNS[name].type]) for name in columns])


class BatchMaker:
    """Makes record batches of one schema from blocks of one recording."""

    def __init__(self, schema: Any, recording_id: int) -> None:
        self._schema = schema
        self._recording_id = recording_id

    def make(self, block: FrameBlock) -> Any:
        """Make the batch of a block; it holds nothing of the block's buffer."""
        rows = _Rows(block, self._recording_id)
        arrays = [rows.column(field.name, field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Rows:
    """The columns of one block, each made when it is asked for."""

    def __init__(self, block: FrameBlock, recording_id: int) -> None:
        self._block = block
        self._recording_id = recording_id
        self._messages: _Messages | None = None

    def column(self, name: str, arrow_type: Any) -> Any:
        block = self._block
        if name in FrameHeader._fields:
            values = block.headers.view(_HEADER)[:, 0][name]
            return _array(arrow_type, values.astype(arrow_type.to_pandas_dtype(), copy=False))
        if name == "position":
            return _array(arrow_type, block.positions)
        if name == "recording_id":
            return _array(arrow_type, np.full(len(block), self._recording_id, np.int64))
        if name == "payload":
            return _payloads(block, arrow_type)
        if self._messages is None:
            self._messages = _Messages(block)
        if name == "template_id":
            return _array(arrow_type, self._messages.template_ids.astype(np.int32), self._messages.is_message)
        if name == "block_length":
            return _array(arrow_type, self._messages.block_lengths.astype(np.int32), self._messages.is_message)
        return _array(arrow_type, *self._messages.field(FieldOffsets._fields.index(name)))


class _Messages:
    """What the payloads of a block say in their first bytes, where they begin a message of the cluster schema.

    Nearly all messages of a log are session messages, whose fields all lie in the first slot of the payload: these
    are gathered together for every row, and what is true of them only is said by `_is_session_message`.
    """

    def __init__(self, block: FrameBlock) -> None:
        self._words = block.words
        first_slots = block.slots + 1
        self._heads: NDArray[np.int64] = block.words.view("V32").take(first_slots).view(np.int64).reshape(-1, 4)
        heads = self._heads[:, 0]
        lengths, kind = block.headers[:, LENGTH], block.headers[:, KIND]
        self.template_ids = heads >> 16 & 0xFFFF
        self.block_lengths = block_lengths = heads & 0xFFFF
        self.is_message = (heads >> 32 & 0xFFFF) == LOG_SCHEMA_ID
        self.is_message &= (kind & _TYPE_AND_BEGIN) == (TYPE_DATA << 16 | FLAG_BEGIN << 8)
        self.is_message &= block_lengths <= lengths - _SHORTEST_MESSAGE
        # A payload too short for a header is followed by whatever was in the buffer before.
        self.is_message &= lengths >= _SHORTEST_MESSAGE
        self._is_session_message = self.is_message & (heads & _TEMPLATE == _SESSION_MESSAGE)
        self._is_session_message &= block_lengths >= _LAST_SESSION_OFFSET + 8
        others = (self.is_message & ~self._is_session_message).nonzero()[0]
        self._others = [
            (
                LOG_FIELDS[template_id],
                block_lengths[rows],
                (first_slots[rows] * SLOT + MESSAGE_HEADER_LENGTH) // 8,
                rows,
            )
            for template_id in np.unique(self.template_ids[others]).tolist()
            if template_id in LOG_FIELDS and len(rows := others[self.template_ids[others] == template_id])
        ]

    def field(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Gather one of the fields: its values, and which of them are there."""
        offset = _SESSION_FIELDS[index]
        if offset is None:
            values = np.zeros(len(self._heads), np.int64)
            is_there = np.zeros(len(values), np.bool_)
        else:
            values = self._heads[:, (MESSAGE_HEADER_LENGTH + offset) // 8].copy()
            is_there = self._is_session_message & (values != INT64_NULL)
        for offsets, block_lengths, first_words, rows in self._others:
            offset = offsets[index]
            if offset is not None:
                found = self._words.take(first_words + offset // 8)
                values[rows] = found
                is_there[rows] = (block_lengths >= offset + 8) & (found != INT64_NULL)
        if index == FieldOffsets._fields.index("timestamp"):
            is_there &= values != NOT_YET_APPENDED
        return values, is_there


def _array(arrow_type: Any, values: NDArray[Any], is_there: NDArray[np.bool_] | None = None) -> Any:
    """Wrap a column; it is copied only if it is not contiguous yet."""
    bits = None
    if is_there is not None and not is_there.all():
        bits = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(arrow_type, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _payloads(block: FrameBlock, arrow_type: Any) -> Any:
    """Gather the payloads into one buffer.

    The block as it lies is an array of twice as many values, gap, payload, gap, payload; taking every other one
    leaves the copying to Arrow: a memcpy for each payload.
    """
    count, slots = len(block), block.slots
    lengths = np.where(block.headers[:, KIND] >> 16 == TYPE_DATA, block.headers[:, LENGTH] - HEADER_LENGTH, 0)
    order = None
    if (slots[:-1] > slots[1:]).any():
        # Joined messages lie behind the block.
        order = slots.argsort()
        slots, lengths = slots[order], lengths[order]
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = slots * SLOT + HEADER_LENGTH
    offsets[1::2] = offsets[0:-1:2] + lengths
    offsets[-1] = offsets[-2]
    both = pa.Array.from_buffers(arrow_type, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(block.words)])
    taken = np.arange(0, 2 * count, 2, dtype=np.int32)
    if order is not None:
        rows = taken
        taken = np.empty_like(rows)
        taken[order] = rows
    return both.take(pa.array(taken))
