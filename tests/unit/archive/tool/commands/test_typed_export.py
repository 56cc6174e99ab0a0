"""Typed messages of a log as tables: a folder for each class, a column for each field, all versions together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import dataset, parquet
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import launch, small_config
from tests.unit.archive.tool.commands.test_typed_rows import record
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.tool.app import app
from trimaran.service_api.typed import Command, Event
from trimaran.service_api.typed.codec import MessageCodec
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.log.messages import encode_session_message
from trimaran.service_api.wire.payload_header import PayloadKind
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.topics import SCHEMA_TOPIC, encode_topic_message

TIME = 1_700_000_000_000
OF_SERVICE_1 = -(1 << 63) + (1 << 56) + 1


class OldPay(Command[int], name="Pay"):
    account: str
    amount: int


class Pay(Command[int]):
    account: str
    amount: float
    position: str = "?"


class Lost(Command[int]):
    account: str


class Paid(Event):
    account: str


def command(message: Any, sequence: int = 1) -> bytes:
    codec = MessageCodec(type(message))
    body = codec.header(PayloadKind.COMMAND) + codec.encode(message)
    return REQUEST_HEADER.pack(*REQUEST_MESSAGE, 1, 5, TIME, sequence, 0) + body


def sent(payload: bytes, session_id: int = 5) -> bytes:
    return encode_session_message(1, session_id, TIME, payload)


EVENT = MessageCodec(Paid).header(PayloadKind.EVENT, 1) + MessageCodec(Paid).encode(Paid("ann"))
WHOLE = [
    sent(MessageCodec(OldPay).announcement()),
    command(OldPay("ann", 5), 7),
    sent(b"of an untyped client"),
    sent(MessageCodec(Pay).announcement()),
    command(Pay("bob", 2.5, "left")),
    sent(encode_topic_message(SCHEMA_TOPIC, MessageCodec(Paid).announcement(1)), OF_SERVICE_1),
    sent(encode_topic_message("paid", EVENT), OF_SERVICE_1),
]


async def recorded(directory: Path, messages: list[bytes]) -> Path:
    archive = await launch(OsFileSystem(), directory, config=small_config(checksums=False))
    await record(archive, LOG_STREAM_ID, messages)
    await archive.aclose()
    return directory


def export(directory: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["export", str(directory), "--to", str(target), "--typed", *options])


async def test_each_class_is_a_folder_with_a_column_for_each_field_of_all_versions(tmp_path: Path) -> None:
    directory = await recorded(tmp_path / "archive", WHOLE)

    ended = export(directory, tmp_path / "typed", "-o", "jsonl")

    assert ended.exit_code == 0, ended.output
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["message"], row["file"], row["rows"]) for row in rows] == [
        ("Pay", "Pay/0.parquet", 2),
        ("Paid", "Paid/0.parquet", 1),
    ]
    pays = dataset.dataset(tmp_path / "typed" / "Pay").to_table().to_pylist()
    assert [(row["account"], row["amount"], row["message_position"]) for row in pays] == [
        ("ann", 5.0, None),
        ("bob", 2.5, "left"),
    ]
    assert [(row["request_sequence"], row["kind"], row["cluster_session_id"]) for row in pays] == [
        (7, "command", 5),
        (1, "command", 5),
    ]
    (paid,) = parquet.read_table(tmp_path / "typed" / "Paid" / "0.parquet").to_pylist()
    assert (paid["topic"], paid["service_id"], paid["account"], paid["problem"]) == ("paid", 1, "ann", None)


async def test_what_cannot_be_read_is_told_and_nothing_is_left_out_in_silence(tmp_path: Path) -> None:
    codec = MessageCodec(OldPay)
    bad = codec.header(PayloadKind.COMMAND) + msgspec.msgpack.encode([7, 1])
    directory = await recorded(tmp_path / "archive", [*WHOLE[:2], sent(bad), command(Lost("ann"))])

    ended = export(directory, tmp_path / "typed", "-o", "jsonl")

    assert ended.exit_code == 10
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["message"], row["rows"]) for row in rows] == [("Pay", 2), (None, 1)]
    assert "Pay.account=7" in rows[0]["remarks"]
    assert MessageCodec(Lost).fingerprint.hex() in rows[1]["remarks"]
    table = parquet.read_table(tmp_path / "typed" / "Pay" / "0.parquet").to_pylist()
    assert [(row["account"], row["bytes"]) for row in table] == [("ann", None), (None, bad)]


async def test_another_run_writes_the_tables_anew_and_touches_no_other_files(tmp_path: Path) -> None:
    directory = await recorded(tmp_path / "archive", WHOLE)
    target, other = tmp_path / "typed", tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("")

    codes = [
        export(directory, target).exit_code,
        export(directory, target).exit_code,
        export(directory, target, "--overwrite").exit_code,
        export(directory, other, "--overwrite").exit_code,
    ]

    assert codes == [0, 12, 0, 12]
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.*")) == [
        "Paid/0.parquet",
        "Pay/0.parquet",
        "_export.json",
    ]
    assert [path.name for path in other.iterdir()] == ["mine"]


@pytest.mark.parametrize("options", [["--follow"], ["--messages"], ["--columns", "position"], ["--format", "jsonl"]])
async def test_options_that_are_not_for_tables_are_refused(tmp_path: Path, options: list[str]) -> None:
    directory = await recorded(tmp_path / "archive", WHOLE)

    ended = export(directory, tmp_path / "typed", *options)

    assert ended.exit_code == 2
    assert not (tmp_path / "typed").exists()
