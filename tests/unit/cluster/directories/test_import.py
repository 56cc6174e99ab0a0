"""What `trimaran archive import` finds, refuses and leaves behind. The sources are samples that a real Aeron left."""

from __future__ import annotations

import json
import shutil
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.cluster.cli.archive import app
from trimaran.cluster.directories import copying
from trimaran.cluster.runtime.files.node_state_file import parse_node_state
from trimaran.cluster.runtime.files.recording_log_file import read_recording_log

Change = Callable[[Path], None]


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return extract_sample("single-node", tmp_path / "aeron") / "node0"


def run(*arguments: str | Path) -> tuple[int, list[Any], str]:  # Any: JSON
    """Run the command; gives its exit status, its document and what it said besides."""
    result = CliRunner().invoke(app, ["import", *map(str, arguments), "-o", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return -1, [], str(result.exception)
    return result.exit_code, json.loads(result.stdout) if result.stdout else [], result.stderr


def write(name: str, offset: int, layout: str, value: int) -> Change:
    def change(directory: Path) -> None:
        with (directory / name).open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("<" + layout, value))

    return change


def find_frame(directory: Path, recording_id: int, template_id: int, index: int = 0) -> tuple[Path, int]:
    """Where the payload of a one-frame message begins."""
    for path in sorted((directory / "archive").glob(f"{recording_id}-*.rec"), key=lambda p: int(p.stem.split("-")[1])):
        data, offset = path.read_bytes(), 0
        while offset + 32 <= len(data) and (length := struct.unpack_from("<i", data, offset)[0]) > 0:
            is_it = data[offset + 5] == 0xC0 and struct.unpack_from("<H", data, offset + 34)[0] == template_id
            if is_it and (index := index - 1) < 0:
                return path, offset + 32
            offset += -(-length // 32) * 32
    raise AssertionError


def in_log(template_id: int, offset: int, layout: str, value: int, *, recording_id: int = 0) -> Change:
    def change(directory: Path) -> None:
        path, at = find_frame(directory, recording_id, template_id)
        write(str(path.relative_to(directory)), at + offset, layout, value)(directory)

    return change


def test_a_dry_run_says_everything_and_writes_nothing(single: Path, tmp_path: Path) -> None:
    target = tmp_path / "data" / "node-0"

    status, (document,), _ = run(single, "--to", target, "--dry-run")

    assert status == 0
    assert not target.parent.exists()
    assert document["is_written"] is False
    assert (document["stop_position"], document["replay_position"]) == (1193536, 578624)
    assert (document["session_count"], document["open_session_count"]) == (6, 2)
    assert document["settings"]["app_version"] == "1.2.3"


def test_both_directories_may_be_named(single: Path, tmp_path: Path) -> None:
    """A real deployment has them in different places."""
    shutil.move(single / "archive", tmp_path / "elsewhere")

    status, _, _ = run(f"{single / 'cluster'},{tmp_path / 'elsewhere'}", "--to", tmp_path / "node")

    assert status == 0
    assert (tmp_path / "node" / "archive" / "0-0.rec").is_file()


def test_every_frame_gets_a_checksum_and_nothing_else_changes(single: Path, tmp_path: Path) -> None:
    """Samples set A README §5: of data frames only, over payload and padding, in the place of the session id."""
    run(single, "--to", tmp_path / "node")

    for path in (single / "archive").glob("*.rec"):
        old, new = path.read_bytes(), (tmp_path / "node" / "archive" / path.name).read_bytes()
        offset = 0
        while offset + 32 <= len(old) and (length := struct.unpack_from("<i", old, offset)[0]) > 0:
            end = offset + -(-length // 32) * 32
            expected = bytearray(old[offset:end])
            if old[offset + 6] == 1:
                struct.pack_into("<I", expected, 12, zlib.crc32(old[offset + 32 : end]))
            assert new[offset:end] == expected
            offset = end
        assert not any(new[offset:])
        assert len(new) == len(old)
    entries = read_catalog(OsFileSystem(), tmp_path / "node" / "archive").entries
    assert [entry.problem for entry in entries] == [None] * 3
    assert all(entry.checksum for entry in entries)


def test_a_copy_as_it_is_has_the_same_bytes_in_every_segment(single: Path, tmp_path: Path) -> None:
    run(single, "--to", tmp_path / "node", "--as-is")

    for path in (single / "archive").glob("*.rec"):
        assert (tmp_path / "node" / "archive" / path.name).read_bytes() == path.read_bytes()


def test_terms_snapshots_and_the_vote_are_kept(tmp_path: Path) -> None:
    source = extract_sample("three-node-failover", tmp_path / "aeron") / "node2"

    run(source, "--to", tmp_path / "node")

    before, after = (read_recording_log(path / "cluster" / "recording.log") for path in (source, tmp_path / "node"))
    assert after.entries == before.entries
    candidate, _ = parse_node_state((tmp_path / "node" / "cluster" / "node-state.dat").read_bytes())
    assert candidate.candidate_term_id == 2  # it voted in 1 and followed in 2: it may vote in none of them again


def test_a_snapshot_that_does_not_check_out_is_left_out_and_told(tmp_path: Path) -> None:
    source = extract_sample("three-node-failover", tmp_path / "aeron") / "node0"
    in_log(105, 2, "H", 999, recording_id=4)(source)

    status, (document,), _ = run(source, "--to", tmp_path / "node")

    assert status == 0
    assert document["snapshot_positions"] == [86496]
    assert any(has_facts(note, "log_position=420192", "left out") for note in document["notes"])
    assert read_recording_log(tmp_path / "node" / "cluster" / "recording.log").newest_set()[0].log_position == 86496


def test_a_purged_log_without_a_snapshot_is_refused(single: Path, tmp_path: Path) -> None:
    write("archive/archive.catalog", 32 + 72, "q", 65536)(single)
    (single / "archive" / "0-0.rec").unlink()

    status, _, said = run(single, "--to", tmp_path / "node", "--no-snapshots")

    assert status == 10
    assert "position=65536" in said
    assert not (tmp_path / "node").exists()


def test_a_purged_log_goes_on_from_its_snapshot(single: Path, tmp_path: Path) -> None:
    write("archive/archive.catalog", 32 + 72, "q", 65536)(single)
    (single / "archive" / "0-0.rec").unlink()

    status, (document,), _ = run(single, "--to", tmp_path / "node")

    assert (status, document["start_position"], document["replay_position"]) == (0, 65536, 578624)
    assert document["open_session_count"] == 2
    assert not (tmp_path / "node" / "archive" / "0-0.rec").exists()


DAMAGE: dict[str, tuple[Change, str]] = {
    "frame of another term": (write("archive/0-65536.rec", 20, "i", 9), "position=65536"),
    "segment missing": (lambda d: (d / "archive" / "0-131072.rec").unlink(), "0-131072.rec"),
    "extension's message": (in_log(22, 4, "H", 500), "log position="),
    "entry of an unknown kind": (in_log(22, 2, "H", 99), "log position="),
    "action that ends elsewhere": (in_log(23, 16, "q", 64), "log_position=64 expected="),
    "term from elsewhere": (in_log(24, 32, "q", 64), "term_base_log_position=64, recording.log has 0"),
    "log of another stream": (write("archive/archive.catalog", 32 + 108, "i", 99), "stream_id=99 expected=100"),
    "recording invalid": (write("archive/archive.catalog", 32 + 4, "i", 0), "state=INVALID expected=VALID"),
    "entry with a wrong checksum": (write("archive/archive.catalog", 32 + 8, "i", 77), "wrong entry checksum"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_no_member_could_replay_is_refused_before_anything_is_written(
    single: Path, tmp_path: Path, name: str
) -> None:
    damage, expected = DAMAGE[name]
    damage(single)

    status, _, said = run(single, "--to", tmp_path / "node")

    assert status == 10, said
    assert expected in said
    assert {path.name for path in tmp_path.iterdir()} == {"aeron"}


REFUSED: dict[str, tuple[Change, str]] = {
    "no term": (lambda d: write_over(d / "cluster" / "recording.log", b""), "no leadership term"),
    "no recording log": (lambda d: (d / "cluster" / "recording.log").unlink(), "files=recording.log found=0"),
    "no catalog": (lambda d: (d / "archive" / "archive.catalog").unlink(), "there is no archive.catalog"),
    "node state cut": (lambda d: write_over(d / "cluster" / "node-state.dat", b"x"), "damaged node state"),
    "recording log damaged": (write("cluster/recording.log", 44, "i", 77), "type=77"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_member_is_refused(single: Path, tmp_path: Path, name: str) -> None:
    change, expected = REFUSED[name]
    change(single)

    status, _, said = run(single, "--to", tmp_path / "node")

    assert status != 0
    assert expected in said
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize("name", ["cluster/cluster-mark.dat", "archive/archive-mark.dat"])
def test_a_member_that_runs_is_refused(single: Path, tmp_path: Path, name: str) -> None:
    """Its mark file was renewed just now. Source: aeron.md §5.1."""
    write(name, 16, "q", time.time_ns() // 1_000_000)(single)

    status, _, said = run(single, "--to", tmp_path / "node")

    assert status != 0
    assert "in use" in said


def test_a_target_that_is_there_is_refused_and_an_empty_one_taken(single: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()

    status, _, said = run(single, "--to", tmp_path / "full")
    assert status != 0
    assert has_facts(said, "target", "already")

    assert run(single, "--to", tmp_path / "empty")[0] == 0
    assert (tmp_path / "empty" / "cluster" / "recording.log").is_file()


def test_targets_must_match_sources(single: Path, tmp_path: Path) -> None:
    status, _, said = run(single, single, "--to", tmp_path / "a")

    assert status != 0
    assert "sources=2 targets=1" in said


def test_too_little_space_is_refused(single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)

    status, _, said = run(single, "--to", tmp_path / "node")

    assert status != 0
    assert "needed=1376256 free=1000" in said
    assert not (tmp_path / "node").exists()


def test_an_interrupted_import_leaves_nothing_that_looks_complete(
    single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed before its last step; the next one begins again."""

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(copying, "_check", die)
        patched.setattr("shutil.rmtree", lambda path: None)  # a kill cleans nothing up
        CliRunner().invoke(app, ["import", str(single), "--to", str(tmp_path / "node")])
    left = {path.name for path in tmp_path.iterdir()} - {"aeron"}

    assert left == {".node.importing"}
    assert run(single, "--to", tmp_path / "node")[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"aeron", "node"}


def test_members_whose_histories_part_are_of_one_cluster(tmp_path: Path) -> None:
    """One was cut off in term 1 and has no term 2: after its end there is nothing to compare."""
    nodes = extract_sample("three-node-failover", tmp_path / "aeron")
    old = nodes / "node1"
    log = bytearray((old / "cluster" / "recording.log").read_bytes())
    (old / "cluster" / "recording.log").write_bytes(log[: 4 * 64])
    write("archive/archive.catalog", 32 + 80, "q", 318848)(old)

    status, documents, said = run(nodes / "node0", old, "--to", tmp_path / "a", "--to", tmp_path / "b")

    assert status == 0, said
    assert [document["stop_position"] for document in documents] == [436416, 318848]


def test_members_with_different_logs_are_refused(tmp_path: Path) -> None:
    nodes = extract_sample("three-node-failover", tmp_path / "aeron")
    path, at = find_frame(nodes / "node1", 0, 21)
    write(str(path.relative_to(nodes)), at + 16, "q", 4711)(nodes)

    status, _, said = run(nodes / "node0", nodes / "node1", "--to", tmp_path / "a", "--to", tmp_path / "b")

    assert status == 10
    assert f"position={at - 32}," in said
    assert {path.name for path in tmp_path.iterdir()} == {"aeron"}


def test_members_of_different_clusters_are_refused(single: Path, tmp_path: Path) -> None:
    other = extract_sample("checksummed", tmp_path / "aeron") / "node0"

    status, _, said = run(single, other, "--to", tmp_path / "a", "--to", tmp_path / "b")

    assert status == 10
    assert has_facts(said, "time_unit=MILLIS", "time_unit=NANOS")


def test_membership_changes_of_old_logs_pass(single: Path, tmp_path: Path) -> None:
    """Aeron before 1.41 logged them: here one in the place of a session's close, of a block no longer than its own."""
    path, at = find_frame(single, 0, 21)
    block = struct.pack("<HHHH", 48, 25, 111, 0) + struct.pack("<qqqiiii", 0, 0, 5, 0, 3, 0, 1) + bytes(8)
    write_bytes(path, at, block.ljust(64, b"\0"))

    status, (document,), said = run(single, "--to", tmp_path / "node", "--no-snapshots")

    assert status == 0, said
    assert document["session_count"] == 5


def write_over(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def write_bytes(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
