"""Whole clusters under seeded misfortune: crashes between any two effects, partitions, pauses, lost messages.

The same seeds are the control run of `planted_bugs`: what passes here fails there.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection

import pytest
import structlog

from tests.unit.cluster.core.checks import RuleBroken
from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.planted_bugs import PLANTS, Plant
from trimaran.cluster.core.election_state import LEGAL_TRANSITIONS

pytestmark = pytest.mark.slow

CONTROL_SEEDS = range(120)
"""Clusters of three that break no rule; each plant without a finder of its own breaks one within these seeds."""

IN_SUITE = 60
"""Up to here control seeds run with the suite, the others in the campaign."""

SEED_COUNTS = {1: 5, 2: 6, 4: 5, 5: 10, 7: 3}
"""Clusters of other sizes, by their number of members."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """A service that fails is logged; here it is counted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


WITNESSES = {3: {2}, 4: {0}, 5: {1, 4}}
"""Which members of clusters of some sizes are witnesses."""


def run_whole_life(seed: int, *, member_count: int = 3, witness_ids: Collection[int] = ()) -> Cluster:
    """Three virtual seconds of misfortune, then peace: everything is mended and has to come to rest, all equal."""
    cluster = Cluster(seed, member_count=member_count, witness_ids=witness_ids)
    cluster.start()
    cluster.add_clients(3)
    cluster.run_chaos(3_000 * MS)
    cluster.settle()
    if cluster.failures:
        raise RuleBroken(f"no member stops itself: {cluster.failures}")
    return cluster


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=pytest.mark.campaign if first >= IN_SUITE else ()) for first in CONTROL_SEEDS[::20]],
)
def test_three_members_hold_every_rule_through_any_misfortune(first: int) -> None:
    """Control run. Source: Raft paper figure 3, DESIGN §5."""
    for seed in range(first, first + 20):
        run_whole_life(seed)


@pytest.mark.parametrize("member_count", WITNESSES)
def test_clusters_with_witnesses_hold_every_rule_through_any_misfortune(member_count: int) -> None:
    """A witness leads only to hand over, and each run comes to rest under a member that runs the service."""
    for seed in range(8):
        run_whole_life(seed, member_count=member_count, witness_ids=WITNESSES[member_count])


@pytest.mark.parametrize("member_count", SEED_COUNTS)
def test_clusters_of_every_size_hold_every_rule_through_any_misfortune(member_count: int) -> None:
    for seed in range(SEED_COUNTS[member_count]):
        run_whole_life(seed, member_count=member_count)


def test_misfortune_is_worth_its_name() -> None:
    """The runs are no better than what they meet: elections, truncations, catch-ups, roll-backs, timers, closes."""
    met: dict[str, int] = {}
    for seed in CONTROL_SEEDS[:20]:
        cluster = Cluster(seed)
        cluster.on_effect = lambda node, effect: met.update({key: met.get(key, 0) + 1 for key in names_of(effect)})
        cluster.start()
        cluster.add_clients(3)
        cluster.run_chaos(3_000 * MS)
        for kind in {str(what[0]) for what in cluster.referee.delivered.values()}:
            met[kind] = met.get(kind, 0) + 1

    wanted = {f"to {state.name}" for targets in LEGAL_TRANSITIONS.values() for state in targets}
    wanted |= {"TruncateLog", "StartLogReplication", "StartCatchupReplay", "StopCatchupReplay", "CloseCatchup"}
    wanted |= {"open", "close", "message", "timer", "term"}
    assert wanted - met.keys() == set()


def names_of(effect: object) -> list[str]:
    new = getattr(effect, "new", None)
    return [type(effect).__name__, *([f"to {new.name}"] if new is not None else [])]


def test_one_seed_gives_one_run() -> None:
    """Replayable from one number: the same effects, in the same order, at the same times."""
    first, second = trace_of(7), trace_of(7)

    assert len(first) > 1000
    assert first == second
    assert first != trace_of(8)


def trace_of(seed: int) -> list[tuple[int, int, str]]:
    cluster = Cluster(seed)
    trace: list[tuple[int, int, str]] = []
    cluster.on_effect = lambda node, effect: trace.append((cluster.now_ns, node.member_id, repr(effect)))
    cluster.start()
    cluster.add_clients(2)
    cluster.run_chaos(2_000 * MS)
    return trace


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each safety rule, broken on purpose, is missed by nobody."""
    plant.break_it(monkeypatch)

    assert found_by(plant) is not None, plant.rule


def found_by(plant: Plant) -> str | int | None:
    """The finder that fails, or the first seed that does."""
    if plant.finder is not None:
        module_name, name = plant.finder.split(":")
        test = getattr(importlib.import_module(f"tests.unit.cluster.core.{module_name}"), name)
        try:
            test()
        except (AssertionError, pytest.fail.Exception):
            return plant.finder
        return None
    for seed in CONTROL_SEEDS[plant.first_seed :]:
        try:
            run_whole_life(seed)
        except RuleBroken:
            return seed
    return None


@pytest.mark.parametrize("plant", [plant for plant in PLANTS if plant.finder], ids=lambda plant: plant.name)
def test_finder_finds_nothing_where_nothing_is_planted(plant: Plant) -> None:
    assert found_by(plant) is None
