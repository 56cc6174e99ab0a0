"""The commands that change an archive directory, as a user runs them, on what a real Aeron wrote."""

from __future__ import annotations

import json
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import extract_sample, launch, load_truth, small_config
from trimaran.archive import Archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.mark_file import MARK_FILE_NAME, ArchiveMarkFile
from trimaran.cluster.cli.archive import app

CHANGING = [
    ("mark-invalid", "0"),
    ("mark-valid", "8"),
    ("compact",),
    ("capacity", "2097152"),
    ("delete-orphaned-segments",),
    ("checksum",),
    ("verify", "--mark-invalid"),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("samples")
    for name in ("single-node", "archive-only", "checksummed"):
        extract_sample(name, directory)
    return directory


@pytest.fixture
def archive_only(samples: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(samples / "archive-only" / "node0" / "archive", tmp_path / "archive"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "-o", "jsonl")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def states(directory: Path) -> dict[int, str]:
    return {row["recording_id"]: row["state"] for row in rows("describe", directory, "--all")}


def content(directory: Path) -> dict[str, bytes]:
    """Every file but the mark file, which says who looked last."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MARK_FILE_NAME}


def test_mark_invalid_and_mark_valid(archive_only: Path) -> None:
    before = states(archive_only)

    marked = run("mark-invalid", archive_only, 0)

    assert (marked.exit_code, marked.stdout) == (0, "recording_id=0 is INVALID, was VALID\n")
    assert states(archive_only) == before | {0: "INVALID"}
    assert run("mark-invalid", archive_only, 0).stdout == "recording_id=0 is INVALID already\n"
    assert run("mark-valid", archive_only, 0).exit_code == 0
    assert run("mark-valid", archive_only, 8).exit_code == 0
    assert states(archive_only) == before | {8: "VALID"}
    assert run("verify", archive_only).exit_code == 0


def test_a_deleted_recording_is_not_made_valid(archive_only: Path) -> None:
    result = run("mark-valid", archive_only, 3)

    assert result.exit_code == 12
    assert "VALID: state=['DELETED'] expected=INVALID" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_compact_says_what_goes_and_then_it_goes(archive_only: Path) -> None:
    before = content(archive_only)

    would = rows("compact", archive_only, "--dry-run")

    assert content(archive_only) == before
    assert [(row["recording_id"], row["state"], row["file_count"], row["length_bytes"]) for row in would] == [
        (3, "DELETED", 0, 0),
        (8, "INVALID", 1, 65536),
    ]
    assert "removed: 2, 65,536 bytes" in run("compact", archive_only, "--dry-run").stdout
    assert rows("compact", archive_only) == would
    assert sorted(states(archive_only)) == [0, 1, 2, 4, 5, 6, 7, 9]
    assert set(before) - set(content(archive_only)) == {"8-0.rec"}
    assert "nothing to" in run("compact", archive_only).stdout.strip()
    frames = {number: len(r["frames"]) for number, r in enumerate(load_truth("archive-only-node0")["recordings"])}
    verified = {row["recording_id"]: row["frame_count"] for row in rows("verify", archive_only)}
    assert verified == {number: frames[number] for number in verified}


def test_capacity_is_shown_and_grows(archive_only: Path) -> None:
    assert rows("capacity", archive_only) == [
        {"capacity_bytes": 1 << 20, "used_bytes": 2912, "entries": 10, "next_recording_id": 10}
    ]
    assert rows("capacity", archive_only, 1 << 21)[0]["capacity_bytes"] == 1 << 21
    assert (archive_only / "archive.catalog").stat().st_size == 1 << 21
    refused = run("capacity", archive_only, 1 << 20)
    assert refused.exit_code == 12
    assert "length=1048576 expected=2097152" in refused.stderr


def test_orphaned_segments_are_listed_and_then_deleted(archive_only: Path) -> None:
    shutil.copy(archive_only / "4-131072.rec", archive_only / "4-0.rec")
    shutil.copy(archive_only / "4-131072.rec", archive_only / "77-0.rec")
    before = content(archive_only)

    would = rows("delete-orphaned-segments", archive_only, "--dry-run")

    assert content(archive_only) == before
    assert [(row["name"], row["length_bytes"]) for row in would] == [("4-0.rec", 65536), ("77-0.rec", 65536)]
    assert rows("delete-orphaned-segments", archive_only) == would
    assert set(before) - set(content(archive_only)) == {"4-0.rec", "77-0.rec"}
    assert "no orphaned" in run("delete-orphaned-segments", archive_only).stdout.strip()


def test_a_real_directory_with_checksums_written_into_it_verifies_and_says_the_same(
    samples: Path, tmp_path: Path
) -> None:
    original = samples / "single-node" / "node0"
    member = Path(shutil.copytree(original, tmp_path / "node0"))

    written = rows("checksum", member)

    assert [(row["recording_id"], row["frame_count"], row["result"]) for row in written] == [
        (0, 2131, "written"),
        (1, 12, "written"),
        (2, 39, "written"),
    ]
    verified = rows("verify", member, "--checksum", "on")
    assert [(row["verdict"], row["checksummed"], row["frame_count"]) for row in verified] == [
        ("ok", True, 2131),
        ("ok", True, 12),
        ("ok", True, 39),
    ]
    assert run("dump", member, "--messages").stdout == run("dump", original, "--messages").stdout
    assert run("diff", original, member, "--exact").exit_code == 0
    assert [row["result"] for row in rows("checksum", member)] == ["has checksums"] * 3


def test_checksums_are_those_that_aeron_writes(samples: Path, tmp_path: Path) -> None:
    """Without its checksums, a directory of Aeron's gets the same bytes again from ours."""
    original = samples / "checksummed" / "node0" / "archive"
    stripped = Path(shutil.copytree(original, tmp_path / "archive"))
    for number, recording in enumerate(load_truth("checksummed-node0")["recordings"]):
        for frame in recording["frames"]:
            path = stripped / f"{number}-{frame['position'] // 65536 * 65536}.rec"
            with path.open("r+b") as segment:
                segment.seek(frame["position"] % 65536 + 12)
                if frame["type"] == 1:
                    segment.write(bytes(4))
    entries = [row["entry_offset"] for row in rows("describe", stripped, "--all")]
    with (stripped / "archive.catalog").open("r+b") as catalog:
        for offset in entries:
            catalog.seek(offset + 8)
            catalog.write(bytes(4))

    assert len(rows("checksum", stripped)) == 7

    after = content(stripped)
    after.pop("archive.catalog.redo")
    assert after == content(original)


def test_verify_marks_what_is_wrong_only_if_asked(samples: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(samples / "checksummed" / "node0" / "archive", tmp_path / "archive"))
    segment = directory / "0-65536.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)

    assert run("verify", directory).exit_code == 10
    assert states(directory)[0] == "VALID"
    assert run("verify", directory, "--mark-invalid").exit_code == 10
    assert states(directory) == {0: "INVALID"} | dict.fromkeys(range(1, 7), "VALID")


def test_nothing_is_read_from_a_catalog_entry_that_is_wrong_but_it_can_go(archive_only: Path) -> None:
    entry = rows("describe", archive_only, "--all")[2]
    catalog = archive_only / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    struct.pack_into("<i", data, entry["entry_offset"] + 96, 12345)
    catalog.write_bytes(data)

    for options in ((), ("--dry-run",)):
        refused = run("compact", archive_only, *options)
        assert refused.exit_code == 10
        assert "catalog entry is" in refused.stderr
    assert run("mark-invalid", archive_only, 2).exit_code == 0
    assert run("compact", archive_only).exit_code == 0
    assert 2 not in states(archive_only)


@pytest.mark.parametrize("command", CHANGING)
def test_a_directory_on_which_an_archive_of_ours_runs_is_not_changed(
    archive_only: Path, command: tuple[str, ...]
) -> None:
    with ArchiveMarkFile.open(archive_only, now_ms=time.time_ns() // 1_000_000):
        before = content(archive_only)

        result = run(command[0], archive_only, *command[1:])

        assert content(archive_only) == before
    assert (result.exit_code, result.stdout) == (12, "")
    assert "in use" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", CHANGING)
def test_a_directory_on_which_aeron_was_active_just_now_is_not_changed(
    archive_only: Path, command: tuple[str, ...]
) -> None:
    mark = archive_only / MARK_FILE_NAME
    data = bytearray(mark.read_bytes())
    struct.pack_into("<q", data, 16, time.time_ns() // 1_000_000)
    mark.write_bytes(data)
    before = content(archive_only)

    result = run(command[0], archive_only, *command[1:])

    assert content(archive_only) == before
    assert result.exit_code == 12
    assert "stop Aeron first" in result.stderr


async def test_what_the_commands_leave_an_archive_opens(archive_only: Path) -> None:
    for command in (("mark-invalid", "1"), ("delete-orphaned-segments",), ("compact",), ("capacity", "3145728")):
        assert run(command[0], archive_only, *command[1:]).exit_code == 0

    archive: Archive = await launch(OsFileSystem(), archive_only, config=small_config(checksums=False))

    ids = [descriptor.recording_id for descriptor in archive.descriptors()]
    assert ids == [0, 2, 4, 5, 6, 7, 9]
    await archive.aclose()
