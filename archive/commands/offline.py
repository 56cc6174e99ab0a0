"""Having an archive directory to oneself while it is changed: refused where an archive runs on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import ArchiveError, CorruptionError
from ..file_system import OsFileSystem
from ..maintenance import OfflineArchive
from ..mark_file import ArchiveInUseError, ArchiveMarkFile
from ..output import EXIT_REFUSED, EXIT_UNHEALTHY
from ..selection import load_catalog, refuse


@contextlib.contextmanager
def offline_archive(directory: Path) -> Iterator[OfflineArchive]:
    """Lock a directory, complete what a crash interrupted, and give it to be changed.

    Ends the command with one line where an archive runs there (12), where the catalog is damaged (10), or where what is
    to be done cannot be done (12).
    """
    load_catalog(directory)
    try:
        with ArchiveMarkFile.open(directory, now_ms=time.time_ns() // 1_000_000):
            archive = OfflineArchive(OsFileSystem(), directory)
            archive.settle()
            yield archive
    except CorruptionError as error:
        refuse(str(error), EXIT_UNHEALTHY)
    except (ArchiveInUseError, ArchiveError) as error:
        refuse(str(error), EXIT_REFUSED)
