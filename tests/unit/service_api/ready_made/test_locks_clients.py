"""The clients of locks in a cluster whose leaders die, and locks under faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from trimaran import ClusterClient
from trimaran.client.ready_made import ElectionClient, LocksClient, LockTimeoutError
from trimaran.cluster.testing import ClientWorkload, MemoryCluster, simulate
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.locks.service import LockClaim


@pytest.mark.parametrize("seed", range(3))
def test_no_waiter_waits_for_ever_while_leaders_die(seed: int) -> None:
    with MemoryCluster(LockService, seed=seed) as cluster:
        tokens: list[int] = []
        has_worked = {count: asyncio.Event() for count in (3, 8)}
        holding: list[int] = []

        async def work(locks: LocksClient, number: int) -> None:
            for _ in range(4):
                async with locks.lock("a") as lock:
                    holding.append(number)
                    tokens.append(lock.token)
                    if len(tokens) in has_worked:
                        has_worked[len(tokens)].set()
                    await asyncio.sleep(0.05)
                    assert holding == [number]
                    holding.remove(number)

        async def kill() -> None:
            for event in has_worked.values():
                await event.wait()
                await cluster.restart(cluster.kill_leader())

        async def test() -> None:
            clients = [LocksClient(await cluster.connect()) for _ in range(3)]
            async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
                tasks.create_task(kill())
                for number, each in enumerate(clients):
                    tasks.create_task(work(each, number))
            assert len(tokens) == 12
            assert tokens == sorted(set(tokens))
            assert [each async for each in clients[0].scan()] == []
            await cluster.assert_identical()

        cluster.run(test())


def test_a_name_with_control_characters_is_shown_and_never_done() -> None:
    """Errors and log lines are read in terminals."""
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            one, two = LocksClient(await cluster.connect()), LocksClient(await cluster.connect())
            name = "a\x1b[2J\nb"
            async with one.lock(name) as lock:
                with pytest.raises(LockTimeoutError) as refused:
                    await two.acquire(name, timeout_s=0.1)
                assert repr(lock).isprintable()
                assert str(refused.value).isprintable()
                assert repr(name) in repr(lock)

        cluster.run(test())


def test_a_wait_ends_in_time_and_leaves_nothing() -> None:
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            one, two = LocksClient(await cluster.connect()), LocksClient(await cluster.connect())
            async with one.lock("a", value="one") as lock:
                with pytest.raises(LockTimeoutError, match=r"lock='a' .*timeout_s=0\.5"):
                    await two.acquire("a", timeout_s=0.5)
                assert await two.try_acquire("a") is None
                waiting = asyncio.ensure_future(two.acquire("a"))
                await asyncio.sleep(0.2)
                assert (await one.inspect("a")).waiters
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
                state = await one.inspect("a")
                assert [(each.value, each.token) for each in state.holders] == [(b"one", lock.token)]
                assert state.waiters == []
            async with two.lock("a", shared=True), one.lock("a", shared=True, timeout_s=1):
                pass

        cluster.run(test())


def test_a_lease_is_renewed_and_is_lost_when_no_leader_answers() -> None:
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            locks = LocksClient(await cluster.connect())
            held = await locks.acquire("a", lease_s=1)
            await asyncio.sleep(5)
            assert not held.lost.is_set()
            assert (await locks.inspect("a")).holders[0].token == held.token

            first = cluster.kill_leader()
            dead = [first, (first + 1) % 3]
            cluster.kill(dead[1])
            async with asyncio.timeout(5):
                await held.lost.wait()
            assert await held.release() is False
            await cluster.restart(*dead)

        cluster.run(test())


@pytest.mark.parametrize("cut_after_s", [0.0, 0.1, 1.2])
def test_a_lease_is_lost_by_the_clock_before_another_has_the_lock(cut_after_s: float) -> None:
    """Also before the first renewal, which has the schema of its class put in the log."""
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            loop = asyncio.get_running_loop()
            locks = LocksClient(await cluster.connect())
            asked_s = loop.time()
            held = await locks.acquire("a", lease_s=3)
            await asyncio.sleep(cut_after_s)
            cluster.partition(["client"], [0, 1, 2])
            async with asyncio.timeout_at(asked_s + cut_after_s + 3.01):
                await held.lost.wait()
            assert await held.release() is False

        cluster.run(test())


def test_a_lock_whose_grant_took_longer_than_its_lease_is_lost_at_once() -> None:
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            locks = LocksClient(await cluster.connect())
            await locks.acquire("b")
            asked = asyncio.ensure_future(locks.acquire("a", lease_s=0.5))
            await asyncio.sleep(0)
            cluster.partition(["client"], [0, 1, 2])
            await asyncio.sleep(1)
            cluster.heal()
            held = await asked
            assert held.lost.is_set()

        cluster.run(test())


def test_a_lock_is_lost_with_its_session() -> None:
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            one, two = LocksClient(await cluster.connect()), LocksClient(await cluster.connect())
            held = await one.acquire("a")
            await one.aclose()
            async with asyncio.timeout(5):
                await held.lost.wait()
            assert (await two.acquire("a", timeout_s=5)).token > held.token

        cluster.run(test())


def test_an_election_has_one_leader_after_the_other() -> None:
    with MemoryCluster(LockService) as cluster:

        async def test() -> None:
            one, two, third = [ElectionClient(await cluster.connect()) for _ in range(3)]
            assert await third.leader("a") is None
            leading = await one.campaign("a", value="one")
            candidate = asyncio.ensure_future(two.campaign("a", value="two"))
            leaders = third.observe("a")
            first = await anext(leaders)
            assert (first.value, first.token) == (b"one", leading.token)

            assert await leading.resign()
            second = await anext(leaders)

            assert (second.value, second.token) == (b"two", (await candidate).token)
            assert second.token > first.token

        cluster.run(test())


class Holders(ClientWorkload):
    """Clients that take two locks, exclusive and shared, with and without leases, and keep some past the round.

    After each entry a lock has one exclusive holder, or shared ones, and every new grant has a greater token than the
    grants of this lock before it; of shared holders the newest may be the first to leave.
    """

    def __init__(self) -> None:
        self.exclusive: dict[str, list[int]] = {"a": [], "b": []}
        self.granted: WeakKeyDictionary[LockService, dict[str, set[int]]] = WeakKeyDictionary()

    async def use(self, client: ClusterClient, random: Random) -> None:
        locks = LocksClient(client)
        name, is_shared = random.choice("ab"), random.random() < 0.3
        lease_s = random.choice((None, 0.5))
        with contextlib.suppress(LockTimeoutError):
            held = await locks.acquire(name, shared=is_shared, timeout_s=2, lease_s=lease_s)
            try:
                if not is_shared:
                    self.exclusive[name].append(held.token)
                await asyncio.sleep(random.random() * 0.2)
            finally:
                await held.release()

    def invariant(self, service: LockService) -> None:
        granted = self.granted.setdefault(service, {})
        for name, keys in service.holders.items():
            claims = [service.claims[key] for key in keys]
            assert len(claims) == 1 or not any(claim.is_exclusive for claim in claims)
            tokens = [claim.token for claim in claims]
            assert all(tokens)
            assert tokens == sorted(tokens)
            before = granted.setdefault(name, set())
            assert all(token > max(before, default=0) for token in tokens if token not in before)
            before.update(tokens)

    def at_rest(self, services: Sequence[Any]) -> None:
        for tokens in self.exclusive.values():
            assert len(tokens) == len(set(tokens))
        assert all(one.state_hash() == services[0].state_hash() for one in services)


class EagerLocks(LockService):
    """Grants a lock to everyone."""

    def _admits(self, holders: tuple[tuple[int, int], ...], claim: LockClaim) -> bool:
        return True


def test_locks_have_one_holder_under_faults() -> None:
    totals = simulate(LockService, Holders, seeds=3, members=3, length=8)

    assert sum(totals.fired.values()) > 0


def test_a_service_that_grants_a_lock_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="invariant"):
        simulate(EagerLocks, Holders, seeds=5, members=3, length=8, shrink_runs=0)
