"""Lines of `tail` and `grep` for the messages of typed services."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.unit.archive.streams import launch, small_config
from trimaran.archive import Archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import MessageReader, RecordedMessage
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.tool.commands.rows import MessageRows, as_line
from trimaran.cluster.cli.archive import VOCABULARY
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.payloads import Payload
from trimaran.service_api.typed import Command, Context, Event, TypedService, handles, state
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.types import LOG_STREAM_ID, SERVICE_SNAPSHOT_STREAM_ID
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.log.messages import encode_session_message
from trimaran.service_api.wire.payload_header import PayloadKind
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


class WrittenSnapshot:
    """A snapshot as it is recorded, message by message."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def offer(self, message: Payload) -> None:
        self.messages.append(bytes(message))


class Till(TypedService):
    """Takes payments."""

    paid: dict[str, int] = state()

    @handles(Pay)
    def pay(self, ctx: Context, command: Pay) -> int:
        self.paid[command.account] = self.paid.get(command.account, 0) + command.amount
        return self.paid[command.account]


async def record(archive: Archive, stream_id: int, messages: Iterable[bytes]) -> None:
    """Record the messages of one stream."""
    recording = await archive.start_recording(
        stream_id=stream_id, session_id=7, channel="trimaran:test", source_identity="member-0", preallocate=False
    )
    position = 0
    for message in messages:
        frames = encode_message(message, stream_id=stream_id, mtu_length=1408, term_id=0, term_offset=position)
        position += len(frames)
        recording.append(frames)
        recording.flush()
    await recording.stop()


async def test_a_log_without_its_beginning_is_shown_by_the_schemas_of_a_snapshot(tmp_path: Path) -> None:
    """A client announces a schema once; what was announced and removed is in the state of the service."""
    till, snapshot, codec = TypedHarness(Till), WrittenSnapshot(), MessageCodec(Pay)
    till.request(codec.announcement())
    await till.service.on_take_snapshot(snapshot)
    command = codec.header(PayloadKind.COMMAND) + codec.encode(Pay("ann", 5))
    archive = await launch(OsFileSystem(), tmp_path, config=small_config(checksums=False))
    await record(archive, LOG_STREAM_ID, [encode_session_message(1, 5, 1_700_000_000_000, command)] * 2)
    await record(archive, SERVICE_SNAPSHOT_STREAM_ID, [b"no state of a typed service", bytes(3)])
    await record(archive, SERVICE_SNAPSHOT_STREAM_ID, [b"a marker", *snapshot.messages, b"a marker"])
    await archive.aclose()

    log = LogFile.of(tmp_path, read_catalog(OsFileSystem(), tmp_path).readable[0])
    rows = MessageRows.of(log, VOCABULARY)
    lines = [as_line(rows.row(message)) for message in MessageReader(log.reader())]

    assert [line.rpartition("Z  ")[2] for line in lines] == ['Pay account="ann" amount=5'] * 2
