"""The file `members`: the newest configuration of the cluster that this member knows to be committed, and a checksum.

A member's log says who the members are; where its log ends early, because it is new or was down for long, the others
may be elsewhere by now. Then it finds them by this file. It is a memory of addresses: nobody counts by it who is not in
the log, save for a member whose log has no configuration at all, a new one. Aeron has no such file. Every function here
may block.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

import structlog

from ....archive.disk.file_system import FileSystem, OsFileSystem, read_file, replace_file
from ....service_api.errors import RemoteProtocolError
from ...core.vocabulary.configuration import Configuration, decode_text

MEMBERS_FILE_NAME: Final = "members"

logger = structlog.get_logger()


def read_members(path: Path, file_system: FileSystem | None = None) -> Configuration | None:
    """Return the configuration in a file `members`; None without the file.

    Raises:
        OSError: the disk refused.
        RemoteProtocolError: the file is damaged.
    """
    try:
        data = read_file(OsFileSystem() if file_system is None else file_system, path)
    except FileNotFoundError:
        return None
    text, _, checksum = data.rpartition(b" ")
    if checksum != b"%08x\n" % zlib.crc32(text):
        raise RemoteProtocolError(f"wrong checksum: {checksum!r}")
    try:
        return decode_text(text.decode("ascii"), None)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"not ASCII: {error}") from error


class MembersFile:
    """The members as one member's directory remembers them."""

    def __init__(self, path: Path, newest: Configuration | None, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.newest = newest
        """None until a configuration is known to be committed."""

    def __repr__(self) -> str:
        return f"<MembersFile {self.newest!r} path={self._path}>"

    @classmethod
    def open(cls, directory: Path, file_system: FileSystem) -> MembersFile:
        """Read the file in a member's cluster directory. A damaged one is as good as none: the log says it again.

        Raises:
            OSError: the disk refused.
        """
        path = directory / MEMBERS_FILE_NAME
        try:
            newest = read_members(path, file_system)
        except RemoteProtocolError as error:
            logger.warning("members_file.ignored", path=str(path), reason=str(error))
            newest = None
        return cls(path, newest, file_system)

    def store(self, configuration: Configuration) -> None:
        """Remember a committed configuration, durably, unless a newer one is known.

        Raises:
            OSError: the disk refused.
        """
        if self.newest is not None and self.newest.log_position >= configuration.log_position:
            return
        text = configuration.encode_text(is_placed=True).encode("ascii")
        replace_file(self._file_system, self._path, b"%s %08x\n" % (text, zlib.crc32(text)))
        self.newest = configuration
