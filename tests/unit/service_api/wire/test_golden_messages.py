"""Every message of the five schemas, byte for byte as Aeron 1.52.2's own encoders wrote it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

import trimaran.archive.format.messages
import trimaran.cluster.messages
from tests.places import AERON
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.wire import versioned
from trimaran.service_api.wire.fields import BlockField, MessageLayout
from trimaran.service_api.wire.message import (
    MESSAGES,
    Message,
    PassedOverMessage,
    decode_message,
    peek_header,
    registry_key,
)

MODULES = (trimaran.archive.format.messages, trimaran.cluster.messages)  # imported for their registration


@cache
def golden(name: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(AERON / name, "rt") as file:
        return tuple(json.load(file))


MESSAGES_ENTRIES = golden("golden-messages.json.gz")
OLDER_ENTRIES = golden("golden-older-versions.json.gz")
NAMES = sorted({(entry["schema_id"], entry["name"]) for entry in MESSAGES_ENTRIES})


def entries_of(name: tuple[int, str], entries: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    found = [entry for entry in entries if (entry["schema_id"], entry["name"]) == name]
    assert found
    return found


def block_value(field: BlockField, value: Any) -> Any:
    """Say a value as the samples do: enums and booleans by name, absent numbers as the null value."""
    if field.values is None:
        return field.null if value is None else value
    if value is None:
        return "NULL_VAL"
    return str(value).upper() if isinstance(value, bool) else value.name


def by_wire_name(model: BaseModel, layout: MessageLayout) -> dict[str, Any]:
    values = {field.wire_name: block_value(field, getattr(model, field.name)) for field in layout.block}
    for var in layout.var_data:
        value = getattr(model, var.name)
        values[var.wire_name] = value if var.is_text else value.hex()
    return values


def groups_of(message: Message) -> dict[str, Any]:
    return {
        group.wire_name: [by_wire_name(element, group.layout) for element in getattr(message, group.name)]
        for group in message.LAYOUT.groups
    }


def high_bytes(entry: dict[str, Any]) -> int:
    return sum(byte > 127 for data in entry["string_bytes"].values() for byte in bytes.fromhex(data))


def test_every_message_of_the_samples_has_a_model_and_no_model_is_made_up() -> None:
    in_samples = {registry_key(entry["schema_id"], entry["template_id"]) for entry in MESSAGES_ENTRIES}

    assert len(MESSAGES_ENTRIES) == 956
    assert len(in_samples) == 110
    # Tests define messages of schemas of their own, and test_codec looks at those of ours that Aeron passes over.
    aeron = {key: model for key, model in MESSAGES.items() if not issubclass(model, PassedOverMessage)}
    assert {key for key in aeron if key >> 16 in (100, 101, 110, 111, 112)} == in_samples


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_golden_message_decodes_to_the_fields_that_the_real_decoder_gives(name: tuple[int, str]) -> None:
    for entry in entries_of(name, MESSAGES_ENTRIES):
        data = bytes.fromhex(entry["hex"])

        message = decode_message(data)

        assert entry["name"] == message.WIRE_NAME
        assert by_wire_name(message, message.LAYOUT) == entry["fields"], entry["kind"]
        assert groups_of(message) == entry.get("groups", {}), entry["kind"]
        header = (entry["block_length"], entry["template_id"], entry["schema_id"], entry["schema_version"])
        assert peek_header(data) == header
        assert entry["header_length"] == message.HEADER_LENGTH


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_golden_message_encodes_back_to_the_byte(name: tuple[int, str]) -> None:
    for entry in entries_of(name, MESSAGES_ENTRIES):
        data = bytes.fromhex(entry["hex"])

        encoded = decode_message(data).encode()

        if "string_bytes" in entry:  # bytes above 0x7F are lost in the text: each comes back as "?"
            differing = [(old, new) for old, new in zip(data, encoded, strict=True) if old != new]
            assert all(old > 127 and new == ord("?") for old, new in differing)
            assert len(differing) == high_bytes(entry)
        else:
            assert encoded.hex() == entry["hex"], entry["kind"]


def test_text_outside_ascii_is_written_as_the_java_setter_does() -> None:
    """`string_input` is what was given to the setter, `fields` what the getter gave back."""
    count = 0
    for entry in MESSAGES_ENTRIES:
        if "string_input" not in entry:
            continue
        message = decode_message(bytes.fromhex(entry["hex"]))
        names = {var.wire_name: var.name for var in message.LAYOUT.var_data}
        given = {names[path]: text for path, text in entry["string_input"].items() if "." not in path}

        encoded = message.model_copy(update=given).encode()

        assert encoded.hex() == entry["hex"]
        count += 1
    assert count == 42


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_unpack_gives_the_raw_block(name: tuple[int, str]) -> None:
    for entry in entries_of(name, MESSAGES_ENTRIES):
        message = decode_message(bytes.fromhex(entry["hex"]))

        raw = message.unpack(b"xyz" + bytes.fromhex(entry["hex"]), 3)

        expected = [entry["fields"][field.wire_name] for field in message.LAYOUT.block]
        for field, value, wanted in zip(message.LAYOUT.block, raw, expected, strict=True):
            if field.values is None:
                assert value == wanted
            else:
                meaning = {number: block_value(field, python) for number, python in field.values}
                assert meaning.get(value, "NULL_VAL") == wanted


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_slow_path_decodes_what_the_compiled_one_does(name: tuple[int, str]) -> None:
    for entry in entries_of(name, MESSAGES_ENTRIES):
        data = bytes.fromhex(entry["hex"])
        fast = decode_message(data)
        slow_decode = versioned.decoder(type(fast), fast.LAYOUT, fast.TEMPLATE_ID, fast.SCHEMA_ID, fast.HEADER_LENGTH)
        slow_unpack = versioned.unpacker(type(fast), fast.LAYOUT, fast.TEMPLATE_ID, fast.SCHEMA_ID, fast.HEADER_LENGTH)

        assert slow_decode(data, 0, len(data)) == fast
        assert slow_unpack(data, 0, len(data)) == fast.unpack(data)


@pytest.mark.parametrize("index", range(len(OLDER_ENTRIES)))
def test_older_version_decodes_with_absent_fields_as_the_real_decoder_gives_them(index: int) -> None:
    entry = OLDER_ENTRIES[index]

    message = decode_message(bytes.fromhex(entry["hex"]))

    assert by_wire_name(message, message.LAYOUT) == entry["fields"]
    raw = message.unpack(bytes.fromhex(entry["hex"]))
    for field, value in zip(message.LAYOUT.block, raw, strict=True):
        assert field.values is not None or value == entry["fields"][field.wire_name]


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_newer_and_longer_block_is_skipped_over(name: tuple[int, str]) -> None:
    entry = entries_of(name, MESSAGES_ENTRIES)[0]
    message = decode_message(bytes.fromhex(entry["hex"]))
    data = bytearray.fromhex(entry["hex"])
    block_end = message.HEADER_LENGTH + entry["block_length"]
    data[0:2] = (entry["block_length"] + 16).to_bytes(2, "little")
    data[6:8] = (entry["schema_version"] + 1).to_bytes(2, "little")
    data[block_end:block_end] = b"\xab" * 16
    if message.HEADER_LENGTH == 16:
        data[8:12] = len(data).to_bytes(4, "little")

    assert decode_message(bytes(data)) == message
    assert message.unpack(data) == message.unpack(bytes.fromhex(entry["hex"]))


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_every_prefix_of_a_message_is_refused(name: tuple[int, str]) -> None:
    for entry in entries_of(name, MESSAGES_ENTRIES)[:3]:
        data = bytes.fromhex(entry["hex"])
        for length in range(len(data)):
            with pytest.raises(RemoteProtocolError):
                decode_message(data[:length])
            with pytest.raises(RemoteProtocolError):
                decode_message(data + bytes(64), 0, length)


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_bytes_after_a_message_are_left_alone(name: tuple[int, str]) -> None:
    entry = entries_of(name, MESSAGES_ENTRIES)[0]
    data = bytes.fromhex(entry["hex"])
    message = decode_message(data)

    assert decode_message(b"\xff" * 5 + data + b"\xff" * 7, 5) == message
    assert decode_message(memoryview(b"\xff" * 5 + data + b"\xff" * 7), 5, len(data)) == message
    assert decode_message(bytearray(data)) == message


@pytest.mark.parametrize("entry", [e for e in MESSAGES_ENTRIES if e["kind"] == "typical"], ids=lambda e: e["name"])
def test_any_flipped_byte_is_decoded_or_refused_but_never_an_accident(entry: dict[str, Any]) -> None:
    for position in range(8, len(entry["hex"]) // 2):
        for value in (0x00, 0x7F, 0xFF):
            data = bytearray.fromhex(entry["hex"])
            data[position] = value
            try:
                message = decode_message(bytes(data))
            except RemoteProtocolError:
                continue
            assert entry["name"] == message.WIRE_NAME
