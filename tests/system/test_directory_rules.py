"""For each rule of the independent checker, a directory that breaks it alone, and what the checker says.

The directory is one that a real Aeron left, without checksums, so that a change is found by the rule and by no other.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.directory_checker import DirectoryFault, check_directory
from tests.unit.archive.streams import extract_sample

LOG, SERVICE, MODULE = 0, 1, 2
"""The recordings of the sample."""

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("aeron")
    return extract_sample("single-node", directory) / "node0"


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def in_file(name: str, *changes: tuple[int, str, int]) -> Change:
    """Change numbers in a file: (offset, struct format, value)."""

    def change(directory: Path) -> None:
        for offset, layout, value in changes:
            write(directory / name, offset, struct.pack("<" + layout, value))

    return change


def messages(directory: Path, recording_id: int) -> Iterator[tuple[Path, int, int]]:
    """Where the messages of a recording begin that take one frame: file, offset, template id."""
    for path in sorted((directory / "archive").glob(f"{recording_id}-*.rec"), key=lambda p: int(p.stem.split("-")[1])):
        data, offset = path.read_bytes(), 0
        while offset + 32 <= len(data):
            frame_length, flags, frame_type = struct.unpack_from("<ixBH", data, offset)
            if frame_length <= 0:
                break
            if frame_type == 1 and flags == 0xC0 and frame_length >= 40:
                yield path, offset + 32, struct.unpack_from("<H", data, offset + 34)[0]
            offset += -(-frame_length // 32) * 32


def in_message(recording_id: int, template_id: int, index: int, offset: int, layout: str, value: int) -> Change:
    """Change a number in one of the messages of a kind; the offset counts from the message header."""

    def change(directory: Path) -> None:
        places = [(path, at) for path, at, kind in messages(directory, recording_id) if kind == template_id]
        path, at = places[index]
        write(path, at + offset, struct.pack("<" + layout, value))

    return change


def in_service_message(number: int, value: int) -> Change:
    """Give a message that the service has offered another id."""

    def change(directory: Path) -> None:
        for path, at, kind in messages(directory, LOG):
            if kind == 1 and struct.unpack_from("<q", path.read_bytes(), at + 16)[0] == -(1 << 63) + number:
                write(path, at + 16, struct.pack("<q", -(1 << 63) + value))

    return change


RECORDING_LOG = "cluster/recording.log"
CATALOG = "archive/archive.catalog"
SECOND_ENTRY = 288 + 32
"""Of the service's snapshot: where its descriptor begins in the catalog."""

