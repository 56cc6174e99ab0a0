"""The simulator finds what is planted, and nothing where nothing is planted.

The hardest plants are hunted from a seed on that is known to be near one that finds them;
`python -m tests.simulation.plants` looks for all of them from seed 0 on.
"""

from __future__ import annotations

import ast
import inspect
from typing import Final

import pytest

from tests.places import ROOT
from tests.sampling import sampled
from tests.simulation.hunt import hunt
from tests.simulation.plant import CHECKLIST, Plant, planted
from tests.simulation.plants import PLANTS
from tests.simulation.scenarios import SCENARIOS, run_scenario
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.rules.service_rules import ServiceRules

HARDEST: Final = {
    "torn-frame-believed": 2,
    "suspension-lost": 18,
    "sync-tried-again": 14,
    "sync-error-ignored": 14,
    "short-write-is-whole": 1,
    "catalog-not-synced": 7,
    "session-id-in-memory": 1,
    "truncation-lowers-term": 9,
    "copy-not-durable": 9,
    "query-before-delivery": 0,
    "restore-skips-tail": 4,
    "index-too-early": 0,
}
"""The plants that need most seeds or most of the simulator, and the first seed that found each.

Any change of the product may move that seed; so there is room after it. A test that has become slow wants the seed that
`docs/planted-bugs.md` has by then.
"""

QUICK: Final = {
    "what is committed is durable on a majority": ("commit-alone", 0),
    "committed bytes are the same everywhere, and durable where they are called committed": ("commit-received", 0),
    "what is committed and was held stays on that disk": ("truncate-matching", 0),
    "a commit position never goes back": ("follower-commit-goes-back", 1),
    "a position is durable before it is reported": ("report-received", 0),
    "a term is marked durably before a position in it is reported": ("mark-in-memory", 0),
    "a vote is durable before it is sent": ("vote-then-persist", 0),
    "one vote per term": ("vote-twice", 2),
    "the term of a member never goes back": ("snapshot-term-back", 1),
    "only what is committed is delivered": ("deliver-uncommitted", 0),
    "log time never goes backwards": ("log-time-goes-back", 0),
    "a timer that is due fires": ("timer-of-one-leader", 1),
    "a service is given nothing impossible": ("timer-fires-twice", 1),
    "every consensus module has the same sessions and timers at the same position": ("snapshot-timers-lost", 1),
    "every consensus module has the same messages of services at the same position": ("relay-log-unseen", 0),
    "every container keeps the same replies at the same position": ("replies-not-replicated", 0),
    "the log holds what services have offered": ("relay-sent-twice", 0),
    "a segment goes when the catalog knows, durably, that the log begins after it": ("unlink-too-early", 3),
    "where the log does not begin at 0, a complete snapshot stands in for what is missing": ("purge-too-much", 1),
    "all members know the same members at the same position": ("received-not-searched", 0),
    "a new member is a learner or a standby, with an id that no member had before": ("id-taken-again", 0),
    "a change of the members waits until the one before is committed": ("two-changes-at-once", 16),
    "a change of the members waits until its leader has committed an entry of its own term": (
        "change-before-own-entry",
        0,
    ),
    "cluster time goes on with the leader's monotonic clock": ("clamped-clock", 0),
    "a service leads from the first entry of its member's term": ("leads-in-the-replay", 0),
    "an entry is in the log of the group that owns its key": ("routed-by-another-hash", 0),
    "every log says the same table of groups": ("table-lost-with-a-change", 0),
}
"""Rules of the simulator, each with a plant that breaks it and the seed to begin with: within four it is broken."""

BY_SCENARIO: Final = {
    "a leader has everything that was ever committed",
    "a message of a service is delivered once, in the order offered",
    "members at rest have the same log",
}
"""Rules that a plant with a directed scenario breaks."""

SEED_ROOM: Final = 40

CONTROL_SEEDS: Final = range(6)

CONTROL_SEEDS_OF_CAMPAIGN: Final = {1, 2, 4, 5}

PLANTS_OF_CAMPAIGN: Final = {
    "backup-purges-too-much",
    "catalog-not-synced",
    "egress-bound-per-session",
    "no-canvass",
    "query-before-delivery",
    "query-earlier-round",
    "restore-skips-tail",
    "source-never-left",
}
"""The plants that take longest to find. Others of their classes are found in the suite."""

