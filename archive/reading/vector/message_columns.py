"""SBE messages by columns: all fields of many messages of one class, without a Python object for any of them.

Fields of the block lie at fixed offsets. Texts, data and groups follow one another, each where the one before ends:
so a place for each row is moved along, all rows in one step. Only the elements of a group that have texts of their
own need a step for each element, again for all rows at once.

The rules are those of the codec (`versioned`): a field is there if the message's version knows it,
a longer block is skipped over, and what does not fit is refused with the name of the field and the numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....service_api.types import TimeUnit
from ....service_api.wire.log.fields import NOT_YET_APPENDED
from .message_plan import BlockPlan, FixedFieldPlan, GroupPlan, MessagePlan, VarFieldPlan
from .payloads import Payloads, as_string_column

_HEADER: Final = np.dtype("<u8")
_HEADER_LENGTH: Final = 8
_LENGTH: Final = np.dtype("<u4")
_GROUP_HEADER: Final = np.dtype("<u4")
_NO_TIME: Final = -1
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999 in milliseconds: a cluster of microseconds is beyond it since 1970."""
_NEWEST: Final = 1 << 16
"""Later than any version: elements of groups have no version of their own."""

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


class Faults:
    """The rows that cannot be read, each with its first reason. A text is made for these rows only."""

    def __init__(self, count: int) -> None:
        self.is_bad: Final[Mask] = np.zeros(count, np.bool_)
        self._reasons: dict[int, str] = {}

    def note(self, is_bad: Mask, reason: str, rows: Places | None = None, **values: NDArray[Any]) -> None:
        """Note where something does not hold. `values` fill the reason; `rows` says which row each place is of."""
        if not is_bad.any():
            return
        for place in is_bad.nonzero()[0].tolist():
            row = place if rows is None else int(rows[place])
            if row not in self._reasons:
                self._reasons[row] = reason.format(**{name: value[place] for name, value in values.items()})
        self.is_bad[is_bad if rows is None else rows[is_bad]] = True

    def texts(self) -> Any:
        """The reasons as a `pyarrow.StringArray`: NULL where there is none."""
        if not self._reasons:
            return pa.nulls(len(self.is_bad), pa.string())
        return pa.array([self._reasons.get(row) for row in range(len(self.is_bad))], pa.string())

    def first(self) -> tuple[int, str] | None:
        """The first bad row and its reason."""
        row = min(self._reasons, default=None)
        return None if row is None else (row, self._reasons[row])


def find_messages(payloads: Payloads, plan: MessagePlan) -> Mask:
    """Return which payloads begin with the SBE header of this message, whatever their block length and version."""
    is_long = payloads.ends - payloads.starts >= _HEADER_LENGTH
    heads = payloads.gather(np.where(is_long, payloads.starts, 0), _HEADER)
    wanted = plan.schema_id << 32 | plan.template_id << 16
    found: Mask = is_long & ((heads & np.uint64(0xFFFF_FFFF_0000)) == wanted)
    return found


def read_messages(payloads: Payloads, plan: MessagePlan) -> tuple[list[Any], Faults]:
    """Read one message from the beginning of each payload, as columns of `plan.schema`.

    What follows a message is left alone. A row that cannot be read is NULL in every column, and a fault.
    """
    return _MessageReading(payloads, plan).read()


class _MessageReading:
    """Reads the messages of one batch."""

    def __init__(self, payloads: Payloads, plan: MessagePlan) -> None:
        self._payloads = payloads
        self._plan = plan
        self._faults = Faults(len(payloads))

    def read(self) -> tuple[list[Any], Faults]:
        payloads, faults, block = self._payloads, self._faults, self._plan.block
        block_lengths, versions = self._read_headers()
        starts = payloads.starts + _HEADER_LENGTH
        elements = _Elements(payloads, block, np.arange(len(payloads)), starts, block_lengths, versions)
        fixed = elements.fixed_fields(faults)
        places = np.where(faults.is_bad, payloads.starts, starts + block_lengths)
        groups = []
        for group in self._plan.groups:
            reading = _GroupReading(payloads, group, faults)
            places = reading.find(places)
            groups.append(reading)
        pieces = []
        for var in block.var_fields:
            piece = elements.var_field(var, places, faults)
            places = np.where(piece[2], piece[1], places)
            pieces.append(piece)
        is_good = ~faults.is_bad
        return (
            [
                *(_fixed_column(field, values, there & is_good) for field, values, there in fixed),
                *(group.column(is_good) for group in groups),
                *(
                    _var_column(payloads, var, begin, end, there & is_good)
                    for var, (begin, end, there) in zip(block.var_fields, pieces, strict=True)
                ),
            ],
            faults,
        )

    def _read_headers(self) -> tuple[Places, Places]:
        """Check the headers; give the block lengths and the versions."""
        payloads, plan, faults, where = self._payloads, self._plan, self._faults, self._plan.block.where
        lengths = payloads.ends - payloads.starts
        is_short = lengths < _HEADER_LENGTH
        faults.note(is_short, f"{where} header: length={_HEADER_LENGTH} available={{available}}", available=lengths)
        heads = payloads.gather(np.where(is_short, 0, payloads.starts), _HEADER).astype(np.int64)
        schemas = heads >> 32 & 0xFFFF
        faults.note(schemas != plan.schema_id, f"{where}: schema_id={{id}} expected={plan.schema_id}", id=schemas)
        templates = heads >> 16 & 0xFFFF
        faults.note(
            templates != plan.template_id, f"{where}: template_id={{id}} expected={plan.template_id}", id=templates
        )
        block_lengths = heads & 0xFFFF
        available = lengths - _HEADER_LENGTH
        faults.note(
            block_lengths > available,
            f"{where} block: length={{length}} available={{available}}",
            length=block_lengths,
            available=available,
        )
        return block_lengths, heads >> 48 & 0xFFFF


