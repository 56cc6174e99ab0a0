"""The cluster as a service sees it, and what its callbacks may do."""

from __future__ import annotations

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from tests.unit.cluster.service.test_client_session import FakeOutlet
from trimaran.service_api import LocalProtocolError, Role
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import MemberId, TimeUnit
from trimaran.service_api.wire.session import SessionMessageHeader
from trimaran.service_api.wire.stream import FrameParser


@pytest.fixture
def rig() -> Rig:
    return Rig()


def replies(outlet: FakeOutlet) -> list[tuple[int, bytes]]:
    """The term and payload of each message that went out."""
    return [
        (SessionMessageHeader.decode(frame.payload).leadership_term_id, frame.payload[32:])
        for frame in FrameParser().feed(b"".join(outlet.writes))
    ]


def echo(session: ClientSession, payload: bytes) -> None:
    session.offer(payload)


async def test_service_is_given_its_cluster_before_any_entry(rig: Rig) -> None:
    await rig.agent.start()

    assert rig.service.cluster is rig.agent.views[0]
    cluster = rig.agent.views[0]
    assert (cluster.member_id, cluster.time_unit, cluster.role) == (MemberId(0), TimeUnit.MILLIS, Role.FOLLOWER)


async def test_service_may_take_its_time_to_start(rig: Rig) -> None:
    started = []

    async def on_start(cluster: object, snapshot: object) -> None:
        started.append(cluster)

    rig.service.on_start = on_start  # type: ignore[method-assign,assignment]  # both kinds are allowed

    await rig.agent.start()

    assert started == [*rig.agent.views]


def test_outlet_that_comes_after_the_session_is_used_from_then_on(rig: Rig) -> None:
    """A client that comes to a new leader: its session is old."""
    outlet = FakeOutlet()
    rig.service.on_message = echo
    rig.open()
    rig.message(b"in an older term")
    rig.deliver()

    rig.agent.connect_egress(SESSION, outlet, TERM + 1)
    rig.message(b"now")
    rig.deliver()

    assert replies(outlet) == [(TERM + 1, b"now")]
    assert rig.agent.egress.discarded_egress_count == 1


@pytest.mark.parametrize("session_id", [SESSION, None])
def test_egress_ends_when_it_is_disconnected(rig: Rig, session_id: int | None) -> None:
    outlet = FakeOutlet()
    rig.service.on_message = echo
    rig.open()
    rig.agent.connect_egress(SESSION, outlet, TERM)
    rig.deliver()

    rig.agent.disconnect_egress(None if session_id is None else SESSION)
    rig.message(b"unheard")
    rig.deliver()

    assert outlet.writes == []


def test_what_was_offered_before_the_close_goes_out_and_the_session_is_gone(rig: Rig) -> None:
    outlet = FakeOutlet()
    rig.service.on_message = echo
    rig.open()
    rig.agent.connect_egress(SESSION, outlet, TERM)
    rig.message(b"goodbye")
    rig.close()

    rig.deliver()

    assert replies(outlet) == [(TERM, b"goodbye")]
    assert dict(rig.agent.client_sessions) == {}


def test_sessions_are_shown_in_ascending_order_and_cannot_be_changed(rig: Rig) -> None:
    for session_id in (3, 5, 8):
        rig.open(session_id)

    rig.deliver()

    assert [*rig.agent.client_sessions] == [3, 5, 8]
    with pytest.raises(TypeError):
        rig.agent.client_sessions[SESSION] = None  # type: ignore[index]  # a read-only view


def test_timers_and_closes_are_asked_for_at_the_entry_that_is_delivered(rig: Rig) -> None:
    def work(session: ClientSession, payload: bytes) -> None:
        rig.agent.views[0].schedule_timer(1, 500)
        rig.agent.views[0].cancel_timer(2)
        session.close()

    rig.service.on_message = work
    rig.open()
    rig.message(b"go")

    rig.deliver()

    assert rig.requests.told[1:] == [("schedule", 1, 500), ("cancel", 2), ("close session", SESSION)]


def test_timers_are_refused_outside_log_ordered_callbacks(rig: Rig) -> None:
    """Replicas would differ. Source: service_api.Cluster."""
    refused: list[str] = []

    def on_role_change(role: Role) -> None:
        try:
            rig.agent.views[0].schedule_timer(1, 2)
        except LocalProtocolError as error:
            refused.append(str(error))

    rig.service.on_role_change = on_role_change  # type: ignore[method-assign]  # this test's own

    rig.agent.on_term_begun(Role.LEADER, 0)

    assert len(refused) == 1
    assert rig.requests.told == []
    assert rig.agent.role is Role.LEADER


@pytest.mark.parametrize("callback", ["on_role_change", "on_terminate"])
def test_callback_that_raises_outside_the_log_does_not_stop_the_member(rig: Rig, callback: str) -> None:
    """Or every member would stop as it becomes leader, one after another, and the cluster with them."""

    def fail(*_: object) -> None:
        raise ValueError("service bug")

    setattr(rig.service, callback, fail)

    if callback == "on_terminate":
        rig.agent.terminate()
    else:
        rig.agent.on_term_begun(Role.LEADER, 0)

    assert rig.agent.error_count == 1


@pytest.mark.parametrize("callback", ["on_session_open", "on_timer_event", "on_session_close"])
def test_callback_that_raises_in_the_log_does_not_keep_the_module_from_its_part(rig: Rig, callback: str) -> None:
    def fail(*_: object) -> None:
        raise ValueError("service bug")

    setattr(rig.service, callback, fail)
    rig.open()
    rig.timer(9)
    rig.close()

    rig.deliver()

    assert [what for what, *_ in rig.requests.told] == ["opened", "fired", "closed"]
    assert rig.agent.error_count == 1


# --- queries


def test_query_is_answered_from_the_state_as_it_is(rig: Rig) -> None:
    rig.service.on_query = lambda payload: bytes(payload) * 2  # type: ignore[method-assign]  # a test's service

    assert rig.agent.query(memoryview(b"ab")) == b"abab"


def test_service_without_queries_says_so(rig: Rig) -> None:
    with pytest.raises(LocalProtocolError, match="no on_query: service="):
        rig.agent.query(memoryview(b""))


def test_answer_that_is_no_bytes_is_refused(rig: Rig) -> None:
    rig.service.on_query = lambda payload: "text"  # type: ignore[method-assign,assignment,return-value]

    with pytest.raises(LocalProtocolError, match="on_query gave type=str expected=bytes"):
        rig.agent.query(memoryview(b""))


def test_answer_that_no_client_could_take_is_refused(rig: Rig) -> None:
    rig.service.on_query = lambda payload: bytes(32 << 20)  # type: ignore[method-assign]

    with pytest.raises(LocalProtocolError, match="answer of on_query too long"):
        rig.agent.query(memoryview(b""))


def test_service_of_an_id_answers_or_is_said_not_to_be_there(rig: Rig) -> None:
    rig.service.on_query = lambda payload: b"zero"  # type: ignore[method-assign]  # a test's service

    assert rig.agent.query(memoryview(b""), 0) == b"zero"
    with pytest.raises(LocalProtocolError, match="service_id=1 services=1"):
        rig.agent.query(memoryview(b""), 1)
