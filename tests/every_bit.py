"""Flips every bit of every field of what a member keeps, one at a time, and says what finds it.

`python -m tests.every_bit` prints a table of file and field. A bit is *found* where the reader of the file raises
or names a problem, and *meaningless* where what is read stays the same. A bit that is neither changes what is read and
nobody says so: `HARMLESS` and `OPEN` list these, with the reason, and no others may be there.
`tests/test_every_bit.py` holds all of this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from tests.unit.archive.streams import DIRECTORY, launch
from tests.unit.service_api.wire.log.sample_logs import make_log
from trimaran.archive.cold.record import ColdRecord, read_record
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.catalog import REDO_FILE_NAME, Catalog
from trimaran.archive.files.edit_journal import Edit, EditKind, decode_edit
from trimaran.archive.files.mark_file import MARK_FILE_NAME as ARCHIVE_MARK_NAME
from trimaran.archive.files.mark_file import ArchiveMarkFile
from trimaran.archive.files.marks import MARK_FILE_HEADER_LENGTH
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, parse_catalog
from trimaran.archive.format.descriptor import RecordingDescriptor, RecordingState
from trimaran.archive.format.frame_rules import frame_rules_of
from trimaran.archive.format.layout import COLD_RECORD_NAME
from trimaran.archive.format.messages import ArchiveMarkFileHeader
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import (
    RECORDING_LOG_NAME,
    BackupContents,
    StoredObject,
    StoredSegment,
    WriterIndex,
    encode_file,
    read_index,
)
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.messages.mark import MarkFileHeader
from trimaran.cluster.runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, ClusterIdFile
from trimaran.cluster.runtime.files.mark_file import (
    BOOT_ID_POSITION,
    CLUSTER_ID_LENGTH,
    CLUSTER_ID_POSITION,
    ClusterMarkFile,
)
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME as CLUSTER_MARK_NAME
from trimaran.cluster.runtime.files.members_file import MEMBERS_FILE_NAME, MembersFile, read_members
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME, NodeStateFile, parse_node_state
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.service_api import ClusterError
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.types import LOG_STREAM_ID, SERVICE_SNAPSHOT_STREAM_ID, MemberId, RecordingId, TermId
from trimaran.service_api.wire.frame import TYPE_PADDING, iter_headers
from trimaran.service_api.wire.log.log_rules import Before
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME

HARMLESS: Final = {
    ("a frame of padding", "session_id"): "padding has no message, and no reader uses whose it is",
    ("a frame of padding", "body"): "no reader reads it: where padding ends is in its header",
    ("a frame of padding in a snapshot", "session_id"): "as in the log",
    ("a frame of padding in a snapshot", "body"): "as in the log",
    ("archive.catalog", "version, minor and patch"): "a reader decides by the major version only",
    (
        "cluster-mark.dat",
        "header",
    ): "each start writes it again, and reads only whose directory it is and whether Aeron runs",
    ("cluster-mark.dat", "boot id"): "the start then looks for a torn write of a power loss, too",
    ("cluster-mark.dat", "cluster id"): "each start writes it again; the member reads `cluster-id`",
    ("cluster-mark.dat", "errors"): "only people read them",
    ("archive-mark.dat", "header"): "each start writes it again, and reads only whether Aeron runs",
    ("archive-mark.dat", "archive id"): "only Aeron's programs read it",
    ("archive-mark.dat", "errors"): "only people read them",
}
"""By file and field: bits that change what is read, or what a copy has, and that nothing finds."""

OPEN: Final = {
    ("a frame of the log", "frame_length, the low 5 bits"): (
        "a session message and a last fragment do not say how long they are: zeros that align the frame become part of "
        "the message, or zeros at its end are lost"
    ),
    ("a frame of a snapshot", "frame_length, the low 5 bits"): "as in a frame of the log",
}
"""By file and field: bits that are not harmless, and that nothing finds yet."""

_NOW_MS: Final = 1_800_000_000_000

_CATALOG_FIELDS: Final = (
    ("version, minor and patch", 0, 2),
    ("version, major", 2, 4),
    ("header length", 4, 8),
    ("alignment", 16, 20),
    ("zeros of the header", 20, 32),
    ("an entry's length", 32, 36),
    ("an entry's state", 36, 40),
    ("an entry's checksum", 40, 44),
    ("zeros of an entry", 44, 64),
    ("a recording's descriptor", 64, 1 << 31),
)

_HEADER_FIELDS: Final = (
    ("frame_length, the low 5 bits", 0, 1),
    ("frame_length", 1, 4),
    ("version", 4, 5),
    ("flags", 5, 6),
    ("type", 6, 8),
    ("term_offset", 8, 12),
    ("session_id", 12, 16),
    ("stream_id", 16, 20),
    ("term_id", 20, 24),
    ("reserved_value", 24, 32),
    ("body", 32, 1 << 31),
)


@dataclass(slots=True, frozen=True)
class Subject:
    """A file, what reads it, and where its fields are."""

    name: str
    found_by: str
    data: bytes
    read: Callable[[bytes], object]
    """Gives what is read; raises a `ClusterError`, or gives None, where something is wrong."""
    field_at: Callable[[int, int], tuple[str, str] | None]
    """Names the file and the field of a byte and bit; None where the byte is no subject."""


@dataclass(slots=True)
class Row:
    """The result of the flips of one field."""

    found_by: str
    found_count: int = 0
    meaningless_count: int = 0
    unseen_count: int = 0

    @property
    def flipped_count(self) -> int:
        """All of them."""
        return self.found_count + self.meaningless_count + self.unseen_count


Table = dict[tuple[str, str], Row]


def sweep(subjects: Iterable[Subject], choose: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Table:
    """Flip the bits that `choose` leaves of each subject's, and count by file and field."""
    table: Table = {}
    for subject in subjects:
        whole = subject.read(subject.data)
        assert whole is not None, f"{subject.name} is valid"
        bits = [
            (at, bit) for at in range(len(subject.data)) for bit in range(8) if subject.field_at(at, bit) is not None
        ]
        data = bytearray(subject.data)
        for at, bit in choose(bits):
            key = subject.field_at(at, bit)
            assert key is not None
            row = table.setdefault(key, Row(subject.found_by))
            data[at] ^= 1 << bit
            try:
                read = subject.read(bytes(data))
            except ClusterError:
                read = None
            data[at] ^= 1 << bit
            if read is None:
                row.found_count += 1
            elif read == whole:
                row.meaningless_count += 1
            else:
                row.unseen_count += 1
    return table


