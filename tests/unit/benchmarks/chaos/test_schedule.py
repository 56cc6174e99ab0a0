"""The schedule of a campaign's faults: a function of the seed."""

from __future__ import annotations

from itertools import pairwise

from trimaran.benchmarks.chaos.schedule import EVERYBODY, EXCLUSIVE, LEADER, OF_EVERYBODY, ChaosFault, draw_schedule


def test_one_seed_gives_one_schedule() -> None:
    first, again = (draw_schedule("7 0", seconds=60, member_count=3, kinds=list(ChaosFault)) for _ in range(2))

    assert first == again
    assert first != draw_schedule("8 0", seconds=60, member_count=3, kinds=list(ChaosFault))


def test_a_long_round_has_every_kind() -> None:
    faults = draw_schedule("7 0", seconds=300, member_count=5, kinds=list(ChaosFault))

    assert {fault.kind for fault in faults} == set(ChaosFault)


def test_faults_come_in_order_and_end_within_the_round() -> None:
    faults = draw_schedule("3 1", seconds=40, member_count=3, kinds=list(ChaosFault))

    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert all(fault.at_s + fault.duration_s < 40 for fault in faults)


def test_targets_are_members_the_leader_or_everybody() -> None:
    faults = draw_schedule("5 0", seconds=600, member_count=3, kinds=list(ChaosFault))

    for fault in faults:
        assert fault.target in {LEADER, EVERYBODY, 0, 1, 2}
        assert (fault.target == EVERYBODY) == (fault.kind in OF_EVERYBODY)


def test_nothing_comes_beside_a_fault_that_must_be_alone() -> None:
    faults = draw_schedule("5 0", seconds=600, member_count=3, kinds=list(ChaosFault))

    for fault, following in pairwise(faults):
        if fault.kind in EXCLUSIVE:
            assert following.at_s >= fault.at_s + fault.duration_s


def test_no_kinds_give_no_faults() -> None:
    assert draw_schedule("5 0", seconds=60, member_count=3, kinds=[]) == []
