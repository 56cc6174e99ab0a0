"""The Spark schema for the JSON form of a pydantic model."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...service_api.errors import ConfigurationError

_SCALARS: Final[dict[type, DataType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    datetime: TimestampType(),
    date: DateType(),
    Decimal: DecimalType(38, 18),
}


def json_schema(model: type[BaseModel]) -> StructType:
    """Make the schema: a column for each field, by its alias where it has one; the field's description is a comment.

    Raises:
        ConfigurationError: a field is of a type that has no column.
    """
    fields = []
    for name, info in model.model_fields.items():
        data_type = _type_of(info.annotation, f"{model.__name__}.{name}")
        comment = {"comment": info.description} if info.description else None
        alias = info.validation_alias if isinstance(info.validation_alias, str) else name
        fields.append(StructField(alias, data_type, True, comment))
    return StructType(fields)


def required_fields(model: type[BaseModel]) -> list[str]:
    """The columns that are never NULL: fields that have to be there and that are not allowed to be None."""
    return [
        info.validation_alias if isinstance(info.validation_alias, str) else name
        for name, info in model.model_fields.items()
        if info.is_required() and NoneType not in _parts(info.annotation)
    ]


def _type_of(annotation: Any, where: str) -> DataType:
    parts = [part for part in _parts(annotation) if part is not NoneType]
    types = {repr(found): found for found in (_type_of_part(part, where) for part in parts)}
    if len(types) != 1:
        raise ConfigurationError(f"{where}: {annotation!r} has no column; expected one type")
    return next(iter(types.values()))


def _type_of_part(part: Any, where: str) -> DataType:
    origin, args = get_origin(part), get_args(part)
    if origin in (list, set, frozenset) and len(args) == 1:
        return ArrayType(_type_of(args[0], where))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return ArrayType(_type_of(args[0], where))
    if origin is dict and args[0] is str:
        return MapType(StringType(), _type_of(args[1], where))
    if isinstance(part, type) and issubclass(part, BaseModel):
        return json_schema(part)
    if isinstance(part, type) and issubclass(part, Enum):
        return _type_of(Union[tuple(type(member.value) for member in part)], where)  # noqa: UP007
    if part in _SCALARS:
        return _SCALARS[part]
    raise ConfigurationError(
        f"{where}: {part!r} has no column; expected str, int, float, bool, datetime, date, Decimal, an enum, a model, "
        "or a list or dict of these; a callable with a schema decodes anything"
    )


def _parts(annotation: Any) -> list[Any]:
    """Unwrap `Annotated`, `NewType`, `Literal` and unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _parts(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        return [part for argument in get_args(annotation) for part in _parts(argument)]
    if origin is Literal:
        return [type(value) for value in get_args(annotation)]
    if hasattr(annotation, "__supertype__"):
        return _parts(annotation.__supertype__)
    return [annotation]