def subjects() -> Iterator[Subject]:
    """Make the files of a member, each with every kind of content."""
    disk = MemoryFileSystem()
    descriptor, catalog, log = asyncio.run(_record(disk))
    by_frame = "each reader, a start, the scrub"
    fields = _frame_fields(log, "a frame of the log", "a frame of padding")
    yield Subject("the log", by_frame, log, _read_log(descriptor), fields)
    snapshot = make_snapshot()
    fields = _frame_fields(snapshot, "a frame of a snapshot", "a frame of padding in a snapshot")
    yield Subject("a snapshot", by_frame, snapshot, _read_log(_snapshot_descriptor()), fields)
    yield Subject("archive.catalog", "the start", catalog, _read_catalog, _fields("archive.catalog", _CATALOG_FIELDS))
    redo = disk.content(DIRECTORY / REDO_FILE_NAME)
    yield Subject(
        "archive.catalog, its next id", "the start, by the redo record", catalog, _start_on(redo=redo), _next_id_field
    )
    yield Subject(REDO_FILE_NAME, "the start", redo, _start_on(catalog=catalog), _one_field(REDO_FILE_NAME, redo))
    edit = Edit(
        kind=EditKind.TRUNCATE, recording_id=RecordingId(3), position=4096, stop_position=8192, timestamp_ms=77
    ).encode()
    yield Subject("archive.edit", "the start", edit, decode_edit, _one_field("archive.edit", edit))
    yield from _cluster_files(disk)
    yield from _mark_files()
    yield from _stored(log)


