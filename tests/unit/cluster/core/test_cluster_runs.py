"""Whole clusters under seeded misfortune: crashes between any two effects, partitions, pauses, lost messages.

The same seeds are the control run of `planted_bugs`: what passes here fails there.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping

import pytest
import structlog
from _pytest.mark import ParameterSet

from tests.unit.cluster.core.checks import RuleBroken
from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.planted_bugs import PLANTS, Plant
from trimaran.cluster.core.vocabulary.election_state import LEGAL_TRANSITIONS

pytestmark = pytest.mark.slow

CONTROL_SEEDS = range(120)
"""Clusters of three that break no rule; each plant without a finder of its own breaks one within these seeds."""

IN_SUITE = 20
"""Up to here control seeds run with the suite, the others in the campaign."""

SEED_COUNTS = {1: 5, 2: 6, 4: 5, 5: 10, 7: 3}
"""Clusters of other sizes, by their number of members."""

SAMPLE_COUNT = 3
"""The seeds of those, and of clusters with witnesses, that run with the suite, the others in the campaign."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """A service that fails is logged; here it is counted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


WITNESSES = {3: {2}, 4: {0}, 5: {1, 4}}
"""Which members of clusters of some sizes are witnesses."""


def run_whole_life(seed: int, *, member_count: int = 3, witness_ids: Collection[int] = ()) -> Cluster:
    """Three virtual seconds of misfortune, then peace: everything is mended and has to come to rest, all equal."""
    return come_to_rest(live_through_misfortune(Cluster(seed, member_count=member_count, witness_ids=witness_ids)))


def live_through_misfortune(cluster: Cluster) -> Cluster:
    cluster.start()
    cluster.add_clients(3)
    cluster.run_chaos(3_000 * MS)
    return cluster


def come_to_rest(cluster: Cluster) -> Cluster:
    cluster.settle()
    if cluster.failures:
        raise RuleBroken(f"no member stops itself: {cluster.failures}")
    return cluster


def sampled(counts: Mapping[int, int]) -> list[ParameterSet]:
    """Pairs of a number of members and its seeds: a few for the suite, the others for the campaign."""
    few = [pytest.param(size, range(min(count, SAMPLE_COUNT)), id=str(size)) for size, count in counts.items()]
    return few + [
        pytest.param(size, range(SAMPLE_COUNT, count), id=f"{size}-more", marks=pytest.mark.campaign)
        for size, count in counts.items()
        if count > SAMPLE_COUNT
    ]


@pytest.mark.campaign
@pytest.mark.parametrize("first", CONTROL_SEEDS[IN_SUITE::20])
def test_three_members_hold_every_rule_through_any_misfortune(first: int) -> None:
    """More of the control run."""
    for seed in range(first, first + 20):
        run_whole_life(seed)


@pytest.mark.parametrize(("member_count", "seeds"), sampled(dict.fromkeys(WITNESSES, 8)))
def test_clusters_with_witnesses_hold_every_rule_through_any_misfortune(member_count: int, seeds: range) -> None:
    """A witness leads only to hand over, and each run comes to rest under a member that runs the service."""
    for seed in seeds:
        run_whole_life(seed, member_count=member_count, witness_ids=WITNESSES[member_count])


@pytest.mark.parametrize(("member_count", "seeds"), sampled(SEED_COUNTS))
def test_clusters_of_every_size_hold_every_rule_through_any_misfortune(member_count: int, seeds: range) -> None:
    for seed in seeds:
        run_whole_life(seed, member_count=member_count)


def test_three_members_hold_every_rule_through_a_misfortune_that_is_worth_its_name() -> None:
    """Control run. Source: Raft paper figure 3, DESIGN §5.

    The runs are no better than what they meet: elections, truncations, catch-ups, roll-backs, timers, closes.
    """
    met: set[str] = set()
    for seed in CONTROL_SEEDS[:IN_SUITE]:
        cluster = Cluster(seed)
        cluster.on_effect = lambda node, effect: met.update(names_of(effect))
        live_through_misfortune(cluster)
        met.update(str(what[0]) for what in cluster.referee.delivered.values())
        cluster.on_effect = lambda node, effect: None
        come_to_rest(cluster)

    wanted = {f"to {state.name}" for targets in LEGAL_TRANSITIONS.values() for state in targets}
    wanted |= {"TruncateLog", "StartLogReplication", "StartCatchupReplay", "StopCatchupReplay", "CloseCatchup"}
    wanted |= {"open", "close", "message", "timer", "term"}
    assert wanted - met == set()


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


def test_every_finder_is_a_test_that_also_runs_where_nothing_is_planted() -> None:
    names = {plant.finder.partition(":")[2] for plant in PLANTS if plant.finder}

    assert [name for name in sorted(names) if not name.startswith("test_")] == []
