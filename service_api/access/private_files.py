"""Files with secrets in them are for their owner alone: keys, verifiers, tokens. Every function here may block."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from ..operating_system import effective_user_id
from ..synced_files import sync_file

_FORBIDDEN: Final = 0o077
_FORBIDDEN_OF_ROOT: Final = 0o037
"""The mode bits that such a file may not have; of root's the group may read it."""


def expect_private(file: Path, what: str) -> None:
    """Refuse a file that others than its owner may read, or the group of one that is root's. Blocks.

    `what` begins the error, as "key file" does. A file that is not there is left to the one who reads it. Windows
    keeps other rights than these mode bits, and shows 0666 for every file: there nothing is refused.

    Raises:
        ConfigurationError: the user's.
    """
    try:
        found = file.stat()
    except OSError:
        return
    if effective_user_id() is not None and found.st_mode & (_FORBIDDEN_OF_ROOT if found.st_uid == 0 else _FORBIDDEN):
        raise ConfigurationError(
            f"{what} may be read by others: file={file} mode={stat.S_IMODE(found.st_mode):04o} expected 0600, or "
            f"0640 where root owns it: chmod 600 {file}, and consider whether somebody has read it"
        )


def write_private(file: Path, data: bytes, what: str = "file") -> None:
    """Put a file in place, at once and for its owner alone. `what` begins the error.

    Raises:
        ConfigurationError: the user's: it cannot be written there.
    """
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            sync_file(opened.fileno())
        os.replace(temporary, file)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise ConfigurationError(f"{what} cannot be written: file={file} reason={error.strerror}") from error


class FileVersion(NamedTuple):
    """What tells one version of a file from another without reading it.

    The mode and the owner are part of it: a file that was refused because others may read it is read again once that
    is put right.
    """

    inode: int
    length_bytes: int
    modified_ns: int
    mode: int
    owner: int


def version_of(file: str | Path) -> FileVersion | None:
    """Return the version of a file as it is now; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return FileVersion(found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid)
