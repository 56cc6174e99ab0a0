"""Mark files, ours and Aeron's: where they are, what they say, and whether a process runs on their directory.

Every command that writes asks here first, and so does a member: `find_owner`. A mark file has one of two layouts:

    Aeron from 1.47, and ours   0: SBE header of 8 bytes   8: block   136: texts
    Aeron up to 1.46            0: block                 128: texts; the block is the same

Where `aeron.archive.mark.file.dir` or `aeron.cluster.mark.file.dir` is set, the mark file is in that directory. The
archive's or cluster's own directory then has a file `archive-mark.lnk`, `cluster-mark.lnk` or
`cluster-mark-service-<id>.lnk`, whose only content is the path of the other directory.

Ours hold an exclusive lock while they run, so for them only the lock counts. Aeron's processes write a timestamp once a
second and count as alive for 10 s after it. A mark file that cannot be understood, and a link that leads nowhere, may
be of a process that runs: nothing is written beside them.

Source: Aeron `MarkFile`, `ArchiveMarkFile`, `ClusterMarkFile`; samples set A README §9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, Self, TypeVar

from ...service_api.errors import RemoteProtocolError
from ...service_api.types import NULL_VALUE
from ...service_api.wire.message import MESSAGE_HEADER_LENGTH, peek_header
from ...service_api.wire.sbe import MESSAGE_HEADER
from ..disk.file_system import FileSystem, OsFileSystem, opened, read_fully
from ..errors import ArchiveError
from ..format.messages import ArchiveMarkFileHeader

MARK_FILE_SUFFIX: Final = ".dat"
MARK_LINK_SUFFIX: Final = ".lnk"
MARK_FILE_HEADER_LENGTH: Final = 8192
MARK_FILE_ERROR_LOG_LENGTH: Final = 1 << 20

LIVENESS_TIMEOUT_MS: Final = 10_000
"""For how long after its last activity a process of Aeron counts as alive. Source: Aeron `MarkFile`."""

_BLOCK_LENGTH: Final = 128
_OLD_SCHEMA_VERSION: Final = 1
"""The fields that mark files without a message header have are those of this version, in both schemas."""
_OLD_VERSION_LIMIT: Final = 0x0010_0000
"""Above every version of a mark file without a message header: 0.3.0 of a cluster, 3.1.0 of an archive."""
_OLD_VERSION_BYTES: Final = 4
_NO_SCHEMA_ID: Final = 0xFFFF
_LINK_LIMIT_BYTES: Final = 4096
_DISK: Final = OsFileSystem()


class MarkHeader(Protocol):
    """The fields that the headers of all mark files share."""

    @property
    def version(self) -> int:
        """A semantic version; -1 when the start failed, 0 while the file is being written."""

    @property
    def activity_timestamp(self) -> int:
        """The last sign of life, in epoch milliseconds; -1 after an orderly stop."""

    @property
    def pid(self) -> int:
        """The process that runs, or ran."""

    @property
    def header_length(self) -> int:
        """The bytes before the error log; 0 where the version had no such field."""

    @property
    def error_buffer_length(self) -> int:
        """The bytes of the error log; 0 where the version had no such field."""

    @property
    def aeron_directory(self) -> str:
        """The directory of the media driver; empty in ours."""

    @classmethod
    def decode(cls, buffer: bytes, /) -> Self:
        """Read a header in the newer layout."""


H = TypeVar("H", bound=MarkHeader)
H_co = TypeVar("H_co", bound=MarkHeader, covariant=True)


@dataclass(frozen=True, slots=True)
class MarkKind(Generic[H_co]):
    """The mark files of archives, or those of clusters and their services."""

    name: str
    """`archive` or `cluster`: their file names begin with it."""
    header: type[H_co]
    schema_id: int

    @property
    def file_name(self) -> str:
        """The name of the mark file of an archive or a member."""
        return f"{self.name}-mark{MARK_FILE_SUFFIX}"


ARCHIVE_MARKS: Final = MarkKind("archive", ArchiveMarkFileHeader, ArchiveMarkFileHeader.SCHEMA_ID)


@dataclass(frozen=True, slots=True)
class MarkOwner:
    """A process that runs on a directory, or what keeps anybody from knowing that there is no such process."""

    path: Path
    """The mark file, or the link."""
    pid: int | None
    """None where it cannot be told."""
    age_ms: int | None
    """How long ago it gave its last sign of life; None where it cannot be told."""
    advice: str
    is_locked: bool = False
    """True if it holds the lock of the mark file, as our processes do."""
    is_certain: bool = True
    """False where nobody can tell whether there is such a process."""

    def describe(self, what: str, directory: Path) -> str:
        """Say that a directory is in use, by whom, and how to go on."""
        use = "in use" if self.is_certain else "may be in use"
        return (
            f"{what} directory {use}: mark_file={self.path} directory={directory} owner_pid={self.pid} "
            f"age_ms={self.age_ms}; {self.advice}"
        )


def with_message_header(data: bytes, schema_id: int) -> tuple[bytes, bool]:
    """Bring the beginning of a mark file into the newer layout, and tell whether it was in the older one.

    Data that has neither layout comes back as it is: who decodes it says what is wrong.
    """
    version = int.from_bytes(data[:_OLD_VERSION_BYTES], "little", signed=True)
    is_old = len(data) > _BLOCK_LENGTH and -1 <= version < _OLD_VERSION_LIMIT and any(data[:_BLOCK_LENGTH])
    if not is_old or peek_header(data)[2] == schema_id:
        return data, False
    header = MESSAGE_HEADER.pack(_BLOCK_LENGTH, ArchiveMarkFileHeader.TEMPLATE_ID, schema_id, _OLD_SCHEMA_VERSION)
    return header + data, True


def is_old_mark(path: Path, file_system: FileSystem = _DISK) -> bool:
    """Return True if a mark file has the older layout, which Aeron up to 1.46 reads and writes.

    Raises:
        OSError: the disk refused.
    """
    with opened(file_system, path) as handle:
        return with_message_header(read_fully(file_system, handle, MARK_FILE_HEADER_LENGTH, 0), _NO_SCHEMA_ID)[1]


def decode_mark(data: bytes, kind: MarkKind[H]) -> H:
    """Decode the header of a mark file of either layout.

    Raises:
        RemoteProtocolError: it has neither, or a value that it cannot have.
    """
    return kind.header.decode(with_message_header(data, kind.schema_id)[0])


def find_marks(directory: Path, kind: MarkKind[H], file_system: FileSystem = _DISK) -> Iterator[Path]:
    """Yield the mark files and the links of one kind in a directory, by name; nothing where it is not there.

    Raises:
        OSError: the disk refused.
    """
    try:
        names = file_system.list_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.startswith(f"{kind.name}-mark") and name.endswith((MARK_FILE_SUFFIX, MARK_LINK_SUFFIX)):
            yield directory / name


def follow_link(path: Path, file_system: FileSystem = _DISK) -> Path:
    """Return the mark file that a link leads to; it need not be there.

    Raises:
        ArchiveError: the link holds no absolute path.
        OSError: the disk refused.
    """
    with opened(file_system, path) as handle:
        text = read_fully(file_system, handle, _LINK_LIMIT_BYTES, 0).decode("utf-8", "replace").strip()
    target = Path(text)
    if not target.is_absolute() or "\0" in text:
        raise ArchiveError(f"damaged link to a mark file: path={path} content={text[:80]!r} expected=an absolute path")
    return target / path.with_suffix(MARK_FILE_SUFFIX).name


def locate_mark(directory: Path, kind: MarkKind[H], file_system: FileSystem = _DISK) -> Path:
    """Find the mark file of an archive or a member, in its directory or behind the link there; it need not be there.

    Raises:
        ArchiveError: the link holds no absolute path.
        OSError: the disk refused.
    """
    path = directory / kind.file_name
    try:
        return follow_link(path.with_suffix(MARK_LINK_SUFFIX), file_system)
    except FileNotFoundError:
        return path


def read_mark_file(path: Path, kind: MarkKind[H], file_system: FileSystem = _DISK) -> tuple[H, bytes]:
    """Read a mark file, ours or Aeron's, without its lock: the header and the error log.

    Raises:
        ArchiveError: it is no mark file of that kind; what is wrong is named.
        OSError: there is no such file, or the disk refused.
    """
    with opened(file_system, path) as handle:
        try:
            header = decode_mark(read_fully(file_system, handle, MARK_FILE_HEADER_LENGTH, 0), kind)
        except RemoteProtocolError as error:
            raise ArchiveError(f"damaged mark file: path={path}: {error}") from error
        begin = header.header_length or MARK_FILE_HEADER_LENGTH
        length = header.error_buffer_length or MARK_FILE_ERROR_LOG_LENGTH
        if begin < 0 or length < 0:
            raise ArchiveError(
                f"damaged mark file: path={path} header_length={begin} error_buffer_length={length} expected from 0"
            )
        available = max(0, file_system.file_length(handle) - begin)  # a disk would set aside what the header says
        return header, read_fully(file_system, handle, min(length, available), begin)


def find_owner(
    directory: Path, kind: MarkKind[H], *, now_ms: int, file_system: FileSystem = _DISK, besides: Path | None = None
) -> MarkOwner | None:
    """Find a process that runs on a directory, by all mark files of one kind there and behind links.

    The mark file `besides` is passed over: who is going to lock it judges it with `judge_mark`.

    Raises:
        OSError: the disk refused.
    """
    for path in find_marks(directory, kind, file_system):
        mark = path
        if path.suffix == MARK_LINK_SUFFIX:
            try:
                mark = follow_link(path, file_system)
            except ArchiveError as error:
                return _unknown_owner(path, str(error))
        if mark == besides:
            continue
        try:
            with opened(file_system, mark) as handle:
                is_free = _try_lock(handle, file_system)
                owner = judge_mark(mark, handle, kind, now_ms=now_ms, file_system=file_system, is_free=is_free)
        except OSError as error:
            if mark != path:
                return _unknown_owner(path, f"it leads to {mark}, which cannot be read: {error.strerror or error}")
            if isinstance(error, FileNotFoundError):
                continue  # removed meanwhile
            raise
        if owner is not None:
            return owner
    return None


def judge_mark(
    path: Path, handle: int, kind: MarkKind[H], *, now_ms: int, file_system: FileSystem, is_free: bool | None
) -> MarkOwner | None:
    """Decide whether the process of an open mark file runs; `is_free` says whether the caller could lock it.

    It is None where the file system locks no file that is open for reading: then the time counts for ours, too.

    Raises:
        OSError: the disk refused.
    """
    data = read_fully(file_system, handle, MARK_FILE_HEADER_LENGTH, 0)
    header: H | None = None
    problem = ""
    try:
        if any(data[: MESSAGE_HEADER_LENGTH + _BLOCK_LENGTH]):  # otherwise nobody has written it yet
            header = decode_mark(data, kind)
    except RemoteProtocolError as error:
        problem = str(error)
    if is_free is False:
        pid, age_ms = (None, None) if header is None else (header.pid, now_ms - header.activity_timestamp)
        return MarkOwner(path, pid, age_ms, "stop it first", is_locked=True)
    if problem:
        return _unknown_owner(path, f"it cannot be understood: {problem}")
    if header is None or header.activity_timestamp == NULL_VALUE or (is_free and _is_ours(header)):
        return None
    age_ms = now_ms - header.activity_timestamp
    # Further ahead than that the clock was set back, and nobody has written the time since.
    if not -LIVENESS_TIMEOUT_MS < age_ms < LIVENESS_TIMEOUT_MS:
        return None
    left_ms = LIVENESS_TIMEOUT_MS - age_ms
    whose = "its process" if _is_ours(header) else "Aeron"
    return MarkOwner(path, header.pid, age_ms, f"stop {whose} first; if it has died, wait {left_ms} ms")


def remove_links(directory: Path, kind: MarkKind[H], file_system: FileSystem) -> None:
    """Remove the links of a directory whose mark file is in it from now on, as Aeron does.

    A link that stayed would lead nowhere once the other directory is gone, and keep the next start from the directory.

    Raises:
        OSError: the disk refused.
    """
    for path in [*find_marks(directory, kind, file_system)]:
        if path.suffix == MARK_LINK_SUFFIX:
            file_system.remove(path)


def _try_lock(handle: int, file_system: FileSystem) -> bool | None:
    """Lock a file that is open for reading; None where its file system cannot, as that of a network may not."""
    try:
        return file_system.try_lock(handle)
    except OSError:
        return None


def _is_ours(header: MarkHeader) -> bool:
    """Return True if our process wrote the whole header: Aeron names its media driver, and writes the version last."""
    return header.version > 0 and not header.aeron_directory


def _unknown_owner(path: Path, reason: str) -> MarkOwner:
    advice = (
        f"{reason}. A process may run on the directory, perhaps in another container or on another machine: make sure "
        f"that no process does, then rename {path.name}"
    )
    return MarkOwner(path, None, None, advice, is_certain=False)
