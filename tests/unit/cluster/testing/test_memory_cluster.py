"""A cluster in a test: faults, time, restarts, and what a test is told when it is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog

from tests.facts import has_facts
from trimaran import Command, ConfigurationError, Context, Event, TimerMessage, TypedService, handles, on_timer, state
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster, StillWaitingError

from .counting import Counter, Diverging, Doubling


class Tick(Command[None]):
    """Begins the ticking."""


class Next(TimerMessage):
    """A second has passed."""


class Ticked(Event):
    """Sent each second."""


class Struck(Event):
    """Never sent."""


class Clock(TypedService):
    events = (Ticked, Struck)
    tick_count: int = state()

    @handles(Tick)
    def begin(self, ctx: Context, message: Tick) -> None:
        ctx.schedule(Next(), after=1)

    @on_timer(Next)
    def tick(self, ctx: Context, message: Next) -> None:
        self.tick_count += 1
        ctx.broadcast(Ticked())
        ctx.schedule(Next(), after=1)


@contextmanager
def made(service: Any = Counter, **settings: Any) -> Iterator[MemoryCluster]:
    with MemoryCluster(service, **settings) as cluster:
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


def test_a_test_that_reads_an_egress_in_vain_fails_after_sixty_virtual_seconds(memory: MemoryCluster) -> None:
    """Keep-alives wake who reads an egress; that is no progress of the test."""

    async def test() -> None:
        client = await memory.connect()
        await client.offer(b"5")
        async for message in client.egress():
            assert message.payload == b"5"

    with pytest.raises(StillWaitingError, match="60 virtual seconds") as raised:
        memory.run(test())

    assert has_facts(raised.value, f"{__file__}:", "client.egress()", "EgressIterator")
    assert memory.time_s < 90


def test_a_test_that_waits_for_an_event_fails_although_others_come() -> None:
    """What comes is of another class, so the iterator of events goes on and the test does not."""

    async def test(cluster: MemoryCluster) -> None:
        await TypedClient(await cluster.connect()).call(Tick())  # begins the timers, each of which sends a Ticked
        async for _ in TypedClient(await cluster.connect()).events(Struck):
            raise AssertionError("nothing strikes")

    with made(Clock) as cluster:
        with pytest.raises(StillWaitingError) as raised:
            cluster.run(test(cluster))
        assert cluster.services[0].tick_count > 50

    assert "events(Struck)" in str(raised.value)
    assert "TypedClient.events" in str(raised.value)


def test_a_test_that_looks_again_and_again_ends_after_an_hour_of_virtual_time(memory: MemoryCluster) -> None:
    async def test() -> None:
        while memory.leader is not None:  # noqa: ASYNC110  # what a test should not do
            await asyncio.sleep(1)

    with pytest.raises(StillWaitingError, match="3600 virtual seconds"):
        memory.run(test())


def test_an_async_generator_of_the_test_makes_progress(memory: MemoryCluster) -> None:
    async def looks() -> AsyncIterator[int]:
        for _ in range(90):
            await asyncio.sleep(1)
        yield 1

    async def test() -> list[int]:
        return [look async for look in looks()]

    assert memory.run(test()) == [1]


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
        (lambda cluster: cluster.run(cluster.run_async(cluster.advance(1))), "write `await` instead"),
        (lambda cluster: cluster.run(run_inside(cluster)), "write `await` instead"),
    ],
    ids=["member", "one group", "twice", "name", "time", "instance", "other loop", "await in run", "run in run"],
)
def test_wrong_use_says_what_to_do(memory: MemoryCluster, use: Callable[[MemoryCluster], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        use(memory)


async def run_inside(cluster: MemoryCluster) -> None:
    cluster.run(cluster.advance(1))


def test_a_cluster_runs_while_another_loop_runs(memory: MemoryCluster) -> None:
    """As in a cell of a notebook, which is a task of a loop."""

    async def cell() -> int:
        before = asyncio.current_task(), asyncio.get_running_loop()
        client = memory.run(memory.connect())
        total = memory.run(client.request(b"5"))
        assert (asyncio.current_task(), asyncio.get_running_loop()) == before
        await asyncio.sleep(0)
        return int(total)

    assert asyncio.run(cell()) == 5


def test_a_cluster_is_awaited_while_the_other_loop_goes_on(memory: MemoryCluster) -> None:
    async def test() -> bytes:
        client = await memory.connect()
        memory.kill_leader()
        await memory.advance(300)
        return await client.request(b"5")

    async def cell() -> tuple[bytes, int]:
        turns, task = 0, asyncio.create_task(memory.run_async(test()))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return await task, turns

    total, turns = asyncio.run(cell())

    assert total == b"5"
    assert turns > 3


def test_a_cell_that_is_interrupted_ends_its_test(memory: MemoryCluster) -> None:
    ends: list[str] = []

    async def test() -> None:
        try:
            await memory.advance(1e6)
        finally:
            ends.append("ended")

    async def cell() -> None:
        task = asyncio.create_task(memory.run_async(test()))
        await asyncio.sleep(0)
        with pytest.raises(ConfigurationError, match="is driven already"):
            await memory.run_async(memory.advance(1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cell())

    assert ends == ["ended"]
    assert memory.run(memory.wait_for_leader()) in range(3)


def test_a_cluster_logs_only_where_it_is_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    configured = structlog.is_configured()
    with structlog.testing.capture_logs() as lines:
        with made():
            structlog.get_logger().info("of the test")
        quiet = [*lines]
        with made(logs=True):
            pass
    told = capsys.readouterr()

    assert [line["event"] for line in quiet] == ["of the test"]
    assert "election.state_changed" in {line["event"] for line in lines}
    assert told.out == told.err == ""
    assert structlog.is_configured() or not configured


def test_no_leader_to_kill_is_said(memory: MemoryCluster) -> None:
    memory.kill_leader()

    with pytest.raises(ConfigurationError, match="no member"):
        memory.kill_leader()


@pytest.mark.parametrize("count", [0, 10, True, "3"])
def test_a_number_of_members_that_cannot_be_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="from 1 to 9"):
        MemoryCluster(Counter, members=count)
