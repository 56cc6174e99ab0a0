"""The session protocol without sockets: bytes and events in, bytes and effects out."""

from __future__ import annotations

import struct

import pytest

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, MS, SECOND, Dialogue, foreign_frame
from tests.unit.client.fake_member import egress_frames, new_leader_event, session_event, session_message
from trimaran.client.config import ClientConfig
from trimaran.client.errors import ConnectRejectedError, ConnectTimeoutError
from trimaran.client.protocol.client_state import LEGAL_TRANSITIONS, ClientState
from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError, SessionClosedError
from trimaran.service_api.types import ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.session import (
    AdminRequest,
    Challenge,
    ChallengeResponse,
    EventCode,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionKeepAlive,
    SessionLimits,
)
from trimaran.service_api.wire.session_token import token_channel


def keep_alive(term: int, session_id: int = 7) -> SessionKeepAlive:
    return SessionKeepAlive(leadership_term_id=TermId(term), cluster_session_id=ClusterSessionId(session_id))


def close_request(term: int, session_id: int = 7) -> SessionCloseRequest:
    return SessionCloseRequest(leadership_term_id=TermId(term), cluster_session_id=ClusterSessionId(session_id))


class TestConnecting:
    def test_every_endpoint_is_dialled_at_once(self) -> None:
        dialogue = Dialogue()

        assert list(dialogue.dialled) == list(ENDPOINTS.values())

    def test_a_connection_begins_with_a_setup_frame_of_the_ingress_stream(self) -> None:
        dialogue = Dialogue()

        dialogue.up(1)
        dialogue.sent(1)

        setup = dialogue.setups[dialogue.connection(1)]
        assert (setup.stream_id, setup.session_id, setup.position) == (101, 0, 0)
        assert setup.cluster_id == 0

    def test_the_setup_frame_names_the_cluster_that_is_demanded(self) -> None:
        dialogue = Dialogue(config=ClientConfig(endpoints=tuple(ENDPOINTS.values()), cluster_id="0000000000000006"))

        dialogue.up(1)
        dialogue.sent(1)

        assert dialogue.setups[dialogue.connection(1)].cluster_id == 6

    def test_only_the_first_member_that_is_up_is_asked(self) -> None:
        dialogue = Dialogue(config=ClientConfig(endpoints=tuple(ENDPOINTS.values()), make_secret=lambda: b"secret"))

        dialogue.up(2, 0)

        assert dialogue.sent(2) == [
            SessionConnectRequest(
                correlation_id=CorrelationId(0),
                response_stream_id=102,
                version=0x000100,
                response_channel=token_channel(b"secret"),
                encoded_credentials=b"",
                client_info="",
            )
        ]
        assert dialogue.sent(0) == []

    def test_a_redirect_leads_to_the_leader_and_tells_the_other_members(self) -> None:
        dialogue = Dialogue(ENDPOINTS[1])
        dialogue.up(1)
        correlation_id = dialogue.correlation_id(1)

        dialogue.say(
            1,
            session_event(EventCode.REDIRECT, correlation_id=correlation_id, leader=2, detail=ENDPOINTS_TEXT),
        )
        dialogue.up(0, 2)

        assert dialogue.sent(0) == []
        assert dialogue.correlation_id(2) == correlation_id + 1

    def test_without_a_leader_another_member_is_asked_after_a_back_off(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0, 1)
        correlation_id = dialogue.correlation_id(0)

        dialogue.say(
            0,
            session_event(EventCode.REDIRECT, correlation_id=correlation_id, leader=-1, detail=ENDPOINTS_TEXT),
        )

        assert dialogue.sent(1) == []
        dialogue.wait(49 * MS)
        assert dialogue.sent(1) == []
        dialogue.wait(1 * MS)
        assert dialogue.correlation_id(1) == correlation_id + 1

    def test_redirects_in_a_circle_back_off(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0, 1)
        asked_count = 0

        for _ in range(100):
            for member_id in (0, 1):
                for request in dialogue.sent(member_id):
                    assert isinstance(request, SessionConnectRequest)
                    asked_count += 1
                    answer = session_event(
                        EventCode.REDIRECT,
                        correlation_id=request.correlation_id,
                        leader=1 - member_id,
                        detail=ENDPOINTS_TEXT,
                    )
                    dialogue.say(member_id, answer)
            dialogue.wait(10 * MS)

        assert 3 < asked_count < 10

    def test_a_member_that_does_not_answer_is_left_and_its_late_session_closed(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0, 1)
        first = dialogue.correlation_id(0)

        dialogue.wait(1 * SECOND)
        second = dialogue.correlation_id(1)
        dialogue.say(
            1,
            session_event(EventCode.OK, correlation_id=second, session_id=8, leader=1, detail=ENDPOINTS_TEXT, term=3),
        )
        dialogue.sent(0)
        dialogue.say(0, session_event(EventCode.OK, correlation_id=first, session_id=7, term=2))

        assert dialogue.protocol.session.cluster_session_id == 8
        assert dialogue.sent(0) == [close_request(3, 7)]

    def test_the_member_is_asked_again_elsewhere_when_its_connection_breaks(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0, 1)

        dialogue.down(0, "connection reset")

        assert dialogue.correlation_id(1) == 1

    def test_a_connect_timeout_says_what_was_tried(self) -> None:
        dialogue = Dialogue()
        dialogue.down(0)
        dialogue.up(1)

        dialogue.wait(5 * SECOND)

        error = dialogue.protocol.close_error
        assert dialogue.protocol.state is ClientState.CLOSED
        assert isinstance(error, ConnectTimeoutError)
        assert error.tried == {
            "10.0.0.1:9000": "connection refused",
            "10.0.0.2:9000": "connected, no answer in time",
            "10.0.0.3:9000": "no connection yet",
        }
        assert isinstance(error, TimeoutError)
        assert "10.0.0.1:9000: connection refused" in str(error)

    @pytest.mark.parametrize("code", [EventCode.ERROR, EventCode.AUTHENTICATION_REJECTED])
    def test_a_refusal_ends_the_connect_with_its_reason(self, code: EventCode) -> None:
        dialogue = Dialogue()
        dialogue.up(0)

        dialogue.say(0, session_event(code, correlation_id=dialogue.correlation_id(0), detail="session limit"))

        error = dialogue.protocol.close_error
        assert isinstance(error, ConnectRejectedError)
        assert (error.code, error.detail) == (code.name, "session limit")

    def test_answers_to_others_are_ignored(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0)
        dialogue.correlation_id(0)

        dialogue.say(0, session_event(EventCode.OK, correlation_id=99, detail=ENDPOINTS_TEXT))

        assert dialogue.protocol.state is ClientState.CONNECTING

    def test_a_challenge_is_answered_by_the_application(self) -> None:
        config = ClientConfig(endpoints=(ENDPOINTS[0],), on_challenge=lambda challenge: challenge[::-1])
        dialogue = Dialogue(config=config)
        dialogue.up(0)
        correlation_id = CorrelationId(dialogue.correlation_id(0))

        dialogue.say(
            0,
            Challenge(
                correlation_id=correlation_id,
                cluster_session_id=ClusterSessionId(7),
                encoded_challenge=b"abc",
            ),
        )

        assert dialogue.sent(0) == [
            ChallengeResponse(
                correlation_id=correlation_id,
                cluster_session_id=ClusterSessionId(7),
                encoded_credentials=b"cba",
            )
        ]

    def test_a_challenge_nobody_can_answer_ends_the_connect(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0)
        correlation_id = CorrelationId(dialogue.correlation_id(0))

        dialogue.say(0, Challenge(correlation_id=correlation_id, cluster_session_id=ClusterSessionId(7)))

        assert isinstance(dialogue.protocol.close_error, ConnectRejectedError)

    def test_failed_dials_are_repeated_with_a_bounded_back_off(self) -> None:
        config = ClientConfig(endpoints=(ENDPOINTS[0],), connect_timeout_s=60.0)
        dialogue = Dialogue(config=config)
        waits_ms = []

        for _ in range(9):
            failed_at_ns = dialogue.now_ns
            dialogue.down(0)
            deadline_ns = dialogue.protocol.next_deadline_ns()
            assert deadline_ns is not None
            dialogue.wait(deadline_ns - dialogue.now_ns)
            waits_ms.append((dialogue.now_ns - failed_at_ns) // MS)

        assert waits_ms == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]

    def test_an_endpoint_given_under_another_name_keeps_its_connection(self) -> None:
        dialogue = Dialogue("leader.example:9000")
        connection_id = dialogue.dialled["leader.example:9000"]
        dialogue.protocol.on_connected(connection_id, 0)

        dialogue.protocol.receive_data(
            connection_id,
            memoryview(egress_frames(session_event(EventCode.OK, leader=0, detail=ENDPOINTS_TEXT).encode())),
            0,
        )

        assert dialogue.protocol.offer(b"x")
        assert dialogue.protocol.data_to_send(connection_id)
        assert connection_id not in dialogue.disconnected


