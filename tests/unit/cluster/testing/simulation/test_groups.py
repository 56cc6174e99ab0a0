"""A simulated cluster with groups: shared machines, clients that go by key, and the rules that no group knows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, Counter
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.service_work import ServiceWork, key_of_request
from trimaran.cluster.testing.simulation.cluster import SimulatedCluster, World
from trimaran.cluster.testing.simulation.faults.machine_faults import cut_power
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES, Nemesis
from trimaran.cluster.testing.simulation.faults.process_faults import kill_member
from trimaran.cluster.testing.simulation.groups.drawing import draw_group_count, draw_session_count, keys_of
from trimaran.cluster.testing.simulation.groups.stranger import STRANGER_CLIENT_ID, key_of_register
from trimaran.cluster.testing.simulation.rules.group_rules import (
    OWN_KEYS_RULE,
    RUNS_ONCE_RULE,
    GroupRules,
    RanAt,
    expect_ran_once,
)
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.run import Options, run_seed
from trimaran.cluster.testing.simulation.services.registers import Request, RequestKind
from trimaran.cluster.testing.simulation.trace import Trace
from trimaran.cluster.testing.simulation.world.expect import RuleBroken
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.groups.group import Group, GroupTable

CALM = Options(member_count=3, group_count=2, safety_timeouts=3, without=frozenset(KIND_NAMES))


class TwoGroups:
    """Two groups on three machines, and what strikes them."""

    def __init__(self) -> None:
        world = World(1)
        self.clusters, self.struck = list[SimulatedCluster](), list[Nemesis]()
        traces = list[Trace]()
        for index in range(2):
            referee = Referee(Counter)
            cluster = SimulatedCluster(index, QUICK, referee.services.make_service, world=world, group=Group(index, 2))
            traces.append(Trace(cluster, None, beside=traces[0] if traces else None))
            referee.watch(cluster, traces[-1])
            self.clusters.append(cluster)
            for member_id in cluster.members:
                cluster.start(member_id)
            self.struck.append(
                Nemesis(
                    cluster,
                    referee,
                    traces[-1],
                    without=frozenset(KIND_NAMES),
                    kill_client=lambda random: True,
                    beside=(*self.struck,),
                )
            )

    def wait_for_leaders(self) -> None:
        assert self.clusters[0].run_until(lambda: all(each.leader() for each in self.clusters), limit_ns=20 * 10**9)

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()

    def running(self) -> list[int]:
        return [len([*cluster.running()]) for cluster in self.clusters]


@pytest.fixture
def two() -> Iterator[TwoGroups]:
    made = TwoGroups()
    made.wait_for_leaders()
    yield made
    made.close()


def test_a_power_loss_takes_the_processes_of_all_groups(two: TwoGroups) -> None:
    member = two.clusters[0].members[next(iter(two.clusters[0].members))]

    cut_power(two.struck[0].target, member, Random(1))

    assert two.running() == [2, 2]
    assert not two.clusters[1].members[member.member_id].machine.has_power
    assert two.clusters[0].run_until(lambda: two.running() == [3, 3], limit_ns=20 * 10**9)
    two.wait_for_leaders()


def test_a_kill_strikes_one_process_or_all_of_a_machine(two: TwoGroups) -> None:
    member = two.clusters[0].members[next(iter(two.clusters[0].members))]
    victims = {len(two.struck[0].target.draw_victims(member, Random(seed))) for seed in range(20)}

    kill_member(two.struck[0].target, member, Random(1))

    assert victims == {1, 2}
    assert two.running() == [2, 3]


def test_a_machine_with_damage_of_one_group_keeps_its_power(two: TwoGroups) -> None:
    member_id = next(iter(two.clusters[1].members))
    two.struck[1].target.referee.damaged[member_id] = None

    assert two.struck[0].target.has_damage(two.clusters[0].members[member_id])


def test_what_strikes_machines_is_struck_once() -> None:
    """By the first group's, for all of them."""
    outcome = run_seed(1, replace(CALM, without=frozenset(KIND_NAMES) - {"isolate", "kill"}))

    assert outcome.failure is None


def test_members_listen_at_the_ports_of_their_group(two: TwoGroups) -> None:
    first, second = (cluster.founding.members[0].ingress for cluster in two.clusters)

    assert (first, second) == ("member-0:20110", "member-0:20210")
    assert two.clusters[1].endpoints_at(0, 3)[0] == "member-0:20240"


