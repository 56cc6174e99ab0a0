"""The clients of queues in a cluster whose leaders and workers die, and queues under faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from trimaran import ClusterClient, LocalProtocolError
from trimaran.client.ready_made import QueueClient, QueueJob
from trimaran.cluster.testing import ClientWorkload, MemoryCluster, simulate
from trimaran.service_api.errors import SessionClosedError
from trimaran.service_api.ready_made.queue import (
    AckMessage,
    MessageState,
    QueueService,
    QueueSettings,
    ReceivedMessage,
    ReceiveMessages,
    StaleReceiptError,
)
from trimaran.service_api.ready_made.queue.stored import StoredMessage
from trimaran.service_api.typed import Context, handles, state

# --- clients


@pytest.mark.parametrize("seed", range(3))
def test_every_message_is_done_or_dead_while_leaders_and_workers_die(seed: int) -> None:
    with MemoryCluster(QueueService, seed=seed) as cluster:
        handled: Counter[int] = Counter()
        poison = {7, 23}
        killed = {count: asyncio.Event() for count in (10, 30)}

        async def handle(job: QueueJob) -> None:
            number = int(job.body)
            await asyncio.sleep(0.02)
            if number in poison:
                raise ValueError(f"number={number} is poison")
            handled[number] += 1
            if len(handled) in killed:
                killed[len(handled)].set()

        async def kill() -> None:
            for event in killed.values():
                await event.wait()
                await cluster.restart(cluster.kill_leader())

        async def work(stop: asyncio.Event) -> None:
            queues = QueueClient(await cluster.connect())
            await queues.work("q", handle, concurrency=4, lease_s=2, stop=stop)

        async def die() -> None:
            """Take messages and end the session without a word."""
            queues = QueueClient(await cluster.connect())
            assert await queues.receive("q", limit=3, lease_s=60, with_session=True, wait_s=30)
            await queues.aclose()

        async def test() -> None:
            queues = QueueClient(await cluster.connect())
            await queues.define("q", QueueSettings(max_deliveries=3, backoff_s=0.1))
            stop = asyncio.Event()
            async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
                tasks.create_task(kill())
                tasks.create_task(die())
                for _ in range(3):
                    tasks.create_task(work(stop))
                for number in range(50):
                    await queues.send("q", str(number), key=str(number))
                found = await queues.stats("q")
                while found.ready + found.delayed + found.leased:
                    await queues.receive("none", wait_s=0.5)
                    found = await queues.stats("q")
                stop.set()
            assert set(handled) == set(range(50)) - poison
            dead = [each async for each in queues.dead("q")]
            assert {int(each.body) for each in dead} == poison
            assert {each.reason for each in dead} == {f"ValueError: number={each} is poison" for each in poison}
            await cluster.assert_identical()

        cluster.run(test())


def test_a_receiver_that_waits_is_woken_at_once_and_gives_up_in_time() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            loop = asyncio.get_running_loop()
            one, two = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            began_s = loop.time()
            assert await one.receive("q", wait_s=2.5) == []
            assert 2.5 <= loop.time() - began_s < 3
            waiting = asyncio.ensure_future(one.receive("q", wait_s=60))
            await asyncio.sleep(5.3)
            began_s = loop.time()
            message_id = await two.send("q", "a", headers={"n": "1"})
            (job,) = await waiting
            assert loop.time() - began_s < 0.3
            assert (job.id, job.body, job.headers, job.delivery_count) == (message_id, b"a", {"n": "1"}, 1)
            await job.ack()
            with pytest.raises(StaleReceiptError):
                await job.nack()
            assert (await two.stats("q")).waiters == 0

        cluster.run(test())


def test_a_receiver_that_is_cancelled_waits_no_more() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            one, two = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            waiting = asyncio.ensure_future(one.receive("q", wait_s=60))
            await asyncio.sleep(0.5)
            assert (await two.stats("q")).waiters == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await two.stats("q")).waiters == 0

        cluster.run(test())


def test_a_waiter_whose_neighbour_is_woken_and_dies_receives_within_a_second_or_so() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            loop = asyncio.get_running_loop()
            dying, living, sender = [QueueClient(await cluster.connect()) for _ in range(3)]
            assert await dying.call(ReceiveMessages("q", waiter=1)) == []
            waiting = asyncio.ensure_future(living.receive("q", wait_s=60))
            await asyncio.sleep(0.5)
            began_s = loop.time()

            await sender.send("q", "a")

            assert [job.body for job in await waiting] == [b"a"]
            assert loop.time() - began_s < 1.5

        cluster.run(test())


def test_a_consumer_has_so_many_jobs_at_a_time_and_gives_back_what_it_has_not_given() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues = QueueClient(await cluster.connect())
            for number in range(10):
                await queues.send("q", str(number))
            open_jobs: list[QueueJob] = []
            bodies = []
            jobs = queues.consume("q", concurrency=3, lease_s=30)
            async for job in jobs:
                bodies.append(int(job.body))
                open_jobs.append(job)
                assert (await queues.stats("q")).leased <= 3
                if len(open_jobs) == 3:
                    for each in open_jobs:
                        await each.ack()
                    open_jobs.clear()
                if len(bodies) == 8:
                    break
            assert (await queues.stats("q")).leased == 3
            await jobs.aclose()  # type: ignore[attr-defined]
            assert bodies == list(range(8))
            found = await queues.stats("q")
            assert (found.ready, found.leased) == (2, 2)
            assert [job.delivery_count for job in await queues.receive("q", limit=9)] == [1, 1]

        cluster.run(test())


def test_a_consumer_that_dies_in_the_middle_of_one_of_eight_has_one_failed_delivery() -> None:
    """It does one after the other, so the others were never leased to it."""
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues, other = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            ids = await queues.send_many("q", ["job"] * 8)
            jobs = queues.consume("q", concurrency=8, lease_s=1)
            await (await anext(jobs)).ack()
            dying = await anext(jobs)
            assert (await other.stats("q")).leased == 1

            await asyncio.sleep(3)  # its lease ends: nobody hears of it again

            again = await other.receive("q", limit=9)
            found = {job.id: job.delivery_count for job in again}
            assert found == dict.fromkeys(ids[1:], 1) | {dying.id: 2}
            await jobs.aclose()  # type: ignore[attr-defined]

        cluster.run(test())


def test_a_worker_that_is_cancelled_gives_back_what_it_has_not_done() -> None:
    """Another worker has it at once, and no delivery has failed; what failed by itself before has."""
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues, other = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            running: set[int] = set()
            are_running = asyncio.Event()

            async def handle(job: QueueJob) -> None:
                if job.body == b"fails":
                    raise KeyError("x")
                running.add(job.id)
                if len(running) == 8:
                    are_running.set()
                await asyncio.sleep(60)

            await other.define("q", QueueSettings(backoff_s=100))
            await other.send("q", "fails")
            ids = await other.send_many("q", ["job"] * 9)
            working = asyncio.ensure_future(queues.work("q", handle, concurrency=8))
            await are_running.wait()

            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

            found = await other.stats("q")
            assert (found.ready, found.leased, found.delayed) == (9, 0, 1)
            assert [(job.id, job.delivery_count) for job in await other.receive("q", limit=9)] == [
                (each, 1) for each in ids
            ]

        cluster.run(test())


def test_a_consumer_goes_on_when_a_lease_ends_that_nobody_settled() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues = QueueClient(await cluster.connect())
            await queues.send("q", "a")
            counts = []
            async with asyncio.timeout(30):
                async for job in queues.consume("q", lease_s=1):
                    counts.append(job.delivery_count)
                    if len(counts) == 3:
                        await job.ack()
                        break
            assert counts == [1, 2, 3]

        cluster.run(test())


def test_a_worker_extends_leases_and_drains_when_it_stops() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues, sender = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            stop, begun = asyncio.Event(), asyncio.Event()
            done: list[bytes] = []

            async def handle(job: QueueJob) -> None:
                begun.set()
                await asyncio.sleep(10)
                done.append(job.body)

            working = asyncio.ensure_future(queues.work("q", handle, lease_s=1, stop=stop))
            await sender.send("q", "a")
            await sender.send("q", "b")
            await begun.wait()
            stop.set()
            await working

            assert done == [b"a"]
            found = await sender.stats("q")
            assert (found.ready, found.leased, found.waiters) == (1, 0, 0)

        cluster.run(test())


def test_a_worker_that_is_idle_stops_within_a_second_or_so() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues = QueueClient(await cluster.connect())
            stop = asyncio.Event()

            async def handle(job: QueueJob) -> None:
                raise AssertionError(job)

            working = asyncio.ensure_future(queues.work("q", handle, stop=stop))
            await asyncio.sleep(3)
            stop.set()
            async with asyncio.timeout(1.5):
                await working
            assert (await queues.stats("q")).waiters == 0

        cluster.run(test())


def test_a_handler_whose_lease_is_lost_is_cancelled_and_one_that_fails_is_told_of() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues, other = QueueClient(await cluster.connect()), QueueClient(await cluster.connect())
            stop = asyncio.Event()
            seen: list[str] = []

            async def handle(job: QueueJob) -> None:
                seen.append(job.body.decode())
                if job.body == b"fails":
                    raise KeyError("x")
                if job.body == b"settles":
                    await job.nack(60)
                    return
                try:
                    await other.ack(job.message.receipt)  # somebody else takes the lease away
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    stop.set()
                    raise

            def on_failure(job: QueueJob, error: Exception) -> None:
                seen.append(repr(error))

            for body in ("fails", "settles", "lost"):
                await other.send("q", body)
            await other.define("q", QueueSettings(backoff_s=100))
            async with asyncio.timeout(20):
                await queues.work("q", handle, lease_s=2, stop=stop, on_failure=on_failure)

            assert seen == ["fails", "KeyError('x')", "settles", "lost", "cancelled"]
            found = await other.stats("q")
            assert (found.delayed, found.leased, found.ready) == (2, 0, 0)

        cluster.run(test())


def test_a_handler_that_raises_is_logged_with_its_job() -> None:
    with MemoryCluster(QueueService, logs=True) as cluster:

        async def test() -> None:
            queues, stop = QueueClient(await cluster.connect()), asyncio.Event()

            async def handle(job: QueueJob) -> None:
                stop.set()
                raise KeyError("x")

            await queues.send("q", "fails")
            with capture_logs() as lines:
                await queues.work("q", handle, stop=stop)
            (line,) = [line for line in lines if line["event"] == "queue.job_failed"]
            assert (line["job"], line["reason"]) == ("<QueueJob 'q' id=1 delivery=1>", "KeyError('x')")

        cluster.run(test())


def test_a_worker_ends_with_its_session() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues = QueueClient(await cluster.connect())

            async def handle(job: QueueJob) -> None:
                raise AssertionError(job)

            working = asyncio.ensure_future(queues.work("q", handle))
            await asyncio.sleep(1.5)
            await queues.aclose()
            async with asyncio.timeout(5):
                with pytest.raises(SessionClosedError):
                    await working

        cluster.run(test())


def test_queues_schedules_and_what_is_dead_are_managed() -> None:
    with MemoryCluster(QueueService) as cluster:

        async def test() -> None:
            queues = QueueClient(await cluster.connect())
            chosen = QueueSettings(max_deliveries=1)
            await queues.define("q", chosen)
            assert await queues.settings("q") == chosen
            ids = [await queues.send("q", "a") for _ in range(3)]
            for job in await queues.receive("q", limit=3):
                assert await job.nack(reason="no") is MessageState.DEAD
            assert [each.message_id async for each in queues.dead("q")] == ids
            assert await queues.revive("q", ids[0])
            assert await queues.purge("q", MessageState.DEAD) == 2
            assert await queues.purge("q") == 1
            assert [each.name async for each in queues.queues()] == ["q"]
            assert await queues.delete_queue("q")

            await queues.schedule("often", "q", "tick", cron="* * * * *", priority=2)
            await queues.schedule("once", "q", "past", at=datetime(2020, 1, 1, tzinfo=UTC), headers={"a": "b"})
            (job,) = await queues.receive("q", wait_s=5)
            assert (job.body, job.headers["a"]) == (b"past", "b")
            await job.ack()
            assert [(each.name, each.cron) async for each in queues.schedules()] == [("often", "* * * * *")]
            (job,) = await queues.receive("q", wait_s=90)
            assert (job.body, job.headers["schedule"]) == (b"tick", "often")
            with pytest.raises(LocalProtocolError, match="time zone"):
                await queues.schedule("x", "q", "", at=datetime(2020, 1, 1))
            assert await queues.unschedule("often")

        cluster.run(test())


# --- under faults


class TracedQueues(QueueService):
    """Counts, in the state, what must not happen in the order of the log."""

    held: dict[int, int] = state()
    """The receipt of each message that is leased."""
    done: dict[int, int] = state()
    """How often each message was acknowledged."""
    leased_twice: int = state()

    def _lease(self, ctx: Context, message_id: int, asked: ReceiveMessages, client: bytes) -> ReceivedMessage:
        self.leased_twice += message_id in self.held
        received = super()._lease(ctx, message_id, asked, client)
        self.held[message_id] = received.receipt
        return received

    def _put(self, message_id: int, after: StoredMessage | None) -> None:
        if after is None or not after.receipt:
            self.held.pop(message_id, None)
        super()._put(message_id, after)

    @handles(AckMessage)
    def ack_message(self, ctx: Context, message: AckMessage) -> bool:
        message_id = self._leased(message.receipt)
        super().ack_message(ctx, message)
        self.done[message_id] = self.done.get(message_id, 0) + 1
        return True


class Jobs(ClientWorkload):
    """Clients that send, receive, settle, and sometimes walk away from what they have received."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.acknowledged: Counter[int] = Counter()
        self.count = 0

    async def use(self, client: ClusterClient, random: Random) -> None:
        queues = QueueClient(client)
        self.count += 1
        key = str(self.count)
        name = random.choice("qr")
        if random.random() < 0.6:
            message_id = await queues.send(name, key, key=key, priority=random.randrange(3))
            assert await queues.send(name, key, key=key) == message_id
            self.sent[key] = message_id
        with_session = random.random() < 0.3
        for job in await queues.receive(name, limit=2, lease_s=0.5, wait_s=0.3, with_session=with_session):
            await asyncio.sleep(random.random() * 0.6)
            how = random.choice(("ack", "ack", "nack", "give back", "walk away"))
            with contextlib.suppress(StaleReceiptError):
                if how == "ack":
                    await job.ack()
                    self.acknowledged[job.id] += 1
                elif how == "nack":
                    await job.nack(0.1)
                elif how == "give back":
                    await job.give_back()

    def invariant(self, service: TracedQueues) -> None:
        assert service.leased_twice == 0
        assert set(service.held) == set(service.leases.values())

    def at_rest(self, services: Sequence[Any]) -> None:
        service = services[0]
        for message_id in self.sent.values():
            assert (message_id in service.messages) + service.done.get(message_id, 0) == 1
        assert len(set(self.sent.values())) == len(self.sent)
        assert all(count == 1 for count in self.acknowledged.values())
        assert all(one.state_hash() == service.state_hash() for one in services)


