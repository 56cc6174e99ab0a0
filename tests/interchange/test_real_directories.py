"""Every directory of a real Aeron, read by the commands and held against the truth beside it, text for text.

Where the truth is printed by `json.dumps` and by us alike, `diff` compares the two: keys, their order, values.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.samples import Sample, as_lines, frames_of, messages_of, run, truth_of

OUR_NAMES = {
    "controlSessionId": "control_session_id",
    "correlationId": "correlation_id",
    "recordingId": "recording_id",
    "startTimestamp": "start_timestamp_ms",
    "stopTimestamp": "stop_timestamp_ms",
    "startPosition": "start_position",
    "stopPosition": "stop_position",
    "initialTermId": "initial_term_id",
    "segmentFileLength": "segment_file_length",
    "termBufferLength": "term_buffer_length",
    "mtuLength": "mtu_length",
    "sessionId": "session_id",
    "streamId": "stream_id",
    "strippedChannel": "stripped_channel",
    "originalChannel": "original_channel",
    "sourceIdentity": "source_identity",
}
"""The parts of a recording's descriptor as Aeron and as we name them."""


def described_entry(entry: dict[str, Any], recording: dict[str, Any], checksum: str) -> dict[str, Any]:
    """What `describe --all` has to say of a catalog entry of the truth."""
    fields = {ours: entry["descriptor"][theirs] for theirs, ours in OUR_NAMES.items()}
    for name in ("stop_timestamp_ms", "stop_position"):
        fields[name] = None if fields[name] == -1 else fields[name]
    return fields | {
        "state": entry["header"]["state"],
        "checksummed": entry["header"]["checksum"] != 0,
        "checksum": checksum if entry["header"]["checksum"] else "none",
        "entry_checksum": entry["header"]["checksum"],
        "entry_offset": entry["offset"],
        "segments": len(recording["segments"]),
    }


def test_the_catalog_is_as_in_the_truth(sample: Sample) -> None:
    result = run("archive", "describe", sample.directory / "archive", "--all", "-o", "json")

    entries, recordings = sample.truth["catalog"]["entries"], sample.truth["recordings"]
    checksum = "crc32c" if "crc32c" in sample.name else "crc32"
    assert json.loads(result.stdout) == [
        described_entry(e, r, checksum) for e, r in zip(entries, recordings, strict=True)
    ]
    assert (result.exit_code, result.stderr) == (0, "")


def test_every_frame_is_as_in_the_truth(sample: Sample) -> None:
    result = run("archive", "dump", sample.directory / "archive", "-o", "jsonl")

    assert result.stdout.splitlines() == as_lines(frames_of(sample.truth))
    assert (result.exit_code, result.stderr) == (0, "")


def test_every_message_is_as_in_the_truth(sample: Sample) -> None:
    """Fragments put together, logs, consensus module and service snapshots, by name and field."""
    result = run("archive", "dump", sample.directory / "archive", "--messages", "-o", "jsonl")

    assert result.stdout.splitlines() == as_lines(messages_of(sample.truth))
    assert (result.exit_code, result.stderr) == (0, "")


def test_every_sound_directory_verifies(sample: Sample) -> None:
    result = run("archive", "verify", sample.directory / "archive", "-o", "jsonl")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [(row["recording_id"], row["frame_count"], row["stop_position"]) for row in rows] == [
        (r["recording_id"], len(r["frames"]), r["scan_ended"]["position"]) for r in sample.truth["recordings"]
    ]


def test_the_recording_log_is_as_in_the_truth(member: Sample) -> None:
    result = run("recording-log", member.directory, "-o", "json")

    assert result.stdout == json.dumps(member.truth["recording_log"]["entries"], indent=2) + "\n"
    assert (result.exit_code, result.stderr) == (0, "")


STATE_FILES = [name for name, state in truth_of("state-files").items() if "entries" in state]


@pytest.mark.parametrize("name", STATE_FILES)
def test_a_recording_log_in_any_state_is_as_in_the_truth(samples: Path, name: str) -> None:
    """Invalidated, restored, removed, out of order, standby snapshots, sorted and seeded by the real tool."""
    result = run("recording-log", samples / "state-files" / name, "-o", "json")

    assert json.loads(result.stdout) == truth_of("state-files")[name]["entries"]
    assert result.stdout == json.dumps(truth_of("state-files")[name]["entries"], indent=2) + "\n"


