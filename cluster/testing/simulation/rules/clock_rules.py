"""The rule of cluster time: on a leader it goes on with its monotonic clock, whatever the time of day does."""

from __future__ import annotations

from typing import Final

from .....service_api.types import TICKS_PER_MS, MemberId
from ....core.vocabulary.cluster_clock import DRIFT_DIVISOR
from ..cluster import Member
from ..world.expect import expect

_MS: Final = 1_000_000
_INTERVAL_NS: Final = 50 * _MS
"""Between two looks at one leader."""
_SLACK_NS: Final = 5 * _MS


class ClockRules:
    """Where cluster time was when each term began, by the member that leads it."""

    def __init__(self) -> None:
        self._begun: dict[MemberId, tuple[object, int, int]] = {}
        """The term, as an object, and monotonic and cluster time, in nanoseconds, at the first look at it."""
        self._looked_ns: dict[MemberId, int] = {}

    def look(self, member: Member) -> None:
        """Check that the cluster time of a leader has gone on as far as its monotonic clock, give or take its drift.

        Raises:
            RuleBroken: it leapt, or stood still.
        """
        assert member.node is not None
        assert member.machine.loop is not None
        if member.machine.loop.is_held:
            return  # a callback has blocked the process: its clock is further on than the rest of the world
        module, member_id = member.node.module, member.member_id
        if module.leader is None:
            self._begun.pop(member_id, None)
            return
        now_ns = member.machine.clock.monotonic_ns()
        if now_ns - self._looked_ns.get(member_id, 0) < _INTERVAL_NS:
            return
        self._looked_ns[member_id] = now_ns
        clock = module.ctx.cluster_clock
        time_ns = clock.read(now_ns) * (_MS // TICKS_PER_MS[clock.time_unit])
        begun = self._begun.get(member_id)
        if begun is None or begun[0] is not module.leader:
            self._begun[member_id] = (module.leader, now_ns, time_ns)
            return
        elapsed_ns, passed_ns = now_ns - begun[1], time_ns - begun[2]
        expect(
            abs(passed_ns - elapsed_ns) <= elapsed_ns // DRIFT_DIVISOR + _SLACK_NS,
            "cluster time goes on with the leader's monotonic clock",
            member=member_id,
            elapsed_ms=elapsed_ns // _MS,
            passed_ms=passed_ns // _MS,
        )
