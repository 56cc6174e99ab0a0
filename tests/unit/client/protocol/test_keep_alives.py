"""A member whose process stands still keeps its connections: what the answers to keep-alives say, and their absence."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, MS, SECOND, Dialogue
from tests.unit.client.fake_member import new_leader_event, session_event, session_message
from trimaran.client.connection_events import LeaderLost, SessionClosed
from trimaran.client.errors import RejectedError
from trimaran.client.protocol.client_state import ClientState
from trimaran.service_api.types import CorrelationId
from trimaran.service_api.wire.session import EventCode, KeepAliveAnswer, SessionKeepAlive, SessionLimits

INTERVAL_NS = 2_500 * MS
TIMEOUT_NS = 10 * SECOND


class Answering(Dialogue):
    """A session that is open on member 0 in term 4, with members that answer keep-alives while they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.up(0)
        correlation_id = self.correlation_id(0)
        self.say(0, SessionLimits(max_message_length=1 << 20, session_timeout_ms=TIMEOUT_NS // MS))
        self.say(0, session_event(EventCode.OK, correlation_id=correlation_id, term=4, detail=ENDPOINTS_TEXT))
        self.up(1, 2)
        for member_id in ENDPOINTS:
            self.sent(member_id)

    def state(self) -> ClientState:
        return self.protocol.state

    def answer(self, member_id: int = 0, *, is_leader: bool = True, sent_ns: int | None = None) -> None:
        asked_ns = self.now_ns if sent_ns is None else sent_ns
        self.say(member_id, KeepAliveAnswer(correlation_id=CorrelationId(asked_ns), is_leader=int(is_leader)))

    def pass_time(self, duration_ns: int) -> None:
        """Let time pass; what the client sends is taken by the sockets."""
        end_ns = self.now_ns + duration_ns
        while self.now_ns < end_ns:
            self.wait(min(INTERVAL_NS // 5, end_ns - self.now_ns))
            for member_id in ENDPOINTS:
                self.sent(member_id)


def test_a_leader_that_answered_and_answers_no_more_is_given_up_like_a_connection_that_is_gone() -> None:
    dialogue = Answering()
    dialogue.answer()
    leading = dialogue.connection(0)

    dialogue.pass_time(2 * INTERVAL_NS)
    assert dialogue.state() is ClientState.OPEN
    dialogue.pass_time(INTERVAL_NS)

    assert dialogue.state() is ClientState.AWAIT_NEW_LEADER
    assert leading in dialogue.disconnected
    assert dialogue.connection(0) != leading  # dialled again
    dialogue.up(0)
    dialogue.pass_time(10 * SECOND)
    events = [dialogue.protocol.events.event(number) for number in range(dialogue.protocol.events.total_count)]
    assert [type(event) for event in events if isinstance(event, LeaderLost | SessionClosed)] == [
        LeaderLost,
        SessionClosed,
    ]


def test_a_leader_that_is_given_up_and_comes_back_leads_on() -> None:
    dialogue = Answering()
    dialogue.answer()
    dialogue.pass_time(3 * INTERVAL_NS)
    dialogue.up(0)

    dialogue.say(0, new_leader_event(term=4, leader=0, endpoints=ENDPOINTS_TEXT))

    assert dialogue.state() is ClientState.OPEN


def test_a_member_that_never_answered_is_not_given_up() -> None:
    """It is of an earlier version, or Aeron's."""
    dialogue = Answering()
    dialogue.answer(1, is_leader=False)
    dialogue.answer(2, is_leader=False)

    dialogue.pass_time(20 * INTERVAL_NS)

    assert dialogue.state() is ClientState.OPEN
    assert dialogue.protocol.alive_until_ns > dialogue.now_ns


@pytest.mark.parametrize("is_answer", [True, False])
def test_whatever_a_leader_sends_says_that_it_runs(is_answer: bool) -> None:
    dialogue = Answering()
    dialogue.answer()

    for _ in range(10):
        dialogue.pass_time(INTERVAL_NS)
        if is_answer:
            dialogue.answer()
        else:
            dialogue.say(0, session_message(b"tick", term=4, session_id=7))

    assert dialogue.state() is ClientState.OPEN


def test_a_follower_that_answered_is_watched_once_it_leads() -> None:
    dialogue = Answering()
    dialogue.answer(1, is_leader=False)
    dialogue.say(1, new_leader_event(term=5, leader=1, endpoints=ENDPOINTS_TEXT))
    assert dialogue.protocol.leader_member_id == 1

    dialogue.pass_time(3 * INTERVAL_NS)

    assert dialogue.state() is ClientState.AWAIT_NEW_LEADER


def test_a_leader_that_says_that_it_does_not_lead_any_more_is_no_leader() -> None:
    """As one that has lost its followers: nobody else says so."""
    dialogue = Answering()
    dialogue.answer()

    dialogue.answer(1, is_leader=False)
    assert dialogue.state() is ClientState.OPEN
    dialogue.answer(0, is_leader=False)

    assert dialogue.state() is ClientState.AWAIT_NEW_LEADER
    dialogue.say(0, new_leader_event(term=5, leader=0, endpoints=ENDPOINTS_TEXT))
    assert dialogue.state() is ClientState.OPEN


def test_silence_says_nothing_while_this_client_does_not_read() -> None:
    dialogue = Answering()
    dialogue.answer()
    dialogue.protocol.is_reading = False

    dialogue.pass_time(10 * INTERVAL_NS)
    dialogue.protocol.is_reading = True
    dialogue.pass_time(INTERVAL_NS)

    assert dialogue.state() is ClientState.OPEN


def test_a_client_that_stood_still_reads_before_it_judges() -> None:
    dialogue = Answering()
    dialogue.answer()
    dialogue.pass_time(INTERVAL_NS)

    dialogue.now_ns += 100 * SECOND
    dialogue.protocol.poll(dialogue.now_ns)
    dialogue.answer(sent_ns=dialogue.now_ns - 100 * SECOND)
    dialogue.protocol.poll(dialogue.now_ns)

    assert dialogue.state() is ClientState.OPEN


def begin(dialogue: Dialogue) -> asyncio.Future[bytes]:
    """Make a request as the conductor does."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    if dialogue.now_ns >= dialogue.protocol.alive_until_ns:
        dialogue.protocol.doubt(dialogue.now_ns)
    dialogue.protocol.requests.submit(future, b"x", 1 << 62)
    return future


async def test_a_request_after_a_long_stop_waits_until_the_session_is_known_to_be_open() -> None:
    dialogue = Answering()
    dialogue.answer()
    stopped_ns = dialogue.now_ns
    dialogue.now_ns += 14 * SECOND

    begin(dialogue)
    assert [type(message) for message in dialogue.sent(0)] == [SessionKeepAlive]
    dialogue.answer(sent_ns=stopped_ns)  # it was in the socket all the time
    assert dialogue.sent(0) == []
    dialogue.answer()

    assert len(dialogue.sent(0)) == 1
    begin(dialogue)
    assert len(dialogue.sent(0)) == 1


@pytest.mark.parametrize("is_timer_first", [True, False])
async def test_a_request_after_the_session_was_over_is_rejected(is_timer_first: bool) -> None:
    """Also where the timer of keep-alives runs before the request is made."""
    dialogue = Answering()
    dialogue.answer()
    dialogue.now_ns += 14 * SECOND
    if is_timer_first:
        dialogue.protocol.poll(dialogue.now_ns)

    future = begin(dialogue)
    dialogue.say(0, session_event(EventCode.CLOSED, term=4, detail="TIMEOUT"))

    with pytest.raises(RejectedError, match="TIMEOUT"):
        await future


async def test_a_member_that_answers_no_keep_alives_holds_nothing_back() -> None:
    dialogue = Answering()
    dialogue.now_ns += 14 * SECOND

    begin(dialogue)

    assert len(dialogue.sent(0)) == 1
