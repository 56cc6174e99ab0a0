"""What a stream may show and who is to read it: members that lag, diverge, purge, lose or damage their logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.unit.archive.spark.member_logs import Log, MemberFiles, Term, make_log, positions_of
from tests.unit.archive.spark.status_server import StatusServer
from trimaran.archive.errors import ArchiveError
from trimaran.archive.log.commit_proof import CommitClaim
from trimaran.archive.log.member_directory import locate_archive
from trimaran.archive.reading.following import PATIENCE_LOOKS
from trimaran.archive.reading.frame_batches import FrameSelection, make_schema, read_batches
from trimaran.archive.spark.streaming.stream import read_from_any
from trimaran.archive.spark.streaming.stream_offset import LogOffset
from trimaran.archive.spark.streaming.stream_planner import (
    LATEST,
    UNBOUNDED,
    LogPlanner,
    StreamLogSource,
    StreamSettings,
)
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit

SCHEMA = make_schema(["position", "frame_length", "payload"], TimeUnit.MILLIS)


def planner(*members: MemberFiles | Path, **settings: object) -> LogPlanner:
    directories = tuple(each.directory if isinstance(each, MemberFiles) else each for each in members)
    return LogPlanner(
        StreamSettings(directories=directories, **settings),  # type: ignore[arg-type]
        clock=itertools.count(step=10).__next__,
        pause=lambda seconds: None,
    )


def read_range(source: StreamLogSource, start_position: int, stop_position: int) -> Iterator[object]:
    def fail(problem: object) -> None:
        raise ArchiveError(str(problem))

    selection = FrameSelection(start_position=start_position, stop_position=stop_position)
    return read_batches(locate_archive(source.archive), source.descriptor, selection, SCHEMA, fail)


def rows_between(made: LogPlanner, start: LogOffset, end: LogOffset) -> list[tuple[int, int, bytes]]:
    rows: list[tuple[int, int, bytes]] = []
    for each in made.plan_ranges(start, end):
        for batch in read_from_any(each, read_range):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


def drain(made: LogPlanner, start: LogOffset, limit_bytes: int = 20_000) -> tuple[LogOffset, list[int]]:
    """Read batch after batch until there is nothing more; gives the last offset and all positions."""
    positions: list[int] = []
    while True:
        end = made.latest_offset(start, limit_bytes)
        if end == start:
            return end, positions
        positions += [row[0] for row in rows_between(made, start, end)]
        start = end


def truth(log: Log, start: int = 0, stop: int | None = None) -> list[int]:
    stop = log.position if stop is None else stop
    return [p for p in [0, *log.frame_ends] if start <= p < stop]


def log_of_terms(*lengths: int) -> Log:
    """A log with a term for each length, so long about, and the beginning of another one."""
    log = Log()
    for term_id, length in enumerate(lengths):
        base = log.begin_term(term_id)
        while log.position - base < length:
            log.message(f"term {term_id} at {log.position} " * 9)
    log.begin_term(len(lengths))
    return log


# --- only what is committed


def test_only_what_the_directory_proves_is_shown(tmp_path: Path) -> None:
    log = log_of_terms(50_000)
    log.message("recorded, and perhaps never committed")
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    made = planner(member)

    end, positions = drain(made, made.initial_offset())

    assert end.position == log.terms[1].base_position
    assert positions == truth(log, stop=end.position)


def test_suffix_that_an_election_replaces_is_never_shown(tmp_path: Path) -> None:
    """Planted: with `committed=false` the same steps show entries that are gone afterwards."""
    log = log_of_terms(30_000)
    before = log.fork()
    for i in range(5):
        before.message(f"never committed {i}")
    log.message("x")
    log.begin_term(2)
    log.message("instead")

    shown = {}
    for name, committed in (("committed", None), ("recorded", UNBOUNDED)):
        member = MemberFiles(directory=tmp_path / name, log=before)
        member.write()
        made = planner(member, committed_position=committed)
        end = made.latest_offset(made.initial_offset())
        rows = rows_between(made, made.initial_offset(), end)
        member.log = log
        member.write()
        made = planner(member, committed_position=committed)
        start = made.initial_offset()
        shown[name] = set(rows) - set(rows_between(made, start, made.latest_offset(start, 1 << 40)))

    assert shown["committed"] == set()
    assert len(shown["recorded"]) >= 5


def test_member_left_behind_is_not_trusted_below_a_commit_position_that_is_true_elsewhere(tmp_path: Path) -> None:
    """Recordings are alike up to what their members knew to be committed: the dead one's suffix is another one."""
    log = log_of_terms(30_000)
    stale = log.fork()
    for i in range(100):
        stale.message(f"never committed {i}" * 5)
    for i in range(100):
        log.message(f"committed {i}" * 9)
    log.begin_term(2)
    dead = MemberFiles(directory=tmp_path / "dead", log=stale)
    alive = MemberFiles(directory=tmp_path / "alive", log=log)
    for member in (dead, alive):
        member.write()
    assert stale.data[: log.position] != log.data[: stale.position]

    for order in ((dead, alive), (alive, dead)):
        made = planner(*order)
        end, positions = drain(made, made.initial_offset())
        assert end.position == log.terms[2].base_position
        assert positions == truth(log, stop=end.position)
        [batch] = made.plan_ranges(LogOffset(position=log.terms[1].base_position), end)
        assert [source.archive for source in batch.sources] == [alive.archive]


