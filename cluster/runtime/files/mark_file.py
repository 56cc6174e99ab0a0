"""The file `cluster-mark.dat`: which process runs in a cluster directory, and a lock that lets only one in.

The header is Aeron's, so its tools can show whether the node is alive. Aeron tells a live owner by the age of
a timestamp, which makes a crashed node wait; we hold an exclusive `flock` for the life of the process
instead, which the system drops the moment the process dies, however it dies. `archive/files/marks` decides whether a
process runs, Aeron's services among them.

    0       8-byte SBE header and `MarkFileHeader`, in an area of 8192 bytes
    4096    of that area, ours: the boot id of the machine, ASCII, zeros up to 128 bytes; Aeron's header ends before
    4224    ours: the cluster's id in 16 hexadecimal digits, zeros while it is not known; Aeron's own field has 32 bits
    8192    error log of 1 MiB: `error_log`

The boot id tells a restart of the process from one of the machine: only the latter can have lost what was not synced.
It is written by `confirm_boot`, when everything in the directory was repaired, and not by `open`: a start that fails
before must leave the next one in doubt, however often it is tried. Nothing here is synced: whatever a power loss leaves
of it is not the id of the boot that follows.

Source: Aeron `ClusterMarkFile`. Every function here may block.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from ....archive.disk.file_system import (
    FileSystem,
    OsFileSystem,
    open_or_create,
    opened,
    read_fully,
    write_fully,
)
from ....archive.files.marks import (
    ARCHIVE_MARKS,
    MARK_FILE_ERROR_LOG_LENGTH,
    MARK_FILE_HEADER_LENGTH,
    MarkHeader,
    MarkKind,
    MarkOwner,
    decode_mark,
    find_marks,
    find_owner,
    judge_mark,
    read_mark_file,
    remove_links,
)
from ....service_api.errors import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.types import INGRESS_STREAM_ID, NULL_VALUE, MemberId, TermId
from ....service_api.wire.message import MESSAGE_HEADER_LENGTH
from ...messages.mark import ClusterComponentType, MarkFileHeader

CLUSTER_MARKS: Final = MarkKind("cluster", MarkFileHeader, MarkFileHeader.SCHEMA_ID)
MARK_FILE_NAME: Final = CLUSTER_MARKS.file_name
MARK_FILE_VERSION: Final = 0x0000_0300
"""0.3.0 as major << 16 | minor << 8 | patch."""

BOOT_ID_POSITION: Final = 4096
BOOT_ID_LENGTH: Final = 128
CLUSTER_ID_POSITION: Final = BOOT_ID_POSITION + BOOT_ID_LENGTH
CLUSTER_ID_LENGTH: Final = 16

_ARCHIVE_STREAM_ID: Final = 10
_SERVICE_STREAM_ID: Final = 104
_CONSENSUS_MODULE_STREAM_ID: Final = 105
_ACTIVITY_TIMESTAMP: Final = struct.Struct("<q")
_ACTIVITY_TIMESTAMP_POSITION: Final = MESSAGE_HEADER_LENGTH + 8


class DirectoryInUseError(ClusterError):
    """Another process runs in the cluster directory, or nobody can tell; `pid` is its process id, None if unknown."""

    def __init__(self, directory: Path, owner: MarkOwner) -> None:
        super().__init__(owner.describe("cluster", directory))
        self.directory = directory
        self.pid = owner.pid


class ClusterMarkFile:
    """The mark file of one member, locked until `close` or the end of the process."""

    __slots__ = ("_boot_id", "_file_system", "_handle", "_path", "header", "is_same_boot")

    def __init__(
        self,
        path: Path,
        handle: int,
        header: MarkFileHeader,
        *,
        boot_id: str,
        is_same_boot: bool,
        file_system: FileSystem,
    ) -> None:
        self.header = header
        self.is_same_boot = is_same_boot
        """Whether the machine surely did not go down since `confirm_boot` was last called here; False when in doubt."""
        self._boot_id = boot_id
        self._path = path
        self._handle = handle
        self._file_system = file_system

    def __repr__(self) -> str:
        return f"<ClusterMarkFile path={self._path} member_id={self.header.member_id} pid={self.header.pid}>"

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        member_id: int,
        now_ms: int,
        cluster_id: int = 0,
        boot_id: str = "",
        has_voted: bool = False,
        file_system: FileSystem | None = None,
    ) -> Self:
        """Lock the directory and say who runs there; the file is made if it is missing.

        `boot_id` is a text that differs whenever the machine was started again, empty when that cannot be told. With
        `has_voted` the directory has a member's votes: another member that went on with them might vote twice.

        Raises:
            ConfigurationError: the directory has the votes of another member.
            DirectoryInUseError: another process runs there, ours or Aeron's, or a mark file cannot be understood.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / MARK_FILE_NAME
        expect_no_owner(directory, now_ms=now_ms, file_system=disk, besides=path)
        handle = open_or_create(disk, path)  # if two processes make it at once, the lock decides
        try:
            _lock(directory, handle, now_ms, disk)
            if has_voted:
                _check_owner(disk, handle, directory, member_id)
            header = _header_of(directory, member_id=member_id, cluster_id=cluster_id, now_ms=now_ms)
            data = header.encode()
            if len(data) > BOOT_ID_POSITION:
                raise ClusterError(f"mark file header too long: length={len(data)} limit={BOOT_ID_POSITION}")
            known = _encode_boot_id(boot_id)
            is_same_boot = any(known) and read_fully(disk, handle, BOOT_ID_LENGTH, BOOT_ID_POSITION) == known
            write_fully(disk, handle, data.ljust(BOOT_ID_POSITION, b"\0"), 0)
            file_length = MARK_FILE_HEADER_LENGTH + MARK_FILE_ERROR_LOG_LENGTH
            if (found_length := disk.file_length(handle)) < file_length:
                # Zeros, not a hole: when the disk is full, there is room to say so in the error log.
                write_fully(disk, handle, bytes(file_length - found_length), found_length)
            elif found_length > file_length:
                disk.set_length(handle, file_length)
            remove_links(directory, CLUSTER_MARKS, disk)
        except BaseException:
            disk.close_file(handle)
            raise
        return cls(path, handle, header, boot_id=boot_id, is_same_boot=is_same_boot, file_system=disk)

    def confirm_boot(self) -> None:
        """Record that every file of the directory was repaired since the machine was started."""
        write_fully(self._file_system, self._handle, _encode_boot_id(self._boot_id), BOOT_ID_POSITION)

    def note_cluster_id(self, cluster_id: int) -> None:
        """Say which cluster the member belongs to, for people and tools; the member reads it from its own file."""
        write_fully(self._file_system, self._handle, f"{cluster_id:016x}".encode(), CLUSTER_ID_POSITION)

    def update_activity(self, now_ms: int) -> None:
        """Write the activity timestamp; due about once a second."""
        data = _ACTIVITY_TIMESTAMP.pack(now_ms)
        write_fully(self._file_system, self._handle, data, _ACTIVITY_TIMESTAMP_POSITION)

    def read_error_area(self) -> bytes:
        """Read the area of the error log."""
        return read_fully(self._file_system, self._handle, MARK_FILE_ERROR_LOG_LENGTH, MARK_FILE_HEADER_LENGTH)

    def write_error_area(self, data: bytes, offset: int) -> None:
        """Write into the area of the error log, `offset` bytes from its beginning.

        Raises:
            ClusterError: the data does not fit.
            OSError: the disk refused.
        """
        if offset < 0 or offset + len(data) > MARK_FILE_ERROR_LOG_LENGTH:
            raise ClusterError(f"error log is full: offset={offset} length={len(data)}")
        write_fully(self._file_system, self._handle, data, MARK_FILE_HEADER_LENGTH + offset)

    def close(self) -> None:
        """Record that the member stopped in order (activity timestamp -1), and release the lock."""
        try:
            self.update_activity(NULL_VALUE)
        finally:
            self._file_system.close_file(self._handle)


