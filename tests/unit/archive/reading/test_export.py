"""`trimaran archive export`: whole files whose rows are those of the truth, kept where they are final."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, ipc, parquet
from typer.testing import CliRunner, Result

from tests.places import ROOT
from tests.unit.archive.streams import extract_sample, load_truth
from tests.waiting import patient
from trimaran import archive
from trimaran.cluster.cli.archive import app


@pytest.fixture(scope="module")
def checksummed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("checksummed", tmp_path_factory.mktemp("samples")) / "node0" / "archive"


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("torn", tmp_path_factory.mktemp("samples")) / "node0" / "archive"


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def read_rows(target: Path) -> list[dict[str, Any]]:
    """All rows of an export of any format, by recording and position; times as numbers, payloads as hex."""
    rows: list[dict[str, Any]] = []
    for path in target.iterdir():
        if path.suffix == ".jsonl":
            rows += map(json.loads, path.read_text().splitlines())
            continue
        if path.suffix not in (".parquet", ".arrow"):
            continue
        table = parquet.read_table(path) if path.suffix == ".parquet" else ipc.open_file(path).read_all()
        index = table.column_names.index("timestamp")
        table = table.set_column(index, "timestamp", table.column("timestamp").cast(pa.int64()))
        rows += ({**row, "payload": row["payload"].hex()} for row in table.to_pylist())
    return sorted(rows, key=lambda row: (row["recording_id"], row["position"]))


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "jsonl"])
def test_frames_of_every_format_are_those_of_the_truth(checksummed: Path, tmp_path: Path, file_format: str) -> None:
    result = export(checksummed, "--to", tmp_path / "out", "--format", file_format, "-o", "jsonl")

    assert result.exit_code == 0, result.output
    expected = [
        {"recording_id": recording["recording_id"], **frame}
        for recording in load_truth("checksummed-node0")["recordings"]
        for frame in recording["frames"]
    ]
    rows = read_rows(tmp_path / "out")
    assert [{name: row[name] for name in expected[0]} for row in rows] == expected
    assert sum(row["rows"] for row in lines(result)) == len(expected)


def test_messages_are_the_same_in_every_format_and_count_as_in_the_truth(checksummed: Path, tmp_path: Path) -> None:
    for file_format in ("parquet", "arrow", "jsonl"):
        target = tmp_path / file_format
        # As milliseconds, because Parquet cuts nanoseconds to microseconds.
        words = ("--to", target, "--format", file_format, "--messages", "--time-unit", "ms")
        assert export(checksummed, *words).exit_code == 0

    rows = read_rows(tmp_path / "jsonl")
    messages = [m for recording in load_truth("checksummed-node0")["recordings"] for m in recording["messages"]]
    assert rows == read_rows(tmp_path / "parquet") == read_rows(tmp_path / "arrow")
    assert Counter(row["template_id"] for row in rows) == Counter(m.get("template_id") for m in messages)
    assert sum(row["frame_length"] - 32 for row in rows) == sum(m["length"] for m in messages)


def test_a_directory_of_parquet_is_one_data_set(checksummed: Path, tmp_path: Path) -> None:
    export(checksummed, "--to", tmp_path, "--columns", "recording_id,position,timestamp")

    table = dataset.dataset(tmp_path).to_table()

    assert table.column_names == ["recording_id", "position", "timestamp"]
    assert table.num_rows == archive.frames(checksummed).read_all().num_rows
    # Spark reads no nanoseconds.
    assert str(table.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"


def test_full_segments_are_kept_and_the_tail_is_written_anew(checksummed: Path, tmp_path: Path) -> None:
    export(checksummed, "--to", tmp_path)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}

    result = export(checksummed, "--to", tmp_path, "--recording-id", 0, "-o", "jsonl")

    assert [row["state"] for row in lines(result)] == ["kept"] * 4 + ["tail"]
    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"0-262144.tail.parquet"}
    assert before.keys() == after.keys()


def test_a_tail_gives_way_to_its_full_segment(torn: Path, tmp_path: Path) -> None:
    """The next segment's file is what says that one is full."""
    growing, target = tmp_path / "growing", tmp_path / "out"
    shutil.copytree(torn, growing)
    later = sorted(growing.glob("0-*.rec"), key=lambda path: int(path.stem[2:]))[2:]
    kept = [(path, path.read_bytes()) for path in later]
    for path in later:
        path.unlink()
    export(growing, "--to", target)
    assert sorted(path.name for path in target.iterdir()) == ["0-0.parquet", "0-65536.tail.parquet", "_export.json"]

    for path, data in kept:
        path.write_bytes(data)
    result = export(growing, "--to", target)

    assert result.exit_code == 0, result.output
    assert not (target / "0-65536.tail.parquet").exists()
    assert len(read_rows(target)) == len(load_truth("torn-node0")["recordings"][0]["frames"])


def test_another_export_or_other_files_are_not_overwritten(checksummed: Path, torn: Path, tmp_path: Path) -> None:
    target, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("all of it")
    export(checksummed, "--to", target)

    for arguments, reason in (
        ((checksummed, "--to", target, "--messages"), "holds another export: messages=False asked=True"),
        ((checksummed, "--to", target, "--format", "arrow"), "holds another export: format=parquet asked=arrow"),
        ((torn, "--to", target, "--time-unit", "ns"), "holds the export of another archive: recording_id=0"),
        ((checksummed, "--to", other), "not an export"),
        ((checksummed, "--to", other, "--overwrite"), "holds other files, such as thesis.txt"),
    ):
        result = export(*arguments)
        assert (result.exit_code, reason in result.stderr) == (12, True), result.output
        assert len(result.stderr.splitlines()) == 1

    assert export(torn, "--to", target, "--format", "jsonl", "--overwrite").exit_code == 0
    assert {path.suffix for path in target.iterdir()} == {".jsonl", ".json"}
    assert (other / "thesis.txt").read_text() == "all of it"


