"""`trimaran archive describe|verify|dump`, as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.cluster.cli.archive import app


@pytest.fixture(scope="module")
def checksummed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("checksummed", tmp_path_factory.mktemp("samples")) / "node0" / "archive"


@pytest.fixture(scope="module")
def archive_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("archive-only", tmp_path_factory.mktemp("samples")) / "node0" / "archive"


@pytest.fixture
def damaged(checksummed: Path, tmp_path: Path) -> Path:
    directory = Path(shutil.copytree(checksummed, tmp_path / "damaged"))
    segment = directory / "0-65536.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)
    return directory


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def json_lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_describe_tells_what_the_catalog_says(checksummed: Path, output: str) -> None:
    result = run("describe", checksummed, "-o", output)

    rows = json.loads(result.stdout) if output == "json" else json_lines(result)
    entries = load_truth("checksummed-node0")["catalog"]["entries"]
    assert [(r["recording_id"], r["state"], r["stop_position"], r["original_channel"]) for r in rows] == [
        (
            entry["descriptor"]["recordingId"],
            entry["header"]["state"],
            entry["descriptor"]["stopPosition"],
            entry["descriptor"]["originalChannel"],
        )
        for entry in entries
    ]
    assert [row["segments"] for row in rows] == [5, 1, 1, 1, 1, 1, 1]


def test_describe_prints_a_table_with_whole_numbers(checksummed: Path) -> None:
    result = run("describe", checksummed)

    assert result.exit_code == 0
    assert "287008" in result.stdout
    assert "aeron:udp?tags=78|session-id=1447082106|alias=log" in result.stdout


def test_verify_of_a_sound_archive_ends_with_0(checksummed: Path) -> None:
    result = run("verify", checksummed, "-o", "jsonl")

    rows = json_lines(result)
    assert [row["verdict"] for row in rows] == ["ok"] * 7
    assert all(row["checksummed"] for row in rows)


def test_verify_finds_one_wrong_bit(damaged: Path) -> None:
    result = run("verify", damaged, "-o", "jsonl")

    assert result.exit_code == 10
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["verdict"] for row in rows] == ["wrong"] + ["ok"] * 6
    assert "wrong checksum" in rows[0]["problems"][0]
    assert 65536 < rows[0]["stop_position"] <= 65536 + 30_000


def test_verify_without_checksums_looks_at_structure_only(damaged: Path) -> None:
    assert run("verify", damaged, "--checksum", "off").exit_code == 0


def test_verify_with_checksums_where_there_are_none_fails(tmp_path: Path) -> None:
    directory = extract_sample("torn", tmp_path) / "node0" / "archive"

    assert run("verify", directory).exit_code == 0
    assert run("verify", directory, "--checksum", "on").exit_code == 10


def test_verify_changes_nothing(damaged: Path) -> None:
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}

    run("verify", damaged)

    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before


def test_dump_prints_the_frames_of_the_truth(checksummed: Path) -> None:
    rows = json_lines(run("dump", checksummed))

    expected = [
        {"recording_id": recording["recording_id"], **frame}
        for recording in load_truth("checksummed-node0")["recordings"]
        for frame in recording["frames"]
    ]
    assert rows == expected


def test_dump_prints_the_messages_of_the_truth(checksummed: Path) -> None:
    rows = json_lines(run("dump", checksummed, "--messages"))

    expected = [
        {"recording_id": recording["recording_id"], **message}
        for recording in load_truth("checksummed-node0")["recordings"]
        for message in recording["messages"]
    ]
    assert rows == expected


def test_dump_takes_a_position_and_a_limit(checksummed: Path) -> None:
    rows = json_lines(run("dump", checksummed, "--recording-id", 0, "--from-position", 96, "--limit", 2, "-o", "jsonl"))

    frames = load_truth("checksummed-node0")["recordings"][0]["frames"]
    assert rows == [{"recording_id": 0, **frame} for frame in frames[1:3]]


def test_dump_says_where_it_had_to_end(damaged: Path) -> None:
    result = run("dump", damaged, "--recording-id", 0)

    assert result.exit_code == 10
    assert has_facts(result.stderr, "recording_id=0 position=95488:", "wrong checksum")


def test_dump_from_inside_a_frame_says_so(checksummed: Path) -> None:
    result = run("dump", checksummed, "--recording-id", 0, "--from-position", 128)

    assert result.stdout == ""
    assert "position=128: bad frame" in result.stderr


@pytest.mark.parametrize("command", ["describe", "verify", "dump"])
def test_directory_that_is_no_archive_ends_in_one_line_and_2(command: str, tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        result = run(command, directory)

        assert result.exit_code == 2
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert str(directory) in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "--recording-id", "99"),
        ("dump", "--from-position", "96"),
        ("dump", "--recording-id", "0", "--from-position", "33"),
        ("verify", "-o", "yaml"),
    ],
)
def test_option_that_cannot_be_used_ends_with_2(checksummed: Path, arguments: tuple[str, ...]) -> None:
    assert run(arguments[0], checksummed, *arguments[1:]).exit_code == 2


def test_catalog_of_noise_ends_in_one_line_and_10(tmp_path: Path) -> None:
    (tmp_path / "archive.catalog").write_bytes(b"\xff" * 4096)

    result = run("describe", tmp_path)

    assert result.exit_code == 10
    assert "catalog version" in result.stderr


def test_the_directory_may_be_the_member_s(checksummed: Path) -> None:
    assert (
        run("describe", checksummed.parent, "-o", "jsonl").stdout == run("describe", checksummed, "-o", "jsonl").stdout
    )


def test_describe_shows_valid_recordings_and_with_all_every_one(archive_only: Path) -> None:
    valid = [row["recording_id"] for row in json_lines(run("describe", archive_only, "-o", "jsonl"))]
    every = {
        row["recording_id"]: row["state"] for row in json_lines(run("describe", archive_only, "--all", "-o", "jsonl"))
    }

    assert valid == [0, 1, 2, 4, 5, 6, 7, 9]
    assert {number: state for number, state in every.items() if state != "VALID"} == {3: "DELETED", 8: "INVALID"}
    assert len(every) == 10


def test_describe_shows_the_recording_that_is_named_whatever_its_state(archive_only: Path) -> None:
    rows = json_lines(run("describe", archive_only, "--recording-id", 8, "-o", "jsonl"))

    assert [(row["recording_id"], row["state"]) for row in rows] == [(8, "INVALID")]


def test_count_entries_counts_by_state(archive_only: Path) -> None:
    rows = json_lines(run("count-entries", archive_only, "-o", "jsonl"))

    assert rows == [{"valid": 8, "invalid": 1, "deleted": 1, "unreadable": 0, "total": 10}]


def test_verify_of_the_last_segment_only_does_not_see_damage_before_it(damaged: Path) -> None:
    result = run("verify", damaged, "--last-segment", "-o", "jsonl")

    rows = json_lines(result)
    assert (rows[0]["start_position"], rows[0]["stop_position"], rows[0]["verdict"]) == (262144, 287008, "ok")
    assert 0 < rows[0]["frame_count"] < 100


def test_verify_goes_on_behind_every_wrong_frame(damaged: Path) -> None:
    frames = load_truth("checksummed-node0")["recordings"][0]["frames"]
    (damaged / "0-131072.rec").unlink()

    result = run("verify", damaged, "--recording-id", 0, "--fault-tolerant", "-o", "jsonl")

    row = json.loads(result.stdout)
    assert result.exit_code == 10
    wrong = next(f for f in frames if f["position"] <= 65536 + 30_000 < f["position"] + f["frame_length"])
    lost = [wrong, *(frame for frame in frames if 131072 <= frame["position"] < 196608)]
    assert row["frame_count"] == len(frames) - len(lost)
    assert row["stop_position"] == 287008
    assert len(row["problems"]) == 2
    assert f"position={wrong['position']} " in row["problems"][0]
    assert f"{(wrong['frame_length'] + 31) & -32} bytes lost" in row["problems"][0]
    assert has_facts(row["problems"][1], "expected=0-131072.rec;", "65536 bytes", "196608")


def test_json_is_one_document_however_many_rows_there_are(checksummed: Path, tmp_path: Path) -> None:
    rows = json_lines(run("dump", checksummed, "--recording-id", 0))

    assert run("dump", checksummed, "--recording-id", 0, "-o", "json").stdout == json.dumps(rows, indent=2) + "\n"
    empty = run("dump", checksummed, "--recording-id", 0, "--limit", 0, "-o", "json").stdout
    assert empty == "[]\n"


def test_the_help_of_every_command_ends_with_an_example() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)

    for name, command in group.commands.items():
        assert (command.epilog or "").startswith(f"Example: trimaran archive {name} ")
        assert command.help
