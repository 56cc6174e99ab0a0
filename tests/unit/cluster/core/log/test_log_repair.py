"""Whose bytes may stand in the place of damaged ones: committed ones of the same term, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # facts of several types

import pytest

from trimaran.cluster.core.log.log_repair import (
    OtherCopy,
    RepairRange,
    Term,
    find_term_fault,
    plan_repair,
    term_at,
)
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.log.messages import encode_session_message

TERMS = (Term(0, 0), Term(4096, 1), Term(8192, 3))


def copy(member_id: int = 1, *, commit: int = 16384, terms: Sequence[Term] = TERMS) -> OtherCopy:
    return OtherCopy(MemberId(member_id), 7, commit, tuple(terms))


def test_the_range_ends_at_the_lower_commit_position_and_who_reaches_farthest_is_asked_first() -> None:
    plan = plan_repair(640, commit_position=9000, terms=TERMS, copies=[copy(1, commit=8992), copy(2)])

    assert plan.ranges == [RepairRange(MemberId(2), 7, 640, 9000), RepairRange(MemberId(1), 7, 640, 8992)]
    assert not plan.may_wait


def test_a_member_that_starts_goes_by_what_others_have_committed() -> None:
    plan = plan_repair(640, commit_position=None, terms=TERMS, copies=[copy(1, commit=8992)])

    assert plan.ranges == [RepairRange(MemberId(1), 7, 640, 8992)]


@pytest.mark.parametrize(
    ("terms", "stop_position"),
    [
        ([Term(0, 0), Term(2048, 2)], 2048),
        ([Term(0, 0), Term(4096, 2)], 4096),
        ([Term(0, 0), Term(4096, 1)], 8192),
        ([*TERMS, Term(9000, 4)], 9000),
        ([Term(0, 0), Term(4096, 1), Term(8192, 2)], 8192),
    ],
)
def test_a_range_ends_where_the_terms_of_the_two_part(terms: Sequence[Term], stop_position: int) -> None:
    plan = plan_repair(640, commit_position=16384, terms=TERMS, copies=[copy(1, terms=terms)])

    assert [found.stop_position for found in plan.ranges] == [stop_position]


NOT_SAID = "recording log here does not say"


@pytest.mark.parametrize(
    ("position", "facts", "may_wait", "said"),
    [
        (640, {"commit_position": 640}, True, "position=640 is not committed, as far as is known: commit=640"),
        (640, {"copies": [copy(1, commit=640)]}, True, "member 1 has committed up to 640 only"),
        (
            4096,
            {"copies": [copy(1, terms=[Term(0, 0), Term(4096, 2)])]},
            False,
            "member 1 has leadership_term_id=2 at position=4096, expected=1",
        ),
        (4096, {"copies": [copy(1, terms=[Term(0, 0), Term(4064, 1)])]}, False, "member 1"),
        (640, {"terms": TERMS[1:], "copies": [copy(1, terms=TERMS[1:])]}, False, NOT_SAID),
        (640, {"copies": [], "silent": [MemberId(2)]}, True, "member 2 does not answer"),
    ],
    ids=["not committed here", "not committed there", "another term", "began elsewhere", "own term unknown", "silent"],
)
def test_nothing_is_taken_that_may_be_another_log(
    position: int, facts: dict[str, Any], may_wait: bool, said: str
) -> None:
    plan = plan_repair(position, **{"commit_position": 9000, "terms": TERMS, "copies": [copy()], **facts})

    assert (plan.ranges, plan.may_wait) == ([], may_wait)
    assert said in plan.refusals[0]


def test_of_terms_with_one_base_the_last_one_wrote_there() -> None:
    assert term_at([Term(0, 0), Term(64, 1), Term(64, 2)], 64) == Term(64, 2)
    assert term_at([Term(64, 1)], 32) is None


def test_a_message_says_in_which_term_it_was_appended() -> None:
    frames = b"".join(_message(term_id, position) for term_id, position in ((0, 4000), (1, 4096), (0, 4192)))

    assert find_term_fault(frames[:192], 4000, TERMS) is None
    fault = find_term_fault(frames, 4000, TERMS)
    assert fault == "the entry at position=4192 is of leadership_term_id=0, expected=1"


def _message(leadership_term_id: int, position: int) -> bytes:
    payload = encode_session_message(leadership_term_id, 1, 0, b"x" * 16)
    frame = encode_message(payload, stream_id=100, mtu_length=1408, term_id=0, term_offset=position)
    assert len(frame) == 96
    return frame
