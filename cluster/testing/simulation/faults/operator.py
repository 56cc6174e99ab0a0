"""The operator of a simulated cluster: suspends and resumes it, stops it and starts it again, wants other leaders.

None of these are faults, and a cluster has to come through each of them in the middle of all faults. An order goes to
the member that leads, mostly; sometimes to one that only believes it does. Nobody waits for the answer: what came of
it is seen in the log and in who stops where (`action_rules`). A suspended cluster is resumed after a while, under
any leader. Each strike returns False if no member could take the order.
"""

from __future__ import annotations

from random import Random

from ....core.events import ActionRequested, TransferRequested
from ....core.vocabulary.control_toggle import ControlToggle
from ....core.vocabulary.module_state import ModuleState
from ..cluster import Member
from .member_orders import post
from .target import FaultTarget


def order_snapshot(target: FaultTarget, random: Random) -> bool:
    """Have the cluster take a snapshot."""
    return _order(target, ControlToggle.SNAPSHOT, random)


def order_suspend(target: FaultTarget, random: Random) -> bool:
    """Have the cluster take no input for a while."""
    is_ordered = _order(target, ControlToggle.SUSPEND, random)
    if is_ordered and not target.is_resuming:
        target.is_resuming = True
        target.after(int(random.expovariate(1.0) * 1.5 * target.unit_ns) + 1, _resume, target)
    return is_ordered


def order_shutdown(target: FaultTarget, random: Random) -> bool:
    """Stop the cluster with a snapshot; its members start again one by one."""
    return _order(target, ControlToggle.SHUTDOWN, random)


def order_abort(target: FaultTarget, random: Random) -> bool:
    """Stop the cluster where its log ends; its members start again one by one."""
    return _order(target, ControlToggle.ABORT, random)


def order_transfer(target: FaultTarget, random: Random) -> bool:
    """Have the leader hand over: to a given member, which may be itself or down, or to any."""
    target_id = random.choice([None, *(int(member_id) for member_id in target.cluster.members)])
    return post(_draw_asked(target, random), TransferRequested(0, target_id))


def _order(target: FaultTarget, action: ControlToggle, random: Random) -> bool:
    return post(_draw_asked(target, random), ActionRequested(0, action))


def _draw_asked(target: FaultTarget, random: Random) -> Member | None:
    members = [*target.cluster.members.values()]
    return target.cluster.leader() if random.random() < 0.8 else random.choice(members)


def _resume(target: FaultTarget) -> None:
    """Ask every leader to resume, again and again: another leader may find the cluster suspended later."""
    leader = target.cluster.leader()
    node = None if leader is None else leader.node
    if node is not None and node.module.actions.state is ModuleState.SUSPENDED:
        post(leader, ActionRequested(0, ControlToggle.RESUME))
    target.after(target.unit_ns // 2, _resume, target)
