"""Lines of `tail` and `grep` for the messages of typed services."""

from __future__ import annotations

from trimaran.archive.files.reader import RecordedMessage
from trimaran.archive.tool.commands.rows import MessageRows, as_line
from trimaran.cluster.cli.archive import VOCABULARY
from trimaran.service_api.typed import Command, Event
from trimaran.service_api.typed.codec import MessageCodec, PayloadKind
from trimaran.service_api.wire.log.messages import encode_session_message
from trimaran.service_api.wire.topics import SCHEMA_TOPIC, encode_topic_message


class Paid(Event):
    account: str
    key: bytes


class Pay(Command[int]):
    account: str
    amount: int


def test_a_line_of_a_typed_message_shows_its_fields() -> None:
    codec, event_codec = MessageCodec(Pay), MessageCodec(Paid)
    rows = MessageRows.of_log(0, 100, VOCABULARY)
    event = event_codec.header(PayloadKind.EVENT) + event_codec.encode(Paid("ann", b"\x01"))
    sent = [
        codec.announcement(),
        codec.header(PayloadKind.COMMAND) + codec.encode(Pay("ann", 5)),
        encode_topic_message("paid", event),
        encode_topic_message(SCHEMA_TOPIC, event_codec.announcement()),
        encode_topic_message("paid", event),
    ]

    lines = [
        as_line(rows.row(RecordedMessage(0, 32, 1, 7, encode_session_message(1, 5, 1_700_000_000_000, payload))))
        for payload in sent
    ]

    assert [line.rpartition("Z  ")[2] for line in lines[:2]] == ["schema of Pay", 'Pay account="ann" amount=5']
    assert "\\xf7TOPIC" in lines[2]
    assert lines[3].endswith("trimaran/schemas: schema of Paid")
    assert lines[4].endswith('paid: Paid account="ann" key="01"')
