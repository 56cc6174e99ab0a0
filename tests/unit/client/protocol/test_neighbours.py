"""What sessions of one process tell each other: who leads, and whose turn it is to dial a member that is gone."""

from __future__ import annotations

import asyncio

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, SECOND, Dialogue
from tests.unit.client.fake_member import session_event
from trimaran.client.protocol.client_state import ClientState
from trimaran.client.protocol.neighbours import DIAL_INTERVAL_NS, Neighbours
from trimaran.client.protocol.queries import QueryOptions
from trimaran.service_api.net.transport import SOCKETS, SocketStack
from trimaran.service_api.wire.session import EventCode, SessionConnectRequest

ENDPOINT = "10.0.0.1:9000"
GROUP = (ENDPOINT, "10.0.0.2:9000")
GIVEN = tuple(ENDPOINTS.values())


class Session:
    """Remembers when it was told to dial."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def hurry(self, endpoint: str, dial_at_ns: int) -> None:
        self.told.append((endpoint, dial_at_ns))

    def dial_spared(self, dial_at_ns: int) -> None:
        self.told.append(("spared", dial_at_ns))


def test_one_session_dials_a_lost_member_and_the_others_have_their_turns() -> None:
    neighbours, sessions = Neighbours(), [Session() for _ in range(5)]
    neighbours.note_lost(ENDPOINT, 0)

    turns = [neighbours.turn_ns(ENDPOINT, session, 0) for session in sessions]

    assert turns == [0, *(DIAL_INTERVAL_NS * place for place in range(1, 5))]
    assert neighbours.turn_ns(ENDPOINT, sessions[1], DIAL_INTERVAL_NS) == DIAL_INTERVAL_NS
    assert neighbours.turn_ns(ENDPOINT, sessions[2], DIAL_INTERVAL_NS) > DIAL_INTERVAL_NS


def test_dials_of_a_member_that_is_gone_are_bounded_however_many_sessions_there_are() -> None:
    """Ten thousand sessions, for ten seconds: each asks when it was told to."""
    neighbours, count, end_ns = Neighbours(), 10_000, 10_000_000_000
    due = [(0, number, Session()) for number in range(count)]
    neighbours.note_lost(ENDPOINT, 0)
    dials = asked = 0

    while due:
        later = []
        for at_ns, number, session in sorted(due, key=lambda one: one[:2]):
            asked += 1
            turn_ns = neighbours.turn_ns(ENDPOINT, session, at_ns)
            dials += turn_ns == at_ns
            neighbours.note_lost(ENDPOINT, at_ns)
            next_ns = turn_ns if turn_ns > at_ns else at_ns + 500_000_000
            if next_ns < end_ns:
                later.append((next_ns, number, session))
        due = later

    assert 100 <= dials <= end_ns // DIAL_INTERVAL_NS + 1
    assert asked <= count * 8


def test_all_are_told_when_one_has_got_through_a_little_apart() -> None:
    neighbours, sessions = Neighbours(), [Session() for _ in range(4)]
    neighbours.note_lost(ENDPOINT, 0)
    for session in sessions:
        neighbours.turn_ns(ENDPOINT, session, 0)

    neighbours.note_reached(ENDPOINT, 1_000)

    assert sessions[0].told == []  # it was its dial
    times = [session.told[0][1] for session in sessions[1:]]
    assert times == sorted(set(times))
    assert times[0] == 1_000
    assert neighbours.turn_ns(ENDPOINT, sessions[3], 1_000) == 1_000


def test_session_that_has_ended_is_not_told() -> None:
    neighbours, ended, waiting = Neighbours(), Session(), Session()
    neighbours.note_lost(ENDPOINT, 0)
    for session in (Session(), ended, waiting):
        neighbours.turn_ns(ENDPOINT, session, 0)

    neighbours.forget(ended)
    neighbours.note_reached(ENDPOINT, 5)

    assert (ended.told, waiting.told) == ([], [(ENDPOINT, 5)])


def test_leader_is_remembered_until_it_is_lost_by_those_who_were_given_the_same_endpoints() -> None:
    neighbours = Neighbours()
    neighbours.note_leader(GROUP, ENDPOINT, 0)

    assert neighbours.leader_of(GROUP) == ENDPOINT
    assert neighbours.leader_of((ENDPOINT,)) is None
    neighbours.forget_leader(GROUP, "10.0.0.2:9000")
    assert neighbours.leader_of(GROUP) == ENDPOINT
    neighbours.forget_leader(GROUP, ENDPOINT)
    assert neighbours.leader_of(GROUP) is None


def test_memory_of_leaders_is_bounded() -> None:
    neighbours = Neighbours()

    for number in range(200):
        neighbours.note_leader((f"10.0.0.1:{number + 1}",), ENDPOINT, 0)

    assert repr(neighbours) == "<Neighbours leaders=64 unreachable=[]>"
    assert neighbours.leader_of(("10.0.0.1:200",)) == ENDPOINT


async def test_sessions_of_one_loop_and_network_are_neighbours() -> None:
    loop, other = asyncio.get_running_loop(), SocketStack()

    assert Neighbours.of(loop, SOCKETS) is Neighbours.of(loop, SOCKETS)
    assert Neighbours.of(loop, other) is not Neighbours.of(loop, SOCKETS)


class TestSearch:
    """A connecting session asks first whom a neighbour has found leading, and connects to the others later."""

    def search(self) -> Dialogue:
        neighbours = Neighbours()
        neighbours.note_leader(GIVEN, ENDPOINTS[2], 0)
        return Dialogue(neighbours=neighbours)

    def test_the_leader_of_a_neighbour_is_dialled_and_asked_alone(self) -> None:
        dialogue = self.search()

        assert [*dialogue.dialled] == [ENDPOINTS[2]]
        dialogue.up(2)

        (request,) = dialogue.sent(2)
        assert isinstance(request, SessionConnectRequest)

    def test_the_others_are_dialled_two_seconds_later(self) -> None:
        dialogue = opened(2)

        dialogue.wait(2 * SECOND - 1)
        assert [*dialogue.dialled] == [ENDPOINTS[2]]
        dialogue.wait(1)

        assert sorted(dialogue.dialled) == sorted(GIVEN)

    def test_one_that_cannot_be_reached_is_not_waited_for(self) -> None:
        dialogue = self.search()

        dialogue.down(2)
        dialogue.wait(0)
        dialogue.up(0)

        (request,) = dialogue.sent(0)
        assert isinstance(request, SessionConnectRequest)

    def test_one_that_does_not_answer_the_dial_is_left_after_a_while(self) -> None:
        dialogue = self.search()
        assert [*dialogue.dialled] == [ENDPOINTS[2]]

        dialogue.wait(SECOND // 4)
        dialogue.up(0)

        (request,) = dialogue.sent(0)
        assert isinstance(request, SessionConnectRequest)

    def test_one_that_does_not_answer_the_request_is_left_after_a_while(self) -> None:
        dialogue = self.search()
        dialogue.up(2)

        dialogue.wait(3 * SECOND // 2)

        assert sorted(dialogue.dialled) == sorted(GIVEN)

    def test_one_that_leads_no_longer_sends_it_to_the_one_that_does(self) -> None:
        dialogue = self.search()
        dialogue.up(2)
        correlation_id = dialogue.correlation_id(2)

        redirect = session_event(EventCode.REDIRECT, correlation_id=correlation_id, leader=0, detail=ENDPOINTS_TEXT)
        dialogue.say(2, redirect)
        dialogue.wait(0)
        dialogue.up(0)

        (request,) = dialogue.sent(0)
        assert isinstance(request, SessionConnectRequest)


class TestSpared:
    """Members that were left for later are dialled as soon as somebody else than the leader is wanted."""

    def test_the_leader_is_lost(self) -> None:
        dialogue = opened(2)

        dialogue.down(2)
        dialogue.wait(0)

        assert {ENDPOINTS[0], ENDPOINTS[1]} <= set(dialogue.dialled)

    def test_the_leader_says_that_it_leads_no_longer(self) -> None:
        dialogue = opened(2)

        dialogue.say(2, session_event(EventCode.REDIRECT, correlation_id=-1, term=1, leader=0, detail=ENDPOINTS_TEXT))
        dialogue.wait(0)

        assert sorted(dialogue.dialled) == sorted(GIVEN)

    def test_a_neighbour_has_another_leader(self) -> None:
        """The old one stands still, and says nothing: the neighbour is connected to all."""
        neighbours = Neighbours()
        dialogue = opened(2, neighbours)

        neighbours.note_leader(GIVEN, ENDPOINTS[2], 0)
        dialogue.wait(0)
        assert [*dialogue.dialled] == [ENDPOINTS[2]]
        neighbours.note_leader(("10.9.0.1:1",), ENDPOINTS[0], 0)
        dialogue.wait(0)
        assert [*dialogue.dialled] == [ENDPOINTS[2]]
        neighbours.note_leader(GIVEN, ENDPOINTS[0], 0)
        dialogue.wait(0)

        assert sorted(dialogue.dialled) == sorted(GIVEN)

    def test_a_query_may_be_answered_by_any_member(self) -> None:
        dialogue = opened(2)

        dialogue.protocol.queries.begin(b"", QueryOptions(max_staleness_ns=SECOND), lambda _: None, 0)
        dialogue.wait(0)

        assert sorted(dialogue.dialled) == sorted(GIVEN)

    def test_thousands_do_it_a_little_apart(self) -> None:
        neighbours, sessions = Neighbours(), [Session() for _ in range(10_000)]
        neighbours.note_leader(GIVEN, ENDPOINTS[2], 0)

        times = [neighbours.spare(GIVEN, session, 0) for session in sessions]
        neighbours.forget(sessions[1])
        neighbours.note_leader(GIVEN, ENDPOINTS[0], 7)

        assert times == [2 * SECOND + number * 1_000_000 for number in range(10_000)]
        assert sessions[1].told == []
        told = [at_ns for session in sessions for _, at_ns in session.told]
        assert len(told) == 9_999
        assert told == sorted(set(told))
        assert told[0] == 7
        assert told[-1] < SECOND + SECOND // 100

    def test_nothing_is_left_of_sessions_that_have_ended_or_dialled(self) -> None:
        neighbours = Neighbours()
        ended, dialled = opened(2, neighbours), opened(2, neighbours)

        ended.protocol.abort()
        dialled.wait(5 * SECOND)

        assert neighbours.spared_count == 0


def opened(leader: int, neighbours: Neighbours | None = None) -> Dialogue:
    """A session whose neighbour knew the leader: it is open, and connected to the leader alone."""
    neighbours = neighbours or Neighbours()
    neighbours.note_leader(GIVEN, ENDPOINTS[leader], 0)
    dialogue = Dialogue(neighbours=neighbours)
    dialogue.up(leader)
    event = session_event(
        EventCode.OK, correlation_id=dialogue.correlation_id(leader), leader=leader, detail=ENDPOINTS_TEXT
    )
    dialogue.say(leader, event)
    assert dialogue.protocol.state is ClientState.OPEN
    return dialogue
