"""What the product itself finds of services that differ, or change in a query, is a broken rule of the run."""

from __future__ import annotations

from contextlib import suppress

from .....service_api import LocalProtocolError
from ....service.state_difference import describe_difference
from ..cluster import Member
from ..world.expect import expect


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


def expect_snapshots_committed(member: Member) -> None:
    """Look at the newest snapshot that a member would start from: its log must be committed up to there, and here."""
    assert member.node is not None
    module = member.node.module
    entries = module.snapshots.newest
    expect(
        not entries or entries[0].log_position <= module.ctx.commit_position,
        "a member's snapshot is not ahead of what is committed and recorded there",
        member=member.member_id,
        snapshot_position=entries[0].log_position if entries else None,
        commit_position=module.ctx.commit_position,
    )


def expect_same(member: Member, position: int, expected: tuple[object, ...], actual: tuple[object, ...]) -> None:
    """Check what a service was given, and what it has become, the last part of each, against what others did.

    Where `state_hash` returned a state, the difference of the two states is told.
    """
    if expected == actual:
        return
    facts: dict[str, object] = {"expected": expected, "actual": actual}
    if expected[:-1] == actual[:-1] and not isinstance(expected[-1], int | bytes | str | None):
        with suppress(LocalProtocolError):  # it is, or holds, what only the service itself understands
            facts = {"entry": expected[:-1], "difference": describe_difference(expected[-1], actual[-1])}
    rule = "every service is given the same, and becomes the same"
    expect(False, rule, member=member.member_id, position=position, **facts)
