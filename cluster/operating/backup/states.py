"""What a backup agent is doing: Aeron's states, by name and number.

Source: aeron.md §6.1; Aeron `ClusterBackup.State`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class BackupState(IntEnum):
    """One step of a backup."""

    BACKUP_QUERY = 0
    """A member is looked for, and asked what it has."""
    SNAPSHOT_RETRIEVE = 1
    """Its newest snapshot is copied."""
    LIVE_LOG_RECORD = 2
    """The own recording of the log is opened, or begun."""
    LIVE_LOG_REPLAY = 3
    """The member is asked to replay its log from where the own one ends, as far as it is committed."""
    UPDATE_RECORDING_LOG = 4
    """What was learnt of terms and snapshots is made durable."""
    BACKING_UP = 5
    """The log is followed."""
    RESET_BACKUP = 6
    """Something failed: the agent waits a moment, and begins again with another member if there is one."""
    CLOSED = 7


_S = BackupState

TRANSITIONS: Final = {
    _S.BACKUP_QUERY: frozenset({_S.SNAPSHOT_RETRIEVE, _S.LIVE_LOG_RECORD, _S.UPDATE_RECORDING_LOG}),
    _S.SNAPSHOT_RETRIEVE: frozenset({_S.LIVE_LOG_RECORD, _S.UPDATE_RECORDING_LOG}),
    _S.LIVE_LOG_RECORD: frozenset({_S.LIVE_LOG_REPLAY}),
    _S.LIVE_LOG_REPLAY: frozenset({_S.UPDATE_RECORDING_LOG}),
    _S.UPDATE_RECORDING_LOG: frozenset({_S.BACKING_UP}),
    _S.BACKING_UP: frozenset({_S.BACKUP_QUERY}),
    _S.RESET_BACKUP: frozenset({_S.BACKUP_QUERY}),
    _S.CLOSED: frozenset(),
}
"""Every legal transition, but those to RESET_BACKUP and CLOSED, which are legal from every state but CLOSED. A query
that comes while the log is followed has no need to open it again."""


def is_legal(old: BackupState, new: BackupState) -> bool:
    """Whether a backup may go from one state to another."""
    if new in (_S.RESET_BACKUP, _S.CLOSED):
        return old is not _S.CLOSED
    return new in TRANSITIONS[old]
