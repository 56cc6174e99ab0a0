"""The errors of an archive.

ArchiveError        code, recording_id, position
└── CorruptionError bytes on disk are not what was written; never repaired by guessing
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Final

from ..service_api.errors import ClusterError


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
        self.message = message
        """Without these facts, for an error that is made of this one and has them, too."""
        self.code = code
        self.recording_id = recording_id
        self.position = position


class CorruptionError(ArchiveError):
    """Bytes in the archive are not those that were written, and it is not a torn tail.

    A torn tail was never acknowledged and may be cut; this may have been, so nothing is changed on disk.
    """

    def __init__(self, message: str, *, recording_id: int | None = None, position: int | None = None) -> None:
        super().__init__(message, code=ArchiveErrorCode.CORRUPT, recording_id=recording_id, position=position)


class UnknownVersionError(CorruptionError):
    """A file is of a version that this one does not know: a newer one may have written it."""


REFILL_ADVICE: Final = (
    "rename this member's directory and start the member, which copies everything from the others; keep the renamed "
    "directory until they are well, as it may hold the last valid copy"
)
"""How a member gets again from the others what it lacks. No text says to remove a directory of a member."""

RESTORE_ADVICE: Final = (
    f"restore the archive directory from a copy, or, where the other members are a majority, {REFILL_ADVICE}"
)
"""What to do about an archive that lacks what it needs to start: it cannot be guessed."""

VERIFY_ADVICE: Final = (
    "a running member fetches this from another member by itself; if it cannot, run `trimaran archive verify`, then "
    f"restore this directory from a copy, or {REFILL_ADVICE}"
)
"""What to do about a recording that lacks what was recorded: nothing, as long as it is being mended."""

_DAMAGE_NUMBERS: Final = frozenset(
    getattr(errno, name) for name in ("EIO", "EBADMSG", "ENODATA", "ENXIO", "EUCLEAN") if hasattr(errno, name)
)
"""What a file system says of a place that it cannot read, however often it is asked."""


def is_damage(error: BaseException) -> bool:
    """Whether an error says that recorded bytes are lost: they are not valid, or the disk cannot read them.

    A disk that refuses for another reason, such as too many open files, may give them later.
    """
    if isinstance(error, CorruptionError):
        return True
    cause = error.__cause__ if isinstance(error, ArchiveError) else error
    return isinstance(cause, OSError) and cause.errno in _DAMAGE_NUMBERS


_REFUSAL_NUMBERS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


def is_disk_failure(error: BaseException) -> bool:
    """Return True if an error says that a disk of this machine refused: the data is not kept.

    Files and sockets share their errors, so an `OSError` counts only with a number that no socket gives.
    """
    if isinstance(error, ArchiveError):
        return error.code in (ArchiveErrorCode.STORAGE_FAILED, ArchiveErrorCode.STORAGE_SPACE)
    return isinstance(error, OSError) and error.errno in _REFUSAL_NUMBERS


def is_failed_read(error: BaseException) -> bool:
    """Whether an archive, this or another one, could not read what it has recorded: another copy may have it."""
    return isinstance(error, ArchiveError) and error.code in (
        ArchiveErrorCode.CORRUPT,
        ArchiveErrorCode.STORAGE_FAILED,
    )


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
