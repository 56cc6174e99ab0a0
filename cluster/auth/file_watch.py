"""Reads a file with secrets again when it has changed.

`run` looks at it once a second, by its inode, length and time; a thread does that and reads it, so that the event loop
waits for no disk. What cannot be read, or is not as expected, changes nothing and is logged: a mistake in the file
locks nobody out who could come in before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import aiofiles.os
import structlog

from ...service_api.access.private_files import version_of
from ...service_api.errors import ConfigurationError

_LOOK_INTERVAL_S: Final = 1.0

logger = structlog.get_logger()

T = TypeVar("T")


class FileWatch(Generic[T]):
    """Gives the contents of one file: a call is what was last read."""

    def __init__(self, path: Path, load: Callable[[Path], T], what: str) -> None:
        """Read it. Blocks. `what` is what events call it: `secrets` says `secrets.changed`.

        Raises:
            ConfigurationError: the user's: as `load` says.
        """
        self._path = path
        self._load = load
        self._what = what
        self._seen = version_of(path)
        self._contents = load(path)

    def __repr__(self) -> str:
        return f"<FileWatch {self._path} {self._what}>"

    def __call__(self) -> T:
        """Return what it holds."""
        return self._contents

    async def run(self) -> None:
        """Read the file again whenever it has changed, until this is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Read the file again if it has changed since the last look."""
        seen = await aiofiles.os.wrap(version_of)(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._contents = await aiofiles.os.wrap(self._load)(self._path)
        except ConfigurationError as error:
            logger.error(f"{self._what}.refused", reason=f"{error}; what was read before stays in use")
            return
        logger.info(f"{self._what}.changed", file=str(self._path))


def watch_file(path: str, load: Callable[[Path], T], what: str) -> FileWatch[T] | None:
    """Watch the file that a setting names; None where it names none. Blocks; raises as `FileWatch` does."""
    return FileWatch(Path(path), load, what) if path else None
