"""Seeds have standbys follow other members: how that comes about, what is done to a member that is followed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.test_membership import UNIT_NS, current, nemesis_of
from trimaran.cluster.core.vocabulary.member_change import MemberChangeKind
from trimaran.cluster.testing.simulation import part as part_module
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES, Nemesis
from trimaran.cluster.testing.simulation.faults.standby_chains import (
    CHAIN,
    SOURCE_ACTS,
    act_on,
    chain,
    draw_dead_source,
    find_links,
)
from trimaran.cluster.testing.simulation.rules.source_rule import SourceRule
from trimaran.cluster.testing.simulation.run import Options, run_seed
from trimaran.cluster.testing.simulation.world.expect import RuleBroken
from trimaran.service_api.types import MemberId

FIRST, SECOND = MemberId(3), MemberId(4)


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    """Three members and a standby."""
    with small_cluster() as made:
        made.start()
        made.send(10)
        made.add_member(FIRST, MemberChangeKind.ADD_STANDBY)
        yield made


def is_relayed(member: Member) -> bool:
    return member.node is not None and member.node.module.ctx.is_relayed


def linked(small: SmallCluster, nemesis: Nemesis) -> Member:
    """Have a second standby come that follows the first."""
    assert chain(nemesis.target, Random(1))
    small.wait(lambda: SECOND in small.cluster.members and current(small).find(SECOND) is not None)
    small.wait(lambda: is_relayed(small.member(SECOND)))
    return small.member(SECOND)


def test_a_standby_that_is_there_is_started_again_to_follow(small: SmallCluster) -> None:
    second = small.add_member(SECOND, MemberChangeKind.ADD_STANDBY)
    nemesis = nemesis_of(small)

    seeds = iter(range(100))
    while not find_links(nemesis.target):
        chain(nemesis.target, Random(next(seeds)))

    small.wait(lambda: any(is_relayed(follower) for follower, _ in find_links(nemesis.target)))
    assert second.config.log_source in ("", str(FIRST))


@pytest.mark.parametrize("act", dict.fromkeys(SOURCE_ACTS))
def test_the_follower_has_everything_whatever_becomes_of_its_source(small: SmallCluster, act: str) -> None:
    nemesis = nemesis_of(small)
    follower, source = linked(small, nemesis), small.member(FIRST)
    small.cluster.run_for(UNIT_NS)

    assert act_on(nemesis.target, act, follower, source, Random(7))
    small.cluster.run_for(4 * UNIT_NS)
    small.send(10, members=[small.member(each) for each in range(3)])
    nemesis.end()

    small.wait(lambda: small.is_at_rest([follower]))
    small.wait(lambda: small.is_at_rest(nemesis.core()))
    small.referee.expect_equal(nemesis.core())


def test_a_source_that_is_left_for_dead_is_missed_by_nobody(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)
    follower, source = linked(small, nemesis), small.member(FIRST)

    assert source in {one for _ in range(20) for one in draw_dead_source(nemesis.target)}
    while source not in [one for one in small.cluster.members.values() if one not in nemesis.core()]:
        nemesis.end()

    small.wait(lambda: small.is_at_rest([follower]))
    assert follower in nemesis.core()


def test_a_log_that_comes_from_elsewhere_breaks_a_rule(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)
    follower = linked(small, nemesis)

    follower.config = follower.config.model_copy(update={"log_source": "0"})

    with pytest.raises(RuleBroken, match="the older member"):
        small.cluster.run_for(UNIT_NS)


def test_seeds_draw_chains_and_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SourceRule] = []

    class Kept(Nemesis):
        def __init__(self, *args: Any, **named: Any) -> None:  # whatever a run gives it
            super().__init__(*args, **named)
            made.append(self.target.source_rule)

    monkeypatch.setattr(part_module, "Nemesis", Kept)
    seed = next(
        seed for seed in range(100) if all(Random(f"{seed} {kind}").random() < 0.4 for kind in ("standby", CHAIN))
    )

    outcome = run_seed(seed, Options(without=frozenset(KIND_NAMES) - {"standby", CHAIN}, safety_timeouts=12))

    assert outcome.failure is None
    assert outcome.fired[CHAIN] > 0
    assert made[0].relayed_count > 0
