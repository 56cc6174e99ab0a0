"""Comparing two recordings: equal where members agree, and otherwise the very frame at which they do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    StreamBuilder,
    extract_sample,
    launch,
    small_config,
)
from trimaran.archive import RecordingDescriptor
from trimaran.archive.disk.file_system import write_fully
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import ArchiveLocation
from trimaran.archive.reading.difference import Difference, Side, Verdict, compare
from trimaran.cluster.cli.archive import app

LENGTHS = [10, 3000, 500, 0, 9000, 64, *range(900, 1100)]
SEGMENT = 2 * TERM_LENGTH


class Member:
    """An archive in memory with one recording of the stream, stopped unless told otherwise."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem()
        self.positions: list[int] = []

    async def record(
        self,
        lengths: list[int] = LENGTHS,
        *,
        segment: int = TERM_LENGTH,
        checksums: bool = True,
        purged_to: int = 0,
        is_active: bool = False,
    ) -> Member:
        stream = StreamBuilder(checksums=checksums)
        archive = await launch(self.disk, config=small_config(segment_length_bytes=segment, checksums=checksums))
        recording = await archive.start_recording(
            stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
        )
        for length in lengths:
            self.positions.append(stream.position)
            for chunk in stream.message(length):
                recording.append(chunk)
        recording.flush()
        await recording.wait_recorded(stream.position)
        self.end_position = stream.position
        if purged_to:
            await archive.purge_segments(0, purged_to)
        if is_active:
            await archive.abandon()
        else:
            await archive.aclose()
        return self

    @property
    def descriptor(self) -> RecordingDescriptor:
        found = read_catalog(self.disk, DIRECTORY).entries[0].descriptor
        assert found is not None
        return found

    def side(self) -> Side:
        return Side.open(LogFile(ArchiveLocation(self.disk, DIRECTORY), self.descriptor), 0)

    def patch(self, position: int, data: bytes) -> None:
        base_position = self.descriptor.segment_base_position(position)
        handle = self.disk.open_file(DIRECTORY / self.descriptor.segment_file_name(base_position))
        write_fully(self.disk, handle, data, position - base_position)
        self.disk.close_file(handle)


class TwoDisks(MemoryFileSystem):
    """What the comparison reads from: each member's files under a directory of its own."""

    def __init__(self, **disks: MemoryFileSystem) -> None:
        super().__init__()
        self.make_directory(Path("/"))
        for name, disk in disks.items():
            self.make_directory(Path("/") / name)
            for file in disk.list_directory(DIRECTORY):
                source = disk.open_file(DIRECTORY / file, writable=False)
                target = self.open_file(Path("/") / name / file, create=True)
                write_fully(self, target, disk.pread(source, disk.file_length(source), 0), 0)
                self.close_file(target)


def compared(a: Member, b: Member) -> Difference:
    disks = TwoDisks(a=a.disk, b=b.disk)
    begin = max(a.descriptor.start_position, b.descriptor.start_position)
    side_a, side_b = (
        Side.open(LogFile(ArchiveLocation(disks, Path("/") / name), member.descriptor), begin)
        for name, member in (("a", a), ("b", b))
    )
    return compare(side_a, side_b)


async def test_equal_recordings_cut_into_files_otherwise_are_equal() -> None:
    a, b = await Member().record(), await Member().record(segment=SEGMENT)

    found = compared(a, b)

    assert found == Difference(verdict=Verdict.EQUAL, start_position=0, stop_position=a.end_position)


async def test_an_active_recording_is_compared_up_to_where_its_frames_end() -> None:
    a, b = await Member().record(is_active=True), await Member().record()

    assert a.descriptor.stop_position is None
    assert compared(a, b).verdict is Verdict.EQUAL


@pytest.mark.parametrize("is_active", [False, True])
async def test_one_that_goes_on_is_longer(is_active: bool) -> None:
    a, b = await Member().record(), await Member().record(LENGTHS[:100], is_active=is_active)

    assert (compared(a, b).verdict, compared(b, a).verdict) == (Verdict.A_LONGER, Verdict.B_LONGER)
    assert compared(a, b).stop_position == b.end_position


async def test_the_common_range_is_compared_where_one_was_purged() -> None:
    a, b = await Member().record(purged_to=SEGMENT), await Member().record()
    b.patch(b.positions[0] + 32, b"\xff")

    found = compared(a, b)

    assert (found.verdict, found.start_position) == (Verdict.EQUAL, SEGMENT)


async def test_nothing_in_common_is_not_equal() -> None:
    a, b = await Member().record(purged_to=SEGMENT), await Member().record(LENGTHS[:6])

    assert compared(a, b).verdict is Verdict.NOTHING_IN_COMMON


async def test_two_empty_recordings_are_equal_and_one_that_has_begun_is_longer() -> None:
    a, b, c = await Member().record([]), await Member().record([]), await Member().record([10])

    assert compared(a, b).verdict is Verdict.EQUAL
    assert compared(a, c).verdict is Verdict.B_LONGER


@pytest.mark.parametrize("index", [0, 6, 100, 150])
async def test_the_first_wrong_byte_names_its_frame_and_whose_it_is(index: int) -> None:
    a, b = await Member().record(), await Member().record()
    position = b.positions[index]
    b.patch(position + 32 + 5, b"\x00\x01\x02\x03")

    found = compared(a, b)

    assert found.verdict is Verdict.DIFFERENT
    mismatch = found.mismatch
    assert mismatch is not None
    assert (mismatch.position, mismatch.what) == (position, ("payload",))
    assert mismatch.payload_offset in range(5, 9)
    assert mismatch.fault_a is None
    assert (mismatch.fault_b or "").startswith("wrong checksum")


