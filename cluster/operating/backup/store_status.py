"""What a copy that goes on says of itself: a file for each store, in the directory of the backup."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import ClassVar, Final

from ....archive.disk.file_system import FileSystem, OsFileSystem, read_file, replace_file
from ....service_api.documents.document import Count, Document, Position, read_document

_FILE_NAME: Final = re.compile(r"store-[0-9a-f]{8}\.json")
_SECRET: Final = re.compile(r"(?<=://)[^/@]*@")


class StoreStatus(Document):
    """How far a store has come. Times are epoch milliseconds of the machine's clock."""

    KIND: ClassVar[str] = "status of a store of a backup"

    url: str
    """Without a name or password that it may have."""
    log_stop_position: Position | None
    """The store has the log up to here; None before the first copy."""
    as_of_ms: Count | None
    """When that copy began: what was recorded in the backup by then is in the store."""
    interval_s: float
    copy_count: Count
    written_bytes: Count
    """By all copies since the process began, with indexes and notes."""
    written_count: Count = 0
    """Objects of the log and of snapshots, by all those copies. Each copy writes an index and a note besides."""
    failure_count: Count
    last_failure: str
    pid: int
    written_ms: Count

    def age_ms(self, recorded_position: int, now_ms: int) -> int | None:
        """For how long something of the backup may not be in the store; None if nothing ever was."""
        if self.log_stop_position is None or self.as_of_ms is None:
            return None
        return 0 if self.log_stop_position >= recorded_position else max(0, now_ms - self.as_of_ms)


def without_secret(url: str) -> str:
    """Return a URL without the name and password of a user, to be shown."""
    return _SECRET.sub("", url)


def write_store_status(disk: FileSystem, directory: Path, status: StoreStatus) -> None:
    """Put a status in the place of the one before of that store.

    Raises:
        OSError: the disk refused.
    """
    path = directory / "cluster" / f"store-{zlib.crc32(status.url.encode()):08x}.json"
    replace_file(disk, path, status.model_dump_json().encode())


def read_store_statuses(directory: Path) -> list[StoreStatus]:
    """Read the status of every store of a backup's directory, by URL.

    Raises:
        ClusterError: one cannot be read.
        OSError: the disk refused.
    """
    disk, place = OsFileSystem(), directory / "cluster"
    names = [name for name in disk.list_directory(place) if _FILE_NAME.fullmatch(name)]
    found = [read_document(StoreStatus, read_file(disk, place / name)) for name in names]
    return sorted(found, key=lambda status: status.url)
