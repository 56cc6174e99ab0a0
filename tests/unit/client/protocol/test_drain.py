"""Flushing and ending: what `drain` promises and refuses to promise, and how `aclose` ends in time."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from tests.facts import has_facts
from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, SECOND, Dialogue
from tests.unit.client.fake_member import DEADLINE_S, fake_cluster, new_leader_event, session_event
from tests.waiting import patient, until, within
from trimaran.client import ClientConfig, ClusterClient, IndeterminateError, SessionClosed
from trimaran.client.protocol.client_state import ClientState
from trimaran.client.protocol.drain import DrainTarget
from trimaran.service_api.errors import ClusterTimeoutError, SessionClosedError
from trimaran.service_api.wire.session import EventCode, SessionCloseRequest


def opened() -> Dialogue:
    dialogue = Dialogue()
    dialogue.open()
    return dialogue


def begin_drain(dialogue: Dialogue) -> DrainTarget:
    target = dialogue.protocol.begin_drain()
    assert target is not None
    return target


# --- What the protocol knows


def test_what_was_offered_is_drained_when_the_connection_has_taken_and_sent_it() -> None:
    dialogue = opened()
    protocol = dialogue.protocol
    protocol.offer(b"x")
    target = begin_drain(dialogue)
    before = protocol.is_drained(target, 0)
    protocol.offer(b"y")
    length = len(dialogue.sent_bytes(0))

    assert not before
    assert not protocol.is_drained(target, length)
    assert not protocol.is_drained(target, length // 2 + 1)
    assert protocol.is_drained(target, length // 2)  # y may wait
    protocol.end_drain(target)


def test_a_leader_that_dies_before_a_drain_leaves_the_outcome_unknown_and_that_is_told_once() -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x")
    dialogue.down(0, "reset")

    with pytest.raises(IndeterminateError, match=r"lost.*: reset"):
        dialogue.protocol.begin_drain()
    assert dialogue.protocol.begin_drain() is None


def test_a_leader_that_dies_during_a_drain_is_told_to_everyone_who_waits() -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x")
    first, second = begin_drain(dialogue), begin_drain(dialogue)
    dialogue.down(0, "reset")

    for target in (first, second):
        assert dialogue.protocol.is_drained(target, 0)
        with pytest.raises(IndeterminateError, match=r"lost.*: reset"):
            dialogue.protocol.end_drain(target)
    assert dialogue.protocol.begin_drain() is None


@pytest.mark.parametrize("leader", [0, 2])
def test_a_new_term_leaves_the_outcome_unknown_also_under_the_same_leader(leader: int) -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x")
    dialogue.say(leader, new_leader_event(term=1, leader=leader, endpoints=ENDPOINTS_TEXT))

    with pytest.raises(IndeterminateError, match=r"leader.*changed"):
        dialogue.protocol.begin_drain()


def test_what_was_drained_before_is_not_in_doubt_afterwards_nor_are_keep_alives() -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x" * 100_000)
    target = begin_drain(dialogue)
    dialogue.sent_bytes(0)
    dialogue.protocol.end_drain(target)
    dialogue.wait(5 * SECOND)
    dialogue.down(0)

    assert dialogue.protocol.begin_drain() is None


def test_an_offer_during_a_drain_is_not_settled_by_it() -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x")
    target = begin_drain(dialogue)
    dialogue.protocol.offer(b"y")
    dialogue.sent_bytes(0)
    dialogue.protocol.end_drain(target)
    dialogue.down(0)

    with pytest.raises(IndeterminateError):
        dialogue.protocol.begin_drain()


def test_a_drain_without_offers_ends_quietly_when_the_leader_dies() -> None:
    dialogue = opened()
    target = begin_drain(dialogue)
    dialogue.down(0)

    assert dialogue.protocol.is_drained(target, 0)
    dialogue.protocol.end_drain(target)


def test_after_the_end_there_is_nothing_to_drain() -> None:
    dialogue = opened()
    dialogue.protocol.offer(b"x")
    target = begin_drain(dialogue)
    dialogue.say(0, session_event(EventCode.CLOSED, correlation_id=-1, detail="TIMEOUT"))

    with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
        dialogue.protocol.end_drain(target)
    with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
        dialogue.protocol.begin_drain()


def test_a_session_may_wait_for_a_leader_for_ever() -> None:
    config = ClientConfig(endpoints=tuple(ENDPOINTS.values()), new_leader_timeout_s=math.inf)
    dialogue = Dialogue(config=config)
    dialogue.open()
    for member_id in ENDPOINTS:
        dialogue.down(member_id)
    dialogue.wait(5_000 * SECOND)

    assert dialogue.protocol.state is ClientState.AWAIT_NEW_LEADER


# --- On sockets


async def fill(client: ClusterClient) -> int:
    """Offer until neither the socket nor the window takes more, to a member that does not read."""
    count = 0
    while client.try_offer(bytes(1_000_000)):
        count += 1
        await asyncio.sleep(0)
    return count


async def test_drain_returns_when_all_of_it_is_on_its_way() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        member = cluster.members[0]
        member.is_reading = member.is_echoing = False
        count = await fill(client)
        with pytest.raises(ClusterTimeoutError, match=r"sent: timeout_s=0\.02"):
            await client.drain(0.02)
        member.is_reading = True
        await cluster.notify()
        async with within(DEADLINE_S):
            await client.drain()
        (connection,) = client._conductor._connections.values()

        assert connection.unsent_bytes == 0
        await cluster.until(lambda: len(member.payloads) == count)


async def test_drain_is_over_at_once_when_nothing_was_offered_and_may_be_called_again() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        await client.drain(timeout_s=patient(DEADLINE_S))
        await client.offer(b"x")
        await client.drain(timeout_s=patient(DEADLINE_S))
        await client.drain(timeout_s=patient(DEADLINE_S))


async def test_drain_tells_that_the_leader_died_with_what_it_had_not_taken() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        cluster.members[0].is_reading = False
        await fill(client)
        async with within(DEADLINE_S), asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(drained(client))
            await asyncio.sleep(0)
            tasks.create_task(cluster.members[0].stop())
            cluster.members[0].is_reading = True
            await cluster.notify()

        assert has_facts(draining.result(), "lost", "leader")


async def drained(client: ClusterClient) -> str:
    try:
        await client.drain()
    except IndeterminateError as error:
        return error.reason.partition(":")[0]
    return "sent"


async def test_a_connection_that_has_just_failed_has_sent_nothing_more() -> None:
    """The transport forgets its bytes at once, and says that it is lost a turn of the loop later."""
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        cluster.members[0].is_reading = False
        client.try_offer(bytes(7_000_000))
        (connection,) = client._conductor._connections.values()
        await until(lambda: not connection.is_writable)
        connection.abort()
        reason = await drained(client)
        cluster.members[0].is_reading = True
        await cluster.notify()

        assert has_facts(reason, "lost", "leader")


async def test_a_cancelled_drain_leaves_the_client_as_it_was() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        cluster.members[0].is_reading = False
        await fill(client)
        draining = asyncio.create_task(client.drain())
        await asyncio.sleep(0)
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        cluster.members[0].is_reading = True
        await cluster.notify()

        await client.drain(timeout_s=patient(DEADLINE_S))
        assert client.has_leader


# --- The end


async def test_when_the_leader_confirms_the_close_it_has_all_that_was_offered() -> None:
    async with fake_cluster(1) as cluster:
        member = cluster.members[0]
        member.is_echoing = False
        config = ClientConfig(endpoints=tuple(cluster.endpoints), close_timeout_s=patient(DEADLINE_S))
        client = await ClusterClient.connect(config=config)
        for _ in range(10):
            await client.offer(bytes(1_000_000))
        await client.aclose()

        assert len(member.payloads) == 10
        assert isinstance(member.messages[-1], SessionCloseRequest)
        assert await end_of(client) == SessionClosed("closed by this client", is_confirmed=True)


async def end_of(client: ClusterClient) -> object:
    return [event async for event in client.connection_events()][-1]


async def test_aclose_ends_in_time_when_the_member_takes_nothing_and_says_that_nobody_confirmed() -> None:
    async with fake_cluster(1) as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), close_timeout_s=0.02)
        client = await ClusterClient.connect(config=config)
        cluster.members[0].is_reading = False
        await fill(client)
        async with within(DEADLINE_S):
            await client.aclose()

        assert await end_of(client) == SessionClosed("closed by this client", is_confirmed=False)
        cluster.members[0].is_reading = True
        await cluster.notify()


async def test_any_number_of_acloses_may_run_at_once_and_afterwards() -> None:
    async with fake_cluster() as cluster:
        client = await ClusterClient.connect(cluster.endpoints)
        async with within(DEADLINE_S), asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(client.aclose())
        await client.aclose()

        assert client.is_closed
        await cluster.until(lambda: not any(member.connections for member in cluster.members))
        closes = [m for member in cluster.members for m in member.messages if isinstance(m, SessionCloseRequest)]
        assert len(closes) == 1


async def test_a_cancelled_aclose_leaves_no_connection_behind() -> None:
    async with fake_cluster(1) as cluster:
        client = await ClusterClient.connect(cluster.endpoints)
        cluster.members[0].is_answering = False
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()

        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client.is_closed
        await cluster.until(lambda: not cluster.members[0].connections)


async def test_aclose_without_a_leader_ends_at_once() -> None:
    async with fake_cluster(1) as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), close_timeout_s=patient(10 * DEADLINE_S))
        client = await ClusterClient.connect(config=config)
        await cluster.members[0].stop()
        async with within(DEADLINE_S):
            async for event in client.connection_events():
                if type(event).__name__ == "LeaderLost":
                    break
            await client.aclose()

        assert await end_of(client) == SessionClosed("closed by this client", is_confirmed=False)


SCENARIOS = [
    test for name, test in list(globals().items()) if name.startswith("test_") and inspect.iscoroutinefunction(test)
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_everything_holds_on_uvloop_too(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