async def _record(disk: MemoryFileSystem) -> tuple[RecordingDescriptor, bytes, bytes]:
    archive = await launch(disk)
    recording = await archive.start_recording(
        stream_id=LOG_STREAM_ID, session_id=7, channel="trimaran:tcp?alias=log", source_identity="test"
    )
    log = make_log(seed=5)
    half = 64 << 10
    for chunk in (log[:half], log[half:]):
        recording.append(chunk)
        recording.flush()
    await recording.wait_recorded(len(log))
    await recording.stop()
    descriptor = archive.descriptor(recording.recording_id)
    await archive.aclose()
    catalog = disk.content(DIRECTORY / "archive.catalog")
    return descriptor, catalog[: 32 + 256], log


def _read_log(descriptor: RecordingDescriptor) -> Callable[[bytes], object]:
    """Read all frames by the rules that every reader applies; a flip is seen by what is not read any more."""
    rules = frame_rules_of(descriptor)

    def read(data: bytes) -> object:
        at, before = 0, Before.UNKNOWN
        while at < len(data):
            at, last, before = rules.skip_valid_frames(data, at, at, len(data), before)
            if last is None:
                return None
        return data

    return read


def make_snapshot() -> bytes:
    """Messages of a service, short and in fragments, and padding between terms, in few bytes."""
    descriptor, random = _snapshot_descriptor(), Random(6)
    publisher = LogPublisher(
        LogBuffer(position=0, retained_bytes=1 << 20),
        log_session_id=descriptor.session_id,
        initial_term_id=descriptor.initial_term_id,
        term_length_bytes=descriptor.term_buffer_length,
        mtu_length_bytes=descriptor.mtu_length,
        checksums=True,
        stream_id=descriptor.stream_id,
    )
    for length in (1, 40, 224, 225, 500) * 8:
        publisher.append_message(bytes(random.randrange(1, 256) for _ in range(length)))
    data = b"".join(publisher.log_buffer.take_pending())
    assert any(header.type == TYPE_PADDING for _, header in iter_headers(data))
    return data


def _snapshot_descriptor() -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=RecordingId(1),
        start_timestamp_ms=0,
        start_position=0,
        initial_term_id=0,
        segment_file_length=4096,
        term_buffer_length=4096,
        mtu_length=256,
        session_id=-1,
        stream_id=SERVICE_SNAPSHOT_STREAM_ID,
        original_channel="trimaran:archive?alias=service-0-snapshot",
        checksummed=True,
    )


def _frame_fields(data: bytes, frame: str, padding: str) -> Callable[[int, int], tuple[str, str] | None]:
    owners: dict[int, tuple[int, bool]] = {}
    for offset, header in iter_headers(data):
        end = offset + (32 + 64 if header.type == TYPE_PADDING else header.aligned_length)
        for at in range(offset, min(end, offset + header.aligned_length)):
            owners[at] = offset, header.type == TYPE_PADDING

    def field_at(at: int, bit: int) -> tuple[str, str] | None:
        if at not in owners:
            return None
        offset, is_padding = owners[at]
        place = at - offset
        name = next(name for name, begin, end in _HEADER_FIELDS if begin <= place < end)
        if place == 0 and bit >= 5:
            name = "frame_length"
        return (padding if is_padding else frame), name

    return field_at


def _read_catalog(data: bytes) -> object:
    """Read the catalog as a start does, which misses a recording that is not valid: the recording log names it."""
    content = parse_catalog(data)
    are_valid = all(
        entry.problem is None and entry.descriptor is not None and entry.descriptor.state is RecordingState.VALID
        for entry in content.entries
    )
    return content if are_valid and content.entries else None


def _start_on(*, redo: bytes = b"", catalog: bytes = b"") -> Callable[[bytes], object]:
    """Open the catalog as a start does: what it has to put right was found."""

    def read(data: bytes) -> object:
        files = {CATALOG_FILE_NAME: catalog or data, REDO_FILE_NAME: redo or data}
        disk = _disk_with(DIRECTORY, files)
        opened = Catalog(disk, DIRECTORY, sync_level=0)
        opened.open()
        is_as_before = all(disk.content(DIRECTORY / name) == content for name, content in files.items())
        return (opened.next_recording_id, opened.descriptors()) if is_as_before else None

    return read


def _next_id_field(at: int, bit: int) -> tuple[str, str] | None:
    return ("archive.catalog", "next_recording_id") if 8 <= at < 16 else None


