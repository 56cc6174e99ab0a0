"""Payloads of one `struct` format by columns, without a Python object for any of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....service_api.errors import ConfigurationError
from .message_columns import Faults
from .payloads import Payloads

_FORMAT: Final = re.compile(r"\s*([@=<>!]?)\s*((?:\d*[a-zA-Z?]\s*)+)")
_ITEM: Final = re.compile(r"(\d*)([a-zA-Z?])")
_KINDS: Final = dict.fromkeys("bhilq", "i") | dict.fromkeys("BHILQ", "u") | dict.fromkeys("efd", "f") | {"?": "b"}
_BYTES: Final = "cs"
_TYPES: Final = {
    "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(),
    "u1": pa.int16(), "u2": pa.int32(), "u4": pa.int64(), "u8": pa.decimal128(20, 0),
    "f2": pa.float32(), "f4": pa.float32(), "f8": pa.float64(), "b1": pa.bool_(),
}  # fmt: skip
"""Spark has no unsigned numbers: each goes into the next longer type."""


@dataclass(slots=True, frozen=True)
class StructFieldPlan:
    """One value of the format, at its offset."""

    name: str
    dtype: str
    offset: int
    type: Any  # a pyarrow.DataType


@dataclass(slots=True, frozen=True)
class StructPlan:
    """What a format and the names of its values say."""

    format: str
    length: int
    fields: tuple[StructFieldPlan, ...]
    rest: str | None
    """The name of the bytes behind the values; without one there must be none."""

    @classmethod
    def of(cls, struct_format: str, names: Sequence[str]) -> StructPlan:
        """Make the plan of a format as `struct` knows it; one more name than values names the bytes behind them.

        Raises:
            ConfigurationError: no such format, or other names than values.
        """
        items = list(_items(struct_format))
        if len(names) not in (len(items), len(items) + 1) or len(set(names)) < len(names):
            raise ConfigurationError(
                f"names={','.join(names)} expected one for each value of {struct_format!r}: {len(items)} of them, "
                "all different, and one more for bytes after them"
            )
        fields = tuple(StructFieldPlan(name, *item) for name, item in zip(names, items, strict=False))
        rest = names[-1] if len(names) > len(items) else None
        return cls(struct_format, struct.calcsize(struct_format), fields, rest)

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the columns."""
        fields = [pa.field(field.name, field.type) for field in self.fields]
        return pa.schema(fields + ([] if self.rest is None else [pa.field(self.rest, pa.binary())]))


def read_structs(payloads: Payloads, plan: StructPlan) -> tuple[list[Any], Faults]:
    """Read one structure from the beginning of each payload, as columns of `plan.schema`.

    A payload of another length is NULL in every column, and a fault.
    """
    faults = Faults(len(payloads))
    lengths = payloads.ends - payloads.starts
    is_wrong = lengths != plan.length if plan.rest is None else lengths < plan.length
    expected = f"{plan.length}" if plan.rest is None else f"at least {plan.length}"
    faults.note(is_wrong, f"struct {plan.format}: length={{length}} expected={expected}", length=lengths)
    is_good = ~is_wrong
    dtype = np.dtype(
        {
            "names": [field.name for field in plan.fields],
            "formats": [field.dtype for field in plan.fields],
            "offsets": [field.offset for field in plan.fields],
            "itemsize": plan.length,
        }
    )
    rows = payloads.gather(np.where(is_good, payloads.starts, 0), dtype)
    columns = [_column(field, rows[field.name], is_good) for field in plan.fields]
    if plan.rest is not None:
        columns.append(payloads.slices(payloads.starts + plan.length, payloads.ends, is_good))
    return columns, faults


def _items(struct_format: str) -> list[tuple[str, int, Any]]:
    """Lay the values out: for each its numpy type, offset and Arrow type."""
    found = _FORMAT.fullmatch(struct_format)
    try:
        struct.calcsize(struct_format)
    except struct.error as error:
        raise ConfigurationError(f"struct format={struct_format!r}: {error}") from error
    if found is None:
        raise ConfigurationError(f"struct format={struct_format!r} expected such as '<qi8s'")
    prefix, before = found[1], ""
    order = ">" if prefix in (">", "!") else "<"
    items: list[tuple[str, int, Any]] = []
    for count, code in _ITEM.findall(found[2]):
        before += count + code
        size, end = struct.calcsize(prefix + code), struct.calcsize(prefix + before)
        if code == "s":
            items.append((f"V{int(count or 1)}", end - int(count or 1), pa.binary()))
        elif code == "c" or code in _KINDS:
            kind = f"{_KINDS[code]}{size}" if code in _KINDS else "V1"
            arrow_type = _TYPES.get(kind, pa.binary())
            repeats = int(count or 1)
            dtype = kind if kind.startswith("V") else order + kind
            items += [(dtype, end - size * (repeats - index), arrow_type) for index in range(repeats)]
        elif code != "x":
            raise ConfigurationError(
                f"struct format={struct_format!r}: {code!r} has no column; expected one of {_CODES}"
            )
    return items


_CODES: Final = "".join(_KINDS) + _BYTES + "x"


def _column(field: StructFieldPlan, values: NDArray[Any], is_good: NDArray[np.bool_]) -> Any:
    bits = None if is_good.all() else pa.py_buffer(np.packbits(is_good, bitorder="little"))
    count = len(values)
    if field.type == pa.binary():
        data = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(pa.binary(values.itemsize), count, [bits, data]).cast(pa.binary())
    if field.type == pa.decimal128(20, 0):
        words = np.zeros((count, 2), "<u8")
        words[:, 0] = values
        return pa.Array.from_buffers(field.type, count, [bits, pa.py_buffer(words)])
    native = np.ascontiguousarray(values).astype(field.type.to_pandas_dtype(), copy=False)
    return pa.array(native, field.type, mask=None if bits is None else ~is_good)
