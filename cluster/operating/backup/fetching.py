"""Brings a backup back from an object store into a directory, whole and checked, or not at all."""

from __future__ import annotations

from pathlib import Path

from ....archive.disk.file_system import OsFileSystem, replace_file
from ....archive.disk.object_store import Objects, ObjectStore, OpenObjects
from ....service_api import ConfigurationError
from ...directories.copying import written_whole
from .manifest import Manifest, StoredObject, decode_file
from .object_check import check_object, damaged_object, missing_object
from .shipping import no_backup, read_backup_manifest


def fetch_backup(url: str, target: Path, *, open_objects: OpenObjects = ObjectStore) -> Manifest:
    """Write the backup of the store at a URL to a new directory; every object is held against the manifest.

    Raises:
        ConfigurationError: there is no backup, or something is at the target.
        ClusterError: an object is missing or not what the manifest says; it is named.
        OSError: the store or the disk refused.
    """
    store = open_objects(url)
    manifest = read_backup_manifest(store)
    if manifest is None:
        raise no_backup(store.url)
    if target.exists():
        raise ConfigurationError(f"target is there already: {target}")
    disk = OsFileSystem()
    with written_whole(target, "fetching") as working:
        for name in ("archive", "cluster"):
            disk.make_directory(working / name)
        for found in manifest.objects:
            path = working / found.name
            try:
                _expect_bounded(store, found)
                store.get_file(found.name, path)
            except FileNotFoundError as error:
                raise missing_object(f"{store.url}/{found.name}") from error
            check_object(disk, path, found, f"{store.url}/{found.name}")
            _take_as_named(path, found)
        for name, text in manifest.files.items():
            replace_file(disk, working / name, decode_file(text))
    return manifest


def _expect_bounded(store: Objects, expected: StoredObject) -> None:
    """Refuse an object that is longer than its file can be: the disk is not filled because a store says so.

    Raises:
        ClusterError: it is.
        FileNotFoundError: there is no such object.
        OSError: the store refused.
    """
    length = store.find_length(expected.name)
    if length is not None and length > expected.file_length:
        raise damaged_object(f"{store.url}/{expected.name}", f"{length} bytes", f"at most {expected.file_length} bytes")


def _take_as_named(path: Path, expected: StoredObject) -> None:
    """Put zeros in the place of what a later copy has added to an object."""
    disk = OsFileSystem()
    handle = disk.open_file(path)
    try:
        disk.set_length(handle, expected.length)
        disk.set_length(handle, expected.file_length)
        disk.sync_file(handle)
    finally:
        disk.close_file(handle)
