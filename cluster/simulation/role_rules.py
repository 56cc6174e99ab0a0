"""The rules of the role that a service sees. Source: seed 003, where a replay is always of a follower."""

from __future__ import annotations

from typing import Final

from trimaran.service_api import Role

from .cluster import Member
from .rules import expect

_TIMER_SLACK: Final = 1_000
"""How late a leader at rest may be with a timer, in milliseconds of cluster time."""


def expect_role(member: Member, position: int) -> None:
    """Check the role of a service that is given the entry that ends at `position`.

    Raises:
        RuleBroken: the service leads, and the entry is older than the term that its member leads.
    """
    if member.node is None:
        return
    service, ctx = member.node.service_agent, member.node.module.ctx
    is_old = service.is_replaying or position <= ctx.term_base_log_position
    expect(
        service.role is Role.FOLLOWER or (service.role is Role.LEADER and not is_old),
        "a service leads from the first entry of its member's term",
        member=member.member_id,
        position=position,
        role=service.role.name,
    )


def overdue_timers(member: Member) -> list[int]:
    """Return the ids of the timers that a leader at rest should have fired."""
    assert member.node is not None
    module = member.node.module
    now = module.ctx.cluster_clock.read(module.ctx.now_ns)
    return [key for key, deadline in module.timers.pending() if deadline < now - _TIMER_SLACK]
