"""The operator of a simulated cluster: suspends and resumes it, stops it and starts it again, wants other leaders.

None of these are faults, and a cluster has to come through each of them in the middle of all faults. An order goes to
the member that leads, mostly; sometimes to one that only believes it does. Nobody waits for the answer: what came of
it is seen in the log and in who stops where (`action_rules`). A suspended cluster is resumed after a while, under
any leader.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trimaran.cluster.core.events import ActionRequested, TransferRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.testing.simulation.cluster import Member, SimulatedCluster


class Operator:
    """Gives orders. Each returns whether there was somebody to give it to."""

    def __init__(
        self, cluster: SimulatedCluster, *, unit_ns: int, after: Callable[[int, Callable[..., object]], None]
    ) -> None:
        self._cluster = cluster
        self._unit_ns = unit_ns
        self._after = after
        self._is_resuming = False

    def __repr__(self) -> str:
        return f"<Operator resuming={self._is_resuming}>"

    def snapshot(self, random: Random) -> bool:
        """The cluster takes a snapshot."""
        return self._order(ControlToggle.SNAPSHOT, random)

    def suspend(self, random: Random) -> bool:
        """The cluster takes no input for a while."""
        is_ordered = self._order(ControlToggle.SUSPEND, random)
        if is_ordered and not self._is_resuming:
            self._is_resuming = True
            self._after(int(random.expovariate(1.0) * 1.5 * self._unit_ns) + 1, self._resume)
        return is_ordered

    def shutdown(self, random: Random) -> bool:
        """The cluster stops with a snapshot; its members start again one by one."""
        return self._order(ControlToggle.SHUTDOWN, random)

    def abort(self, random: Random) -> bool:
        """The cluster stops where its log ends; its members start again one by one."""
        return self._order(ControlToggle.ABORT, random)

    def transfer(self, random: Random) -> bool:
        """The leader hands over: to a given member, which may be itself or down, or to any."""
        target_id = random.choice([None, *(int(member_id) for member_id in self._cluster.members)])
        return post(self._asked(random), TransferRequested(0, target_id))

    def _order(self, action: ControlToggle, random: Random) -> bool:
        return post(self._asked(random), ActionRequested(0, action))

    def _asked(self, random: Random) -> Member | None:
        members = [*self._cluster.members.values()]
        return self._cluster.leader() if random.random() < 0.8 else random.choice(members)

    def _resume(self) -> None:
        """Ask every leader to resume, again and again: another leader may find the cluster suspended later."""
        leader = self._cluster.leader()
        node = None if leader is None else leader.node
        if node is not None and node.module.actions.state is ModuleState.SUSPENDED:
            post(leader, ActionRequested(0, ControlToggle.RESUME))
        self._after(self._unit_ns // 2, self._resume)


def post(member: Member | None, order: ActionRequested | TransferRequested) -> bool:
    """Give an order to a member, which need not obey. False if it cannot be given one."""
    if member is None or member.node is None or member.machine.loop is None or member.is_paused:
        return False
    member.machine.loop.call_soon(member.node.agent.post, order)
    return True
