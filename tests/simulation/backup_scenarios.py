"""Directed scenarios of a backup: of what it keeps while newer snapshots come."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.operating.backup.agent import BackupAgent
from trimaran.cluster.operating.backup.running import run_backup
from trimaran.cluster.operating.backup.settings import BackupSettings
from trimaran.cluster.testing.simulation.backups.actor import add_backup_machine, archive_config
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, dialled
from trimaran.cluster.testing.simulation.kept_log import complete_snapshot_positions
from trimaran.cluster.testing.simulation.rules.backup_rules import BackupRules

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
        keep_snapshots=1,
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


def _has_newer(disk: MemoryFileSystem, position: int) -> bool:
    return _newest(disk) > position


def _newest(disk: MemoryFileSystem) -> int:
    return max(complete_snapshot_positions(disk), default=0)
