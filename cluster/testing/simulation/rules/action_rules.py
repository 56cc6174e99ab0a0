"""The rules of suspensions, terminations and hand-overs, checked on the committed log and on what members do.

Source: aeron.md §3.1, §3.11; DESIGN §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .....service_api.types import MemberId
from .....service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, iter_headers
from .....service_api.wire.log.messages import (
    ClusterAction,
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from .....service_api.wire.message import decode_message, peek_header, registry_of
from .....service_api.wire.session import SessionMessageHeader
from ....core.vocabulary.control_toggle import ControlToggle
from ....core.vocabulary.module_state import ModuleState
from ..cluster import Member

Expect = Callable[..., None]

_ACTIONS: Final = registry_of(ClusterActionRequest)
_INPUT_TEMPLATE_IDS: Final = {
    kind.TEMPLATE_ID: kind.__name__ for kind in (SessionMessageHeader, SessionOpenEvent, SessionCloseEvent, TimerEvent)
}


class ActionRules:
    """Remembers who stopped where; looks through the committed log at the end."""

    def __init__(self, expect: Expect) -> None:
        self._expect = expect
        self._positions: dict[int, int] = {}
        """Where members stopped, by term."""
        self._stopping: dict[MemberId, None] = {}
        self._held_since_ns: dict[MemberId, int] = {}
        """Since when members hold for a transfer."""
        self._late_since_ns: dict[MemberId, int] = {}
        """Since when those that should not any more do something all the same."""

    def __repr__(self) -> str:
        return f"<ActionRules terminations={self._positions}>"

    def look(self, member: Member) -> None:
        """Look at a member after each thing that it did."""
        assert member.node is not None
        module = member.node.module
        self._look_at_transfer(member)
        if module.actions.state is not ModuleState.CLOSED or member.member_id in self._stopping:
            return
        self._stopping[member.member_id] = None
        position, ctx = module.actions.termination.position, module.ctx
        assert position is not None
        first = self._positions.setdefault(ctx.leadership_term_id, position)
        self._expect(
            first == position,
            "all members terminate at one position",
            member=member.member_id,
            term=ctx.leadership_term_id,
            expected=first,
            actual=position,
        )
        self._expect(
            ctx.commit_position == position == member.node.delivered_position,
            "a member terminates where its log is committed and delivered",
            member=member.member_id,
            position=position,
            commit_position=ctx.commit_position,
            delivered_position=member.node.delivered_position,
        )

    def _look_at_transfer(self, member: Member) -> None:
        """A leader holds for a transfer no longer than an election timeout.

        What it does first after it stood still as a whole, such as for an inline sync of a disk that stalls, may be
        anything but its timer. So the time beyond counts from there.
        """
        assert member.node is not None
        member_id, module = member.member_id, member.node.module
        now_ns, timeout_ns = module.ctx.now_ns, module.ctx.config.election_timeout_ns
        if module.actions.toggle is not ControlToggle.TRANSFER:
            self._held_since_ns.pop(member_id, None)
            self._late_since_ns.pop(member_id, None)
            return
        begun_ns = self._held_since_ns.setdefault(member_id, now_ns)
        if now_ns - begun_ns <= timeout_ns:
            return
        self._expect(
            now_ns - self._late_since_ns.setdefault(member_id, now_ns) <= timeout_ns,
            "a leader whose transfer comes to nothing takes input again",
            member=member_id,
            begun_ns=begun_ns,
            now_ns=now_ns,
        )

    def has_terminated(self, member: Member) -> bool:
        """Whether a member that has just ended did so because its cluster stops; asked once for each process."""
        return self._stopping.pop(member.member_id, self) is None

    def expect_held(self, log: bytes | bytearray) -> None:
        """No input is in the log between a SUSPEND and its RESUME, nor after a termination in the same term."""
        suspended_at: int | None = None
        stops = set(self._positions.values())
        for begin, end, template_id in _messages(log):
            self._expect(
                suspended_at is None or template_id not in _INPUT_TEMPLATE_IDS,
                "a suspended cluster takes no input",
                suspended_at=suspended_at,
                position=end,
                entry=_INPUT_TEMPLATE_IDS.get(template_id),
            )
            self._expect(
                begin not in stops or template_id == NewLeadershipTermEvent.TEMPLATE_ID,
                "a leader that stops its cluster appends nothing more",
                position=begin,
                template_id=template_id,
            )
            if template_id == ClusterActionRequest.TEMPLATE_ID:
                event = decode_message(bytes(log[begin + HEADER_LENGTH : end]), registry=_ACTIONS)
                assert isinstance(event, ClusterActionRequest)
                if event.action is ClusterAction.SUSPEND:
                    suspended_at = end
                elif event.action is ClusterAction.RESUME:
                    suspended_at = None


def _messages(log: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield where each message begins and its first frame ends, and its template id."""
    for begin, header in iter_headers(log):
        if header.type == TYPE_DATA and header.flags & FLAG_BEGIN:
            yield begin, begin + header.aligned_length, peek_header(log, begin + HEADER_LENGTH)[1]
