"""What a member answers when somebody looks into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.facts import has_facts
from tests.unit.cluster.core.log.test_log_streams import publisher as make_publisher
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo
from tests.unit.cluster.runtime.answering.test_status import SoloClock
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.sessions.session_state import SessionState
from trimaran.cluster.core.sessions.sessions import ClusterSession
from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.documents.inspection import (
    ANSWER_LIMIT_BYTES,
    INT64_MIN,
    ROW_LIMIT,
    InspectionRefusal,
    InspectionRequest,
    MembersView,
    SessionOrder,
    SessionsView,
    TimersView,
    Topic,
)
from trimaran.cluster.runtime.answering.inspector import Inspector
from trimaran.cluster.runtime.links.session_traffic import SessionClient, SessionTraffic
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.service_api import Role
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.session import SESSION_MESSAGE
from trimaran.service_api.wire.session_frame import session_prefix

MEMBERS = [MemberEndpoints.from_base(i, f"127.0.0.1:{9000 + 100 * i}") for i in range(3)]
SECOND = 1000 * MS


def solo(*, role: Role = Role.LEADER, service_count: int = 1) -> Solo:
    """Member 0 in term 1, with 128 bytes of log."""
    solo = Solo(terms=[(0, 0, 64), (1, 64, 128)], is_started=False, service_count=service_count)
    solo.ctx.role = role
    solo.ctx.leader_member_id = MemberId(0 if role is Role.LEADER else 1)
    solo.ctx.commit_position = 96
    return solo


def traffic_of(solo: Solo) -> SessionTraffic:
    """What sessions send, as `solo.ctx.log_buffer` gets it from a publisher; each client comes from 10.0.0.7."""
    publisher = make_publisher(LogBuffer(position=0, retained_bytes=1 << 20))
    traffic = SessionTraffic(lambda: publisher, lambda: solo.now_ns)
    sessions = solo.module.sessions.sessions
    traffic.find_client = lambda session_id: SessionClient.of(sessions[session_id], "10.0.0.7")
    return traffic


def inspector_of(
    solo: Solo, members: Sequence[MemberEndpoints] = MEMBERS, *, traffic: SessionTraffic | None = None
) -> Inspector:
    configured = tuple(member.configured() for member in members)
    solo.ctx.roster.history.append(
        Configuration(members=configured, high_member_id=configured[-1].member_id, log_position=2)
    )
    solo.ctx.roster.refresh()
    return Inspector(
        solo.module,
        clock=SoloClock(solo),
        delivered=SimpleNamespace(position=64),
        last_activity_ns=solo.activity_ns.get,
        traffic=traffic_of(solo) if traffic is None else traffic,
    )


def add_session(solo: Solo, session_id: int, principal: bytes = b"alice", connection_id: int | None = None) -> None:
    key = ClusterSessionId(session_id)
    solo.module.sessions.sessions[key] = ClusterSession(
        cluster_session_id=key,
        correlation_id=CorrelationId(1),
        opened_log_position=96,
        response_stream_id=102,
        response_channel="trimaran:tcp",
        encoded_principal=principal,
        time_of_last_activity_ns=solo.now_ns,
        state=SessionState.OPEN,
    )
    if connection_id is not None:
        solo.module.sessions.bind(connection_id, key)


async def sessions_of(
    solo: Solo, *, order: SessionOrder = SessionOrder.ID, traffic: SessionTraffic | None = None, **window: int
) -> SessionsView:
    request = InspectionRequest(topic=Topic.SESSIONS, order=order, **window).model_dump_json().encode()
    return SessionsView.model_validate_json(await inspector_of(solo, traffic=traffic).answer(request))


async def members_of(solo: Solo) -> MembersView:
    return MembersView.model_validate_json(await inspector_of(solo).answer(b'{"topic": "members"}'))


async def timers_of(solo: Solo, *, offset: int = 0, limit: int = 100) -> TimersView:
    request = InspectionRequest(topic=Topic.TIMERS, offset=offset, limit=limit).model_dump_json().encode()
    return TimersView.model_validate_json(await inspector_of(solo).answer(request))


async def test_a_leader_tells_what_every_member_has_recorded_in_its_term() -> None:
    leader = solo()
    one, two = leader.ctx.members[MemberId(1)], leader.ctx.members[MemberId(2)]
    one.is_reachable = True
    one.append_leadership_term_id, one.append_position = TermId(1), 96
    one.time_of_last_append_ns = leader.now_ns
    one.live_join_position = 64
    two.append_leadership_term_id, two.append_position = TermId(0), 64  # of the term before: it counts for nothing
    leader.now_ns += SECOND // 2

    view = await members_of(leader)

    assert (view.answered_by, view.role, view.leader_member_id, view.leadership_term_id) == (0, "LEADER", 0, 1)
    assert (view.commit_position, view.candidate_term_id, view.log_recording_id, view.total_count) == (96, 1, 0, 3)
    rows = [(m.is_leader, m.is_connected, m.append_position, m.lag_bytes, m.silent_s) for m in view.members]
    assert rows == [
        (True, True, 128, 0, None),
        (False, True, 96, 32, 0.5),
        (False, False, None, None, None),
    ]
    assert [m.has_log for m in view.members] == [True, True, False]
    assert view.members[2].archive == "127.0.0.1:9204"


async def test_a_follower_knows_of_the_others_only_whether_they_are_there() -> None:
    follower = solo(role=Role.FOLLOWER)
    one = follower.ctx.members[MemberId(1)]
    one.append_leadership_term_id, one.append_position = TermId(1), 96  # from a time when this member led

    view = await members_of(follower)

    assert [(m.is_leader, m.append_position) for m in view.members] == [(False, 128), (True, None), (False, None)]
    assert {m.has_log for m in view.members} == {None}


async def test_sessions_tell_how_long_their_clients_are_silent() -> None:
    leader = solo()
    add_session(leader, 7, connection_id=3)
    add_session(leader, 2)
    leader.now_ns += 2 * SECOND
    leader.activity_ns[3] = leader.now_ns - SECOND  # something came on the connection that is not booked yet

    view = await sessions_of(leader)

    rows = [(s.cluster_session_id, s.principal, s.state, s.idle_s, s.is_connected) for s in view.sessions]
    assert rows == [(2, "alice", "open", 2.0, False), (7, "alice", "open", 1.0, True)]
    assert (view.total_count, view.delivered_position) == (2, 64)


async def test_a_follower_does_not_watch_its_clients() -> None:
    follower = solo(role=Role.FOLLOWER)
    add_session(follower, 1, connection_id=9)

    (session,) = (await sessions_of(follower)).sessions

    assert (session.idle_s, session.is_connected) == (None, True)
    assert (session.messages_per_s, session.bytes_per_s) == (None, None)


async def test_sessions_that_send_the_most_come_first_if_asked_for() -> None:
    leader = solo()
    sent = ((1, 1, 10), (2, 5, 10), (3, 2, 400))
    for session_id, _, _ in sent:
        add_session(leader, session_id)
        leader.module.sessions.sessions[ClusterSessionId(session_id)].client_info = f"job {session_id}"
    publisher = make_publisher(LogBuffer(position=0, retained_bytes=1 << 20))
    traffic = traffic_of(leader)
    traffic._find_publisher = lambda: publisher
    for session_id, count, length in sent:
        for _ in range(count):
            publisher.append_session_message(session_prefix(SESSION_MESSAGE, 1, session_id) + bytes(8 + length))

    by = {order: await sessions_of(leader, order=order, limit=2, traffic=traffic) for order in SessionOrder}

    rows = {order: [session.cluster_session_id for session in view.sessions] for order, view in by.items()}
    assert rows == {
        SessionOrder.ID: [1, 2],
        SessionOrder.MESSAGES: [2, 3],
        SessionOrder.BYTES: [3, 2],
        SessionOrder.IDLE: [1, 2],
    }
    heaviest = by[SessionOrder.BYTES].sessions[0]
    assert (heaviest.client_info, heaviest.address) == ("job 3", "10.0.0.7")
    assert (heaviest.messages_per_s, heaviest.bytes_per_s) == (2.0, 1_024.0)


async def test_rows_of_the_longest_texts_fit_into_an_answer() -> None:
    leader = solo()
    for session_id in range(1, ROW_LIMIT + 1):
        add_session(leader, session_id, ("\N{GRINNING FACE}" * 300).encode())
        leader.module.sessions.sessions[ClusterSessionId(session_id)].client_info = "\N{GRINNING FACE}" * 300

    view = await sessions_of(leader, limit=ROW_LIMIT)

    assert len(view.model_dump_json().encode()) < ANSWER_LIMIT_BYTES


@pytest.mark.parametrize(
    ("principal", "expected"),
    [(b"", ""), (b"al\x1b[31mice\n", "al?[31mice"), (b"\xff\x00", "\N{REPLACEMENT CHARACTER}?")],
)
async def test_a_principal_is_shown_as_one_line_that_moves_no_cursor(principal: bytes, expected: str) -> None:
    leader = solo()
    add_session(leader, 1, principal)

    assert (await sessions_of(leader)).sessions[0].principal == expected


async def test_an_answer_holds_the_rows_that_were_asked_for_and_says_how_many_there_are() -> None:
    leader = solo()
    for session_id in range(1, 31):
        add_session(leader, session_id)

    page = await sessions_of(leader, offset=25, limit=3)
    last = await sessions_of(leader, offset=28, limit=100)
    beyond = await sessions_of(leader, offset=1 << 62)

    assert [s.cluster_session_id for s in page.sessions] == [26, 27, 28]
    assert [s.cluster_session_id for s in last.sessions] == [29, 30]
    assert (beyond.sessions, beyond.total_count) == ([], 30)


async def test_timers_come_in_the_order_in_which_they_are_due() -> None:
    leader = solo()
    now = leader.timestamp
    leader.module.timers.schedule(5, now + 1500)
    leader.module.timers.schedule(-3, now - 250)

    view = await timers_of(leader)

    assert [(t.correlation_id, t.due_in_s) for t in view.timers] == [(-3, -0.25), (5, 1.5)]
    assert (view.total_count, view.cluster_time) == (2, now)


async def test_a_timer_of_one_of_several_services_has_that_services_id() -> None:
    leader = solo(service_count=2)
    leader.module.timers.schedule(1 << 56 | 7, leader.timestamp)

    (timer,) = (await timers_of(leader)).timers

    assert (timer.service_id, timer.correlation_id) == (1, 7)


async def test_a_timer_of_services_that_share_their_ids_is_every_services() -> None:
    """The member ended the connection, and the command blamed TLS."""
    leader = solo(service_count=2)
    leader.ctx.config = replace(leader.ctx.config, shared_timer_ids=True)
    leader.module.timers.schedule(-7, leader.timestamp)

    (timer,) = (await timers_of(leader)).timers

    assert (timer.service_id, timer.correlation_id) == (None, -7)


async def test_the_longest_answer_fits_what_is_taken() -> None:
    leader = solo()
    for n in range(ROW_LIMIT + 1):
        add_session(leader, (1 << 62) + n, b"\xff" * 300)
        leader.module.timers.schedule(INT64_MIN + n, (1 << 63) - 1)

    sessions = await sessions_of(leader, limit=ROW_LIMIT)
    timers = await timers_of(leader, limit=ROW_LIMIT)

    assert len(sessions.model_dump_json().encode()) < 1 << 20
    assert len(timers.model_dump_json().encode()) < 1 << 20
    assert (len(sessions.sessions), sessions.total_count) == (ROW_LIMIT, ROW_LIMIT + 1)


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"[]",
        b'{"topic": "secrets"}',
        b'{"topic": "timers", "limit": 0}',
        b'{"topic": "timers", "limit": 1001}',
        b'{"topic": "timers", "offset": -1}',
        b"\xff\xfe",
    ],
)
async def test_what_is_no_request_is_refused_and_harms_nobody(request_: bytes) -> None:
    answer = await inspector_of(solo()).answer(request_)

    assert InspectionRefusal.model_validate_json(answer).refused.startswith("not a request")


async def test_a_request_of_a_newer_tool_is_answered_as_far_as_it_is_understood() -> None:
    request = json.dumps({"schema_version": 1, "topic": "timers", "added_later": 1}).encode()

    view = TimersView.model_validate_json(await inspector_of(solo()).answer(request))

    assert view.total_count == 0


async def test_a_request_that_is_too_new_to_be_understood_is_refused_with_what_to_do() -> None:
    request = json.dumps({"schema_version": 2, "topic": "timers"}).encode()

    answer = await inspector_of(solo()).answer(request)

    assert has_facts(
        InspectionRefusal.model_validate_json(answer).refused, "schema_version=2 expected=1:", "newer", "upgrade"
    )
