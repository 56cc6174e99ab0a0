"""The demo's sender, against a cluster that answers when it is told to."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from examples.access_quota import AccessQuota, Request
from tests.waiting import passes, patient, until
from trimaran.cluster.cli.demo.demo_errors import DemoFailedError
from trimaran.cluster.cli.demo.request_stream import RequestStream
from trimaran.cluster.testing import ServiceHarness
from trimaran.service_api import SessionClosedError


class FakeCluster:
    """Runs requests in the order in which they came, once each, when the test says so."""

    def __init__(self) -> None:
        self.harness = ServiceHarness(AccessQuota)
        self.incoming: deque[tuple[bytes, asyncio.Future[bytes]]] = deque()
        self.leadership_term_id = 0

    async def request(self, payload: bytes) -> bytes:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.incoming.append((payload, future))
        return await future

    def answer(self, limit: int) -> None:
        """Run some of what has come."""
        for _ in range(min(limit, len(self.incoming))):
            payload, future = self.incoming.popleft()
            future.set_result(self.harness.request(payload))


def make_messages(count: int) -> list[bytes]:
    return [Request(f"host-{i % 3}", i // 4, "/").encode() for i in range(count)]


def make_stream(messages: list[bytes], *, inflight_limit: int = 16, tick_ns: int = 1) -> RequestStream:
    ticks = iter(range(1, 1 << 62, tick_ns))
    return RequestStream(
        messages,
        inflight_limit=inflight_limit,
        on_half_way=lambda: None,
        on_leader=lambda term, member: None,
        clock_ns=lambda: next(ticks),
    )


async def drive(cluster: FakeCluster, running: asyncio.Task[None], *, batch: int = 3) -> None:
    """Let the sender and the cluster take turns until the sender is done."""
    while not running.done():
        await asyncio.sleep(0)
        cluster.answer(batch)
    await running


async def test_every_request_is_answered_once_and_as_in_a_single_process() -> None:
    messages, cluster = make_messages(200), FakeCluster()
    stream = make_stream(messages)

    await drive(cluster, asyncio.create_task(stream.run(cluster, stall_timeout_s=patient(10))))

    alone = ServiceHarness(AccessQuota)
    assert stream.replies == [alone.request(message) for message in messages]
    assert (stream.answered_count, stream.inflight_count) == (200, 0)
    assert stream.failover_ns is None


async def test_the_time_between_two_leaders_replies_is_told() -> None:
    cluster = FakeCluster()
    stream = make_stream(make_messages(120))
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=patient(10)))
    while stream.answered_count < 50:
        await asyncio.sleep(0)
        cluster.answer(3)

    cluster.leadership_term_id = 1
    await drive(cluster, running)

    assert stream.answered_count == 120
    assert stream.failover_ns is not None


async def test_no_more_than_the_limit_is_in_flight() -> None:
    cluster = FakeCluster()
    stream = make_stream(make_messages(100), inflight_limit=10)
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=patient(10)))

    await until(lambda: len(cluster.incoming) >= 10)
    await passes(3)

    assert stream.inflight_count == len(cluster.incoming) == 10
    await drive(cluster, running)


async def test_half_way_is_told_once_with_requests_in_flight() -> None:
    seen: list[tuple[int, int]] = []
    cluster = FakeCluster()
    stream = make_stream(make_messages(100))
    stream._on_half_way = lambda: seen.append((stream.answered_count, stream.inflight_count))

    await drive(cluster, asyncio.create_task(stream.run(cluster, stall_timeout_s=patient(10))))

    assert len(seen) == 1
    assert seen[0][0] == 50
    assert seen[0][1] > 0


async def test_a_cluster_that_answers_nothing_fails_the_demo_in_the_end() -> None:
    stream = make_stream(make_messages(10), inflight_limit=8)

    with pytest.raises(DemoFailedError, match=r"0\.02 s: answered=0 of 10 sent=8"):
        await stream.run(FakeCluster(), stall_timeout_s=0.02)


async def test_a_request_that_fails_fails_the_demo_at_once() -> None:
    cluster = FakeCluster()
    stream = make_stream(make_messages(10))
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=patient(10)))
    await until(lambda: cluster.incoming)

    cluster.incoming[0][1].set_exception(SessionClosedError("timeout"))

    with pytest.raises(DemoFailedError, match=r"request 1 .*reason=timeout"):
        await running


async def test_a_message_that_is_no_reply_fails_the_demo() -> None:
    stream = make_stream(make_messages(2))
    running = asyncio.create_task(stream.run(FakeCluster(), stall_timeout_s=patient(10)))
    await asyncio.sleep(0)

    stream.on_message(0, 0, memoryview(b"x"))

    with pytest.raises(DemoFailedError, match=r"message.*no reply"):
        await running
