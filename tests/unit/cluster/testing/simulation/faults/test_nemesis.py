"""What goes wrong in a simulated cluster: every kind can strike, alone and survivably, and the end is a sound core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import MS, SECOND
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.faults import disk_faults
from trimaran.cluster.testing.simulation.faults.damage import draw_bit
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES, KINDS, Kind, Nemesis
from trimaran.cluster.testing.simulation.world.expect import RuleBroken
from trimaran.service_api.wire.frame import TYPE_PADDING, unpack_header

KIND_OF = {kind.name: kind for kind in KINDS}
DAMAGING = ("wipe", "flip_recording", "flip_catalog", "flip_recording_log", "flip_node_state")
NOTHING = frozenset(KIND_NAMES)
UNIT_NS = QUICK.leader_heartbeat_timeout_ms * MS


def nemesis_of(small: SmallCluster, *, without: frozenset[str] = frozenset()) -> Nemesis:
    return Nemesis(small.cluster, small.referee, small.trace, without=without, kill_client=lambda random: True)


@contextmanager
def struck_by_hand(
    *, member_count: int = 3, seed: int = 1, keep_all: bool = True
) -> Iterator[tuple[SmallCluster, Nemesis]]:
    """A cluster with 12 KiB of log at rest, and a nemesis that strikes only when a test tells it to."""
    with small_cluster(seed, replace(QUICK, member_count=member_count, keep_all=keep_all)) as small:
        small.start()
        small.send(12, length=1_000)
        yield small, nemesis_of(small, without=NOTHING)


def strike(nemesis: Nemesis, kind: Kind, *, seed: int = 0) -> bool:
    """Strike once, and say whether anything came of it."""
    before = nemesis.fired[kind.name]
    nemesis._strike(kind, Random(seed))
    return nemesis.fired[kind.name] > before


def recover(small: SmallCluster, nemesis: Nemesis) -> list[Member]:
    """End the faults, and wait until the core is all equal."""
    nemesis.end()
    small.wait(lambda: small.is_at_rest(nemesis.core()), limit_ns=60 * SECOND)
    small.referee.expect_equal(nemesis.core())
    return nemesis.core()


# --- each kind


# What flip_below_snapshot needs, a segment below a snapshot, `test_damage` has; a standby, `test_standby_chains`.
@pytest.mark.parametrize("name", [name for name in KIND_OF if name not in ("flip_below_snapshot", "chain")])
def test_each_kind_can_strike_and_a_cluster_survives_it(name: str) -> None:
    with struck_by_hand(keep_all=name != "leave_behind") as (small, nemesis):
        small.cluster.store.objects["sim://somebody/uses"] = b"the store"  # or its faults strike nobody
        assert any(strike(nemesis, KIND_OF[name], seed=seed) for seed in range(30))
        small.cluster.run_for(2 * UNIT_NS)
        recover(small, nemesis)

        assert small.cluster.unhandled == []
        assert any(line.endswith(f"fault     {name}") for line in small.lines)


# --- leaving kinds out


def planned(seed: int, *, without: frozenset[str] = frozenset()) -> dict[str, int]:
    """When each kind of a seed strikes first."""
    times = {}
    with small_cluster(seed) as small:
        nemesis = nemesis_of(small, without=without)
        for time_ns, _, handle in small.cluster.scheduler._later:
            if handle._callback == nemesis._strike:  # type: ignore[attr-defined]  # of asyncio
                times[handle._args[0].name] = time_ns
    return times


def test_leaving_kinds_out_changes_neither_which_others_a_seed_has_nor_when_they_begin() -> None:
    random = Random(1)
    for seed in range(20):
        everything = planned(seed)
        without = frozenset(random.sample(KIND_NAMES, 8))
        rest = planned(seed, without=without)
        assert rest == {name: time_ns for name, time_ns in everything.items() if name not in without}
        assert planned(seed, without=NOTHING) == {}


def test_every_kind_is_in_some_seeds_and_not_in_others() -> None:
    seeds = [planned(seed) for seed in range(60)]

    for name in KIND_OF:
        count = sum(name in seed for seed in seeds)
        assert 0 < count < len(seeds), name


# --- damage


@pytest.mark.parametrize(("member_count", "limit"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_however_often_damage_strikes_at_once_it_hits_a_minority(member_count: int, limit: int) -> None:
    with struck_by_hand(member_count=member_count) as (small, nemesis):
        for seed in range(40):
            for name in DAMAGING:
                strike(nemesis, KIND_OF[name], seed=seed)
        referee, members = small.referee, [*small.cluster.members.values()]

        assert len(referee.damaged) == limit
        sound = [member for member in members if referee.has_committed(member)]
        assert len(sound) >= member_count - limit


def test_nobody_else_is_damaged_while_a_member_has_never_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one and an emptied one would begin a new cluster: seed 7300424 at 247e49f."""
    with struck_by_hand() as (small, nemesis):
        assert all(map(small.referee.has_joined, small.cluster.members.values()))
        monkeypatch.setattr(small.referee, "has_joined", lambda member: member.member_id != 2)
        for seed in range(20):
            for name in DAMAGING:
                strike(nemesis, KIND_OF[name], seed=seed)

        assert [*small.referee.damaged] == [2]


