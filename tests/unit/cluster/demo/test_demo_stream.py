"""The demo's sender and receiver, against a cluster that loses and delays."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from cluster.cli.demo.errors import DemoFailedError
from cluster.cli.demo.stream import RequestStream
from cluster.cli.single_process import InMemorySession, replies_of
from examples.access_quota import AccessQuota, Request
from service_api import ClusterSessionId
from service_api.wire.session import EventCode


class FakeCluster:
    """A leader that answers in batches, and that can be replaced: then what it had not answered is lost."""

    def __init__(self, *, room: int = 8) -> None:
        self.service = AccessQuota()
        self.session = InMemorySession(ClusterSessionId(7))
        self.room = room
        self.incoming: deque[bytes] = deque()
        self.has_leader = True
        self.is_closed = False
        self.leadership_term_id = 0
        self.stream: RequestStream | None = None

    def try_offer(self, payload: bytes) -> bool:
        """Take it if there is room and a leader."""
        if not self.has_leader or len(self.incoming) >= self.room:
            return False
        self.incoming.append(payload)
        return True

    def answer(self, limit: int, *, lose_replies: bool = False) -> None:
        """Apply what has come, and deliver the replies unless they are lost with the leader."""
        assert self.stream is not None
        for _ in range(min(limit, len(self.incoming))):
            self.service.on_session_message(self.session, 0, memoryview(self.incoming.popleft()))
        replies, self.session.replies = self.session.replies, []
        if not lose_replies:
            for reply in replies:
                self.stream.on_message(0, self.leadership_term_id, memoryview(reply))

    def lose_leader(self) -> None:
        """Drop what was not applied; offers find no leader."""
        self.has_leader = False
        self.incoming.clear()

    def elect(self) -> None:
        """A new leader takes over with the state that was applied."""
        assert self.stream is not None
        self.has_leader = True
        self.leadership_term_id += 1
        self.stream.on_new_leader(self.leadership_term_id, 1)


def make_messages(count: int) -> list[bytes]:
    return [Request(i + 1, f"host-{i % 3}", i // 4, "/").encode() for i in range(count)]


def make_stream(
    messages: list[bytes], cluster: FakeCluster, *, inflight_limit: int = 16, tick_ns: int = 1
) -> RequestStream:
    ticks = iter(range(1, 1 << 62, tick_ns))
    stream = RequestStream(
        messages,
        inflight_limit=inflight_limit,
        on_half_way=lambda: None,
        on_leader=lambda term, member: None,
        clock_ns=lambda: next(ticks),
    )
    cluster.stream = stream
    return stream


async def drive(cluster: FakeCluster, running: asyncio.Task[None], *, batch: int = 3) -> None:
    """Let the sender and the cluster take turns until the sender is done."""
    while not running.done():
        await asyncio.sleep(0)
        if cluster.has_leader:
            cluster.answer(batch)
    await running


async def test_every_request_is_answered_once_and_as_in_a_single_process() -> None:
    messages, cluster = make_messages(200), FakeCluster()
    stream = make_stream(messages, cluster)

    await drive(cluster, asyncio.create_task(stream.run(cluster, stall_timeout_s=10)))

    assert stream.replies == await replies_of(AccessQuota(), messages)
    assert (stream.answered_count, stream.repeated_count, stream.resent_count) == (200, 0, 0)
    assert stream.failover_ns is None


@pytest.mark.parametrize("lose_replies", [False, True])
@pytest.mark.parametrize("applied", [0, 1, 5, 8])
async def test_a_new_leader_gets_the_unanswered_requests_again_and_nothing_counts_twice(
    applied: int, lose_replies: bool
) -> None:
    """What the old leader applied without its replies getting through is answered from memory."""
    messages, cluster = make_messages(120), FakeCluster(room=8)
    stream = make_stream(messages, cluster)
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=10))
    while stream.answered_count < 50:
        await asyncio.sleep(0)
        cluster.answer(3)
    await asyncio.sleep(0)

    cluster.answer(applied, lose_replies=lose_replies)
    cluster.lose_leader()
    for _ in range(3):
        await asyncio.sleep(0)
    cluster.elect()
    await drive(cluster, running)

    assert stream.replies == await replies_of(AccessQuota(), messages)
    assert (stream.answered_count, stream.repeated_count, stream.foreign_count) == (120, 0, 0)
    assert (stream.resent_count > 0) == (lose_replies or applied < 8)
    assert stream.failover_ns is not None


async def test_no_more_than_the_limit_is_in_flight() -> None:
    cluster = FakeCluster(room=1_000)
    stream = make_stream(make_messages(100), cluster, inflight_limit=10)
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=10))

    await asyncio.sleep(0)

    assert stream.inflight_count == len(cluster.incoming) == 10
    await drive(cluster, running)


async def test_half_way_is_told_once_with_requests_in_flight() -> None:
    seen: list[tuple[int, int]] = []
    cluster = FakeCluster()
    stream = make_stream(make_messages(100), cluster)
    stream._on_half_way = lambda: seen.append((stream.answered_count, stream.inflight_count))

    await drive(cluster, asyncio.create_task(stream.run(cluster, stall_timeout_s=10)))

    assert len(seen) == 1
    assert seen[0][0] == 50
    assert seen[0][1] > 0


async def test_a_cluster_that_answers_nothing_fails_the_demo_in_the_end() -> None:
    cluster = FakeCluster()
    stream = make_stream(make_messages(10), cluster, tick_ns=10_000_000_000)

    with pytest.raises(DemoFailedError, match="no reply for 30 s: answered=0 of 10 sent=8"):
        await stream.run(cluster, stall_timeout_s=30)


async def test_a_closed_session_fails_the_demo_at_once() -> None:
    cluster = FakeCluster(room=100)
    stream = make_stream(make_messages(10), cluster)
    running = asyncio.create_task(stream.run(cluster, stall_timeout_s=10))
    await asyncio.sleep(0)

    cluster.is_closed = True
    stream.on_session_event(EventCode.CLOSED, "timeout")

    with pytest.raises(DemoFailedError, match="session ended"):
        await running


def test_repeated_and_foreign_replies_are_counted() -> None:
    stream = make_stream(make_messages(2), FakeCluster())

    for reply in (b"1\tallowed\t9", b"1\tallowed\t9", b"3\tallowed\t9", b"0\tmalformed\t0", b"x"):
        stream.on_message(0, 0, memoryview(reply))

    assert (stream.answered_count, stream.repeated_count, stream.foreign_count) == (1, 1, 3)
