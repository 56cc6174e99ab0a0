"""A cluster in a test: faults, time, restarts, and what a test is told when it is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from trimaran import ConfigurationError
from trimaran.cluster.testing import MemoryCluster, StillWaitingError
from trimaran.cluster.testing.simulation.world.quiet import quiet_log

from .counting import Counter, Diverging, Doubling


@contextmanager
def made(service: Any = Counter, **settings: Any) -> Iterator[MemoryCluster]:
    with quiet_log(), MemoryCluster(service, **settings) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with made() as cluster:
        yield cluster


def test_a_total_survives_the_leader_and_comes_to_who_was_down(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        assert await client.request(b"5") == b"5"
        dead = memory.kill_leader()
        assert memory.leader is None
        assert await client.request(b"2") == b"7"
        assert sorted(memory.services) == sorted({0, 1, 2} - {dead})
        await memory.restart(dead)
        await memory.assert_identical()
        assert memory.services[dead].total == 7

    memory.run(test())


def test_a_majority_goes_on_and_a_minority_does_not(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        old = memory.leader
        assert old is not None
        others = [number for number in range(3) if number != old]
        memory.partition([old], [*others, "client"])
        assert await client.request(b"5") == b"5"
        assert memory.services[old].total == 0
        memory.heal()
        await memory.assert_identical()
        assert memory.services[old].total == 5

    memory.run(test())


def test_what_was_acknowledged_survives_the_loss_of_power(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.request(b"5")
        memory.power_loss()
        assert memory.services == {}
        await memory.restart()
        assert await client.request(b"1") == b"6"

    memory.run(test())


def test_timers_fire_while_time_passes(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.request(b"later 10")
        await memory.advance(4)
        assert (await client.query(b"")).payload == b"0"
        await memory.advance(2)
        assert (await client.query(b"")).payload == b"10"

    memory.run(test())


def test_a_cluster_starts_again_from_its_snapshots(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.request(b"5")
        before = memory.services[0]
        await memory.snapshot_and_restart()
        assert memory.services[0] is not before
        assert await client.request(b"1") == b"6"

    memory.run(test())


def test_members_get_new_code_one_by_one(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.request(b"5")
        await memory.upgrade(Doubling)
        assert await client.request(b"1") == b"7"
        await memory.assert_identical()
        assert {type(service) for service in memory.services.values()} == {Doubling}

    memory.run(test())


def test_code_that_must_not_replay_the_log_says_why_it_does_not_start(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.request(b"5")
        with pytest.raises(ConfigurationError, match="other code"):
            await memory.restart(0, code=Doubling)
        await memory.restart(0, code=Doubling, accept_code=True)
        with pytest.raises(AssertionError, match="different states"):
            await memory.assert_identical()

    memory.run(test())


def test_services_that_differ_are_found() -> None:
    async def test(cluster: MemoryCluster) -> None:
        client = await cluster.connect()
        await client.request(b"1")
        with pytest.raises(AssertionError, match=r"different states .*members=0,1"):
            await cluster.assert_identical()

    with made(Diverging) as cluster:
        cluster.run(test(cluster))


def test_what_a_service_raised_is_kept_for_the_test(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        await client.offer(b"five")
        await memory.settle()
        assert sorted(number for number, _, _ in memory.service_errors) == [0, 1, 2]
        assert {ValueError} == {type(error) for _, _, error in memory.service_errors}

    memory.run(test())


def test_a_test_that_hangs_is_told_where_it_waits(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect(new_leader_timeout_s=1e9, call_timeout_s=1e9)
        memory.kill(0, 1)
        await client.request(b"1")

    with pytest.raises(StillWaitingError) as raised:
        memory.run(test())

    text = str(raised.value)
    assert "test_memory_cluster.py" in text
    assert 'await client.request(b"1")' in text
    assert "ClusterClient.request" in text
    assert "0=down" in text


def test_a_loop_that_lets_no_time_pass_is_told(memory: MemoryCluster) -> None:
    async def test() -> None:
        memory.kill_leader()
        while memory.leader is None:  # noqa: ASYNC110  # what a test should not do
            await asyncio.sleep(0)

    with pytest.raises(StillWaitingError, match="virtual time"):
        memory.run(test())

    assert memory.run(memory.wait_for_leader()) in range(3)


def test_time_that_a_test_lets_pass_is_no_hang(memory: MemoryCluster) -> None:
    memory.run(memory.advance(200))

    assert memory.time_s > 200


def test_one_seed_gives_one_run() -> None:
    def positions(seed: int) -> str:
        with made(seed=seed) as cluster:
            cluster.run(cluster.advance(1))
            return repr(cluster)

    assert positions(3) == positions(3)
    assert positions(3) != positions(4)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda cluster: cluster.kill(3), r"member: 3 .*\[0, 1, 2\]"),
        (lambda cluster: cluster.partition([0, 1, 2]), "at least two"),
        (lambda cluster: cluster.partition([0], [0, 1]), "name once"),
        (lambda cluster: cluster.partition([0], ["leader"]), "member: 'leader'"),
        (lambda cluster: cluster.run(cluster.advance(-1)), "seconds=-1 .* 0"),
        (lambda cluster: cluster.run(cluster.restart(code=Counter())), "is an instance"),
        (lambda cluster: asyncio.run(cluster.connect()), "another event"),
        (lambda cluster: asyncio.run(run_inside(cluster)), "inside another"),
        (lambda cluster: cluster.run(run_inside(cluster)), "write `await` instead"),
    ],
    ids=["member", "one group", "twice", "name", "time", "instance", "other loop", "run in other", "run in run"],
)
def test_wrong_use_says_what_to_do(memory: MemoryCluster, use: Callable[[MemoryCluster], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        use(memory)


async def run_inside(cluster: MemoryCluster) -> None:
    cluster.run(cluster.advance(1))


def test_no_leader_to_kill_is_said(memory: MemoryCluster) -> None:
    memory.kill_leader()

    with pytest.raises(ConfigurationError, match="no member"):
        memory.kill_leader()


@pytest.mark.parametrize("count", [0, 10, True, "3"])
def test_a_number_of_members_that_cannot_be_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="from 1 to 9"):
        MemoryCluster(Counter, members=count)
