"""What an operator of a simulated cluster does about its members: adds, promotes, removes, replaces and moves them.

An order goes to the member that leads, mostly, in the middle of all faults; it is refused, lost, or carried out by one
whose answer nobody hears. So the operator looks at what the members are, and orders what is not so again, a few times.
The operator keeps to what a careful one would know: no order may leave a cluster in which those with sound files are
no majority. Everything else is up to the product to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol

from .....service_api import NodeTerminatedError
from .....service_api.types import MemberId
from ....core.events import ActionRequested, TransferRequested
from ....core.vocabulary.configuration import (
    ChangeRefusedError,
    Configuration,
    ConfigurationCause,
    MemberKind,
)
from ....core.vocabulary.control_toggle import ControlToggle
from ....core.vocabulary.member_change import MemberChange, MemberChangeKind
from ....runtime.turns.agent import ConsensusModuleAgent
from ....settings.config import parse_members
from ..cluster import PLACE_LIMIT, Member, SimulatedCluster
from ..rules.membership_rules import MembershipRules
from ..world.loop import SimulatedLoop
from .ordinary import draw_timing

_VOTER_LIMIT: Final = 7
_MEMBER_LIMIT: Final = 9
_ADDED_LIMIT: Final = 6
"""How many machines a run adds at most."""

_ATTEMPT_LIMIT: Final = 16
"""How often the same thing is ordered."""

_OUTSTANDING_LIMIT: Final = 2
"""How many orders may be on their way at once."""


@dataclass(slots=True, eq=False)
class _Order:
    """An order on its way, and the process that it was given to."""

    change: MemberChange
    loop: SimulatedLoop


@dataclass(slots=True)
class _Wish:
    """What the operator wants, until it is so or was ordered too often."""

    change: MemberChange
    is_fulfilled: Callable[[], bool]
    then: Callable[[], object] = lambda: None
    attempts: int = 0


class MemberKeeper(Protocol):
    """Starts and stops the processes of members, and knows whose files are sound."""

    def is_safe(self, configuration: Configuration) -> bool:
        """Whether members with sound files are a majority of the voters."""

    def start(self, member: Member) -> None:
        """Start a member."""

    def stop(self, member: Member) -> bool:
        """End a process that is to go on with other settings; False if there is none to end."""


class MemberOrders:
    """Changes the members. Each kind of change returns whether there was something to do."""

    def __init__(self, cluster: SimulatedCluster, rules: MembershipRules, keeper: MemberKeeper) -> None:
        self._cluster, self._rules, self._keeper = cluster, rules, keeper
        self._unit_ns, self._after = cluster.settings.leader_heartbeat_timeout_ns, cluster.scheduler.call_after
        self._orders: dict[_Order, None] = {}
        self._added_count = 0
        self._early: dict[MemberId, int] = {}
        """Members that were moved before the order: until when that may be so."""
        self._moved_count: dict[MemberId, int] = {}
        self._led_ns = 0
        """When there was a leader last."""
        self._is_over = False
        self._after(self._unit_ns // 2, self._settle)

    def __repr__(self) -> str:
        return f"<MemberOrders added={self._added_count} outstanding={len(self._orders)}>"

    # --- what the operator does

    def add(self, random: Random) -> bool:
        """A new machine joins as a learner, and mostly becomes a voter."""
        becomes_voter = random.random() < 0.8
        number = self._add(random)
        if number is not None and becomes_voter:
            self._wish(self._promotion(number), random)
        return number is not None

    def standby(self, random: Random) -> bool:
        """A new machine joins as a standby, and may become a voter later; while there is one, it takes snapshots."""
        kinds = [one.kind for one in self._rules.current.members]
        if MemberKind.STANDBY in kinds and random.random() < 0.9:
            leader = self._cluster.leader()
            return leader is not None and post(leader, ActionRequested(0, ControlToggle.STANDBY_SNAPSHOT))
        number = self._add(random, MemberChangeKind.ADD_STANDBY)
        if number is not None and random.random() < 0.2:
            self._after(4 * self._unit_ns, self._wish, self._promotion(number), random)
        return number is not None

    def add_standby(self, random: Random, *, log_source_id: MemberId) -> bool:
        """A new machine joins as a standby that takes the log from another member."""
        number = self._add(random, MemberChangeKind.ADD_STANDBY)
        if number is not None:
            self._cluster.set_log_source(self._cluster.members[MemberId(number)], log_source_id)
        return number is not None

    def follow(self, member: Member, log_source_id: MemberId | None) -> bool:
        """A standby is started again, to take the log from another member; None: from the leader."""
        was_running = self._keeper.stop(member)
        self._cluster.set_log_source(member, log_source_id)
        if was_running:
            self._keeper.start(member)
        return was_running

    def promote(self, member_id: MemberId, random: Random) -> bool:
        """A learner or a standby is to become a voter."""
        return self._wish(self._promotion(member_id), random, attempts=_ATTEMPT_LIMIT - 3)

    def remove(self, random: Random) -> bool:
        """A member is removed: also the leader, also one that is down."""
        return self.remove_member(self._choose(random), random)

    def remove_member(self, member_id: MemberId, random: Random) -> bool:
        """The given member is removed."""
        return self._wish(self._removal(member_id), random, attempts=_ATTEMPT_LIMIT - 3)

    def replace(self, random: Random) -> bool:
        """A new machine takes the place of a member."""
        victim_id, number = self._choose(random), self._add(random)
        if number is None:
            return False
        promotion = self._promotion(number)
        promotion.then = lambda: self._wish(self._removal(victim_id), random)
        return self._wish(promotion, random)

    def move(self, random: Random) -> bool:
        """A member goes on at another address; its process is restarted there after the order, or before it."""
        member_id, is_early = self._choose(random), random.random() < 0.25
        member = self._cluster.members[MemberId(member_id)]
        if not member.machine.has_power or member.member_id in self._early:
            return False
        place = self._moved_count.get(member_id, 0) + 1
        if place >= PLACE_LIMIT:
            return False
        self._moved_count[member_id] = place
        endpoints = self._cluster.endpoints_at(member_id, place)
        if is_early:
            self._early[member_id] = self._cluster.now_ns + 3 * self._unit_ns
            self._move_to(member, endpoints)
        change = MemberChange(MemberChangeKind.MOVE, member_id, endpoints)

        def is_fulfilled() -> bool:
            found = self._rules.current.find(member_id)
            return found is None or found.endpoints == endpoints

        return self._wish(_Wish(change, is_fulfilled, attempts=_ATTEMPT_LIMIT - 8), random)

    def on_wiped(self, member: Member) -> None:
        """A member has an empty directory. Once the members have changed, its settings say no more who they are."""
        current = self._rules.current
        mine = current.find(member.member_id)
        if mine is None or current.cause is ConfigurationCause.FORM or len(current.members) < 2:
            return
        self._cluster.rejoin(member, current.members)

    def is_misplaced(self, member: Member) -> bool:
        """Whether a process is elsewhere than its cluster takes it to be, or than it may be told by who is behind."""
        if self._cluster.now_ns < self._early.get(member.member_id, 0):
            return True  # the order may have come meanwhile, and the answer that it read before
        nodes = [one.node for one in self._cluster.members.values() if one.node is not None]
        known = [self._rules.current, *(node.module.ctx.roster.current for node in nodes)]
        found = [each.find(member.member_id) for each in known]
        return any(one is not None and one.endpoints != member.config.me.endpoints for one in found)

    def end(self) -> None:
        """Order nothing more. Processes are still restarted where the cluster takes them to be."""
        self._is_over = True
        self._early.clear()

    # --- what may come of it

    def reachable(self) -> list[Configuration]:
        """Every configuration that may be in force soon: those in logs, and those that orders on their way make."""
        found = self._rules.possible()
        for order in [*self._outstanding(), *self._outstanding()]:
            for configuration in [*found]:
                made = _apply(order.change, configuration)
                if made is not None:
                    found.append(made)
        return found

    def reachable_members(self) -> list[Member]:
        """Everyone that is a member, or may soon be one."""
        found = {one.member_id for each in self.reachable() for one in each.members}
        return [member for member in self._cluster.members.values() if member.member_id in found]

    def _outstanding(self) -> Iterator[_Order]:
        return (order for order in [*self._orders] if not order.loop.is_dead)

    # --- wishes

    def _choose(self, random: Random) -> MemberId:
        member_ids = [one.member_id for one in self._rules.current.members]
        chosen, wants_leader = random.choice(member_ids), random.random() < 0.3
        leader = self._cluster.leader()
        return leader.member_id if wants_leader and leader is not None and leader.member_id in member_ids else chosen

    def _add(self, random: Random, kind: MemberChangeKind = MemberChangeKind.ADD) -> int | None:
        current = self._rules.current
        delay_ns = int(random.expovariate(1.0) * 0.5 * self._unit_ns) + 1
        if self._added_count >= _ADDED_LIMIT or len(current.members) >= _MEMBER_LIMIT or not current.log_position:
            return None
        self._added_count += 1
        number = max(current.high_member_id, *self._cluster.members) + 1
        member = self._cluster.add_member(number, current.members, is_standby=kind is MemberChangeKind.ADD_STANDBY)
        draw_timing(self._cluster, member)
        change = MemberChange(kind, number, self._cluster.endpoints_at(number, 0))
        self._wish(_Wish(change, lambda: self._rules.current.find(number) is not None), random)
        self._after(delay_ns, self._keeper.start, member)
        return number

    def _promotion(self, number: int) -> _Wish:
        def is_fulfilled() -> bool:
            found = self._rules.current.find(number)
            return self._rules.is_removed(number) or (found is not None and found.kind.votes)

        return _Wish(MemberChange(MemberChangeKind.PROMOTE, number), is_fulfilled)

    def _removal(self, member_id: int) -> _Wish:
        change = MemberChange(MemberChangeKind.REMOVE, member_id)
        return _Wish(change, lambda: self._rules.current.find(member_id) is None)

    def _wish(self, wish: _Wish, random: Random, attempts: int = 0) -> bool:
        wish.attempts = max(wish.attempts, attempts)
        self._pursue(wish, random)
        return True

    def _pursue(self, wish: _Wish, random: Random) -> None:
        if self._is_over:
            return
        if wish.is_fulfilled():
            wish.then()
        elif wish.attempts < _ATTEMPT_LIMIT:
            wish.attempts += 1
            is_move, leader = wish.change.kind is MemberChangeKind.MOVE, self._cluster.leader()
            is_leading = leader is not None and leader.member_id == wish.change.member_id
            if leader is not None and is_move and is_leading and random.random() < 0.8:
                post(leader, TransferRequested(0, None))  # a member that leads is not moved
            else:
                self._order(wish.change, random)
            self._after(self._unit_ns // random.choice((2, 4, 16)), self._pursue, wish, random)

    # --- orders

    def _order(self, change: MemberChange, random: Random) -> None:
        members = [*self._cluster.members.values()]
        member = self._cluster.leader() if random.random() < 0.8 else random.choice(members)
        if member is None or member.node is None or member.machine.loop is None or member.is_paused:
            return
        if sum(1 for _ in self._outstanding()) >= _OUTSTANDING_LIMIT or not self._may_order(change):
            return
        order = _Order(change, member.machine.loop)
        self._orders[order] = None
        member.machine.run_beside(partial(self._drive, order, member.node.agent))

    def _may_order(self, change: MemberChange) -> bool:
        made = [_apply(change, each) for each in self.reachable()]
        return all(
            each is None or (len(each.voter_ids) <= _VOTER_LIMIT and self._keeper.is_safe(each)) for each in made
        )

    async def _drive(self, order: _Order, agent: ConsensusModuleAgent) -> None:
        try:
            if not self._is_over and self._may_order(order.change):
                wanted = ActionRequested(0, ControlToggle.CHANGE_MEMBERS, change=order.change)
                async for _ in agent.run_action(wanted):
                    pass
        except NodeTerminatedError:
            pass
        finally:
            self._orders.pop(order, None)

    # --- processes where the members are

    def _settle(self) -> None:
        """See to it that each process is where its cluster takes it to be; in the end, that there is one.

        Without a leader nobody knows whether a member was moved: then it is tried at both addresses in turn.
        """
        now_ns, is_led = self._cluster.now_ns, self._cluster.leader() is not None
        self._led_ns = now_ns if is_led else self._led_ns
        turn = (now_ns - self._led_ns) // (4 * self._unit_ns)
        for one in self._rules.current.members:
            member = self._cluster.members[one.member_id]
            place = one.endpoints if turn % 2 == 0 else self._rules.proposed_place(one.member_id) or one.endpoints
            if member.config.me.endpoints != place and now_ns >= self._early.get(one.member_id, 0):
                self._early.pop(one.member_id, None)
                self._move_to(member, place)
            self._correct_seeds(member)
            if self._is_over:
                self._keeper.start(member)
        self._after(self._unit_ns // 2, self._settle)

    def _correct_seeds(self, member: Member) -> None:
        """A member that waits to join asks others, once none of those that its settings name is a member any more."""
        others = [one for one in self._rules.current.members if one.member_id != member.member_id]
        asked = {seed.consensus for seed in parse_members(member.config.join)} if member.config.join else set()
        if not asked or member.node is not None or any(one.consensus in asked for one in others) or not others:
            return
        was_running = self._keeper.stop(member)
        self._cluster.rejoin(member, others)
        if was_running:
            self._keeper.start(member)

    def _move_to(self, member: Member, endpoints: tuple[str, str, str, str, str]) -> None:
        was_running = self._keeper.stop(member)
        if not member.is_running:
            self._cluster.move(member, endpoints)
        if was_running:
            self._keeper.start(member)


def _apply(change: MemberChange, configuration: Configuration) -> Configuration | None:
    try:
        return change.apply_to(configuration)
    except ChangeRefusedError:
        return None


def post(member: Member | None, order: ActionRequested | TransferRequested) -> bool:
    """Give an order to a member, which need not obey. False if it cannot be given one."""
    if member is None or member.node is None or member.machine.loop is None or member.is_paused:
        return False
    member.machine.loop.call_soon(member.node.agent.post, order)
    return True
