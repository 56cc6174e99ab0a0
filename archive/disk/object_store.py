"""A place in an object store, to be written: whole objects, each of which is there as it was before or as it is now.

A store of objects puts an object in one step. A directory that fsspec writes does not, so there an object gets another
name first. Reading in pieces is `remote_file_system`'s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from ..format.stored_names import StoredName
from .file_system import OsFileSystem, opened, replace_file, write_fully
from .remote_file_system import open_store, os_errors

_COPY_BYTES: Final = 1 << 20


class Objects(Protocol):
    """What is asked of a place in an object store: objects by name, each whole or not there. Every method may raise
    OSError; files are on the disk of the machine that asks. See `ObjectStore` for each method.
    """

    @property
    def url(self) -> str:
        """The URL of the place."""

    def put(self, name: StoredName, data: bytes) -> None:
        """Write an object."""

    def put_file(self, name: StoredName, source: Path) -> None:
        """Write the content of a file to an object."""

    def find_length(self, name: StoredName) -> int | None:
        """Return how long an object is; None if there is none."""

    def read_range(self, name: StoredName, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of an object."""

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the objects and folders in a folder, sorted; the empty text is the place itself."""

    def read(self, name: StoredName) -> bytes:
        """Return the content of an object."""

    def remove(self, name: StoredName) -> None:
        """Remove an object; it may be gone already."""


OpenObjects = Callable[[str], Objects]
"""Opens the place of a URL; raises ConfigurationError where that cannot be."""


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

    def put(self, name: StoredName, data: bytes) -> None:
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

    def put_file(self, name: StoredName, source: Path) -> None:
        """Write the content of a file to an object, in the place of one that is there.

        A store may keep what came before an error, under the same name: read it back before it is relied on.

        Raises:
            OSError: the store refused, or the disk.
        """
        place = self._place_of(name)
        with os_errors(f"{self.url}/{name}"):
            if self._is_directory:
                disk = OsFileSystem()
                disk.make_directory(Path(place).parent)
                _copy_file(disk, source, Path(place))
            else:
                self._store.put_file(str(source), place)

    def find_length(self, name: StoredName) -> int | None:
        """Return how long an object is, in bytes; None if there is none.

        Raises:
            OSError: the store refused.
        """
        try:
            with os_errors(f"{self.url}/{name}"):
                self._store.invalidate_cache()
                length: int | None = self._store.info(self._place_of(name))["size"]
                return length
        except FileNotFoundError:
            return None

    def read_range(self, name: StoredName, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of an object.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store refused, or the object ends before.
        """
        with os_errors(f"{self.url}/{name}"):
            data: bytes = self._store.cat_file(self._place_of(name), start=begin, end=end)
            if len(data) != end - begin:
                raise OSError(f"the object ends too early: begin={begin} length={len(data)} expected={end - begin}")
            return data

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the objects and folders in a folder, sorted; none where it is not there.

        Raises:
            OSError: the store refused.
        """
        place = self._place_of(folder)
        try:
            with os_errors(f"{self.url}/{folder}"):
                self._store.invalidate_cache()
                names: list[str] = self._store.ls(place, detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def read(self, name: StoredName) -> bytes:
        """Return the content of an object.

        Raises:
            FileNotFoundError: there is none.
            OSError: the store refused.
        """
        with os_errors(f"{self.url}/{name}"):
            data: bytes = self._store.cat_file(self._place_of(name))
            return data

    def remove(self, name: StoredName) -> None:
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
        return f"{self._root}/{name}".rstrip("/")


def _copy_file(disk: OsFileSystem, source: Path, target: Path) -> None:
    """Copy a file and put the copy in place as a whole, durably."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with opened(disk, source) as handle:
            written = disk.open_file(temporary, create=True)
            try:
                offset = 0
                while data := disk.pread(handle, _COPY_BYTES, offset):
                    write_fully(disk, written, data, offset)
                    offset += len(data)
                disk.sync_file(written)
            finally:
                disk.close_file(written)
        disk.rename(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    disk.sync_directory(target.parent)
