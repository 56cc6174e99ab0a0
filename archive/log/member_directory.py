"""The files of a member, archive and cluster, on a disk or behind a URL, ours or Aeron's.

One precedence: what the directory itself holds, else what `archive` and `cluster` in it hold, else what the only other
directory in it does that has such a file, for Aeron names them as its users like. The recording log is found from the
archive's directory, too.

A place is a file system and a `Path` in it. A `Path` itself cannot hold a URL: it makes `s3:/bucket` of
`s3://bucket`. So the URL belongs to the file system, and paths are names below it; code that is given a directory and
a file system reads both kinds the same way, and for a local one nothing lies between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ..cold.file_system import readable_disk
from ..disk.file_system import OsFileSystem, ReadableFileSystem, read_file, read_fully
from ..disk.local_store import path_of_file_url
from ..disk.remote_file_system import RemoteFileSystem
from ..errors import CorruptionError
from ..files.catalog import read_catalog
from ..format.catalog import CATALOG_FILE_NAME, CatalogContent
from .commit_proof import MemberMarks, parse_marks
from .group_directories import refuse_groups

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+(::|://).*", re.ASCII | re.DOTALL)
_FLATTENED_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:/[^/].*", re.ASCII | re.DOTALL)


class ArchiveLocation(NamedTuple):
    """The directory of an archive and the file system that it is in. It can be pickled."""

    file_system: ReadableFileSystem
    directory: Path

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return isinstance(self.file_system, OsFileSystem)

    def __str__(self) -> str:
        if isinstance(self.file_system, RemoteFileSystem):
            return f"{self.file_system.url}/{self.directory}".removesuffix("/.")
        return str(self.directory)


def path_on_disk(text: str) -> Path | None:
    """Take a path, or a `file:` URL, as a path of this machine; None: it is the URL of another place."""
    local = path_of_file_url(text)
    if local is None and _URL.fullmatch(text):
        return None
    return Path(text if local is None else local)


def locate(path: str | Path | ArchiveLocation) -> ArchiveLocation:
    """Take a directory by path or URL, or by its location, as it is; nothing is looked at.

    `file:` URLs are paths, others are opened with fsspec. The file system of a URL is that of its parent, so that
    `directory.parent` is there, as it is on a disk.

    Raises:
        ConfigurationError: the URL has an unknown scheme, its library is not installed, or a `Path` has lost a slash.
    """
    text = str(path)
    if isinstance(path, ArchiveLocation):
        return path
    if isinstance(path, Path) and _FLATTENED_URL.fullmatch(text) and not path.exists():
        raise ConfigurationError(f"a URL is given as text: path={path!r} expected a str")
    local = path if isinstance(path, Path) else path_on_disk(text)
    if local is not None:
        return ArchiveLocation(OsFileSystem(), local)
    url = text.rstrip("/")
    scheme, separator, rest = url.partition("://")
    parent, _, name = rest.rpartition("/")
    if "::" in url or not parent.strip("/"):
        return ArchiveLocation(RemoteFileSystem(url), Path())
    return ArchiveLocation(RemoteFileSystem(scheme + separator + parent), Path(name))


def locate_archive(path: str | Path | ArchiveLocation) -> ArchiveLocation:
    """Find an archive by path or URL; without one, give the directory itself, and who reads it says so.

    Of a member with cold storage it gives a file system that has those segments, too.

    Raises:
        ConfigurationError: several directories in it have a catalog, or it holds groups; or see `locate`.
        OSError: a store cannot be asked.
    """
    return _find_archive(path)[1]


def find_recording_log(location: ArchiveLocation) -> Path | None:
    """Find `recording.log`, given a member's directory, the cluster's or the archive's in it, or the file itself.

    Raises:
        ConfigurationError: several directories in it have one, or it holds groups.
        OSError: a store cannot be asked.
    """
    file_system, directory = location
    if directory.name == RECORDING_LOG_FILE_NAME and _has_file(file_system, directory):
        return directory
    beside = directory.parent / "cluster"
    holder = _find_holder(file_system, directory, "cluster", RECORDING_LOG_FILE_NAME)
    if holder is None and _has_file(file_system, beside / RECORDING_LOG_FILE_NAME):
        holder = beside
    return None if holder is None else holder / RECORDING_LOG_FILE_NAME


@dataclass(frozen=True, slots=True)
class MemberDirectory:
    """The files of one member, or of an archive without a cluster."""

    name: str
    """As the user named it."""
    archive: ArchiveLocation
    place: ArchiveLocation
    """Where the recording log is looked for."""

    @classmethod
    def find(cls, path: str | Path | ArchiveLocation) -> Self:
        """Find a member's files by path, URL or location, or as `CLUSTER_DIR,ARCHIVE_DIR`.

        Raises:
            ConfigurationError: there is no archive; or see `locate_archive`.
            OSError: a store cannot be asked.
        """
        cluster, comma, archive = str(path).partition(",")
        given = locate(path)
        if comma and not _has_file(given.file_system, given.directory / CATALOG_FILE_NAME):
            location, place = locate_archive(archive), locate(cluster)
        else:
            place, location = _find_archive(path)
        if not _has_file(location.file_system, location.directory / CATALOG_FILE_NAME):
            raise ConfigurationError(
                f"no archive found: there is no {CATALOG_FILE_NAME} in {place}, in its directory archive, or in "
                "exactly one other directory in it; name both directories as CLUSTER_DIR,ARCHIVE_DIR"
            )
        return cls(str(path), location, place)

    @classmethod
    def beside(cls, archive: ArchiveLocation) -> Self:
        """Take the member whose archive is there; nothing is looked at."""
        return cls(str(archive), archive, archive)

    def on_disk(self) -> Self:
        """Take what is on the disk alone, as a start of the member does: without segments in cold storage."""
        return replace(self, archive=locate(self.archive.directory)) if self.archive.is_local else self

    @property
    def recording_log(self) -> Path | None:
        """Where the recording log is, on the archive's file system; None without a cluster."""
        return find_recording_log(self.place)

    def read_catalog(self) -> CatalogContent:
        """Read the archive's catalog.

        Raises:
            CorruptionError: it is damaged.
            OSError: the disk or the store refused.
        """
        return read_catalog(self.archive.file_system, self.archive.directory)

    def read_file(self, path: Path) -> bytes:
        """Read a small file of the member, on the archive's file system.

        Raises:
            OSError: it is not there, or the disk or the store refused.
        """
        return read_file(self.archive.file_system, path)

    def read_marks(self) -> MemberMarks | None:
        """Read what the recording log says, of a member that runs or not; None without one.

        Raises:
            CorruptionError: it is damaged.
            OSError: the disk or the store refused.
        """
        path, file_system = self.recording_log, self.archive.file_system
        if path is None:
            return None
        handle = file_system.open_file(path, writable=False)
        try:
            return parse_marks(read_fully(file_system, handle, file_system.file_length(handle), 0))
        except RemoteProtocolError as error:
            raise CorruptionError(f"damaged recording log: path={path}: {error}") from error
        finally:
            file_system.close_file(handle)


