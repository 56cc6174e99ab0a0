"""A cluster that faults are done to: its processes, what stands between them, and which of them should run just now."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from ...client import ClientConfig
from ...cluster.documents.operations import Operation, run_operation
from ...cluster.settings.member_endpoints import format_members, parse_members
from ...service_api.documents.member_status import MemberStatus, find_leader, is_in_term
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterError
from ...service_api.groups.group import Group
from ...service_api.groups.ports import GROUP_PORT_STRIDE
from ...service_api.net.transport import SocketStack
from ..rig.certificates import certificates_in
from ..rig.member_status import consensus_endpoint
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..rig.proxies import ProxyMesh
from .backing_up import BackupKeeper, cold_settings
from .modes import COLD_MODES, ChaosMode
from .probe import (
    JOURNAL_VARIABLE,
    PLANT_VARIABLE,
    PROBED_SERVICE,
    SERVICE_DIR_VARIABLE,
    SERVICE_VARIABLE,
    Plant,
)
from .rotating import CertificateKeeper
from .sampling import Sampler
from .shim import FaultShim, MemberShim

_LOOK_INTERVAL_S: Final = 0.1
_SETTLE_S: Final = 60.0
_SNAPSHOT_S: Final = 15.0
_GRACE_S: Final = 15.0
"""A member that met a failing disk may end so much later than the fault does."""

PLACE_COUNT: Final = 8
"""Members that may be added in a round: clients are told at first where they will be."""

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
    mode: ChaosMode = ChaosMode.FAULTS
    """The kind of round: it decides whether there are a backup, cold storage or certificates."""
    plant: Plant | None = None
    group: Group | None = None
    """The group whose members these are; None: there are no groups."""
    base_ports: tuple[int, ...] = ()
    """The base ports of that group's members."""


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
        self.certificates: CertificateKeeper | None = None
        self.member_ids = list(range(processes.member_count))
        """Who votes, as far as the campaign has changed it."""
        self.removed: dict[int, int] = {}
        """Who was a member, and where in the log its removal ends."""
        self.environment_of: Callable[[int], dict[str, str]] = lambda member_id: {}
        self.violations: list[str] = []
        """What should never have happened, in words."""
        endpoints = {i: consensus_endpoint(processes, i) for i in self.member_ids}
        self.sampler = Sampler(endpoints, self._pid_of, processes.network)
        self.restart_count = 0
        self.ended_count = 0
        """Members that ended by themselves, and should not have."""
        self._down: set[int] = set()
        self._listens: dict[int, str] = {}
        """Where members that were added listen, behind the proxies that the others dial."""
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
            tls=self.processes.client_tls,
            group=self.processes.key_group,
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
            for member_id, member in [*self.processes.members.items()]:
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

    async def make_place(self) -> tuple[int, tuple[str, ...]]:
        """Make what one member more needs; gives its id, and where the others are to dial it."""
        processes, member_id = self.processes, len(self.member_ids) + len(self.removed)
        base_port = processes.base_ports[member_id]
        own = await self.mesh.add(member_id, base_port)
        self._listens[member_id] = f"127.0.0.1:{base_port}"
        self.mesh.member_lists[member_id] = format_members([own])
        self.prepare_to_join(member_id)
        self.sampler.add(member_id, consensus_endpoint(processes, member_id))
        return member_id, own.endpoints

    def prepare_to_join(self, member_id: int) -> None:
        """Have a member that is started without a directory join those that are members now."""
        processes, lists = self.processes, self.mesh.member_lists
        lists[member_id] = format_members(
            [one for one in parse_members(lists[member_id]) if one.member_id == member_id]
        )
        others = ",".join(f"{i}=127.0.0.1:{processes.base_ports[i]}" for i in self.member_ids if i != member_id)
        variables = {"TRIMARAN_JOIN": others, **self.environment_of(member_id)}
        if member_id in self._listens:
            variables["TRIMARAN_LISTEN"] = self._listens[member_id]
        processes.environments = {**processes.environments, member_id: variables}

    def forget(self, member_id: int, log_position: int) -> None:
        """Note that a member was removed, and where in the log."""
        self.member_ids.remove(member_id)
        self.removed[member_id] = log_position
        self.sampler.forget(member_id)

    async def take_snapshot(self, leader_id: int) -> str:
        """Have all members take a snapshot, and return what the leader said of it."""
        endpoint, network = consensus_endpoint(self.processes, leader_id), self.processes.network
        told = "no answer"
        try:
            async for step in run_operation(endpoint, Operation.SNAPSHOT, _SNAPSHOT_S, network=network):
                told = f"{step.step} log_position={step.log_position} {step.detail}".strip()
        except ClusterError as error:
            return str(error)
        return told

    async def empty_disks(self) -> None:
        """Have log leave the members' disks for cold storage, and wait until the store has it.

        Raises:
            RecoveryError: it did not within the time limit.
        """
        leader_id, told = await self.find_leader(), "nobody led"
        if leader_id is not None:
            told = await self.take_snapshot(leader_id)
        deadline_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline_s:
            await asyncio.sleep(2 * _LOOK_INTERVAL_S)
            found = (await self.sampler.ask_all()).values()
            pending = [None if each.cold_storage is None else each.cold_storage.pending_bytes for each in found]
            if pending == [0] * len(self.member_ids):
                return
            self.check_nobody_ended()
        raise RecoveryError(f"log did not leave for cold storage: waited_s={_SETTLE_S:g} {pending=} snapshot: {told}")

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
            answers = await self.sampler.ask_all()
            found = {i: answers[i] for i in self.member_ids if i in answers}
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
    if subject.mode in COLD_MODES:
        settings |= cold_settings(data_dir)
    processes = ClusterProcesses(
        data_dir,
        PROBED_SERVICE,
        subject.member_count,
        service_dir=subject.service_dir,
        settings=settings,
        group=group,
        key_group=subject.group,
        base_ports=[] if subject.group is None else [*subject.base_ports],
        with_tls=subject.mode is ChaosMode.TLS,
        place_count=PLACE_COUNT if subject.mode is ChaosMode.MEMBERSHIP else 0,
    )
    if subject.mode is ChaosMode.MEMBERSHIP:  # a member behind proxies has its control socket at the address of those
        places = {i: Endpoint.parse(consensus_endpoint(processes, i)) for i in range(len(processes.base_ports))}
        directories = {endpoint: processes.directory_of(i) for i, endpoint in places.items()}
        processes.network = SocketStack(member_directories=directories)
    async with ProxyMesh(processes.base_ports[: subject.member_count]) as mesh:
        mesh.route_clients(asyncio.get_running_loop())
        processes.member_lists = mesh.member_lists
        if subject.group is not None:
            processes.member_lists = {i: for_group_0(text, subject.group) for i, text in mesh.member_lists.items()}
        journal_dir = data_dir / "journals"
        journal_dir.mkdir(parents=True, exist_ok=True)
        shims = {}
        if shim is not None:
            for member_id in range(subject.member_count):
                shims[member_id] = shim.for_member(data_dir / f"shim-{member_id}", processes.directory_of(member_id))
        cluster = ChaosCluster(processes, mesh, shims, journal_dir)
        if processes.with_tls:
            cluster.certificates = CertificateKeeper(
                certificates_in(data_dir).directory, Random(f"{data_dir.name} certificates")
            )
        if subject.mode is ChaosMode.BACKED_UP and shim is not None:
            backed_up_dir = data_dir / "backup"
            cluster.backup = BackupKeeper(
                processes, shim.for_member(data_dir / "shim-backup", backed_up_dir), cluster.violations
            )
        cluster.environment_of = partial(_environment, subject, cluster)
        processes.environments = {i: cluster.environment_of(i) for i in cluster.member_ids}
        for member_id in cluster.member_ids:
            processes.start_member(member_id)
        try:
            yield cluster
        finally:
            for member_shim in shims.values():
                member_shim.close()


def for_group_0(members: str, group: Group) -> str:
    """Write the members of a group as the setting `members` has them, with the ports of group 0."""
    return re.sub(r":(\d+)", lambda found: f":{int(found[1]) - GROUP_PORT_STRIDE * group.index}", members)


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