async def test_the_first_of_several_differences_is_the_one() -> None:
    a, b = await Member().record(), await Member().record()
    for index in (180, 120, 7):
        b.patch(b.positions[index] + 40, bytes(range(60)))

    mismatch = compared(a, b).mismatch

    assert mismatch is not None
    assert mismatch.position == b.positions[7]


async def test_a_checksum_in_place_of_the_session_id_says_nothing_where_only_one_has_it() -> None:
    a, b = await Member().record(), await Member().record(checksums=False)

    assert compared(a, b).verdict is Verdict.EQUAL
    b.patch(b.positions[50] + 16, b"\x01")  # the stream id
    assert compared(a, b).verdict is Verdict.DAMAGED


async def test_a_session_id_that_differs_where_neither_has_checksums_is_a_difference() -> None:
    a, b = await Member().record(checksums=False), await Member().record(checksums=False)
    b.patch(b.positions[50] + 12, b"\x07")

    mismatch = compared(a, b).mismatch

    assert mismatch is not None
    assert (mismatch.position, mismatch.what) == (b.positions[50], ("session_id",))


async def test_a_segment_that_is_missing_is_damage() -> None:
    a, b = await Member().record(), await Member().record()
    b.disk.remove(DIRECTORY / f"0-{TERM_LENGTH}.rec")

    found = compared(a, b)

    assert found.verdict is Verdict.DAMAGED
    assert found.mismatch is not None
    assert found.mismatch.position == TERM_LENGTH
    assert (found.mismatch.fault_a, found.mismatch.fault_b) == (None, f"no segment file: expected=0-{TERM_LENGTH}.rec")


async def test_recordings_of_different_streams_differ_from_the_start() -> None:
    a, b = await Member().record(), Member()
    archive = await launch(b.disk, config=small_config(term_length_bytes=SEGMENT))
    recording = await archive.start_recording(
        stream_id=106, session_id=1, channel="c", source_identity="s", initial_term_id=3, preallocate=False
    )
    await recording.stop()
    await archive.aclose()

    mismatch = compared(a, b).mismatch

    assert mismatch is not None
    assert mismatch.what == (
        "stream_id: 100 and 106",
        "initial_term_id: 0 and 3",
        f"term_buffer_length: {TERM_LENGTH} and {SEGMENT}",
    )


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def report(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = run("diff", *arguments, "-o", "jsonl")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("three-node-failover", tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("members", [("node0", "node1"), ("node1", "node2"), ("node2", "node0")])
def test_the_logs_of_three_real_members_are_equal(three: Path, members: tuple[str, str]) -> None:
    """Source: samples set A README, three-node-failover."""
    status, found = report(*(three / member for member in members))

    assert (status, found["verdict"], found["stop_position"]) == (0, "equal", 436416)
    assert run("diff", *(three / member for member in members), "--exact").exit_code == 0


def test_a_real_member_that_differs_is_shown_with_both_messages(three: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(three / "node2", tmp_path / "node2"))
    segment = other / "archive" / "0-196608.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)

    status, found = report(three / "node0", other)
    table = run("diff", three / "node0", other)

    assert (status, table.exit_code) == (10, 10)
    assert (found["verdict"], found["position"], found["what"]) == ("different", 226464, ["payload"])
    a, b = found["a"]["message"], found["b"]["message"]
    assert a["name"] == b["name"] == "SessionMessageHeader"
    assert a["fields"] == b["fields"]
    assert a["match_offset"] == 196608 + 30_000 - 226464 - 32 - 32
    assert a["excerpt"] != b["excerpt"]
    assert has_facts(table.stdout, "0 to 436416", "226464: payload")
    assert a["excerpt"][:16] in table.stdout


def test_one_that_is_longer_is_told_and_is_an_error_only_if_asked(three: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(three / "node1", tmp_path / "node1"))
    catalog = other / "archive" / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    data[32 + 48 + 32 : 32 + 48 + 40] = (226464).to_bytes(8, "little")
    catalog.write_bytes(data)

    assert report(three / "node0", other)[0] == 0
    assert report(three / "node0", other)[1]["verdict"] == "a is longer"
    assert report(other, three / "node0")[1]["verdict"] == "b is longer"
    assert report(other, three / "node0", "--exact")[0] == 10


def test_recordings_are_compared_by_id(three: Path) -> None:
    """Of a snapshot each member of Aeron begins a stream of its own, at a random term id."""
    status, found = report(three / "node0", three / "node1", "--recording-id", 2, "--other-recording-id", 4)

    assert status == 10
    assert (found["a"]["recording_id"], found["b"]["recording_id"]) == (2, 4)
    assert found["what"][0].startswith("initial_term_id: ")
    assert report(three / "node0", three / "node0", "--recording-id", 2)[1]["verdict"] == "equal"


def test_an_archive_without_a_log_asks_which_recording(three: Path, tmp_path: Path) -> None:
    directory = extract_sample("archive-only", tmp_path) / "node0"

    result = run("diff", directory, three / "node0")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "no log of" in result.stderr
