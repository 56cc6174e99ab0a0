"""A whole cluster of real nodes on simulated machines, and the clients that use it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from ....archive.disk.file_system import FileSystem
from ....service_api import ClusteredService
from ....service_api.access.identity import Caller, CallerRole, Proof
from ....service_api.endpoint import Endpoint
from ....service_api.groups.group import ONLY_GROUP, Group
from ....service_api.groups.ports import GROUP_PORT_STRIDE, group_endpoint
from ....service_api.types import MemberId
from ...core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind, derive_endpoints
from ...node.node import Node
from ...runtime.ground.agent_door import NodeEnd
from ...runtime.links.gathered_ingress import LEAST_CONNECTIONS
from ...settings.config import NodeConfig
from ...settings.groups import group_members, of_group
from ...settings.member_endpoints import MemberEndpoints, format_members, parse_witnesses
from .services.service_faults import ServiceFailure
from .world.machine import Machine, Site
from .world.network import Network
from .world.object_store import SimulatedObjects, SimulatedStore
from .world.scheduler import Scheduler

DIRECTORY: Final = Path("/trimaran")
_BASE_PORT: Final = 20_110
_PORT_STEP: Final = 10
"""How far a member that moves goes; between the ports of two groups there is room for this often."""
PLACE_LIMIT: Final = GROUP_PORT_STRIDE // _PORT_STEP
"""How many places a member can be at, one after another."""
_ALWAYS_NS: Final = 1 << 62


def _default(name: str) -> Any:
    """The default of a setting of `NodeConfig`."""
    return NodeConfig.model_fields[name].default


@dataclass(slots=True, frozen=True, kw_only=True)
class Settings:
    """What the members of one simulated cluster are told, by the names of `NodeConfig`, and what is done to them.

    Times in milliseconds, lengths in bytes.
    """

    member_count: int = 3
    witnesses: str = _default("witnesses")
    leader_heartbeat_timeout_ms: int = _default("leader_heartbeat_timeout_ms")
    leader_heartbeat_interval_ms: int = _default("leader_heartbeat_interval_ms")
    election_timeout_ms: int = _default("election_timeout_ms")
    election_status_interval_ms: int = _default("election_status_interval_ms")
    startup_canvass_timeout_ms: int = _default("startup_canvass_timeout_ms")
    session_timeout_ms: int = _default("session_timeout_ms")
    term_length_bytes: int = 64 << 10
    segment_length_bytes: int = 128 << 10
    mtu_length_bytes: int = 1_408
    ingress_window_bytes: int = 256 << 10
    file_sync_level: int = _default("file_sync_level")
    spare_sync_delay_us: int = 0
    is_copied: bool = False
    """Whether leaders batch as they do while somebody copies their log; here a copy takes no time."""
    gathers_from: int = LEAST_CONNECTIONS
    """How many connections a member has that gathers what they bring in one pass of its loop."""
    snapshot_interval_ms: int = 0
    snapshot_log_bytes: int = 0
    keep_all: bool = True
    keep_snapshots: int = _default("keep_snapshots")
    keep_log_bytes: int = 0
    cold_storage_url: str = _default("cold_storage_url")
    cold_cache_bytes: int = _default("cold_cache_bytes")
    double_execution: bool = _default("double_execution")
    scrub_bytes_per_s: int = 0
    scrub_interval_ms: int = 60_000

    @property
    def leader_heartbeat_timeout_ns(self) -> int:
        """The unit of time of faults and of what clients do."""
        return self.leader_heartbeat_timeout_ms * 1_000_000


class Member:
    """One member: its machine, and the node on it while it runs."""

    def __init__(self, machine: Machine, config: NodeConfig) -> None:
        self.machine, self.config = machine, config
        self.member_id = MemberId(config.member_id)
        self.node: Node | None = None
        """The node of the running process, once its files are open."""
        self.refusal: BaseException | None = None
        """Why the last process ended by itself, if it did."""
        self.service_failure = ServiceFailure()

    def __repr__(self) -> str:
        return f"<Member {self.member_id} {self.node!r}>"

    @property
    def consensus_port(self) -> int:
        """Where it hears other members."""
        return Endpoint.parse(self.config.me.consensus).port

    @property
    def is_running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self.machine.is_running

    @property
    def is_paused(self) -> bool:
        """Whether its process stands still."""
        return self.machine.loop is not None and self.machine.loop.is_paused

    @property
    def is_leader(self) -> bool:
        """Whether it leads a term."""
        return self.node is not None and self.node.module.leader is not None


class World:
    """What the groups of a simulated cluster share: time, the network, the machines, and who is no member."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(f"{seed} network"))
        self.sites: dict[str, Site] = {}
        """The machines of members, by address: each has a process of every group."""
        self.clients: dict[str, Machine] = {}

    def __repr__(self) -> str:
        return f"<World seed={self.seed} now={self.scheduler.now_ns / 1e9:.3f}s machines={[*self.sites]}>"


