"""The file `log-copies`: which ranges of this member's log are copies, and of whose disks; and a checksum.

    0-4096:2 8192-9216:0,2 8d3f00ab

It is durable before the bytes of a range are. A member that has lost it, or whose file is damaged, does not know
whether its log is a copy: a damaged file counts as one range of all, copied from every member that is known. Aeron has
no such file. Every function here may block.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from ....archive.disk.file_system import FileSystem, read_file, replace_file
from ....service_api.errors import RemoteProtocolError
from ....service_api.types import MemberId
from ...core.log.log_copies import OPEN_END, CopiedRange, LogCopies

LOG_COPIES_FILE_NAME: Final = "log-copies"

logger = structlog.get_logger()


def read_log_copies(path: Path, file_system: FileSystem) -> LogCopies:
    """Return the ranges in a file `log-copies`; no ranges without the file.

    Raises:
        OSError: the disk refused.
        RemoteProtocolError: the file is damaged.
    """
    try:
        data = read_file(file_system, path)
    except FileNotFoundError:
        return LogCopies()
    text, _, checksum = data.rpartition(b" ")
    if checksum != b"%08x\n" % zlib.crc32(text):
        raise RemoteProtocolError(f"wrong checksum: {checksum!r}")
    return LogCopies.decode_text(text.decode("ascii"))


class LogCopiesFile:
    """The copied ranges of one member's log, as its directory has them."""

    def __init__(self, path: Path, copies: LogCopies, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.copies = copies
        self._writing = Lock()

    def __repr__(self) -> str:
        return f"<LogCopiesFile {self.copies!r} path={self._path}>"

    @classmethod
    def open(cls, directory: Path, file_system: FileSystem, known_ids: Iterable[MemberId]) -> LogCopiesFile:
        """Read the file in a member's cluster directory; `known_ids` are the members that a copy may be from.

        Raises:
            OSError: the disk refused.
        """
        path = directory / LOG_COPIES_FILE_NAME
        try:
            copies = read_log_copies(path, file_system)
        except RemoteProtocolError as error:
            logger.warning("log_copies.damaged", path=str(path), reason=str(error))
            copies = LogCopies([CopiedRange(0, OPEN_END, frozenset(known_ids))])
        return cls(path, copies, file_system)

    def persist(self) -> None:
        """Write the ranges, durably.

        Raises:
            OSError: the disk refused.
        """
        with self._writing:
            text = self.copies.encode_text().encode("ascii")
            replace_file(self._file_system, self._path, b"%s %08x\n" % (text, zlib.crc32(text)))
