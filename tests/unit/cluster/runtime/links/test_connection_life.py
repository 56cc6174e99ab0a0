"""What a connection may do before it has a session, and what is kept of what it has not finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.facts import has_facts
from tests.unit.cluster.runtime.fake_gate import FakeTime, let_in, quiet_gate
from tests.unit.cluster.runtime.fake_ingress_owner import FakeIngressOwner
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.unit.cluster.runtime.ingress_client import (
    SESSION,
    TERM,
    Client,
    control,
    keep_alive,
    session_message,
    setup,
)
from tests.waiting import until
from trimaran.cluster.core import events as ev
from trimaran.cluster.runtime.links import connection_life
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.ingress_bytes import IngressBytes
from trimaran.service_api import InvariantViolation
from trimaran.service_api.access.identity import STRANGER, Caller, CallerRole, Proof
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import EGRESS_STREAM_ID, INGRESS_STREAM_ID, ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.frame import FLAG_BEGIN, encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.session import (
    REFUSES_MESSAGES,
    AdminRequest,
    AdminRequestType,
    ChallengeResponse,
    EventCode,
    SessionConnectRequest,
    SessionEvent,
)
from trimaran.service_api.wire.stream import FrameParser


@pytest.fixture
def owner() -> FakeIngressOwner:
    return FakeIngressOwner()


@pytest.fixture
def ingress(owner: FakeIngressOwner) -> Ingress:
    return Ingress(owner, gate=quiet_gate())


def connect_request() -> SessionConnectRequest:
    return SessionConnectRequest(
        correlation_id=CorrelationId(9), response_stream_id=EGRESS_STREAM_ID, version=256, response_channel=""
    )


# --- before a session is open


def test_length_is_not_believed_before_a_session_is_open(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Issue 20 §3: the header of a long frame is enough to be refused; nothing is kept for it."""
    stranger = Client(ingress, is_bound=False)

    stranger.send(session_message(bytes(60_000))[:100])

    assert stranger.transport.is_aborted
    assert ingress.unfinished_bytes == 0 or stranger.connection.drop_unfinished()