VIOLATIONS: dict[str, tuple[Change, str]] = {
    "entry of an unknown type": (in_file(RECORDING_LOG, (44, "i", 7)), "type=7"),
    "term base that is no frame's": (in_file(RECORDING_LOG, (16, "q", 33)), "term_base_log_position=33"),
    "term of a service": (in_file(RECORDING_LOG, (40, "i", 3)), "a term with service_id=3"),
    "term after the log": (in_file(RECORDING_LOG, (16, "q", 1 << 40)), "begins after the end of the log"),
    "module before its service": (
        in_file(RECORDING_LOG, (64 + 40, "i", -1), (128 + 40, "i", 0)),
        "expected from the highest down to -1",
    ),
    "set of two times": (in_file(RECORDING_LOG, (64 + 32, "q", 5)), "differ in term base or timestamp"),
    "set of another term base": (
        in_file(RECORDING_LOG, (64 + 16, "q", 64), (128 + 16, "q", 64)),
        "term 0 has not that base",
    ),
    "set before its term": (
        in_file(RECORDING_LOG, (64 + 24, "q", -64), (128 + 24, "q", -64)),
        "lies before its term",
    ),
    "snapshot in a recording of another stream": (
        in_file(RECORDING_LOG, (64, "q", MODULE)),
        "recording_id=2 is no stopped recording of stream 106",
    ),
    "snapshot where no action is": (
        in_file(RECORDING_LOG, (64 + 24, "q", 578656), (128 + 24, "q", 578656)),
        "no SNAPSHOT action that ends there",
    ),
    "snapshot of another time than its action": (
        in_file(RECORDING_LOG, (64 + 32, "q", 5), (128 + 32, "q", 5)),
        "the action is of term 0",
    ),
    "snapshot that nobody names": (in_file(RECORDING_LOG, (64 + 44, "i", -1)), "a snapshot that recording.log"),
    "entry of an unknown kind in the log": (in_message(LOG, 22, 0, 2, "H", 99), "template_id=99"),
    "action that ends elsewhere": (in_message(LOG, 23, 0, 16, "q", 64), "log_position=64, the entry ends at"),
    "term that ends elsewhere": (in_message(LOG, 24, 0, 16, "q", 64), "log_position=64, the entry ends at 96"),
    "term from elsewhere": (in_message(LOG, 24, 0, 32, "q", 32), "recording.log has 0"),
    "time that goes back": (in_message(LOG, 20, 3, 24, "q", 7), "timestamp=7 after"),
    "session opened twice": (in_message(LOG, 21, 1, 24, "q", 1), "session 1 is opened again"),
    "session closed that was not open": (in_message(LOG, 22, 0, 16, "q", 77), "session 77 is closed and was not"),
    "service message out of order": (in_service_message(12, 13), "of service 0 after"),
    "marker of another type": (in_message(MODULE, 100, 0, 8, "q", 2), "marker (2, 578624"),
    "marker of another position": (in_message(SERVICE, 100, 1, 16, "q", 64), "marker (2, 64,"),
    "marker of another term": (in_message(SERVICE, 100, 0, 24, "q", 3), "marker (2, 578624, 3"),
    "marker with an index": (in_message(SERVICE, 100, 0, 32, "i", 1), "marker (2, 578624, 0, 1"),
    "begin for an end": (in_message(MODULE, 100, 1, 36, "i", 0), "marker (1, 578624, 0, 0, 0)"),
    "marker of another unit": (in_message(MODULE, 100, 1, 40, "i", 2), "marker with time_unit=2"),
    "marker of another version": (in_message(MODULE, 100, 1, 44, "i", 2), "markers with different app versions"),
    "no marker at the end": (in_message(SERVICE, 100, 1, 2, "H", 102), "markers at messages [0]"),
    "two modules": (in_message(MODULE, 104, 0, 2, "H", 105), "ConsensusModule messages=2"),
    "timer before a session": (in_message(MODULE, 103, 0, 2, "H", 104), "messages in the order"),
    "message of a stranger in the module": (in_message(MODULE, 104, 1, 2, "H", 77), "messages in the order"),
    "next session id": (in_message(MODULE, 105, 0, 8, "q", 3), "next_session_id=3, the log says 6"),
    "session opened elsewhere": (in_message(MODULE, 103, 0, 24, "q", 32), "session 1 opened at 32, by the log"),
    "session with an activity": (in_message(MODULE, 103, 0, 32, "q", 5), "activity=5"),
    "session with a reason to close": (in_message(MODULE, 103, 0, 40, "i", 0), "reason=0"),
    "session twice": (in_message(MODULE, 103, 1, 8, "q", 1), "sessions in the order [1, 1]"),
    "session of the container alone": (
        in_message(SERVICE, 102, 1, 8, "q", 9),
        "module and services do not hold the same sessions",
    ),
    "message among the client sessions": (in_message(SERVICE, 102, 1, 2, "H", 104), "Aeron's loader stops or errs at"),
    "tracker of another service": (in_message(MODULE, 107, 0, 28, "i", 4), "tracker of service 4, expected 0"),
    "tracker that is behind the log": (
        in_message(MODULE, 107, 0, 16, "q", -(1 << 63) + 10),
        "the log says",
    ),
    "pending message out of order": (in_message(MODULE, 1, 4, 16, "q", -(1 << 63) + 2), "pending message"),
    "pending messages that end early": (
        in_message(MODULE, 107, 0, 8, "q", -(1 << 63) + 50),
        "has messages pending up to",
    ),
    "reserved bytes of a catalog entry": (in_file(CATALOG, (32 + 20, "i", 1)), "expected zeros"),
    "term length that is no power of two": (in_file(CATALOG, (SECOND_ENTRY + 64, "i", 96 << 10)), "term_length=98304"),
    "mtu that is no multiple of 32": (in_file(CATALOG, (SECOND_ENTRY + 68, "i", 1409)), "mtu_length=1409"),
    "segments shorter than a term": (in_file(CATALOG, (SECOND_ENTRY + 60, "i", 4096)), "segment_length=4096"),
    "start within a frame": (in_file(CATALOG, (SECOND_ENTRY + 40, "q", 8)), "start_position=8"),
    "snapshot that begins late": (in_file(CATALOG, (SECOND_ENTRY + 40, "q", 96)), "the recording begins at 96"),
    "bytes before the start": (in_file(CATALOG, (SECOND_ENTRY + 40, "q", 96)), "before start_position=96"),
    "text that is not ASCII": (in_file(CATALOG, (SECOND_ENTRY + 84, "B", 0xE9)), "is not ASCII"),
    "text after the entry": (in_file(CATALOG, (SECOND_ENTRY + 80, "I", 5000)), "is not ASCII or not whole"),
    "ids that fall": (in_file(CATALOG, (SECOND_ENTRY + 16, "q", 0)), "recording ids [0, 0, 2]"),
    "a file that is nobody's": (lambda directory: write_new(directory / "archive" / "9-0.rec"), "that nobody needs"),
    "footer of the node state": (in_file("cluster/node-state.dat", (50, "H", 305)), "candidate term header"),
    "cluster mark of another schema": (in_file("cluster/cluster-mark.dat", (4, "H", 100)), "cluster-mark.dat: length"),
    "cluster mark of another version": (in_file("cluster/cluster-mark.dat", (8, "i", 1)), "version=0x1"),
    "cluster mark of a service": (in_file("cluster/cluster-mark.dat", (12, "i", 2)), "component_type=2"),
    "cluster mark with another header": (in_file("cluster/cluster-mark.dat", (72, "i", 4096)), "header_length=4096"),
    "cluster mark that ends late": (in_file("cluster/cluster-mark.dat", (136, "I", 9000)), "after the header"),
    "cluster mark of one that runs": (in_file("cluster/cluster-mark.dat", (16, "q", 5)), "activity_timestamp=5"),
    "archive mark of another schema": (in_file("archive/archive-mark.dat", (4, "H", 110)), "archive-mark.dat: length"),
    "archive mark of another version": (in_file("archive/archive-mark.dat", (8, "i", 1)), "version=0x1"),
    "archive mark with another header": (in_file("archive/archive-mark.dat", (52, "i", 64)), "header_length=64"),
    "archive mark that ends late": (in_file("archive/archive-mark.dat", (136, "I", 9000)), "after the header"),
    "archive mark of one that runs": (in_file("archive/archive-mark.dat", (16, "q", 5)), "activity_timestamp=5"),
}


def write_new(path: Path) -> None:
    path.write_bytes(bytes(65536))


def test_the_directory_keeps_every_rule(healthy: Path) -> None:
    """Also those that Aeron does not promise: else a violation could be found by one of them."""
    report = check_directory(healthy)

    assert [entry.log_position for entry in report.snapshots] == [578624, 578624]


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_seen_and_told(healthy: Path, tmp_path: Path, name: str) -> None:
    change, expected = VIOLATIONS[name]
    directory = tmp_path / "broken"
    shutil.copytree(healthy, directory)
    change(directory)

    with pytest.raises(DirectoryFault) as fault:
        check_directory(directory)

    assert expected in str(fault.value)
    shutil.rmtree(directory)
