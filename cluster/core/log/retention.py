"""Decides which snapshot sets a member keeps, and from which position on it keeps the log.

A set is old once `keep_snapshots` newer ones are complete. The log is needed from the oldest set that is kept, since a
set that turns out damaged is answered by the one before it; and `keep_log_bytes` more, so that a member that was away
for a while catches up from the log and not from a snapshot. While there are fewer sets than are to be kept, the whole
log stands in for those that are missing.

The entries of a set go out of the recording log in the order in which they make it a set: the module's first, behind
the write that completed the newest set. So whatever moment a crash comes at, the file holds complete sets enough.
A seed, at position 0, stays: while the log from there is kept, a replay begins with it, and segments go later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....service_api.wire.log.recording_log import EntryType
from .recording_log import RecordingLog


@dataclass(slots=True, frozen=True, kw_only=True)
class RetentionPolicy:
    """How much of the past is kept.

    Two sets are kept, so that one may be damaged. What is deleted is lost on every member: who analyses the log sets
    `keep_all`.
    """

    keep_all: bool = False
    """Nothing is ever removed, neither log nor snapshots."""
    keep_snapshots: int = 2
    """The newest complete sets that stay, at least one."""
    keep_log_bytes: int = 1 << 30
    """How much of the log stays below the oldest set that is kept, at least."""


KEEP_ALL: Final = RetentionPolicy(keep_all=True)


def drop_old_snapshots(recording_log: RecordingLog, policy: RetentionPolicy, *, service_count: int) -> tuple[int, ...]:
    """Take the entries of old sets out of the recording log; give the recordings that it names no more.

    What is below the oldest set that is kept goes whether it counts or not: incomplete sets and invalid ones, too.
    """
    oldest_position = _oldest_kept_position(recording_log, policy, service_count)
    if oldest_position is None:
        return ()
    old = [
        entry
        for entry in recording_log.entries
        if entry.entry_type is EntryType.SNAPSHOT and entry.log_position < oldest_position and not entry.is_seed
    ]
    # The module's first, which is -1: from then on the set counts no more.
    old.sort(key=lambda entry: (entry.log_position, entry.service_id))
    for entry in old:
        recording_log.remove_entry(entry)
    named = recording_log.own_recording_ids
    return tuple(dict.fromkeys(entry.recording_id for entry in old if entry.recording_id not in named))


def needed_log_position(recording_log: RecordingLog, policy: RetentionPolicy, *, service_count: int) -> int:
    """Return from where on the log is needed; below it whole segments may go."""
    oldest_position = _oldest_kept_position(recording_log, policy, service_count)
    return 0 if oldest_position is None else max(0, oldest_position - policy.keep_log_bytes)


def _oldest_kept_position(recording_log: RecordingLog, policy: RetentionPolicy, service_count: int) -> int | None:
    """Find the position of the oldest set that is kept; None while nothing may go."""
    positions = [found[0].log_position for found in recording_log.complete_snapshots(service_count)]
    if policy.keep_all or len(positions) < policy.keep_snapshots:
        return None
    return sorted(positions)[-policy.keep_snapshots]
