"""What applications may do to frames is no damage: claims given up, padding anywhere in a term, flags of their own.

The recordings are a real archive's, which its tool verifies and which it replays. What the other tests of this folder
say of each sample, frame for frame and message for message, they say of these, too.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.mutations import mutated
from tests.interchange.samples import APPLICATION_NODES, frames_of, run, sample_of, truth_of
from trimaran.archive.files.mark_file import MARK_FILE_NAME

TERM_LENGTH = 65536


@pytest.fixture(params=APPLICATION_NODES)
def archive(samples: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy, which a test may change."""
    return Path(shutil.copytree(sample_of(samples, request.param).directory / "archive", tmp_path / "archive"))


def rows_of(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "-o", "jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", APPLICATION_NODES)
def test_the_samples_hold_what_they_are_for(name: str) -> None:
    frames = frames_of(truth_of(name))
    padding = [frame for frame in frames if frame["type"] == 0]
    in_the_middle = [f for f in padding if f["term_offset"] + -(-f["frame_length"] // 32) * 32 < TERM_LENGTH]

    assert len(in_the_middle) > 250
    assert {frame["frame_length"] % 32 for frame in in_the_middle} == set(range(32))
    assert {frame["flags"] for frame in frames if frame["type"] == 1} >= {0xC0 | bits for bits in range(64)}
    assert any(frame["frame_length"] > 1408 for frame in in_the_middle), "longer than any data frame of its recording"
    assert len(truth_of(name)["recordings"]) == 9


def test_verify_marks_and_compact_removes_nothing(archive: Path) -> None:
    files = {path.name: path.read_bytes() for path in archive.iterdir() if path.name != MARK_FILE_NAME}

    rows = rows_of("archive", "verify", archive, "--mark-invalid")
    compacted = run("archive", "compact", archive)

    assert {row["verdict"] for row in rows} == {"ok"}
    assert {row["state"] for row in rows} == {"VALID"}
    assert compacted.exit_code == 0
    assert {path.name: path.read_bytes() for path in archive.iterdir() if path.name in files} == files


@pytest.mark.parametrize("name", APPLICATION_NODES)
def test_an_export_has_every_frame(samples: Path, tmp_path: Path, name: str) -> None:
    rows_of("archive", "export", sample_of(samples, name).directory, "--to", tmp_path, "--format", "jsonl")

    rows = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    columns = ("recording_id", "position", "frame_length", "type", "flags")
    found = sorted(tuple(row[column] for column in columns) for row in rows)
    assert found == sorted(tuple(frame[column] for column in columns) for frame in frames_of(truth_of(name)))


def test_a_replicated_recording_is_the_same_recording(archive: Path) -> None:
    """Recording 8 was made of recording 0 by a tagged replication: another session, the same frames."""
    (row,) = rows_of("archive", "diff", archive, archive, "--recording-id", 0, "--other-recording-id", 8)

    assert row["verdict"] == "equal"


def test_migrated_segments_belong_to_the_recording_that_has_them_now(archive: Path) -> None:
    rows = {row["recording_id"]: row for row in rows_of("archive", "verify", archive)}

    assert (rows[5]["start_position"], rows[5]["stop_position"], rows[5]["frame_count"]) == (0, 0, 0)
    assert rows[6]["start_position"] == 0
    assert rows[6]["stop_position"] > 2 * 131072


@pytest.mark.parametrize("command", [(), ("--mark-invalid",)])
def test_a_frame_of_a_type_that_only_its_application_knows_is_not_called_damage(
    samples: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Nobody here can read it, so it ends what is read; Aeron's tool accepts it, so nothing is marked."""
    archive = shutil.copytree(samples / "application-types" / "node0" / "archive", tmp_path / "archive")

    result = run("archive", "verify", archive, *command, "-o", "jsonl")

    (row,) = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, row["verdict"], row["frame_count"]) == (10, "unknown", 10)
    assert "type=74" in row["problems"][0]
    (entry,) = rows_of("archive", "describe", archive, "--all")
    assert entry["state"] == "VALID"


FLAGS_OFFSET = 5


def rename_channel(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"|alias=log", b"|alias=own"))


@pytest.mark.parametrize("flags", [0xC1, 0xE0, 0x80, 0x40, 0x00])
def test_a_log_of_a_cluster_has_no_flags_of_an_application(samples: Path, tmp_path: Path, flags: int) -> None:
    """Only leaders write it. The same flags are no damage once nothing says that the recording is a log."""
    truth = truth_of("single-node-node0")["recordings"][0]
    frame = next(f for f in truth["frames"][100:] if f["flags"] == 0xC0 and f["position"] < TERM_LENGTH)

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[frame["position"] + FLAGS_OFFSET] = flags
        path.write_bytes(data)

    source = samples / "single-node" / "node0"
    directory = mutated(source, tmp_path / "member", "0-0.rec", change)
    archive = directory / "archive"
    found = run("archive", "verify", archive, "-o", "jsonl")
    imported = run("archive", "import", directory, "--to", tmp_path / "imported", "--no-snapshots")
    other = mutated(directory, tmp_path / "other", "archive.catalog", rename_channel)
    as_application = run("archive", "verify", other / "archive", "-o", "jsonl")

    (row, *_) = map(json.loads, found.stdout.splitlines())
    assert (found.exit_code, row["verdict"], row["stop_position"]) == (10, "wrong", frame["position"])
    assert imported.exit_code == 10
    assert as_application.exit_code == 0


@pytest.mark.parametrize(
    ("scenario", "file", "is_found"),
    [
        pytest.param("single-node", "2-0.rec", True, id="of Aeron's consensus module"),
        pytest.param("single-node", "1-0.rec", False, id="of a service of Aeron's, which may choose its flags"),
        pytest.param("seeded", "1-0.rec", True, id="of a service of ours"),
    ],
)
def test_a_snapshot_has_no_flags_of_an_application(
    samples: Path, tmp_path: Path, scenario: str, file: str, is_found: bool
) -> None:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        assert data[FLAGS_OFFSET] == 0xC0
        data[FLAGS_OFFSET] = 0xC1
        path.write_bytes(data)

    directory = mutated(samples / scenario / "node0", tmp_path / "member", file, change)
    result = run("archive", "verify", directory / "archive", "-o", "jsonl")

    rows = {row["recording_id"]: row["verdict"] for row in map(json.loads, result.stdout.splitlines())}
    assert (rows[int(file[0])] == "wrong") is is_found
    assert all(verdict == "ok" for recording_id, verdict in rows.items() if recording_id != int(file[0]))