class _Elements:
    """Blocks, and the texts and data behind them: one for each message, or many for each in a group."""

    def __init__(
        self,
        payloads: Payloads,
        plan: BlockPlan,
        rows: Places,
        starts: Places,
        block_lengths: NDArray[np.int64],
        versions: NDArray[np.int64],
    ) -> None:
        self._payloads = payloads
        self._plan = plan
        self._rows = rows
        self._starts = starts
        self._block_lengths = block_lengths
        self._versions = versions

    def fixed_fields(self, faults: Faults) -> list[tuple[FixedFieldPlan, NDArray[Any], Mask]]:
        """Gather the fields of the blocks: their values, and where they are there and not null."""
        plan, rows = self._plan, self._rows
        blocks = self._payloads.gather(np.where(faults.is_bad[rows], 0, self._starts), plan.dtype)
        fields = []
        for field in plan.fields:
            there = self._versions >= field.since
            faults.note(
                there & (field.end > self._block_lengths) & ~faults.is_bad[rows],
                f"{plan.where}: block_length={{length}} version={{version}} field={field.name} needs={field.end}",
                rows,
                length=self._block_lengths,
                version=self._versions,
            )
            values = np.ascontiguousarray(blocks[field.name])
            there &= values != field.null
            if field.values is not None:
                known = [value for value, _ in field.values]
                faults.note(
                    there & ~np.isin(values, known) & ~faults.is_bad[rows],
                    f"{plan.where}.{field.name}: value={{value}} expected one of {known}",
                    rows,
                    value=values,
                )
            if field.time_unit is not None and field.is_unit_assumed:
                faults.note(
                    there & (values > _LAST_MS) & (values != NOT_YET_APPENDED) & ~faults.is_bad[rows],
                    f"{plan.where}.{field.name}: time={{value}} is beyond the year 9999 in "
                    "milliseconds; give time_unit",
                    rows,
                    value=values,
                )
            fields.append((field, values, there))
        return fields

    def var_field(self, var: VarFieldPlan, places: Places, faults: Faults) -> tuple[Places, Places, Mask]:
        """Find the text or data that begins at each place: its beginning, its end, and where there is one."""
        rows, where = self._rows, f"{self._plan.where}.{var.name}"
        there = (self._versions >= var.since) & ~faults.is_bad[rows]
        available = self._payloads.ends[rows] - places
        is_short = there & (available < _LENGTH.itemsize)
        faults.note(is_short, f"{where}: length={_LENGTH.itemsize} available={{available}}", rows, available=available)
        there &= ~is_short
        sizes = self._payloads.gather(np.where(there, places, 0), _LENGTH).astype(np.int64)
        begins = places + _LENGTH.itemsize
        available = available - _LENGTH.itemsize
        is_short = there & (sizes > available)
        faults.note(
            is_short, f"{where}: length={{length}} available={{available}}", rows, length=sizes, available=available
        )
        there &= ~is_short
        return begins, begins + np.where(there, sizes, 0), there


