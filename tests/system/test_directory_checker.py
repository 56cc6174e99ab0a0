"""The independent checker itself: it agrees with directories that a real Aeron left, and sees what is wrong."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.directory_checker import DirectoryFault, check_directory
from tests.unit.archive.streams import extract_sample


@pytest.mark.parametrize(
    ("scenario", "member"),
    [
        ("single-node", 0),
        ("checksummed", 0),
        ("three-node-failover", 0),
        ("three-node-failover", 1),
        ("three-node-failover", 2),
    ],
)
def test_directories_of_a_real_aeron_keep_all_rules(tmp_path: Path, scenario: str, member: int) -> None:
    """Samples set A: recordings, recording logs, node states and mark files as Aeron 1.52.2 left them."""
    extract_sample(scenario, tmp_path)

    report = check_directory(tmp_path / scenario / f"node{member}", by_aeron=True)

    assert report.log.end_position == report.log.stop_position
    assert report.terms


def _change(name: str, offset: int, data: bytes) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with (directory / name).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return change


def _append(name: str, data: bytes) -> Callable[[Path], None]:
    def append(directory: Path) -> None:
        with (directory / name).open("ab") as file:
            file.write(data)

    return append


_DAMAGE: dict[str, Callable[[Path], None]] = {
    "frame checksum": _change("archive/0-0.rec", 32 + 20, b"\xee"),
    "frame term offset": _change("archive/0-0.rec", 8, b"\x20"),
    "frame term id": _change("archive/0-0.rec", 20, b"\x09"),
    "frame flags": _change("archive/0-0.rec", 5, b"\x40"),
    "frame length": _change("archive/0-0.rec", 0, struct.pack("<i", 7)),
    "bytes after the stop position": _change("archive/0-131072.rec", 65000, b"\x01"),
    "a segment missing": lambda directory: (directory / "archive/0-65536.rec").unlink(),
    "a segment cut": lambda directory: _truncate(directory / "archive/0-65536.rec", 65504),
    "a segment left over": lambda directory: _copy(directory / "archive/0-65536.rec", "0-262144.rec"),
    "a working file left over": lambda directory: _copy(directory / "archive/0-65536.rec", "0-262144.rec.zero"),
    "catalog checksum": _change("archive/archive.catalog", 32 + 8, b"\x01\x02\x03\x04"),
    "no stop position": _change("archive/archive.catalog", 32 + 80, struct.pack("<q", -1)),
    "next recording id": _change("archive/archive.catalog", 8, struct.pack("<q", 0)),
    "recording log of another term base": _change("cluster/recording.log", 16, struct.pack("<q", 64)),
    "recording log with a half entry": _append("cluster/recording.log", bytes(40)),
    "candidate term below the last term": _change("cluster/node-state.dat", 24, struct.pack("<q", -2)),
    "node state cut": lambda directory: _truncate(directory / "cluster/node-state.dat", 4096),
    "activity in the mark file": _change("cluster/cluster-mark.dat", 16, struct.pack("<q", 1)),
}


def _truncate(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)


def _copy(path: Path, name: str) -> None:
    shutil.copyfile(path, path.with_name(name))


@pytest.mark.slow
async def test_every_damage_to_a_directory_of_ours_is_seen(data_dir: Path) -> None:
    """Without this a checker that checks nothing would pass every other test."""
    async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester() as requester:
        await requester.request(500)
    healthy = cluster.directory_of(0)
    unseen = []

    for name, damage in _DAMAGE.items():
        directory = data_dir / "damaged"
        shutil.copytree(healthy, directory)
        damage(directory)
        try:
            check_directory(directory)
            unseen.append(name)
        except DirectoryFault:
            pass
        shutil.rmtree(directory)

    assert not unseen
    assert check_directory(healthy).log.end_position > 2 * 65536
