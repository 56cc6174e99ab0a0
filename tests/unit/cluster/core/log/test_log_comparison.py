"""Whose bytes are valid where members' logs differ in a range."""

from __future__ import annotations

import pytest

from trimaran.cluster.core.log.log_comparison import Decision, LogVerdict, decide_range
from trimaran.cluster.core.log.log_copies import LogCopies
from trimaran.service_api.types import MemberId

A, B, C = map(MemberId, range(3))


@pytest.mark.parametrize(
    ("found", "told", "expected"),
    [
        ("xyy", {}, Decision(LogVerdict.OTHERS_VALID, (B, C))),
        ("xxy", {}, Decision(LogVerdict.OWN_VALID, (A, B))),
        ("xyz", {}, Decision(LogVerdict.UNDECIDED, (A, B, C))),
        ("xy", {}, Decision(LogVerdict.UNDECIDED, (A, B))),
        ("xx", {}, Decision(LogVerdict.OWN_VALID, (A, B))),
        ("xyy", {C: "0-64:1"}, Decision(LogVerdict.UNDECIDED, (A, B, C))),
        ("xyy", {C: "64-96:1"}, Decision(LogVerdict.OTHERS_VALID, (B, C))),
        ("xxy", {A: "0-64:1"}, Decision(LogVerdict.UNDECIDED, (A, B, C))),
    ],
)
def test_a_majority_of_independent_voters_is_right(found: str, told: dict[MemberId, str], expected: Decision) -> None:
    decision = decide_range(
        32,
        64,
        own_id=A,
        found={MemberId(number): letter.encode() for number, letter in enumerate(found)},
        copies={member_id: LogCopies.decode_text(text) for member_id, text in told.items()},
        voter_ids={A, B, C},
    )

    assert decision == expected


def test_who_does_not_vote_is_not_counted() -> None:
    decision = decide_range(32, 64, own_id=A, found={A: b"x", B: b"y", C: b"y"}, copies={}, voter_ids={A, B})

    assert decision.verdict is LogVerdict.UNDECIDED


@pytest.mark.parametrize(("trusted_id", "verdict"), [(A, LogVerdict.OWN_VALID), (B, LogVerdict.OTHERS_VALID)])
def test_an_operator_decides_for_all(trusted_id: MemberId, verdict: LogVerdict) -> None:
    decision = decide_range(
        32, 64, own_id=A, found={A: b"x", B: b"y", C: b"x"}, copies={}, voter_ids={A, B, C}, trusted_id=trusted_id
    )

    assert decision.verdict is verdict
