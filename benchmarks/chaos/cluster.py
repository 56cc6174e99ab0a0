"""A cluster that faults are done to: its processes, what stands between them, and which of them should run just now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trimaran.client import ClientConfig
from trimaran.service_api.errors import ClusterError
from trimaran.service_api.member_status import MemberStatus, find_leader, is_in_term

from ..rig.member_status import consensus_endpoint
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..rig.proxies import ProxyMesh
from .backing_up import BackupKeeper, cold_settings
from .probe import (
    JOURNAL_VARIABLE,
    PLANT_VARIABLE,
    PROBED_SERVICE,
    SERVICE_DIR_VARIABLE,
    SERVICE_VARIABLE,
    Plant,
)
from .sampling import Sampler
from .shim import FaultShim, MemberShim

_LOOK_INTERVAL_S: Final = 0.1
_SETTLE_S: Final = 60.0
_GRACE_S: Final = 15.0
"""A member that met a failing disk may end so much later than the fault does."""

SMALL_FILES: Final = {
    "term_length_bytes": str(64 << 10),
    "segment_length_bytes": str(128 << 10),
    "mtu_length_bytes": "8192",
    "file_sync_level": "1",
}
"""Settings of the members: short terms and segments, so that a round has many of them."""


class RecoveryError(ClusterError):
    """What was put right again did not become one cluster."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ChaosSubject:
    """What is to be put under faults."""

    service: str
    """As `module:Class`."""
    service_dir: Path
    member_count: int = 3
    settings: Mapping[str, str] = field(default_factory=dict)
    is_backed_up: bool = False
    """Whether there is a backup of it, and cold storage."""
    plant: Plant | None = None


class ChaosCluster:
    """The processes of one round. Made by `open_cluster`."""

    def __init__(
        self, processes: ClusterProcesses, mesh: ProxyMesh, shims: dict[int, MemberShim], journal_dir: Path
    ) -> None:
        self.processes = processes
        self.mesh = mesh
        self.shims = shims
        self.journal_dir = journal_dir
        self.backup: BackupKeeper | None = None
        self.member_ids = range(processes.member_count)
        self.violations: list[str] = []
        """What should never have happened, in words."""
        self.sampler = Sampler({i: consensus_endpoint(processes, i) for i in self.member_ids}, self._pid_of)
        self.restart_count = 0
        self.ended_count = 0
        """Members that ended by themselves, and should not have."""
        self._down: set[int] = set()
        self._may_end: dict[int, float] = {}
        """By member, until when it may end by itself: it met a disk that failed."""

    def __repr__(self) -> str:
        return f"<ChaosCluster members={len(self.member_ids)} down={sorted(self._down)}>"

    @property
    def client_config(self) -> ClientConfig:
        """How clients connect; the proxies lead them."""
        return ClientConfig(
            endpoints=tuple(self.processes.ingress_endpoints),
            connect_timeout_s=5.0,
            new_leader_timeout_s=20.0,
            client_info="chaos",
        )

    def is_up(self, member_id: int) -> bool:
        """Whether a member should run."""
        return member_id not in self._down

    async def start(self, member_id: int) -> None:
        """Start a member, or start it again."""
        self._down.discard(member_id)
        self.processes.start_member(member_id)
        self.restart_count += 1

    async def kill(self, *member_ids: int) -> None:
        """End members at once, all before any is waited for."""
        for member_id in member_ids:
            self._down.add(member_id)
            self.processes.members[member_id].popen.kill()
        for member_id in member_ids:
            await self.wait_for_end(member_id, 10.0)

    async def wait_for_end(self, member_id: int, timeout_s: float) -> int | None:
        """Wait until a member's process has ended, and return its exit status; None if it has not in time."""
        popen = self.processes.members[member_id].popen
        deadline_s = time.monotonic() + timeout_s
        while True:
            if popen.poll() is not None or time.monotonic() > deadline_s:
                return popen.returncode
            await asyncio.sleep(0.02)

    def expect_end(self, member_id: int) -> None:
        """Note that a member is being stopped: its end is no surprise."""
        self._down.add(member_id)

    def allow_end(self, member_id: int) -> None:
        """Note that a member may end by itself from now on, for a while: its disk fails."""
        self._may_end[member_id] = time.monotonic() + 3_600.0

    def end_allowance(self, member_id: int) -> None:
        """Note that what may end a member is over: it may still be about to end."""
        self._may_end[member_id] = time.monotonic() + _GRACE_S

    async def supervise(self) -> None:
        """Look after members for ever: one that ends by itself is a violation, or is started again where it may."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            for member_id, member in self.processes.members.items():
                if member_id in self._down or member.is_running:
                    continue
                until_s = self._may_end.get(member_id, 0.0)
                if time.monotonic() > until_s:
                    self._down.add(member_id)
                    self.ended_count += 1
                    self.violations.append(
                        f"member {member_id} ended by itself: exit_status={member.popen.returncode} "
                        f"log={member.log_path}\n{member.log_tail(4)}"
                    )
                elif until_s < time.monotonic() + _GRACE_S + 1:
                    await self.start(member_id)

    def check_nobody_ended(self) -> None:
        """Raise if a member ended that should not.

        Raises:
            RecoveryError: one did.
        """
        if self.ended_count:
            raise RecoveryError("the round was given up, because a member ended by itself")

    async def find_leader(self) -> int | None:
        """Ask everybody who leads; None if nobody does."""
        leader = find_leader((await self.sampler.ask_all()).values())
        return None if leader is None else leader.member_id

    async def put_right(self) -> None:
        """Undo whatever still stands: links, disks, clocks; start who is down."""
        self.mesh.heal()
        for shim in self.shims.values():
            shim.clear()
        for member_id in self.member_ids:
            if member_id in self._down:
                await self.start(member_id)

    async def wait_until_in_step(
        self, timeout_s: float = _SETTLE_S, *, check: Callable[[], None] = lambda: None
    ) -> dict[int, MemberStatus]:
        """Wait until all members are in one term and have been given everything that is committed.

        Raises:
            RecoveryError: they were not within the time limit.
            ClusterError: `check`, which is called again and again, found something.
        """
        deadline_s = time.monotonic() + timeout_s
        found: dict[int, MemberStatus] = {}
        while time.monotonic() < deadline_s:
            check()
            found = await self.sampler.ask_all()
            if len(found) == len(self.member_ids) and _is_in_step(found):
                return found
            await asyncio.sleep(_LOOK_INTERVAL_S)
        told = "; ".join(
            f"member {i}: {_told(found[i])}" if i in found else f"member {i}: no answer" for i in self.member_ids
        )
        raise RecoveryError(f"not one cluster again: waited_s={timeout_s:g} {told}")

    async def wait_until_serving(self, member_id: int, timeout_s: float) -> None:
        """Wait until one member leads or follows.

        Raises:
            RecoveryError: it did not within the time limit.
        """
        deadline_s = time.monotonic() + timeout_s
        status = None
        while time.monotonic() < deadline_s:
            status = await self.sampler.ask(member_id)
            if status is not None and is_in_term(status):
                return
            await asyncio.sleep(_LOOK_INTERVAL_S)
        told = "no answer" if status is None else _told(status)
        raise RecoveryError(f"member {member_id} does not serve again: waited_s={timeout_s:g} {told}")

    def journal_path(self, member_id: int) -> Path:
        """Where a member's probe writes."""
        return self.journal_dir / f"member-{member_id}.journal"

    def _pid_of(self, member_id: int) -> int | None:
        member = self.processes.members.get(member_id)
        return None if member is None or not member.is_running else member.pid


