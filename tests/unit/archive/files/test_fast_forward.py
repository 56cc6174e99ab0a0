"""`verify` finds the same whether right frames are skipped a block at a time or not."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.fast_forward import skip_valid_frames
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.reading.verify import RecordingVerdict, verify_recording


def verify(directory: Path, **options: bool | None) -> list[RecordingVerdict]:
    entries = read_catalog(OsFileSystem(), directory).entries
    return [verify_recording(OsFileSystem(), directory, entry, **options) for entry in entries]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every sample, the torn variants, and copies with a wrong byte somewhere."""
    target = tmp_path_factory.mktemp("samples")
    for name in ("single-node", "checksummed", "torn", "archive-only", "torn-variants"):
        extract_sample(name, target)
    found = sorted(path.parent for path in target.rglob("archive.catalog"))
    pick = random.Random(3)
    for index in range(12):
        damaged = target / f"damaged-{index}"
        shutil.copytree(target / "checksummed" / "node0" / "archive", damaged)
        segment = pick.choice(sorted(damaged.glob("*.rec")))
        data = bytearray(segment.read_bytes())
        data[pick.randrange(50_000)] ^= 1 << pick.randrange(8)
        segment.write_bytes(data)
        found.append(damaged)
    return found


@pytest.mark.parametrize("is_fault_tolerant", [False, True])
def test_the_verdict_is_the_same_without_numpy(
    archives: list[Path], is_fault_tolerant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipping = [verify(path, is_fault_tolerant=is_fault_tolerant) for path in archives]

    monkeypatch.setitem(sys.modules, "trimaran.archive.files.vector.scan", None)
    plain = [verify(path, is_fault_tolerant=is_fault_tolerant) for path in archives]

    assert skipping == plain
    assert any(not verdict.is_ok for verdicts in plain for verdict in verdicts)
    assert sum(verdict.frame_count for verdicts in plain for verdict in verdicts) > 10_000


def test_all_but_the_last_right_frame_are_skipped(archives: list[Path]) -> None:
    (directory,) = [path for path in archives if path.parts[-3:-1] == ("single-node", "node0")]
    descriptor = read_catalog(OsFileSystem(), directory).entries[0].descriptor
    assert descriptor is not None
    frames = list(FrameReader(directory, descriptor))
    told: list[int] = []

    skipped = skip_valid_frames(
        OsFileSystem(), directory, descriptor, start_position=0, checksummed=False, on_progress=told.append
    )

    assert skipped == (len(frames) - 1, frames[-1].position)
    assert told == sorted(told)
    assert told[-1] == frames[-1].position


def test_a_disk_in_memory_is_read_frame_by_frame(archives: list[Path]) -> None:
    descriptor = read_catalog(OsFileSystem(), archives[0]).entries[0].descriptor
    assert descriptor is not None

    assert skip_valid_frames(MemoryFileSystem(), archives[0], descriptor, start_position=0, checksummed=True) == (0, 0)
