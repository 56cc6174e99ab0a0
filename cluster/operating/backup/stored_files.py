"""The files of a backup in an object store, as its manifest says that they were at one moment.

A copy to the store overwrites the newest segment, and the small files, before the manifest that names the new ones is
there; it may have been cut off at any of them. So who reads the objects as they are may meet a segment that is longer
than the catalog knows, or a recording log that names a snapshot that is not there yet. Through the manifest all fit
together: it holds the small files itself, and says how much of each object counts.
"""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....archive.disk.file_system import ReadableFileSystem
from ....archive.disk.object_store import ObjectStore
from ....archive.format.stored_names import StoredName
from ....archive.log.member_directory import ArchiveLocation, locate
from .manifest import Manifest, StoredObject, decode_file
from .shipping import no_backup, read_backup_manifest


def locate_backup(name: str) -> ArchiveLocation:
    """Take a backup by path or URL; where there is a manifest, as that says. What has a URL must have one.

    Raises:
        ConfigurationError: the URL cannot be opened, or there is no manifest.
        RemoteProtocolError: the manifest cannot be read.
        OSError: the store refused.
    """
    place = locate(name)
    is_store = "://" in name
    manifest = read_backup_manifest(ObjectStore(name if is_store else f"file:{place.directory.absolute()}"))
    if manifest is not None:
        return ArchiveLocation(StoredBackup(place, manifest, name.rstrip("/")), place.directory)
    if is_store:
        raise no_backup(name)
    return place


@dataclass(slots=True, frozen=True)
class _OpenFile:
    """A small file's bytes, or a handle of the store's and how many bytes count."""

    length: int
    data: bytes | None = None
    handle: int = -1


class StoredBackup:
    """Implements `ReadableFileSystem` for the files that a manifest names. Nothing can be written."""

    def __init__(self, place: ArchiveLocation, manifest: Manifest, url: str) -> None:
        self.url: Final = url
        self._store: Final[ReadableFileSystem] = place.file_system
        self._directory = place.directory
        self._objects = manifest.by_name
        self._small = {name: decode_file(text) for name, text in manifest.files.items()}
        self._next_handle = itertools.count()
        self._files: dict[int, _OpenFile] = {}

    def __repr__(self) -> str:
        return f"<StoredBackup {self.url} objects={len(self._objects)} store={self._store!r}>"

    @property
    def objects(self) -> list[StoredObject]:
        """The objects that the manifest names, in its order."""
        return [*self._objects.values()]

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for reading.

        Raises:
            OSError: the manifest does not name it, or it was to be written, or the store refused.
        """
        name = StoredName(path.relative_to(self._directory).as_posix())
        if create or writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        if name in self._small:
            opened = _OpenFile(len(self._small[name]), self._small[name])
        elif name in self._objects:
            opened = _OpenFile(self._objects[name].length, handle=self._store.open_file(path, writable=False))
        else:
            raise FileNotFoundError(errno.ENOENT, "the manifest does not name it", name)
        handle = next(self._next_handle)
        self._files[handle] = opened
        return handle

    def close_file(self, handle: int) -> None:
        """Close the handle."""
        opened = self._files.pop(handle)
        if opened.data is None:
            self._store.close_file(opened.handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`; fewer only at the end of what the manifest names."""
        opened = self._files[handle]
        end = min(offset + length, opened.length)
        if opened.data is not None:
            return opened.data[offset:end]
        return self._store.pread(opened.handle, max(0, end - offset), offset)

    def pread_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on and return how many bytes were read; fewer only at the end."""
        data = self.pread(handle, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def file_length(self, handle: int) -> int:
        """Return how many bytes of the file the manifest names."""
        return self._files[handle].length

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        parent = path.relative_to(self._directory)
        files = [Path(name) for name in (*self._objects, *self._small)]
        return sorted({file.relative_to(parent).parts[0] for file in files if file.is_relative_to(parent)})