def test_client_of_a_follower_may_send_long_frames_once_its_session_is_known_to_be_its(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """A query to a follower is long at times; nothing was bound there."""
    client = Client(ingress, is_bound=False)
    owner.holders.add(client.connection.connection_id)

    client.send(session_message(bytes(60_000)))

    assert not client.transport.is_aborted


def test_message_in_fragments_before_a_session_is_open_is_refused_at_once(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    stranger = Client(ingress, is_bound=False)

    stranger.send(encode_frame(bytes(1_000), stream_id=INGRESS_STREAM_ID, flags=FLAG_BEGIN))

    assert stranger.transport.is_aborted


def test_session_that_was_shown_in_the_same_pass_counts_for_what_follows(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose connection is new sends its proof, and a long query after it, in one write."""
    client = Client(ingress, is_bound=False)
    monkeypatch.setattr(owner, "take_soon", lambda: owner.holders.add(client.connection.connection_id))
    proof = ChallengeResponse(
        correlation_id=CorrelationId(-1), cluster_session_id=ClusterSessionId(SESSION), encoded_credentials=b"secret"
    )

    client.send(control(proof) + encode_frame(bytes(1_000), stream_id=INGRESS_STREAM_ID, flags=FLAG_BEGIN))

    assert not client.transport.is_aborted
    assert ingress.unfinished_bytes == 1_000


def test_what_is_unfinished_is_bounded_for_all_and_the_greediest_goes(owner: FakeIngressOwner) -> None:
    ingress = Ingress(owner, gate=quiet_gate(), unfinished_limit_bytes=100_000)
    greedy, modest = Client(ingress), Client(ingress)
    modest.send(encode_frame(bytes(1_000), stream_id=INGRESS_STREAM_ID, flags=FLAG_BEGIN))
    greedy.transport.waiting_bytes = 2 << 20  # so that it is ended without a last message
    for flags in (FLAG_BEGIN, 0, 0, 0):
        if not greedy.transport.is_aborted:
            greedy.send(encode_frame(bytes(30_000), stream_id=INGRESS_STREAM_ID, flags=flags))

    assert greedy.transport.is_aborted
    assert not modest.transport.is_aborted
    assert ingress.unfinished_bytes == 1_000


def test_nothing_is_unfinished_once_the_message_is_whole() -> None:
    ingress = Ingress(FakeIngressOwner(term_length_bytes=1 << 20), gate=quiet_gate())
    client = Client(ingress)
    data = session_message(bytes(100_000))

    client.send(data[:-64])
    during = ingress.unfinished_bytes
    client.send(data[-64:])

    assert during > 90_000
    assert ingress.unfinished_bytes == 0


def test_client_without_a_session_is_told_why_it_makes_room(owner: FakeIngressOwner) -> None:
    time = FakeTime()
    ingress = Ingress(owner, gate=quiet_gate(time=time))
    client = Client(ingress, is_bound=False)

    time.advance(30)

    (frame,) = FrameParser().feed(client.transport.take_written())
    assert has_facts(SessionEvent.decode(frame.payload).detail, "no session", "30 s")
    assert client.transport.is_closed
    assert not ingress.connections


def test_session_that_is_bound_has_no_deadline(owner: FakeIngressOwner) -> None:
    time = FakeTime()
    ingress = Ingress(owner, gate=quiet_gate(time=time))
    client = Client(ingress)

    time.advance(300)

    assert not client.transport.is_closed


@pytest.mark.parametrize(
    ("role", "principal"),
    [
        (CallerRole.CLIENT, b"app"),
        (CallerRole.OPERATOR, b"app"),
        (CallerRole.OBSERVER, b""),
        (CallerRole.MEMBER, b""),
        (CallerRole.STRANGER, b""),
    ],
)
def test_the_name_of_a_clients_certificate_is_its_principal(role: CallerRole, principal: bytes) -> None:
    owner = FakeIngressOwner()
    client = Client(Ingress(owner, gate=quiet_gate()))
    client.accepted.identify(Caller(role, "app", Proof.CERTIFICATE))
    connect = connect_request()

    client.send(control(connect))

    assert owner.posted == [ev.ClientConnect(client.connection.connection_id, connect, principal, "127.0.0.1")]


# --- another cluster


def of_another_cluster(owner: FakeIngressOwner, own: int, named: int) -> tuple[Ingress, IngressBytes, FakeTransport]:
    """A connection whose setup frame names a cluster, to a member of one."""
    ingress = Ingress(owner, gate=quiet_gate(), find_cluster_id=lambda: own)
    connection, transport = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS)), FakeTransport()
    connection.connection_made(transport)
    receive(connection, SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID, cluster_id=named).encode())
    return ingress, connection, transport


def test_a_client_that_means_another_cluster_is_told_so_in_answer_to_its_request(owner: FakeIngressOwner) -> None:
    """Only a leader held a demand against its cluster; a follower sent the client on to it."""
    ingress, connection, transport = of_another_cluster(owner, 5, 6)

    receive(connection, control(connect_request()))

    answer, *_ = [SessionEvent.decode(frame.payload) for frame in FrameParser().feed(transport.take_written())]
    assert (answer.correlation_id, answer.code) == (9, EventCode.ERROR)
    assert "cluster_id=0000000000000005 expected=0000000000000006" in answer.detail
    assert owner.posted == [ev.ClientDisconnected(connection.connection_id)]
    assert ingress.gate.refused_counts == {("ingress", "other_cluster"): 1}


def test_a_client_that_means_another_cluster_can_do_nothing_else_either(owner: FakeIngressOwner) -> None:
    _, connection, transport = of_another_cluster(owner, 5, 6)

    receive(connection, control(keep_alive()))

    (told,) = [SessionEvent.decode(frame.payload) for frame in FrameParser().feed(transport.take_written())]
    assert told.detail.startswith("another cluster: cluster_id=0000000000000005")
    assert owner.posted == [ev.ClientDisconnected(connection.connection_id)]


@pytest.mark.parametrize(("own", "named"), [(5, 0), (0, 6), (5, 5)])
def test_a_client_is_heard_where_one_of_both_does_not_know_the_cluster(
    own: int, named: int, owner: FakeIngressOwner
) -> None:
    _, connection, _ = of_another_cluster(owner, own, named)

    receive(connection, control(keep_alive()))

    assert [type(event) for event in owner.posted] == [ev.ClientKeepAlive]


# --- admin requests


def admin_request() -> AdminRequest:
    return AdminRequest(
        leadership_term_id=TermId(TERM),
        cluster_session_id=ClusterSessionId(SESSION),
        correlation_id=CorrelationId(99),
        request_type=AdminRequestType.SNAPSHOT,
    )


@pytest.mark.parametrize(
    ("role", "is_permitted"),
    [(CallerRole.CLIENT, False), (CallerRole.OBSERVER, False), (CallerRole.OPERATOR, True), (CallerRole.MEMBER, True)],
)
def test_admin_request_says_who_asks_and_whether_its_role_permits_it(
    role: CallerRole, is_permitted: bool, owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """Docs/security.md, "Who may do what": the table decides for certificates, in plain text nobody has a role."""
    client, caller = Client(ingress), Caller(role, "7", Proof.CERTIFICATE)
    frame = encode_frame(admin_request().encode(), stream_id=INGRESS_STREAM_ID)

    client.send(frame)
    client.accepted.identify(caller)
    client.send(frame)

    in_plain_text, certified = owner.posted
    address, connection_id = client.accepted.address, client.connection.connection_id
    assert in_plain_text == ev.ClientAdmin(connection_id, admin_request(), STRANGER, address, is_permitted=False)
    assert certified == ev.ClientAdmin(connection_id, admin_request(), caller, address, is_permitted)


def test_admin_request_of_an_unknown_type_is_posted_without_one_so_that_it_gets_an_answer(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """ClusterTest.shouldRejectAnInvalidAdminRequest."""
    known = admin_request()
    encoded = bytearray(known.encode())
    encoded[32:36] = (42).to_bytes(4, "little")
    client = Client(ingress)

    for message in (known.encode(), bytes(encoded)):
        client.send(encode_frame(message, stream_id=INGRESS_STREAM_ID))

    connection_id = client.connection.connection_id
    address = client.accepted.address
    assert owner.posted == [
        ev.ClientAdmin(connection_id, known, address=address),
        ev.ClientAdmin(connection_id, known.model_copy(update={"request_type": None}), address=address),
    ]
    assert not client.transport.is_closed


def test_messages_of_many_sessions_are_stamped_as_they_come(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Interleaved, of other lengths, messages and requests; a stranger's among them is a stray."""
    client = Client(ingress)
    for session in range(12, 20):
        client.connection.life.bind(ClusterSessionId(session), TERM)
    taken = [(11 + number % 9, b"x" * (number % 3)) for number in range(40)]
    chunk = b"".join(session_message(payload, session=session) for session, payload in taken[:20])
    chunk += session_message(b"stray", session=99)
    chunk += b"".join(session_message(payload, session=session) for session, payload in taken[20:])

    client.send(chunk)

    assert [type(event) for event in owner.posted] == [ev.ClientStray]
    content = b"".join(bytes(part) for part in owner.log_buffer.chunks_from(0))
    assert _sessions_and_payloads(content) == taken


def _sessions_and_payloads(content: bytes) -> list[tuple[int, bytes]]:
    found, offset = [], 0
    while offset < len(content):
        length = int.from_bytes(content[offset : offset + 4], "little")
        session = int.from_bytes(content[offset + 48 : offset + 56], "little")
        found.append((session, content[offset + 64 : offset + length]))
        offset += length + -length % 32
    return found


async def test_what_many_sessions_are_sent_in_a_turn_is_one_write(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    client.connection.life.bind(ClusterSessionId(12), TERM)

    for number in range(100):
        client.connection.egress.write(b"%02d" % number)
    before = bytes(client.transport.written)
    await asyncio.sleep(0)

    assert (before, bytes(client.transport.written)) == (b"", b"".join(b"%02d" % number for number in range(100)))


async def test_sessions_of_a_connection_are_unbound_one_by_one(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    client.connection.life.bind(ClusterSessionId(12), TERM)

    client.connection.life.release(ClusterSessionId(12))
    client.send(session_message(b"gone", session=12) + session_message(b"here"))

    assert [type(event) for event in owner.posted] == [ev.ClientStray]
    assert owner.log_buffer.append_position == 96
    assert client.connection.life.session_ids


# --- its life, to the end


def accept(ingress: Ingress) -> tuple[IngressBytes, FakeTransport]:
    """Accept a connection that has sent nothing yet."""
    connection, transport = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS)), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


def test_connection_that_has_sent_no_setup_frame_is_ended_without_a_message(ingress: Ingress) -> None:
    connection, transport = accept(ingress)

    connection.life.accepted.refuse("evicted", "it makes room")

    assert transport.is_aborted
    assert transport.written == b""
    assert not ingress.connections


def test_connection_that_was_ended_before_it_was_made_is_aborted(owner: FakeIngressOwner, ingress: Ingress) -> None:
    connection, transport = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS)), FakeTransport()
    connection.life.accepted.refuse("evicted", "it makes room")

    connection.connection_made(transport)
    connection.connection_lost(None)

    assert transport.is_aborted
    assert owner.posted == [ev.ClientDisconnected(connection.connection_id)]
    assert not ingress.connections


def test_gate_may_end_a_connection_that_is_closing(ingress: Ingress) -> None:
    client = Client(ingress, is_bound=False)

    client.connection.life.close()
    client.accepted.refuse("evicted", "it makes room")

    assert client.transport.is_aborted
    assert not ingress.connections


async def test_connection_that_closes_sends_what_waits_and_nothing_more(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """Its client is read meanwhile: what it sent before it knew must not be lost."""
    client = Client(ingress)
    client.connection.egress.write(b"sent ")
    client.transport.waiting_bytes = 1 << 20
    client.connection.pause_writing()
    client.connection.egress.write(b"waits")

    client.connection.life.close()
    client.connection.egress.write(b"too late")
    client.send(session_message(b"on its way") + session_message(b"cut")[:40])
    was_closed = client.transport.is_closed
    unfinished_bytes = ingress.unfinished_bytes
    client.transport.waiting_bytes = 0
    client.connection.resume_writing()

    assert (was_closed, client.transport.is_closed, client.transport.is_aborted) == (False, True, False)
    assert client.transport.written == b"sent waits"
    assert owner.log_buffer.append_position == 96
    assert unfinished_bytes == 0


async def test_connection_that_closes_is_cut_off_if_its_client_takes_nothing(
    ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_life, "LINGER_S", 0.0)
    client = Client(ingress)
    client.transport.waiting_bytes = 1 << 20
    client.connection.pause_writing()

    client.connection.life.close()
    await until(lambda: client.transport.is_aborted)

    assert ingress.egress.held_bytes == 0


async def test_what_follows_a_refused_message_in_one_chunk_finds_no_session(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """The connection has ended; the end of its client is posted once, and before the stray."""
    owner.make_publisher(refused_ingress=REFUSES_MESSAGES)
    client = Client(ingress)

    client.send(session_message(b"refused") + session_message(b"stray"))

    assert [type(event) for event in owner.posted] == [ev.ClientDisconnected, ev.ClientStray]
    assert ingress.unfinished_bytes == 0


async def test_client_that_makes_room_for_unfinished_bytes_of_its_own_is_taken_no_further(
    owner: FakeIngressOwner,
) -> None:
    """It is ended amid the chunk that is too much; what that chunk ends with is not counted."""
    ingress = Ingress(owner, gate=quiet_gate(), unfinished_limit_bytes=1_000)
    client = Client(ingress)

    client.send(encode_frame(bytes(2_000), stream_id=INGRESS_STREAM_ID, flags=FLAG_BEGIN) + bytes(16))

    assert not ingress.connections
    assert ingress.unfinished_bytes == 0
    client.connection.connection_lost(None)
    assert ingress.unfinished_bytes == 0


async def test_credentials_that_are_too_long_are_no_claim(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress, is_bound=False)
    proof = ChallengeResponse(
        correlation_id=CorrelationId(1), cluster_session_id=ClusterSessionId(SESSION), encoded_credentials=bytes(5_000)
    )

    client.send(control(proof))

    assert client.transport.is_aborted
    assert [type(event) for event in owner.posted] == [ev.ClientDisconnected]


async def test_claim_lets_its_client_send_long_frames_before_the_core_has_looked(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress, is_bound=False)
    proof = ChallengeResponse(
        correlation_id=CorrelationId(1), cluster_session_id=ClusterSessionId(SESSION), encoded_credentials=b"secret"
    )

    client.send(control(proof) + session_message(bytes(60_000)))

    assert not client.transport.is_aborted


async def test_a_connection_keeps_its_rights_after_its_last_session(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)

    client.connection.life.release(ClusterSessionId(SESSION))
    client.send(encode_frame(bytes(60_000), stream_id=INGRESS_STREAM_ID, flags=FLAG_BEGIN))

    assert not client.transport.is_aborted
    assert ingress.unfinished_bytes == 60_000


def test_a_connection_goes_from_state_to_state_as_its_client_shows_more(ingress: Ingress) -> None:
    connection, _ = accept(ingress)
    life, states = connection.life, [connection.life.state]
    proof = ChallengeResponse(
        correlation_id=CorrelationId(1), cluster_session_id=ClusterSessionId(SESSION), encoded_credentials=b"secret"
    )

    steps: list[Callable[[], object]] = [
        lambda: receive(connection, setup()),
        lambda: receive(connection, control(proof)),
        lambda: life.bind(ClusterSessionId(SESSION), TERM),
        lambda: receive(connection, control(proof)),
        lambda: life.release(ClusterSessionId(SESSION)),
        life.close,
        lambda: life.bind(ClusterSessionId(SESSION), TERM),
        lambda: connection.connection_lost(None),
    ]
    for step in steps:
        step()
        states.append(life.state)

    names = [state.name for state in states]
    assert names == ["ACCEPTED", "SET_UP", "CLAIMED", "OPEN", "OPEN", "OPEN", "ENDING", "ENDING", "CLOSED"]


def test_no_session_is_bound_to_a_connection_before_its_setup_frame(ingress: Ingress) -> None:
    """The core binds what has asked for a session, and nothing is heard of it before."""
    connection, _ = accept(ingress)

    with pytest.raises(InvariantViolation, match="old='ACCEPTED' new='OPEN'"):
        connection.life.bind(ClusterSessionId(SESSION), TERM)