class EagerQueues(TracedQueues):
    """Gives what is leased to the next receiver, if nothing else is ready."""

    def _in_state(self, queue: str, state: MessageState, limit: int, after: int = 0) -> list[int]:
        found = super()._in_state(queue, state, limit, after)
        if state is MessageState.READY and not found:
            return super()._in_state(queue, MessageState.LEASED, limit)
        return found


class LosingQueues(TracedQueues):
    """Removes a message whose lease has ended."""

    def _on_message_due(self, ctx: Context, message_id: int) -> None:
        if self.messages[message_id].state is MessageState.LEASED:
            self._put(message_id, None)
        else:
            super()._on_message_due(ctx, message_id)


@pytest.mark.parametrize("seeds", [1, pytest.param(range(1, 4), marks=pytest.mark.campaign)])
def test_no_message_is_lost_or_leased_twice_under_faults(seeds: int | range) -> None:
    totals = simulate(TracedQueues, Jobs, seeds=seeds, members=3, length=8)

    assert sum(totals.fired.values()) > 0


def test_a_queue_that_gives_a_message_to_two_is_found() -> None:
    with pytest.raises(AssertionError, match="invariant"):
        simulate(EagerQueues, Jobs, seeds=5, members=3, length=8, shrink_runs=0)


def test_a_queue_that_loses_messages_is_found() -> None:
    with pytest.raises(AssertionError, match="at rest"):
        simulate(LosingQueues, Jobs, seeds=5, members=3, length=8, shrink_runs=0)
