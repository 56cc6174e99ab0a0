"""Brings a backup back from an object store into a directory, whole and checked, or not at all."""

from __future__ import annotations

from pathlib import Path

from ....archive.disk.file_system import OsFileSystem, replace_file
from ....archive.disk.object_store import ObjectStore, OpenObjects
from ....archive.stored.backup_files import FoundBackup, find_backup, find_moved
from ....archive.stored.cluster_store import StoreError
from ....archive.stored.index import BackupContents, StoredFile, decode_file
from ....service_api import ConfigurationError
from ...directories.copying import written_whole


def require_backup(url: str, open_objects: OpenObjects = ObjectStore) -> FoundBackup:
    """Find the backup at the URL of a store, or of its index.

    Raises:
        ConfigurationError: there is none, or there are several, or an older Trimaran wrote what is there.
        ClusterError: the store refused, or an index cannot be read.
    """
    found = find_backup(url, open_objects=open_objects)
    if found is None:
        raise no_backup_at(url)
    return found


def no_backup_at(url: str) -> ConfigurationError:
    """Say that a store has no backup."""
    return ConfigurationError(
        f"no backup at {url}: there is no CLUSTER_ID/indexes/backup-STARTED.json with one, which `trimaran backup "
        "ship` writes; name a directory that was not shipped by its path"
    )


def fetch_backup(url: str, target: Path, *, open_objects: OpenObjects = ObjectStore) -> BackupContents:
    """Write the backup of the store at a URL to a new directory; every object is held against the index.

    Raises:
        ConfigurationError: there is no backup, or something is at the target.
        StoreError: the store refused, or an object is missing or not what the index says; it is named.
        OSError: the disk refused.
    """
    found = require_backup(url, open_objects)
    contents = found.index.backup
    assert contents is not None
    if target.exists():
        raise ConfigurationError(f"target is there already: {target}")
    disk = OsFileSystem()
    with written_whole(target, "fetching") as working:
        for name in ("archive", "cluster"):
            disk.make_directory(working / name)
        for file in found.index.files:
            try:
                _fetch(found, file, working / file.path)
            except StoreError as error:
                is_missing = isinstance(error.__cause__, FileNotFoundError)
                moved = find_moved(found.store, found.index, file) if is_missing else None
                if moved is None:
                    raise
                _fetch(found, moved, working / file.path)
        for name, text in contents.files.items():
            replace_file(disk, working / name, decode_file(text))
    return contents


def _fetch(found: FoundBackup, file: StoredFile, path: Path) -> None:
    """Write one file; zeros stand for what its objects do not have."""
    found.store.fetch(file.objects, path, digest=file.sha256)
    if file.length == file.file_length:
        return
    disk = OsFileSystem()
    handle = disk.open_file(path)
    try:
        disk.set_length(handle, file.file_length)
        disk.sync_file(handle)
    finally:
        disk.close_file(handle)
