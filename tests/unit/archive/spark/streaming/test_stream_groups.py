"""A stream over a directory with groups: an offset for each, bounds that are shared, and groups that are mixed up."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from tests.unit.archive.spark.member_logs import Log, MemberFiles
from tests.unit.archive.spark.status_server import StatusServer
from trimaran.archive.errors import ArchiveError
from trimaran.archive.log.commit_proof import CommitClaim
from trimaran.archive.log.group_directories import group_directory, settle_group_count
from trimaran.archive.spark.source.data_source import AeronArchiveDataSource
from trimaran.archive.spark.streaming.stream import LogStreamReader
from trimaran.archive.spark.streaming.stream_groups import GroupsPlanner, settings_of_group
from trimaran.archive.spark.streaming.stream_offset import GroupOffsets
from trimaran.archive.spark.streaming.stream_planner import LogPlanner, StreamSettings
from trimaran.archive.spark.streaming.stream_status import CommitAsker
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.groups import Group

LENGTHS = (20_000, 60_000, 120_000)
"""About how much each group's log has that is committed."""

Row = tuple[int, int]
"""A group and a position."""


def log_of(length: int, clock: int) -> Log:
    """A log with so much in a term that is over, so that all of it is known to be committed."""
    log = Log(clock=clock)
    log.begin_term(0)
    while log.position < length:
        log.message(f"at {log.position} " * 9)
    log.begin_term(1)
    return log


@pytest.fixture
def logs() -> list[Log]:
    return [log_of(length, clock=1_000_000 * (index + 1)) for index, length in enumerate(LENGTHS)]


@pytest.fixture
def member(tmp_path: Path, logs: list[Log]) -> Path:
    return write_member(tmp_path / "node-0", logs)


def write_member(directory: Path, logs: Sequence[Log]) -> Path:
    settle_group_count(directory, len(logs))
    for index, log in enumerate(logs):
        MemberFiles(directory=group_directory(directory, index), log=log).write()
    return directory


def committed(logs: Sequence[Log]) -> list[list[Row]]:
    """What the stream is to show of each group, in order."""
    stops = [log.terms[-1].base_position for log in logs]
    return [
        [(index, position) for position in [0, *log.frame_ends] if position < stop]
        for index, (log, stop) in enumerate(zip(logs, stops, strict=True))
    ]


def planner(directory: Path, group_count: int = 3, chosen: tuple[int, ...] | None = None) -> GroupsPlanner:
    return GroupsPlanner(
        StreamSettings(directories=(directory,)),
        tuple(range(group_count)) if chosen is None else chosen,
        group_count,
        partial(LogPlanner, clock=itertools.count(step=10).__next__, pause=lambda seconds: None),
    )


def taken_bytes(start: GroupOffsets, end: GroupOffsets) -> list[int]:
    return [end[index].position - start[index].position for index in end]


