"""Where batches end: at frames or messages, within the limit, with the bytes checked on the way."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.archive.spark.member_logs import MemberFiles, make_log
from trimaran.archive.spark.streaming.stream_cut import BatchCutRules, Cut, DivergenceError, LogWalk
from trimaran.archive.spark.streaming.stream_offset import LogOffset, RowOptions
from trimaran.service_api.errors import ConfigurationError


def walk(member: MemberFiles, start: LogOffset, bound_position: int | None = None, **rules: object) -> LogWalk:
    bound = member.log.position if bound_position is None else bound_position
    made = LogWalk(
        member.archive,
        member.descriptor(),
        start,
        bound_position=bound,
        rules=BatchCutRules(**rules),  # type: ignore[arg-type]
    )
    made.run()
    return made


def written(tmp_path: Path, **fields: object) -> MemberFiles:
    member = MemberFiles(directory=tmp_path / "member", log=make_log(), **fields)  # type: ignore[arg-type]
    member.write()
    return member


def found(made: LogWalk) -> Cut:
    assert made.cut is not None
    return made.cut


def test_cut_without_a_limit_is_at_the_bound(tmp_path: Path) -> None:
    member = written(tmp_path)

    made = walk(member, LogOffset(position=0))

    assert found(made).position == member.log.position
    assert made.ending == ""


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_by_message", [False, True])
def test_cuts_within_random_limits_follow_each_other_and_lie_at_boundaries(
    tmp_path: Path, seed: int, is_by_message: bool
) -> None:
    member, limits = written(tmp_path), random.Random(seed)
    log = member.log
    ends = log.message_ends if is_by_message else log.frame_ends
    place, cuts = LogOffset(position=0), []

    while place.position < log.position:
        limit = limits.choice([32, 1000, 20_000, 70_000])
        cut = found(walk(member, place, limit_bytes=limit, is_by_message=is_by_message))
        first_end = next(end for end in ends if end > place.position)
        assert cut.position <= max(place.position + limit, first_end + 65536 * is_by_message)
        cuts.append(cut.position)
        place = cut.offset(0)

    assert cuts[-1] == log.position
    assert cuts == sorted(set(cuts))
    boundaries = set(log.frame_ends if not is_by_message else log.message_ends + log.padding_ends)
    assert set(cuts) <= boundaries


def test_a_message_longer_than_the_limit_is_a_batch_of_its_own(tmp_path: Path) -> None:
    member = written(tmp_path)
    log = member.log
    longest = max(range(1, len(log.message_ends)), key=lambda i: log.message_ends[i] - log.message_ends[i - 1])
    start = log.message_ends[longest - 1]

    cut = found(walk(member, LogOffset(position=start), limit_bytes=32, is_by_message=True))

    assert cut.position == log.message_ends[longest]
    assert cut.position - start > 4096


def test_cut_by_messages_leaves_out_a_message_that_is_not_complete_within_the_bound(tmp_path: Path) -> None:
    member = written(tmp_path)
    log = member.log
    longest = max(range(1, len(log.message_ends)), key=lambda i: log.message_ends[i] - log.message_ends[i - 1])
    inside = next(end for end in log.frame_ends if end > log.message_ends[longest - 1])
    assert inside < log.message_ends[longest]

    whole = found(walk(member, LogOffset(position=0), inside, is_by_message=True))
    nothing = walk(member, LogOffset(position=log.message_ends[longest - 1]), inside, is_by_message=True)

    assert whole.position == log.message_ends[longest - 1]
    assert (nothing.cut, nothing.ending) == (None, "")


def test_cut_names_the_last_frame_that_begins_a_message_and_its_checksum(tmp_path: Path) -> None:
    member = written(tmp_path)
    data, padding_end = member.log.data, member.log.padding_ends[0]

    cut = found(walk(member, LogOffset(position=0), padding_end))

    begins = [
        0,
        *(end for end in member.log.frame_ends if end < padding_end and data[end + 5] & 0x80 and data[end + 6]),
    ]
    length = int.from_bytes(data[begins[-1] : begins[-1] + 4], "little")
    assert cut.position == padding_end
    assert cut.frame_position == begins[-1]
    assert cut.frame_checksum == zlib.crc32(data[begins[-1] + 32 : begins[-1] + length])


def test_walk_from_inside_a_message_begins_with_its_first_frame(tmp_path: Path) -> None:
    member = written(tmp_path)
    log = member.log
    longest = max(range(1, len(log.message_ends)), key=lambda i: log.message_ends[i] - log.message_ends[i - 1])
    begin, end = log.message_ends[longest - 1], log.message_ends[longest]
    inside = max(position for position in log.frame_ends if position < end)

    place = found(walk(member, LogOffset(position=0), inside)).offset(0)
    cut = found(walk(member, place, end))

    assert (place.position, place.frame_position) == (inside, begin)
    assert (cut.position, cut.frame_position, cut.frame_checksum) == (end, begin, place.frame_checksum)


def test_splits_lie_at_boundaries_about_as_far_apart_as_asked(tmp_path: Path) -> None:
    member = written(tmp_path)

    cut = found(walk(member, LogOffset(position=0), split_bytes=30_000, is_by_message=True))

    edges = [0, *cut.split_positions, cut.position]
    gaps = [b - a for a, b in pairwise(edges)]
    assert set(cut.split_positions) <= set(member.log.message_ends + member.log.padding_ends)
    assert len(gaps) > 4
    assert all(30_000 <= gap < 40_000 for gap in gaps[:-1])


def test_walk_refuses_a_log_that_holds_another_frame_before_the_start(tmp_path: Path) -> None:
    member = written(tmp_path)
    place = found(walk(member, LogOffset(position=0), limit_bytes=5000)).offset(0)
    other = MemberFiles(directory=tmp_path / "other", log=make_log(clock=9_000_000))
    other.write()

    with pytest.raises(DivergenceError, match=rf"different.*position={place.frame_position}"):
        walk(other, place)


def test_walk_refuses_a_log_whose_frames_end_elsewhere(tmp_path: Path) -> None:
    member = written(tmp_path)
    place = found(walk(member, LogOffset(position=0), limit_bytes=5000)).offset(0)
    between = LogOffset(
        position=place.position - 32, frame_position=place.frame_position, frame_checksum=place.frame_checksum
    )

    with pytest.raises(DivergenceError, match=rf"ends.*position={between.position}"):
        walk(member, between)


def test_walk_ends_before_damage_and_says_what_it_is(tmp_path: Path) -> None:
    member = written(tmp_path)
    begin, end = next((a, b) for a, b in pairwise(member.log.frame_ends) if a > 9000)
    with (member.archive / "0-0.rec").open("r+b") as file:
        file.seek(begin + 40)
        file.write(b"\xff\xff\xff")

    made = walk(member, LogOffset(position=0))
    behind = walk(member, LogOffset(position=end))

    assert found(made).position == begin
    assert "wrong checksum" in made.ending
    assert found(behind).position == member.log.position


def test_walk_over_a_log_that_is_behind_says_nothing_of_damage(tmp_path: Path) -> None:
    member = written(tmp_path, stop_position=5024)
    stop = max(end for end in member.log.frame_ends if end <= 5024)
    member.stop_position = stop
    member.write()

    made = walk(member, LogOffset(position=0), member.log.position)
    nothing = walk(member, LogOffset(position=stop), member.log.position)

    assert (found(made).position, made.ending) == (stop, "")
    assert (nothing.cut, nothing.ending) == (None, "")


def test_bound_inside_a_frame_is_noticed(tmp_path: Path) -> None:
    member = written(tmp_path)
    end = next(end for a, end in pairwise(member.log.frame_ends) if end - a > 64)

    assert walk(member, LogOffset(position=0), end - 32).is_bound_inside_frame
    assert not walk(member, LogOffset(position=0), end).is_bound_inside_frame


def test_offset_of_another_source_is_refused() -> None:
    rows = RowOptions()
    with pytest.raises(ConfigurationError, match=r"another source.*offset=\{'partition': 3\}"):
        rows.from_json({"partition": 3})
    with pytest.raises(ConfigurationError, match="another source"):
        rows.from_json(rows.to_json(LogOffset(position=0)) | {"position": "0"})


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (RowOptions(), RowOptions(messages=True), "messages=false expected=true"),
        (RowOptions(padding=False), RowOptions(), "padding=false expected=true"),
        (RowOptions(where="(type = 1)"), RowOptions(), r"where=\(type = 1\) expected=true"),
    ],
)
def test_offset_of_a_query_with_another_option_is_refused(before: RowOptions, now: RowOptions, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        now.from_json(before.to_json(LogOffset(position=0)))


def test_offset_comes_back_from_json_as_it_was() -> None:
    offset, rows = LogOffset(position=64, leadership_term_id=3, frame_position=32, frame_checksum=77), RowOptions()

    assert rows.from_json(rows.to_json(offset)) == offset
