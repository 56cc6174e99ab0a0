"""What the product itself finds of services that differ, or change in a query, is a broken rule of the run."""

from __future__ import annotations

from contextlib import suppress

from .....service_api import ClusteredService, LocalProtocolError
from .....service_api.service_texts import texts_of
from ....service.state_difference import describe_difference, shown_payload
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


def expect_same(
    member: Member,
    position: int,
    expected: tuple[object, ...],
    actual: tuple[object, ...],
    service: ClusteredService,
) -> None:
    """Check what a service was given, and what it has become, the last part of each, against what others did.

    Where `state_hash` returned a state, the difference of the two states is told.
    """
    if expected == actual:
        return
    facts: dict[str, object] = {"expected": expected, "actual": actual}
    if expected[:-1] == actual[:-1]:
        facts = describe_entry(service, expected) | describe_states(expected[-1], actual[-1])
    rule = "every service is given the same, and becomes the same"
    expect(False, rule, member=member.member_id, position=position, **facts)


def describe_entry(service: ClusteredService, what: tuple[object, ...]) -> dict[str, object]:
    """Return the facts of an entry that a service was given: what it was, and which method handles its message."""
    texts = texts_of(service)
    facts: dict[str, object] = {
        "entry": " ".join(str(part) if part is what[0] else shown_payload(part, texts) for part in what[:-1])
    }
    handlers = (texts.handler(part) for part in what if isinstance(part, bytes))
    handler = next(filter(None, handlers), None)
    return facts if handler is None else facts | {"handler": handler}


def describe_states(expected: object, actual: object) -> dict[str, object]:
    """Return the facts of two results of `state_hash`: by key and field where they are states."""
    if not isinstance(expected, int | bytes | str | None):
        with suppress(LocalProtocolError):  # it is, or holds, what only the service itself understands
            return {"difference": describe_difference(expected, actual)}
    return {"expected": expected, "actual": actual}
