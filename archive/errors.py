"""The errors of an archive.

ArchiveError        code, recording_id, position
└── CorruptionError bytes on disk are not what was written; never repaired by guessing
"""

from __future__ import annotations

from enum import IntEnum

from trimaran.service_api.errors import ClusterError


class ArchiveErrorCode(IntEnum):
    """Why an archive refused. 0 to 16 are Aeron's codes and cross the wire; from 100 they are ours.

    Source: Aeron `ArchiveException`.
    """

    GENERIC = 0
    ACTIVE_LISTING = 1
    ACTIVE_RECORDING = 2
    ACTIVE_SUBSCRIPTION = 3
    UNKNOWN_SUBSCRIPTION = 4
    UNKNOWN_RECORDING = 5
    UNKNOWN_REPLAY = 6
    MAX_REPLAYS = 7
    MAX_RECORDINGS = 8
    INVALID_EXTENSION = 9
    AUTHENTICATION_REJECTED = 10
    STORAGE_SPACE = 11
    UNKNOWN_REPLICATION = 12
    UNAUTHORISED_ACTION = 13
    REPLICATION_CONNECTION_FAILURE = 14
    EMPTY_RECORDING = 15
    INVALID_POSITION = 16
    CORRUPT = 100
    STORAGE_FAILED = 101
    CLOSED = 102


class ArchiveError(ClusterError):
    """An archive could not do what was asked.

    `recording_id` and `position` (bytes) are None where the error is not about one recording or one place in
    it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ArchiveErrorCode = ArchiveErrorCode.GENERIC,
        recording_id: int | None = None,
        position: int | None = None,
    ) -> None:
        facts = [f"code={code.name}"]
        if recording_id is not None:
            facts.append(f"recording_id={recording_id}")
        if position is not None:
            facts.append(f"position={position}")
        super().__init__(f"{message} ({' '.join(facts)})")
        self.code = code
        self.recording_id = recording_id
        self.position = position


class CorruptionError(ArchiveError):
    """Bytes in the archive are not those that were written, and it is not a torn tail.

    A torn tail was never acknowledged and may be cut; this may have been, so nothing is changed on disk.
    """

    def __init__(self, message: str, *, recording_id: int | None = None, position: int | None = None) -> None:
        super().__init__(message, code=ArchiveErrorCode.CORRUPT, recording_id=recording_id, position=position)


def below_oldest(recording_id: int, *, position: int, oldest_position: int) -> ArchiveError:
    """The error for a position below the oldest segment of an archive."""
    return ArchiveError(
        f"before the oldest segment of this archive: asked={position} oldest_position={oldest_position}; "
        "earlier entries were purged; start from a snapshot",
        code=ArchiveErrorCode.INVALID_POSITION,
        recording_id=recording_id,
        position=position,
    )


def bad_position(message: str, recording_id: int | None, position: int) -> ArchiveError:
    """Return the error for a position that is not valid here; `message` says what is expected."""
    return ArchiveError(message, code=ArchiveErrorCode.INVALID_POSITION, recording_id=recording_id, position=position)