class _GroupReading:
    """Reads one group of all messages of a batch: elements are numbered through, message by message."""

    def __init__(self, payloads: Payloads, plan: GroupPlan, faults: Faults) -> None:
        self._payloads = payloads
        self._plan = plan
        self._faults = faults

    def find(self, places: Places) -> Places:
        """Read the group that begins at each place; give the places behind it."""
        payloads, plan, faults = self._payloads, self._plan.block, self._faults
        lengths, counts, places = self._read_headers(places)
        first = np.concatenate([[0], np.cumsum(counts)])
        self._first_elements, rows = first, np.repeat(np.arange(len(counts)), counts)
        indices = np.arange(first[-1]) - first[rows]
        begins = places[rows] + indices * lengths[rows]
        versions = np.full(len(rows), _NEWEST)
        self._pieces: list[tuple[Places, Places, Mask]] = []
        if plan.var_fields:
            begins = self._follow(places, counts, lengths, rows, indices)
        self._fixed = _Elements(payloads, plan, rows, begins, lengths[rows], versions).fixed_fields(faults)
        if not plan.var_fields:
            return places + counts * lengths
        return self._ends

    def _read_headers(self, places: Places) -> tuple[Places, Places, Places]:
        """Check the headers; give block lengths, counts, and the places behind."""
        payloads, plan, faults = self._payloads, self._plan.block, self._faults
        size = _GROUP_HEADER.itemsize
        available = payloads.ends - places
        faults.note(
            (available < size) & ~faults.is_bad,
            f"{plan.where}: length={size} available={{available}}",
            available=available,
        )
        heads = payloads.gather(np.where(faults.is_bad, 0, places), _GROUP_HEADER).astype(np.int64)
        lengths, counts = heads & 0xFFFF, heads >> 16
        faults.note(
            (lengths < plan.block_length) & ~faults.is_bad,
            f"{plan.where}: block_length={{length}} expected={plan.block_length}",
            length=lengths,
        )
        needed, available = counts * lengths, available - size
        faults.note(
            (needed > available) & ~faults.is_bad,
            f"{plan.where}: length={{length}} available={{available}}",
            length=needed,
            available=available,
        )
        return lengths, np.where(faults.is_bad, 0, counts), places + size

    def _follow(self, places: Places, counts: Places, lengths: Places, rows: Places, indices: Places) -> Places:
        """Find elements that have texts: each begins where the one before it in its message ends."""
        plan, faults = self._plan.block, self._faults
        begins = np.zeros(len(rows), np.int64)
        pieces = [(begins.copy(), begins.copy(), np.zeros(len(rows), np.bool_)) for _ in plan.var_fields]
        self._ends = places.copy()
        for index in range(int(counts.max(initial=0))):
            chosen = ((indices == index) & ~faults.is_bad[rows]).nonzero()[0]
            of = rows[chosen]
            at = self._ends[of]
            available = self._payloads.ends[of] - at
            faults.note(
                available < lengths[of],
                f"{plan.where}: length={{length}} available={{available}}",
                of,
                length=lengths[of],
                available=available,
            )
            begins[chosen] = at
            at = np.where(faults.is_bad[of], at, at + lengths[of])
            elements = _Elements(self._payloads, plan, of, begins[chosen], lengths[of], np.full(len(of), _NEWEST))
            for var, piece in zip(plan.var_fields, pieces, strict=True):
                found = elements.var_field(var, at, faults)
                for whole, part in zip(piece, found, strict=True):
                    whole[chosen] = part
                at = np.where(found[2], found[1], at)
            self._ends[of] = at
        self._pieces = pieces
        return begins

    def column(self, is_good: Mask) -> Any:
        """Make the list column; a bad row is NULL."""
        rows = np.repeat(np.arange(len(is_good)), np.diff(self._first_elements))
        of_good = is_good[rows]
        fields = [_fixed_column(field, values, there & of_good) for field, values, there in self._fixed]
        for var, (begin, end, there) in zip(self._plan.block.var_fields, self._pieces, strict=True):
            fields.append(_var_column(self._payloads, var, begin, end, there & of_good))
        elements = pa.StructArray.from_arrays(fields, fields=self._plan.block.arrow_fields)
        offsets = pa.array(self._first_elements.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, elements, self._plan.type, mask=pa.array(~is_good))


def _fixed_column(field: FixedFieldPlan, values: NDArray[Any], there: Mask) -> Any:
    if field.time_unit is not None:
        values, there = _microseconds(values, there, field.time_unit)
    elif field.values is not None:
        numbers = np.array([value for value, _ in field.values])
        order = numbers.argsort()
        indices = order[np.searchsorted(numbers, np.where(there, values, numbers[order[0]]), sorter=order)]
        names = pa.array([name for _, name in field.values])
        named = names.take(pa.array(indices, mask=~there))
        return named.cast(pa.bool_()) if field.type == pa.bool_() else named
    else:
        values = values.astype(field.type.to_pandas_dtype(), copy=False)
    bits = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(field.type, len(values), [bits, pa.py_buffer(values)])


def _microseconds(values: NDArray[np.int64], there: Mask, unit: TimeUnit) -> tuple[NDArray[np.int64], Mask]:
    """Convert times; what is none, or beyond what microseconds can say, is not there."""
    there = there & (values != _NO_TIME) & (values != NOT_YET_APPENDED)
    if unit is TimeUnit.MICROS:
        return values, there
    if unit is TimeUnit.NANOS:
        return values // 1000, there
    limit = NOT_YET_APPENDED // 1000
    there &= (values <= limit) & (values >= -limit)
    return np.where(there, values, 0) * 1000, there


def _var_column(payloads: Payloads, var: VarFieldPlan, begins: Places, ends: Places, there: Mask) -> Any:
    column = payloads.slices(begins, ends, there)
    return as_string_column(column) if var.type == pa.string() else column
