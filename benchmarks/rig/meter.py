"""What the members of a cluster use while they are measured: processor time, bytes for the disk, syncs.

Processor time and bytes are the kernel's own counts (`/proc`); syncs are the member's, from its metrics. The bytes are
those of the pages that a process made dirty: a page that is written again after a sync counts again, and so do the
zeros of a segment that is prepared.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from ...service_api.endpoint import Endpoint
from ...service_api.net.transport import NetworkStack, Purpose
from .member_log import RigMemberLog
from .processes import ClusterProcesses, ManagedProcess, ProcessError
from .resident import resident_bytes

_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SYNC_METRIC: Final = "trimaran_sync_duration_seconds_count"
_ASK_TIMEOUT_S: Final = 10.0

_PAGE_AGE_S: Final = 0.15
"""A member gives the same page of metrics again for 0.1 s."""

METRICS_SETTING: Final = {"metrics_endpoint": "127.0.0.1:0"}
"""The node setting that makes members count their syncs, for 0.4 us each."""


@dataclass(slots=True, frozen=True)
class Usage:
    """What one process has used, so far or between two moments. Times in seconds, in steps of 10 ms."""

    user_s: float
    system_s: float
    written_bytes: int | None
    """None where the kernel does not say."""
    sync_count: int | None = None
    """None where the member has no metrics, and of a client."""

    @classmethod
    def of_process(cls, pid: int, sync_count: int | None = None) -> Self:
        """Read what a process has used so far; nothing when it is gone."""
        directory = Path(f"/proc/{pid}")
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return cls(0.0, 0.0, None, sync_count)
        user_s, system_s = (int(field) / _CLOCK_TICKS for field in fields[11:13])
        return cls(user_s, system_s, _written_bytes(directory), sync_count)

    def __sub__(self, before: Usage) -> Usage:
        """What was used since `before`."""
        return Usage(
            round(self.user_s - before.user_s, 2),
            round(self.system_s - before.system_s, 2),
            _difference(self.written_bytes, before.written_bytes),
            _difference(self.sync_count, before.sync_count),
        )

    @property
    def cpu_s(self) -> float:
        """User and system time together."""
        return self.user_s + self.system_s


class Meter:
    """Reads the members of a cluster before and after what is measured; without a cluster it reads nothing."""

    def __init__(self, cluster: ClusterProcesses | None) -> None:
        self._cluster = cluster
        self._before: dict[str, Usage] = {}
        self._metrics: dict[str, tuple[str, int]] = {}
        self.used: dict[str, Usage] = {}
        """By member name, after `end`."""
        self.resident_bytes: dict[str, int] = {}
        """Memory by member name, after `end`: while clients are still connected."""
        self.client_pids: dict[str, int] = {}
        """Client processes by name, from before `begin`."""
        self.groups: dict[str, list[tuple[int, int]]] = {}
        """Spans of the monotonic clock, in nanoseconds, of which clients are asked besides; by name, after `end`."""

    async def begin(self) -> None:
        """Read what was used so far."""
        syncs = await self._sync_counts()
        self._before = self._read(syncs)

    async def beside(self, measured: asyncio.Event) -> None:
        """Do what is to be done while the clients measure, until `measured` or longer; nothing here."""

    async def end(self) -> None:
        """Read what was used since `begin`; asking for syncs takes processor time, and comes last."""
        after = self._read({})
        self.resident_bytes = {member.name: resident_bytes(member.pid) for member in self._members()}
        if self._before:
            await asyncio.sleep(_PAGE_AGE_S)
        syncs = await self._sync_counts()
        for name, usage in after.items():
            total = Usage(usage.user_s, usage.system_s, usage.written_bytes, syncs.get(name))
            self.used[name] = total - self._before[name]

    def _members(self) -> list[ManagedProcess]:
        return [] if self._cluster is None else [*self._cluster.members.values()]

    def _read(self, syncs: dict[str, int]) -> dict[str, Usage]:
        return {member.name: Usage.of_process(member.pid, syncs.get(member.name)) for member in self._members()}

    async def _sync_counts(self) -> dict[str, int]:
        """Ask every member that has metrics."""
        cluster = self._cluster
        if cluster is None or not cluster.settings.get("metrics_endpoint"):
            return {}
        counts = {}
        for member_id, member in cluster.members.items():
            endpoint = metrics_endpoint(RigMemberLog(cluster.log_path_of(member_id)))
            counts[member.name] = _count_syncs(await fetch_page(endpoint, cluster.network))
        return counts


def usage_report(used: dict[str, Usage], message_count: int) -> dict[str, Any]:  # JSON
    """Return the usage of processes in reports, by name: all of it, and processor time for 100,000 messages."""
    return {
        "cpu_seconds_per_100k": {name: round(usage.cpu_s * 100_000 / message_count, 3) for name, usage in used.items()},
        "usage": {name: asdict(usage) for name, usage in used.items()},
    }


def metrics_endpoint(log: RigMemberLog) -> Endpoint:
    """Where a member's metrics are, by the newest line in which it said so.

    Raises:
        ProcessError: it has not said so.
    """
    found = log.events("metrics.listening")
    if not found:
        raise ProcessError(f"no metrics.listening in {log!r}")
    return Endpoint.parse(str(found[-1]["endpoint"]))


async def fetch_page(endpoint: Endpoint, network: NetworkStack) -> str:
    """Get the page of metrics.

    Raises:
        ProcessError: the member does not give it.
    """
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            reader, writer = await network.dial_streams(Purpose.METRICS, endpoint)
            try:
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {endpoint}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.read()).decode()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise ProcessError(f"no metrics from {endpoint}: {error!r}") from error


def _count_syncs(page: str) -> int:
    """Add up the syncs of all kinds."""
    return sum(int(float(line.split()[-1])) for line in page.splitlines() if line.startswith(_SYNC_METRIC))


def _written_bytes(directory: Path) -> int | None:
    try:
        lines = (directory / "io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), None)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before
