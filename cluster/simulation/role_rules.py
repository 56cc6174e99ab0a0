"""The rules of the role that a service sees. Source: seed 003, where a replay is always of a follower."""

from __future__ import annotations

from trimaran.service_api import Role

from .cluster import Member
from .rules import expect


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
