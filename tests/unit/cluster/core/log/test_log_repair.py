"""Whose bytes may stand in the place of damaged ones: committed ones of the same term, and no others."""

from __future__ import annotations

from collections.abc import Sequence

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


def test_nothing_is_taken_of_what_is_not_committed_here() -> None:
    plan = plan_repair(640, commit_position=640, terms=TERMS, copies=[copy()])

    assert (plan.ranges, plan.may_wait) == ([], True)
    assert plan.refusals == ["position=640 is not committed, as far as is known: commit=640"]


def test_nothing_is_taken_from_a_member_that_has_not_committed_it() -> None:
    plan = plan_repair(640, commit_position=9000, terms=TERMS, copies=[copy(1, commit=640)])

    assert (plan.ranges, plan.may_wait) == ([], True)
    assert plan.refusals == ["member 1 has committed up to 640 only"]


def test_nothing_is_taken_from_a_member_that_has_another_term_there() -> None:
    other = [Term(0, 0), Term(4096, 2)]

    plan = plan_repair(4096, commit_position=9000, terms=TERMS, copies=[copy(1, terms=other)])

    assert (plan.ranges, plan.may_wait) == ([], False)
    assert plan.refusals == ["member 1 has leadership_term_id=2 at position=4096, expected=1"]


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


def test_a_term_that_began_elsewhere_is_another_one() -> None:
    plan = plan_repair(4096, commit_position=9000, terms=TERMS, copies=[copy(1, terms=[Term(0, 0), Term(4064, 1)])])

    assert plan.ranges == []


def test_who_does_not_know_the_own_term_takes_nothing() -> None:
    plan = plan_repair(640, commit_position=9000, terms=TERMS[1:], copies=[copy(1, terms=TERMS[1:])])

    assert (plan.ranges, plan.may_wait) == ([], False)
    assert "recording log here does not say" in plan.refusals[0]


def test_who_does_not_answer_may_have_it_later() -> None:
    plan = plan_repair(640, commit_position=9000, terms=TERMS, copies=[], silent=[MemberId(2)])

    assert (plan.refusals, plan.may_wait) == (["member 2 does not answer"], True)


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
