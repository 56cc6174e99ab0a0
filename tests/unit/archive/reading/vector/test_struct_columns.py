"""Structures read by columns are those that `struct` unpacks one by one."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from trimaran.archive.reading.vector.payloads import Payloads
from trimaran.archive.reading.vector.struct_columns import StructPlan, read_structs
from trimaran.service_api.errors import ConfigurationError

FORMATS = ("<qi8s", ">hHiIqQ", "=bBlL?", "bq", "@cxH3xq", "<3i2x4s", "!efd", "<2s2s", "<0s1q", "i h", "B")


def read(payloads: list[bytes | None], plan: StructPlan) -> tuple[list[tuple[Any, ...]], list[str | None]]:
    columns, faults = read_structs(Payloads.of(pa.array(payloads, pa.binary())), plan)
    table = pa.table(columns, schema=plan.schema)
    table.validate(full=True)
    return list(zip(*(column.to_pylist() for column in table.itercolumns()), strict=True)), faults.texts().to_pylist()


def plan_of(struct_format: str) -> StructPlan:
    count = len(struct.unpack(struct_format, bytes(struct.calcsize(struct_format))))
    return StructPlan.of(struct_format, [f"value{index}" for index in range(count)])


def comparable(value: Any) -> Any:
    return "nan" if value != value else int(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("struct_format", FORMATS)
def test_values_are_those_of_struct(struct_format: str) -> None:
    draw = random.Random(struct_format)
    length = struct.calcsize(struct_format)
    payloads = [draw.randbytes(length) for _ in range(50)] + [bytes(length), b"\xff" * length]

    rows, reasons = read(list(payloads), plan_of(struct_format))

    expected = [struct.unpack(struct_format, payload) for payload in payloads]
    assert [tuple(map(comparable, row)) for row in rows] == [tuple(map(comparable, row)) for row in expected]
    assert reasons == [None] * len(payloads)


def test_other_length_is_a_fault() -> None:
    rows, reasons = read([b"12345678", b"1234", None, b"123456789"], StructPlan.of("<q", ["a"]))

    assert rows == [(struct.unpack("<q", b"12345678")[0],), (None,), (None,), (None,)]
    assert reasons == [None, *(f"struct <q: length={length} expected=8" for length in (4, 0, 9))]


def test_one_more_name_takes_the_bytes_behind_the_values() -> None:
    rows, reasons = read([b"\x01\x00rest", b"\x02\x00", b"\x03"], StructPlan.of("<h", ["a", "tail"]))

    assert rows == [(1, b"rest"), (2, b""), (None, None)]
    assert reasons == [None, None, "struct <h: length=1 expected=at least 2"]


def test_unsigned_numbers_have_the_next_longer_type() -> None:
    plan = StructPlan.of("<BHIQ", ["a", "b", "c", "d"])

    assert [field.type for field in plan.schema] == [pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0)]


def test_what_cannot_be_meant_is_one_clear_line() -> None:
    refused = {
        "struct format='<zz'": ("<zz", ["a"]),
        "struct format='<5p': 'p'": ("<5p", ["a"]),
        "names=a .*'<qq': 2": ("<qq", ["a"]),
        "names=a,a": ("<qq", ["a", "a"]),
        "struct format=''": ("", []),
    }

    for text, (struct_format, names) in refused.items():
        with pytest.raises(ConfigurationError, match=text):
            StructPlan.of(struct_format, names)
