"""Typed payloads through Spark: by name and fields, with nothing but the log."""

from __future__ import annotations

import asyncio
import datetime
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from pyspark.sql import SparkSession

from tests.spark.log_rows import log_of, messages, requests
from trimaran.archive.spark import typed_messages, typed_schemas
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.payloads import Payload
from trimaran.service_api.typed import Command, Context, Event, TypedService, handles, state
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.wire.payload_header import PayloadKind
from trimaran.service_api.wire.topics import SCHEMA_TOPIC, encode_topic_message

OF_SERVICE_1 = -(1 << 63) + (1 << 56) + 1
NOON = datetime.datetime(2026, 11, 26, 12, tzinfo=datetime.UTC)


class Side(enum.Enum):
    BUY = "b"
    SELL = "s"


@dataclass
class Line:
    sku: str
    count: int


class OldOrder(Command[int], name="Order"):
    owner: str
    price: int


class Order(pydantic.BaseModel, Command[int]):
    owner: str
    price: Decimal
    side: Side
    lines: list[Line]
    labels: dict[str, int]
    at: datetime.datetime
    note: str | None = None
    raw: bytes = b""
    mixed: int | str = 0
    key: UUID = UUID(int=7)
    mode: Literal["a", "b"] = "a"
    for_time: datetime.timedelta = datetime.timedelta(seconds=90)


class Filled(msgspec.Struct, Event):
    owner: str
    quantity: int


ORDER = Order(owner="ann", price=Decimal("1.25"), side=Side.SELL, lines=[Line("x", 2)], labels={"l": 1}, at=NOON)


def command(message: Any, service_id: int = 0) -> bytes:
    codec = MessageCodec(type(message))
    return codec.header(PayloadKind.COMMAND, service_id) + codec.encode(message)


def event(topic: str, message: Any) -> bytes:
    codec = MessageCodec(type(message))
    return encode_topic_message(topic, codec.header(PayloadKind.EVENT) + codec.encode(message))


def published(*payloads: bytes) -> list[tuple[int, bytes]]:
    return messages(*payloads, session=OF_SERVICE_1)


def test_commands_and_events_are_shown_by_name_without_their_classes(spark: SparkSession) -> None:
    log = log_of(
        spark,
        [
            *requests(MessageCodec(OldOrder).announcement(9), command(OldOrder("ann", 5), 9)),
            *published(encode_topic_message(SCHEMA_TOPIC, MessageCodec(Filled).announcement())),
            *published(event("fills", Filled("bob", 3)), b"untyped"),
            *requests(command(ORDER), b""),
        ],
    )

    columns = "position", "service_id", "topic", "kind", "message", "fields", "bytes", "problem"
    rows = typed_messages(log).select(*columns).collect()

    fingerprint = MessageCodec(Order).fingerprint.hex()
    unknown = (
        "no schema in the log, so the class is not known; if its beginning was removed, give "
        f"schemas=typed_schemas(log, snapshots=...): fingerprint={fingerprint}"
    )
    assert [(row.topic, row.kind, row.message, row.problem) for row in rows] == [
        (None, "schema", "Order", None),
        (None, "command", "Order", None),
        (SCHEMA_TOPIC, "schema", "Filled", None),
        ("fills", "event", "Filled", None),
        (None, None, None, "not typed"),
        (None, "command", None, unknown),
        (None, None, None, "not typed"),
    ]
    assert [row.service_id for row in rows] == [9, 9, 1, 1, 1, 0, None]
    assert [row.position for row in rows] == list(range(0, 64 * 7, 64))
    assert json.loads(rows[1].fields) == {"owner": "ann", "price": 5}
    assert json.loads(rows[3].fields) == {"owner": "bob", "quantity": 3}
    assert [row.bytes for row in rows] == [None, None, None, None, b"untyped", command(ORDER), b""]


