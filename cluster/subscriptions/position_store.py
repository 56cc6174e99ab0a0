"""Keeps the position of a subscriber across restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from ...service_api.errors import ConfigurationError
from ...service_api.synced_files import sync_directory, sync_file

_LENGTH_LIMIT_BYTES: Final = 64


class PositionStore(Protocol):
    """Where a subscriber notes how far it has come."""

    def load(self) -> int | None:
        """Return the position that was saved last; None where there was none."""

    def save(self, position: int) -> None:
        """Save a position, durably."""


class FilePositionStore:
    """Keeps a position in a file of one line, which is replaced at once: a crash leaves the old one or the new one."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._saved: int | None = None

    def __repr__(self) -> str:
        return f"<FilePositionStore {self._path}>"

    def load(self) -> int | None:
        """Return the position in the file; None where there is no file.

        Raises:
            ConfigurationError: the file holds something else.
            OSError: it cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_LENGTH_LIMIT_BYTES)
        except FileNotFoundError:
            return None
        if not text.strip().isdigit():
            raise ConfigurationError(f"no position in {self._path}: {text!r} expected a number of bytes")
        return int(text)

    def save(self, position: int) -> None:
        """Write the position, and return when it is on the disk.

        Raises:
            OSError: the disk refused; the file holds the position before.
        """
        if position == self._saved:
            return
        written = self._path.with_name(f"{self._path.name}.new")
        with written.open("wb") as file:
            file.write(b"%d\n" % position)
            file.flush()
            sync_file(file.fileno())
        written.replace(self._path)
        sync_directory(self._path.parent)
        self._saved = position