def _mark_files() -> Iterator[Subject]:
    directory = Path("/marked")
    disk = _disk_with(directory, {})
    _start_by_mark(disk, directory)
    path = directory / CLUSTER_MARK_NAME
    data = disk.content(path)[:MARK_FILE_HEADER_LENGTH] + b"an error, as text"

    def read_cluster_mark(data: bytes) -> object:
        disk = _disk_with(directory, {path.name: data})
        is_same_boot = _start_by_mark(disk, directory)
        return is_same_boot, disk.content(path)

    at = _offset_of(MarkFileHeader.decode(data), "member_id", 12345)
    fields = (
        ("header", 0, at),
        ("member_id", at, at + 4),
        ("header", at + 4, 256),
        ("boot id", BOOT_ID_POSITION, CLUSTER_ID_POSITION),
        ("cluster id", CLUSTER_ID_POSITION, CLUSTER_ID_POSITION + CLUSTER_ID_LENGTH),
        ("errors", MARK_FILE_HEADER_LENGTH, 1 << 31),
    )
    yield Subject(path.name, "the start", data, read_cluster_mark, _fields(path.name, fields))

    path = directory / ARCHIVE_MARK_NAME
    ArchiveMarkFile.open(directory, now_ms=_NOW_MS, file_system=disk).close()
    data = disk.content(path)[:MARK_FILE_HEADER_LENGTH] + b"an error, as text"

    def read_archive_mark(data: bytes) -> object:
        disk = _disk_with(directory, {path.name: data})
        ArchiveMarkFile.open(directory, now_ms=_NOW_MS, file_system=disk).release()
        return disk.content(path)

    at = _offset_of(ArchiveMarkFileHeader.decode(data), "archive_id", 12345)
    archive_fields = (
        ("header", 0, at),
        ("archive id", at, at + 8),
        ("header", at + 8, 256),
        ("errors", MARK_FILE_HEADER_LENGTH, 1 << 31),
    )
    yield Subject(path.name, "the start", data, read_archive_mark, _fields(path.name, archive_fields))


def _start_by_mark(disk: MemoryFileSystem, directory: Path) -> bool:
    mark = ClusterMarkFile.open(
        directory, member_id=0, now_ms=_NOW_MS, boot_id="b0071d", has_voted=True, file_system=disk
    )
    mark.confirm_boot()
    mark.note_cluster_id(0x1234)
    mark.close()
    return mark.is_same_boot


def _offset_of(header: MarkFileHeader | ArchiveMarkFileHeader, field: str, value: int) -> int:
    """Find where a field of a header lies: where its encoding differs if the field does."""
    plain, other = header.encode(), header.model_copy(update={field: value}).encode()
    return next(at for at in range(len(plain)) if plain[at] != other[at])


def _stored(log: bytes) -> Iterator[Subject]:
    """Make what lies in an object store: of a backup, and of cold storage."""
    content, digest = log[:1024], sha256(log[:1024]).hexdigest()
    place = Path("/store")
    contents = BackupContents(
        log_recording_id=0,
        log_start_position=0,
        log_stop_position=1024,
        snapshot_positions=[96],
        written_ms=2,
        parts=[],
        files={RECORDING_LOG_NAME: encode_file(b"terms")},
    )
    segment = StoredSegment(base_position=0, start_position=0, length=1024, sha256=digest)
    index = WriterIndex(cluster_id="3f9a0c12d45e77b1", writer="backup-1", segments=[segment], backup=contents)
    yield _whole("store: an index", "each reader", index.seal(), lambda data: read_index(data, "here"))

    store = OneObject()

    def read_object(data: bytes) -> object:
        store.data = data
        cold = ClusterStore(store.url, disk=_disk_with(place, {}), open_objects=lambda url: store)
        cold.fetch([StoredObject(segment.name, segment.length)], place / "fetched", digest=segment.sha256)
        return data

    yield _whole("store: an object", "each reader, and before it is in the cache", content, read_object)
    record = ColdRecord(url="file:///cold", recording_id=0, cache_bytes=1, segments=[segment])
    yield _whole(
        COLD_RECORD_NAME,
        "the start, each reader",
        record.seal(),
        lambda data: read_record(place, _disk_with(place, {COLD_RECORD_NAME: data})),
    )


