"""The entries of a log: delivered to a service, and shown to people."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fuzz.samples import make_sample, sample_messages
from tests.fuzz.target import expect, target
from tests.fuzz.targets.settings import scratch_file
from tests.unit.cluster.service.log_writer import Rig
from trimaran.archive.files.reader import RecordedMessage
from trimaran.archive.reading.export import ExportRefusedError, read_manifest
from trimaran.archive.tool.commands.rows import MessageRows
from trimaran.cluster.cli.archive import VOCABULARY
from trimaran.service_api.errors import ClusterError
from trimaran.service_api.wire.log.messages import LOG_MESSAGES, EntrySkip, FeatureLevelRaise, encode_session_message
from trimaran.service_api.wire.message import MESSAGES, Message
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE

_STREAMS = (*VOCABULARY.streams, 7)


def _joined(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(2, "little") + message for message in messages)


def _entry_seeds() -> Iterator[bytes]:
    opened = Rig()
    opened.open()
    session_open = b"".join(opened.log_buffer.chunks_from(0))[32:]
    request = REQUEST_HEADER.pack(*REQUEST_MESSAGE, 3, 11, 100, 1, 0) + b"question"
    kinds: list[type[Message]] = [*LOG_MESSAGES.values(), EntrySkip, FeatureLevelRaise]
    for kind in kinds:
        entry = make_sample(kind).encode()
        yield b"\0" + _joined(session_open, encode_session_message(3, 11, 100, b"hello"), entry, request)
        yield b"\1" + _joined(session_open, request, request, entry)


@target(_entry_seeds)
def log_entries(data: bytes) -> None:
    """Entries of a log whose frames are valid: delivered, or a member stops for what no leader writes."""
    rig, rest = Rig(), data[1:]
    while len(rest) >= 2:
        length = int.from_bytes(rest[:2], "little") % 4096
        rig.publisher.append_message(rest[2 : 2 + length])
        rest = rest[2 + length :]
    if data[:1] == b"\1":
        rig.one_chunk()
    try:
        rig.deliver()
    except ClusterError:
        return
    expect(rig.adapter.position == rig.log_buffer.append_position, "all of it is delivered", rig=rig.adapter)


def _row_seeds() -> Iterator[bytes]:
    models = [model for _, model in sorted(MESSAGES.items()) if model.__module__.startswith("trimaran.")]
    for number, message in enumerate(sample_messages(models)):
        yield bytes([number % len(_STREAMS)]) + message.encode()
    yield b"\3" + b"an application's own"


@target(_row_seeds, length_limit=1024)
def message_rows(data: bytes) -> None:
    """Recorded messages as `trimaran log`, `dump --messages` and `grep` show them."""
    if not data:
        return
    rows = MessageRows.of_log(0, _STREAMS[data[0] % len(_STREAMS)], VOCABULARY)
    message = RecordedMessage(0, 64, 1, 0, data[1:])
    json.dumps(rows.row(message)).encode()
    json.dumps(rows.row(message, around=len(data) // 2)).encode()


def _manifest_seeds() -> Iterator[bytes]:
    yield json.dumps({"format": "parquet", "recordings": {"0": {"stream_id": 100}}}).encode()


@target(_manifest_seeds, length_limit=8192)
def export_manifest(data: bytes) -> None:
    """The file that says what an export holds."""
    path = scratch_file("manifest.json")
    path.write_bytes(data)
    try:
        read_manifest(path)
    except ExportRefusedError:
        return