def mark_kind_of(path: Path) -> MarkKind[MarkHeader]:
    """Tell by its name what a mark file is of."""
    return ARCHIVE_MARKS if path.stem == Path(ARCHIVE_MARKS.file_name).stem else CLUSTER_MARKS


def read_cluster_mark_file(path: Path, *, file_system: FileSystem | None = None) -> MarkFileHeader:
    """Read the header of any cluster mark file, ours or Aeron's, without its lock.

    Raises:
        ClusterError: the file is not a cluster mark file; what is wrong is named.
        OSError: the disk refused.
    """
    return read_mark_file(path, CLUSTER_MARKS, OsFileSystem() if file_system is None else file_system)[0]


def expect_no_owner(directory: Path, *, now_ms: int, file_system: FileSystem, besides: Path | None = None) -> None:
    """Check that no process runs on a cluster directory, by all mark files but `besides`; it need not be there.

    Raises:
        DirectoryInUseError: a process runs there, ours or Aeron's, or a mark file cannot be understood.
        OSError: the disk refused.
    """
    owner = find_owner(directory, CLUSTER_MARKS, now_ms=now_ms, file_system=file_system, besides=besides)
    if owner is not None:
        raise DirectoryInUseError(directory, owner)


@contextlib.contextmanager
def offline_member(directory: Path, *, now_ms: int) -> Iterator[None]:
    """Keep a member from being started on a cluster directory while a command changes or copies what is there.

    Raises:
        ConfigurationError: there is no mark file, and no link to one: no member has run there.
        DirectoryInUseError: a process runs there, ours or Aeron's, or a mark file cannot be understood.
        OSError: the disk refused.
    """
    disk, path = OsFileSystem(), directory / MARK_FILE_NAME
    if next(find_marks(directory, CLUSTER_MARKS, disk), None) is None:
        raise ConfigurationError(f"no member's directory: file missing={path}")
    expect_no_owner(directory, now_ms=now_ms, file_system=disk, besides=path)
    if not path.exists():  # Aeron's is behind a link
        yield
        return
    with opened(disk, path) as handle:
        _lock(directory, handle, now_ms, disk)
        yield


