"""Which clocks agree: what a member knows of the others' time of day, and what the majority's is.

Each answer of a member (`conditions`) says its time of day at some moment between question and answer. Taken for the
middle, the difference to this member's clock is wrong by half the round trip at most, and by the millisecond in which
times of day are told. A difference counts as far only where it is beyond the limit by more than that.

*The majority's clock* is the middle of the smallest span that holds the clocks of a majority of all members, this one
included, if that span is within the limit. It is compared with all members, not with those that answer: two of five
that agree are no majority, and two of two that differ cannot tell which of them is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....service_api.types import MemberId

_VALID_NS: Final = 60_000_000_000
"""How long a difference counts after it was measured."""

_NS_PER_MS: Final = 1_000_000
_NAMED_LIMIT: Final = 3
"""Members that a sentence names: it is one line of a status."""


@dataclass(slots=True, frozen=True)
class ClockDifference:
    """What another member's clock says more than this one's, in nanoseconds."""

    difference_ns: int
    error_ns: int
    """How far from it the true difference may be."""
    measured_ns: int
    """When, by this member's monotonic clock."""


class ClockAgreement:
    """The clocks of the members, as one of them sees them."""

    def __init__(self, *, member_count: Callable[[], int], limit_ns: int) -> None:
        self._member_count = member_count
        self.limit_ns = limit_ns
        """From here on a difference is far."""
        self.differences: dict[MemberId, ClockDifference] = {}
        self.majority_ns: int | None = None
        """What the majority's clock says more than this member's; None where no majority is known to agree."""
        self.is_off = False
        """Whether this member's clock is far from the majority's; it is near again at half the limit."""

    def __repr__(self) -> str:
        majority = "unknown" if self.majority_ns is None else f"{self.majority_ns / 1e9:+.3f}s"
        return f"<ClockAgreement majority={majority} off={self.is_off}>"

    def note(self, member_id: MemberId, *, asked_ns: int, now_ns: int, their_epoch_ms: int, epoch_ms: int) -> None:
        """Note an answer: what the member's clock said between two moments. One that took too long says nothing."""
        half_ns = (now_ns - asked_ns) // 2
        if half_ns + _NS_PER_MS > self.limit_ns // 2:
            return
        difference_ns = (their_epoch_ms - epoch_ms) * _NS_PER_MS + half_ns
        self.differences[member_id] = ClockDifference(difference_ns, half_ns + _NS_PER_MS, now_ns)

    def describe_problem(self) -> str | None:
        """Say in one line what is wrong with the clocks, as far as this member can tell; None if nothing is."""
        if self.is_off:
            return f"its clock is {_ahead_or_behind(-(self.majority_ns or 0))} the clocks of the majority"
        if self.majority_ns is not None:
            return None
        far = {
            member_id: known.difference_ns
            for member_id, known in self.differences.items()
            if abs(known.difference_ns) > self.limit_ns + known.error_ns
        }
        if not far:
            return None
        named = sorted(far)[:_NAMED_LIMIT]
        others = ", ".join(f"{_ahead_or_behind(-far[member_id])} member {member_id}'s" for member_id in named)
        rest = f" and those of {len(far) - len(named)} more" if len(far) > len(named) else ""
        return f"its clock is {others}{rest}, and no majority of clocks says which is off"

    def judge(self, now_ns: int) -> bool:
        """Find out what the majority's clock says. Returns whether that changed what this member thinks of its own."""
        for member_id, known in [*self.differences.items()]:
            if now_ns - known.measured_ns > _VALID_NS:
                del self.differences[member_id]
        clocks = sorted([0, *(known.difference_ns for known in self.differences.values())])
        width, was_off = self._member_count() // 2, self.is_off
        spans = [(clocks[i + width] - clocks[i], i) for i in range(len(clocks) - width)]
        if not spans or min(spans)[0] > self.limit_ns:
            self.majority_ns, self.is_off = None, False
            return was_off
        _, first = min(spans)
        self.majority_ns = (clocks[first] + clocks[first + width]) // 2
        error_ns = max((known.error_ns for known in self.differences.values()), default=0)
        distance_ns = abs(self.majority_ns)
        self.is_off = distance_ns > self.limit_ns + error_ns or (was_off and distance_ns > self.limit_ns // 2)
        return self.is_off != was_off


def _ahead_or_behind(difference_ns: int) -> str:
    return f"{abs(difference_ns) / 1e9:,.3f} s {'ahead of' if difference_ns > 0 else 'behind'}"
