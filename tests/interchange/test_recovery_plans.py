"""`recovery-plan` on every kind of directory: what it says of a start and of Aeron is what comes of it.

The table of docs/operations.md lists these kinds. The directory of the witness is one that a member of ours left.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.live_marks import lay_out, renew
from tests.interchange.samples import Ended, run
from tests.places import ROOT
from tests.unit.archive.streams import launch
from trimaran.archive.cold.record import ColdRecord
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.mark_file import ArchiveMarkFile
from trimaran.archive.format.layout import COLD_RECORD_NAME
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import StoredSegment
from trimaran.cluster.directories.kind import DirectoryKind
from trimaran.cluster.runtime.files.mark_file import ClusterMarkFile
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent

PAGE = ROOT / "docs" / "operations.md"
SINGLE = "single-node/node0"
SEGMENT = 65_536
COLD_END = 524_288
"""Below it no start needs the log of the sample: its snapshot is of position 578,624."""


def plan_of(directory: Path) -> tuple[Ended, dict[str, Any]]:
    ended = run("recovery-plan", directory, "-o", "json")
    return ended, json.loads(ended.stdout)


def said_of(directory: Path) -> list[str]:
    """The first two lines: what comes of a start, and of Aeron."""
    return run("recovery-plan", directory).stdout.splitlines()[:2]


@pytest.fixture
def aeron(samples: Path, tmp_path: Path) -> Path:
    """What an Aeron 1.52 left."""
    return Path(shutil.copytree(samples / SINGLE, tmp_path / "aeron"))


@pytest.fixture
def ours(aeron: Path, tmp_path: Path) -> Path:
    """A member of ours that has run on an import."""
    assert run("archive", "import", aeron, "--to", tmp_path / "ours").exit_code == 0
    ClusterMarkFile.open(tmp_path / "ours" / "cluster", member_id=0, now_ms=1, boot_id="b").close()
    ArchiveMarkFile.open(tmp_path / "ours" / "archive", now_ms=1).close()
    return tmp_path / "ours"


def test_a_member_of_ours(ours: Path) -> None:
    _, plan = plan_of(ours)

    assert (plan["directory_kind"], plan["aeron_obstacle"], plan["aeron_since"]) == (DirectoryKind.MEMBER, None, "1.47")
    can_start, aeron = said_of(ours)
    assert can_start == "can start"
    assert "from Aeron 1.47 on; for an older one" in aeron
    assert "`trimaran archive export-aeron`" in aeron


def test_the_export_of_a_member_opens_for_every_aeron(ours: Path, tmp_path: Path) -> None:
    assert run("archive", "export-aeron", ours, tmp_path / "out").exit_code == 0

    ended, plan = plan_of(tmp_path / "out")

    assert (ended.exit_code, plan["aeron_obstacle"], plan["aeron_since"]) == (0, None, None)
    assert said_of(tmp_path / "out") == ["can start", "an Aeron member can go on with it"]


async def move_to_cold_storage(directory: Path, store: Path) -> None:
    """Do with a log what cold storage does: objects, the record of the directory, no segments. The member is killed."""
    archive, url = directory / "archive", f"file://{store}/c1"
    segments = []
    for base in range(0, COLD_END, SEGMENT):
        content = (archive / f"0-{base}.rec").read_bytes()
        segments.append(
            StoredSegment(base_position=base, start_position=base, length=SEGMENT, sha256=sha256(content).hexdigest())
        )
        ClusterStore(url).put_segment(archive / f"0-{base}.rec", segments[-1], is_named=False)
    running = await launch(OsFileSystem(), archive)
    assert await running.purge_segments(0, COLD_END) == len(segments)
    await running.extend_recording(0, session_id=1, preallocate=False)
    await running.abandon()
    record = ColdRecord(url=url, recording_id=0, cache_bytes=4 * SEGMENT, segments=segments)
    (archive / COLD_RECORD_NAME).write_bytes(record.seal())


def test_a_member_with_cold_storage(ours: Path, tmp_path: Path) -> None:
    """It was told to restore the directory from a copy, or to remove it; and the export was refused with that text."""
    asyncio.run(move_to_cold_storage(ours, tmp_path / "store"))

    ended, plan = plan_of(ours)
    exported = run("archive", "export-aeron", ours, tmp_path / "out", "-o", "json")

    assert (ended.exit_code, plan["problems"], plan["log_start_position"]) == (0, [], COLD_END)
    (note,) = plan["notes"]
    assert f"position={COLD_END} is in cold storage" in note
    assert exported.exit_code == 0, exported.output
    (document,) = json.loads(exported.stdout)
    assert (document["is_written"], document["start_position"]) == (True, 578_624)
    assert any("before it" in note for note in document["notes"])
    assert plan_of(tmp_path / "out")[0].exit_code == 0
    assert run("archive", "verify", ours).exit_code == 0


def test_a_witness(tmp_path: Path) -> None:
    """An Aeron member's service ends at its start on such a directory."""
    with tarfile.open(ROOT / "tests" / "data" / "directories" / "witness.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    directory = tmp_path / "witness" / "node3"

    ended, plan = plan_of(directory)

    assert (ended.exit_code, plan["directory_kind"]) == (0, DirectoryKind.WITNESS)
    assert [snapshot["service_id"] for snapshot in plan["snapshots"]] == [-1]
    assert plan["replay_position"] == plan["snapshots"][0]["log_position"]
    assert "no state of a service" in plan["aeron_obstacle"]
    can_start, aeron = said_of(directory)
    assert can_start == "can start"
    assert "cannot go on with it: a witness wrote the directory" in aeron


def test_an_aeron_member(aeron: Path) -> None:
    ended, plan = plan_of(aeron)

    assert (ended.exit_code, plan["directory_kind"], plan["aeron_since"]) == (0, DirectoryKind.AERON_MEMBER, "1.47")


def test_an_aeron_member_up_to_1_46(aeron: Path, tmp_path: Path) -> None:
    lay_out(aeron, "without header", tmp_path / "marks")

    ended, plan = plan_of(aeron)

    assert (ended.exit_code, plan["directory_kind"], plan["aeron_since"]) == (0, DirectoryKind.AERON_MEMBER, None)
    assert said_of(aeron) == ["can start", "an Aeron member can go on with it"]


def test_an_aeron_member_without_a_node_state(aeron: Path, tmp_path: Path) -> None:
    """Old versions keep the vote in the mark file."""
    (aeron / "cluster" / "node-state.dat").unlink()

    ended, plan = plan_of(aeron)

    assert ended.exit_code == 10
    (problem,) = plan["problems"]
    assert f"`trimaran archive import {aeron} --to DIR`" in problem
    assert run("archive", "import", aeron, "--to", tmp_path / "node").exit_code == 0


@pytest.mark.parametrize("scenario", ["cluster-backup", "cluster-backup-late"])
def test_an_aeron_cluster_backup(samples: Path, tmp_path: Path, scenario: str) -> None:
    """Nobody votes there, so it was told that votes were lost, and to restore them."""
    aeron = Path(shutil.copytree(samples / scenario / "node0", tmp_path / "aeron"))

    ended, plan = plan_of(aeron)

    assert (ended.exit_code, plan["directory_kind"]) == (10, DirectoryKind.AERON_BACKUP)
    (problem,) = plan["problems"]
    assert "ClusterBackup" in problem
    assert f"`trimaran archive import {aeron} --to DIR`" in problem
    assert "vote state" not in problem
    assert run("archive", "import", aeron, "--to", tmp_path / "node").exit_code == 0
    assert plan_of(tmp_path / "node")[0].exit_code == 0


def test_a_backup_of_ours(ours: Path) -> None:
    (ours / "cluster" / "cluster-id").write_text("")
    for name in ("node-state.dat", "cluster-mark.dat"):
        (ours / "cluster" / name).unlink()

    ended, plan = plan_of(ours)

    assert (ended.exit_code, plan["directory_kind"]) == (10, DirectoryKind.BACKUP)
    (problem,) = plan["problems"]
    assert f"`trimaran backup restore {ours}`" in problem


@pytest.mark.parametrize("layout", ["with header", "without header", "elsewhere", "behind a link to nowhere"])
def test_a_directory_that_aeron_may_use_cannot_be_started_on(aeron: Path, tmp_path: Path, layout: str) -> None:
    lay_out(aeron, layout, tmp_path / "marks")
    renew(aeron, layout, tmp_path / "marks")

    ended, plan = plan_of(aeron)

    assert (ended.exit_code, plan["is_used"]) == (10, True)
    assert all("in use" in problem for problem in plan["problems"])
    assert len(plan["problems"]) == 2
    cannot_start, aeron_member = said_of(aeron)
    assert cannot_start == "cannot start as it is"
    assert aeron_member.startswith("once no process uses it, an Aeron member can go on")


def test_an_aeron_member_is_in_need_of_the_same_files(aeron: Path) -> None:
    """The first line said that a start would fail, and the second that Aeron would go on."""
    (aeron / "archive" / "0-589824.rec").unlink()

    ended, plan = plan_of(aeron)

    assert (ended.exit_code, plan["is_used"]) == (10, False)
    assert "the same files" in plan["aeron_obstacle"]
    cannot_start, aeron_member = said_of(aeron)
    assert cannot_start == "cannot start as it is"
    assert "cannot go on with it: it starts from the same files" in aeron_member


def test_a_member_of_ours_that_runs_is_no_problem(ours: Path) -> None:
    mark = ClusterMarkFile.open(ours / "cluster", member_id=0, now_ms=1, boot_id="b")

    ended, plan = plan_of(ours)

    assert (ended.exit_code, plan["is_used"]) == (0, True)
    assert "once no process uses it" in said_of(ours)[1]
    mark.close()


TICKS: dict[str, tuple[int, Callable[[int], int]]] = {
    "micros": (1, lambda ms: ms * 1_000),
    "nanos": (2, lambda ms: ms * 1_000_000),
}


@pytest.mark.parametrize("unit", TICKS)
def test_times_of_every_clock_are_shown(aeron: Path, unit: str) -> None:
    expected = [snapshot["time"] for snapshot in plan_of(aeron)[1]["snapshots"]]
    code, scale = TICKS[unit]
    log = aeron / "archive" / "0-0.rec"
    data = bytearray(log.read_bytes())
    (offset,) = [field.offset for field in NewLeadershipTermEvent.LAYOUT.block if field.name == "time_unit"]
    struct.pack_into("<i", data, 32 + 8 + offset, code)
    log.write_bytes(data)
    recording_log = aeron / "cluster" / "recording.log"
    slots = bytearray(recording_log.read_bytes())
    for slot in range(0, len(slots), 64):
        struct.pack_into("<q", slots, slot + 32, scale(struct.unpack_from("<q", slots, slot + 32)[0]))
    recording_log.write_bytes(slots)

    plan = plan_of(aeron)[1]

    assert [snapshot["time"] for snapshot in plan["snapshots"]] == expected
    assert all(expected)


def test_the_page_has_a_row_for_each_kind() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]

    assert all(any(line.startswith(f"| {kind} ") for line in rows) for kind in DirectoryKind)
