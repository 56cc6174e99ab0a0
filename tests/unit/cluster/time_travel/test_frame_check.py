"""Frames checked many at once, with numpy, are those that the plain reader finds, and so is what is wrong with them."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from trimaran.archive import ArchiveError
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from trimaran.cluster.time_travel import MemberLog, replay_service

from .summed_log import SumService, make_summed_log


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several blocks."""
    found = tmp_path_factory.mktemp("log") / "node"
    asyncio.run(make_summed_log(found, 20_000))
    return found


def without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("trimaran.archive.reading.vector"):
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


def read_all(log: MemberLog, limit_bytes: int) -> bytes:
    parts, position, end = list[bytes](), log.log.start_position, log.recorded_position
    while position < end:
        parts.append(log.read(log.log.recording_id, position, limit_bytes, stop_position=end))
        position += len(parts[-1])
    log.close_files()
    return b"".join(parts)


def test_the_same_bytes_are_read_without_numpy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = {limit: read_all(MemberLog.open(directory), limit) for limit in (1 << 16, 1 << 18, 1 << 20)}
    without_numpy(monkeypatch)
    plain = read_all(MemberLog.open(directory), 1 << 20)

    assert len(plain) > 2 << 20
    assert set(checked.values()) == {plain}


def test_the_state_is_the_same_without_numpy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sums() -> dict[int, int]:
        service = replay_service(directory, SumService, snapshot="none").service
        assert isinstance(service, SumService)
        assert service.message_count == 20_000
        return service.sums

    with_numpy = sums()
    without_numpy(monkeypatch)

    assert sums() == with_numpy


@pytest.mark.parametrize("has_numpy", [True, False])
def test_damage_is_found_in_the_middle_of_a_block(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_numpy: bool
) -> None:
    shutil.copytree(directory, tmp_path / "node")
    path = tmp_path / "node" / "archive" / "0-0.rec"
    data = bytearray(path.read_bytes())
    position = 1_000_000 // 128 * 128
    begin = data.index(b"\x80" + bytes(3), position) // 32 * 32
    data[begin + 70] ^= 1
    path.write_bytes(data)
    if not has_numpy:
        without_numpy(monkeypatch)

    with pytest.raises(ArchiveError) as caught:
        replay_service(tmp_path / "node", SumService, snapshot="none")

    assert caught.value.position is not None
    assert caught.value.position <= begin + 70 < caught.value.position + 128


def test_a_log_that_is_purged_meanwhile_says_so(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "node")
    archive = tmp_path / "node" / "archive"
    log = MemberLog.open(tmp_path / "node")
    end = log.recorded_position
    entries = read_catalog(OsFileSystem(), archive).entries
    found = [entry.descriptor for entry in entries if entry.descriptor is not None]
    purged = [dataclasses.replace(each, start_position=end) if each.recording_id == 0 else each for each in found]
    (archive / CATALOG_FILE_NAME).write_bytes(encode_catalog(purged, next_recording_id=len(found)))
    (archive / "0-0.rec").unlink()

    with pytest.raises(ArchiveError, match=rf"purged.*start_position={end}"):
        replay_service(log, SumService, snapshot="none")
