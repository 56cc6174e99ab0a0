"""Planning and reading without Spark: however a log is cut, its rows are those of `archive.frames`, in their order."""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.unit.archive.spark.written_logs import (
    TERM_LENGTH,
    Entry,
    overwrite,
    renamed,
    write_catalog,
    write_log,
)
from trimaran import archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.log.member_directory import locate_archive
from trimaran.archive.reading.frame_batches import ReadProblem
from trimaran.archive.reading.vector.boundaries import CutRules, find_cut
from trimaran.archive.spark.source.batch_reader import find_problems, read_partition
from trimaran.archive.spark.source.columns import frame_struct
from trimaran.archive.spark.source.options import parse_options
from trimaran.archive.spark.source.partitions import (
    FIRST_PARTITION_BYTES,
    ReadPlan,
    choose_split_bytes,
    plan_read,
)
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.frame import encode_frame

SCHEMA = to_arrow_schema(frame_struct(), timezone="UTC")
KIB = 1 << 10


def plan(directory: Path, **options: str) -> ReadPlan:
    return plan_read(parse_options({"path": str(directory), **options}), tuple(SCHEMA.names))


def read(found: ReadPlan, problems: list[ReadProblem] | None = None) -> Any:
    """The table of a plan; every partition travels as it does to an executor."""
    said: list[ReadProblem] = [] if problems is None else problems
    partitions = pickle.loads(pickle.dumps(found.partitions))
    batches = [batch for partition in partitions for batch in read_partition(partition, SCHEMA, said.append)]
    if problems is None:
        assert said == []
    return pa.Table.from_batches(batches, SCHEMA)


def expected(directory: Path, **arguments: Any) -> Any:
    return archive.frames(directory, **arguments).read_all().cast(SCHEMA)


