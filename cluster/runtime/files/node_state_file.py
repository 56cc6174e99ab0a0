"""The file `node-state.dat`: the highest candidate term that this member has stood for or voted in.

A vote may be sent only after the term is durable, and the term never falls: so a member that forgets
everything in a crash still cannot vote twice in one term. Who got the vote is not stored; a lost answer
wastes the term.

    offset size field
    0      4    version of the file, 0.3.0
    4      4    padding
    8      40   CandidateTerm with its 16-byte header: written in place, inside one disk sector
    48     16   NodeStateFooter: Aeron reads no further
    64     24   ours: candidateTermId, timestamp and logPosition as we wrote them, each 8 bytes
    88     8    the text TRIMARAN
    96     4    CRC-32 of all before it (unsigned), with the record as we wrote it; the rest of the 1 MiB is zero

Everything lies in one disk sector and is written at once, so a power loss leaves the old or the new of it. Without the
checksum a flipped bit could lower the candidate term, and this member could vote twice.

Aeron reads a file with a checksum, and changes the record's three fields in place: first logPosition, then timestamp,
then candidateTermId, which it only raises. So what differs from what we wrote is Aeron's if the term is higher and the
time another; or if the term is still ours, as after a kill between two of these. Everything else is damage, also where
a single bit differs. A file without our part is Aeron's: in that one only what cannot be is found. The first candidate
term written here adds the checksum, or renews it.

A candidate term whose logPosition is -1 is that of a member that has lost the log it voted with: it keeps the term and
has no vote, until it is a voter again and stores the position where its log ends then. See `repair.coming_back`.

Source: Aeron `NodeStateFile`. Every function here may block.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final, Self

import structlog

from ....archive.disk.file_system import (
    FileSystem,
    OsFileSystem,
    read_fully,
    sync_at_level,
    write_fully,
    write_new_file,
)
from ....service_api.errors import ClusterError, RemoteProtocolError
from ....service_api.types import NULL_POSITION, NULL_VALUE, TermId
from ....service_api.wire.log.recording_log import refuse_former_tag
from ....service_api.wire.message import decode_message
from ...messages.nodestate import NODE_STATE_RECORDS, CandidateTerm, NodeStateFooter

NODE_STATE_FILE_NAME: Final = "node-state.dat"
NODE_STATE_FILE_LENGTH: Final = 1 << 20
NODE_STATE_VERSION: Final = 0x0000_0300
"""0.3.0 as major << 16 | minor << 8 | patch; a file of another major version is refused."""

_HEADER: Final = struct.Struct("<ii")
_VERSION: Final = struct.Struct("<i")
_FRAME_LENGTH: Final = struct.Struct("<i")
_FRAME_LENGTH_OFFSET: Final = 8
_RECORD_HEADER_LENGTH: Final = 16
_COPY: Final = struct.Struct("<qqq")
"""Candidate term, timestamp and log position, in the record's own order."""
_MAGIC: Final = b"TRIMARAN"
_CHECKSUM: Final = struct.Struct("<I")
_TRAILER_LENGTH: Final = _COPY.size + len(_MAGIC) + _CHECKSUM.size

logger = structlog.get_logger()


