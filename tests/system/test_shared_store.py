"""Backup and cold storage in one store: real processes, kills, a prune, a member with a new disk, and a restore."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.commands import run_trimaran
from tests.system.test_shipped_snapshots import PURGING, follower_of, purge
from tests.waiting import wait_until
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.reading.difference import find_mismatch
from trimaran.archive.stored.index import WriterIndex, read_index
from trimaran.benchmarks.rig.processes import ManagedProcess
from trimaran.cluster.operating.backup.status import read_status
from trimaran.service_api import ClusterError

pytestmark = pytest.mark.slow

SEGMENT_BYTES = int(PURGING["segment_length_bytes"])


class Backup:
    """The agent of one backup directory, and the copy to the store."""

    def __init__(self, cluster: SystemCluster, name: str, url: str) -> None:
        self.directory = cluster.processes.data_dir / name
        self._cluster, self._url = cluster, url
        self._processes: list[ManagedProcess] = []

    def start(self, *options: str) -> None:
        """Start the agent."""
        members = ",".join(f"{i}=127.0.0.1:{port}" for i, port in enumerate(self._cluster.processes.base_ports))
        self._spawn(
            "run", "--members", members, "--directory", str(self.directory), "--query-interval", "0.3", *options
        )

    def ship(self) -> None:
        """Start the copy to the store."""
        self._spawn("ship", str(self.directory), self._url, "--follow", "--interval", "0.2")

    def _spawn(self, command: str, *arguments: str) -> None:
        name = f"{self.directory.name}-{command}-{len(self._processes)}"
        arguments = ("backup", command, *arguments, "--log-format", "json")
        self._processes.append(self._cluster.processes.spawn_beside(name, arguments, {}))

    def kill(self) -> None:
        """End both without warning."""
        while self._processes:
            process = self._processes.pop()
            process.popen.kill()
            process.popen.wait()

    async def reach(self, position: int) -> None:
        """Wait until its directory has the log up to a position, and a snapshot."""

        def has_reached() -> bool:
            with suppress(ClusterError):
                status = read_status(self.directory / "cluster")
                return status.recorded_position >= position and status.snapshot_position is not None
            return False

        await wait_until(has_reached, timeout_s=60, what=lambda: f"a backup that reaches {position}")


def indexes(store: Path) -> dict[str, WriterIndex]:
    """The indexes in the store, by their writers."""
    paths = [*store.glob("*/indexes/member-*.json"), *store.glob("*/indexes/backup-*.json")]
    return {path.stem: read_index(path.read_bytes(), str(path)) for path in paths}


def stop_position(store: Path, started_after: int = 0) -> int:
    """Where the log of the newest complete backup ends."""
    backups = [index for index in indexes(store).values() if not index.is_of_member and index.backup is not None]
    newest = max(backups, key=lambda index: index.started_ms, default=None)
    if newest is None or newest.backup is None or newest.started_ms <= started_after:
        return 0
    return newest.backup.log_stop_position


async def trimaran(*arguments: str) -> str:
    printed = await run_trimaran(*arguments)
    assert printed.exit_status == 0, printed
    return printed.output


async def test_a_cluster_with_backup_and_cold_storage_in_one_store_goes_through_kills_a_prune_and_a_restore(
    data_dir: Path,
) -> None:
    store = data_dir / "store"
    url, cold = f"file://{store}", {"cold_storage_url": f"file://{store}", "cold_cache_bytes": str(16 * SEGMENT_BYTES)}
    async with SystemCluster(data_dir, settings={**PURGING, **cold}) as cluster, cluster.requester() as requester:
        first = Backup(cluster, "first", url)
        first.start()
        position = await purge(cluster, requester)
        await first.reach(position)
        first.ship()
        await wait_until(lambda: stop_position(store) >= position, timeout_s=60, what="a first copy")
        first.kill()
        killed = await follower_of(cluster)
        killed.kill()
        first.start()
        first.ship()
        position = await purge(cluster, requester)
        await wait_until(lambda: stop_position(store) >= position, timeout_s=60, what="a copy after the kills")
        first.kill()
        cluster.start(killed.member_id)
        await cluster.wait_for_equal_states()

        second = Backup(cluster, "second", url)
        second.start("--from-snapshot")
        await second.reach(position)
        started_ms = max(index.started_ms for index in indexes(store).values() if not index.is_of_member)
        second.ship()
        await wait_until(lambda: stop_position(store, started_ms) >= position, timeout_s=60, what="a second backup")
        pruned = json.loads(await trimaran("backup", "prune", url, "--keep", "1", "-o", "jsonl"))
        assert (len(pruned["removed_backups"]), len(pruned["kept_backups"])) == (1, 1)

        renewed = await follower_of(cluster)
        renewed.kill()
        shutil.rmtree(cluster.directory_of(renewed.member_id))
        cluster.start(renewed.member_id)
        position = await purge(cluster, requester)
        await cluster.wait_for_equal_states()
        await wait_until(lambda: stop_position(store, started_ms) >= position, timeout_s=60, what="the last copy")
        second.kill()

    days = ("--keep-days", "0", "-o", "jsonl")
    told = await trimaran("backup", "prune", url, *days, "--dry-run")
    assert told == await trimaran("backup", "prune", url, *days)
    assert len(json.loads(told)["shortened_backups"]) == 1
    objects = {path.name for path in store.glob("*/segments/*.rec")}
    assert all(sha256(path.read_bytes()).hexdigest() == path.stem[20:] for path in store.glob("*/segments/*.rec"))
    assert len(objects) == len({name[:19] for name in objects}) >= 8  # no segment is there twice
    await trimaran("backup", "verify", url)
    restored = data_dir / "restored"
    options = ("--from", url, "--members", "0=127.0.0.1:1", "--directory", str(restored))
    await trimaran("backup", "restore", *options)
    logs = [LogFile.find(MemberDirectory.find(cluster.directory_of(i))) for i in range(3)]
    for log in logs:
        assert log.descriptor.start_position == 0
    whole = next(log for i, log in enumerate(logs) if i == renewed.member_id)
    made = LogFile.find(MemberDirectory.find(restored / "node-0"))
    assert made.ending().position >= position
    for log in (*logs, made):
        assert find_mismatch(log, whole, log.descriptor.start_position, position) is None
