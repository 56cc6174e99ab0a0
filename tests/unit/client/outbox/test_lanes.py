"""Which effect is next: lanes, pauses, and what a walk says of what is settled."""

from __future__ import annotations

from typing import Any

from trimaran.client.outbox.lanes import EffectLanes, HeldEffect
from trimaran.service_api.outbox import EffectKey, PendingEffect


def effect(position: int, lane: str = "") -> PendingEffect[Any]:
    return PendingEffect(EffectKey(position, 0), lane)


def lanes_of(*effects: PendingEffect[Any]) -> EffectLanes:
    lanes = EffectLanes(lambda effect: effect.payload)
    lanes.begin_walk()
    for each in effects:
        assert lanes.add(each)
    lanes.end_walk()
    return lanes


def take(lanes: EffectLanes, now_s: float = 0.0) -> HeldEffect:
    held = lanes.take(now_s)
    assert held is not None
    return held


def test_effects_of_one_lane_come_one_at_a_time_in_order() -> None:
    lanes = lanes_of(effect(2, "a"), effect(1, "a"), effect(3, "b"))

    first, other = take(lanes), take(lanes)
    assert (first.key, other.key) == ((1, 0), (3, 0))
    assert lanes.take(0) is None

    lanes.release(first)
    assert take(lanes).key == (2, 0)


def test_one_that_failed_waits_with_those_of_its_lane_and_no_other() -> None:
    lanes = lanes_of(effect(1, "a"), effect(2, "a"), effect(3, "b"))

    lanes.put_back(take(lanes), due_s=5.0)

    assert take(lanes, 4.0).key == (3, 0)
    assert lanes.take(4.0) is None
    assert lanes.next_due_s() == 5.0
    assert take(lanes, 5.0).key == (1, 0)


def test_what_is_new_comes_before_what_is_tried_again() -> None:
    lanes = lanes_of(effect(1, "a"), effect(2, "b"))
    lanes.put_back(take(lanes), due_s=0.5)

    assert [take(lanes, 1.0).key for _ in range(2)] == [(2, 0), (1, 0)]


def test_an_answer_from_before_a_settlement_takes_nothing_in_again() -> None:
    lanes = lanes_of(effect(1))
    held = take(lanes)

    lanes.begin_walk()
    lanes.release(held)
    lanes.settle(held.key)
    assert not lanes.add(effect(1))
    lanes.end_walk()

    assert lanes.take(0) is None


def test_what_an_operator_retries_is_taken_in_again() -> None:
    lanes = lanes_of(effect(1))
    held = take(lanes)
    lanes.release(held)
    lanes.settle(held.key)

    lanes.begin_walk()
    assert lanes.add(effect(1))


def test_what_another_worker_settled_is_forgotten_when_a_walk_ends() -> None:
    lanes = lanes_of(effect(1, "a"), effect(2, "a"), effect(3, "b"), effect(4, "c"))
    under_way = take(lanes)
    lanes.put_back(take(lanes), due_s=9.0)

    lanes.begin_walk()
    lanes.add(effect(2, "a"))
    lanes.end_walk()

    assert len(lanes) == 2, "what is under way stays, and what the walk met"
    lanes.release(under_way)
    assert take(lanes).key == (2, 0)
    assert lanes.next_due_s() is None
