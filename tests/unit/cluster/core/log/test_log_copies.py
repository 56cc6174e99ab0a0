"""Ranges of a log that are copies, and how many independent sources members are together."""

from __future__ import annotations

import pytest

from trimaran.cluster.core.log.log_copies import OPEN_END, RANGE_LIMIT, LogCopies, count_independent
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.types import MemberId

A, B, C, D = map(MemberId, range(4))


def copies(text: str) -> LogCopies:
    return LogCopies.decode_text(text)


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([(0, 64, {A})], "0-64:0"),
        ([(0, 64, {A}), (64, 96, {A})], "0-96:0"),
        ([(0, 64, {A}), (64, 96, {B})], "0-64:0 64-96:1"),
        ([(0, 128, {A}), (32, 64, {B, C})], "0-32:0 32-64:1,2 64-128:0"),
        ([(64, 128, {A}), (0, 96, {B})], "0-96:1 96-128:0"),
        ([(32, 32, {A})], ""),
    ],
)
def test_what_is_copied_again_has_the_newer_source(noted: list[tuple[int, int, set[MemberId]]], expected: str) -> None:
    found = LogCopies()

    for position, stop_position, source_ids in noted:
        found.note(position, stop_position, source_ids)

    assert found.encode_text() == expected
    assert copies(expected) == found


def test_what_is_dropped_is_no_copy_any_more() -> None:
    found = copies("0-128:0 256-512:1")

    found.drop(64, 320)

    assert found.encode_text() == "0-64:0 320-512:1"
    assert [found.find_sources(64, 320), found.find_sources(63, 64), found.find_sources(0, 512)] == [set(), {A}, {A, B}]


def test_a_copy_that_runs_ends_where_it_is_ended() -> None:
    found = LogCopies()
    found.note(32, OPEN_END, {A})

    found.drop(96, OPEN_END)

    assert found.encode_text() == "32-96:0"


def test_ranges_are_bounded_and_the_nearest_become_one_with_the_sources_of_both() -> None:
    found = LogCopies()

    for number in range(RANGE_LIMIT + 1):
        found.note(1_000 * number, 1_000 * number + (990 if number == 3 else 32), {MemberId(number)})

    assert len(found.ranges) == RANGE_LIMIT
    assert found.find_sources(3_000, 3_001) == found.find_sources(4_000, 4_001) == {MemberId(3), MemberId(4)}
    assert copies(found.encode_text()) == found


@pytest.mark.parametrize(
    "text", ["0-64", "0-64:", "64:0", "0-64:x", "0-64:0  64-96:1", "-1-64:0", " ".join(["0-1:0"] * 17)]
)
def test_what_is_no_such_text_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        copies(text)


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({}, 3),
        ({B: "0-64:0"}, 2),
        ({B: "64-128:0"}, 3),
        ({B: "0-64:0", C: "0-64:0"}, 1),
        ({B: "0-64:0", C: "0-64:1"}, 1),
        ({B: "0-64:3", C: "0-64:3"}, 2),
        ({B: "0-64:3", D: "0-64:0"}, 2),
    ],
    ids=["no copies", "one", "another range", "two of one", "a chain", "of a fourth", "through a fourth"],
)
def test_members_that_share_a_source_count_once(told: dict[MemberId, str], count: int) -> None:
    known = {member_id: copies(text) for member_id, text in told.items()}

    assert count_independent((A, B, C), known, 0, 64) == count
