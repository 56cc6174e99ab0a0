"""A place in an object store, to be written: whole objects, each of which is there as it was before or as it is now.

A store of objects puts an object in one step. A directory that fsspec writes does not, so there an object gets another
name first. Reading in pieces is `remote_file_system`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .file_system import OsFileSystem, replace_file
from .remote_file_system import open_store, os_errors


class ObjectStore:
    """Objects below a URL, by name, such as `archive/0-0.rec`. Every method may take long: call them in a thread.

    Raises:
        ConfigurationError: the scheme of the URL is unknown, or its library is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url: Final = url.rstrip("/")
        store, root = open_store(url)
        self._store: Final[Any] = store  # fsspec has no types
        self._root: Final = root.rstrip("/")
        self._is_directory: Final = bool(getattr(store, "local_file", False))

    def __repr__(self) -> str:
        return f"<ObjectStore {self.url}>"

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in the place of one that is there.

        Raises:
            OSError: the store refused; it names the URL.
        """
        place = self._place_of(name)
        with os_errors(f"{self.url}/{name}"):
            if self._is_directory:
                disk = OsFileSystem()
                disk.make_directory(Path(place).parent)
                replace_file(disk, Path(place), data)
            else:
                self._store.pipe_file(place, data)

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store refused.
        """
        with os_errors(f"{self.url}/{name}"):
            data: bytes = self._store.cat_file(self._place_of(name))
            return data

    def get_file(self, name: str, target: Path) -> None:
        """Write the content of an object to a file.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store refused, or the disk.
        """
        with os_errors(f"{self.url}/{name}"):
            self._store.get_file(self._place_of(name), str(target))

    def remove(self, name: str) -> None:
        """Remove an object; it may be gone already.

        Raises:
            OSError: the store refused.
        """
        with os_errors(f"{self.url}/{name}"):
            try:
                self._store.rm_file(self._place_of(name))
            except FileNotFoundError:
                return

    def _place_of(self, name: str) -> str:
        return f"{self._root}/{name}"
