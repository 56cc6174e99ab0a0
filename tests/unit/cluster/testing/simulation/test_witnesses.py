"""Whole runs with a witness amid the faults: `trimaran sim --witnesses`."""

from __future__ import annotations

import pytest

from tests.sampling import sampled
from trimaran.cluster.testing.simulation.run import Options, draw_settings, run_seed


@pytest.mark.parametrize("seed", sampled(range(3), {1, 2}))
def test_two_members_and_a_witness_break_no_rule(seed: int) -> None:
    outcome = run_seed(seed, Options(member_count=3, witness_count=1, safety_timeouts=8))

    assert outcome.failure is None
    assert outcome.acknowledged_count > 0


@pytest.mark.parametrize(("member_count", "expected"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 2)])
def test_witnesses_are_never_a_majority(member_count: int, expected: int) -> None:
    witnesses = draw_settings(1, member_count, 2).witnesses

    assert len([one for one in witnesses.split(",") if one]) == expected