def _find_archive(path: str | Path | ArchiveLocation) -> tuple[ArchiveLocation, ArchiveLocation]:
    """Take a place, and find the archive in it; the URL of a store with a backup is the place of the backup's files."""
    place = locate(path)
    found = _find_holder(*place, "archive", CATALOG_FILE_NAME)
    if found is None and isinstance(path, str) and _URL.fullmatch(path):
        from ..stored.backup_files import StoredBackup, find_backup  # other readers need no pydantic

        backup = find_backup(path)
        if backup is not None:
            place = ArchiveLocation(StoredBackup(backup.store.url, backup.index), Path())
            found = _find_holder(*place, "archive", CATALOG_FILE_NAME)
    found = found or place.directory
    return place, ArchiveLocation(readable_disk(found) if place.is_local else place.file_system, found)


def _find_holder(file_system: ReadableFileSystem, directory: Path, usual: str, file_name: str) -> Path | None:
    """Find the directory that holds a file: the one given, the usual one in it, or the only other one in it.

    One with groups is refused: it holds the directories of several logs.
    """
    for candidate in (directory, directory / usual):
        if _has_file(file_system, candidate / file_name):
            return candidate
    refuse_groups(directory, file_system, show=lambda path: str(ArchiveLocation(file_system, path)))
    found = [other for other in _others(file_system, directory) if _has_file(file_system, other / file_name)]
    if len(found) > 1:
        raise ConfigurationError(
            f"files={file_name} found={len(found)} expected=1 in {directory} or a directory in it; name both "
            "directories as CLUSTER_DIR,ARCHIVE_DIR"
        )
    return found[0] if found else None


def _others(file_system: ReadableFileSystem, directory: Path) -> Iterator[Path]:
    if ArchiveLocation(file_system, directory).is_local and directory.is_dir():
        yield from (child for child in sorted(directory.iterdir()) if child.is_dir())


def _has_file(file_system: ReadableFileSystem, path: Path) -> bool:
    try:
        handle = file_system.open_file(path, writable=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return True  # who reads it says so
    file_system.close_file(handle)
    return True
