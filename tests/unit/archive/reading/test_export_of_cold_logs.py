"""Readers of a log that has left the disk: whole, from where it is, and without a change in the directory of it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset, parquet
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import TERM_LENGTH, make_member_of_samples
from tests.unit.cluster.runtime.snapshots.cold_rig import CLUSTER_ID, END, NEEDED, member
from trimaran import archive
from trimaran.archive.cold.cache import CACHE_DIRECTORY_NAME, cached_path
from trimaran.archive.cold.fetched import FetchedSegments
from trimaran.archive.cold.record import read_record
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.stored.cluster_store import ClusterStore, StoreError
from trimaran.cluster.cli.archive import app


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments), "-o", "jsonl"])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def positions_of(place: Path | str, **options: Any) -> list[int]:
    found: list[int] = archive.frames(place, columns=["position"], **options).read_all()["position"].to_pylist()
    return found


def exported(target: Path) -> list[int]:
    files = sorted(target.glob("*.parquet"), key=lambda file: int(file.name.split(".")[0].split("-")[1]))
    return [p for file in files for p in parquet.read_table(file, columns=["position"])["position"].to_pylist()]


def state_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file, with what changes when it is written or used."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(directory.rglob("*"))}


def make_cold(directory: Path, url: str, *, purged_to: int = NEEDED, reads: bool = False) -> None:
    """Let a member ship its log to a store, and replay it if its cache is to be full."""

    async def ship() -> None:
        async with member(directory, url) as rig:
            await rig.purge(purged_to)
            if reads:
                await rig.replay()

    asyncio.run(ship())


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def cold(tmp_path: Path, url: str) -> Path:
    make_cold(tmp_path / "archive", url)
    return tmp_path / "archive"


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_an_export_has_what_is_in_cold_storage(cold: Path, tmp_path: Path, file_format: str) -> None:
    """Segments in cold storage were left out, with exit status 0."""
    result = export(cold, "--to", tmp_path / "out", "--format", file_format)

    assert result.exit_code == 0, result.output
    assert sum(row["rows"] for row in lines(result)) == len(positions_of(cold)) > 100
    assert [row["start_position"] for row in lines(result)] == list(range(0, END, TERM_LENGTH))


def test_an_export_that_paused_while_segments_left_the_disk_has_no_hole(tmp_path: Path, url: str) -> None:
    async def ship(position: int) -> None:
        async with member(tmp_path / "archive", url) as rig:
            await rig.purge(position)

    asyncio.run(ship(TERM_LENGTH))
    target = tmp_path / "out"
    before = export(tmp_path / "archive", "--to", target)
    for file in sorted(target.glob("*.parquet"))[2:]:
        file.unlink()
    asyncio.run(ship(NEEDED))

    after = export(tmp_path / "archive", "--to", target)

    assert before.exit_code == after.exit_code == 0
    assert {row["state"] for row in lines(after)} == {"kept", "written"}
    assert exported(target) == positions_of(tmp_path / "archive")


def test_readers_of_cold_storage_change_nothing_in_the_directory(tmp_path: Path, url: str) -> None:
    """They filled the member's cache, and pushed out what the member had used last."""
    make_cold(tmp_path / "archive", url, reads=True)
    before = state_of(tmp_path / "archive")

    count = len(positions_of(tmp_path / "archive"))
    assert export(tmp_path / "archive", "--to", tmp_path / "out").exit_code == 0

    assert count > 100
    assert state_of(tmp_path / "archive") == before
    assert any(CACHE_DIRECTORY_NAME in name for name in before)


def test_a_reader_uses_what_the_members_cache_has(tmp_path: Path, url: str) -> None:
    make_cold(tmp_path / "archive", url, reads=True)
    record = read_record(tmp_path / "archive")
    assert record is not None
    cached = [segment for segment in record.segments if cached_path(tmp_path / "archive", segment).exists()]
    store = ObjectStore(f"{url}/{CLUSTER_ID}")
    assert len(cached) == 2
    for segment in cached:
        store.remove(segment.name)

    assert len(positions_of(tmp_path / "archive", recording_id=0, start_position=cached[0].base_position)) > 10


def test_fetched_segments_are_kept_up_to_a_length_and_leave_no_file(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read_record(cold)
    assert record is not None
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places))
    store, first, second = ClusterStore(record.url), *record.segments[:2]
    fetched = FetchedSegments(limit_bytes=first.length)
    objects = ObjectStore(record.url)

    handles = [fetched.open_segment(store, segment) for segment in (first, second, second)]
    objects.remove(second.name)
    handles.append(fetched.open_segment(store, second))
    objects.remove(first.name)

    with pytest.raises(StoreError, match="missing"):
        fetched.open_segment(store, first)
    assert {os.fstat(handle).st_size for handle in handles} == {TERM_LENGTH}
    assert os.pread(handles[0], 64, 0) != os.pread(handles[1], 64, 0) == os.pread(handles[3], 64, 0)
    assert list(places.iterdir()) == []
    for handle in handles:
        os.close(handle)


def test_what_was_purged_before_it_was_exported_is_a_row_and_a_status(tmp_path: Path, url: str) -> None:
    """Planted: two segments are deleted after the first one was exported; the log goes on behind them."""

    async def purge(position: int) -> None:
        async with member(tmp_path / "archive", url) as rig:
            await rig.archive.purge_segments(0, position)

    asyncio.run(purge(0))
    target = tmp_path / "out"
    export(tmp_path / "archive", "--to", target)
    for file in target.glob("*.parquet"):
        if file.name != "0-0.parquet":
            file.unlink()
    asyncio.run(purge(3 * TERM_LENGTH))

    for _ in range(2):
        result = export(tmp_path / "archive", "--to", target)

        assert result.exit_code == 10
        (row,) = [row for row in lines(result) if row["state"] == "purged"]
        assert row["start_position"] == TERM_LENGTH
        assert f"positions {TERM_LENGTH} to {3 * TERM_LENGTH} were purged" in row["remarks"]
    assert export(tmp_path / "archive", "--to", tmp_path / "later").exit_code == 0


@pytest.mark.parametrize("name", ["s3://bucket/out", "memory://out", "gs://bucket"])
def test_a_target_in_a_store_is_refused_and_makes_no_folder(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It made a local folder named `s3:`, and a traceback."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())

    result = export(cold, "--to", name)

    assert result.exit_code == 2
    assert f"--to {name}: " in result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_url_is_a_directory_of_this_machine(cold: Path, tmp_path: Path) -> None:
    assert export(f"file://{cold}", "--to", f"file://{tmp_path}/out").exit_code == 0
    assert exported(tmp_path / "out") == positions_of(cold)


def test_each_group_has_an_export_in_a_folder_that_names_it(tmp_path: Path) -> None:
    place = make_member_of_samples(tmp_path)

    result = export(place, "--to", tmp_path / "out")

    assert result.exit_code == 0, result.output
    assert {row["group"] for row in lines(result)} == {0, 1}
    files = dataset.dataset(tmp_path / "out", partitioning="hive").to_table(columns=["group", "position"])
    frames = archive.frames(place, columns=["group", "position"]).read_all()
    rows = [sorted((row["group"], row["position"]) for row in table.to_pylist()) for table in (files, frames)]
    assert rows[0] == rows[1]
    refused = export(place, "--to", tmp_path / "out", "--recording-id", 0, "--bound-position", 64)
    assert refused.exit_code == 2
    assert "group-0" in refused.stderr