LONG_SCENARIOS: Final = {
    "backup-from-snapshot",
    "backup-keeps-time",
    "changed-frame",
    "clients-that-read-nothing",
    "comes-back-empty",
    "connections-that-say-nothing",
    "deposed-leader",
    "deposed-leader-asks",
    "entry-skip",
    "half-cut-off",
    "hand-over",
    "leader-alone",
    "lost-offers",
    "member-returns",
    "members-unread",
    "nested-messages",
    "repair-of-a-minority",
    "was-alone",
}
"""The scenarios that take half a second or more. Without a plant they run in the campaign."""


def plant_named(name: str) -> Plant:
    return next(plant for plant in PLANTS if plant.name == name)


def test_every_class_of_the_checklist_is_planted() -> None:
    assert {plant.class_number for plant in PLANTS} == set(CHECKLIST)
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert {plant.scenario for plant in PLANTS} - {None} <= set(SCENARIOS)
    assert set(SCENARIOS) >= LONG_SCENARIOS


def test_every_class_with_a_plant_in_the_campaign_has_one_in_the_suite() -> None:
    found = {plant.name for plant in PLANTS if plant.scenario} | HARDEST.keys() | {name for name, _ in QUICK.values()}

    in_suite = {plant_named(name).class_number for name in found - PLANTS_OF_CAMPAIGN}
    assert {plant_named(name).class_number for name in PLANTS_OF_CAMPAIGN} <= in_suite
    assert found >= PLANTS_OF_CAMPAIGN


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_plant_has_a_place_and_leaves_nothing_behind(plant: Plant) -> None:
    """A plant that nothing fits any more fails here, not in hours of hunting."""
    with planted(plant) as planting:
        assert planting.count == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(CONTROL_SEEDS, CONTROL_SEEDS_OF_CAMPAIGN))
def test_control_breaks_no_rule(seed: int) -> None:
    find = hunt(None, [seed])

    assert find.rule is None, find.message


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(HARDEST, PLANTS_OF_CAMPAIGN))
def test_hard_plant_is_found(name: str) -> None:
    find = hunt(plant_named(name), range(HARDEST[name], HARDEST[name] + SEED_ROOM))

    assert find.is_found, find


@pytest.mark.slow
@pytest.mark.parametrize("rule", QUICK)
def test_rule_is_broken_by_a_plant(rule: str) -> None:
    name, first_seed = QUICK[rule]

    find = hunt(plant_named(name), range(first_seed, first_seed + 4))

    assert (find.is_found, find.rule) == (True, rule), find


def rules_of_the_referee() -> set[str]:
    """Every rule that the referee may report, from its source."""
    sources = [ast.parse(inspect.getsource(one)) for one in (Referee, ServiceRules)]
    calls = [node for source in sources for node in ast.walk(source) if isinstance(node, ast.Call)]
    named = [(call, call.func.id) for call in calls if isinstance(call.func, ast.Name)]
    rules = [
        call.args[{"expect": 1, "RuleBroken": 0}[name]] for call, name in named if name in ("expect", "RuleBroken")
    ]
    return {str(rule.value) for rule in rules if isinstance(rule, ast.Constant)}


def test_every_rule_of_the_referee_is_broken_by_a_plant_or_by_a_test() -> None:
    """A new rule needs a plant that breaks it, or a test."""
    tests = (ROOT / "tests" / "unit" / "cluster" / "testing" / "simulation" / "rules" / "test_referee.py").read_text(
        encoding="utf-8"
    )

    assert len(rules_of_the_referee()) >= 20
    assert {rule for rule in rules_of_the_referee() - QUICK.keys() - BY_SCENARIO if f'"{rule}' not in tests} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(SCENARIOS, LONG_SCENARIOS))
def test_scenario_holds_without_a_plant(name: str) -> None:
    broken, _ = run_scenario(SCENARIOS[name])

    assert broken is None


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled([plant.name for plant in PLANTS if plant.scenario], PLANTS_OF_CAMPAIGN))
def test_scenario_finds_its_plant(name: str) -> None:
    find = hunt(plant_named(name), ())

    assert find.is_found, find
