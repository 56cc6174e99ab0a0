"""A simulated cluster and the agents that back it up, each on a machine of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper
from trimaran.archive.config import ArchiveConfig
from trimaran.archive.disk.file_system import opened, read_fully
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.operating.backup.agent import BackupAgent
from trimaran.cluster.operating.backup.running import run_backup
from trimaran.cluster.operating.backup.settings import BackupSettings
from trimaran.cluster.operating.backup.states import BackupState
from trimaran.cluster.operating.backup.status import BackupStatus
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.cluster.testing.simulation.cluster import Member, Settings
from trimaran.cluster.testing.simulation.world.machine import Machine
from trimaran.service_api.access.identity import Caller, CallerRole, Proof

PLACE: Final = Path("/backups/one")
LOG_SETTINGS: Final = replace(QUICK, segment_length_bytes=64 << 10)
CONFIG: Final = ArchiveConfig(term_length_bytes=64 << 10, segment_length_bytes=64 << 10, mtu_length_bytes=1_408)


class Backup:
    """One agent and its machine. `start` after a `kill` goes on on the same disk."""

    def __init__(self, small: SmallCluster, name: str = "backup") -> None:
        self.small, self.name = small, name
        self.identify(CallerRole.OBSERVER)
        self.settings = BackupSettings(
            members=tuple(endpoints_of(member) for member in small.cluster.members.values()),
            query_interval_s=2.0,
            reset_delay_s=0.2,
        )
        self.agent: BackupAgent | None = None
        self.states: list[BackupState] = []
        self.failure: BaseException | None = None
        self._machine: Machine | None = None

    def identify(self, role: CallerRole) -> None:
        """Say what certificate its machine shows."""
        self.small.cluster.network.identify(self.name, Caller(role, self.name, Proof.CERTIFICATE))

    def start(self, **changed: object) -> Backup:
        """Run the agent, with these settings changed."""
        self.settings = replace(self.settings, **changed)  # type: ignore[arg-type]  # named by the tests
        if self._machine is None:
            self._machine = self.small.cluster.add_client(self.name, self._run)
            self._machine.on_exit = self._on_exit
        else:
            self._machine.start(self._run)
        return self

    def kill(self) -> None:
        """Kill the process, as a power loss does: what was not synced is lost."""
        assert self._machine is not None
        self._machine.kill()
        self.agent = None

    async def _run(self) -> None:
        machine = self.small.cluster.clients[self.name]
        await run_backup(PLACE, self.settings, archive=CONFIG, host=machine.host(), on_agent=self._on_agent)

    def _on_agent(self, agent: BackupAgent) -> None:
        self.agent = agent
        agent.on_state_changed = lambda old, new: self.states.append(new)

    def _on_exit(self, error: BaseException | None) -> None:
        self.failure = error

    @property
    def status(self) -> BackupStatus:
        """What the agent tells."""
        assert self.agent is not None
        return self.agent.describe()

    @property
    def disk(self) -> MemoryFileSystem:
        """The disk of its machine."""
        assert self._machine is not None
        return self._machine.disk

    @property
    def recording_log(self) -> RecordingLog:
        """Its recording log, by what is durable."""
        return RecordingLog.parse(self.disk.durable_read(PLACE / "cluster" / "recording.log", 1 << 20, 0))

    def write_to(self, target: Path) -> None:
        """Copy what is durable on its disk to a real one, for what reads directories."""
        for name in ("archive", "cluster"):
            (target / name).mkdir(parents=True)
            for file in self.disk.list_directory(PLACE / name):
                data = self.disk.durable_read(PLACE / name / file, 1 << 30, 0)
                (target / name / file).write_bytes(data)

    def has_all(self) -> bool:
        """Whether the backup is following, and has everything that is committed."""
        if self.agent is None or self.agent.state is not BackupState.BACKING_UP:
            return False
        return self.status.recorded_position >= commit_position(self.small)

    def catch_up(self, *, snapshot_position: int | None = None) -> BackupStatus:
        """Wait until it has everything, and the snapshot of a position."""
        self.small.wait(lambda: self.has_all() and self.status.snapshot_position == snapshot_position)
        return self.status

    def expect_log_of(self, member: Member) -> int:
        """Compare the backup's log with a member's, byte by byte; give where the backup's ends."""
        assert self.agent is not None
        assert member.node is not None
        directory = self.agent.directory
        start, end = directory.log_start_position, directory.recorded_position
        recording_id = directory.log_recording_id
        assert recording_id is not None
        theirs_id = member.node.module.ctx.log_recording_id
        for position in range(start - start % 4096, end, 4096):
            first, last = max(position, start), min(position + 4096, end)
            mine = _read(directory.archive, recording_id, first, last)
            theirs = _read(member.node.archive, theirs_id, first, last)
            assert mine == theirs, f"logs differ in [{first}, {last})"
        return end


def _read(archive: object, recording_id: int, first: int, last: int) -> bytes:
    """Read the raw bytes of a recording's segments."""
    found = archive.descriptor(recording_id)  # type: ignore[attr-defined]  # an Archive
    base = found.segment_base_position(first)
    path = archive.directory / found.segment_file_name(base)  # type: ignore[attr-defined]
    disk = archive._file_system  # type: ignore[attr-defined]  # as above
    with opened(disk, path) as handle:
        return read_fully(disk, handle, last - first, first - base)


def endpoints_of(member: Member) -> MemberEndpoints:
    """Where a member can be reached."""
    return member.config.me


def commit_position(small: SmallCluster) -> int:
    """How far the cluster has committed its log."""
    leader = small.leader
    assert leader.node is not None
    return leader.node.module.ctx.commit_position


@contextmanager
def backed_up(settings: Settings = LOG_SETTINGS, seed: int = 1) -> Iterator[tuple[SmallCluster, Backup]]:
    """A cluster that has a leader, and a backup of it that is not started."""
    with small_cluster(seed, settings, Keeper) as small:
        small.start()
        yield small, Backup(small)