def test_dead_member_alone_is_waited_for_beyond_what_it_can_be_trusted_with(tmp_path: Path) -> None:
    log = log_of_terms(30_000)
    base_position = log.terms[1].base_position
    log.message("never committed " * 100)
    dead = MemberFiles(directory=tmp_path / "dead", log=log)
    dead.write()

    with StatusServer(leadership_term_id=2, commit_position=log.position) as status:
        made = planner(dead, commit_from=(status.endpoint,))
        end, positions = drain(made, made.initial_offset())

    assert end.position == base_position
    assert positions == truth(log, stop=base_position)


def test_answer_of_a_member_carries_the_stream_to_the_commit_position(tmp_path: Path) -> None:
    log = log_of_terms(30_000)
    for i in range(50):
        log.message(f"message {i}")
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    commit_position = log.message_ends[-10]

    with StatusServer(leadership_term_id=1, commit_position=commit_position) as status:
        made = planner(member, commit_from=(status.endpoint,))
        end, positions = drain(made, made.initial_offset())
        assert end.position == commit_position
        assert positions == truth(log, stop=commit_position)
        status.commit_position = log.position
        assert made.latest_offset(end).position == log.position


def test_older_answers_still_count_for_a_log_of_an_older_term(tmp_path: Path) -> None:
    log = log_of_terms(30_000)
    known_position = log.message("committed in term 1")
    log.message("not known to be")
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()

    with StatusServer(leadership_term_id=1, commit_position=known_position) as status:
        made = planner(member, commit_from=(status.endpoint,))
        made.initial_offset()
        status.leadership_term_id, status.commit_position = 2, log.position + 4096
        end = made.latest_offset(made.initial_offset())

    assert end.position == known_position


def test_commit_position_inside_a_frame_is_of_another_cluster(tmp_path: Path) -> None:
    log = log_of_terms(30_000)
    log.message("long " * 200)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()

    with StatusServer(leadership_term_id=1, commit_position=log.position - 64) as status:
        made = planner(member, commit_from=(status.endpoint,))
        with pytest.raises(ArchiveError, match=rf"no frame.*commit_position={log.position - 64}"):
            drain(made, made.initial_offset())


def test_position_that_the_user_says_is_the_bound(tmp_path: Path) -> None:
    log = make_log()
    member = MemberFiles(directory=tmp_path / "0", log=log, marked_terms=0)
    member.write()
    position = log.frame_ends[100]
    made = planner(member, committed_position=position, recording_id=0)

    end, positions = drain(made, made.initial_offset())

    assert (end.position, positions) == (position, truth(log, stop=position))


