"""What a backup has to hold, asked of the product as it is and of one with a bug planted: the second must be found.

The plants are those of `tests/simulation`, where whole runs find them; here each is found alone, and quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.simulation.backup_plants import PLANTS
from tests.simulation.plant import planted
from tests.unit.cluster.operating.backup.backed_up import Backup, backed_up
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, take
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.reader import MessageReader
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.stored.cluster_store import StoreError
from trimaran.cluster.operating.backup import fetching, restoring, shipping
from trimaran.cluster.operating.backup.retention import BackupRetention
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.cluster.time_travel.replay import replay_service
from trimaran.service_api import ClusterError
from trimaran.service_api.cluster_id import ClusterId

NOW_MS = 1_800_000_000_000


def restored(source: Path, target: Path, *, position: int | None = None) -> list[str]:
    """What the service of a cluster has been given that was made of a backup."""
    found = restoring.restore_backup(
        str(source), parse_members("0=a:7000"), target, cluster_id=ClusterId(0x1234), now_ms=NOW_MS, position=position
    )
    return payloads(found.directories[0])


# --- a restore has everything that was backed up


def a_restore_has_the_whole_log(stages: list[Path], place: Path) -> None:
    url = f"file://{place}/store"
    shipping.ship_backup(stages[0], url, clock_ms=lambda: NOW_MS)
    fetching.fetch_backup(url, place / "back")
    assert restored(place / "back", place / "restored") == payloads(stages[0])


def a_restore_has_the_message_at_its_position(stages: list[Path], place: Path) -> None:
    """The last position at which one message less is restored is that where the last message ends."""
    everything = payloads(stages[0])
    log = LogFile.find(MemberDirectory.find(str(stages[0])))
    ends = [message.end_position for message in MessageReader(log.reader())]
    last = next(end for end in reversed(ends) if replayed(stages[0], end - 1) < len(everything))
    assert replayed(stages[0], last) == len(everything)
    assert restored(stages[0], place / "restored", position=last) == everything


def replayed(directory: Path, position: int) -> int:
    """How many messages the service has been given up to a position, by a replay."""
    service = replay_service(directory, Keeper, bound="recorded", position=position).service
    assert isinstance(service, Keeper)
    return len(service.payloads)


# --- a reader of a store never sees half a backup


def a_copy_that_is_cut_off_anywhere_leaves_a_backup(stages: list[Path], place: Path) -> None:
    url = f"memory://backups/{place.name}"
    allowed = [payloads(stages[1]), payloads(stages[2])]
    for count in range(100):
        shipping.ship_backup(stages[1], f"{url}/{count}", clock_ms=lambda: NOW_MS)
        is_whole = ship_with_writes(stages[2], f"{url}/{count}", count)
        fetching.fetch_backup(f"{url}/{count}", place / str(count))
        assert payloads(place / str(count)) in allowed
        assert [check for check in verify_backup(f"{url}/{count}") if check.problem] == []
        if is_whole:
            return
    raise AssertionError("the copy never ends")


def ship_with_writes(stage: Path, url: str, count: int) -> bool:
    """Copy until so many objects were written; return whether that was all."""
    with pytest.MonkeyPatch.context() as patch:
        real, left = ObjectStore.put, iter(range(count))

        def put(self: ObjectStore, name: StoredName, data: bytes) -> None:
            if next(left, None) is None:
                raise OSError("cut off")
            real(self, name, data)

        patch.setattr(ObjectStore, "put", put)
        try:
            shipping.ship_backup(stage, url, clock_ms=lambda: NOW_MS)
        except StoreError:
            return False
        return True


# --- retention keeps what a backup still needs


def every_position_of_the_log_can_be_restored(stages: list[Path], place: Path) -> None:
    """A backup that begins at a snapshot keeps that one, however many follow."""
    with backed_up() as (small, backup):
        between = three_snapshots(small, backup)
        backup.write_to(place / "backup")

    assert restored(place / "backup", place / "restored", position=between)


def three_snapshots(small: SmallCluster, backup: Backup) -> int:
    """Back up from the first on, keeping one; give a position between the first and the second."""
    small.send(150, length=1_000)
    first = take(small)
    backup.start(from_snapshot=True, retention=BackupRetention(keep_snapshots=1))
    backup.catch_up(snapshot_position=first)
    small.send(20)
    between = backup.catch_up(snapshot_position=first).recorded_position
    for _ in range(2):
        small.send(20)
        backup.catch_up(snapshot_position=take(small))
    return between


CASES = {
    "store-skips-tail": a_restore_has_the_whole_log,
    "restore-skips-tail": a_restore_has_the_message_at_its_position,
    "index-too-early": a_copy_that_is_cut_off_anywhere_leaves_a_backup,
    "backup-purges-too-much": every_position_of_the_log_can_be_restored,
}
"""What finds each plant."""


@pytest.fixture(autouse=True)
def _no_objects_stay() -> Iterator[None]:
    yield
    memory = fsspec.filesystem("memory")
    if memory.exists("/backups"):
        memory.rm("/backups", recursive=True)


@pytest.mark.parametrize("name", CASES)
def test_it_holds(name: str, stages: list[Path], tmp_path: Path) -> None:
    CASES[name](stages, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_planted_bug_is_found(name: str, stages: list[Path], tmp_path: Path) -> None:
    plant = next(plant for plant in PLANTS if plant.name == name)

    with planted(plant) as planting, pytest.raises((AssertionError, ClusterError)):
        CASES[name](stages, tmp_path)

    assert planting.count > 0
