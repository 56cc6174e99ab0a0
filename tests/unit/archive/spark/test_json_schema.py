"""What a pydantic model is in JSON, as a Spark schema. No Spark runs here."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Literal, NewType

import pytest
from pydantic import BaseModel, Field

from trimaran.archive.spark.json_schema import json_schema, required_fields
from trimaran.service_api.errors import ConfigurationError

HostId = NewType("HostId", int)


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1


class Line(BaseModel):
    amount: float


class Order(BaseModel):
    host: HostId
    side: Side
    level: Level | None
    kind: Literal["a", "b"] = "a"
    price: Decimal
    at: datetime
    day: date | None = None
    lines: list[Line] = []
    tags: dict[str, tuple[int, ...]] = {}
    weight: Annotated[float, Field(gt=0, description="in kg")] = 1.0
    is_open: bool = Field(alias="isOpen")


def test_each_field_is_a_column_of_its_type() -> None:
    assert json_schema(Order).simpleString() == (
        "struct<host:bigint,side:string,level:bigint,kind:string,price:decimal(38,18),at:timestamp,day:date,"
        "lines:array<struct<amount:double>>,tags:map<string,array<bigint>>,weight:double,isOpen:boolean>"
    )
    assert json_schema(Order)["weight"].metadata == {"comment": "in kg"}


def test_required_are_fields_without_a_default_that_are_not_optional() -> None:
    assert required_fields(Order) == ["host", "side", "price", "at", "isOpen"]


def test_field_without_a_column_is_named() -> None:
    class Odd(BaseModel):
        data: bytes

    class Mixed(BaseModel):
        value: int | str

    with pytest.raises(ConfigurationError, match=r"Odd\.data: <class 'bytes'> .*column"):
        json_schema(Odd)
    with pytest.raises(ConfigurationError, match=r"Mixed\.value: .*column"):
        json_schema(Mixed)