def make_reader(*directories: Path, **options: str) -> LogStreamReader:
    source = AeronArchiveDataSource({"path": ",".join(map(str, directories)), **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, LogStreamReader)
    return reader


def read_between(reader: LogStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows += [(row["group"], row["position"]) for row in batch.to_pylist()]
    return rows


def run_query(start: dict[str, Any] | None, *directories: Path, **options: str) -> tuple[dict[str, Any], list[Row]]:
    """Play Spark: batch after batch until there is nothing more, offsets as JSON, a new reader for each."""
    rows: list[Row] = []
    place = start or make_reader(*directories, **options).initialOffset()
    while True:
        reader = make_reader(*directories, **options)
        end = json.loads(json.dumps(reader.latestOffset(place, ReadMaxBytes(40_000))))
        if end == place:
            return end, rows
        rows += read_between(make_reader(*directories, **options), place, end)
        place = end


def test_each_entry_of_each_group_is_shown_once_with_its_group(member: Path, logs: list[Log]) -> None:
    end, rows = run_query(None, member)

    by_group = [[row for row in rows if row[0] == index] for index in range(3)]
    assert by_group == committed(logs)
    assert end["group_count"] == 3
    assert {name: each["position"] for name, each in end["groups"].items()} == {
        str(index): log.terms[-1].base_position for index, log in enumerate(logs)
    }


def test_query_that_is_restarted_goes_on_in_each_group_where_it_was(member: Path, logs: list[Log]) -> None:
    place, shown = run_query(None, member)
    for log in logs[1:]:
        for number in range(20):
            log.message(f"more {number}")
        log.begin_term(2)
    write_member(member, logs)

    _, more = run_query(place, member)

    assert sorted(shown + more) == sorted(row for rows in committed(logs) for row in rows)
    assert {group for group, _ in more} == {1, 2}


def test_latest_begins_behind_what_is_committed_in_each_group(member: Path, logs: list[Log]) -> None:
    place, rows = run_query(None, member, startingPosition="latest")

    assert rows == []
    assert [each["position"] for each in place["groups"].values()] == [log.terms[-1].base_position for log in logs]


def test_available_now_ends_in_each_group_at_what_was_committed_then(member: Path, logs: list[Log]) -> None:
    reader = make_reader(member)
    start = reader.initialOffset()
    stops = [log.terms[-1].base_position for log in logs]
    reader.prepareForTriggerAvailableNow()
    for log in logs:
        log.message("later")
        log.begin_term(2)
    write_member(member, logs)

    end = reader.latestOffset(start, ReadMaxBytes(1 << 30))

    assert [each["position"] for each in end["groups"].values()] == stops


def test_some_groups_are_followed_alone(member: Path, logs: list[Log]) -> None:
    (group_directory(member, 0) / "archive" / "archive.catalog").write_bytes(b"no catalog")

    _, rows = run_query(None, member, group="1,2")

    assert sorted(rows) == sorted(committed(logs)[1] + committed(logs)[2])


def test_another_member_has_what_one_has_lost_of_a_group(member: Path, logs: list[Log], tmp_path: Path) -> None:
    other = write_member(tmp_path / "node-1", logs)
    shutil.rmtree(group_directory(member, 1))
    shutil.rmtree(group_directory(other, 2))

    _, rows = run_query(None, member, other)
    _, of_one_member = run_query(None, tmp_path / "gone", write_member(tmp_path / "node-2", logs))

    assert sorted(rows) == sorted(of_one_member) == sorted(row for each in committed(logs) for row in each)


# --- bounds


def test_bound_is_shared_equally_by_groups_that_all_have_more(tmp_path: Path) -> None:
    logs = [log_of(100_000, clock=1_000_000 * (index + 1)) for index in range(3)]
    made = planner(write_member(tmp_path / "node-0", logs))
    start = made.initial_offsets()

    taken = taken_bytes(start, made.latest_offsets(start, 60_000))

    assert all(19_000 < each <= 20_000 for each in taken)


def test_what_a_group_does_not_need_is_shared_by_the_others(member: Path) -> None:
    made = planner(member)
    start = made.initial_offsets()

    taken = taken_bytes(start, made.latest_offsets(start, 100_000))

    assert taken[0] < 21_000
    assert all(39_000 < each < 41_000 for each in taken[1:])
    assert sum(taken) <= 100_000


def test_each_group_gives_a_frame_however_small_the_bound_is(member: Path) -> None:
    made = planner(member)
    start = made.initial_offsets()

    assert all(each > 0 for each in taken_bytes(start, made.latest_offsets(start, 32)))


# --- groups that are not what they were


def test_groups_that_are_renumbered_end_the_query(member: Path) -> None:
    """Planted: two directories have each other's name, and the positions of one are looked for in the other's log."""
    made = planner(member)
    place = made.latest_offsets(made.initial_offsets(), 30_000)
    directories = [group_directory(member, index) for index in (1, 2)]
    directories[0].rename(member / "aside")
    directories[1].rename(directories[0])
    (member / "aside").rename(directories[1])

    with pytest.raises(ArchiveError, match=r"group [12] of 3: .*renamed") as said:
        planner(member).latest_offsets(place)
    assert "different frame" in str(said.value) or "that ends" in str(said.value)


def test_positions_of_two_groups_that_are_mixed_up_are_refused(member: Path) -> None:
    """Planted: a checkpoint in which two groups have each other's offset."""
    made = planner(member)
    place = made.latest_offsets(made.initial_offsets(), 30_000)
    mixed = {**place, 1: place[2], 2: place[1]}

    with pytest.raises(ArchiveError, match=r"group [12] of 3: no member.*position="):
        planner(member).latest_offsets(mixed)


def test_group_that_is_gone_ends_the_query_and_is_named(member: Path) -> None:
    """Planted: a group is left out; the others' rows are there."""
    place, _ = run_query(None, member)
    shutil.rmtree(group_directory(member, 1))

    with pytest.raises(ArchiveError, match=rf"group 1 of 3: .*group-1 in {member}") as said:
        run_query(place, member)
    assert "option group=0,2 and another checkpointLocation" in str(said.value)
    with pytest.raises(ArchiveError, match=r"no group-1"):
        run_query(None, member)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group_count": 4}, "group_count=4 expected=3"),
        ({"groups": {"0": None}}, "another source"),
        ({"messages": True}, "messages=true expected=false"),
        ({"more": 1}, "another source"),
    ],
)
def test_checkpoint_of_something_else_is_refused(member: Path, change: dict[str, Any], said: str) -> None:
    place, _ = run_query(None, member)

    with pytest.raises(ConfigurationError, match=said):
        run_query(place | change, member)


