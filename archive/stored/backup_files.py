"""A backup in a store, found by its URL and read as the directory that it was at one moment.

A copy to the store makes an object longer before the index that says so is there, and may be cut off at any object.
Through the index all fit together: it holds the small files itself, and says how much of each object counts. Where an
object has gone, it was joined to others: what a newer index has for the same file begins with the same bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ConfigurationError
from ..disk.object_store import ObjectStore, OpenObjects
from ..disk.remote_file_system import RemoteFileSystem
from ..format.stored_names import NameKind, StoredName, take_name
from .cluster_store import ClusterStore, refuse_older_backup
from .index import INDEXES, StoredFile, WriterIndex, decode_file, index_name


@dataclass(slots=True, frozen=True)
class FoundBackup:
    """A backup that is in a store."""

    store: ClusterStore
    index: WriterIndex

    @property
    def url(self) -> str:
        """The URL that names this backup and no other."""
        return f"{self.store.url}/{index_name(self.index.writer)}"


def find_backup(url: str, *, open_objects: OpenObjects = ObjectStore) -> FoundBackup | None:
    """Find the backup at the URL of a store, or of its index; None if there is none.

    Raises:
        ConfigurationError: there are several, or an older Trimaran wrote what is there; or the URL cannot be opened.
        StoreError: the store refused.
        RemoteProtocolError: an index cannot be read.
    """
    place, _, name = url.rstrip("/").rpartition(f"/{INDEXES}/")
    if place and NameKind.INDEX.fits(name):
        store = ClusterStore(place, open_objects=open_objects)
        index = store.read_index(name.removesuffix(".json"))
        return None if index is None or index.backup is None else FoundBackup(store, index)
    found = find_backups(url, open_objects=open_objects)
    if len(found) > 1:
        told = "; ".join(
            f"{each.url} with log from {each.index.backup.log_start_position} to {each.index.backup.log_stop_position}"
            for each in found
            if each.index.backup is not None
        )
        raise ConfigurationError(f"{url} has {len(found)} backups: name one of {told}")
    return found[0] if found else None


def find_backups(url: str, *, open_objects: OpenObjects = ObjectStore) -> list[FoundBackup]:
    """Find the backups of all clusters at the URL of a store.

    Raises:
        ConfigurationError: an older Trimaran wrote what is there; or the URL cannot be opened.
        StoreError: the store refused.
        RemoteProtocolError: an index cannot be read.
    """
    found = [
        FoundBackup(store, index)
        for store in cluster_stores(url, open_objects=open_objects)
        for index in store.read_indexes()
        if index.backup is not None
    ]
    if not found:
        refuse_older_backup(open_objects(url))
    return found


def cluster_stores(url: str, *, open_objects: OpenObjects = ObjectStore) -> list[ClusterStore]:
    """Open the places of all clusters at the URL of a store.

    Raises:
        ConfigurationError: the URL cannot be opened.
        StoreError: the store refused.
    """
    names = ClusterStore(url, open_objects=open_objects).list_names("")
    ids = [take_name(name, NameKind.CLUSTER) for name in names if NameKind.CLUSTER.fits(name)]
    return [ClusterStore.below(url, cluster_id, open_objects=open_objects) for cluster_id in ids]


def find_moved(store: ClusterStore, index: WriterIndex, file: StoredFile) -> StoredFile | None:
    """Find the objects that have what objects had that are gone; None if there are none.

    Raises:
        StoreError: the store refused.
        RemoteProtocolError: the newer index cannot be read.
    """
    newer = store.read_index(index.writer)
    for now in [] if newer is None else newer.files:
        if now.path == file.path and now.length >= file.length and now.objects != file.objects:
            return replace(file, objects=now.first_objects(file.length))
    return None


class StoredBackup(RemoteFileSystem):
    """The files of a backup, as its index says: `archive/` and `cluster/`, as in its directory.

    It can be pickled: the other side opens the URL itself, with its own credentials.
    """

    def __init__(self, url: str, index: WriterIndex) -> None:
        super().__init__(url)
        self.index: Final = index
        self._stored = {file.path: file for file in index.files}
        contents = index.backup
        self._small = {} if contents is None else {name: decode_file(text) for name, text in contents.files.items()}

    def __repr__(self) -> str:
        return f"<StoredBackup {self.index.writer} files={len(self._stored)} url={self.url}>"

    def __reduce__(self) -> tuple[type[RemoteFileSystem], tuple[Any, ...]]:
        return StoredBackup, (self.url, self.index)

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for reading.

        Raises:
            OSError: the backup has no such file, or it was to be written, or the store refused.
        """
        name = StoredName(path.as_posix())
        if create or writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        small, file = self._small.get(name), self._stored.get(name)
        if small is not None:
            return self._add_file(lambda begin, end: small[begin:end], len(small))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "the backup does not have it", f"{self.url}/{name}")
        try:
            self._find_object(Path(file.objects[0].name))
        except FileNotFoundError:
            file = self._find_moved(file)
            if file is None:
                raise
        return self._add_file(self._fetch_of(file), file.length)

    def _fetch_of(self, file: StoredFile) -> Callable[[int, int], bytes]:
        """Give what fetches a range of a file from its objects."""

        def fetch(begin: int, end: int) -> bytes:
            nonlocal file
            try:
                return b"".join(self._fetch_object(Path(name), *span) for name, *span in file.spans(begin, end))
            except FileNotFoundError:
                moved = self._find_moved(file)
                if moved is None:
                    raise
                file = moved
            return b"".join(self._fetch_object(Path(name), *span) for name, *span in file.spans(begin, end))

        return fetch

    def _find_moved(self, file: StoredFile) -> StoredFile | None:
        return find_moved(ClusterStore(self.url), self.index, file)

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        files = [Path(name) for name in (*self._stored, *self._small)]
        return sorted({file.relative_to(path).parts[0] for file in files if file.is_relative_to(path)})
