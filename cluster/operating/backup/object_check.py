"""Holds the objects of a backup in a store against the manifest, which has the digest of each."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from ....archive.disk.file_system import ReadableFileSystem, opened, read_fully
from ....service_api import ClusterError
from .manifest import StoredObject

_PIECE_BYTES: Final = 1 << 20
_REMEDY: Final = (
    "the store does not have what was written: copy the backup's directory to another URL with `trimaran backup ship`, "
    "or use another backup"
)


def check_object(disk: ReadableFileSystem, path: Path, expected: StoredObject, url: str) -> None:
    """Read the beginning of an object, or of a copy of it on a disk, and compare its digest; a MiB at a time.

    Raises:
        ClusterError: it is missing or not what the manifest says. The error has the URL, what was expected and found,
            and what to do.
        OSError: the store or the disk refused.
    """
    found, length = sha256(), 0
    try:
        with opened(disk, path) as handle:
            while length < expected.length:
                piece = read_fully(disk, handle, min(_PIECE_BYTES, expected.length - length), length)
                if not piece:
                    break
                found.update(piece)
                length += len(piece)
    except FileNotFoundError as error:
        raise missing_object(url) from error
    if length < expected.length or found.hexdigest() != expected.sha256:
        raise damaged_object(
            url,
            f"{length} bytes with sha256={found.hexdigest()}",
            f"{expected.length} bytes with sha256={expected.sha256}",
        )


def damaged_object(url: str, found: str, expected: str) -> ClusterError:
    """Say that an object is not what the manifest says."""
    return ClusterError(f"object is damaged: {url} expected={expected} found={found}; {_REMEDY}")


def missing_object(url: str) -> ClusterError:
    """Say that an object is not there although the manifest names it."""
    return ClusterError(f"object is missing: {url} is in the manifest; {_REMEDY}")
