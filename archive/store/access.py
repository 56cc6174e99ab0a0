"""Takes a directory that others may read from them: what is made here is for its owner alone, but it may be older."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from ..disk.file_system import FileSystem

_SHOWN_PATHS: Final = 3

_log = structlog.get_logger(__name__)


def restrict_access(file_system: FileSystem, directory: Path, *, with_files: bool = True) -> None:
    """Let only the owner use a directory, and the files in it; say what was changed, and what cannot be.

    What belongs to another user is left as it is: only that user can change it. Refusing to start then would stop
    clusters whose volumes are mounted for a group, and would protect nothing, for it could be read before.

    Raises:
        OSError: the directory cannot be listed.
    """
    changed_count, left = file_system.restrict_access(directory, with_files=with_files)
    if changed_count:
        _log.info("directory.access_restricted", directory=str(directory), changed_count=changed_count)
    if left:
        _log.warning(
            "directory.access_not_restricted",
            directory=str(directory),
            left_count=len(left),
            paths=left[:_SHOWN_PATHS],
            detail="others may use these; their owner can run: chmod -R go-rwx",
        )
