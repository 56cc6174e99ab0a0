"""The events of a client's connections: what the protocol notes, and the stream that tells it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, SECOND, Dialogue
from tests.unit.client.fake_member import DEADLINE_S, fake_cluster, new_leader_event, session_event
from tests.waiting import within
from trimaran.client import (
    ClientConfig,
    ClusterClient,
    Connected,
    ConnectionEvent,
    Disconnected,
    LeaderLost,
    NewLeader,
    SessionClosed,
    SessionOpened,
)
from trimaran.client.connection_events import ConnectionEventLog
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import ClusterSessionId, MemberId, TermId
from trimaran.service_api.wire.session import EventCode

M0, M1, M2 = (MemberId(number) for number in range(3))


def kept(dialogue: Dialogue) -> list[ConnectionEvent]:
    log = dialogue.protocol.events
    return [log.event(number) for number in range(log.first_number, log.total_count)]


def opened_dialogue() -> tuple[Dialogue, int]:
    """An open session on member 0, and how many events that took."""
    dialogue = Dialogue()
    dialogue.open()
    return dialogue, len(kept(dialogue))


def test_a_session_that_opens_tells_its_connections_and_itself() -> None:
    dialogue = Dialogue()
    dialogue.open(leader=0)

    assert kept(dialogue) == [
        Connected(ENDPOINTS[0], None),
        SessionOpened(ClusterSessionId(7), TermId(0), M0),
        Connected(ENDPOINTS[1], M1),
        Connected(ENDPOINTS[2], M2),
    ]


def test_a_leader_that_dies_is_told_with_the_reason_and_the_next_one_with_its_term() -> None:
    dialogue, count = opened_dialogue()
    dialogue.down(0, "connection reset by peer")
    dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))

    assert kept(dialogue)[count:] == [
        Disconnected(ENDPOINTS[0], M0, "connection reset by peer"),
        LeaderLost("connection reset by peer"),
        NewLeader(TermId(1), M2),
    ]


def test_a_follower_that_dies_takes_no_leader_with_it_and_dials_that_fail_are_not_told() -> None:
    dialogue, count = opened_dialogue()
    dialogue.down(1, "closed by the member")
    dialogue.wait(SECOND // 10)
    dialogue.down(1, "connection refused")
    dialogue.wait(SECOND // 2)  # a member that is gone is dialled less while another is connected
    dialogue.up(1)

    assert kept(dialogue)[count:] == [
        Disconnected(ENDPOINTS[1], M1, "closed by the member"),
        Connected(ENDPOINTS[1], M1),
    ]


def test_a_new_leader_that_is_not_connected_yet_means_no_leader_until_it_is() -> None:
    dialogue, _ = opened_dialogue()
    dialogue.down(2)
    count = len(kept(dialogue))
    dialogue.say(1, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))
    lost = kept(dialogue)[count:]
    dialogue.wait(SECOND // 10)
    dialogue.up(2)
    dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))

    assert lost == [LeaderLost("no connection to the new leader yet: leader_member_id=2")]
    assert kept(dialogue)[count + 1 :] == [Connected(ENDPOINTS[2], M2), NewLeader(TermId(1), M2)]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_the_end_comes_last_and_says_whether_the_cluster_knows(is_asked_for: bool) -> None:
    dialogue, count = opened_dialogue()
    if is_asked_for:
        dialogue.protocol.close(dialogue.now_ns)
    dialogue.say(0, session_event(EventCode.CLOSED, correlation_id=-1, detail="TIMEOUT"))

    reason = "closed by this client" if is_asked_for else "TIMEOUT"
    assert kept(dialogue)[count:] == [
        *(Disconnected(endpoint, MemberId(member), reason) for member, endpoint in ENDPOINTS.items()),
        SessionClosed(reason, is_confirmed=True),
    ]


def test_an_end_that_no_leader_confirmed_says_so() -> None:
    dialogue, _ = opened_dialogue()
    dialogue.protocol.close(dialogue.now_ns)
    dialogue.wait(SECOND)

    assert kept(dialogue)[-1] == SessionClosed("closed by this client", is_confirmed=False)


def test_a_session_given_up_for_want_of_a_leader_is_not_confirmed() -> None:
    dialogue, _ = opened_dialogue()
    dialogue.down(0)
    dialogue.wait(30 * SECOND)

    last = kept(dialogue)[-1]
    assert isinstance(last, SessionClosed)
    assert not last.is_confirmed
    assert "state=AWAIT_NEW_LEADER" in last.reason


def test_the_log_keeps_the_newest() -> None:
    log = ConnectionEventLog(2)
    for number in range(5):
        log.append(LeaderLost(str(number)))

    assert (log.first_number, log.total_count) == (3, 5)
    assert [log.event(number) for number in (3, 4)] == [LeaderLost("3"), LeaderLost("4")]


def test_room_for_no_event_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="connection_event_limit=0"):
        ClientConfig(endpoints=("host:1",), connection_event_limit=0)


async def test_every_reader_gets_the_story_from_its_beginning_to_its_end() -> None:
    async with fake_cluster() as cluster:
        client = await ClusterClient.connect(cluster.endpoints)
        await cluster.until(lambda: all(member.keep_alives for member in cluster.members))

        async def read() -> list[ConnectionEvent]:
            return [event async for event in client.connection_events()]

        async with within(DEADLINE_S), asyncio.TaskGroup() as tasks:
            early = tasks.create_task(read())
            await asyncio.sleep(0)
            await cluster.members[0].stop()
            await cluster.elect(1)
            async for event in client.connection_events():
                if isinstance(event, NewLeader):
                    break
            await client.aclose()
        late = await read()

    assert early.result() == late
    told = [event for event in late if not isinstance(event, Connected | Disconnected)]
    assert [type(event) for event in told] == [SessionOpened, LeaderLost, NewLeader, SessionClosed]
    assert told[2:] == [NewLeader(TermId(1), M1), SessionClosed("closed by this client", is_confirmed=True)]


async def test_a_slow_reader_is_told_how_much_it_missed() -> None:
    async with fake_cluster() as cluster:
        config = ClientConfig(endpoints=tuple(cluster.endpoints), connection_event_limit=2)
        async with ClusterClient.connect(config=config) as client:
            events = client.connection_events()
            await cluster.until(lambda: all(member.keep_alives for member in cluster.members))
        total = client._protocol.events.total_count
        missed_before = client._protocol.events.first_number
        read = [event async for event in events]

    assert len(read) == 2
    assert 0 < events.dropped_count <= missed_before == total - 2
    assert read[-1] == SessionClosed("closed by this client", is_confirmed=True)


async def test_waiting_for_an_event_can_be_cancelled_and_begun_again() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        events = client.connection_events()
        assert [type(await anext(events)) for _ in range(2)] == [Connected, SessionOpened]
        with pytest.raises(TimeoutError):
            async with within(0.01):
                await anext(events)
        await cluster.members[0].stop()

        async with within(DEADLINE_S):
            assert isinstance(await anext(events), Disconnected)


SCENARIOS = [
    test for name, test in list(globals().items()) if name.startswith("test_") and inspect.iscoroutinefunction(test)
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_everything_holds_on_uvloop_too(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
