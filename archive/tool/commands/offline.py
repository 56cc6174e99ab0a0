"""Exclusive use of an archive directory while it is changed: refused where an archive runs on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from ...disk.file_system import OsFileSystem
from ...errors import ArchiveError, CorruptionError
from ...files.mark_file import ArchiveMarkFile
from ...log.member_directory import locate
from ...store.maintenance import OfflineArchive
from ..output import EXIT_REFUSED, EXIT_UNHEALTHY, fail
from ..selection import load_catalog


@contextlib.contextmanager
def offline_archive(directory: Path, *, is_changing: bool = True) -> Iterator[OfflineArchive]:
    """Give a directory to be changed: locked, and with what a crash interrupted completed. Or only to be looked at.

    Ends the command with one line where an archive runs there (12), where the catalog is damaged (10), or where what is
    to be done cannot be done (12).
    """
    load_catalog(locate(directory))
    archive = OfflineArchive(OsFileSystem(), directory)
    try:
        with contextlib.ExitStack() as stack:
            if is_changing:
                stack.enter_context(ArchiveMarkFile.open(directory, now_ms=time.time_ns() // 1_000_000))
                archive.settle()
            yield archive
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)
    except ArchiveError as error:
        fail(str(error), EXIT_REFUSED)
