"""Directed scenarios of a backup: of what it keeps while newer snapshots come, and of a store that others share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.stored.backup_files import cluster_stores
from trimaran.archive.stored.cluster_store import StoreBusyError
from trimaran.archive.stored.index import INDEXES, SEGMENTS, WriterIndex
from trimaran.archive.stored.pruning import Pruned, prune
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.operating.backup.agent import BackupAgent
from trimaran.cluster.operating.backup.retention import BackupRetention
from trimaran.cluster.operating.backup.running import run_backup
from trimaran.cluster.operating.backup.settings import BackupSettings
from trimaran.cluster.operating.backup.store_follower import StoreFollower
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.testing.simulation.backups.actor import add_backup_machine, archive_config
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member, dialled
from trimaran.cluster.testing.simulation.kept_log import complete_snapshot_positions
from trimaran.cluster.testing.simulation.rules.backup_rules import BackupRules
from trimaran.cluster.testing.simulation.rules.store_rules import STORE_URL
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.cluster.testing.simulation.world.machine import Machine
from trimaran.cluster.testing.simulation.world.object_store import StoreFault
from trimaran.service_api import ConfigurationError
from trimaran.service_api.documents.document import read_document

if TYPE_CHECKING:
    from .scenarios import Scene


def a_backup_that_begins_at_a_snapshot(scene: Scene) -> None:
    """It keeps one snapshot, and that with which its log begins: without it no earlier position can be restored."""
    scene.start()
    scene.add_flood("flood", 1_000)
    length = scene.settings.segment_length_bytes
    scene.run_until(lambda: len(scene.referee.committed) > length, 20, "a log gets a second segment")
    _take_snapshot(scene)
    rules, agents = BackupRules(scene.referee.committed), list[BackupAgent]()
    machine, archive = add_backup_machine(scene.cluster), archive_config(scene.settings)
    settings = BackupSettings(
        members=dialled(scene.referee.membership.current.members),
        from_snapshot=True,
        retention=BackupRetention(keep_snapshots=1),
        query_interval_s=0.2,
    )

    def main() -> Coroutine[Any, Any, None]:
        return run_backup(DIRECTORY, settings, archive=archive, host=machine.host(), on_agent=agents.append)

    machine.start(main)
    newest = 0
    for _ in range(3):
        scene.run_until(partial(_has_newer, machine.disk, newest), 20, "a backup takes each new snapshot")
        newest = _newest(machine.disk)
        rules.look(agents[-1], machine.disk)
        rules.look_at_snapshots(machine.disk)
        _take_snapshot(scene)


def a_backup_that_keeps_some_time(scene: Scene) -> None:
    """Its log grows by a segment between two snapshots, and goes on to begin with one that is old enough."""
    scene.start()
    scene.add_flood("flood", 1_000)
    length, keep_ms = scene.settings.segment_length_bytes, 1_000
    retention = BackupRetention(keep_snapshots=1, keep_ms=keep_ms)
    rules, agents = BackupRules(scene.referee.committed, retention), list[BackupAgent]()
    machine, archive = add_backup_machine(scene.cluster), archive_config(scene.settings)
    settings = BackupSettings(
        members=dialled(scene.referee.membership.current.members), retention=retention, query_interval_s=0.2
    )

    def main() -> Coroutine[Any, Any, None]:
        return run_backup(DIRECTORY, settings, archive=archive, host=machine.host(), on_agent=agents.append)

    machine.start(main)
    for _ in range(4):
        wanted, newest = len(scene.referee.committed) + length, _newest_noted(agents)
        scene.run_until(partial(_is_longer, scene, wanted), 20, "a log grows by a segment")
        _take_snapshot(scene)
        scene.run_until(lambda newest=newest: _newest_noted(agents) > newest, 20, "a backup takes each new snapshot")  # type: ignore[misc]  # bound now
        rules.look(agents[-1], machine.disk)
        rules.look_at_snapshots(machine.disk)
    expect(agents[-1].directory.log_start_position > 0, "a backup removes what it need not keep")


_SEGMENTS: Final = 8
"""So many that the store cuts one of them off, whatever it draws."""


def a_store_of_backups_and_cold_storage(scene: Scene) -> None:
    """The backup that put the log there goes, and members have it nowhere else: one with a new disk reads it all.

    The store keeps half of some files at first, and says that it failed.
    """
    scene.start()
    scene.add_flood("flood", 1_000)
    machine = add_backup_machine(scene.cluster)
    scene.cluster.store.strike(StoreFault.CUTTING)
    length, stored = scene.settings.segment_length_bytes, scene.cluster.store.objects
    scene.run_until(lambda: len(scene.referee.committed) > _SEGMENTS * length, 60, "a log gets some segments")
    scene.cluster.clients["flood"].kill()
    _back_up(scene, machine, from_snapshot=False)
    scene.run_until(lambda: _segment_count(stored) >= _SEGMENTS, 60, "a backup comes into the store")
    _take_snapshot(scene)
    scene.run_until(lambda: scene.referee.stored.segment_count >= _SEGMENTS, 60, "a log goes into cold storage")
    scene.cluster.store.mend()
    machine.kill()
    machine.replace_disk()
    _back_up(scene, machine, from_snapshot=True)
    scene.run_until(lambda: len(_backups(scene)) == 2, 20, "a backup that is begun again comes into the store")
    machine.kill()

    _prune(scene, machine)
    expect(len(_backups(scene)) == 1, "a prune removes an old backup", urls=[*stored])
    lost = scene.followers()[0]
    scene.cluster.kill(lost.member_id)
    scene.cluster.wipe(lost.member_id)
    scene.cluster.start(lost.member_id)
    scene.run_until(lambda: _readable_from(lost) == 0, 30, "a member with a new disk reads all that was ever committed")


def _back_up(scene: Scene, machine: Machine, *, from_snapshot: bool) -> None:
    """Run an agent and the copy to the store until the machine is killed."""
    archive = archive_config(scene.settings)
    settings = BackupSettings(
        members=dialled(scene.referee.membership.current.members), from_snapshot=from_snapshot, query_interval_s=0.2
    )

    async def main() -> None:
        host = machine.host()
        async with asyncio.TaskGroup() as group:
            group.create_task(run_backup(DIRECTORY, settings, archive=archive, host=host))
            group.create_task(_follow(host))

    machine.start(main)


async def _follow(host: Host) -> None:
    while True:
        with suppress(ConfigurationError):  # the agent has not written anything yet
            await StoreFollower(DIRECTORY, STORE_URL, interval_s=0.2, host=host).run()
        await asyncio.sleep(0.2)


def _prune(scene: Scene, machine: Machine) -> None:
    """Prune the store until that goes well: members write to it meanwhile."""
    done: list[Pruned] = []

    async def main() -> None:
        host = machine.host()
        while not done:
            with suppress(StoreBusyError):
                for store in await asyncio.to_thread(cluster_stores, STORE_URL, open_objects=host.open_objects):
                    draw_id = "0123456789abcdef".__str__
                    clock_ms = host.clock.epoch_time
                    done.append(await asyncio.to_thread(prune, store, keep_count=1, clock_ms=clock_ms, draw_id=draw_id))
            await asyncio.sleep(0.1)

    machine.start(main)
    scene.run_until(lambda: bool(done), 30, "a prune ends")


def _segment_count(stored: dict[str, bytes]) -> int:
    return sum(f"/{SEGMENTS}/" in url for url in stored)


def _backups(scene: Scene) -> list[str]:
    """The URLs of complete backups in the store."""
    objects = scene.cluster.store.objects
    urls = [url for url in objects if f"/{INDEXES}/backup-" in url]
    return [url for url in urls if read_document(WriterIndex, objects[url]).backup is not None]


def _readable_from(member: Member) -> int | None:
    """From where on a member can read the log, on its disk and in cold storage."""
    node = member.node
    if node is None or node.archive.cold is None:
        return None
    return node.archive.readable_descriptor(node.module.ctx.log_recording_id).start_position


def _take_snapshot(scene: Scene) -> None:
    """Have every member take one."""
    leader = scene.await_leader()
    assert leader.node is not None
    assert leader.machine.loop is not None
    before = _newest(leader.machine.disk)
    leader.machine.loop.call_soon(leader.node.agent.post, ActionRequested(0, ControlToggle.SNAPSHOT))
    disks = [member.machine.disk for member in scene.cluster.members.values()]
    scene.run_until(
        lambda: all(_newest(disk) > before for disk in disks), 10, "a snapshot that is ordered is taken by all"
    )


def _is_longer(scene: Scene, position: int) -> bool:
    return len(scene.referee.committed) > position


def _newest_noted(agents: list[BackupAgent]) -> int:
    """Where the newest snapshot was taken that the agent has noted."""
    return max(agents[-1].directory.snapshot_positions, default=0) if agents else 0


def _has_newer(disk: MemoryFileSystem, position: int) -> bool:
    return _newest(disk) > position


def _newest(disk: MemoryFileSystem) -> int:
    return max(complete_snapshot_positions(disk), default=0)
