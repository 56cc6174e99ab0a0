"""A backup that is kept while members lose power: the agent, the copy in an object store, cold storage in the same
store, and what must hold of all three.

The machine of the agent loses power, too: with all members, and every other time that one of them does. The store does
not, but a copy to it is cut off in the middle. While the agent is down, every object of the store is read, as if the
store were all that is left. In the end, when all processes are stopped:

copy, store    every frame and every snapshot is valid, the log reaches what was committed, and is that of the members
restore        to the end and to a position that is drawn: the log of the new cluster is a prefix of the members'
cold storage   each segment has the SHA-256 of its name, and each member's log can be read from its first byte
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import MemberDirectory
from ...archive.reading.difference import find_mismatch
from ...archive.stored.backup_files import find_backups
from ...cluster.operating.backup.fetching import fetch_backup
from ...cluster.operating.backup.restoring import restore_backup
from ...cluster.operating.backup.shipping import ship_backup
from ...cluster.operating.backup.status import BackupStatus, read_status
from ...cluster.operating.backup.verification import verify_backup
from ...cluster.settings.member_endpoints import parse_members
from ...service_api.cluster_id import ClusterId
from ...service_api.errors import ClusterError
from ..rig.processes import ClusterProcesses, ManagedProcess
from .power_loss import lose_power
from .shim import MemberShim

STORE_NAME: Final = "store"
"""The name of the directory in which backup and cold storage have their objects."""

_CATCH_UP_S: Final = 60.0
_WAIT_S: Final = 0.2
_RESTART_S: Final = 0.5
_RESTORED_CLUSTER_ID: Final = ClusterId(0x7E57)


def _epoch_time_ms() -> int:
    return time.time_ns() // 1_000_000


def cold_settings(data_dir: Path) -> dict[str, str]:
    """Return the settings of members that keep little log on their disks, and send the rest to a store."""
    return {
        "cold_storage_url": f"file://{data_dir / STORE_NAME}",
        "cold_cache_bytes": str(256 << 10),
        "segment_length_bytes": str(64 << 10),  # one term: so a round fills many
        "keep_snapshots": "1",
        "keep_log_bytes": "0",
    }


def check_cold(data_dir: Path, directories: Mapping[int, Path]) -> tuple[int, list[str]]:
    """Read every segment in the store, and each member's log from its first byte on; the members are stopped.

    Returns how many objects there are, and what is wrong.
    """
    objects = sorted((data_dir / STORE_NAME).glob("*/segments/*.rec"))
    found = [
        f"a segment in the store is not what its name says: {path}"
        for path in objects
        if sha256(path.read_bytes()).hexdigest() != path.stem.partition("-")[2]
    ]
    for member_id, directory in directories.items():
        found += _problems(f"member {member_id}", str(directory))
        start = LogFile.find(MemberDirectory.find(directory)).descriptor.start_position
        if start:
            found.append(f"member {member_id}: its log begins at {start}, and cold storage has not what is before")
    return len(objects), found


class BackupKeeper:
    """The processes of one backup, and what was done to them."""

    def __init__(self, processes: ClusterProcesses, shim: MemberShim, violations: list[str]) -> None:
        self._processes = processes
        self._violations = violations
        self._shim = shim
        self._data_dir = processes.data_dir
        self.directory = self._data_dir / "backup" / "copy"
        self._store = self._data_dir / STORE_NAME
        self.directory.parent.mkdir(parents=True)
        self._agent: ManagedProcess | None = None
        self._shipper: ManagedProcess | None = None
        self.figures: dict[str, int] = {
            "agent_power_losses": 0,
            "store_readings": 0,
            "cold_objects": 0,
            "restored_bytes": 0,
        }

    def __repr__(self) -> str:
        return f"<BackupKeeper agent={self._agent} shipper={self._shipper}>"

    @property
    def url(self) -> str:
        """The store of the backup."""
        return f"file://{self._store}"

    def start(self) -> None:
        """Start the agent, if it does not run."""
        if self._agent is None:
            members = ",".join(f"{i}=127.0.0.1:{port}" for i, port in enumerate(self._processes.base_ports))
            options = ("--members", members, "--directory", str(self.directory), "--query-interval", "1")
            self._agent = self._spawn("backup-agent", "run", *options, environment=self._shim.environment)

    async def supervise(self) -> None:
        """Keep the copy to the store going for ever, while the agent should run; an agent that ends is a violation."""
        while True:
            await asyncio.sleep(_RESTART_S)
            agent, shipper = self._agent, self._shipper
            if agent is None:
                continue
            if not agent.is_running:
                self._agent = None
                self._violations.append(f"the backup agent ended by itself: {agent.log_tail(4)}")
            elif (shipper is None or not shipper.is_running) and self._read_status() is not None:
                options = (str(self.directory), self.url, "--follow", "--interval", "0.2")
                self._shipper = self._spawn("backup-shipper", "ship", *options, environment={})

    async def lose_power(self, random: Random) -> str:
        """End the agent and the copy at once, and take from the agent's files what it had not synced; read the store.

        Returns what was lost, in words.
        """
        self.stop()
        self.figures["agent_power_losses"] += 1
        lost = await asyncio.to_thread(lose_power, self._shim.undo_directory, random)
        self._violations += await asyncio.to_thread(self._read_store, "while the agent was down")
        return f"the backup lost {lost}"

    async def finish(self, commit_position: int) -> None:
        """Wait until the backup has everything that is committed, stop it, and bring the store up to it."""
        self.start()
        deadline_s, status = time.monotonic() + _CATCH_UP_S, None
        while status is None or status.recorded_position < commit_position:
            if time.monotonic() > deadline_s:
                told = f"waited_s={_CATCH_UP_S:g} commit_position={commit_position} {status}"
                self._violations.append(f"the backup did not catch up: {told}")
                break
            await asyncio.sleep(_WAIT_S)
            status = self._read_status()
        self.stop()
        try:
            await asyncio.to_thread(ship_backup, self.directory, self.url, clock_ms=_epoch_time_ms)
        except (ClusterError, OSError) as error:
            self._violations.append(f"the store cannot be brought up to the backup: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """End the agent and the copy at once."""
        for process in (self._shipper, self._agent):
            if process is not None:
                process.popen.kill()
                process.popen.wait()
        self._shipper = self._agent = None

    def check(self, directories: Mapping[int, Path], commit_position: int, random: Random) -> list[str]:
        """Check the backup, the store, what is restored of it, and cold storage; the members are stopped."""
        found = self._read_store("in the end")
        found += _problems("the backup", str(self.directory))
        for begun_again in self.directory.parent.glob("copy.until-*"):
            found.append(f"the backup was begun again, although members lose no log: {begun_again.name}")
        self.figures["cold_objects"], faults = check_cold(self._data_dir, directories)
        found += faults
        member = LogFile.find(MemberDirectory.find(directories[0]))
        for name in (str(self.directory), self.url):
            found += _prefix_problems(name, LogFile.find(MemberDirectory.find(name)), member, commit_position)
        for position in (None, random.randrange(commit_position // 2, commit_position)):
            found += self._check_restored(member, position, commit_position)
        return found

    def _check_restored(self, member: LogFile, position: int | None, commit_position: int) -> list[str]:
        """Restore from the store, to a position or all of it, and compare."""
        place = self._data_dir / f"restored-{'end' if position is None else position}"
        place.mkdir()
        try:
            fetch_backup(self.url, place / "fetched")
            restored = restore_backup(
                str(place / "fetched"),
                parse_members("0=127.0.0.1:1"),
                place / "made",
                cluster_id=_RESTORED_CLUSTER_ID,
                now_ms=_epoch_time_ms(),
                position=position,
            )
        except ClusterError as error:
            return [f"the backup was not restored: position={position}: {error}"]
        self.figures["restored_bytes"] += restored.log_position
        log = LogFile.find(MemberDirectory.find(restored.directories[0]))
        end = commit_position if position is None else restored.log_position
        return _prefix_problems(f"restored to {position}", log, member, end)

    def _read_store(self, when: str) -> list[str]:
        if not find_backups(self.url):
            return []
        self.figures["store_readings"] += 1
        return _problems(f"the store {when}", self.url)

    def _read_status(self) -> BackupStatus | None:
        try:
            return read_status(self.directory / "cluster")
        except ClusterError:
            return None

    def _spawn(self, name: str, *arguments: str, environment: Mapping[str, str]) -> ManagedProcess:
        return self._processes.spawn_beside(name, ("backup", *arguments, "--log-format", "json"), environment)


def _problems(whose: str, name: str) -> list[str]:
    try:
        checks = [*verify_backup(name)]
    except (ClusterError, OSError) as error:
        return [f"{whose} cannot be read: {type(error).__name__}: {error}"]
    return [f"{whose}: {check.what}: {check.problem}" for check in checks if check.problem is not None]


def _prefix_problems(name: str, log: LogFile, member: LogFile, end: int) -> list[str]:
    reached = log.ending().position
    if reached < end:
        return [f"{name}: its log ends at {reached}, below {end}"]
    mismatch = find_mismatch(log, member, log.descriptor.start_position, end)
    return [] if mismatch is None else [f"{name}: its log is not that of the members: {mismatch}"]
