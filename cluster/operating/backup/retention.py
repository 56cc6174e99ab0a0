"""Decides what of a backup's past stays, in its directory and in a store.

The log is what makes every moment a point in time that can be restored; a snapshot is where a restore may begin. So the
days that are kept begin with a snapshot that is at least so old, and the log from there on stays without a gap. Older
log goes in whole segments, and only then: a number of snapshots alone removes no log.

Days are counted back from the newest snapshot and not from a clock: with a clock that is wrong, or after an agent that
stood still for a month, all but the end would go. That keeps a little more than was asked for, never less.

The beginning has to move on, so snapshots for it have to be there: of each thirtieth of the days the oldest stays,
however many newer ones there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...core.log.recording_log import RecordingLog

DAY_MS: Final = 86_400_000
_BEGINNINGS: Final = 30
"""The days that are kept, and one of as many parts of them: more log stays than asked for by one part at most."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BackupRetention:
    """The rule of what stays. If both are absent, everything stays."""

    keep_snapshots: int | None = None
    """The newest snapshots that stay; older ones go but for those that log begins with, or will. At least 1."""
    keep_ms: int | None = None
    """How far before the newest snapshot every point in time stays, in milliseconds of the log's time."""


KEEP_EVERYTHING: Final = BackupRetention()
KEPT_SNAPSHOTS: Final = 24
KEEP_LOG: Final = BackupRetention(keep_snapshots=KEPT_SNAPSHOTS)
"""The rule of an agent without settings: some snapshots stay, and all log."""


@dataclass(slots=True, frozen=True)
class KeptPast:
    """The parts of a backup that stay."""

    dropped_positions: frozenset[int]
    """Complete snapshots that need not stay."""
    log_start_position: int
    """The log begins here, or in the segment of this position."""

    def has(self, entry: RecordingLogEntry) -> bool:
        """Return whether a snapshot stays."""
        position = entry.log_position
        return entry.is_seed or (position >= self.log_start_position and position not in self.dropped_positions)


def choose_kept(
    recording_log: RecordingLog, retention: BackupRetention, *, log_start_position: int, ticks_per_ms: int
) -> KeptPast:
    """Choose the complete snapshots that stay, and from where on the log does.

    The snapshot that the log begins with stays where the log does not begin at 0: nothing else could be begun with. So
    does a seed, at position 0.
    """
    count = recording_log.latest_service_count()
    found = [] if count is None else [found[0] for found in recording_log.complete_snapshots(count)]
    everything = sorted((entry.log_position, entry.timestamp // ticks_per_ms) for entry in found if not entry.is_seed)
    taken = everything
    begins = taken[:1] if log_start_position else []
    if taken and retention.keep_ms is not None:
        since_ms = taken[-1][1] - retention.keep_ms
        old = [snapshot for snapshot in taken if snapshot[1] <= since_ms]
        if old:
            begins, taken = old[-1:], taken[len(old) - 1 :]
            log_start_position = max(log_start_position, begins[0][0])
    newest = taken if retention.keep_snapshots is None else taken[-retention.keep_snapshots :]
    kept = {*begins, *newest, *_beginnings(taken, retention.keep_ms)}
    return KeptPast(frozenset(position for position, _ in {*everything} - kept), log_start_position)


def _beginnings(taken: Iterable[tuple[int, int]], keep_ms: int | None) -> Iterable[tuple[int, int]]:
    """Find the oldest snapshot of each part of the time that is kept: the log will begin with them."""
    if keep_ms is None:
        return ()
    part_ms, oldest = max(1, keep_ms // _BEGINNINGS), dict[int, tuple[int, int]]()
    for snapshot in taken:
        oldest.setdefault(snapshot[1] // part_ms, snapshot)
    return oldest.values()
