"""The objects of one cluster's cold storage. Every method blocks for as long as the store takes: call it in a thread.

A segment is in the store once a manifest names it, and a manifest is written only after the object was read back whole
and had its checksum. So a reader never meets half a segment, and nothing is deleted for the sake of a promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final

from ...service_api.documents.document import read_document
from ...service_api.errors import ClusterError, RemoteProtocolError
from ..disk.file_system import FileSystem, OsFileSystem, write_fully
from ..disk.object_store import ObjectStore, OpenObjects
from ..format.stored_names import NameKind, StoredName, take_name
from .manifest import ColdIndex, ColdManifest, ColdSegment

_MANIFESTS: Final = "manifests"
_BLOCK_BYTES: Final = 1 << 23
"""What is asked of the store at once, and the memory that a copy takes."""


class ColdStorageError(ClusterError):
    """The store could not be read or written, or what it has is not what was put there."""

    retriable: ClassVar[bool] = True


class ColdStore:
    """The segments and manifests below a URL, which ends with the id of the cluster. Files are on `disk`.

    Raises:
        ConfigurationError: the scheme of the URL is unknown, or its library is not installed.
    """

    def __init__(self, url: str, *, disk: FileSystem | None = None, open_objects: OpenObjects = ObjectStore) -> None:
        self._disk: Final = OsFileSystem() if disk is None else disk
        self._objects: Final = open_objects(url)
        self.url: Final = self._objects.url

    def __repr__(self) -> str:
        return f"<ColdStore {self.url}>"

    def read_manifest(self, member_id: int) -> ColdManifest | None:
        """Read the manifest of a member; None if it has none.

        Raises:
            ColdStorageError: the store refused, or it is no manifest.
        """
        return self._read_manifest(_manifest_name(member_id))

    def read_index(self) -> ColdIndex:
        """Read what all members have put here.

        Raises:
            ColdStorageError: the store refused, or a manifest is none.
        """
        try:
            listed = self._objects.list_names(_MANIFESTS)
        except OSError as error:
            raise _refused("list the manifests of", self.url, error) from error
        # What else lies there, such as a copy of a manifest, is not the members'.
        names = [take_name(name, NameKind.COLD_MANIFEST) for name in listed if NameKind.COLD_MANIFEST.fits(name)]
        manifests = [self._read_manifest(StoredName(f"{_MANIFESTS}/{name}")) for name in names]
        return ColdIndex(segment for manifest in manifests if manifest is not None for segment in manifest.segments)

    def write_manifest(self, manifest: ColdManifest) -> None:
        """Name the segments that are in the store.

        Raises:
            ColdStorageError: the store refused.
        """
        name = _manifest_name(manifest.member_id)
        try:
            self._objects.put(name, manifest.seal())
        except OSError as error:
            raise _refused("write", f"{self.url}/{name}", error) from error

    def put_segment(self, path: Path, segment: ColdSegment) -> None:
        """Write the object of a segment if it is not there whole, and read it back.

        Raises:
            ColdStorageError: the store refused, or it gives back something else.
        """
        place = f"{self.url}/{segment.name}"
        try:
            if self._objects.find_length(segment.name) == segment.length and self._digest(segment) == segment.sha256:
                return
            self._objects.put_file(segment.name, path)
            digest = self._digest(segment)
        except OSError as error:
            raise _refused("write", place, error) from error
        if digest != segment.sha256:
            raise ColdStorageError(
                f"the store gives back something else than was written: object={place} sha256={digest} "
                f"expected={segment.sha256}; the segment stays on the disk and is sent again"
            )

    def fetch_segment(self, segment: ColdSegment, target: Path) -> None:
        """Write a segment to a new file, durably, and check it.

        Raises:
            ColdStorageError: the store refused, has no such object, or another one; no file is left.
            OSError: the disk refused.
        """
        place, digest, disk = f"{self.url}/{segment.name}", sha256(), self._disk
        handle = disk.open_file(target, create=True)
        try:
            for begin, data in self._blocks_of_object(segment, place):
                digest.update(data)
                write_fully(disk, handle, data, begin)
            if digest.hexdigest() != segment.sha256:
                raise ColdStorageError(
                    f"a segment in cold storage is not what was put there: object={place} "
                    f"sha256={digest.hexdigest()} expected={segment.sha256}; restore that object from a version or a "
                    "copy of the store, or read the log of another member"
                )
            disk.sync_file(handle)  # a cache is trusted by names, and a power loss could leave a name without the bytes
        except BaseException:
            disk.remove(target)
            raise
        finally:
            disk.close_file(handle)

    def _blocks_of_object(self, segment: ColdSegment, place: str) -> Iterator[tuple[int, bytes]]:
        """Name the object in an error of the store. An error of the code that writes a block is not raised in here."""
        try:
            yield from self._blocks(segment)
        except OSError as error:
            raise _refused("read", place, error) from error

    def _blocks(self, segment: ColdSegment) -> Iterator[tuple[int, bytes]]:
        for begin in range(0, segment.length, _BLOCK_BYTES):
            yield begin, self._objects.read_range(segment.name, begin, min(begin + _BLOCK_BYTES, segment.length))

    def _digest(self, segment: ColdSegment) -> str:
        digest = sha256()
        for _, data in self._blocks(segment):
            digest.update(data)
        return digest.hexdigest()

    def _read_manifest(self, name: StoredName) -> ColdManifest | None:
        place = f"{self.url}/{name}"
        try:
            return read_document(ColdManifest, self._objects.read(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused("read", place, error) from error
        except RemoteProtocolError as error:
            raise ColdStorageError(
                f"cannot read a manifest of cold storage: object={place}: {error}; restore an older version of that "
                "object, or move it away if the segments that it names are not needed any more"
            ) from error


def _manifest_name(member_id: int) -> StoredName:
    return StoredName(f"{_MANIFESTS}/member-{member_id}.json")


def _refused(doing: str, place: str, error: OSError) -> ColdStorageError:
    advice = (
        "the object is gone: restore it from a version or a copy of the store"
        if isinstance(error, FileNotFoundError)
        else "check the URL, the credentials and the network; it is tried again"
    )
    return ColdStorageError(f"cannot {doing} {place}: {error.strerror or error}; {advice}")
