"""The secrets file as it is now: read again once it has changed.

It is looked at when a client connects, once a second at most, by its inode, length and time; nothing is done while
nobody connects. What cannot be read, or is not as expected, changes nothing and is logged: a mistake in the file locks
nobody out who could come in before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from trimaran.service_api.errors import ConfigurationError

from .secrets_file import SecretsFile

_LOOK_INTERVAL_MS: Final = 1_000

logger = structlog.get_logger()


class SecretsWatch:
    """Gives the contents of one secrets file."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            ConfigurationError: the user's: as `SecretsFile.load`.
        """
        self._path = path
        self._seen = self._look()
        self._file = SecretsFile.load(path)
        self._looked_ms = 0

    def __repr__(self) -> str:
        return f"<SecretsWatch {self._path} {self._file!r}>"

    def __call__(self, now_ms: int) -> SecretsFile:
        """Give what it holds; `now_ms` may jump."""
        if abs(now_ms - self._looked_ms) >= _LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._read_again()
        return self._file

    def _read_again(self) -> None:
        try:
            self._file = SecretsFile.load(self._path)
        except ConfigurationError as error:
            logger.error("secrets.refused", reason=f"{error}; what was read before still counts")
            return
        logger.info("secrets.changed", file=str(self._path), principals=len(self._file.verifiers))

    def _look(self) -> tuple[int, int, int] | None:
        """What tells one version of the file from another; None if it is gone."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
