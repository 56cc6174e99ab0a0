"""The faults of a simulated cluster: each kind with its own rate and its own generator, drawn for each seed.

Kinds are independent: each has a generator of its own, so that leaving one out changes nothing about when the others
strike. That is what makes a failure shrink. The atlas keeps the damage survivable: at most a minority of the members
is ever without a sound copy of its files, since no cluster survives more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.core.vocabulary.members import quorum_threshold
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME
from trimaran.cluster.testing.simulation.backups.actor import BACKUP
from trimaran.cluster.testing.simulation.backups.scrubs import SCRUB
from trimaran.cluster.testing.simulation.clients.queries import QUERY_KIND
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member, SimulatedCluster
from trimaran.cluster.testing.simulation.faults.disk_faults import DiskFaults, draw_bit, no_fault, process_gone
from trimaran.cluster.testing.simulation.faults.hidden_flip import HiddenFlip, voters_of
from trimaran.cluster.testing.simulation.faults.member_orders import MemberOrders
from trimaran.cluster.testing.simulation.faults.network_faults import NetworkFaults
from trimaran.cluster.testing.simulation.faults.operator import Operator
from trimaran.cluster.testing.simulation.faults.standby_chains import CHAIN, SourceFaults, StandbyChains
from trimaran.cluster.testing.simulation.groups.drawing import GROUPS, SESSIONS
from trimaran.cluster.testing.simulation.rules.cold_rules import COLD
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.services.relay import RELAY
from trimaran.cluster.testing.simulation.trace import Trace
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api import ClusterError, ConfigurationError
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME

_MS: Final = 1_000_000
_CATALOG: Final = "archive/archive.catalog"
_RECORDING_LOG: Final = f"cluster/{RECORDING_LOG_FILE_NAME}"
_NODE_STATE: Final = f"cluster/{NODE_STATE_FILE_NAME}"


@dataclass(slots=True, frozen=True)
class Kind:
    """A kind of fault: how often a seed has it at all, and its mean interval there, in heartbeat timeouts."""

    name: str
    chance: float
    interval: float
    strike: Callable[[Nemesis, Random], bool]
    """Makes it happen; False if there was nothing to strike."""
    is_shared: bool = False
    """Whether it strikes machines and what is between them, and so every group that there is."""


class Nemesis:
    """Makes things go wrong, and repairs them after a while, as an operator would.

    In a cluster with groups each has its own. What strikes machines is done by the first one, to the members of all
    groups; what strikes a process is sometimes done to the processes of all groups on a machine.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        referee: Referee,
        trace: Trace,
        *,
        without: frozenset[str],
        kill_client: Callable[[Random], bool],
        beside: Sequence[Nemesis] = (),
    ) -> None:
        """Begin; `beside` are those of the groups before this one."""
        self.fired: dict[str, int] = dict.fromkeys(KIND_NAMES, 0)
        self._cluster, self._referee, self._trace = cluster, referee, trace
        self.kill_client: Callable[[Random], bool] = kill_client
        self._scheduler = cluster.scheduler
        self._unit_ns = cluster.settings.leader_heartbeat_timeout_ms * _MS
        self._is_over = False
        self._excused: dict[MemberId, str] = {}
        """Members that may stop by themselves, and which fault is to blame."""
        self._abandoned: list[Member] = []
        """Members that are left for dead in the end."""
        self._restart_random = Random(f"{cluster.seed} restart")
        self._keep_random = Random(f"{cluster.seed} keep")
        self.operator: Operator = Operator(cluster, unit_ns=self._unit_ns, after=self._after)
        self.network: NetworkFaults = NetworkFaults(
            cluster,
            unit_ns=self._unit_ns,
            after=self._after,
            draw_member=self._member,
            draw_duration_ns=self._duration_ns,
        )
        self.disks: DiskFaults = DiskFaults(
            cluster, after=self._after, draw_member=self._member, draw_duration_ns=self._duration_ns
        )
        self.orders: MemberOrders = MemberOrders(
            cluster,
            referee.membership,
            unit_ns=self._unit_ns,
            after=self._after,
            is_safe=self._is_safe,
            start=self._start_for_good,
            stop=self._stop_to_move,
            on_added=self.disks.draw_timing,
        )
        self.hidden_flip: HiddenFlip = HiddenFlip(
            cluster, referee, self.orders, may_strike=lambda: not self._excused, lose_disk=self._lose_disk
        )
        does = SourceFaults(self._kill_member, self._pause_member, self._wipe_member, self.network.between)
        self.chains: StandbyChains = StandbyChains(cluster, referee.membership, self.orders, does)
        self._retired: dict[MemberId, None] = {}
        """Members that were removed, and are not started any more."""
        self._removal_random = Random(f"{cluster.seed} removed")
        cluster.on_member_exit = self._on_exit
        self._groups: list[Nemesis] = [*beside, self]
        for other in beside:
            other._groups.append(self)
        self._plan_all(without)
        self._after(self._unit_ns // 8, self._look_after_damage)

    def __repr__(self) -> str:
        return f"<Nemesis fired={ {name: count for name, count in self.fired.items() if count} }>"

    # --- when

    def _plan_all(self, without: frozenset[str]) -> None:
        for kind in KINDS:
            random = Random(f"{self._cluster.seed} {kind.name}")
            is_mine = self._groups[0] is self or not kind.is_shared
            if random.random() < kind.chance and kind.name not in without and is_mine:
                self._plan(kind, random)

    def _plan(self, kind: Kind, random: Random) -> None:
        delay_ns = int(random.expovariate(1.0) * kind.interval * self._unit_ns) + 1
        self._after(delay_ns, self._strike, kind, random)

    def _strike(self, kind: Kind, random: Random) -> None:
        if self._is_over:
            return
        if kind.strike(self, random):
            self.fired[kind.name] += 1
            self._trace.on_fault(kind.name)
        self._plan(kind, random)

    def _after(self, delay_ns: int, action: Callable[..., object], *args: object) -> None:
        self._scheduler.call_after(delay_ns, action, *args)

    def _duration_ns(self, random: Random, mean: float) -> int:
        return int(random.expovariate(1.0) * mean * self._unit_ns) + _MS

    def _member(self, random: Random, *, prefer_leader: float = 0.4) -> Member:
        members = self._active()
        chosen, wants_leader = random.choice(members), random.random() < prefer_leader
        leader = self._cluster.leader()
        return leader if wants_leader and leader is not None else chosen

    def _active(self) -> list[Member]:
        return [member for member in self._cluster.members.values() if member.member_id not in self._retired]

    # --- processes and machines

    def _on_machine(self, member: Member) -> list[tuple[Nemesis, Member]]:
        """Return the members of all groups on the machine of one, each with who strikes it."""
        found = ((each, each._cluster.members.get(member.member_id)) for each in self._groups)
        return [(each, one) for each, one in found if one is not None]

    def _victims(self, member: Member, random: Random) -> list[tuple[Nemesis, Member]]:
        """Return who is struck: a group's process alone, or with those of the other groups on its machine."""
        everyone = self._on_machine(member)
        return everyone if len(everyone) == 1 or random.random() < 0.5 else [(self, member)]

    def _kill(self, random: Random) -> bool:
        victims = self._victims(self._member(random), random)
        return _any_of(each._kill_member(one, random) for each, one in victims)

    def _kill_leader(self, random: Random) -> bool:
        leader = self._cluster.leader()
        if leader is None:
            return False
        return _any_of(each._kill_member(one, random) for each, one in self._victims(leader, random))

    def _kill_member(self, member: Member, random: Random) -> bool:
        if not member.is_running:
            return False
        if self._excused.get(member.member_id) == "stop":
            del self._excused[member.member_id]
        self._cluster.kill(member.member_id)
        self._restart_later(member, random)
        return True

    def _stop(self, random: Random) -> bool:
        """SIGTERM: the member stops in order."""
        return _any_of(each._stop_member(one) for each, one in self._victims(self._member(random), random))

    def _stop_all(self, random: Random) -> bool:
        """All at once, as an operator would restart a cluster."""
        stopped = [self._stop_member(member) for member in self._active()]
        return any(stopped)

    def _stop_member(self, member: Member) -> bool:
        loop, node = member.machine.loop, member.node
        if loop is None or node is None or member.member_id in self._excused:
            return False
        self._excused[member.member_id] = "stop"
        loop.call_soon(node.departure.begin)
        return True

    def _power_loss(self, random: Random) -> bool:
        member = self._member(random)
        if not member.machine.has_power or self._has_damage(member):
            return False  # a flipped bit and a torn write in one place cannot be told apart: the atlas has one or other
        self._cut_power(member, random)
        return True

    def _has_damage(self, member: Member) -> bool:
        """Whether files on its machine are damaged, of whatever group."""
        return any(one.member_id in each._referee.damaged for each, one in self._on_machine(member))

    def _power_loss_all(self, random: Random) -> bool:
        members = self._active()
        if any(self._has_damage(member) for member in members):
            return False
        for member in members:
            if member.machine.has_power:
                self._cut_power(member, random)
        return True

    def _cut_power(self, member: Member, random: Random) -> None:
        rate = random.choice((0.0, 0.5, 0.5, 1.0))
        for each, one in self._on_machine(member):
            each._lose_power(one, rate, random)

    def _lose_power(self, member: Member, rate: float, random: Random) -> None:
        """The machine of a member stops; it keeps a part of what was not synced."""
        keep, was_running = self._keep_random, member.is_running
        if self._excused.get(member.member_id) == "stop":
            del self._excused[member.member_id]
        self._cluster.lose_power(member.member_id, lambda: keep.random() < rate)
        if was_running or len(self._groups) == 1:  # of another group it may not have begun yet
            self._restart_later(member, random)

    def _end_midway(self, random: Random) -> bool:
        """The machine or the process stops between two operations of the disk, in the middle of a job or not."""
        member = self._member(random)
        machine = member.machine
        remaining, is_power = random.randrange(1, 30), random.random() < 0.7
        if not member.is_running or member.member_id in self._excused or self._has_damage(member):
            return False

        def stop(name: str, path: object, length: int) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0 and member.is_running:
                machine.on_disk_operation = process_gone
                if is_power and not self._has_damage(member):
                    self._cut_power(member, random)
                else:
                    self._kill_member(member, random)
                process_gone(name, path, length)

        machine.on_disk_operation = stop
        return True

    def _pause(self, random: Random) -> bool:
        return _any_of(each._pause_member(one, random) for each, one in self._victims(self._member(random), random))

    def _pause_member(self, member: Member, random: Random) -> bool:
        if not member.is_running or member.is_paused:
            return False
        self._cluster.pause(member.member_id)
        self._after(self._duration_ns(random, 1.0), self._cluster.resume, member.member_id)
        return True

    def _restart_later(self, member: Member, random: Random) -> None:
        self._after(self._duration_ns(random, 0.7), self._restart, member)

    def _restart(self, member: Member) -> None:
        if not self._is_over and not member.is_running and not self._retires(member):
            if member.machine.on_disk_operation is process_gone:
                member.machine.on_disk_operation = no_fault
            self._cluster.start(member.member_id)

    # --- services

    def _service_failure(self, random: Random) -> bool:
        member = self._member(random)
        if not member.is_running or member.member_id in self._excused:
            return False
        self._excused[member.member_id] = "service_failure"
        member.service_failure.arm(random)
        return True

    # --- what an operator asks for

    def _leave_behind(self, random: Random) -> bool:
        """A member is away, with its disk or without, while the others take snapshots and purge their logs."""
        settings, member = self._cluster.settings, self._member(random, prefer_leader=0.1)
        is_wiped = random.random() < 0.4
        if settings.keep_all or not member.is_running or member.member_id in self._excused:
            return False
        if is_wiped and not self._may_damage(member):
            return False
        self._cluster.kill(member.member_id)
        if is_wiped:
            self._referee.damaged[member.member_id] = None
            self._wipe_directory(member)
        for number in range(1, settings.keep_snapshots + 2):
            self._after(number * self._unit_ns, self._snapshot_unless_over, random)
        self._after((settings.keep_snapshots + 2) * self._unit_ns, self._restart, member)
        return True

    def _snapshot_unless_over(self, random: Random) -> None:
        if not self._is_over:
            self.operator.snapshot(random)

    # --- clocks

    def _clock_jump(self, random: Random) -> bool:
        clock = self._member(random).machine.clock
        clock.epoch_offset_ns += int(random.uniform(-1, 1) * random.choice((100, 1_000, 60_000, 3_600_000)) * _MS)
        return True

    # --- disks

    def _disk_error(self, random: Random) -> bool:
        """One operation of the disk fails: the node stops, and may start again."""
        member = self._member(random)
        remaining = random.randrange(1, 60)

        def fail(name: str, path: object, length: int) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                member.machine.on_disk_operation = no_fault
                if name == "sync":
                    assert isinstance(path, Path)
                    member.machine.disk.drop_unsynced(path)
                raise OSError(errno.EIO, "simulated disk error", str(path))

        if not member.is_running or member.member_id in self._excused:
            return False
        self._excused[member.member_id] = "disk_error"
        member.machine.on_disk_operation = fail
        return True

    def _disk_full(self, random: Random) -> bool:
        member = self._member(random)
        disk = member.machine.disk
        if not member.is_running or member.member_id in self._excused:
            return False
        self._excused[member.member_id] = "disk_full"
        disk.capacity_bytes = disk.used_bytes + random.choice((0, 10_000, 200_000))
        self._after(self._duration_ns(random, 1.0), self._free_disk, member)
        return True

    def _free_disk(self, member: Member) -> None:
        member.machine.disk.capacity_bytes = None

    # --- damage, which the atlas allows to a minority only

    def _may_damage(self, member: Member) -> bool:
        damaged = self._referee.damaged
        if member.member_id in damaged or member.member_id in self._excused or not member.machine.has_power:
            return False
        referee = self._referee
        if referee.membership.is_removed(member.member_id):
            return False  # nobody gives it another directory: two of them may take each other for a new cluster
        able = {
            other.member_id
            for other in self._active()
            if other is not member
            and other.member_id not in damaged
            and referee.may_vote(other)
            and referee.has_joined(other)
        }
        # The others must be able to do without it, also while their cluster is forming. Who never voted cannot help;
        # who never joined it would, with one that was emptied, take both for a new cluster.
        return all(2 * len(able & each.voter_ids) > len(each.voter_ids) for each in self.orders.reachable())

    def _is_safe(self, configuration: Configuration) -> bool:
        """Whether members with sound files are a majority of the voters."""
        voters = [self._cluster.members[member_id] for member_id in configuration.voter_ids]
        return 2 * len([voter for voter in voters if self._is_able(voter)]) > len(voters)

    def _is_able(self, member: Member) -> bool:
        return member.member_id not in self._referee.damaged and self._referee.may_vote(member)

    def _flip_recording(self, random: Random) -> bool:
        """Flip a bit of an entry that every member should have: a disk that lies."""
        member = self._member(random)
        ends = [end for end in self._referee.delivered if end < len(self._referee.committed) - 8_192]
        if len(ends) < 3 or not self._may_damage(member) or not self._referee.has_committed(member):
            return False
        if member.node is None:
            return False  # its last start may have been before a power loss: the next one takes a flip for a tear
        segment_length = member.config.segment_length_bytes
        newest_base = len(self._referee.committed) // segment_length * segment_length
        newest = [end for end in ends[:-1] if end > newest_base]
        if newest and random.random() < 0.5:
            ends = newest  # where the next start looks for the end of the log: it must not take this for the end
        begin = ends[random.randrange(len(ends) - bool(len(ends) > 1))]
        place = draw_bit(begin, member, random)
        if place is None:
            return False
        if member.is_running and random.random() < 0.7:
            self._kill_member(member, random)
        path, offset, bit = place
        return self._flip(member, path, offset, bit, random)

    def _flip_small_file(self, random: Random, name: str, begin: int, end: int) -> bool:
        """Flip a bit in a file that is read at a start, of a member that is killed for it."""
        member = self._member(random)
        if not self._may_damage(member):
            return False
        if member.is_running:
            self._kill_member(member, random)
        offset, bit = random.randrange(begin, end), 1 << random.randrange(8)
        return self._flip(member, Path(DIRECTORY / name), offset, bit, random)

    def _flip(self, member: Member, path: Path, offset: int, bit: int, random: Random) -> bool:
        disk = member.machine.disk
        data = disk.durable_read(path, 1, offset)
        if not data:
            return False
        disk.damage(path, offset, bytes([data[0] ^ bit]))
        self._referee.damaged[member.member_id] = None
        self._excused[member.member_id] = "flip"
        self._after(self._duration_ns(random, 1.0), self._scrub, member)
        return True

    def _scrub(self, member: Member) -> None:
        """An operator verifies the files of a member, and replaces the directory that is not valid."""
        if not self._is_over and not self._retires(member) and self._excused.get(member.member_id) == "flip":
            self._cluster.kill(member.member_id)
            self._wipe_directory(member)
            self._restart_later(member, self._restart_random)

    def _wipe(self, random: Random) -> bool:
        """A member loses its disk."""
        member = self._member(random)
        victims = self._victims(member, random)
        if not all(each._may_damage(one) for each, one in victims):
            victims = [(self, member)]
        return _any_of(each._wipe_member(one, random) for each, one in victims)

    def _wipe_member(self, member: Member, random: Random) -> bool:
        if not self._may_damage(member):
            return False
        self._lose_disk(member, random)
        return True

    def _lose_disk(self, member: Member, random: Random) -> None:
        self._cluster.kill(member.member_id)
        self._referee.damaged[member.member_id] = None
        self._wipe_directory(member)
        self._restart_later(member, random)

    def _wipe_directory(self, member: Member) -> None:
        self._excused.pop(member.member_id, None)
        self._referee.emptied[member.member_id] = None
        self._cluster.wipe(member.member_id)
        self.orders.on_wiped(member)

    def _look_after_damage(self) -> None:
        """A wiped member is sound again once it has everything and may vote."""
        for member_id in [*self._referee.emptied]:
            member = self._cluster.members[member_id]
            node = member.node
            if node is not None and node.module.election is None and self._referee.is_sound(member):
                del self._referee.emptied[member_id]
                self._referee.damaged.pop(member_id, None)
                self.hidden_flip.mend()
        self._after(self._unit_ns // 8, self._look_after_damage)

    # --- the operator

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        """A member stopped by itself: with a reason that was given to it, or it is a bug."""
        excuse = self._excused.get(member.member_id)
        if error is None and self._referee.actions.has_terminated(member):
            self._on_terminated(member)
            return
        if isinstance(error, ConfigurationError | None) and self._referee.membership.is_barred(member.member_id):
            self._on_removed(member)
            return
        if isinstance(error, ConfigurationError) and self.orders.is_misplaced(member):
            self._excuse_no_more(member)
            self._after(self._unit_ns, self._start_for_good, member)
            return
        expect(
            error is None if excuse == "stop" else excuse is not None and isinstance(error, ClusterError | OSError),
            "no member stops by itself without a cause",
            member=member.member_id,
            error=repr(error),
            at_s=self._scheduler.now_ns / 1e9,
        )
        if excuse == "flip":
            self._wipe_directory(member)
        else:
            self._excuse_no_more(member)
        self._restart_later(member, self._restart_random)

    def _on_terminated(self, member: Member) -> None:
        """The cluster stops, and this member with it: it is started again, also when no more faults strike."""
        if self._excused.get(member.member_id) != "flip":
            self._excuse_no_more(member)
        if not self._is_over:
            self._restart_later(member, self._restart_random)
        elif member not in self._abandoned:
            self._after(self._unit_ns, self._cluster.start, member.member_id)

    def _on_removed(self, member: Member) -> None:
        """The member is removed and stops. Sometimes it is started again by mistake."""
        if self._removal_random.random() < 0.3 and member.member_id not in self._referee.damaged:
            self._excuse_no_more(member)
            self._restart_later(member, self._removal_random)
        else:
            self._retire(member)

    def _retires(self, member: Member) -> bool:
        """Whether a member was removed and its files are not sound: nobody gives it new ones, and nobody starts it."""
        if member.member_id in self._retired:
            return True
        if not self._referee.membership.is_removed(member.member_id) or member.member_id not in self._referee.damaged:
            return False
        self._retire(member)
        return True

    def _retire(self, member: Member) -> None:
        self._retired[member.member_id] = None
        self._cluster.kill(member.member_id)
        for of in (self._excused, self._referee.emptied, self._referee.damaged):
            of.pop(member.member_id, None)

    def _stop_to_move(self, member: Member) -> bool:
        """End a process that is to go on at another address; False if there is none, or it is left for dead."""
        if not member.is_running or member in self._abandoned:
            return False
        if self._excused.get(member.member_id) == "stop":
            del self._excused[member.member_id]
        self._cluster.kill(member.member_id)
        return True

    def _start_for_good(self, member: Member) -> None:
        """Start a member, also when no more faults strike."""
        if not self._is_over:
            self._restart(member)
        elif member not in self._abandoned and member in self._active():
            self._cluster.start(member.member_id)

    def _excuse_no_more(self, member: Member) -> None:
        self._excused.pop(member.member_id, None)
        member.machine.on_disk_operation = no_fault
        member.service_failure.disarm()
        self._free_disk(member)

    # --- the end

    def end(self) -> list[Member]:
        """Stop striking and mend a majority for good; give its members. The others are left for dead.

        Damaged directories are replaced. A member that lost its files cannot vote before it has caught up, so the
        majority is one of sound members.
        """
        self._is_over = True
        self._cluster.store.mend()
        self.orders.end()
        random = Random(f"{self._cluster.seed} core")
        spare, members = self._draw_spare(random), self.orders.reachable_members()
        self.network.end()
        for member in self._active():
            self._mend_machine(member)
            if member in spare:
                self._abandoned.append(member)
                self._abandon(member, random)
                continue
            self._cluster.resume(member.member_id)
            if member in members:
                self._cluster.start(member.member_id)
        self._excused.clear()  # from here on nobody has a cause to stop
        core = self.core()
        self._trace.on_fault(f"healed, core={[member.member_id for member in core]}")
        return core

    def core(self) -> list[Member]:
        """Return the members of the cluster, as they are now, that were not left for dead."""
        current = self._referee.membership.current
        members = [self._cluster.members[one.member_id] for one in current.members]
        return [member for member in members if member not in self._abandoned]

    def lingering(self) -> list[Member]:
        """Return the members that were removed, are told so by others, and run all the same; not who is cut off."""
        membership, core = self._referee.membership, {member.member_id for member in self.core()}
        return [
            member
            for member in self._cluster.running()
            if membership.is_removed(member.member_id) and member not in self._abandoned
            if member.node is not None and not core.isdisjoint(member.node.module.ctx.members)
        ]

    def _draw_spare(self, random: Random) -> list[Member]:
        """Draw who is left for dead: whichever members the cluster will have, a majority of sound ones is left."""
        configurations = self.orders.reachable()
        sound = [member for member in voters_of(self._cluster, self._referee) if self._is_able(member)]
        spare_limit = max(0, len(sound) - quorum_threshold(len(self._referee.membership.current.voter_ids)))
        drawn = random.sample(sound, random.randint(0, spare_limit)) if random.random() < 0.5 else []
        drawn += self.chains.draw_dead()
        able = {member.member_id for member in self.orders.reachable_members() if self._is_able(member)}
        spare: list[Member] = []
        for member in drawn:
            left = able - {member.member_id}
            if all(2 * len(left & each.voter_ids) > len(each.voter_ids) for each in configurations):
                spare.append(member)
                able = left
        return spare

    def _mend_machine(self, member: Member) -> None:
        machine = member.machine
        machine.on_disk_operation = no_fault
        member.service_failure.disarm()
        machine.disk.capacity_bytes = machine.disk.write_limit_bytes = None
        machine.timing.stall_until_ns = 0
        if member.member_id in self._excused:
            self._cluster.kill(member.member_id)  # it may be on its way out; `end` starts it again
        if self._excused.get(member.member_id) == "flip" and not self._retires(member):
            self._wipe_directory(member)

    def _abandon(self, member: Member, random: Random) -> None:
        """Let a member be dead, stand still, or be cut off, for good."""
        match random.randrange(3):
            case 0:
                self._cluster.kill(member.member_id)
            case 1:
                self._cluster.pause(member.member_id)
            case _ if len(self._groups) > 1:  # which may need the machine
                self._cluster.kill(member.member_id)
            case _:
                self.network.cut_off(member)


def _any_of(struck: Iterable[bool]) -> bool:
    """Whether anybody was struck; each is tried."""
    return any([*struck])


KINDS: Final = (
    Kind("delay", 0.5, 4.0, lambda nemesis, random: nemesis.network.delay(random), is_shared=True),
    Kind("reset", 0.5, 2.0, lambda nemesis, random: nemesis.network.reset(random), is_shared=True),
    Kind("stall", 0.5, 2.0, lambda nemesis, random: nemesis.network.stall(random), is_shared=True),
    Kind("partition", 0.5, 6.0, lambda nemesis, random: nemesis.network.partition(random), is_shared=True),
    Kind("one_way", 0.4, 5.0, lambda nemesis, random: nemesis.network.one_way(random), is_shared=True),
    Kind("isolate", 0.5, 6.0, lambda nemesis, random: nemesis.network.isolate(random), is_shared=True),
    Kind("swizzle_clog", 0.3, 10.0, lambda nemesis, random: nemesis.network.swizzle_clog(random), is_shared=True),
    Kind("kill", 0.7, 4.0, Nemesis._kill),
    Kind("kill_leader", 0.5, 6.0, Nemesis._kill_leader),
    Kind("power_loss", 0.6, 5.0, Nemesis._power_loss, is_shared=True),
    Kind("power_loss_all", 0.3, 15.0, Nemesis._power_loss_all, is_shared=True),
    Kind("end_midway", 0.5, 5.0, Nemesis._end_midway),
    Kind("stop", 0.4, 6.0, Nemesis._stop),
    Kind("stop_all", 0.2, 15.0, Nemesis._stop_all),
    Kind("pause", 0.5, 5.0, Nemesis._pause),
    Kind("clock_jump", 0.4, 4.0, Nemesis._clock_jump, is_shared=True),
    Kind("disk_slow", 0.4, 6.0, lambda nemesis, random: nemesis.disks.slow(random), is_shared=True),
    Kind("disk_stall", 0.4, 6.0, lambda nemesis, random: nemesis.disks.stall(random), is_shared=True),
    Kind("flip_recording", 0.3, 12.0, Nemesis._flip_recording),
    Kind("flip_below_snapshot", 0.5, 1.5, lambda nemesis, random: nemesis.hidden_flip.strike(random)),
    Kind("flip_catalog", 0.2, 15.0, partial(Nemesis._flip_small_file, name=_CATALOG, begin=32, end=128)),
    Kind("flip_recording_log", 0.2, 15.0, partial(Nemesis._flip_small_file, name=_RECORDING_LOG, begin=0, end=64)),
    Kind("flip_node_state", 0.2, 15.0, partial(Nemesis._flip_small_file, name=_NODE_STATE, begin=24, end=48)),
    Kind("disk_error", 0.3, 8.0, Nemesis._disk_error),
    Kind("disk_full", 0.2, 12.0, Nemesis._disk_full),
    Kind("short_write", 0.3, 5.0, lambda nemesis, random: nemesis.disks.short_write(random)),
    Kind("store", 0.6, 1.5, lambda nemesis, random: nemesis.disks.fail_store(random)),
    Kind("wipe", 0.3, 12.0, Nemesis._wipe),
    Kind("client_kill", 0.3, 6.0, lambda nemesis, random: nemesis.kill_client(random), is_shared=True),
    Kind("snapshot", 0.5, 2.0, lambda nemesis, random: nemesis.operator.snapshot(random)),
    Kind("suspend", 0.3, 5.0, lambda nemesis, random: nemesis.operator.suspend(random)),
    Kind("shutdown", 0.2, 12.0, lambda nemesis, random: nemesis.operator.shutdown(random)),
    Kind("abort", 0.2, 12.0, lambda nemesis, random: nemesis.operator.abort(random)),
    Kind("transfer", 0.5, 2.0, lambda nemesis, random: nemesis.operator.transfer(random)),
    Kind("add_member", 0.4, 5.0, lambda nemesis, random: nemesis.orders.add(random)),
    Kind("standby", 0.4, 1.5, lambda nemesis, random: nemesis.orders.standby(random)),
    Kind(CHAIN, 0.7, 1.0, lambda nemesis, random: nemesis.chains.strike(random)),
    Kind("remove_member", 0.4, 6.0, lambda nemesis, random: nemesis.orders.remove(random)),
    Kind("replace_member", 0.3, 6.0, lambda nemesis, random: nemesis.orders.replace(random)),
    Kind("move_member", 0.4, 5.0, lambda nemesis, random: nemesis.orders.move(random)),
    Kind("leave_behind", 0.6, 6.0, Nemesis._leave_behind),
    Kind("service_failure", 0.4, 5.0, Nemesis._service_failure),
)
"""Every kind that strikes; drift of clocks, pieces of segments and the disk's ordinary speed are drawn once a seed."""

KIND_NAMES: Final = (*(kind.name for kind in KINDS), QUERY_KIND, RELAY, BACKUP, COLD, SCRUB, GROUPS, SESSIONS)
"""All that a run can do without. The last seven are no faults: a part of the seeds has each of them."""
