"""The objects of one cluster in a store. Every method blocks for as long as the store takes: call it in a thread.

A segment is in the store once an index names it, and an index is written only after the object was read back whole and
had its checksum. So a reader never meets half a segment.

A writer leaves a note while it writes (`writing`), and then looks for the notes of prunes; a prune leaves a note, and
then looks for the notes of writers. Each puts its note before it looks, so one of the two sees the other and gives way:
nothing is removed between the moment at which a writer finds an object there and that at which its index names it.
Readers wait for neither. Rejected: to remove what has been without an index for some time. A writer may stand
still for longer, between finding an object and naming it, and the log of a member may be nowhere else then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, Self

from ...service_api.documents.document import read_document
from ...service_api.errors import ClusterError, RemoteProtocolError
from ..disk.file_system import FileSystem, OsFileSystem, opened, read_fully, write_fully
from ..disk.object_store import Objects, ObjectStore, OpenObjects
from ..disk_errors import StoreFailure
from ..format.stored_names import NameKind, StoredName, take_name
from .index import (
    INDEXES,
    NOTE_LIMIT_MS,
    WRITING_PREFIX,
    Note,
    StoredObject,
    StoredSegment,
    WriterIndex,
    index_name,
    older_layout,
    read_index,
)

_BACKUP_MANIFEST_OF_OLD: Final = StoredName("manifest.json")
_COLD_MANIFESTS_OF_OLD: Final = "manifests"
_RESTORE_IT: Final = "restore it from a version or a copy of the store, or use another backup or the log of a member"
_BLOCK_BYTES: Final = 1 << 23
"""Bytes of one request to the store, and the memory that a copy takes."""


class StoreError(ClusterError):
    """The store could not be read or written, or what it has is not what was put there."""

    retriable: ClassVar[bool] = True


class StoreBusyError(StoreError):
    """A prune runs where a writer is to begin, or a writer where a prune is to begin."""


class ClusterStore:
    """The objects below a URL, which ends with the id of the cluster. Files are on `disk`.

    Raises:
        ConfigurationError: the scheme of the URL is unknown, or its library is not installed.
    """

    def __init__(self, url: str, *, disk: FileSystem | None = None, open_objects: OpenObjects = ObjectStore) -> None:
        self._disk: Final = OsFileSystem() if disk is None else disk
        self._open_objects: Final = open_objects
        self._objects: Final = open_objects(url)
        self.url: Final = self._objects.url
        self.written_count = 0
        """Objects that were written beside indexes and notes, which take the place of others."""
        self.written_bytes = 0
        """In all, with indexes and notes."""

    def __repr__(self) -> str:
        return f"<ClusterStore {self.url}>"

    @classmethod
    def below(
        cls, url: str, cluster_id: str, *, disk: FileSystem | None = None, open_objects: OpenObjects = ObjectStore
    ) -> Self:
        """Open the place of a cluster below a URL, which several clusters may share.

        Raises:
            ConfigurationError: see the class.
        """
        return cls(f"{url.rstrip('/')}/{cluster_id}", disk=disk, open_objects=open_objects)

    def refuse_older_layout(self) -> None:
        """Refuse a place to which an older Trimaran wrote.

        Raises:
            ConfigurationError: it did.
            StoreError: the store refused.
        """
        refuse_older_backup(self._open_objects(self.url.rpartition("/")[0]))
        if any(name.endswith(".json") for name in self.list_names(_COLD_MANIFESTS_OF_OLD)):
            raise older_layout(self.url, f"{_COLD_MANIFESTS_OF_OLD}/ of cold storage")

    # --- indexes

    def read_index(self, writer: str) -> WriterIndex | None:
        """Read the index of a writer; None if it has none.

        Raises:
            StoreError: the store refused.
            RemoteProtocolError: it is no index, or that of another writer.
        """
        name = index_name(writer)
        data, place = self._read(name), f"{self.url}/{name}"
        if data is None:
            return None
        index = read_index(data, place)
        if index.writer != writer or index.cluster_id != self.url.rpartition("/")[2]:
            raise RemoteProtocolError(
                f"{place}: it is of cluster_id={index.cluster_id} and writer={index.writer}; move that object away"
            )
        return index

    def read_indexes(self) -> list[WriterIndex]:
        """Read the indexes of all writers; what else lies there, such as a copy of one, is nobody's.

        Raises:
            StoreError: the store refused.
            RemoteProtocolError: one is no index.
        """
        names = [take_name(name, NameKind.INDEX) for name in self.list_names(INDEXES) if NameKind.INDEX.fits(name)]
        found = [self.read_index(name.removesuffix(".json")) for name in names]
        return [index for index in found if index is not None]

    def write_index(self, index: WriterIndex) -> None:
        """Name what is in the store; called through `writing`.

        Raises:
            StoreError: the store refused.
        """
        self.put(index_name(index.writer), index.seal())

    # --- those who write and those who remove

    @contextmanager
    def writing(self, writer: str, clock_ms: Callable[[], int]) -> Iterator[Callable[[WriterIndex], None]]:
        """Keep prunes away while a writer writes objects; give what writes the index that names them.

        Raises:
            StoreBusyError: a prune runs, or the index comes so late that one may have; a later attempt goes on.
            StoreError: the store refused.
        """
        begin_ms = clock_ms()

        def write_index(index: WriterIndex) -> None:
            if clock_ms() - begin_ms >= NOTE_LIMIT_MS // 2:
                raise StoreBusyError(f"{writer} has taken too long to write to {self.url}; it is tried again")
            self.write_index(index)

        self.put(_writing_name(writer), Note(written_ms=begin_ms).seal())
        try:
            for pruning in self.notes(NameKind.PRUNING, begin_ms):
                raise StoreBusyError(f"a prune runs: {self.url}/{pruning}; it is tried again")
            yield write_index
        except BaseException:
            with suppress(StoreError):
                self.remove(_writing_name(writer))
            raise
        self.remove(_writing_name(writer))

    def stop_writing(self, writer: str) -> None:
        """Remove the note that a process of this writer left, which has ended.

        Raises:
            StoreError: the store refused.
        """
        if self._read(_writing_name(writer)) is not None:
            self.remove(_writing_name(writer))

    def notes(self, kind: NameKind, now_ms: int) -> Iterator[StoredName]:
        """Yield the names of the notes of a kind that count.

        Raises:
            StoreError: the store refused.
            RemoteProtocolError: one is no note.
        """
        for listed in self.list_names(INDEXES):
            if not kind.fits(listed):
                continue
            name = StoredName(f"{INDEXES}/{take_name(listed, kind)}")
            data = self._read(name)
            try:
                if data is not None and now_ms - read_document(Note, data).written_ms < NOTE_LIMIT_MS:
                    yield name
            except RemoteProtocolError as error:
                raise type(error)(
                    f"{self.url}/{name}: {error}; remove that object if nothing writes to the store"
                ) from error

    # --- segments and files

    def put_segment(self, path: Path, segment: StoredSegment, *, is_named: bool) -> bool:
        """Write the object of a segment if it is not there whole, and read it back; say whether it was written.

        One that an index names was read back by who wrote that: only its length is looked at.

        Raises:
            StoreError: the store refused, or it gives back something else.
        """
        place = f"{self.url}/{segment.name}"
        try:
            if self._objects.find_length(segment.name) == segment.length and (
                is_named or self._digest(segment.name, segment.length) == segment.sha256
            ):
                return False
            self._objects.put_file(segment.name, path)
            self.written_count += 1
            self.written_bytes += segment.length
            digest = self._digest(segment.name, segment.length)
        except OSError as error:
            raise _refused("write", place, error) from error
        if digest != segment.sha256:
            raise StoreError(
                f"the store gives back something else than was written: object={place} sha256={digest} "
                f"expected={segment.sha256}; the segment stays on the disk and is sent again"
            )
        return True

    def fetch(self, objects: Sequence[StoredObject], target: Path, *, digest: str) -> None:
        """Write what counts of objects to a new file, one after the other, durably, and check it.

        Raises:
            StoreError: the store refused, has no such object, or another one; no file is left.
            OSError: the disk refused.
        """
        disk = self._disk
        handle = disk.open_file(target, create=True)
        try:
            for begin, data in self.checked_blocks(objects, digest):
                write_fully(disk, handle, data, begin)
            disk.sync_file(handle)  # a cache is trusted by names, and a power loss could leave a name without the bytes
        except BaseException:
            disk.remove(target)
            raise
        finally:
            disk.close_file(handle)

    def check(self, objects: Sequence[StoredObject], digest: str) -> None:
        """Read what counts of objects, and compare the digest of all together.

        Raises:
            StoreError: the store refused, has no such object, or another one.
        """
        for _ in self.checked_blocks(objects, digest):
            continue

    def checked_blocks(self, objects: Sequence[StoredObject], expected: str) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks of a file, with where they begin; the end comes after the digest was found right.

        An error of the code that uses a block is not raised in here.

        Raises:
            StoreError: the store refused, has no such object, or another one.
        """
        digest, done = sha256(), 0
        for each in objects:
            place = f"{self.url}/{each.name}"
            try:
                found = self._objects.find_length(each.name)
                if found is None:
                    raise FileNotFoundError
                if found < each.length:
                    raise StoreError(
                        f"object is damaged: {place} expected={each.length} bytes found={found} bytes; {_RESTORE_IT}"
                    )
                for begin, data in self._blocks(each.name, each.length):
                    digest.update(data)
                    yield done + begin, data
            except FileNotFoundError as error:
                raise StoreError(f"object is missing: {place}, which an index names; {_RESTORE_IT}") from error
            except OSError as error:
                raise _refused("read", place, error) from error
            done += each.length
        if digest.hexdigest() != expected:
            names = f"{self.url}/{objects[0].name}"
            if len(objects) > 1:
                names = f"one of {len(objects)} objects from {names} to {objects[-1].name}"
            raise StoreError(
                f"object is damaged: {names} expected={done} bytes with sha256={expected} "
                f"found sha256={digest.hexdigest()}; {_RESTORE_IT}"
            )

    def _blocks(self, name: StoredName, length: int) -> Iterator[tuple[int, bytes]]:
        for begin in range(0, length, _BLOCK_BYTES):
            yield begin, self._objects.read_range(name, begin, min(begin + _BLOCK_BYTES, length))

    def _digest(self, name: StoredName, length: int) -> str:
        digest = sha256()
        for _, data in self._blocks(name, length):
            digest.update(data)
        return digest.hexdigest()

    # --- the store, with its errors in words

    def put(self, name: StoredName, data: bytes) -> None:
        """Write a small object.

        Raises:
            StoreError: the store refused.
        """
        try:
            self._objects.put(name, data)
        except OSError as error:
            raise _refused("write", f"{self.url}/{name}", error) from error
        self.written_count += not name.startswith(f"{INDEXES}/")
        self.written_bytes += len(data)

    def remove(self, name: StoredName) -> None:
        """Remove an object; it may be gone already.

        Raises:
            StoreError: the store refused.
        """
        try:
            self._objects.remove(name)
        except OSError as error:
            raise _refused("remove", f"{self.url}/{name}", error) from error

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none where it is not there.

        Raises:
            StoreError: the store refused.
        """
        try:
            return self._objects.list_names(folder)
        except OSError as error:
            raise _refused("list", f"{self.url}/{folder}", error) from error

    def _read(self, name: StoredName) -> bytes | None:
        try:
            return self._objects.read(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused("read", f"{self.url}/{name}", error) from error


def _writing_name(writer: str) -> StoredName:
    return StoredName(f"{INDEXES}/{WRITING_PREFIX}{writer}.json")


def refuse_older_backup(objects: Objects) -> None:
    """Refuse a URL at which an older Trimaran put a backup.

    Raises:
        ConfigurationError: it did.
        StoreError: the store refused.
    """
    try:
        is_old = objects.find_length(_BACKUP_MANIFEST_OF_OLD) is not None
    except OSError as error:
        raise _refused("read", f"{objects.url}/{_BACKUP_MANIFEST_OF_OLD}", error) from error
    if is_old:
        raise older_layout(objects.url, f"{_BACKUP_MANIFEST_OF_OLD} of a backup")


def digest_of_file(disk: FileSystem, path: Path, length: int) -> str:
    """Return the digest of the first bytes of a file on a disk.

    Raises:
        ClusterError: the file is shorter.
        OSError: the disk refused.
    """
    digest, done = sha256(), 0
    with opened(disk, path) as handle:
        while done < length:
            data = read_fully(disk, handle, min(_BLOCK_BYTES, length - done), done)
            if not data:
                raise ClusterError(f"segment file is too short: path={path} length={done} expected={length}")
            digest.update(data)
            done += len(data)
    return digest.hexdigest()


def _refused(doing: str, place: str, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError) and doing == "write":
        return StoreError(f"cannot write {place}: there is no such bucket; check the URL, or make the bucket first")
    if isinstance(error, FileNotFoundError):
        return StoreError(
            f"cannot {doing} {place}: {error.strerror or error}; the object is gone: restore it from a version or a "
            "copy of the store"
        )
    if isinstance(error, StoreFailure):
        return StoreError(f"cannot {doing} {place}: {error.strerror}; {error.advice}")
    return StoreError(f"cannot {doing} {place}: {error.strerror or error}; check the directory and its disk")
