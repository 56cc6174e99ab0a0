"""Reads the secrets file again when it has changed.

`run` looks at it once a second, by its inode, length and time; a thread does that and reads it, so that the event loop
waits for no disk. What cannot be read, or is not as expected, changes nothing and is logged: a mistake in the file
locks nobody out who could come in before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import aiofiles.os
import structlog

from trimaran.service_api.errors import ConfigurationError

from .secrets_file import SecretsFile

_LOOK_INTERVAL_S: Final = 1.0

logger = structlog.get_logger()


class SecretsWatch:
    """Gives the contents of one secrets file: a call is what was last read."""

    def __init__(self, path: Path) -> None:
        """Read it. Blocks.

        Raises:
            ConfigurationError: the user's: as `SecretsFile.load`.
        """
        self._path = path
        self._seen = self._look()
        self._file = SecretsFile.load(path)

    def __repr__(self) -> str:
        return f"<SecretsWatch {self._path} {self._file!r}>"

    def __call__(self) -> SecretsFile:
        """Return what it holds."""
        return self._file

    async def run(self) -> None:
        """Read the file again whenever it has changed, until this is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Read the file again if it has changed since the last look."""
        seen = await aiofiles.os.wrap(self._look)()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._file = await aiofiles.os.wrap(SecretsFile.load)(self._path)
        except ConfigurationError as error:
            logger.error("secrets.refused", reason=f"{error}; the secrets that were read before stay in use")
            return
        logger.info("secrets.changed", file=str(self._path), principals=len(self._file.verifiers))

    def _look(self) -> tuple[int, int, int] | None:
        """What tells one version of the file from another; None if it is gone. Blocks."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