@pytest.mark.parametrize("seed", range(2))
def test_all_groups_serve_and_every_request_runs_once(seed: int) -> None:
    outcome = run_seed(seed, replace(CALM, group_count=3))

    assert outcome.failure is None
    assert outcome.group_count == 3
    assert outcome.acknowledged_count > 15
    assert outcome.fired["groups"] == 3


def test_groups_under_faults_are_the_same_twice() -> None:
    options = Options(member_count=3, group_count=2, safety_timeouts=2)

    first, second = run_seed(2, options), run_seed(2, options)

    assert first.failure is None
    assert second == first


def test_many_clients_have_their_sessions_beside_the_others() -> None:
    outcome = run_seed(0, replace(CALM, group_count=1, session_count=40))

    assert outcome.failure is None
    assert outcome.fired["sessions"] == outcome.session_count == 40
    assert "--sessions 40" in " ".join(outcome.options.arguments())


def test_a_share_of_the_seeds_has_groups_and_another_many_sessions() -> None:
    groups = [draw_group_count(seed, 3) for seed in range(400)]
    sessions = [draw_session_count(seed, 3) for seed in range(400)]

    assert 25 < sum(count > 1 for count in groups) < 80
    assert 25 < sum(count > 0 for count in sessions) < 80
    assert all(50 <= count <= 200 for count in sessions if count)


# --- the rules


def request(key: int, *, client_id: int = 7) -> bytes:
    return Request(RequestKind.PUT, key, 1, client_id, 9).encode()


def test_an_entry_about_a_key_of_another_group_is_named() -> None:
    rules = GroupRules(Group(0, 2), key_of_register)
    (own, *_), (strange, *_) = keys_of(Group(0, 2), 1), keys_of(Group(1, 2), 1)

    rules.on_entry(96, ("request", 1, request(own), 0))
    rules.on_entry(128, ("request", 1, request(strange, client_id=STRANGER_CLIENT_ID), 0))
    with pytest.raises(RuleBroken, match=f"entry=160 key={strange} found_in_group=0 expected_group=1") as caught:
        rules.on_entry(160, ("request", 1, request(strange), 0))

    assert caught.value.rule == OWN_KEYS_RULE


@pytest.mark.parametrize("ran", [[], [RanAt(0, 64), RanAt(1, 64)], [RanAt(1, 64)], [RanAt(0, 96)]])
def test_an_acknowledged_request_ran_once_and_in_its_group(ran: list[RanAt]) -> None:
    (key,) = keys_of(Group(0, 2), 1)
    histories = History(), History()
    operation = histories[0].invoke(7, key, "put", 9, now_ns=1)
    operation.sequence = 1
    histories[0].acknowledge(operation, None, log_position=64, now_ns=2)

    expect_ran_once({(7, 1): [RanAt(0, 64)]}, histories, GroupTable(2))
    with pytest.raises(RuleBroken, match=f"key={key} ") as caught:
        expect_ran_once({(7, 1): ran}, histories, GroupTable(2))

    assert caught.value.rule == RUNS_ONCE_RULE


# --- a service of the user's


class Tally(ClusteredService):
    """Counts by key; the first letter of a request is its key."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        key = bytes(payload[:1])
        self.counts[key] = self.counts.get(key, 0) + 1
        return b"%d" % self.counts[key]

    def state_hash(self) -> dict[bytes, int]:
        return self.counts

    @staticmethod
    def simulation_request(random: Random, number: int) -> bytes:
        return b"%c%d" % (random.choice(b"abcdefghijklmnop"), number)

    @staticmethod
    def simulation_key(request: bytes) -> bytes:
        return request[:1]


def test_a_service_of_the_user_runs_in_groups_by_its_own_keys() -> None:
    make_work = partial(
        ServiceWork, draw_request=Tally.simulation_request, uses_requests=True, key_of=key_of_request(Tally)
    )

    outcome = run_seed(3, CALM, make_service=Tally, make_work=make_work, key_of=key_of_request(Tally))

    assert outcome.failure is None
    assert outcome.acknowledged_count > 10


def test_groups_are_not_drawn_for_a_service_of_the_user() -> None:
    seed = next(seed for seed in range(100) if draw_group_count(seed, 3) > 1)
    options = replace(CALM, group_count=None, without=frozenset(KIND_NAMES) - {"groups"}, safety_timeouts=1)

    assert run_seed(seed, options).group_count > 1
    assert run_seed(seed, options, make_service=Tally, make_work=ServiceWork).group_count == 1