class TestOpen:
    def test_ok_opens_the_session_and_binds_every_connection_with_a_keep_alive(self) -> None:
        dialogue = Dialogue()
        dialogue.up(0, 1)
        correlation_id = dialogue.correlation_id(0)

        dialogue.say(0, session_event(EventCode.OK, correlation_id=correlation_id, term=4, detail=ENDPOINTS_TEXT))
        dialogue.up(2)

        protocol = dialogue.protocol
        assert (protocol.state, protocol.leader_member_id) == (ClientState.OPEN, 0)
        assert (protocol.session.cluster_session_id, protocol.session.leadership_term_id) == (7, 4)
        assert [dialogue.sent(member_id) for member_id in ENDPOINTS] == [[keep_alive(4)]] * 3
        assert dialogue.listener.calls == [("event", EventCode.OK, ENDPOINTS_TEXT)]

    @pytest.mark.parametrize(("timeout_ms", "interval_ms"), [(10_000, 2_500), (400, 100), (0, 1_000)])
    def test_the_leader_hears_from_the_session_four_times_in_a_session_timeout(
        self, timeout_ms: int, interval_ms: int
    ) -> None:
        dialogue = Dialogue()
        dialogue.up(0)
        correlation_id = dialogue.correlation_id(0)
        dialogue.say(0, SessionLimits(max_message_length=1 << 20, session_timeout_ms=timeout_ms))
        dialogue.say(0, session_event(EventCode.OK, correlation_id=correlation_id, term=4, detail=ENDPOINTS_TEXT))
        assert dialogue.sent(0) == [keep_alive(4)]

        dialogue.wait(interval_ms * MS - 1)
        assert dialogue.sent(0) == []
        dialogue.wait(1)
        assert dialogue.sent(0) == [keep_alive(4)]

    def test_interval_of_keep_alives_that_is_set_counts(self) -> None:
        dialogue = Dialogue(config=ClientConfig(endpoints=tuple(ENDPOINTS.values()), keep_alive_interval_s=0.5))
        dialogue.up(0)
        correlation_id = dialogue.correlation_id(0)
        dialogue.say(0, SessionLimits(max_message_length=1 << 20, session_timeout_ms=10_000))
        dialogue.say(0, session_event(EventCode.OK, correlation_id=correlation_id, term=4, detail=ENDPOINTS_TEXT))
        assert dialogue.sent(0) == [keep_alive(4)]

        dialogue.wait(500 * MS)

        assert dialogue.sent(0) == [keep_alive(4)]

    def test_keep_alives_go_to_the_leader_every_second_and_to_the_others_every_fourth(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        dialogue.wait(8 * SECOND)

        counts = {member_id: dialogue.sent(member_id) for member_id in ENDPOINTS}
        leader_id = dialogue.protocol.leader_member_id
        assert counts == {member_id: [keep_alive(4)] * (8 if member_id == leader_id else 2) for member_id in ENDPOINTS}

    def test_without_a_leader_keep_alives_go_to_every_member_every_second(self) -> None:
        """Whichever leads next may not know the session's connection."""
        dialogue = Dialogue()
        dialogue.open(term=4)
        dialogue.wait(SECOND)
        leader_id = dialogue.protocol.leader_member_id
        for member_id in ENDPOINTS:
            dialogue.sent(member_id)
        dialogue.down(leader_id)

        dialogue.wait(3 * SECOND)

        others = [member_id for member_id in ENDPOINTS if member_id != leader_id]
        assert [dialogue.sent(member_id) for member_id in others] == [[keep_alive(4)] * 3] * 2

    def test_a_member_that_refuses_is_left_alone_for_a_while_if_another_is_connected(self) -> None:
        """The news of a new leader come from the others; dials of a thousand sessions would delay them."""
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)
        dialogue.wait(20 * MS)
        dialogue.down(0)
        refused_id = dialogue.connection(0)

        dialogue.wait(499 * MS)
        assert dialogue.connection(0) == refused_id
        dialogue.wait(MS)
        assert dialogue.connection(0) == refused_id + 1

    def test_a_member_that_refuses_is_dialled_soon_if_none_is_connected(self) -> None:
        dialogue = Dialogue(ENDPOINTS[0])
        dialogue.open(others_up=False)
        dialogue.down(0)
        dialogue.wait(20 * MS)
        dialogue.down(0)
        refused_id = dialogue.connection(0)

        dialogue.wait(40 * MS)
        assert dialogue.connection(0) == refused_id + 1

    def test_endpoints_that_are_no_members_are_given_up(self) -> None:
        dialogue = Dialogue(ENDPOINTS[0], "10.9.9.9:9000")

        dialogue.open()

        assert dialogue.disconnected == [dialogue.dialled["10.9.9.9:9000"]]

    def test_an_offer_is_laid_out_as_the_log_will_hold_it(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        accepted = dialogue.protocol.offer(b"hello")

        expected = struct.pack("<iBBHiiiiq", 69, 0, 0xC0, 1, 0, 0, 101, 0, 0)
        expected += struct.pack("<HHHHqqq", 24, 1, 111, 16, 4, 7, 0) + b"hello" + bytes(27)
        assert accepted
        assert dialogue.sent_bytes(0) == expected

    @pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 65440, 65441, 130_000, 1_000_000])
    def test_payloads_of_any_length_arrive_whole(self, length: int) -> None:
        dialogue = Dialogue()
        dialogue.open()
        payload = bytes(index & 0xFF for index in range(length))

        assert dialogue.protocol.offer(payload)

        assert dialogue.sent(0) == [payload]

    def test_messages_are_sent_in_the_order_of_their_offers(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        payloads = [bytes([index]) * (index % 5) for index in range(50)]

        for payload in payloads:
            dialogue.protocol.offer(payload)

        assert dialogue.sent(0) == payloads

    def test_a_full_window_refuses_until_bytes_are_taken(self) -> None:
        config = ClientConfig(endpoints=tuple(ENDPOINTS.values()), outgoing_window_bytes=200)
        dialogue = Dialogue(config=config)
        dialogue.open()

        accepted = [dialogue.protocol.offer(b"x" * 32) for _ in range(4)]
        is_waiting = dialogue.protocol.is_waiting
        dialogue.sent(0)

        assert accepted == [True, True, True, False]
        assert is_waiting
        assert dialogue.protocol.offer(b"x")

    def test_too_long_a_payload_is_refused_with_both_numbers(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        with pytest.raises(LocalProtocolError, match="length=8388577 limit=8388576"):
            dialogue.protocol.offer(bytes(8 * 1024 * 1024 - 31))


class TestEgress:
    def test_messages_reach_the_listener_however_the_bytes_are_cut(self) -> None:
        payloads = [b"", b"a", b"b" * 31, b"c" * 32, b"d" * 100, b"e" * 70_000]
        stream = b"".join(
            egress_frames(session_message(payload, term=0, session_id=7, timestamp=index))
            for index, payload in enumerate(payloads)
        )

        for step in (1, 7, 32, 63, 64, 65, 1000, len(stream)):
            dialogue = Dialogue()
            dialogue.open()
            waiting = b""
            for start in range(0, len(stream), step):
                waiting += stream[start : start + step]
                # Feeding each byte of a large frame again would take minutes: feed when a header is there.
                if len(waiting) >= 64 and (step > 60 or len(waiting) % 64 == 0 or len(waiting) < 300):
                    waiting = waiting[dialogue.feed(0, waiting) :]
            waiting = waiting[dialogue.feed(0, waiting) :]

            assert dialogue.listener.calls == [("message", index, 0, payload) for index, payload in enumerate(payloads)]
            assert waiting == b""

    def test_egress_of_an_earlier_term_is_dropped_and_counted(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        dialogue.say(0, session_message(b"old", term=3, session_id=7))
        dialogue.say(0, session_message(b"new", term=4, session_id=7))

        assert dialogue.listener.payloads == [b"new"]
        assert dialogue.protocol.session.stale_egress_count == 1

    def test_egress_of_another_session_is_dropped_and_counted(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.say(0, session_message(b"mine", term=0, session_id=7))
        dialogue.say(0, session_message(b"theirs", term=0, session_id=8))

        assert dialogue.listener.payloads == [b"mine"]
        assert dialogue.protocol.session.foreign_egress_count == 1

    def test_a_later_schema_version_with_a_longer_block_is_read(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        header = struct.pack("<HHHHqqq", 32, 1, 111, 17, 0, 7, 55)

        dialogue.say(0, header + b"newfield" + b"payload")

        assert dialogue.listener.calls == [("message", 55, 0, b"payload")]

    def test_messages_of_unknown_kinds_are_counted(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        admin = AdminRequest(
            leadership_term_id=TermId(0),
            cluster_session_id=ClusterSessionId(7),
            correlation_id=CorrelationId(1),
            request_type=None,
        )

        dialogue.say(0, admin)

        assert dialogue.protocol.session.foreign_egress_count == 1

    def test_other_session_events_reach_the_listener(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.say(0, session_event(EventCode.ERROR, correlation_id=-1, detail="no"))

        assert dialogue.listener.calls == [("event", EventCode.ERROR, "no")]

    @pytest.mark.parametrize(
        ("frame", "complaint"),
        [
            (struct.pack("<iBBHiiiiq", -5, 0, 0xC0, 1, 0, 0, 102, 0, 0), "frame_length=-5"),
            (struct.pack("<iBBHiiiiq", 0, 0, 0xC0, 1, 0, 0, 102, 0, 0), "frame_length=0"),
            (struct.pack("<iBBHiiiiq", 1 << 20, 0, 0xC0, 1, 0, 0, 102, 0, 0), "frame_length=1048576"),
            (struct.pack("<iBBHiiiiq", 64, 1, 0xC0, 1, 0, 0, 102, 0, 0), "version=1"),
            (struct.pack("<iBBHiiiiq", 64, 0, 0xC0, 5, 0, 0, 102, 0, 0), "type=5"),
            (foreign_frame(b"x" * 32, stream_id=100), "stream_id=100"),
            (struct.pack("<iBBHiiiiq", 64, 0, 0x40, 1, 0, 0, 102, 0, 0), "order"),
            (foreign_frame(b"shorty"), "length=8"),
            (foreign_frame(struct.pack("<HHHH", 24, 1, 111, 16)), "incomplete"),
            (foreign_frame(struct.pack("<HHHH", 44, 2, 111, 16)), "SessionEvent"),
        ],
    )
    def test_bytes_that_make_no_sense_are_refused(self, frame: bytes, complaint: str) -> None:
        dialogue = Dialogue()
        dialogue.open()

        with pytest.raises(RemoteProtocolError, match=complaint):
            dialogue.feed(0, frame + bytes(64))

    def test_endpoints_that_make_no_sense_are_the_peers_fault(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        with pytest.raises(RemoteProtocolError, match="'nonsense'"):
            dialogue.say(0, new_leader_event(term=1, leader=1, endpoints="nonsense"))

    def test_a_message_counts_as_handled_when_the_listener_raises(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        frame = egress_frames(session_message(b"x", term=0, session_id=7))

        def fail(timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
            raise ZeroDivisionError

        dialogue.listener.on_message = fail  # type: ignore[method-assign]  # the listener of this test alone
        with pytest.raises(ZeroDivisionError):
            dialogue.feed(0, frame * 2)

        assert dialogue.protocol.consumed_bytes(dialogue.connection(0)) == len(frame)


class TestClosing:
    def test_the_cluster_may_close_the_session(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.say(0, session_event(EventCode.CLOSED, correlation_id=-1, detail="TIMEOUT"))

        assert dialogue.listener.calls == [("event", EventCode.CLOSED, "TIMEOUT")]
        assert sorted(dialogue.disconnected) == [0, 1, 2]
        assert dialogue.protocol.next_deadline_ns() is None
        with pytest.raises(SessionClosedError, match="reason=TIMEOUT"):
            dialogue.protocol.offer(b"x")

    def test_a_follower_cannot_close_the_session(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        dialogue.say(1, session_event(EventCode.CLOSED, term=4, correlation_id=-1, detail="unknown session"))

        assert dialogue.protocol.state is ClientState.OPEN

    def test_a_leader_of_a_higher_term_can_close_the_session(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        dialogue.say(1, session_event(EventCode.CLOSED, term=5, correlation_id=-1, detail="unknown session"))

        assert dialogue.protocol.state is ClientState.CLOSED

    def test_close_asks_the_leader_and_ends_with_its_answer(self) -> None:
        dialogue = Dialogue()
        dialogue.open(term=4)

        dialogue.protocol.close(dialogue.now_ns)
        sent = dialogue.sent(0)
        state = dialogue.protocol.state
        dialogue.say(0, session_event(EventCode.CLOSED, term=4, correlation_id=-1))

        assert sent == [close_request(4)]
        assert state is ClientState.CLOSING
        assert dialogue.protocol.state is ClientState.CLOSED
        assert dialogue.listener.calls == []

    def test_close_ends_without_an_answer_at_its_timeout(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.protocol.close(dialogue.now_ns)
        dialogue.wait(1 * SECOND)

        assert dialogue.protocol.state is ClientState.CLOSED
        assert dialogue.protocol.close_error is None

    def test_close_ends_when_the_leader_goes_meanwhile(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.protocol.close(dialogue.now_ns)
        dialogue.down(0)

        assert dialogue.protocol.state is ClientState.CLOSED

    def test_close_without_a_leader_ends_at_once(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        dialogue.down(0)

        dialogue.protocol.close(dialogue.now_ns)

        assert dialogue.protocol.state is ClientState.CLOSED

    def test_close_twice_is_close_once(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.protocol.close(dialogue.now_ns)
        dialogue.protocol.close(dialogue.now_ns)
        dialogue.protocol.abort()
        dialogue.protocol.abort()

        assert dialogue.protocol.state is ClientState.CLOSED

    def test_no_keep_alives_after_the_end(self) -> None:
        dialogue = Dialogue()
        dialogue.open()

        dialogue.protocol.abort()
        dialogue.wait(10 * SECOND)

        assert [dialogue.sent_bytes(member_id) for member_id in ENDPOINTS] == [b"", b"", b""]

    def test_nothing_happens_on_connections_after_the_end(self) -> None:
        dialogue = Dialogue()
        dialogue.open()
        dialogue.protocol.abort()

        consumed = dialogue.feed(1, b"whatever comes")
        dialogue.protocol.on_disconnected(0, 0, "closed")
        dialogue.protocol.on_connected(0, 0)
        dialogue.protocol.poll(SECOND)

        assert consumed == len(b"whatever comes")
        assert dialogue.protocol.take_effects() == []


def test_every_state_has_its_transitions_and_the_end_has_none() -> None:
    assert set(LEGAL_TRANSITIONS) == set(ClientState)
    assert LEGAL_TRANSITIONS[ClientState.CLOSED] == frozenset()


def test_the_protocol_shows_where_it_stands() -> None:
    dialogue = Dialogue()
    dialogue.open(term=4)

    assert repr(dialogue.protocol) == "<ClientProtocol OPEN session=7 term=4 leader=0>"
