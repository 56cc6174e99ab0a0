"""How members come back that stopped by themselves, as an operator would see to it."""

from __future__ import annotations

from .....service_api import ClusterError, ConfigurationError
from ..cluster import Member
from ..world.expect import expect
from .hidden_flip import mend_flip
from .target import Cause, FaultTarget


def on_exit(target: FaultTarget, member: Member, error: BaseException | None) -> None:
    """Start a member again that stopped by itself: with a cause that was given to it, or it is a bug."""
    cause = target.causes.get(member.member_id)
    if error is None and target.referee.actions.has_terminated(member):
        _on_terminated(target, member)
        return
    if isinstance(error, ConfigurationError | None) and target.referee.membership.is_barred(member.member_id):
        _on_removed(target, member)
        return
    if isinstance(error, ConfigurationError) and target.orders.is_misplaced(member):
        target.drop_cause(member)
        target.after(target.unit_ns, target.start, member)
        return
    expect(
        error is None if cause is Cause.STOP else cause is not None and isinstance(error, ClusterError | OSError),
        "no member stops by itself without a cause",
        member=member.member_id,
        error=repr(error),
        at_s=target.cluster.now_ns / 1e9,
    )
    if cause is Cause.FLIP:
        target.wipe_directory(member)
    else:
        target.drop_cause(member)
    target.restart_later(member, target.restart_random)


def look_after_damage(target: FaultTarget) -> None:
    """Count a wiped member as sound again once it has everything and may vote; look again soon."""
    referee = target.referee
    for member_id in [*referee.emptied]:
        member = target.cluster.members[member_id]
        node = member.node
        if node is not None and node.module.election is None and referee.is_sound(member):
            del referee.emptied[member_id]
            referee.damaged.pop(member_id, None)
            mend_flip(target)
    target.after(target.unit_ns // 8, look_after_damage, target)


def _on_terminated(target: FaultTarget, member: Member) -> None:
    """Start a member again that stopped with its cluster, also when no more faults strike."""
    if target.causes.get(member.member_id) is not Cause.FLIP:
        target.drop_cause(member)
    if not target.is_over:
        target.restart_later(member, target.restart_random)
    elif member not in target.abandoned:
        target.after(target.unit_ns, target.cluster.start, member.member_id)


def _on_removed(target: FaultTarget, member: Member) -> None:
    """Retire a member that is removed and stops. Sometimes it is started again by mistake."""
    if target.removal_random.random() < 0.3 and member.member_id not in target.referee.damaged:
        target.drop_cause(member)
        target.restart_later(member, target.removal_random)
    else:
        target.retire(member)
