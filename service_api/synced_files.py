"""Syncs of files and directories, as far as the drive: what each operating system has for that.

Linux syncs with fdatasync and fsync. On macOS these only hand the data to the drive, and a command of its own has the
drive write it. Windows opens no directories, and writes their changes in order by itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .operating_system import optional_flag, optional_function, optional_module

_fcntl: Final = optional_module("fcntl")
_SYNC_DRIVE: Final[int] = getattr(_fcntl, "F_FULLFSYNC", -1)
_NOT_SUPPORTED: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


def _sync_drive(handle: int) -> None:
    """Return once the drive has written the file.

    A file system that knows no such command, as of a network, gets what there is.
    """
    try:
        _fcntl.fcntl(handle, _SYNC_DRIVE)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        os.fsync(handle)


sync_file: Final[Callable[[int], None]] = os.fsync if _SYNC_DRIVE == -1 else _sync_drive
"""Returns once data and all metadata of an open file are durable."""
sync_data: Final[Callable[[int], None]] = (
    (optional_function("fdatasync") or os.fsync) if _SYNC_DRIVE == -1 else _sync_drive
)
"""Returns once the data of an open file can be read again after a crash."""


def sync_directory(path: Path) -> None:
    """Return once creations, renames and removals in the directory are durable.

    Raises:
        OSError: the disk refused, or there is no such directory.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY | optional_flag("O_DIRECTORY") | optional_flag("O_CLOEXEC"))
    try:
        sync_file(handle)
    finally:
        os.close(handle)