@asynccontextmanager
async def open_cluster(
    subject: ChaosSubject, data_dir: Path, group: ProcessGroup, shim: FaultShim | None
) -> AsyncIterator[ChaosCluster]:
    """Start the members, and the proxies between them; the processes are the group's to end."""
    settings = {**SMALL_FILES, **subject.settings}
    if subject.plant is Plant.NO_SYNC:
        settings["file_sync_level"] = "0"
    if subject.is_backed_up:
        settings |= cold_settings(data_dir)
    processes = ClusterProcesses(
        data_dir,
        PROBED_SERVICE,
        subject.member_count,
        service_dir=subject.service_dir,
        settings=settings,
        group=group,
    )
    async with ProxyMesh(processes.base_ports) as mesh:
        mesh.route_clients(asyncio.get_running_loop())
        processes.member_lists = mesh.member_lists
        journal_dir = data_dir / "journals"
        journal_dir.mkdir(parents=True, exist_ok=True)
        shims = {}
        if shim is not None:
            for member_id in range(subject.member_count):
                shims[member_id] = shim.for_member(data_dir / f"shim-{member_id}", processes.directory_of(member_id))
        cluster = ChaosCluster(processes, mesh, shims, journal_dir)
        if subject.is_backed_up and shim is not None:
            backed_up_dir = data_dir / "backup"
            cluster.backup = BackupKeeper(
                processes, shim.for_member(data_dir / "shim-backup", backed_up_dir), cluster.violations
            )
        processes.environments = {i: _environment(subject, cluster, i) for i in cluster.member_ids}
        for member_id in cluster.member_ids:
            processes.start_member(member_id)
        try:
            yield cluster
        finally:
            for member_shim in shims.values():
                member_shim.close()


def _environment(subject: ChaosSubject, cluster: ChaosCluster, member_id: int) -> dict[str, str]:
    shim = cluster.shims.get(member_id)
    return {
        SERVICE_VARIABLE: subject.service,
        SERVICE_DIR_VARIABLE: str(subject.service_dir),
        JOURNAL_VARIABLE: str(cluster.journal_path(member_id)),
        **({PLANT_VARIABLE: subject.plant} if subject.plant is not None else {}),
        **({} if shim is None else shim.environment),
    }


def _is_in_step(found: Mapping[int, MemberStatus]) -> bool:
    leader = find_leader(found.values())
    return leader is not None and all(
        is_in_term(status)
        and status.leadership_term_id == leader.leadership_term_id
        and status.delivered_position == status.commit_position == leader.commit_position == leader.append_position
        for status in found.values()
    )


def _told(status: MemberStatus) -> str:
    return (
        f"{status.state} term={status.leadership_term_id} append={status.append_position} "
        f"commit={status.commit_position} delivered={status.delivered_position}"
    )
