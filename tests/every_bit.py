"""Flips every bit of every field of a member's files, one at a time, and says what finds it.

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
from pathlib import Path
from random import Random
from typing import Final

from tests.unit.archive.streams import DIRECTORY, launch
from tests.unit.service_api.wire.log.sample_logs import make_log
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import parse_catalog
from trimaran.archive.files.edit_journal import Edit, EditKind, decode_edit
from trimaran.archive.format.descriptor import RecordingDescriptor, RecordingState
from trimaran.archive.format.frame_rules import frame_rules_of
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.membership.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, ClusterIdFile
from trimaran.cluster.runtime.files.members_file import MEMBERS_FILE_NAME, MembersFile, read_members
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME, NodeStateFile, parse_node_state
from trimaran.cluster.runtime.files.recording_log_file import RECORDING_LOG_FILE_NAME, RecordingLogFile
from trimaran.service_api import ClusterError
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.types import LOG_STREAM_ID, MemberId, RecordingId, TermId
from trimaran.service_api.wire.frame import TYPE_PADDING, iter_headers
from trimaran.service_api.wire.log.log_rules import Before

HARMLESS: Final = {
    ("a frame of padding", "session_id"): "padding has no message, and no reader uses whose it is",
    ("a frame of padding", "body"): "no reader reads it: where padding ends is in its header",
    ("archive.catalog", "version, minor and patch"): "a reader decides by the major version only",
}
"""By file and field: bits that change what is read, or what a copy has, and that nothing finds."""

OPEN: Final = {
    ("a frame of the log", "frame_length, the low 5 bits"): (
        "a session message and a last fragment do not say how long they are: zeros that align the frame become part of "
        "the message, or zeros at its end are lost"
    ),
    ("archive.catalog", "next_recording_id"): "the next recording gets another id than it would have got",
}
"""By file and field: bits that are not harmless, and that nothing finds yet."""

_CATALOG_FIELDS: Final = (
    ("version, minor and patch", 0, 2),
    ("version, major", 2, 4),
    ("header length", 4, 8),
    ("next_recording_id", 8, 16),
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
    """What became of the flips of one field."""

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
    yield Subject("the log", "each reader, a start, the scrub", log, _read_log(descriptor), _frame_fields(log))
    yield Subject("archive.catalog", "the start", catalog, _read_catalog, _fields("archive.catalog", _CATALOG_FIELDS))
    edit = Edit(
        kind=EditKind.TRUNCATE, recording_id=RecordingId(3), position=4096, stop_position=8192, timestamp_ms=77
    ).encode()
    yield Subject("archive.edit", "the start", edit, decode_edit, _one_field("archive.edit", edit))
    yield from _cluster_files(disk)


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


def _frame_fields(log: bytes) -> Callable[[int, int], tuple[str, str] | None]:
    owners: dict[int, tuple[int, bool]] = {}
    for offset, header in iter_headers(log):
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
        return ("a frame of padding" if is_padding else "a frame of the log"), name

    return field_at


def _read_catalog(data: bytes) -> object:
    """Read the catalog as a start does, which misses a recording that is not valid: the recording log names it."""
    content = parse_catalog(data)
    are_valid = all(
        entry.problem is None and entry.descriptor is not None and entry.descriptor.state is RecordingState.VALID
        for entry in content.entries
    )
    return content if are_valid and content.entries else None


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
        disk = MemoryFileSystem()
        disk.make_directory(path.parent)
        handle = disk.open_file(path, create=True)
        disk.pwrite(handle, data, 0)
        disk.close_file(handle)
        return read(path, disk)

    return from_bytes


def _read_cluster_id(path: Path, disk: MemoryFileSystem) -> object:
    return ClusterIdFile.open(path.parent, disk).cluster_id


def _read_recording_log(data: bytes) -> object:
    return [repr(entry) for entry in RecordingLog.parse(data).entries]


def _fields(name: str, fields: tuple[tuple[str, int, int], ...]) -> Callable[[int, int], tuple[str, str] | None]:
    return lambda at, bit: (name, next(field for field, begin, end in fields if begin <= at < end))


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
