"""What the product itself finds of services that differ, or change in a query, is a broken rule of the run."""

from __future__ import annotations

from .cluster import Member
from .rules import expect


def expect_agreement(member: Member) -> None:
    """Look at what a member has heard of the others' digests, and at the check of its queries."""
    assert member.node is not None
    differing = member.node.module.digests.divergences
    if differing:
        divergence = next(iter(differing.values()))
        expect(
            False,
            "members' digests of their services agree",
            member=member.member_id,
            position=divergence.log_position,
            what=divergence.what,
            values={int(member_id): value for member_id, value in sorted(divergence.values.items())},
        )
    check = member.node.service_agent.query_check
    change = None if check is None else check.last_change
    expect(change is None, "a query leaves the state as it is", member=member.member_id, change=change)
