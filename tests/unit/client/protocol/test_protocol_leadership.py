"""How a session goes from leader to leader: `trimaran.client.protocol` without a loop."""

from __future__ import annotations

import pytest

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, MS, SECOND, Dialogue
from tests.unit.client.fake_member import new_leader_event, session_event
from trimaran.client.config import ClientConfig
from trimaran.client.protocol.client_state import ClientState
from trimaran.service_api.errors import ClusterTimeoutError, SessionClosedError
from trimaran.service_api.types import ClusterSessionId, TermId
from trimaran.service_api.wire.session import EventCode, SessionCloseRequest, SessionKeepAlive


def keep_alive(term: int, session_id: int = 7) -> SessionKeepAlive:
    return SessionKeepAlive(leadership_term_id=TermId(term), cluster_session_id=ClusterSessionId(session_id))


def close_request(term: int, session_id: int = 7) -> SessionCloseRequest:
    return SessionCloseRequest(leadership_term_id=TermId(term), cluster_session_id=ClusterSessionId(session_id))


class TestLeadership:
    def test_a_new_leader_of_a_higher_term_gets_the_messages(self) -> None:
        dialogue = Dialogue()
        dialogue.open(leader=0, term=4)

        dialogue.say(1, new_leader_event(term=5, leader=1, endpoints=ENDPOINTS_TEXT))
        dialogue.protocol.offer(b"to 1")

        assert dialogue.listener.calls == [("new_leader", 5, 1)]
        assert dialogue.protocol.session.cluster_session_id == 7
        assert dialogue.sent(1) == [b"to 1"]  # it expects the session there: no keep-alive is in front
        assert b"to 1" not in dialogue.sent(0)

    def test_a_follower_says_who_leads_and_where(self) -> None:
        """The leader of the session follows now, and has not closed the connection; its successor is new.

        The session moves only when that one says that it leads: before, it would lose what it is sent.
        """
        dialogue = Dialogue()
        dialogue.open(leader=0, term=4)

        endpoints = f"{ENDPOINTS_TEXT},3=10.0.0.4:9000"
        dialogue.say(0, session_event(EventCode.REDIRECT, correlation_id=-1, term=5, leader=3, detail=endpoints))

        assert "10.0.0.4:9000" in dialogue.dialled
        assert dialogue.protocol.leader_member_id == 0
        assert dialogue.listener.calls == []

    @pytest.mark.parametrize("term", [3, 4])
    def test_a_leader_of_no_higher_term_is_ignored(self, term: int) -> None:
        dialogue = Dialogue()
        dialogue.open(leader=0, term=4)

        dialogue.say(1, new_leader_event(term=term, leader=1, endpoints=ENDPOINTS_TEXT))

        assert dialogue.protocol.leader_member_id == 0
        assert dialogue.listener.calls == []

    def test_a_new_leader_for_another_session_is_ignored(self) -> None:
        dialogue = Dialogue()
        dialogue.open(leader=0, term=4)

        dialogue.say(1, new_leader_event(term=5, leader=1, endpoints=ENDPOINTS_TEXT, session_id=8))

        assert dialogue.protocol.leader_member_id == 0

    def test_offers_wait_while_the_leader_is_gone(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.down(0)

        assert dialogue.protocol.state is ClientState.AWAIT_NEW_LEADER
        assert not dialogue.protocol.offer(b"x")
        assert dialogue.protocol.is_waiting

    def test_a_lost_follower_changes_nothing_and_is_dialled_again(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        lost = dialogue.connection(2)

        dialogue.down(2)
        dialogue.wait(20 * MS)
        dialogue.up(2)

        assert dialogue.connection(2) != lost
        assert dialogue.protocol.state is ClientState.OPEN
        assert dialogue.sent(2) == [keep_alive(0)]

    def test_the_session_goes_on_with_a_new_leader_after_the_old_one_is_gone(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)

        dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))

        assert dialogue.protocol.offer(b"x")
        assert dialogue.listener.calls == [("new_leader", 1, 2)]

    def test_a_reconnect_to_the_same_leader_resumes_and_says_so(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)

        dialogue.wait(20 * MS)
        dialogue.up(0)
        state = dialogue.protocol.state
        dialogue.say(0, new_leader_event(term=0, leader=0, endpoints=ENDPOINTS_TEXT))

        assert state is ClientState.AWAIT_NEW_LEADER
        assert dialogue.protocol.state is ClientState.OPEN
        assert dialogue.listener.calls == [("new_leader", 0, 0)]
        assert dialogue.sent(0) == [keep_alive(0)]

    def test_a_former_leader_that_came_back_as_a_follower_is_not_sent_to(self) -> None:
        """Its process was started again: only its own word that it still leads counts."""
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)

        dialogue.wait(20 * MS)
        dialogue.up(0)

        assert not dialogue.protocol.offer(b"x")
        assert dialogue.listener.calls == []

    def test_a_leader_that_is_not_connected_yet_is_waited_for(self) -> None:
        dialogue = Dialogue()
        dialogue.open(others_up=False)
        dialogue.up(1)

        dialogue.say(1, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))
        state = dialogue.protocol.state
        dialogue.up(2)
        dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))

        assert state is ClientState.AWAIT_NEW_LEADER_CONNECTION
        assert dialogue.protocol.state is ClientState.OPEN
        assert dialogue.listener.calls == [("new_leader", 1, 2)]

    def test_a_new_leader_may_bring_a_new_member_list(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.say(1, new_leader_event(term=1, leader=1, endpoints=f"1={ENDPOINTS[1]},3=10.0.0.4:9000"))

        assert "10.0.0.4:9000" in dialogue.dialled
        assert set(dialogue.disconnected) == {dialogue.connection(0), dialogue.connection(2)}

    def test_the_leader_says_in_its_term_that_members_came_and_went(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        members = f"0={ENDPOINTS[0]},1={ENDPOINTS[1]},3=10.0.0.4:9000"

        dialogue.say(1, new_leader_event(term=0, leader=1, endpoints="1=10.0.0.6:9000"))
        assert dialogue.disconnected == []
        dialogue.say(0, new_leader_event(term=0, leader=0, endpoints=members))

        assert "10.0.0.4:9000" in dialogue.dialled
        assert dialogue.disconnected == [dialogue.connection(2)]
        assert dialogue.protocol.state is ClientState.OPEN
        assert dialogue.listener.calls == []

    def test_the_session_ends_when_no_leader_comes_in_time(self) -> None:
        """2 x the heartbeat timeout of 2 s that came with the session, and 5 s."""
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)

        dialogue.wait(9 * SECOND - 1)
        state = dialogue.protocol.state
        dialogue.wait(1)

        assert state is ClientState.AWAIT_NEW_LEADER
        with pytest.raises(SessionClosedError, match="new_leader_timeout_ms=9000") as raised:
            dialogue.protocol.offer(b"x")
        assert isinstance(raised.value.__cause__, ClusterTimeoutError)
        ((kind, code, _),) = dialogue.listener.calls
        assert (kind, code) == ("event", EventCode.CLOSED)

    def test_the_new_leader_timeout_can_be_set(self) -> None:
        config = ClientConfig(endpoints=tuple(ENDPOINTS.values()), new_leader_timeout_s=0.5)
        dialogue = Dialogue(config=config)
        dialogue.open()
        dialogue.down(0)

        dialogue.wait(500 * MS)

        assert dialogue.protocol.state is ClientState.CLOSED
