"""A backup is an actor of the simulator: the same each time, through all that happens to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sampling import sampled
from trimaran.cluster.testing.simulation.backups.actor import BACKUP, has_backup
from trimaran.cluster.testing.simulation.run import Options, run_seed

OPTIONS = Options(member_count=3, safety_timeouts=2)
SEEDS = [seed for seed in range(60) if has_backup(seed)][:3]
SEED = SEEDS[0]


def test_the_same_seed_backs_up_the_same_twice() -> None:
    first, second = run_seed(SEED, OPTIONS), run_seed(SEED, OPTIONS)

    assert first.failure is None
    assert first.fired[BACKUP] == 1
    assert second == first


def test_run_without_a_backup_has_none() -> None:
    outcome = run_seed(SEED, replace(OPTIONS, without=frozenset({BACKUP})))

    assert outcome.failure is None
    assert outcome.fired[BACKUP] == outcome.fired["store"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(SEEDS, SEEDS[:1] + SEEDS[2:]))
def test_backup_comes_through_all_faults(seed: int) -> None:
    outcome = run_seed(seed)

    assert outcome.failure is None, outcome.failure