class SimulatedCluster:
    """Members, clients and the time they live in. Everything that chance decides comes from one seed.

    In a cluster with groups it is one of them: its members, on machines that it shares with those of other groups.
    """

    def __init__(
        self,
        seed: int,
        settings: Settings,
        make_service: Callable[[Member], ClusteredService],
        *,
        make_others: Callable[[Member], Sequence[ClusteredService]] = lambda member: (),
        clock_skew: Callable[[Random], tuple[int, int]] = lambda random: (0, 0),
        world: World | None = None,
        group: Group = ONLY_GROUP,
    ) -> None:
        """Make the members. Without a `world` it has one of its own."""
        self.seed, self.settings, self.group = seed, settings, group
        self.world = world or World(seed)
        self.scheduler, self.network = self.world.scheduler, self.world.network
        self.random = Random(f"{seed} cluster")
        self.store = SimulatedStore(Random(f"{seed} store"))
        self.unhandled: list[tuple[str, BaseException | str]] = []
        """What no process caught: address and error."""
        self.on_node: Callable[[Member], None] = lambda member: None
        """Called when a member's node has been made."""
        self.on_member: Callable[[Member], None] = lambda member: None
        """Called when a member has been made that was not there in the beginning."""
        self.on_member_exit: Callable[[Member, BaseException | None], None] = lambda member, error: None
        self._make_service, self._make_others, self._clock_skew = make_service, make_others, clock_skew
        self._disks = Random(f"{seed} disks")
        self._named = tuple(_at(number, _BASE_PORT) for number in range(settings.member_count))
        """The members as settings name them: at the ports of group 0."""
        founders = group_members(self._named, group.index)
        witness_ids = parse_witnesses(settings.witnesses)
        self.founding = Configuration.of_settings(
            (
                founder.configured(MemberKind.WITNESS if founder.member_id in witness_ids else MemberKind.VOTER)
                for founder in founders
            ),
            group,
        )
        """The members that the cluster begins with."""
        self.members = {
            MemberId(founder.member_id): self._make_member(founder.member_id, self._named) for founder in founders
        }
        """Every member that there is or was, whatever the cluster takes it for."""
        self.clients = self.world.clients

    def __repr__(self) -> str:
        group = "" if self.group == ONLY_GROUP else f" {self.group}"
        now_s = self.scheduler.now_ns / 1e9
        return f"<SimulatedCluster seed={self.seed}{group} now={now_s:.3f}s {[*self.members.values()]}>"

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.scheduler.now_ns

    @property
    def ingress_endpoints(self) -> tuple[str, ...]:
        """Where clients connect."""
        return tuple(member.config.me.ingress for member in self.members.values())

    def _make_member(self, number: int, members: Sequence[MemberEndpoints], join: str = "") -> Member:
        address = f"member-{number}"
        machine = self._make_machine(address, site=self.world.sites.get(address))
        self.world.sites[address] = machine.site
        self.network.identify(machine.address, Caller(CallerRole.MEMBER, str(number), Proof.CERTIFICATE))
        told = asdict(self.settings)
        del told["member_count"], told["gathers_from"]
        if join:
            del told["witnesses"]  # who joins brings a service
        machine.spare_sync_delay_us = told.pop("spare_sync_delay_us")
        is_tuned = told.pop("is_copied") or machine.spare_sync_delay_us
        config = NodeConfig(
            member_id=number,
            members=tuple(members),
            join=format_members(self._named) if join else "",
            directory=DIRECTORY,
            service="simulation:Service",
            shared_machine="on" if is_tuned else "off",
            check_queries=True,
            groups=self.group.count,
            **told,
        )
        # Each group has a disk of its own here, and whom to join it knows from the group itself.
        config = of_group(config, self.group.index).model_copy(update={"directory": DIRECTORY, "join": join})
        member = Member(machine, config)
        machine.on_exit = lambda error: self._on_exit(member, error)
        return member

    def add_member(self, number: int, known: Iterable[ConfiguredMember], *, is_standby: bool = False) -> Member:
        """Make a member that is to join the cluster by the members that are known; it is not started."""
        member = self._make_member(number, (_at(number, _BASE_PORT),), _format_seeds(known))
        member.config = member.config.model_copy(update={"standby": is_standby})
        self.members[member.member_id] = member
        self.on_member(member)
        return member

    def set_log_source(self, member: Member, source_id: MemberId | None) -> None:
        """Correct the settings of a standby: from its next start on it takes the log from there; None: the leader."""
        member.config = member.config.model_copy(update={"log_source": "" if source_id is None else str(source_id)})

    def rejoin(self, member: Member, known: Iterable[ConfiguredMember]) -> None:
        """Correct the settings of a member whose directory is empty: it joins by the members that are known.

        Also a standby: it may be a voter by then, and one that says that it is a standby is refused.
        """
        seeds = _format_seeds(one for one in known if one.member_id != member.member_id)
        member.config = member.config.model_copy(
            update={"members": (member.config.me,), "join": seeds, "standby": False}
        )

    def move(self, member: Member, endpoints: tuple[str, str, str, str, str]) -> None:
        """Correct the settings of a member that was moved; its process must not run."""
        assert not member.is_running
        mine = MemberEndpoints.from_base(member.member_id, endpoints[0])
        members = tuple(mine if one.member_id == member.member_id else one for one in member.config.members)
        member.config = member.config.model_copy(update={"members": members})

    def endpoints_at(self, number: int, place: int) -> tuple[str, str, str, str, str]:
        """Where a member of this group can be dialled: at another place, other ports of its machine."""
        return derive_endpoints(group_endpoint(f"member-{number}:{_BASE_PORT + place * _PORT_STEP}", self.group.index))

    def _make_machine(self, address: str, *, site: Site | None = None) -> Machine:
        drift_ppm, epoch_offset_ns = self._clock_skew(self.random)
        machine = Machine(
            self.scheduler,
            self.network,
            self._disks,
            address,
            drift_ppm=drift_ppm,
            epoch_offset_ns=epoch_offset_ns,
            site=site,
        )
        machine.on_error = lambda context: self._on_unhandled(address, context)
        machine.open_objects = partial(self.open_objects, machine)
        return machine

    def open_objects(self, machine: Machine, url: str, disk: FileSystem | None = None) -> SimulatedObjects:
        """Open a place of the store for a machine, with the files of its disk unless another one is given."""
        return SimulatedObjects(self.store, machine, machine.disk if disk is None else disk, url)

    # --- members

    def start(self, member_id: int) -> None:
        """Start a member's process, and its machine if that is off."""
        member = self.members[MemberId(member_id)]
        if member.is_running:
            return
        if not member.machine.has_power:
            member.machine.regain_power()
        member.refusal = None
        member.machine.start(lambda: self._run(member))

    async def _run(self, member: Member) -> None:
        end: NodeEnd | None = None
        while end is None or end.is_restart:
            is_witness = member.config.is_witness
            services = () if is_witness else (self._make_service(member), *self._make_others(member))
            holds, host = end is NodeEnd.ENTRY_HELD, member.machine.host()
            async with Node.open(member.config, *services, host=host, holds=holds) as node:
                member.node = node
                node.parts.links.ingress.gathered.least_connections = self.settings.gathers_from
                if self.settings.is_copied:
                    node.agent.tuning.on_loop_shared(_ALWAYS_NS)
                self.on_node(member)
                end = await node.run()
                member.node = None

    def kill(self, member_id: int) -> None:
        """SIGKILL: the process ends, the machine goes on."""
        member = self.members[MemberId(member_id)]
        member.machine.kill()
        member.node = None

    def lose_power(self, member_id: int, keep: Callable[[], bool]) -> None:
        """The machine stops; of what was not synced only what `keep` says survives."""
        member = self.members[MemberId(member_id)]
        member.machine.lose_power(keep)
        member.node = None

    def wipe(self, member_id: int) -> None:
        """Empty a member's directory; its process must not run."""
        member = self.members[MemberId(member_id)]
        assert not member.is_running
        member.machine.replace_disk()

    def pause(self, member_id: int) -> None:
        """SIGSTOP."""
        loop = self.members[MemberId(member_id)].machine.loop
        if loop is not None:
            loop.pause()

    def resume(self, member_id: int) -> None:
        """SIGCONT."""
        loop = self.members[MemberId(member_id)].machine.loop
        if loop is not None and loop.is_paused:
            loop.resume()

    def running(self) -> Iterator[Member]:
        """Every member whose process is there and does not stand still."""
        return (member for member in self.members.values() if member.is_running and not member.is_paused)

    def leader(self) -> Member | None:
        """The running member that leads the highest term, if one leads."""
        best: Member | None = None
        for member in self.running():
            if member.is_leader and (best is None or _term(member) > _term(best)):
                best = member
        return best

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        member.node = None
        member.refusal = error
        self.on_member_exit(member, error)

    def _on_unhandled(self, address: str, context: dict[str, Any]) -> None:
        self.unhandled.append((address, context.get("exception") or context["message"]))

    # --- clients

    def add_client(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Machine:
        """Start a client's process on a machine of its own; it shows no certificate, unless `identify` said so."""
        machine = self.add_client_machine(name)
        machine.start(main)
        return machine

    def add_client_machine(self, name: str) -> Machine:
        """Make a machine for what is no member, without a process."""
        machine = self.clients[name] = self._make_machine(name)
        return machine

    # --- time

    def run_for(self, duration_ns: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.now_ns + duration_ns)

    def run_until(self, is_done: Callable[[], bool], *, limit_ns: int) -> bool:
        """Let time pass until something holds; False if it did not within the limit."""
        return self.scheduler.run_until(self.now_ns + limit_ns, is_done=is_done)

    def close(self) -> None:
        """End every process; nothing can be run afterwards."""
        machines = [member.machine for member in self.members.values()] + [*self.clients.values()]
        for machine in machines:
            machine.kill()
        with _unheard():
            for machine in machines:
                machine.bury()


def _at(number: int, port: int) -> MemberEndpoints:
    return MemberEndpoints.from_base(number, f"member-{number}:{port}")


def dialled(known: Iterable[ConfiguredMember]) -> tuple[MemberEndpoints, ...]:
    """Where members are dialled that are known by their ingress."""
    return tuple(MemberEndpoints.from_base(one.member_id, one.ingress) for one in known)


def _format_seeds(known: Iterable[ConfiguredMember]) -> str:
    return format_members(dialled(known))


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Let nobody hear what the dead say while they are buried."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _term(member: Member) -> int:
    assert member.node is not None
    return member.node.module.ctx.leadership_term_id
