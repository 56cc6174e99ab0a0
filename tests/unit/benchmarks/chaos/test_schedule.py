"""The schedule of a campaign's faults: a function of the seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trimaran.benchmarks.chaos.campaign import draw_round
from trimaran.benchmarks.chaos.careless import CarelessAct, draw_acts
from trimaran.benchmarks.chaos.modes import MODE_FAULTS, OF_OWN_SERVICE, ChaosMode
from trimaran.benchmarks.chaos.parameters import ChaosParameters
from trimaran.benchmarks.chaos.schedule import (
    DRAWN,
    EVERYBODY,
    EXCLUSIVE,
    LEADER,
    OF_EVERYBODY,
    ChaosFault,
    draw_schedule,
)


def test_one_seed_gives_one_schedule() -> None:
    first, again = (draw_schedule("7 0", seconds=60, member_count=3, kinds=list(DRAWN)) for _ in range(2))

    assert first == again
    assert first != draw_schedule("8 0", seconds=60, member_count=3, kinds=list(DRAWN))


def test_a_long_round_has_every_kind() -> None:
    faults = draw_schedule("7 0", seconds=300, member_count=5, kinds=list(DRAWN))

    assert {fault.kind for fault in faults} == set(DRAWN)


def test_faults_come_in_order_and_end_within_the_round() -> None:
    faults = draw_schedule("3 1", seconds=40, member_count=3, kinds=list(DRAWN))

    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert all(fault.at_s + fault.duration_s < 40 for fault in faults)


def test_targets_are_members_the_leader_or_everybody() -> None:
    faults = draw_schedule("5 0", seconds=600, member_count=3, kinds=list(DRAWN))

    for fault in faults:
        assert fault.target in {LEADER, EVERYBODY, 0, 1, 2}
        assert (fault.target == EVERYBODY) == (fault.kind in OF_EVERYBODY)


def test_nothing_comes_beside_a_fault_that_must_be_alone() -> None:
    faults = draw_schedule("5 0", seconds=600, member_count=3, kinds=list(DRAWN))

    for fault, following in pairwise(faults):
        if fault.kind in EXCLUSIVE:
            assert following.at_s >= fault.at_s + fault.duration_s


def test_acts_of_a_careless_service_follow_from_the_seed() -> None:
    acts = draw_acts("7 0", seconds=60, member_count=3)

    assert acts == draw_acts("7 0", seconds=60, member_count=3)
    assert {planned.act for planned in acts} == set(CarelessAct)
    assert all(planned.member_id in range(3) for planned in acts)


def test_a_users_service_has_no_careless_rounds() -> None:
    own = ChaosParameters(seed=1)
    users = ChaosParameters(seed=1, service="app:Service")

    assert ChaosMode.CARELESS in {own.mode_of(number) for number in range(len(own.modes))}
    assert {users.mode_of(number) for number in range(len(own.modes))} == {*own.modes} - OF_OWN_SERVICE


def test_a_campaign_has_a_round_of_every_mode_but_the_one_with_a_backup() -> None:
    assert {*ChaosParameters(seed=1).modes} == {*ChaosMode} - {ChaosMode.BACKED_UP}


@pytest.mark.parametrize("mode", ChaosMode)
def test_a_round_has_the_faults_of_its_mode_alone(mode: ChaosMode) -> None:
    schedule, acts, changes = draw_round(ChaosParameters(seed=3, modes=(mode,), round_seconds=300), 0, DRAWN)

    assert {fault.kind for fault in schedule} == MODE_FAULTS[mode]
    assert bool(acts) == (mode is ChaosMode.CARELESS)
    assert bool(changes) == (mode is ChaosMode.MEMBERSHIP)


def test_the_command_that_repeats_a_round_says_what_is_not_the_default() -> None:
    parameters = ChaosParameters(seed=7, kinds=(ChaosFault.KILL,), modes=(ChaosMode.FAULTS,), service="app:Service")

    command = parameters.command(3)

    assert "chaos --seed 7 --only-round 3" in command
    assert "--faults kill" in command
    assert "--modes faults" in command
    assert "--service app:Service" in command


def test_no_kinds_give_no_faults() -> None:
    assert draw_schedule("5 0", seconds=60, member_count=3, kinds=[]) == []