# --- members that stop by themselves


def test_a_member_that_fails_when_it_was_only_told_to_stop_is_told() -> None:
    def fail(name: str, path: object, length: int) -> None:
        raise OSError(5, "not what was asked for")

    with struck_by_hand() as (small, nemesis):
        strike(nemesis, KIND_OF["stop"])
        for member in small.cluster.members.values():
            member.machine.on_disk_operation = fail

        with pytest.raises(RuleBroken, match=r"stops by itself .*asked for"):
            small.cluster.run_for(SECOND)


# --- the end


@pytest.mark.parametrize(
    ("name", "later_ns"),
    [
        ("stop", 0),
        ("stop", 20 * MS),
        ("stop_all", 0),
        ("stop_all", 20 * MS),
        ("disk_error", 0),
        ("disk_full", 0),
        ("end_midway", 0),
    ],
)
def test_the_end_may_come_while_a_member_is_on_its_way_out(name: str, later_ns: int) -> None:
    with struck_by_hand() as (small, nemesis):
        assert strike(nemesis, KIND_OF[name])
        small.cluster.run_for(later_ns)
        core = nemesis.end()
        small.cluster.run_for(10 * UNIT_NS)

        assert all(member.is_running for member in core)


def test_a_disk_that_was_slow_twice_at_once_is_as_fast_as_before_in_the_end() -> None:
    with struck_by_hand() as (small, nemesis):
        before = [replace(member.machine.timing) for member in small.cluster.members.values()]
        for seed in range(20):
            disk_faults.slow_disk(nemesis.target, Random(seed))  # without planning the next strike
        small.cluster.run_for(60 * UNIT_NS)

        assert [member.machine.timing for member in small.cluster.members.values()] == before


def test_no_bit_of_padding_is_drawn_for_a_flip_since_nobody_reads_it() -> None:
    """A member that lost its disk copied the flipped bit of a term's padding, and counted as one whose log differs."""
    with struck_by_hand() as (small, _):
        small.send(60, length=1_000)
        leader = small.leader
        log, positions = small.referee.committed, small.referee.services.delivered
        types = {at: unpack_header(log, at).type for at in positions if at < len(log)}
        (padding,) = (at for at, frame_type in types.items() if frame_type == TYPE_PADDING)

        drawn = {at: [draw_bit(at, leader, Random(seed)) for seed in range(20)] for at in types}

    assert not any(drawn[padding])
    assert any(drawn[at] for at in types if at != padding)
    assert all(any(places) for at, places in drawn.items() if at + 96 < padding)