def _lock(directory: Path, handle: int, now_ms: int, disk: FileSystem) -> None:
    """Lock the mark file of a directory.

    Raises:
        DirectoryInUseError: a process runs there, or that cannot be told.
    """
    path, is_free = directory / MARK_FILE_NAME, disk.try_lock(handle)
    owner = judge_mark(path, handle, CLUSTER_MARKS, now_ms=now_ms, file_system=disk, is_free=is_free)
    if owner is not None:
        raise DirectoryInUseError(directory, owner)


def _encode_boot_id(boot_id: str) -> bytes:
    """Build what stands for a boot; one that does not fit stands for none."""
    data = boot_id.encode("ascii", "replace")
    return (data if len(data) <= BOOT_ID_LENGTH else b"").ljust(BOOT_ID_LENGTH, b"\0")


def _check_owner(disk: FileSystem, handle: int, directory: Path, member_id: int) -> None:
    """Refuse the directory of another member; of a file that nobody has written nobody knows whose it is."""
    try:
        owner_id = decode_mark(read_fully(disk, handle, MARK_FILE_HEADER_LENGTH, 0), CLUSTER_MARKS).member_id
    except RemoteProtocolError:
        return
    if owner_id != member_id:
        raise ConfigurationError(
            f"the directory is another member's: directory={directory} has member_id={owner_id}, and its votes; "
            f"member_id={member_id} is started: correct --member-id, or name the directory of member {member_id}"
        )


def _header_of(directory: Path, *, member_id: int, cluster_id: int, now_ms: int) -> MarkFileHeader:
    return MarkFileHeader(
        version=MARK_FILE_VERSION,
        component_type=ClusterComponentType.CONSENSUS_MODULE,
        activity_timestamp=now_ms,
        start_timestamp=now_ms,
        pid=os.getpid(),
        candidate_term_id=TermId(NULL_VALUE),
        archive_stream_id=_ARCHIVE_STREAM_ID,
        service_stream_id=_SERVICE_STREAM_ID,
        consensus_module_stream_id=_CONSENSUS_MODULE_STREAM_ID,
        ingress_stream_id=INGRESS_STREAM_ID,
        member_id=MemberId(member_id),
        service_id=NULL_VALUE,
        header_length=MARK_FILE_HEADER_LENGTH,
        error_buffer_length=MARK_FILE_ERROR_LOG_LENGTH,
        cluster_id=cluster_id,
        services_cluster_dir=str(directory),
    )
