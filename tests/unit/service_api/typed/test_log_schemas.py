"""What a reader without the classes sees of a typed log: commands, published events, and what it cannot read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimaran.cluster.testing import ServiceHarness, TypedHarness
from trimaran.service_api.errors import LocalProtocolError
from trimaran.service_api.typed import Command, Context, Event, TypedService, handles
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.typed.log_schemas import LogSchemas
from trimaran.service_api.wire.payload_header import PayloadKind
from trimaran.service_api.wire.topics import SCHEMA_TOPIC, encode_topic_message


class Paid(Event):
    account: str
    key: bytes
    by_key: dict[bytes, int]


class Pay(Command[int]):
    account: str
    amount: int


class Shop(TypedService):
    events = (Paid,)

    @handles(Pay)
    def pay(self, ctx: Context, message: Pay) -> int:
        ctx.publish("paid", Paid(message.account, b"\x01", {b"\x02": message.amount}))
        if message.amount < 0:
            raise LocalProtocolError("negative")
        return message.amount


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The payloads that services put in the log."""
    taken: list[bytes] = []
    take = ServiceHarness.take_offer

    def take_offer(harness: ServiceHarness[Any], service_id: int, payload: bytes) -> None:
        taken.append(payload)
        take(harness, service_id, payload)

    monkeypatch.setattr(ServiceHarness, "take_offer", take_offer)
    return taken


def test_the_schema_of_an_event_is_published_once_before_the_first_one(offered: list[bytes]) -> None:
    shop = TypedHarness(Shop)
    schemas = LogSchemas()

    with pytest.raises(LocalProtocolError, match="negative"):
        shop.call(Pay("ann", -1))
    shop.call(Pay("ann", 5))
    shop.call(Pay("ann", 6))

    views = [schemas.view(payload) for payload in offered]
    assert [(view or {})["topic"] for view in views] == [SCHEMA_TOPIC, "paid", "paid"]
    assert views[2] == {
        "service_id": 0,
        "topic": "paid",
        "message": "Paid",
        "values": {"account": "ann", "key": "01", "by_key": {"02": 6}},
    }
    assert [one.topic for one in shop.published] == ["paid", "paid"]
    assert list(schemas.of_class("Paid")) == [MessageCodec(Paid).fingerprint]
    assert schemas.of_class("Pay") == {}


@pytest.mark.parametrize(
    ("payload", "view"),
    [
        (b"", None),
        (b"\xc1\x01short", None),
        (b"plain text of an untyped client", None),
        (b"\xc1\x63" + bytes(8), None),
        (b"\xc1\x01" + bytes(8) + b"\x90", {"service_id": 0, "fingerprint": "00" * 8}),
        (
            MessageCodec(Paid).header(PayloadKind.EVENT) + b"\x91\x01",
            {"service_id": 0, "fingerprint": MessageCodec(Paid).fingerprint.hex()},
        ),
        (b"\xc1\x01" + bytes(8), None),
        (b"\xc1\x01" + bytes(8) + b"\x05", None),
        (b"\xc1\x61" + bytes(8) + b"\x92\xda\x01", None),
        (b"\xc1\x66" + bytes(8) + b"\x01\x02\xda", None),
        (b"\xc1\x06" + bytes(8) + b'{"name": "A B", "fields": []}', None),
        (
            encode_topic_message("t", b"\xc1\x25" + bytes(8) + b"\x90"),
            {"service_id": 2, "topic": "t", "fingerprint": "00" * 8},
        ),
        (encode_topic_message("t", b"untyped"), None),
    ],
)
def test_what_has_no_schema_is_said_to_have_none(payload: bytes, view: dict[str, Any] | None) -> None:
    assert LogSchemas().view(payload) == view


def test_bytes_that_are_not_of_their_schema_are_a_problem() -> None:
    schemas, codec = LogSchemas(), MessageCodec(Pay)
    schemas.view(codec.announcement())
    header = codec.header(PayloadKind.COMMAND)
    nested = msgspec.msgpack.encode(["ann", 1])

    values = {"account": "ann", "amount": 1}
    assert schemas.view(header + nested) == {"service_id": 0, "message": "Pay", "values": values}
    for body in (b"", b"\xc1", b"\x91\x01", nested + b"\x00", b"\x92" + b"\x91" * 5_000 + b"\x01\x01"):
        assert "problem" in (schemas.view(header + body) or {})
