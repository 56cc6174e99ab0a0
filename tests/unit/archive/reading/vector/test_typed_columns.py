"""The columns of a typed class of which there are several versions, and the values of messages in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from trimaran.archive.reading.vector.typed_columns import TypedColumns, merged_fields
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.typed.schema import Schema

PART = ["record", "Part", [["sku", "str", False]]]
LONGER_PART = ["record", "Part", [["sku", "str", False], ["count", "int", False]]]


def version(**fields: Schema) -> Schema:
    return {"name": "Order", "fields": [[name, schema, False] for name, schema in fields.items()]}


def columns_of(old: Schema, new: Schema, old_value: Any, new_value: Any) -> tuple[Any, Any, Any]:
    """The type of a field's column, and the values of an old and of a new message in it."""
    versions = [version(value=old), version(value=new)]
    fields = merged_fields(versions)
    values = [
        TypedColumns(each, fields).convert({"value": value})["value"]
        for each, value in zip(versions, (old_value, new_value), strict=True)
    ]
    (field,) = fields
    assert pa.array(values, field.arrow_type).to_pylist() == values
    return field.arrow_type, *values


@pytest.mark.parametrize(
    ("old", "new", "old_value", "new_value", "expected"),
    [
        ("int", "float", 5, 2.5, (pa.float64(), 5.0, 2.5)),
        (["union", "int", "None"], ["union", "float", "None"], None, 2.5, (pa.float64(), None, 2.5)),
        (["list", "int"], ["set", "float"], [1], [2.5], (pa.list_(pa.float64()), [1.0], [2.5])),
        (["literal", "a"], ["literal", "b"], "a", "b", (pa.string(), "a", "b")),
        ("int", "str", 5, "x", (pa.string(), "5", '"x"')),
        ("str", ["union", "int", "str"], "x", 5, (pa.string(), '"x"', "5")),
        (["enum", "E", {"A": 1}], ["enum", "E", {"A": 1, "B": 2}], 1, 2, (pa.string(), "A", "B")),
    ],
)
def test_a_field_whose_type_has_changed_has_the_wider_column_or_json(
    old: Schema, new: Schema, old_value: Any, new_value: Any, expected: tuple[Any, ...]
) -> None:
    assert columns_of(old, new, old_value, new_value) == expected


def test_a_record_that_has_grown_has_null_where_an_older_message_lacks_the_field() -> None:
    wide = pa.struct([("sku", pa.string()), ("count", pa.int64())])

    found = columns_of(["list", PART], ["list", LONGER_PART], [{"sku": "x"}], [{"sku": "y", "count": 2}])

    assert found == (pa.list_(wide), [{"sku": "x", "count": None}], [{"sku": "y", "count": 2}])


def test_columns_are_those_of_all_versions_in_the_newest_order() -> None:
    versions = [version(gone="str", owner="str"), version(owner="str", added="bool")]

    assert [field.name for field in merged_fields(versions)] == ["owner", "added", "gone"]


def test_a_value_that_is_not_of_its_type_is_named() -> None:
    schema = version(price="int")

    with pytest.raises(RemoteProtocolError, match=r"Order\.price='x' expected=int"):
        TypedColumns(schema, merged_fields([schema])).convert({"price": "x"})