def state_rows(directory: Path) -> dict[str, dict[str, Any]]:
    result = run("state", directory, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    return {row["file"]: row for row in json.loads(result.stdout)}


def check_node_state(row: dict[str, Any], truth: dict[str, Any]) -> None:
    record, footer = truth["records"]
    assert footer["name"] == "nodeStateFooter"
    header = (row["block_length"], row["template_id"], row["schema_id"], row["schema_version"])
    assert header == tuple(record[name] for name in ("blockLength", "templateId", "schemaId", "version"))
    assert (row["file_length"], row["name"], row["fields"]) == (truth["file_length"], record["name"], record["fields"])


def test_node_state_and_mark_files_are_as_in_the_truth(member: Sample) -> None:
    rows = state_rows(member.directory)

    check_node_state(rows.pop("node-state.dat"), member.truth["node_state"])
    check_archive_mark(rows.pop("archive-mark.dat"), member.truth["mark_files"]["archive-mark.dat"])
    marks = {name: mark for name, mark in member.truth["mark_files"].items() if name != "archive-mark.dat"}
    assert set(rows) == set(marks)
    for name, mark in marks.items():
        row = rows[name]
        assert (row["template_id"], row["schema_version"], row["block_length"]) == (
            *(mark["templateId"], mark["version"], mark["blockLength"]),
        )
        assert (row["file_length"], row["fields"]) == (mark["file_length"], mark["fields"])


def check_archive_mark(row: dict[str, Any], truth: dict[str, Any]) -> None:
    assert {"file_length": row["file_length"], **row["fields"]} == truth


def test_an_archive_alone_has_only_its_mark_file(samples: Path) -> None:
    rows = state_rows(samples / "archive-only" / "node0")

    assert list(rows) == ["archive-mark.dat"]
    check_archive_mark(rows["archive-mark.dat"], truth_of("archive-only-node0")["mark_files"]["archive-mark.dat"])


def test_a_table_shows_the_beginning_of_a_long_channel(samples: Path) -> None:
    directory = samples / "archive-only" / "node0" / "archive"
    rows = [json.loads(line) for line in run("archive", "describe", directory, "-o", "jsonl").stdout.splitlines()]
    (longest,) = [row["original_channel"] for row in rows if len(row["original_channel"]) > 200]

    shown = run("archive", "describe", directory).stdout

    assert longest[:79] + "…" in shown
    assert longest not in shown


@pytest.mark.parametrize("name", [name for name, state in truth_of("state-files").items() if "node_state" in state])
def test_a_node_state_in_any_state_is_as_in_the_truth(samples: Path, name: str) -> None:
    (row,) = state_rows(samples / "state-files" / name).values()

    check_node_state(row, truth_of("state-files")[name]["node_state"])


def test_state_of_a_directory_without_such_files_is_wrong_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trimaran", "state", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"directory={tmp_path}" in result.stderr


@pytest.mark.skipif(shutil.which("diff") is None, reason="needs diff")
@pytest.mark.parametrize("options", [(), ("--messages",)], ids=["frames", "messages"])
def test_diff_compares_the_output_of_a_real_process_with_the_truth(
    samples: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As the README says: whoever has two dumps, of two members or of two programs, compares them with `diff`."""
    truth = truth_of("checksummed-node0")
    rows = messages_of(truth) if options else frames_of(truth)
    expected, printed = tmp_path / "truth.jsonl", tmp_path / "dump.jsonl"
    expected.write_text("".join(f"{line}\n" for line in as_lines(rows)))
    directory = samples / "checksummed" / "node0"
    with printed.open("wb") as file:
        command = [sys.executable, "-m", "trimaran", "archive", "dump", str(directory), "-o", "jsonl", *options]
        subprocess.run(command, stdout=file, check=True)

    compared = subprocess.run(["diff", str(expected), str(printed)], capture_output=True, text=True, check=False)

    assert (compared.returncode, compared.stdout) == (0, "")


def test_members_of_one_cluster_have_the_same_log(samples: Path) -> None:
    """The real three members through their fail-overs; each snapshot has a session id of its own."""
    dumps = {
        run("archive", "dump", samples / "three-node-failover" / f"node{node}", "--recording-id", 0).stdout
        for node in range(3)
    }

    assert len(dumps) == 1
    assert len(dumps.pop().splitlines()) == 1033
