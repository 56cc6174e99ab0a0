"""Members ask each other how they are: whose clock is off, by what the majority's clocks say."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.peers.clock_agreement import ClockAgreement
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.cluster.messages.condition import ConditionQuery, MemberCondition
from trimaran.service_api.documents.document import LINE_LENGTH_LIMIT
from trimaran.service_api.types import NULL_VALUE, MemberId, TermId

S = 1_000_000_000
HOUR_MS = 3_600_000


def agreement(differences_ms: dict[int, int], *, member_count: int = 3, round_trip_ms: int = 2) -> ClockAgreement:
    """What a member knows that measured these differences just now."""
    found = ClockAgreement(member_count=lambda: member_count, limit_ns=S)
    for member_id, difference_ms in differences_ms.items():
        note(found, member_id, difference_ms, round_trip_ms=round_trip_ms)
    found.judge(round_trip_ms * MS)
    return found


def note(found: ClockAgreement, member_id: int, difference_ms: int, *, round_trip_ms: int = 2, now_ns: int = 0) -> None:
    end_ns = now_ns + round_trip_ms * MS
    epoch_ms = 1_000_000_000 + end_ns // MS
    their_epoch_ms = epoch_ms - round_trip_ms // 2 + difference_ms
    found.note(MemberId(member_id), asked_ns=now_ns, now_ns=end_ns, their_epoch_ms=their_epoch_ms, epoch_ms=epoch_ms)


@pytest.mark.parametrize(
    ("differences_ms", "member_count", "is_off", "majority_ms"),
    [
        ({1: 3, 2: -4}, 3, False, 1),
        ({1: -HOUR_MS, 2: -HOUR_MS + 10}, 3, True, -HOUR_MS + 5),
        ({1: HOUR_MS, 2: HOUR_MS}, 3, True, HOUR_MS),
        ({1: 0, 2: HOUR_MS}, 3, False, 0),
        ({1: HOUR_MS}, 3, False, None),
        ({1: -HOUR_MS, 2: HOUR_MS}, 3, False, None),
        ({1: HOUR_MS}, 2, False, None),
        ({1: HOUR_MS, 2: HOUR_MS, 3: 0, 4: 0}, 5, False, 0),
        ({1: HOUR_MS, 2: HOUR_MS, 3: HOUR_MS}, 5, True, HOUR_MS),
        ({1: HOUR_MS, 2: HOUR_MS}, 5, False, None),
        ({}, 1, False, 0),
    ],
    ids=str,
)
def test_majority_decides_whose_clock_is_off(
    differences_ms: dict[int, int], member_count: int, is_off: bool, majority_ms: int | None
) -> None:
    found = agreement(differences_ms, member_count=member_count)

    assert found.is_off is is_off
    assert found.majority_ns == (None if majority_ms is None else pytest.approx(majority_ms * MS, abs=MS))


def test_answer_that_took_long_says_nothing() -> None:
    """Half a round trip is how far off the difference may be."""
    assert agreement({1: HOUR_MS, 2: HOUR_MS}, round_trip_ms=1_200).differences == {}


def test_difference_counts_for_a_minute() -> None:
    found = agreement({1: HOUR_MS, 2: HOUR_MS})

    assert found.judge(61 * S)
    assert (found.is_off, found.differences) == (False, {})


def test_clock_is_near_again_at_half_the_limit() -> None:
    found = agreement({1: 1_100, 2: 1_100})
    assert found.is_off

    note(found, 1, 700)
    note(found, 2, 700)
    found.judge(MS)
    assert found.is_off
    note(found, 1, 400)
    note(found, 2, 400)
    found.judge(MS)

    assert not found.is_off


# --- the exchange


def answer(
    solo: Solo, member_id: int, *, skew_ms: int = 0, reluctance: int = 0, sync_ns: int = NULL_VALUE
) -> list[fx.Effect]:
    """Let a member answer the newest question that it was asked."""
    question = messages(solo.effects, ConditionQuery, to=member_id)[-1]
    condition = MemberCondition(
        nonce=question.nonce,
        epoch_ms=solo.timestamp + skew_ms,
        leadership_term_id=TermId(0),
        reluctance=reluctance,
        member_id=MemberId(member_id),
        sync_ns=sync_ns,
    )
    return solo.feed(condition)


def started() -> Solo:
    solo = Solo(terms=[(0, 0, 640)], is_started=False)
    chances = iter(range(1, 1000))
    solo.ctx.random = lambda: next(chances) / 1000
    solo.start()
    return solo


def test_member_is_asked_when_its_link_comes_up_and_every_second() -> None:
    solo = started()
    assert len(messages(solo.effects, ConditionQuery, to=1)) == 1

    for _ in range(3):
        solo.wait(S)

    assert len(messages(solo.effects, ConditionQuery, to=1)) == 4


def test_question_is_answered_with_clock_term_and_reluctance() -> None:
    solo = started()
    solo.feed(ev.ReluctanceChanged(Reluctance.SERVICE_HELD, "holds"))

    effects = solo.feed(ConditionQuery(nonce=77, member_id=MemberId(2)))

    assert messages(effects, MemberCondition, to=2) == [
        MemberCondition(
            nonce=77, epoch_ms=solo.timestamp, leadership_term_id=TermId(0), reluctance=2, member_id=MemberId(0)
        )
    ]


def test_member_whose_clock_is_off_is_reluctant_and_reckons_with_the_majoritys() -> None:
    solo = started()

    answer(solo, 1, skew_ms=-HOUR_MS)
    effects = answer(solo, 2, skew_ms=-HOUR_MS)

    (noted,) = of(effects, fx.ReluctanceNoted)
    assert noted == fx.ReluctanceNoted(
        Reluctance.CLOCK_OFF, "its clock is 3,600.000 s ahead of the clocks of the majority"
    )
    assert solo.ctx.cluster_clock.correction_ns == -HOUR_MS * MS


def test_member_whose_clock_is_corrected_is_willing_again() -> None:
    solo = started()
    answer(solo, 1, skew_ms=HOUR_MS)
    answer(solo, 2, skew_ms=HOUR_MS)
    solo.skew_ms = HOUR_MS
    solo.wait(S)

    answer(solo, 1)
    answer(solo, 2)

    assert solo.ctx.reluctance == {}
    assert solo.ctx.cluster_clock.correction_ns == 0


def test_reluctance_of_another_member_is_known() -> None:
    solo = started()

    answer(solo, 1, reluctance=Reluctance.CLOCK_OFF.value)

    assert solo.ctx.members[MemberId(1)].is_reluctant
    assert not solo.ctx.members[MemberId(2)].is_reluctant


def test_what_is_wrong_with_many_clocks_is_one_line_of_a_status() -> None:
    """Seed 547: with seven members whose clocks all differ the line was too long, and a status was never answered."""
    found = agreement({member_id: -10_000 * member_id for member_id in range(1, 9)}, member_count=9)

    problem = found.describe_problem()

    assert problem is not None
    assert len(problem) <= LINE_LENGTH_LIMIT
    assert "and those of 5 more" in problem
