"""The simulator finds what is planted, and nothing where nothing is planted.

The hardest plants are hunted from a seed on that is known to be near one that finds them;
`python -m tests.simulation.plants` looks for all of them from seed 0 on.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.plant import CHECKLIST, Plant, planted
from tests.simulation.plants import PLANTS
from tests.simulation.scenarios import SCENARIOS, run_scenario

HARDEST: Final = {
    "torn-frame-believed": 168,
    "suspension-lost": 20,
    "sync-tried-again": 14,
    "sync-error-ignored": 14,
    "short-write-is-whole": 14,
    "catalog-not-synced": 6,
    "session-id-in-memory": 14,
    "truncation-lowers-term": 9,
    "copy-not-durable": 2,
    "query-before-delivery": 4,
    "restore-skips-tail": 4,
    "manifest-too-early": 4,
}
"""The plants that need most seeds or most of the simulator, and the first seed that found each.

Any change of the product may move that seed; so there is room after it. A test that has become slow wants the seed that
`docs/planted-bugs.md` has by then.
"""

SEED_ROOM: Final = 40

CONTROL_SEEDS: Final = range(6)


def plant_named(name: str) -> Plant:
    return next(plant for plant in PLANTS if plant.name == name)


def test_every_class_of_the_checklist_is_planted() -> None:
    assert {plant.class_number for plant in PLANTS} == set(CHECKLIST)
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert {plant.scenario for plant in PLANTS} - {None} <= set(SCENARIOS)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_plant_has_a_place_and_leaves_nothing_behind(plant: Plant) -> None:
    """A plant that nothing fits any more fails here, not in hours of hunting."""
    with planted(plant) as planting:
        assert planting.count == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", CONTROL_SEEDS)
def test_control_breaks_no_rule(seed: int) -> None:
    find = hunt(None, [seed])

    assert find.rule is None, find.message


@pytest.mark.slow
@pytest.mark.parametrize("name", HARDEST)
def test_hard_plant_is_found(name: str) -> None:
    find = hunt(plant_named(name), range(HARDEST[name], HARDEST[name] + SEED_ROOM))

    assert find.is_found, find


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_holds_without_a_plant(name: str) -> None:
    broken, _ = run_scenario(SCENARIOS[name])

    assert broken is None


@pytest.mark.slow
@pytest.mark.parametrize("plant", [plant for plant in PLANTS if plant.scenario], ids=lambda plant: plant.name)
def test_scenario_finds_its_plant(plant: Plant) -> None:
    find = hunt(plant, ())

    assert find.is_found, find