def entries_of_all_lengths(count: int, *, longest: int = 20_000, seed: int = 3) -> list[Entry]:
    """Short ones mostly, and some of many fragments."""
    draw = random.Random(seed)
    lengths = [draw.choice((draw.randrange(200), draw.randrange(200), draw.randrange(longest))) for _ in range(count)]
    return [Entry(draw.randbytes(length), timestamp=index) for index, length in enumerate(lengths)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments of two terms each."""
    directory = tmp_path_factory.mktemp("log")
    descriptor = write_log(directory, entries_of_all_lengths(1500), segment_length=2 * TERM_LENGTH)
    assert descriptor.stop_position is not None
    assert descriptor.stop_position > 4 * TERM_LENGTH
    return directory


@pytest.mark.parametrize("messages", ["false", "true"])
@pytest.mark.parametrize("split", ["64k", "200000", "1m", "2m", "3m", "1g"])
def test_a_log_is_the_same_however_it_is_cut(log: Path, split: str, messages: str) -> None:
    found = plan(log, splitBytes=split, messages=messages)

    assert read(found).equals(expected(log, reassemble=messages == "true"))


def test_partitions_begin_where_the_ones_before_them_end(log: Path) -> None:
    ranges = [partition.resolve() for partition in plan(log, splitBytes="64k", messages="true").partitions]

    assert len(ranges) > 60
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert sum(start < stop for start, stop in ranges) > 40


def test_partitions_are_as_long_as_asked_for_and_a_segment_at_most(log: Path) -> None:
    lengths = [stop - start for start, stop in (p.resolve() for p in plan(log, splitBytes="256k").partitions)]

    assert max(lengths) < 300 * KIB
    assert len(plan(log, splitBytes="2m").partitions) == 1 + 3
    assert len(plan(log, splitBytes="4m").partitions) == 1 + 2


def test_the_first_partition_is_small(log: Path) -> None:
    first, second, *_ = plan(log).partitions

    start, stop = first.resolve()
    assert (start, stop) == (0, second.resolve()[0])
    assert FIRST_PARTITION_BYTES <= stop < 2 * FIRST_PARTITION_BYTES


def test_without_split_bytes_there_are_ten_thousand_partitions_at_most() -> None:
    options = parse_options({"path": "x"})

    assert choose_split_bytes(options, 100 << 40) == -(-(100 << 40) // 10_000)


@pytest.mark.parametrize(
    ("total_mib", "core_count", "split_mib"),
    [(1024, 2, 128), (1024, 8, 64), (1024, 64, 32), (512, 2, 128), (511, 2, 64), (128, 2, 32), (1, 2, 32)],
)
def test_without_split_bytes_each_core_has_two_partitions_if_they_are_not_too_short(
    total_mib: int, core_count: int, split_mib: int
) -> None:
    options = parse_options({"path": "x"})

    assert choose_split_bytes(options, total_mib << 20, core_count) == split_mib << 20


def test_what_is_asked_for_of_a_long_log_says_how_long_partitions_are(tmp_path: Path) -> None:
    """A short range in long partitions would be found by reading much else."""
    mib = 1 << 20
    short = write_log(tmp_path, [Entry(b"x")])
    log = replace(short, stop_position=1 << 40, term_buffer_length=64 * mib, segment_file_length=128 * mib)
    write_catalog(tmp_path, [log])
    middle = 1 << 39

    def places(**options: str) -> list[tuple[int, int]]:
        return [(p.nominal_start, p.nominal_stop) for p in plan(tmp_path, **options).partitions]

    assert places()[1:3] == [(FIRST_PARTITION_BYTES, 128 * mib), (128 * mib, 256 * mib)]
    first = (middle, middle + FIRST_PARTITION_BYTES)
    assert places(where=f"position BETWEEN {middle} AND {middle + 100}") == [first, (first[1], middle + 32 * mib)]
    assert places(exceptPositions=f"0:0-{middle},0:{middle + 128 * mib}-{1 << 40}")[1] == (first[1], middle + 32 * mib)


def test_split_bytes_are_taken_as_told() -> None:
    options = parse_options({"path": "x", "splitBytes": "1m"})

    assert choose_split_bytes(options, 100 << 40) == 1 << 20


def frames_at(position: int, count: int) -> bytes:
    """What looks like the log's own frames at this position: a payload as a client may have sent it."""
    frames = b""
    for _ in range(count):
        place = position + len(frames)
        frames += encode_frame(
            bytes(96), stream_id=100, session_id=1, term_id=place // TERM_LENGTH, term_offset=place % TERM_LENGTH
        )
    return frames


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose payloads hold frames that are right for where they lie: each fills its frame to the end."""
    directory = tmp_path_factory.mktemp("hostile")
    entries, position = [], 0
    while position < 3 * TERM_LENGTH // 4:
        # Behind the frame's header, the message's, and the fields of a session message, to the next slot.
        entries.append(Entry(frames_at(position + 64, 10)))
        position += 64 + 10 * 128
    entries += [Entry(bytes(100))] * 1000
    write_log(directory, entries)
    return directory


def test_payloads_that_look_like_frames_are_never_taken_for_frames(hostile: Path) -> None:
    found = plan(hostile, splitBytes="64k")

    assert len(found.partitions) > 10
    assert read(found).equals(expected(hostile))


def test_a_place_among_such_payloads_is_passed_over(hostile: Path) -> None:
    location = locate_archive(hostile)
    descriptor = plan(hostile).partitions[0].descriptor
    end = descriptor.stop_position or 0
    rules = CutRules(split_bytes=64 * KIB, end_position=end, of_messages=False)

    cuts = [find_cut(location, descriptor, place, rules) for place in range(64 * KIB, 12 * 64 * KIB, 64 * KIB)]

    assert len(set(cuts)) == 1
    assert cuts[0] > 3 * TERM_LENGTH // 4


@pytest.mark.parametrize(
    ("start", "stop"),
    [(1, 99), (TERM_LENGTH - 5, TERM_LENGTH + 5000), (3_000_001, 3_100_001), (0, 96), (10**9, 10**9)],
)
def test_positions_need_not_be_those_of_frames(log: Path, start: int, stop: int) -> None:
    whole = expected(log)

    found = read(plan(log, splitBytes="64k", startPosition=str(start), stopPosition=str(stop)))

    positions, lengths = whole.column("position").to_pylist(), whole.column("frame_length").to_pylist()
    ends = [position + (length + 31 & -32) for position, length in zip(positions, lengths, strict=True)]
    wanted = [p for p, end in zip(positions, ends, strict=True) if p >= start and end <= stop]
    assert found.column("position").to_pylist() == wanted


def test_a_range_of_positions_opens_its_own_segment_only(log: Path, tmp_path: Path) -> None:
    """The other segments are not even there."""
    names = ["archive.catalog", f"0-{2 * TERM_LENGTH}.rec"]
    for name in names:
        (tmp_path / name).write_bytes((log / name).read_bytes())
    low, high = 2 * TERM_LENGTH + 300_000, 4 * TERM_LENGTH - 100

    found = read(plan(tmp_path, splitBytes="64k", where=f"position BETWEEN {low} AND {high}"))

    table = expected(log)
    assert found.equals(table.filter((pa.compute.field("position") >= low) & (pa.compute.field("position") <= high)))
    assert found.num_rows > 100


class BytesRead:
    """Counts the bytes that anything in this process reads of segments, and the segments that it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.byte_count = 0
        self.names: set[str] = set()
        self._handles: set[int] = set()
        open_file, pread_into = OsFileSystem.open_file, OsFileSystem.pread_into

        def opening(system: OsFileSystem, path: Path, **options: Any) -> int:
            handle = open_file(system, path, **options)
            self._handles.discard(handle)
            if path.suffix == ".rec":
                self.names.add(path.name)
                self._handles.add(handle)
            return handle

        def reading(system: OsFileSystem, handle: int, length: int, offset: int) -> bytes:
            data = os.pread(handle, length, offset)
            self.byte_count += len(data) * (handle in self._handles)
            return data

        def reading_into(system: OsFileSystem, handle: int, buffer: Any, offset: int) -> int:
            length = pread_into(system, handle, buffer, offset)
            self.byte_count += length * (handle in self._handles)
            return length

        monkeypatch.setattr(OsFileSystem, "open_file", opening)
        monkeypatch.setattr(OsFileSystem, "pread", reading)
        monkeypatch.setattr(OsFileSystem, "pread_into", reading_into)


BIG_TERM = 16 << 20


@pytest.fixture(scope="module", params=[True, False], ids=["stopped", "open"])
def big_log(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Three segments of one long term each: a millisecond between two messages of about 4 KiB."""
    directory = tmp_path_factory.mktemp("big")
    draw = random.Random(5)
    entries = [Entry(draw.randbytes(draw.randrange(8000)), timestamp=index) for index in range(10_000)]
    write_log(directory, entries, term_length=BIG_TERM, segment_length=BIG_TERM, is_stopped=request.param)
    return directory


@pytest.mark.parametrize("messages", ["false", "true"])
@pytest.mark.parametrize("low", [100, BIG_TERM // 2 + 17, BIG_TERM - 60_000, 2 * BIG_TERM - 5_000_000])
def test_a_range_of_positions_reads_few_bytes_besides_its_own(
    big_log: Path, monkeypatch: pytest.MonkeyPatch, low: int, messages: str
) -> None:
    high = low + 100_000
    table = expected(big_log, reassemble=messages == "true")
    counted = BytesRead(monkeypatch)

    found = read(plan(big_log, timeUnit="ms", where=f"position BETWEEN {low} AND {high}", messages=messages))

    is_wanted = (pa.compute.field("position") >= low) & (pa.compute.field("position") <= high)
    assert found.equals(table.filter(is_wanted))
    assert found.num_rows > 10
    assert counted.byte_count < 100_000 + 600_000
    assert len(counted.names) <= 3


def test_where_reads_no_more_than_the_options_for_positions(big_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = BIG_TERM + 3_000_000, BIG_TERM + 3_100_000
    counted = BytesRead(monkeypatch)
    by_options = read(plan(big_log, timeUnit="ms", startPosition=str(low), stopPosition=str(high)))
    bytes_by_options, counted.byte_count = counted.byte_count, 0

    by_where = read(plan(big_log, timeUnit="ms", where=f"position >= {low} AND position < {high}"))

    assert by_where.slice(0, by_options.num_rows).equals(by_options)
    assert by_where.num_rows <= by_options.num_rows + 1
    assert counted.byte_count <= bytes_by_options + 100_000


@pytest.mark.parametrize("messages", ["false", "true"])
def test_a_range_of_times_within_one_segment_reads_few_bytes_besides_its_own(
    big_log: Path, monkeypatch: pytest.MonkeyPatch, messages: str
) -> None:
    table = expected(big_log, reassemble=messages == "true")
    is_stopped = plan(big_log, timeUnit="ms").partitions[0].descriptor.stop_position is not None
    counted = BytesRead(monkeypatch)
    where = "timestamp >= '1970-01-01 00:00:05' AND timestamp < '1970-01-01 00:00:05.025'"

    found = read(plan(big_log, timeUnit="ms", where=where, messages=messages))

    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert found.equals(table.filter(pa.array([time is not None and 5_000_000 <= time < 5_025_000 for time in times])))
    assert found.num_rows >= 25
    # Where a log without a stop position ends, and that nothing follows there, is found by reading its last segment.
    assert counted.byte_count < 3_000_000 + (0 if is_stopped else 2 * BIG_TERM)


@pytest.mark.parametrize("messages", ["false", "true"])
@pytest.mark.parametrize("split", ["64k", "200000", "2m", "1g"])
def test_ranges_joined_by_or_give_each_row_once(log: Path, split: str, messages: str) -> None:
    """Also where they lie near each other, and where one of them is of times."""
    table = expected(log, reassemble=messages == "true")
    whole, draw = table.column("position").to_pylist(), random.Random(11)
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    for _ in range(6):
        bounds = [sorted(draw.choice(whole) + draw.choice((0, 1, 40)) for _ in range(2)) for _ in range(3)]
        first, last = sorted(draw.randrange(1500) for _ in range(2))
        where = " OR ".join(f"position BETWEEN {low} AND {high}" for low, high in bounds)
        where = f"({where}) AND (timestamp > '{_moment(first)}' AND timestamp <= '{_moment(last)}' OR position < 5000)"

        found = read(plan(log, where=where, splitBytes=split, messages=messages))

        wanted = [
            any(low <= position <= high for low, high in bounds)
            and ((time is not None and first * 1000 < time <= last * 1000) or position < 5000)
            for position, time in zip(whole, times, strict=True)
        ]
        assert found.equals(table.filter(pa.array(wanted))), where


def _moment(milliseconds: int) -> str:
    return f"1970-01-01 00:00:0{milliseconds // 1000}.{milliseconds % 1000:03}"


def test_positions_far_apart_are_read_apart(big_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = expected(big_log).column("position").to_pylist()
    chosen = [positions[50], positions[4000], positions[9000]]
    counted = BytesRead(monkeypatch)

    found = read(plan(big_log, timeUnit="ms", where=f"position IN ({', '.join(map(str, chosen))})"))

    assert found.column("position").to_pylist() == chosen
    assert counted.byte_count < 1_500_000


def test_ranges_in_payloads_that_look_like_frames_give_each_row_once(hostile: Path) -> None:
    """Where a range begins is no place for a cut there."""
    table = expected(hostile)
    draw = random.Random(3)
    for _ in range(10):
        low, high = sorted(draw.randrange(TERM_LENGTH - 200_000) for _ in range(2))

        found = read(plan(hostile, where=f"position BETWEEN {low} AND {high} OR position > {high + 10}"))

        positions = table.column("position").to_pylist()
        wanted = [low <= position <= high or position > high + 10 for position in positions]
        assert found.equals(table.filter(pa.array(wanted)))


def test_a_recording_that_was_not_stopped_ends_where_its_frames_do(tmp_path: Path) -> None:
    entries = entries_of_all_lengths(300)
    write_log(tmp_path, entries, is_stopped=False)

    assert read(plan(tmp_path, splitBytes="64k")).equals(expected(tmp_path))


def test_a_tail_that_was_torn_is_no_damage(tmp_path: Path) -> None:
    descriptor = write_log(tmp_path, entries_of_all_lengths(300), is_stopped=False)
    last = expected(tmp_path).column("position").to_pylist()[-1]
    overwrite(tmp_path, descriptor, last + 8, b"\xff\xff\xff\x7f")

    problems: list[ReadProblem] = []
    rows = read(plan(tmp_path, splitBytes="64k"), problems)

    assert problems == []
    assert rows.column("position").to_pylist()[-1] < last


def test_an_active_recording_damaged_in_its_first_frame_is_read_on(tmp_path: Path) -> None:
    descriptor = write_log(tmp_path, [Entry(bytes(100))] * 5, is_stopped=False)
    whole = expected(tmp_path)
    overwrite(tmp_path, descriptor, 8, b"\xff")

    problems: list[ReadProblem] = []
    rows = read(plan(tmp_path), problems)

    assert [(p.recording_id, p.position) for p in problems] == [(0, 0)]
    assert rows.equals(whole.slice(1))


@pytest.mark.parametrize("split", ["64k", "300k", "2m"])
def test_what_lies_behind_damage_is_read(log: Path, tmp_path: Path, split: str) -> None:
    """Headers, payloads where there are no checksums aside, and all of a frame: only the damaged frames are missing."""
    whole = expected(log)
    for path in log.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    descriptor = plan(tmp_path).partitions[0].descriptor
    positions = whole.column("position").to_pylist()
    damaged = [positions[5], positions[400], positions[1000], positions[-1]]
    for position in damaged:
        overwrite(tmp_path, descriptor, position + 16, b"\1\2\3\4")

    problems: list[ReadProblem] = []
    rows = read(plan(tmp_path, splitBytes=split), problems)

    assert [problem.position for problem in problems] == damaged
    assert all("stream id" in problem.reason for problem in problems)
    assert rows.equals(whole.filter(pa.array([position not in damaged for position in positions])))
    found: list[ReadProblem] = []
    for partition in plan(tmp_path, splitBytes=split).partitions:
        find_problems(partition, found.append)
    assert found == problems


@pytest.mark.parametrize("split", ["64k", "1m"])
def test_a_torn_last_frame_is_listed_and_no_damage(tmp_path: Path, split: str) -> None:
    """A read is without its row, and nothing said so."""
    descriptor = write_log(tmp_path, entries_of_all_lengths(300), is_stopped=False)
    last = expected(tmp_path).column("position").to_pylist()[-1]
    overwrite(tmp_path, descriptor, last + 8, b"\xff\xff\xff\x7f")

    problems: list[ReadProblem] = []
    rows = read(plan(tmp_path, splitBytes=split), problems)
    found: list[ReadProblem] = []
    for partition in plan(tmp_path, splitBytes=split).partitions:
        find_problems(partition, found.append)

    assert problems == []
    assert last not in rows.column("position").to_pylist()
    assert [(each.position, "torn write" in each.reason) for each in found] == [(last, True)]


def test_a_missing_segment_is_one_problem_and_the_rest_is_read(log: Path, tmp_path: Path) -> None:
    for path in log.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / f"0-{2 * TERM_LENGTH}.rec").unlink()

    problems: list[ReadProblem] = []
    rows = read(plan(tmp_path, splitBytes="256k"), problems)

    assert [(problem.position, problem.reason.split(";")[0]) for problem in problems] == [
        (2 * TERM_LENGTH, f"no segment file: expected=0-{2 * TERM_LENGTH}.rec")
    ]
    positions = expected(log).column("position").to_pylist()
    wanted = [p for p in positions if not 2 * TERM_LENGTH <= p < 4 * TERM_LENGTH]
    assert rows.column("position").to_pylist() == wanted


def cut_segments(directory: Path, descriptor: RecordingDescriptor, *indexes: int) -> None:
    """Leave of some segments only their heads, which say where terms and times are."""
    for index in indexes:
        path = directory / descriptor.segment_file_name(index * TERM_LENGTH)
        path.write_bytes(path.read_bytes()[: 64 * KIB])


@pytest.mark.parametrize(
    ("where", "unneeded", "column", "low", "high"),
    [
        # Where a leadership term ends within a segment, and in the last segment, times rule out nothing.
        (
            "timestamp BETWEEN '1970-01-01 00:00:01' AND '1970-01-01T00:00:01.5Z'",
            (0, 2, 3, 4, 6, 7),
            *("timestamp", 1_000_000, 1_500_000),
        ),
        ("leadership_term_id = 0", (6, 7, 8), "leadership_term_id", 0, 0),
        ("leadership_term_id > 0 AND timestamp >= '1970-01-01 00:00:00'", (0, 1, 2, 3, 4), "leadership_term_id", 1, 1),
    ],
)
def test_segments_that_terms_or_times_rule_out_are_not_read(
    tmp_path: Path, where: str, unneeded: tuple[int, ...], column: str, low: float, high: float
) -> None:
    entries = [Entry(bytes(1000), leadership_term_id=index // 5000, timestamp=index) for index in range(8000)]
    descriptor = write_log(tmp_path, entries)
    whole = expected(tmp_path)
    cut_segments(tmp_path, descriptor, *unneeded)

    rows = read(plan(tmp_path, where=where))

    values = whole.column(column).cast(pa.int64()).to_pylist()
    assert rows.equals(whole.filter(pa.array([value is not None and low <= value <= high for value in values])))
    assert rows.num_rows > 400


def test_a_term_that_is_not_there_needs_no_partition(tmp_path: Path) -> None:
    write_log(tmp_path, [Entry(bytes(1000), leadership_term_id=3)] * 3000)

    assert plan(tmp_path, where="leadership_term_id < 3").partitions[:1] == ()
    assert plan(tmp_path, where="position >= 999999999").partitions == ()


def test_recordings_are_read_in_the_order_of_the_catalog(tmp_path: Path) -> None:
    descriptor = write_log(tmp_path, entries_of_all_lengths(50))
    other = renamed(descriptor, 1)
    (tmp_path / other.segment_file_name(0)).write_bytes((tmp_path / descriptor.segment_file_name(0)).read_bytes())
    write_catalog(tmp_path, [descriptor, other])

    assert read(plan(tmp_path, recordingId="all")).equals(expected(tmp_path))
    assert set(read(plan(tmp_path)).column("recording_id").to_pylist()) == {1}
    assert set(read(plan(tmp_path, recordingId="0")).column("recording_id").to_pylist()) == {0}
    assert set(
        read(plan(tmp_path, recordingId="all", where="recording_id = 0")).column("recording_id").to_pylist()
    ) == {0}


def test_an_archive_without_a_log_wants_a_recording_named(tmp_path: Path) -> None:
    descriptor: RecordingDescriptor = write_log(tmp_path, [Entry(b"x")])
    write_catalog(tmp_path, [])

    with pytest.raises(ConfigurationError, match=r"no log.*recordingId=all.*\[\]"):
        plan(tmp_path)
    assert descriptor.stream_id == 100