def test_the_fields_of_a_class_are_columns_of_their_types(spark: SparkSession) -> None:
    log = log_of(spark, requests(MessageCodec(Order).announcement(), command(ORDER), command(OldOrder("bob", 1))))

    rows = typed_messages(log, "Order").select("position", "request_sequence", "fields.*")

    assert rows.schema.simpleString() == (
        "struct<position:bigint,request_sequence:bigint,owner:string,price:decimal(38,18),side:string,"
        "lines:array<struct<sku:string,count:bigint>>,labels:map<string,bigint>,at:timestamp,note:string,raw:binary,"
        "mixed:string,key:string,mode:string,for_time:interval day to second>"
    )
    (row,) = rows.withColumn("at", rows["at"].cast("string")).collect()
    assert (row.position, row.request_sequence, row.owner, row.price, row.side) == (
        64,
        2,
        "ann",
        Decimal("1.25"),
        "SELL",
    )
    assert (row.lines, row.labels, row.at) == ([("x", 2)], {"l": 1}, "2026-11-26 12:00:00")
    assert (row.note, row.raw, row.mixed, row.key, row.mode) == (None, b"", "0", str(UUID(int=7)), "a")
    assert row.for_time == datetime.timedelta(seconds=90)


def test_versions_of_a_class_are_read_together(spark: SparkSession) -> None:
    announced = [MessageCodec(each).announcement() for each in (OldOrder, Order)]
    log = log_of(spark, requests(*announced, command(OldOrder("old", 5)), command(ORDER)))

    rows = typed_messages(log, "Order", schemas=typed_schemas(log)).select("fields.*").collect()

    assert rows[0].__fields__[:3] == ["owner", "price", "side"]
    assert [(row.owner, row.price, row.side) for row in rows] == [("old", "5", None), ("ann", '"1.25"', "SELL")]


def test_bad_bytes_are_shown_with_the_reason(spark: SparkSession) -> None:
    header = MessageCodec(OldOrder).header(PayloadKind.COMMAND)
    bad = [header + msgspec.msgpack.encode(["ann", 1 << 63]), header + b"\x91\x01", header + b"\xff\xff"]
    log = log_of(spark, requests(MessageCodec(OldOrder).announcement(), *bad))

    rows = typed_messages(log, "Order").collect()

    assert [(row.fields, row.bytes) for row in rows] == [(None, each) for each in bad]
    assert rows[0].problem == "Order.price=9223372036854775808 expected=int"
    assert rows[1].problem == rows[2].problem == "Order: the bytes are not the fields of its schema"


class Desk(TypedService):
    first: int = state(default=0)

    @handles(OldOrder)
    def order(self, ctx: Context, message: OldOrder) -> int:
        return message.price


class Written:
    """A snapshot as it is recorded, message by message."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def offer(self, message: Payload) -> None:
        self.messages.append(bytes(message))


def test_the_schemas_of_a_log_without_its_beginning_are_in_the_snapshots(spark: SparkSession) -> None:
    desk, written = TypedHarness(Desk), Written()
    for kind in (OldOrder, Order):
        desk.request(MessageCodec(kind).announcement())
    asyncio.run(desk.service.on_take_snapshot(written))
    log = log_of(spark, requests(command(OldOrder("ann", 5)), command(ORDER)))
    snapshots = log_of(spark, [(0, each) for each in (b"\x28\0marker", *written.messages, b"\x28\0marker")])

    schemas = typed_schemas(log, snapshots=snapshots)

    assert [row.message for row in typed_messages(log).collect()] == [None, None]
    assert [row.problem for row in typed_messages(log, schemas=schemas).collect()] == [None, None]
    assert typed_messages(log, "Order", schemas=schemas).where("fields.side = 'SELL'").count() == 1


def test_what_cannot_be_asked_for_is_refused_with_what_there_is(spark: SparkSession) -> None:
    log = log_of(spark, requests(MessageCodec(OldOrder).announcement(), b"\xc1\x06" + bytes(8) + b"no schema"))
    stream = spark.readStream.format("rate").load()

    with pytest.raises(ConfigurationError, match=r"message='Trade' .*: Order; .*snapshots="):
        typed_messages(log, "Trade")
    with pytest.raises(ConfigurationError, match="give log="):
        typed_messages(stream)
    with pytest.raises(ConfigurationError, match="missing=payload"):
        typed_messages(log.drop("payload"))
    assert typed_messages(log).where("message = 'Order'").count() == 1