def test_checkpoint_of_other_groups_says_how_to_start(member: Path) -> None:
    place, _ = run_query(None, member, group="0,2")

    with pytest.raises(ConfigurationError, match=r"groups=0,2 expected=0,1,2.*group=0,2"):
        run_query(place, member)


def test_checkpoint_of_one_log_and_of_groups_are_told_apart(member: Path) -> None:
    groups, _ = run_query(None, member)
    alone = make_reader(group_directory(member, 1)).initialOffset()

    with pytest.raises(ConfigurationError, match=r"one log.*groups 0, 1, 2"):
        run_query(alone, member)
    with pytest.raises(ConfigurationError, match=r"group_count=3"):
        make_reader(group_directory(member, 1)).latestOffset(groups, ReadMaxBytes(1 << 20))


# --- options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingPosition": "64"}, "one log: startingPosition=64 .*3 groups"),
        ({"committed": "64"}, "one log: committed=64 .*3 groups"),
        ({"recordingId": "0"}, "one log: recordingId=0 .*3 groups"),
        ({"group": "3"}, "group: 3 .*0 to 2"),
        ({"commitFrom": "h:65500"}, "group 1 .*port 65600"),
    ],
)
def test_what_is_about_one_log_needs_one_group(member: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_reader(member, **options).initialOffset()


def test_position_in_one_group_may_be_asked_for(member: Path, logs: list[Log]) -> None:
    wanted = logs[1].frame_ends[4]

    _, rows = run_query(None, member, group="1", startingPosition=str(wanted), recordingId="0")

    assert rows == [(1, position) for _, position in committed(logs)[1] if position >= wanted]


def test_one_log_has_no_group_to_choose(member: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"one log.*option group"):
        make_reader(group_directory(member, 0), group="0")


def test_each_group_asks_its_own_endpoints() -> None:
    whole = StreamSettings(directories=(Path("a"), Path("b")), commit_from=(Endpoint("h", 9001), Endpoint("i", 9001)))

    settings = settings_of_group(whole, Group(2, 3))

    assert settings.directories == (Path("a/group-2"), Path("b/group-2"))
    assert settings.commit_from == (Endpoint("h", 9201), Endpoint("i", 9201))


def test_answer_of_another_group_is_not_taken() -> None:
    """Planted: the commit position of group 0 would carry group 1 to a place that is not committed there."""
    with StatusServer(commit_position=4096) as member:
        for label, said in (("0/2", "group=0/2.*group=1/2"), ("", "without groups")):
            member.more = {"group": label}
            with pytest.raises(ConfigurationError, match=said):
                CommitAsker([member.endpoint], group=Group(1, 2)).ask()
        member.more = {"group": "1/2"}
        assert CommitAsker([member.endpoint], group=Group(1, 2)).ask() == [CommitClaim(0, 4096)]


def test_planner_of_a_group_hears_only_its_own_members(member: Path, logs: list[Log]) -> None:
    """Planted: where group 0 is asked another group answers, which has committed more."""
    with StatusServer(leadership_term_id=1, commit_position=1 << 20) as other:
        settings = StreamSettings(directories=(member,), commit_from=(other.endpoint,))
        other.more = {"group": "1/3"}
        with pytest.raises(ConfigurationError, match=r"group 0 of 3: .*group=1/3,.*group=0/3"):
            GroupsPlanner(settings, (0,), 3).initial_offsets()
        other.more, other.commit_position = {"group": "0/3"}, logs[0].position
        made = GroupsPlanner(settings, (0,), 3)
        assert made.latest_offsets(made.initial_offsets())[0].position == logs[0].position