def test_everything_recorded_is_shown_where_the_user_says_so(tmp_path: Path) -> None:
    log = make_log()
    member = MemberFiles(directory=tmp_path / "0", log=log, stop_position=log.frame_ends[-5], marked_terms=0)
    member.write()
    made = planner(member, committed_position=UNBOUNDED, recording_id=0)
    end, _ = drain(made, made.initial_offset())
    assert end.position == log.frame_ends[-5]

    member.stop_position = None
    member.write()

    assert made.latest_offset(end).position == log.position


# --- members come and go


def test_lagging_member_is_helped_out_and_waited_for(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    lagging = MemberFiles(directory=tmp_path / "a", log=log, stop_position=log.frame_ends[50])
    whole = MemberFiles(directory=tmp_path / "b", log=log)
    for member in (lagging, whole):
        member.write()
    with StatusServer(leadership_term_id=1, commit_position=log.position) as status:
        alone = planner(lagging, commit_from=(status.endpoint,))
        reached, _ = drain(alone, alone.initial_offset())
        both = planner(lagging, whole, commit_from=(status.endpoint,))
        end, positions = drain(both, both.initial_offset())

        assert reached.position == log.frame_ends[50]
        assert (end.position, positions) == (log.position, truth(log))

        lagging.stop_position = None
        lagging.write()
        assert drain(alone, reached)[1] == truth(log, start=reached.position)


@pytest.mark.parametrize("harm", ["wiped", "purged", "damaged", "no marks", "no segment", "never in a term"])
def test_stream_goes_on_with_another_member(tmp_path: Path, harm: str) -> None:
    log = log_of_terms(150_000)
    first = MemberFiles(directory=tmp_path / "first", log=log)
    second = MemberFiles(directory=tmp_path / "second", log=log, recording_id=5, start_timestamp_ms=99)
    for member in (first, second):
        member.write()
    made = planner(first, second)
    start = made.latest_offset(made.initial_offset(), 30_000)
    match harm:
        case "wiped":
            first.wipe()
        case "purged":
            first.start_position = 65536
            first.write()
        case "damaged":
            (first.archive / "0-0.rec").write_bytes(b"\xff" * 65536)
        case "no marks":
            (first.directory / "cluster" / "recording.log").unlink()
        case "no segment":
            (first.archive / "0-0.rec").unlink()
        case "never in a term":
            first.marked_terms = 0
            first.write()

    end, positions = drain(made, start)

    assert end.position == log.terms[1].base_position
    assert positions == truth(log, start=start.position, stop=end.position)


def test_recreated_recording_has_another_id_and_the_same_positions(tmp_path: Path) -> None:
    log = log_of_terms(100_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    made = planner(member)
    start = made.latest_offset(made.initial_offset(), 30_000)
    member.recording_id, member.start_timestamp_ms = 4, 77
    member.write()

    _, positions = drain(made, start)

    assert positions == truth(log, start=start.position, stop=log.terms[1].base_position)


def test_order_of_the_directories_plays_no_part(tmp_path: Path) -> None:
    log = log_of_terms(60_000, 60_000)
    members = [
        MemberFiles(directory=tmp_path / "0", log=log),
        MemberFiles(directory=tmp_path / "1", log=log, stop_position=log.frame_ends[40]),
        MemberFiles(directory=tmp_path / "2", log=log, start_position=65536, recording_id=3),
    ]
    for member in members:
        member.write()

    seen = set()
    for order in itertools.permutations(members):
        place, offsets = planner(*order).initial_offset(), []
        while True:
            made = planner(*order)  # the query is restarted with every batch
            end = made.latest_offset(place, 25_000)
            if end == place:
                break
            rows = rows_between(planner(*order), place, end)
            offsets.append((end, [row[0] for row in rows]))
            place = end
        assert [position for _, positions in offsets for position in positions] == truth(
            log, stop=log.terms[2].base_position
        )
        seen.add(tuple((end, tuple(positions)) for end, positions in offsets))
    assert len(seen) == 1


def test_batch_that_an_earlier_run_began_is_read_again_without_any_member_to_ask(tmp_path: Path) -> None:
    """The directories prove less than was known then; the offset says as of which term it is committed."""
    log = log_of_terms(30_000)
    for i in range(50):
        log.message(f"message {i}")
    old = log.fork()
    old.data, old.terms = log.data[: log.terms[1].base_position], log.terms[:1]
    first, second = MemberFiles(directory=tmp_path / "0", log=log), MemberFiles(directory=tmp_path / "1", log=log)
    stale = MemberFiles(directory=tmp_path / "2", log=log, marked_terms=1)
    for member in (first, second, stale):
        member.write()
    with StatusServer(leadership_term_id=1, commit_position=log.position) as status:
        made = planner(first, second, commit_from=(status.endpoint,))
        start = made.initial_offset()
        end = made.latest_offset(start)
        rows = rows_between(made, start, end)
    assert end.position == log.position
    first.wipe()

    again = planner(stale, first, second, commit_from=(status.endpoint,))

    assert rows_between(again, start, end) == rows
    assert [source.archive for each in again.plan_ranges(start, end) for source in each.sources] == [second.archive]


def test_idle_stream_asks_and_looks_no_more_often_than_it_must(tmp_path: Path) -> None:
    log = log_of_terms(30_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    now_s = 100.0

    with StatusServer(leadership_term_id=1, commit_position=log.position) as status:
        settings = StreamSettings(directories=(member.directory,), commit_from=(status.endpoint,))
        made = LogPlanner(settings, clock=lambda: now_s)
        end = made.latest_offset(made.initial_offset())
        assert end.position == log.position
        status.asked_count = 0
        for _ in range(200):
            assert made.latest_offset(end) is end
            now_s += 0.001
        assert status.asked_count == 10
        member.wipe()  # nobody has looked there: there was nothing to look for
        log.message("more")
        member.write()
        status.commit_position = log.position
        now_s += 0.02
        assert made.latest_offset(end).position == log.position


# --- refusals


def test_stream_that_fell_behind_every_log_ends_with_an_error(tmp_path: Path) -> None:
    log = log_of_terms(200_000)
    members = [MemberFiles(directory=tmp_path / str(i), log=log, start_position=131072) for i in range(2)]
    for member in members:
        member.write()
    behind = LogOffset(position=log.frame_ends[10])

    with pytest.raises(ArchiveError) as raised:
        planner(*members).latest_offset(behind)
    assert has_facts(str(raised.value), "no member", f"position={behind.position}")
    assert str(raised.value).count("start_position=131072") == 2


def test_damage_everywhere_is_an_error_that_names_place_and_reason(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    made = planner(member)
    start = made.latest_offset(made.initial_offset(), 10_000)
    with (member.archive / "0-0.rec").open("r+b") as file:
        file.seek(start.position + 40)
        file.write(b"\xee\xee")

    with pytest.raises(ArchiveError, match=rf"position={start.position}.*wrong checksum"):
        made.latest_offset(start)
    assert planner(member).latest_offset(made.initial_offset()).position == start.position


@pytest.mark.parametrize("committed_position", [None, UNBOUNDED])
def test_blank_before_valid_frames_is_damage_once_patience_is_over(
    tmp_path: Path, committed_position: int | None
) -> None:
    log = log_of_terms(60_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    made = planner(member, committed_position=committed_position)
    start = made.latest_offset(made.initial_offset(), 10_000)
    with (member.archive / "0-0.rec").open("r+b") as file:
        file.seek(start.position)
        file.write(bytes(32))

    for _ in range(PATIENCE_LOOKS - 1):
        assert made.latest_offset(start) is start
    with pytest.raises(ArchiveError, match=rf"position={start.position}.*length 0.*go on"):
        made.latest_offset(start)


def test_torn_write_is_waited_for(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    end = log.frame_ends[-2]
    with (member.archive / "0-0.rec").open("r+b") as file:
        file.seek(end + 9)
        file.write(b"\xee")
    made = planner(member, committed_position=UNBOUNDED)
    start = made.latest_offset(made.initial_offset())

    assert start.position == end
    assert [made.latest_offset(start) for _ in range(2 * PATIENCE_LOOKS)] == [start] * 2 * PATIENCE_LOOKS


def test_directories_that_are_gone_are_an_error_even_while_nothing_new_is_committed(tmp_path: Path) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=log_of_terms(30_000))
    member.write()
    made = planner(member)
    end, _ = drain(made, made.initial_offset())
    assert made.latest_offset(end) == end
    member.wipe()

    with pytest.raises(ArchiveError, match=rf"position={end.position}: .*/0: no archive"):
        made.latest_offset(end)


def test_batch_that_ends_inside_a_message_is_read_again_though_messages_are_asked_for_now(tmp_path: Path) -> None:
    log = make_log().fork()
    log.begin_term(1)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    longest = max(range(1, len(log.message_ends)), key=lambda i: log.message_ends[i] - log.message_ends[i - 1])
    made = planner(member)
    start = made.initial_offset()
    end = made.latest_offset(start, log.message_ends[longest] - 32)
    assert log.message_ends[longest - 1] < end.position < log.message_ends[longest]

    again = planner(member, is_by_message=True, split_bytes=65536)

    ranges = again.plan_ranges(start, end)
    assert [ranges[0].start_position, ranges[-1].stop_position] == [start.position, end.position]


def test_checkpoint_of_another_cluster_is_refused(tmp_path: Path) -> None:
    ours, theirs = log_of_terms(60_000), Log(clock=5_000_000)
    theirs.begin_term(0)
    while theirs.position < 70_000:
        theirs.message(f"term 0 at {theirs.position} " * 9)
    theirs.begin_term(1)
    member = MemberFiles(directory=tmp_path / "0", log=ours)
    member.write()
    made = planner(member)
    start = made.latest_offset(made.initial_offset(), 10_000)
    end = made.latest_offset(start, 10_000)
    member.log = theirs
    member.write()

    with pytest.raises(ArchiveError, match=rf"different.*position={start.frame_position}"):
        planner(member).latest_offset(start)
    with pytest.raises(ArchiveError, match=rf"different.*position={end.frame_position}"):
        planner(member).plan_ranges(start, end)


def test_starting_position_before_the_log_is_refused(tmp_path: Path) -> None:
    log = log_of_terms(200_000)
    member = MemberFiles(directory=tmp_path / "0", log=log, start_position=65536)
    member.write()

    with pytest.raises(ArchiveError, match="startingPosition=32 oldest_position=65536"):
        planner(member, starting_position=32).initial_offset()
    assert planner(member).initial_offset() == LogOffset(position=65536)


def test_starting_position_between_frames_is_needed(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    made = planner(member, starting_position=log.frame_ends[20] + 32)

    with pytest.raises(ArchiveError, match=rf"position={log.frame_ends[20] + 32}.*bad frame"):
        made.latest_offset(made.initial_offset())


def test_latest_begins_at_what_is_committed(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    log.message("not known to be committed")
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()

    made = planner(member, starting_position=LATEST)
    assert made.initial_offset().position == log.terms[1].base_position
    made = planner(member, starting_position=LATEST, committed_position=UNBOUNDED)
    assert made.initial_offset().position == log.position


@pytest.mark.parametrize("frame", [10, -20])
def test_latest_is_not_beyond_the_position_that_the_user_says_is_committed(tmp_path: Path, frame: int) -> None:
    log = log_of_terms(200_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    position = log.frame_ends[frame]

    made = planner(member, starting_position=LATEST, committed_position=position + 32)

    assert made.initial_offset().position == position


def test_latest_of_all_that_is_recorded_is_after_damage_that_lies_before_it(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()
    with (member.archive / "0-0.rec").open("r+b") as file:
        file.seek(log.frame_ends[10] + 40)
        file.write(b"\xee\xee")

    made = planner(member, starting_position=LATEST, committed_position=UNBOUNDED)

    assert made.initial_offset().position == log.position


def test_latest_needs_to_know_what_is_committed(tmp_path: Path) -> None:
    log = Log()
    log.terms.append(Term(0, 0))
    member = MemberFiles(directory=tmp_path / "0", log=log)
    member.write()

    with pytest.raises(ConfigurationError, match=r"committed.*`commitFrom`"):
        planner(member, starting_position=LATEST).initial_offset()


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda member: member.wipe(), r"no archive\.catalog"),
        (lambda member: (member.directory / "cluster" / "recording.log").unlink(), "no cluster/recording.log"),
        (lambda member: (member.archive / "archive.catalog").write_bytes(b"junk"), "catalog"),
    ],
)
def test_directory_that_is_none_is_refused_with_its_reason(tmp_path: Path, prepare: object, said: str) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=log_of_terms(1000))
    member.write()
    prepare(member)  # type: ignore[operator]

    with pytest.raises(ArchiveError, match=said):
        planner(member).initial_offset()


def test_recording_that_is_no_log_is_followed_only_as_recorded(tmp_path: Path) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=make_log(), recording_id=2)
    member.write()

    with pytest.raises(ArchiveError, match=r"recording_id=7 known=\[2\]"):
        planner(member, recording_id=7).initial_offset()
    made = planner(member, recording_id=2, committed_position=UNBOUNDED)
    assert drain(made, made.initial_offset())[0].position == member.log.position


# --- available now


def test_available_now_ends_at_what_was_committed_when_it_began(tmp_path: Path) -> None:
    log = log_of_terms(60_000, 30_000)
    before = log.fork()
    before.data, before.terms = log.data[: log.message_ends[-4]], log.terms[:2]
    member = MemberFiles(directory=tmp_path / "0", log=before)
    member.write()
    made = planner(member)
    start = made.initial_offset()
    made.freeze()
    member.log = log
    member.write()

    end, positions = drain(made, start)

    assert end.position == log.terms[1].base_position
    assert positions == truth(log, stop=end.position)
    assert drain(planner(member), end)[0].position == log.terms[2].base_position


# --- reading


def test_source_that_fails_in_the_middle_is_replaced_without_a_row_lost_or_doubled(tmp_path: Path) -> None:
    log = log_of_terms(200_000)
    members = [MemberFiles(directory=tmp_path / str(i), log=log) for i in range(3)]
    for member in members:
        member.write()
    made = planner(*members, split_bytes=1 << 30)
    start = made.initial_offset()
    end = made.latest_offset(start)
    [whole] = made.plan_ranges(start, end)
    failing = iter([70_000, 140_000])

    def read_and_fail(source: StreamLogSource, start_position: int, stop_position: int) -> Iterator[object]:
        fails_at = next(failing, 1 << 40)
        for batch in read_range(source, start_position, stop_position):
            yield batch
            if batch.column(0)[-1].as_py() >= fails_at:  # type: ignore[attr-defined]
                raise OSError("the disk is gone")

    assert len(whole.sources) == 3
    assert positions_of(list(read_from_any(whole, read_and_fail))) == truth(log, stop=end.position)


def test_range_that_nobody_can_read_any_more_is_an_error_with_every_reason(tmp_path: Path) -> None:
    log = log_of_terms(60_000)
    members: Sequence[MemberFiles] = [MemberFiles(directory=tmp_path / str(i), log=log) for i in range(2)]
    for member in members:
        member.write()
    made = planner(*members)
    start = made.initial_offset()
    [batch] = made.plan_ranges(start, made.latest_offset(start))
    for member in members:
        member.wipe()

    with pytest.raises(ArchiveError, match=r"no member.*position=0 up to \d+: .*/0/.*; .*/1/"):
        list(read_from_any(batch, read_range))


def test_claims_of_newer_terms_are_not_believed_of_an_older_log(tmp_path: Path) -> None:
    log = log_of_terms(1000, 1000)
    member = MemberFiles(directory=tmp_path / "0", log=log, marked_terms=2)
    member.write()
    look = planner(member)._look([CommitClaim(2, 9999), CommitClaim(1, 4096)])

    [found] = look.logs

    assert found.trusted_position(look.claims) == 4096
    assert found.trusted_position([CommitClaim(2, 9999)]) == log.terms[1].base_position
