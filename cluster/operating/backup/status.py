"""What a backup agent says of itself: a file in its directory, written again every second and at each change.

The file is the answer of `trimaran backup status`: it needs no port, and is there when the agent has died. Its age says
whether the agent runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from ....archive.disk.file_system import FileSystem, OsFileSystem, ReadableFileSystem, read_file, replace_file
from ....service_api import ClusterError
from ....service_api.documents.document import Document, read_document

BACKUP_STATUS_FILE_NAME: Final = "backup-status.json"
STATUS_INTERVAL_S: Final = 1.0
FRESH_MS: Final = 10_000
"""A status that is older is one of an agent that does not run, or stands still."""


class BackupStatus(Document):
    """How a backup is. Positions are bytes of the log, times epoch milliseconds of the agent's clock."""

    KIND: ClassVar[str] = "status of a backup"

    state: str
    """A name of `BackupState`."""
    reason: str
    """Why it is in that state."""
    cluster_id: str | None
    source_member_id: int | None
    """The member that it copies from; None while there is none."""
    log_start_position: int
    recorded_position: int
    """The log is durable here up to this position: a restore can go on from there."""
    commit_position: int
    """The highest that any member has told."""
    as_of_ms: int | None = None
    """The time, by the clock of the agent's machine, at which the leader had appended no more than is here; None: not
    known yet."""
    behind_s: float = Field(ge=0)
    """For how long it has lacked something of that; 0 if it lacks nothing."""
    snapshot_position: int | None
    """Of the newest snapshot; None without one."""
    snapshot_count: int
    next_query_ms: int
    """When members are asked again."""
    failure_count: int
    last_failure: str
    pid: int
    written_ms: int

    @property
    def lag_bytes(self) -> int:
        """How much committed log is not here yet."""
        return max(0, self.commit_position - self.recorded_position)


def write_status(disk: FileSystem, directory: Path, status: BackupStatus) -> None:
    """Put a status in the place of the one before.

    Raises:
        OSError: the disk refused.
    """
    replace_file(disk, directory / BACKUP_STATUS_FILE_NAME, status.model_dump_json().encode())


def read_status(directory: Path, disk: ReadableFileSystem | None = None) -> BackupStatus:
    """Read what the agent of a directory wrote last.

    Raises:
        ClusterError: there is no status, or it cannot be read.
    """
    path = directory / BACKUP_STATUS_FILE_NAME
    try:
        return read_document(BackupStatus, read_file(OsFileSystem() if disk is None else disk, path))
    except OSError as error:
        raise ClusterError(f"no status of a backup: path={path}: {error}; was `trimaran backup run` here?") from error
