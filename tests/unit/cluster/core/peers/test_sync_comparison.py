"""A member with a slow disk is reluctant to lead, and knows that by comparing itself with the others alone."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.peers.test_conditions import answer, started
from tests.unit.cluster.core.solo import Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.peers.sync_comparison import describe_slow_syncs
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.cluster.messages.condition import ConditionQuery, MemberCondition
from trimaran.service_api.documents.document import LINE_LENGTH_LIMIT
from trimaran.service_api.types import MemberId

S = 1_000 * MS


def described(
    own_ms: float | None, others_ms: dict[int, float], *, voter_count: int = 3, was_slow: bool = False
) -> str | None:
    return describe_slow_syncs(
        None if own_ms is None else int(own_ms * MS),
        {MemberId(member_id): int(other_ms * MS) for member_id, other_ms in others_ms.items()},
        voter_count=voter_count,
        slow_ns=100 * MS,
        was_slow=was_slow,
    )


@pytest.mark.parametrize(
    ("own_ms", "others_ms", "voter_count", "was_slow", "is_slow"),
    [
        (200, {1: 1, 2: 50}, 3, False, True),
        (99, {1: 1, 2: 1}, 3, False, False),  # quick enough
        (None, {1: 1, 2: 1}, 3, False, False),  # it syncs nothing
        (200, {1: 1, 2: 51}, 3, False, False),  # a commit would wait for one of two slow disks anyway
        (200, {1: 1}, 3, False, False),
        (200, {1: 1}, 2, False, False),
        (200, {}, 1, False, False),
        (200, {1: 1, 2: 1, 3: 180, 4: 180}, 5, False, False),
        (200, {1: 1, 2: 1, 3: 1, 4: 180}, 5, False, True),
        (60, {1: 30, 2: 30}, 3, True, True),  # still slow
        (49, {1: 1, 2: 1}, 3, True, False),
        (200, {1: 101, 2: 101}, 3, True, False),
    ],
)
def test_a_disk_is_slow_where_a_majority_is_clearly_faster(
    own_ms: float | None, others_ms: dict[int, float], voter_count: int, was_slow: bool, is_slow: bool
) -> None:
    found = described(own_ms, others_ms, voter_count=voter_count, was_slow=was_slow)

    assert (found is not None) is is_slow


def test_what_is_said_names_both_times_and_some_members() -> None:
    few = described(205, {1: 1.25, 2: 3})
    many = described(205, dict.fromkeys(range(1, 100), 1), voter_count=100)

    assert few is not None
    assert many is not None
    assert has_facts(few, "205 ms", "3.0 ms", "1, 2")
    assert has_facts(many, "1, 2, 3 and 96 more")
    assert len(many) < LINE_LENGTH_LIMIT


def measured(solo: Solo, own_ms: float, others_ms: dict[int, float | None]) -> Solo:
    """Let the member measure its syncs, and the others say how long theirs take."""
    solo.feed(ev.SyncsMeasured(int(own_ms * MS)))
    for member_id, other_ms in others_ms.items():
        solo.feed(ev.LinkChanged(MemberId(member_id), is_up=True))
        answer(solo, member_id, sync_ns=-1 if other_ms is None else int(other_ms * MS))
    return solo


def test_a_member_with_a_slow_disk_is_reluctant_until_its_disk_is_quick_again() -> None:
    solo = measured(started(), 205, {1: 1, 2: 1})
    noted = of(solo.effects, fx.ReluctanceNoted)
    assert [(each.kind, each.detail is None) for each in noted] == [(Reluctance.SYNCS_SLOW, False)]

    solo.feed(ev.SyncsMeasured(51 * MS))
    assert Reluctance.SYNCS_SLOW in solo.ctx.reluctance
    solo.feed(ev.SyncsMeasured(3 * MS))

    assert solo.ctx.reluctance == {}
    assert of(solo.effects, fx.ReluctanceNoted)[-1] == fx.ReluctanceNoted(Reluctance.SYNCS_SLOW, None)


def test_a_member_that_syncs_nothing_or_cannot_be_reached_is_not_compared_with() -> None:
    assert measured(started(), 205, {1: 1, 2: None}).ctx.reluctance == {}

    solo = measured(started(), 205, {1: 1, 2: 1})
    solo.feed(ev.LinkChanged(MemberId(2), is_up=False))
    solo.wait(S)

    assert solo.ctx.reluctance == {}


def test_a_member_tells_the_others_how_long_its_syncs_take() -> None:
    solo = started()

    before = solo.feed(ConditionQuery(nonce=7, member_id=MemberId(2)))
    solo.feed(ev.SyncsMeasured(205 * MS))
    after = solo.feed(ConditionQuery(nonce=8, member_id=MemberId(2)))

    assert [messages(effects, MemberCondition, to=2)[0].sync_ns for effects in (before, after)] == [-1, 205 * MS]