def test_what_lies_before_damage_is_written_under_a_name_that_says_so(checksummed: Path, tmp_path: Path) -> None:
    damaged, target = tmp_path / "damaged", tmp_path / "out"
    shutil.copytree(checksummed, damaged)
    segment = damaged / "0-65536.rec"
    sound = segment.read_bytes()
    segment.write_bytes(sound[:30_000] + bytes([sound[30_000] ^ 1]) + sound[30_001:])
    for file_format in ("jsonl", "parquet"):
        result = export(damaged, "--to", target, "--format", file_format, "--overwrite", "-o", "jsonl")

        assert result.exit_code == 10
        (row,) = [row for row in lines(result) if row["remarks"]]
        assert (row["file"], row["state"]) == (f"0-65536.damaged.{file_format}", "damaged")
        assert "wrong checksum" in row["remarks"]
        assert (target / f"0-131072.{file_format}").exists()

    segment.write_bytes(sound)
    assert export(damaged, "--to", target).exit_code == 0
    assert not (target / "0-65536.damaged.parquet").exists()
    assert len(read_rows(target)) == archive.frames(checksummed).read_all().num_rows


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_bound_leaves_out_what_is_not_committed(torn: Path, tmp_path: Path, file_format: str) -> None:
    positions = [frame["position"] for frame in load_truth("torn-node0")["recordings"][0]["frames"]]
    bound = positions[250]

    result = export(torn, "--to", tmp_path, "--recording-id", 0, "--bound-position", bound, "--format", file_format)

    assert result.exit_code == 0, result.output
    assert [row["position"] for row in read_rows(tmp_path)] == positions[:250]
    assert (tmp_path / f"0-131072.tail.{file_format}").exists()
    assert "needs --recording-id" in export(torn, "--to", tmp_path, "--bound-position", 64).stderr


def test_a_write_that_fails_leaves_no_file_that_looks_whole(
    checksummed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("trimaran.archive.reading.export.publish", refuse)
    result = export(checksummed, "--to", tmp_path, "--format", "jsonl")

    assert (result.exit_code, result.stderr) == (1, "trimaran: export stopped: no space\n")
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("._export")] == []


def python(*arguments: object, without: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.modules[{without!r}] = None\nfrom trimaran.cluster.cli.archive import app; app()"
    return subprocess.run(
        [sys.executable, "-c", program, "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=patient(60),
        check=False,
    )


def test_without_pyarrow_lines_are_written_and_parquet_says_what_to_install(checksummed: Path, tmp_path: Path) -> None:
    parquet_done = python(checksummed, "--to", tmp_path / "parquet", without="pyarrow")
    lines_done = python(checksummed, "--to", tmp_path / "jsonl", "--format", "jsonl", without="pyarrow")

    assert parquet_done.returncode == 2
    assert "pip install '.[arrow]'" in parquet_done.stderr
    assert not (tmp_path / "parquet").exists()
    assert lines_done.returncode == 0, lines_done.stderr
    assert len(read_rows(tmp_path / "jsonl")) == archive.frames(checksummed).read_all().num_rows


@pytest.fixture
def following(torn: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, list[tuple[Path, bytes]]]]:
    """An export that follows an archive with two segments, and the segments that are to come."""
    growing = tmp_path / "growing"
    shutil.copytree(torn, growing)
    later = sorted(growing.glob("0-*.rec"), key=lambda path: int(path.stem[2:]))[2:]
    kept = [(path, path.read_bytes()) for path in later]
    for path in later:
        path.unlink()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "trimaran",
            "archive",
            "export",
            str(growing),
            "--to",
            str(tmp_path / "out"),
            "--follow",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process, tmp_path / "out", kept
    finally:
        process.kill()
        process.communicate()


def test_follow_exports_each_segment_once_it_is_full(
    following: tuple[subprocess.Popen[str], Path, list[tuple[Path, bytes]]],
) -> None:
    process, target, later = following
    assert process.stdout is not None
    files = [json.loads(process.stdout.readline())["file"] for _ in range(2)]
    assert files == ["0-0.parquet", "0-65536.tail.parquet"]

    for path, data in later[:3]:
        path.write_bytes(data)
        files.append(json.loads(process.stdout.readline())["file"])
    process.send_signal(signal.SIGINT)

    assert process.wait(patient(20)) == 0
    assert files[2:] == ["0-65536.parquet", "0-131072.parquet", "0-196608.parquet"]
    assert sorted(path.name for path in target.glob("0-*")) == sorted({*files} - {"0-65536.tail.parquet"})


def test_follow_ends_with_the_status_of_damage_that_it_met(
    following: tuple[subprocess.Popen[str], Path, list[tuple[Path, bytes]]],
) -> None:
    process, _, later = following
    assert process.stdout is not None
    for _ in range(2):
        process.stdout.readline()

    for path, data in later[:2]:
        path.write_bytes(b"\xee" * 32 + data[32:])
    rows = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)

    assert process.wait(patient(20)) == 10
    assert [row["state"] for row in rows] == ["written", "damaged"]
