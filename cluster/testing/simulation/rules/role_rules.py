"""The rules of the role that a service sees. Source: seed 003, where a replay is always of a follower."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from .....service_api import Role
from .....service_api.wire.frame import iter_whole_messages
from .....service_api.wire.log.messages import MembershipChangeEvent, NewLeadershipTermEvent
from .....service_api.wire.message import MESSAGE_HEADER_LENGTH, peek_header
from ..cluster import Member
from ..world.expect import expect

_TERM_ID: Final = struct.Struct("<q")
"""The first field of every message of the log."""

_BEGINS_TERM: Final = (NewLeadershipTermEvent.TEMPLATE_ID, MembershipChangeEvent.TEMPLATE_ID)

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


def expect_nothing_of_clients(data: bytes, since: int, witness_terms: Collection[int]) -> None:
    """Check what is committed from a position on: a witness that leads appends what begins its term, and nothing else.

    Raises:
        RuleBroken: there is an entry of another kind in a term that a witness led.
    """
    if not witness_terms:
        return
    for end, encoded in iter_whole_messages(data):
        (term_id,) = _TERM_ID.unpack_from(encoded, MESSAGE_HEADER_LENGTH)
        expect(
            term_id not in witness_terms or peek_header(encoded)[1] in _BEGINS_TERM,
            "a witness that leads takes no input",
            term=term_id,
            position=since + end,
        )


def overdue_timers(member: Member) -> list[int]:
    """Return the ids of the timers that a leader at rest should have fired."""
    assert member.node is not None
    module = member.node.module
    now = module.ctx.cluster_clock.read(module.ctx.now_ns)
    return [key for key, deadline in module.timers.pending() if deadline < now - _TIMER_SLACK]
