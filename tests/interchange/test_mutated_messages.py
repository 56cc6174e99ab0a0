"""Messages that do not decode: each is a row that says why, the rest of the recording is shown as ever."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.facts import has_facts
from tests.interchange.mutations import MESSAGE_HEADER, mutated, write_value
from tests.interchange.samples import run, truth_of

DIRECTORY: Final = "single-node/node0"
LOG, SERVICE_SNAPSHOT, MODULE_SNAPSHOT = 0, 1, 2
"""The recordings there."""


class Case(NamedTuple):
    """A message, what is done to it, and what the row then says."""

    recording_id: int
    name: str
    change: Callable[[bytearray, int], None]
    problem: str


def message_of(recording_id: int, name: str) -> dict[str, Any]:
    """The last message of a kind in a recording, of one frame."""
    messages = truth_of("single-node-node0")["recordings"][recording_id]["messages"]
    found: dict[str, Any] = next(m for m in reversed(messages) if m["name"] == name and m["frame_count"] == 1)
    return found


def put(field: str, value: int) -> Callable[[bytearray, int], None]:
    """Write a value into the message's header."""
    place = MESSAGE_HEADER[field]
    return lambda data, position: struct.pack_into(place.format, data, position + place.offset, value)


def end_at(frame_length: int) -> Callable[[bytearray, int], None]:
    """Let the frame end earlier, so little that the next one begins where it did, with zeros up to there."""

    def change(data: bytearray, position: int) -> None:
        (old,) = struct.unpack_from("<i", data, position)
        assert -(-old // 32) == -(-frame_length // 32), "the next frame begins where it did"
        struct.pack_into("<i", data, position, frame_length)
        end = position + -(-old // 32) * 32
        data[position + frame_length : end] = bytes(end - position - frame_length)

    return change


def put_text_length(value: int, block_length: int) -> Callable[[bytearray, int], None]:
    """Change the length of the first text after the block."""
    return lambda data, position: struct.pack_into("<I", data, position + 32 + 8 + block_length, value)


CASES: Final = (
    Case(LOG, "SessionOpenEvent", put("template_id", 999), "unknown message: schema_id=111 template_id=999"),
    Case(LOG, "SessionOpenEvent", put("schema_id", 7), "unknown message: schema_id=7 template_id=21"),
    Case(
        LOG,
        "SessionOpenEvent",
        put("block_length", 20),
        "SessionOpenEvent: block_length=20 version=16 field=cluster_session_id needs=24",
    ),
    Case(LOG, "SessionOpenEvent", put("block_length", 65535), "SessionOpenEvent block: length=65535 available="),
    Case(LOG, "SessionOpenEvent", put_text_length(2**32 - 1, 36), "length=4294967295"),
    Case(LOG, "SessionOpenEvent", put_text_length(3, 36), "SessionOpenEvent.encoded_principal: length="),
    Case(LOG, "TimerEvent", put("template_id", 105), "unknown message: schema_id=111 template_id=105"),
    Case(MODULE_SNAPSHOT, "ConsensusModule", put("template_id", 998), "unknown message: schema_id=111 template_id=998"),
    Case(MODULE_SNAPSHOT, "ConsensusModule", put("block_length", 27), "ConsensusModule: "),
    Case(MODULE_SNAPSHOT, "ConsensusModule", put("block_length", 29), "ConsensusModule block: length=29 available=28"),
    Case(MODULE_SNAPSHOT, "ConsensusModule", end_at(32 + 33), "ConsensusModule block: length=28 available=25"),
    Case(MODULE_SNAPSHOT, "ClusterSession", put_text_length(1000, 40), "length=1000"),
    Case(MODULE_SNAPSHOT, "Timer", put("schema_id", 112), "unknown message: schema_id=112 template_id=104"),
    Case(SERVICE_SNAPSHOT, "ClientSession", put("template_id", 24), "unknown message: schema_id=111 template_id=24"),
    Case(SERVICE_SNAPSHOT, "ClientSession", put("block_length", 0), "ClientSession: block_length=0 version=16 field="),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.problem.replace(' ', '_')}")
def test_a_message_that_does_not_decode_is_a_row_with_the_reason(samples: Path, tmp_path: Path, case: Case) -> None:
    truth = truth_of("single-node-node0")["recordings"][case.recording_id]
    message = message_of(case.recording_id, case.name)
    position = message["position"]
    base = position - position % 65536

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        case.change(data, position - base)
        path.write_bytes(data)

    directory = mutated(samples / DIRECTORY, tmp_path / "mutated", f"{case.recording_id}-{base}.rec", change)
    result = run("archive", "dump", directory, "--messages", "--recording-id", case.recording_id)

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expected = [{"recording_id": case.recording_id, **m} for m in truth["messages"]]
    assert [row for row in rows if row["position"] != position] == [m for m in expected if m["position"] != position]
    (row,) = (row for row in rows if row["position"] == position)
    assert (row["name"], row["end_position"]) == ("(unreadable)", message["end_position"])
    assert case.problem in row["problem"]
    assert result.exit_code == 10
    where = f"recording_id={case.recording_id} position={position}: message does not decode: "
    assert result.stderr == f"{where}{row['problem']}\n"


@pytest.mark.parametrize("frame_length", [32 + 60, 32 + 55])
def test_a_frame_of_a_log_that_its_message_does_not_fill_is_damage(
    samples: Path, tmp_path: Path, frame_length: int
) -> None:
    """As much of a length as alignment rounds away is in no checksum."""
    position = message_of(LOG, "NewLeadershipTermEvent")["position"]

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        end_at(frame_length)(data, position % 65536)
        path.write_bytes(data)

    name = f"0-{position - position % 65536}.rec"
    result = run("archive", "verify", mutated(samples / DIRECTORY, tmp_path / "mutated", name, change), "-o", "jsonl")

    (row,) = (row for row in map(json.loads, result.stdout.splitlines()) if row["recording_id"] == LOG)
    assert (result.exit_code, row["verdict"], row["stop_position"]) == (10, "wrong", position)
    assert has_facts(row["problems"][0], f"frame_length={frame_length}")


def test_a_payload_too_short_for_a_message_is_a_row_with_the_reason(samples: Path, tmp_path: Path) -> None:
    """A `Timer` of 24 bytes fills one aligned frame: a frame of 5 bytes ends where it did."""
    message = message_of(MODULE_SNAPSHOT, "Timer")

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        end_at(32 + 5)(data, message["position"])
        path.write_bytes(data)

    directory = mutated(samples / DIRECTORY, tmp_path / "mutated", "2-0.rec", change)

    result = run("archive", "dump", directory, "--messages", "--recording-id", MODULE_SNAPSHOT)

    (row,) = (r for r in map(json.loads, result.stdout.splitlines()) if r["position"] == message["position"])
    assert row["problem"] == "message header: length=8 available=5"
    assert (row["payload_length"], result.exit_code) == (5, 10)
    assert "schema_id" not in row


def test_the_first_message_may_be_the_damaged_one(samples: Path, tmp_path: Path) -> None:
    """What a recording is, the messages after the first one tell, too."""
    directory = mutated(
        samples / DIRECTORY, tmp_path / "mutated", "2-0.rec", lambda path: write_value(path, 34, "<H", 999)
    )

    result = run("archive", "dump", directory, "--messages", "--recording-id", MODULE_SNAPSHOT)

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["name"] for row in rows[:3]] == ["(unreadable)", "ConsensusModule", "ClusterSession"]
    assert result.exit_code == 10


def test_what_an_application_writes_into_its_snapshot_is_its_own_affair(samples: Path, tmp_path: Path) -> None:
    """After the container's part any bytes are right: also those that look like a broken message of ours."""
    messages = truth_of("single-node-node0")["recordings"][SERVICE_SNAPSHOT]["messages"]
    own = next(m for m in messages if m["name"] == "(application)" and m["length"] >= 8)

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        struct.pack_into("<HHHH", data, own["position"] + 32, 9999, 24, 111, 16)
        path.write_bytes(data)

    directory = mutated(samples / DIRECTORY, tmp_path / "mutated", "1-0.rec", change)
    result = run("archive", "dump", directory, "--messages", "--recording-id", SERVICE_SNAPSHOT)

    (row,) = (r for r in map(json.loads, result.stdout.splitlines()) if r["position"] == own["position"])
    assert (row["name"], result.exit_code, result.stderr) == ("(application)", 0, "")


@pytest.mark.parametrize("version", [9, 17, 60000])
def test_another_version_of_the_schema_is_read_as_sbe_says(samples: Path, tmp_path: Path, version: int) -> None:
    """Nothing protects the version. A reader takes what it knows of the block and skips the rest."""
    message = message_of(MODULE_SNAPSHOT, "Timer")
    place = MESSAGE_HEADER["schema_version"]
    directory = mutated(
        samples / DIRECTORY,
        tmp_path / "mutated",
        "2-0.rec",
        lambda path: write_value(path, message["position"] + place.offset, place.format, version),
    )

    result = run("archive", "dump", directory, "--messages", "--recording-id", MODULE_SNAPSHOT)

    (row,) = (r for r in map(json.loads, result.stdout.splitlines()) if r["position"] == message["position"])
    assert row == {"recording_id": MODULE_SNAPSHOT, **message, "schema_version": version}
    assert result.exit_code == 0


def test_a_dump_that_begins_inside_a_message_notes_it(samples: Path) -> None:
    """Who begins at a fragment asked for it: that it has no beginning is noted, and no damage."""
    frames = truth_of("single-node-node0")["recordings"][LOG]["frames"]
    middle = next(frame for frame in frames if frame["flags"] == 0)

    result = run(
        *("archive", "dump", samples / DIRECTORY, "--messages", "--recording-id", LOG),
        *("--from-position", middle["position"], "--limit", 2),
    )

    assert len(result.stdout.splitlines()) == 2
    assert has_facts(result.stderr, f"position={middle['position']}:", "fragments")
    assert result.exit_code == 0
