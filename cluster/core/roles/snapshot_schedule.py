"""Decides when a leader has a snapshot taken that nobody asked for.

Two limits say how old the newest snapshot may become: by time, and by the length of the log after it. Delivery stands
still on every member while a snapshot is written, so from three quarters of a limit on the leader waits for a quiet
moment: a second in which little came compared with the time before. At the limit it waits no more.

Three things come before the limits. Without log after the newest snapshot there is nothing to take. A snapshot that
failed is tried again only after a while, each time a longer one: what fails costs a pause, too. And snapshots take at
most a tenth of the time, so a large state and a small limit do not make a cluster that does nothing else.

The leader decides by itself, and the SNAPSHOT entry in the log has every member take it at one position. Nothing here
need be the same on two members.

Where a standby takes part in the term, the entry asks the standbys alone, and no member stands still. If nothing has
come of that, the members take the next one themselves: a standby that fails does not leave a cluster without snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..context import ConsensusContext
from ..events import ActionRequested
from ..snapshots.snapshot import SnapshotControl
from ..snapshots.standby_snapshots import StandbySnapshots
from ..vocabulary.control_toggle import ControlToggle
from ..vocabulary.phase import NEVER_NS
from .actions import ActionControl

_CHECK_INTERVAL_NS: Final = 1_000_000_000
_FIRST_RETRY_NS: Final = 60_000_000_000
_RETRY_LIMIT_NS: Final = 3_600_000_000_000
_REST_FACTOR: Final = 9
"""After a snapshot there is none for so many times as long as it took."""
_UNDER_WAY: Final = (ControlToggle.SNAPSHOT, ControlToggle.STANDBY_SNAPSHOT)
_QUIET_FACTOR: Final = 4
"""A second is quiet if at most this part came of what came in an average second of the term."""


class SnapshotSchedule:
    """One term of a leader: when the next snapshot is due, and whether the last one came about."""

    def __init__(
        self,
        ctx: ConsensusContext,
        actions: ActionControl,
        snapshots: SnapshotControl,
        standbys: StandbySnapshots,
    ) -> None:
        self._ctx = ctx
        self._actions = actions
        self._snapshots = snapshots
        self._standbys = standbys
        self._has_standby_failed = False
        """Whether the last snapshot was asked of standbys, and did not come about."""
        self._policy = ctx.config.snapshot_policy
        self._next_check_ns = ctx.now_ns + _CHECK_INTERVAL_NS
        self._first = self._last = _Sample(ctx.now_ns, ctx.append_position)
        self._running: _Attempt | None = None
        self._not_before_ns = ctx.now_ns
        self._retry_ns = _FIRST_RETRY_NS

    def __repr__(self) -> str:
        return f"<SnapshotSchedule running={self._running} not_before={self._not_before_ns}>"

    def next_deadline_ns(self) -> int:
        """The monotonic time of the next look; never, if snapshots are taken on request only."""
        return self._next_check_ns if self._policy.is_on else NEVER_NS

    def poll(self) -> None:
        """Have a snapshot taken, if one is due."""
        ctx = self._ctx
        if not self._policy.is_on or ctx.now_ns < self._next_check_ns:
            return
        self._next_check_ns = ctx.now_ns + _CHECK_INTERVAL_NS
        is_quiet = self._look_at_load()
        if self._running is not None:
            self._look_at_attempt(self._running)
            return
        is_of_standby = not self._has_standby_failed and bool(self._standbys.find_present())
        action = ControlToggle.STANDBY_SNAPSHOT if is_of_standby else ControlToggle.SNAPSHOT
        if ctx.now_ns < self._not_before_ns or self._actions.find_refusal(action) is not None:
            return
        reason = self._find_reason(is_quiet=is_quiet)
        if reason is None:
            return
        if self._actions.try_begin(ActionRequested(None, action, reason=f"scheduled: {reason}")):
            self._running = _Attempt(ctx.log_buffer.append_position, ctx.now_ns, is_of_standby=is_of_standby)

    def _look_at_load(self) -> bool:
        """Compare the time since the last look with all of the term. True if little came."""
        first, last = self._first, self._last
        self._last = new = _Sample(self._ctx.now_ns, self._ctx.append_position)
        return _QUIET_FACTOR * new.rate_since(last) <= new.rate_since(first)

    def _look_at_attempt(self, attempt: _Attempt) -> None:
        """Wait for the end of a snapshot; then say from when on the next may be taken."""
        now_ns = self._ctx.now_ns
        if self._actions.toggle in _UNDER_WAY or (attempt.is_of_standby and self._standbys.is_awaiting):
            return
        self._running = None
        is_taken = (self._snapshots.newest_position or 0) >= attempt.log_position
        self._has_standby_failed = attempt.is_of_standby and not is_taken
        if self._has_standby_failed:
            return  # the members take it, at the next look: they have not been asked
        if is_taken:
            self._not_before_ns = now_ns + _REST_FACTOR * (now_ns - attempt.began_ns)
            self._retry_ns = _FIRST_RETRY_NS
        else:
            self._not_before_ns = now_ns + self._retry_ns
            self._retry_ns = min(2 * self._retry_ns, _RETRY_LIMIT_NS)

    def _find_reason(self, *, is_quiet: bool) -> str | None:
        """Say in one line why a snapshot is due; None if it is not."""
        policy = self._policy
        length_bytes, age_ns = self._snapshots.log_after_newest_bytes, self._snapshots.find_age_ns()
        if not length_bytes:
            return None
        # In integers: a limit of 1 is a limit.
        factor, part = (4, 3) if is_quiet else (1, 1)
        if policy.log_bytes and factor * length_bytes >= part * policy.log_bytes:
            return f"log_after_snapshot_bytes={length_bytes} limit={policy.log_bytes}"
        if policy.interval_ns and age_ns is not None and factor * age_ns >= part * policy.interval_ns:
            return f"age_ms={age_ns // 1_000_000} limit={policy.interval_ns // 1_000_000}"
        return None


@dataclass(slots=True, frozen=True)
class _Attempt:
    """A snapshot that is being taken."""

    log_position: int
    began_ns: int
    is_of_standby: bool


@dataclass(slots=True, frozen=True)
class _Sample:
    """Where the leader's log ended, and when."""

    at_ns: int
    position: int

    def rate_since(self, other: _Sample) -> float:
        """Bytes per nanosecond from another sample to this one."""
        return (self.position - other.position) / max(1, self.at_ns - other.at_ns)
