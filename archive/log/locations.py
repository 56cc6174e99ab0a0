"""Where an archive is: on this machine's disks or behind a URL, its own directory or that of a member.

A place is a file system and a `Path` in it. A `Path` itself cannot hold a URL: it makes `s3:/bucket` of
`s3://bucket`. So the URL belongs to the file system, and paths are names below it; code that is given a directory and
a file system reads both kinds the same way, and for a local one nothing lies between.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from trimaran.service_api.errors import ConfigurationError

from ..disk.file_system import OsFileSystem, ReadableFileSystem
from ..disk.remote_file_system import RemoteFileSystem
from ..files.catalog import CATALOG_FILE_NAME

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+(::|://).*", re.ASCII | re.DOTALL)
_FILE_URL: Final = re.compile(r"file:(//)?(?=/)")
_FLATTENED_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+:/[^/].*", re.ASCII | re.DOTALL)


class ArchiveLocation(NamedTuple):
    """The directory of an archive and the file system that it is in. It can be pickled."""

    file_system: ReadableFileSystem
    directory: Path

    def __str__(self) -> str:
        if isinstance(self.file_system, RemoteFileSystem):
            return f"{self.file_system.url}/{self.directory}".removesuffix("/.")
        return str(self.directory)


def locate(path: str | Path) -> ArchiveLocation:
    """Take a directory by path or URL, as it is; nothing is looked at.

    `file:` URLs are paths, others are opened with fsspec. The file system of a URL is that of its parent, so that
    `directory.parent` is there, as it is on a disk.

    Raises:
        ConfigurationError: the URL has an unknown scheme, its library is not installed, or a `Path` has lost a slash.
    """
    text = str(path)
    if isinstance(path, Path) or not _URL.fullmatch(_FILE_URL.sub("", text)):
        if isinstance(path, Path) and _FLATTENED_URL.fullmatch(text) and not path.exists():
            raise ConfigurationError(f"a URL is given as text: path={path!r} expected a str")
        return ArchiveLocation(OsFileSystem(), Path(_FILE_URL.sub("", text)))
    url = text.rstrip("/")
    scheme, separator, rest = url.partition("://")
    parent, _, name = rest.rpartition("/")
    if "::" in url or not parent.strip("/"):
        return ArchiveLocation(RemoteFileSystem(url), Path())
    return ArchiveLocation(RemoteFileSystem(scheme + separator + parent), Path(name))


def locate_archive(path: str | Path) -> ArchiveLocation:
    """Find an archive by path or URL: the directory given, or `archive` in it where that alone has a catalog.

    Raises:
        ConfigurationError: see `locate`.
        OSError: a store cannot be asked.
    """
    file_system, directory = locate(path)
    return ArchiveLocation(file_system, find_archive_directory(file_system, directory))


def find_archive_directory(file_system: ReadableFileSystem, directory: Path) -> Path:
    """Find the archive directory: the one given, or `archive` in it where that alone has a catalog."""
    inner = directory / "archive"
    is_member = not _has_catalog(file_system, directory) and _has_catalog(file_system, inner)
    return inner if is_member else directory


def _has_catalog(file_system: ReadableFileSystem, directory: Path) -> bool:
    try:
        handle = file_system.open_file(directory / CATALOG_FILE_NAME, writable=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return True  # who reads it says so
    file_system.close_file(handle)
    return True