class NodeStateFile:
    """The durable candidate term of one member, its file held open."""

    __slots__ = (
        "_candidate",
        "_content",
        "_failure",
        "_file_sync_level",
        "_file_system",
        "_handle",
        "_path",
        "_position",
    )

    def __init__(
        self,
        path: Path,
        handle: int,
        candidate: CandidateTerm,
        content: bytes,
        position: int,
        *,
        file_sync_level: int,
        file_system: FileSystem,
    ) -> None:
        self._path = path
        self._handle = handle
        self._candidate = candidate
        self._content = content  # of the file, up to and with the footer
        self._position = position  # of the candidate term's record in it
        self._file_sync_level = file_sync_level
        self._file_system = file_system
        self._failure: OSError | None = None

    def __repr__(self) -> str:
        return f"<NodeStateFile candidate_term_id={self.candidate_term_id} path={self._path}>"

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        file_sync_level: int = 1,
        file_system: FileSystem | None = None,
        sets_aside: bool = False,
    ) -> Self:
        """Open the file in `directory`, making it if it is missing: under another name first, so never half.

        With `sets_aside` a damaged file is renamed, and one without a vote takes its place: its member is no voter then
        until a leader has committed an entry without it, so that it cannot vote twice in a term whose vote it forgot.

        Raises:
            ClusterError: the file is of another major version, or damaged; what is wrong is named.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / NODE_STATE_FILE_NAME
        try:
            handle = disk.open_file(path)
        except FileNotFoundError:
            _create(disk, path, file_sync_level)
            handle = disk.open_file(path)
        try:
            if file_sync_level > 0:
                # A process that died may have left it with the kernel only, and what is read here is believed.
                disk.sync_file(handle)
                disk.sync_directory(directory)
            data = read_fully(disk, handle, disk.file_length(handle), 0)
            candidate, position, length = _parse(data)
            _check(data, position, length)
        except RemoteProtocolError as error:
            disk.close_file(handle)
            if sets_aside and data[: _VERSION.size] == _VERSION.pack(NODE_STATE_VERSION):
                kept_path = path.with_name(path.name + ".damaged")
                disk.rename(path, kept_path)
                logger.error("node_state.set_aside", path=str(path), kept_path=str(kept_path), reason=str(error))
                return cls.open(directory, file_sync_level=file_sync_level, file_system=file_system)
            advice = "restore the newest copy of this directory: a member that forgot a vote may vote twice in one term"
            raise ClusterError(f"damaged node state: path={path}: {error}; {advice}") from error
        except BaseException:
            disk.close_file(handle)
            raise
        content = data[:length]
        return cls(path, handle, candidate, content, position, file_sync_level=file_sync_level, file_system=disk)

    @property
    def candidate_term_id(self) -> TermId:
        """The highest term this member has stood for or voted in, -1 if there was none."""
        return self._candidate.candidate_term_id

    @property
    def has_vote(self) -> bool:
        """Whether this member may vote: it has a candidate term, and the log that it had with it."""
        return self.candidate_term_id > NULL_VALUE and self.log_position != NULL_POSITION

    @property
    def log_position(self) -> int:
        """Where this member's log ended when the term was stored; -1 if it has lost that log."""
        return self._candidate.log_position

    @property
    def timestamp_ms(self) -> int:
        """When the term was stored, in epoch milliseconds."""
        return self._candidate.timestamp

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int, timestamp_ms: int) -> TermId:
        """Raise the candidate term, durably unless the sync level is 0; a lower or equal one changes nothing.

        Gives the term that now holds. A member without a vote has one then: also a lower term gives it, and raises
        nothing.

        Raises:
            ClusterError: an earlier call failed.
            OSError: this one did; the term on disk is then not known and the file refuses further changes.
        """
        if candidate_term_id > self.candidate_term_id or not self.has_vote:
            term_id = TermId(max(candidate_term_id, self.candidate_term_id))
            self._store(CandidateTerm(candidate_term_id=term_id, timestamp=timestamp_ms, log_position=log_position))
        return self.candidate_term_id

    def withdraw_vote(self, timestamp_ms: int) -> None:
        """Have no vote from now on, durably unless the sync level is 0, and keep the term.

        Raises:
            ClusterError: an earlier call failed.
            OSError: this one did.
        """
        if self.has_vote:
            self._store(
                CandidateTerm(
                    candidate_term_id=self.candidate_term_id, timestamp=timestamp_ms, log_position=NULL_POSITION
                )
            )

    def _store(self, candidate: CandidateTerm) -> None:
        if self._failure is not None:
            raise ClusterError(f"path={self._path}: an earlier write failed") from self._failure
        record = candidate.encode()
        content = self._content[: self._position] + record + self._content[self._position + len(record) :]
        try:
            write_fully(self._file_system, self._handle, _with_trailer(content, self._position), 0)
            sync_at_level(self._file_system, self._handle, self._file_sync_level)
        except OSError as error:
            self._failure = error
            raise
        self._candidate, self._content = candidate, content

    def close(self) -> None:
        """Close the file."""
        self._file_system.close_file(self._handle)


def parse_node_state(data: bytes) -> tuple[CandidateTerm, int]:
    """Read the content of a file; give the candidate term and where its record begins.

    Raises:
        RemoteProtocolError: the file is of another major version, or damaged; what is wrong is named.
        ConfigurationError: the file has the project's former tag.
    """
    candidate, position, length = _parse(data)
    _check(data, position, length)
    return candidate, position


def _create(disk: FileSystem, path: Path, file_sync_level: int) -> None:
    """Make a file without a candidate term."""
    candidate = CandidateTerm(candidate_term_id=TermId(NULL_VALUE), timestamp=NULL_VALUE, log_position=NULL_POSITION)
    header = _HEADER.pack(NODE_STATE_VERSION, 0)
    data = _with_trailer(header + candidate.encode() + NodeStateFooter().encode(), len(header))
    working_path = path.with_name(path.name + ".new")
    write_new_file(disk, working_path, data.ljust(NODE_STATE_FILE_LENGTH, b"\0"), is_synced=file_sync_level > 0)
    disk.rename(working_path, path)
    if file_sync_level > 0:
        disk.sync_directory(path.parent)


