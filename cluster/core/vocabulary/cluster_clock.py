"""Cluster time: the one place where the time of log entries and timers is made.

Cluster time is what the log says. On a leader it has to go on between two entries, and to go on from the log of the
leader before. The time of day of one machine cannot be that clock: it is set by hand, it is corrected, and one leader
whose clock is an hour ahead would leave times in the log that no other clock reaches for an hour. So:

1. *Cluster time goes on with the leader's monotonic clock*, from the newest time in its log. It never goes back and
   never leaps within a term, whatever happens to the time of day: a timer of 2 s fires after 2 s.
2. *It drifts towards the time of day*, by 1/20 of the time that passes and no faster: an hour is made good in twenty
   hours, and a timer of 2 s is at most 0.1 s early or late meanwhile. That is how a correction of the leader's clock
   gets into the log, in either direction.
3. *A term may begin with a leap forward, never with one back.* A cluster that was stopped for a night goes on with the
   morning's time. Where the time of day is behind the log, rule 1 holds: the log's time goes on, and rule 2 slows it.
4. *The time of day is the majority's*: a member that knows its clock to be far from the clocks of the majority reckons
   with theirs (`clock_agreement`).

A follower keeps count too: from the newest time in its log, with its own monotonic clock. If it becomes leader, the
time since then is not lost to timers, even where nothing was appended for long.

Rejected: the time of day, clamped to the log (Aeron's is not even clamped): after a bad leader all timers stand still.
A leap to a corrected time of day: it fires every timer of an hour at once, and nobody can tell a correction from a
mistake. Counting on from the log alone: cluster time would lose the time of every stop.

Source: aeron.md §1 (cluster clock), §10 hazard 29.
"""

from __future__ import annotations

from typing import Final

from ....service_api.types import TICKS_PER_MS, TimeUnit

DRIFT_DIVISOR: Final = 20
"""Cluster time drifts towards the time of day by at most this part of the time that passes."""

_NS_PER_MS: Final = 1_000_000
_LAST_TIME: Final = (1 << 63) - 1
"""The last time that a log entry can hold."""


class ClusterClock:
    """The cluster time of one member. Monotonic times in nanoseconds, the time of day in epoch milliseconds.

    Invariant: what `stamp` returns never falls, and no time that was noted is above it.
    """

    __slots__ = ("_anchor_at_ns", "_anchor_ns", "_gap_ns", "_ns_per_tick", "_time_unit", "correction_ns", "newest_time")

    def __init__(self, time_unit: TimeUnit = TimeUnit.MILLIS) -> None:
        self._time_unit = time_unit
        self._ns_per_tick = _NS_PER_MS // TICKS_PER_MS[time_unit]
        self.newest_time = 0
        """The newest time in the log, as far as this member knows, in the unit of the log."""
        self.correction_ns = 0
        """What the majority's clocks say more than this member's, where that is known and far; else 0."""
        self._anchor_ns = self._anchor_at_ns = 0
        """Cluster time, in nanoseconds, at a monotonic time."""
        self._gap_ns = 0
        """How far the time of day was ahead of the anchor, on a leader: what to drift."""

    def __repr__(self) -> str:
        return f"<ClusterClock newest={self.newest_time} {self._time_unit.name} gap={self._gap_ns / 1e9:.3f}s>"

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of every time in the log: what the log itself says."""
        return self._time_unit

    def use_unit(self, time_unit: TimeUnit) -> None:
        """Count in the unit that the log names. What was noted before was of no log."""
        self._time_unit = time_unit
        self._ns_per_tick = _NS_PER_MS // TICKS_PER_MS[time_unit]

    def start(self, now_ns: int) -> None:
        """Begin to count on from what a snapshot said: only the time since now is known."""
        self._anchor_ns, self._anchor_at_ns, self._gap_ns = self.newest_time * self._ns_per_tick, now_ns, 0

    # --- from the log

    def note(self, time: int, now_ns: int) -> None:
        """Follower: the log has come to this time by now."""
        if time > self.newest_time:
            self.newest_time = time
            self._anchor_ns, self._anchor_at_ns, self._gap_ns = time * self._ns_per_tick, now_ns, 0

    def note_replayed(self, time: int, now_ns: int) -> None:
        """The log was replayed up to this time, which may be older than now: what was counted on does not count less.

        So the length of an election is not lost.
        """
        counted_ns = self.read_ns(now_ns) if self.newest_time else 0
        self.note(time, now_ns)
        if counted_ns > self._anchor_ns:
            self._anchor_ns, self._anchor_at_ns, self._gap_ns = counted_ns, now_ns, 0

    # --- leader

    def begin_term(self, now_ns: int, epoch_ms: int) -> None:
        """Begin to stamp: go on from the log, or with the time of day where that is ahead."""
        self._anchor_ns = max(self.read_ns(now_ns), self._time_of_day_ns(epoch_ms))
        self._anchor_at_ns = now_ns
        self._gap_ns = self._time_of_day_ns(epoch_ms) - self._anchor_ns

    def steer(self, now_ns: int, epoch_ms: int) -> None:
        """Look at the time of day again, some times a second: this is what cluster time drifts towards from now on."""
        self._anchor_ns = self.read_ns(now_ns)
        self._anchor_at_ns = now_ns
        self._gap_ns = self._time_of_day_ns(epoch_ms) - self._anchor_ns

    def stamp(self, now_ns: int) -> int:
        """Return the time for a new log entry, in the unit of the log."""
        elapsed_ns, gap_ns = now_ns - self._anchor_at_ns, self._gap_ns
        drift_ns = elapsed_ns // DRIFT_DIVISOR
        if gap_ns < drift_ns:
            drift_ns = gap_ns if gap_ns > -drift_ns else -drift_ns
        time = (self._anchor_ns + elapsed_ns + drift_ns) // self._ns_per_tick
        if time > self.newest_time:
            self.newest_time = time if time < _LAST_TIME else _LAST_TIME
        return self.newest_time

    # --- reading

    def read_ns(self, now_ns: int) -> int:
        """Return cluster time in nanoseconds: a leader's own, or what a follower counts on to."""
        elapsed_ns = now_ns - self._anchor_at_ns
        limit_ns = elapsed_ns // DRIFT_DIVISOR
        return self._anchor_ns + elapsed_ns + max(-limit_ns, min(self._gap_ns, limit_ns))

    def read(self, now_ns: int) -> int:
        """Return cluster time in the unit of the log; never below the newest time in it."""
        return max(self.newest_time, self.read_ns(now_ns) // self._ns_per_tick)

    def expect(self, now_ns: int, epoch_ms: int) -> int:
        """Return the time, in the unit of the log, with which a term of this member would begin now."""
        return max(self.read(now_ns), self._time_of_day_ns(epoch_ms) // self._ns_per_tick)

    def ahead_ns(self, now_ns: int, epoch_ms: int) -> int:
        """Return how far cluster time is ahead of the time of day; negative where it is behind."""
        return self.read_ns(now_ns) - self._time_of_day_ns(epoch_ms)

    def _time_of_day_ns(self, epoch_ms: int) -> int:
        return epoch_ms * _NS_PER_MS + self.correction_ns
