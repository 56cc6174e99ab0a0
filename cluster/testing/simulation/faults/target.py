"""The cluster that faults strike: whom they may strike, who has a cause to stop, and how each member comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from pathlib import Path
from random import Random
from typing import Final

from .....service_api.types import MemberId
from ....core.vocabulary.configuration import Configuration
from ..cluster import Member, SimulatedCluster
from ..rules.referee import Referee
from ..rules.source_rule import SourceRule
from ..world.machine import no_fault, process_gone
from .member_orders import MemberOrders
from .ordinary import draw_quality, draw_timing

_MS: Final = 1_000_000


class Cause(Enum):
    """A fault that lets a member stop by itself."""

    STOP = auto()
    FLIP = auto()
    DISK_ERROR = auto()
    DISK_FULL = auto()
    SERVICE_FAILURE = auto()


class FaultTarget:
    """A simulated cluster, or one of its groups, and what faults have done to it so far.

    In a cluster with groups each has its own. What strikes machines is done through the first one, to the members of
    all groups; what strikes a process is sometimes done to the processes of all groups on a machine.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        referee: Referee,
        *,
        kill_client: Callable[[Random], bool],
        beside: Sequence[FaultTarget],
    ) -> None:
        """Begin; `beside` are those of the groups before this one."""
        self.cluster, self.referee, self.kill_client = cluster, referee, kill_client
        self.unit_ns = cluster.settings.leader_heartbeat_timeout_ns
        self.is_over = False
        """True once no more faults strike."""
        self.causes: dict[MemberId, Cause] = {}
        """Members that may stop by themselves, and which fault is to blame."""
        self.abandoned: list[Member] = []
        """Members that are left for dead in the end."""
        self.retired: dict[MemberId, None] = {}
        """Members that were removed, and are not started any more."""
        self.flipped: tuple[Member, Path, int, bytes] | None = None
        """The disk on which a hidden bit is flipped: its member, the file, the offset, the whole byte."""
        self.is_resuming = False
        """True while suspended leaders are asked to resume."""
        self.restart_random = Random(f"{cluster.seed} restart")
        self.keep_random = Random(f"{cluster.seed} keep")
        self.removal_random = Random(f"{cluster.seed} removed")
        self.chain_end_random = Random(f"{cluster.seed} end of the chain")
        cluster.network.quality = draw_quality(cluster)
        for member in cluster.members.values():
            draw_timing(cluster, member)
        self.orders = MemberOrders(cluster, referee.membership, self)
        self.source_rule = SourceRule(cluster)
        self.groups: list[FaultTarget] = [*beside, self]
        for other in beside:
            other.groups.append(self)

    def __repr__(self) -> str:
        return f"<FaultTarget causes={self.causes} retired={[*self.retired]} abandoned={self.abandoned}>"

    # --- when

    def after(self, delay_ns: int, action: Callable[..., object], *args: object) -> None:
        """Do something later."""
        self.cluster.scheduler.call_after(delay_ns, action, *args)

    def draw_duration_ns(self, random: Random, mean: float) -> int:
        """Draw how long a fault lasts; the mean is in heartbeat timeouts."""
        return int(random.expovariate(1.0) * mean * self.unit_ns) + _MS

    # --- whom

    def members(self) -> list[Member]:
        """Return the members that are not retired."""
        return [member for member in self.cluster.members.values() if member.member_id not in self.retired]

    def draw_member(self, random: Random, *, prefer_leader: float = 0.4) -> Member:
        """Draw a member, more often the leader."""
        members = self.members()
        chosen, wants_leader = random.choice(members), random.random() < prefer_leader
        leader = self.cluster.leader()
        return leader if wants_leader and leader is not None else chosen

    def on_machine(self, member: Member) -> list[tuple[FaultTarget, Member]]:
        """Return the members of all groups on the machine of one, each with its group."""
        found = ((each, each.cluster.members.get(member.member_id)) for each in self.groups)
        return [(each, one) for each, one in found if one is not None]

    def draw_victims(self, member: Member, random: Random) -> list[tuple[FaultTarget, Member]]:
        """Draw who is struck: a group's process alone, or with those of the other groups on its machine."""
        everyone = self.on_machine(member)
        return everyone if len(everyone) == 1 or random.random() < 0.5 else [(self, member)]

    def has_damage(self, member: Member) -> bool:
        """Return whether files on its machine are damaged, of any group."""
        return any(one.member_id in each.referee.damaged for each, one in self.on_machine(member))

    def is_able(self, member: Member) -> bool:
        """Return whether a member has sound files and may vote."""
        return member.member_id not in self.referee.damaged and self.referee.may_vote(member)

    def is_safe(self, configuration: Configuration) -> bool:
        """Return whether members with sound files are a majority of the voters."""
        voters = [self.cluster.members[member_id] for member_id in configuration.voter_ids]
        return 2 * len([voter for voter in voters if self.is_able(voter)]) > len(voters)

    def voters(self) -> list[Member]:
        """Return the voters of the cluster, as it is now."""
        voter_ids = self.referee.membership.current.voter_ids
        return [member for member in self.cluster.members.values() if member.member_id in voter_ids]

    # --- processes

    def may_fail(self, member: Member) -> bool:
        """Return whether a member can be given a cause to stop: it runs, and has no other one."""
        return member.is_running and member.member_id not in self.causes

    def drop_stop(self, member: Member) -> None:
        """Forget that a member was to stop in order: its process ends otherwise."""
        if self.causes.get(member.member_id) is Cause.STOP:
            del self.causes[member.member_id]

    def drop_cause(self, member: Member) -> None:
        """Mend what lets a member stop by itself."""
        self.causes.pop(member.member_id, None)
        member.machine.on_disk_operation = no_fault
        member.service_failure.disarm()
        member.machine.disk.capacity_bytes = None

    def restart_later(self, member: Member, random: Random) -> None:
        """Start a member again after a while."""
        self.after(self.draw_duration_ns(random, 0.7), self.restart, member)

    def restart(self, member: Member) -> None:
        """Start a member again, unless the faults are over."""
        if not self.is_over and not member.is_running and not self.retires(member):
            if member.machine.on_disk_operation is process_gone:
                member.machine.on_disk_operation = no_fault
            self.cluster.start(member.member_id)

    def start(self, member: Member) -> None:
        """Start a member, also when no more faults strike."""
        if not self.is_over:
            self.restart(member)
        elif member not in self.abandoned and member in self.members():
            self.cluster.start(member.member_id)

    def stop(self, member: Member) -> bool:
        """End a process that is to go on with other settings; False if there is none, or it is left for dead."""
        if not member.is_running or member in self.abandoned:
            return False
        self.drop_stop(member)
        self.cluster.kill(member.member_id)
        return True

    def retires(self, member: Member) -> bool:
        """Return whether a member was removed and its files are not sound: it gets no new ones, and is not started."""
        if member.member_id in self.retired:
            return True
        if not self.referee.membership.is_removed(member.member_id) or member.member_id not in self.referee.damaged:
            return False
        self.retire(member)
        return True

    def retire(self, member: Member) -> None:
        """Start a member that was removed no more."""
        self.retired[member.member_id] = None
        self.cluster.kill(member.member_id)
        self.causes.pop(member.member_id, None)
        self.referee.emptied.pop(member.member_id, None)
        self.referee.damaged.pop(member.member_id, None)

    def wipe_directory(self, member: Member) -> None:
        """Give a member that does not run an empty disk."""
        self.causes.pop(member.member_id, None)
        self.referee.emptied[member.member_id] = None
        self.cluster.wipe(member.member_id)
        self.orders.on_wiped(member)


def any_of(struck: Iterable[bool]) -> bool:
    """Return whether any strike hit; each is tried."""
    return any([*struck])