def _with_trailer(content: bytes, position: int) -> bytes:
    """Add our part to a file up to its footer; the candidate term's record begins at `position`."""
    start = position + _RECORD_HEADER_LENGTH
    content += content[start : start + _COPY.size] + _MAGIC
    return content + _CHECKSUM.pack(zlib.crc32(content))


def _check(data: bytes, position: int, length: int) -> None:
    """Hold the first `length` bytes against our part after them; zeros there are Aeron's.

    Raises:
        RemoteProtocolError: they are neither what we wrote nor what Aeron makes of it.
        ConfigurationError: they have the project's former tag.
    """
    trailer = data[length : length + _TRAILER_LENGTH]
    refuse_former_tag(NODE_STATE_FILE_NAME, trailer)
    if not any(trailer):
        return
    fields = slice(position + _RECORD_HEADER_LENGTH, position + _RECORD_HEADER_LENGTH + _COPY.size)
    found, written = data[fields], trailer[: _COPY.size]
    expected = _with_trailer(data[: fields.start] + written + data[fields.stop : length], position)[length:]
    if trailer != expected:
        raise RemoteProtocolError(f"wrong checksum: found={trailer.hex()} expected={expected.hex()}")
    (term, timestamp, _), (written_term, written_timestamp, _) = _COPY.unpack(found), _COPY.unpack(written)
    changed_bits = (int.from_bytes(found, "little") ^ int.from_bytes(written, "little")).bit_count()
    is_newer = term > written_term and timestamp != written_timestamp
    if changed_bits == 1 or not (term == written_term or is_newer):
        raise RemoteProtocolError(
            f"wrong checksum: (candidate_term_id, timestamp)={(term, timestamp)} "
            f"expected={(written_term, written_timestamp)}, or a later term and time that Aeron has written"
        )


def _parse(data: bytes) -> tuple[CandidateTerm, int, int]:
    """Walk the records up to the footer; give the candidate term, where its record begins, where the footer ends."""
    if len(data) < _HEADER.size:
        raise RemoteProtocolError(f"file_length={len(data)} expected at least {_HEADER.size}")
    version, _ = _HEADER.unpack_from(data)
    if version <= 0 or version >> 16 != NODE_STATE_VERSION >> 16:
        raise RemoteProtocolError(f"version={version:#010x} expected={NODE_STATE_VERSION:#010x}")
    found: tuple[CandidateTerm, int] | None = None
    position = _HEADER.size
    while True:
        if len(data) - position < _RECORD_HEADER_LENGTH:
            raise RemoteProtocolError(f"position={position}: no footer before the end of the file")
        (frame_length,) = _FRAME_LENGTH.unpack_from(data, position + _FRAME_LENGTH_OFFSET)
        if not _RECORD_HEADER_LENGTH <= frame_length <= len(data) - position:
            raise RemoteProtocolError(f"position={position}: frame_length={frame_length} expected from 16")
        record = decode_message(data, position, registry=NODE_STATE_RECORDS)
        if isinstance(record, CandidateTerm):
            found = record, position
        elif isinstance(record, NodeStateFooter):
            break
        position += (frame_length + 7) & -8
    if found is None:
        raise RemoteProtocolError("no candidate term before the footer")
    return *found, position + _RECORD_HEADER_LENGTH


def replace_candidate_term(
    directory: Path, candidate_term_id: int, log_position: int, timestamp_ms: int, *, file_system: FileSystem
) -> Path:
    """Write a file with another candidate term, lower or higher, in place of the one there, which is kept.

    Both are durable when this returns; a crash leaves the old file, or the new one. Gives where the old one is.

    Raises:
        ClusterError: the file is of another major version, or damaged.
        OSError: the disk refused, or there is no file.
    """
    disk, path = file_system, directory / NODE_STATE_FILE_NAME
    handle = disk.open_file(path, writable=False)
    try:
        data = read_fully(disk, handle, disk.file_length(handle), 0)
    finally:
        disk.close_file(handle)
    try:
        candidate, position, length = _parse(data)
        _check(data, position, length)
    except RemoteProtocolError as error:
        raise ClusterError(f"damaged node state: path={path}: {error}") from error
    record = CandidateTerm(
        candidate_term_id=TermId(candidate_term_id), timestamp=timestamp_ms, log_position=log_position
    ).encode()
    content = data[:position] + record + data[position + len(record) : length]
    kept_path = path.with_name(f"{path.name}.term-{candidate.candidate_term_id}")
    write_new_file(disk, kept_path, data, is_synced=True)
    working_path = path.with_name(path.name + ".new")
    write_new_file(disk, working_path, _with_trailer(content, position).ljust(len(data), b"\0"), is_synced=True)
    disk.sync_directory(directory)
    disk.rename(working_path, path)
    disk.sync_directory(directory)
    return kept_path