class OneObject(ObjectStore):
    """A store in which every object is this one."""

    def __init__(self) -> None:
        super().__init__("file:///cold")
        self.data = b""

    def find_length(self, name: StoredName) -> int | None:
        return len(self.data)

    def read_range(self, name: StoredName, begin: int, end: int) -> bytes:
        return self.data[begin:end]


def _whole(name: str, found_by: str, data: bytes, read: Callable[[bytes], object]) -> Subject:
    return Subject(name, found_by, data, read, _one_field(name, data))


def _disk_with(directory: Path, files: dict[str, bytes]) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(directory)
    for name, data in files.items():
        handle = disk.open_file(directory / name, create=True)
        disk.pwrite(handle, data, 0)
        disk.close_file(handle)
    return disk


def _cluster_files(disk: MemoryFileSystem) -> Iterator[Subject]:
    directory = Path("/cluster")
    disk.make_directory(directory)
    node_state = NodeStateFile.open(directory, file_system=disk)
    node_state.propose_max_candidate_term_id(5, 640, 1_000)
    node_state.close()
    yield _file(disk, directory / NODE_STATE_FILE_NAME, lambda path: lambda data: parse_node_state(data), length=128)
    file = RecordingLogFile.open(directory, file_system=disk)
    for term in (1, 2):
        file.recording_log.append_term(
            recording_id=RecordingId(0),
            leadership_term_id=TermId(term),
            term_base_log_position=640 * (term - 1),
            timestamp=term,
        )
    file.persist()
    file.close()
    yield _file(disk, directory / RECORDING_LOG_FILE_NAME, lambda path: _read_recording_log)
    ClusterIdFile.open(directory, disk).store(ClusterId(0x1234))
    yield _file(disk, directory / CLUSTER_ID_FILE_NAME, lambda path: _through_disk(path, _read_cluster_id))
    endpoints = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4", "127.0.0.1:5")
    member = ConfiguredMember(MemberId(0), MemberKind.VOTER, endpoints)
    MembersFile.open(directory, disk).store(Configuration(members=(member,), high_member_id=0, log_position=96))
    yield _file(disk, directory / MEMBERS_FILE_NAME, lambda path: _through_disk(path, read_members))


def _file(
    disk: MemoryFileSystem,
    path: Path,
    reader: Callable[[Path], Callable[[bytes], object]],
    *,
    length: int | None = None,
) -> Subject:
    data = disk.content(path)[:length]
    return Subject(path.name, "the start", data, reader(path), _one_field(path.name, data))


def _through_disk(path: Path, read: Callable[[Path, MemoryFileSystem], object]) -> Callable[[bytes], object]:
    def from_bytes(data: bytes) -> object:
        return read(path, _disk_with(path.parent, {path.name: data}))

    return from_bytes


def _read_cluster_id(path: Path, disk: MemoryFileSystem) -> object:
    return ClusterIdFile.open(path.parent, disk).cluster_id


def _read_recording_log(data: bytes) -> object:
    return [repr(entry) for entry in RecordingLog.parse(data).entries]


def _fields(name: str, fields: tuple[tuple[str, int, int], ...]) -> Callable[[int, int], tuple[str, str] | None]:
    def field_at(at: int, bit: int) -> tuple[str, str] | None:
        found = next((field for field, begin, end in fields if begin <= at < end), None)
        return None if found is None else (name, found)

    return field_at


def _one_field(name: str, data: bytes) -> Callable[[int, int], tuple[str, str] | None]:
    return lambda at, bit: (name, "every byte")


def print_table(table: Table) -> None:
    """Print a line for each field."""
    print("| file | field | flips | found by | found | without a meaning | not seen |")
    print("|---|---|---|---|---|---|---|")
    for (file, name), row in table.items():
        counts = f"{row.found_count:,} | {row.meaningless_count:,} | {row.unseen_count:,}"
        print(f"| {file} | {name} | {row.flipped_count:,} | {row.found_by} | {counts} |")


def main() -> None:
    """Print the table of a sample of 20,000 bits of each file; with `--all`, of every bit."""
    random = Random(1)
    is_whole = "--all" in sys.argv

    def choose(bits: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return bits if is_whole else random.sample(bits, min(len(bits), 20_000))

    print_table(sweep(subjects(), choose))


if __name__ == "__main__":
    main()
