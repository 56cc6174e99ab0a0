"""What many connections bring in one pass of the loop: appended together, whatever is among it."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_ingress_owner import FakeIngressOwner
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.unit.cluster.runtime.ingress_client import TERM, control, session_message, setup
from tests.waiting import passes, until
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.log import log_publisher
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.runtime.links import ingress_bytes
from trimaran.cluster.runtime.links.connection_state import ConnectionState
from trimaran.cluster.runtime.links.farewell import Farewell
from trimaran.cluster.runtime.links.gathered_ingress import GATHERED_BYTES, GATHERED_PART_BYTES
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.ingress_bytes import IngressBytes
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import INGRESS_STREAM_ID, ClusterSessionId, TermId
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import encode_message, iter_headers
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session import REFUSED_BY_SETTING, REFUSES_MESSAGES, SessionKeepAlive


@pytest.fixture
def owner() -> FakeIngressOwner:
    return FakeIngressOwner(term_length_bytes=64 << 10)


@pytest.fixture
def ingress(owner: FakeIngressOwner) -> Ingress:
    return Ingress(owner, gate=quiet_gate())


def connect(ingress: Ingress, count: int) -> list[IngressBytes]:
    """Open so many connections, with the sessions 1, 2, ... on them."""
    connections = []
    for session_id in range(1, count + 1):
        connection = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS))
        connection.connection_made(FakeTransport())
        receive(connection, setup())
        connection.life.bind(ClusterSessionId(session_id), TERM)
        connections.append(connection)
    return connections


def message(session: int, payload: bytes = b"") -> bytes:
    return session_message(payload or b"of %d" % session, session=session)


def request(session: int, payload: bytes) -> bytes:
    header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, session, 0, 1, 0)
    return encode_message(header + payload, stream_id=INGRESS_STREAM_ID, mtu_length=1408)


def keep_alive_of(session: int) -> bytes:
    return control(SessionKeepAlive(leadership_term_id=TermId(TERM), cluster_session_id=ClusterSessionId(session)))


def close_half_open(ingress: Ingress) -> None:
    """Look for clients that have left, and let the loop say of each connection that it is gone."""
    ingress.close_half_open_connections()
    for connection in [*ingress.connections.values()]:
        if connection.egress.transport is not None and connection.egress.transport.is_closing():
            connection.connection_lost(None)


def logged(owner: FakeIngressOwner) -> list[tuple[int, bytes]]:
    """Session and payload of each message in the log, in order; checks every frame as a follower does."""
    log = b"".join(owner.log_buffer.chunks_from(0))
    rules = FrameRules(
        initial_term_id=0,
        term_length_bytes=owner.term_length_bytes,
        mtu_length_bytes=owner.mtu_length_bytes,
        stream_id=100,
        checksummed=True,
        checksum_kind=ChecksumKind.CRC32,
    )
    found, position = [], 0
    for offset, header in iter_headers(log):
        frame = log[offset : offset + header.aligned_length]
        assert rules.find_fault(frame, 0, position) is None
        position += header.aligned_length
        if header.frame_length > 32 and header.type == 1:
            (session_id,) = struct.unpack_from("<q", frame, 48)
            payload_offset = 80 if frame[32] == 40 else 64
            found.append((session_id, frame[payload_offset : header.frame_length]))
    return found


async def test_messages_of_one_pass_are_one_chunk_of_the_log(owner: FakeIngressOwner, ingress: Ingress) -> None:
    for connection in (connections := connect(ingress, 40)):
        receive(connection, message(connections.index(connection) + 1, b"12345"))
    before_the_end = owner.log_buffer.append_position

    await asyncio.sleep(0)

    assert before_the_end == 0
    assert [(session, b"12345") for session in range(1, 41)] == logged(owner)
    assert len(owner.log_buffer.take_pending()) == 1
    assert owner.flush_count == 1


async def test_no_columns_are_read_where_the_byte_order_is_another(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        pytest.fail("columns are read in the byte order of the machine")

    monkeypatch.setattr(log_publisher, "IS_LITTLE_ENDIAN", False)
    monkeypatch.setattr(log_publisher, "FrameRun", refuse)
    for session, connection in enumerate(connect(ingress, 40), 1):
        receive(connection, message(session, b"12345"))

    await asyncio.sleep(0)

    assert [(session, b"12345") for session in range(1, 41)] == logged(owner)


async def test_what_comes_on_a_connection_that_ends_does_not_take_the_place_of_what_is_gathered(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """A flood is told to go and sends on, in the pass in which an honest client's message came."""
    honest, *_, ended = connect(ingress, 5)
    transport = ended.egress.transport
    assert isinstance(transport, FakeTransport)
    ended.life.end_with("it makes room")
    receive(honest, message(1, b"12345"))

    farewell = transport.protocol
    assert isinstance(farewell, Farewell)
    farewell.get_buffer(-1)[:256] = bytes(256)
    farewell.buffer_updated(256)
    await asyncio.sleep(0)

    assert logged(owner) == [(1, b"12345")]


async def test_keep_alives_and_other_lengths_among_the_messages_are_taken_too(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    expected = []
    for session, connection in enumerate(connect(ingress, 100), 1):
        if session % 10 == 3:
            receive(connection, keep_alive_of(session))
        elif session % 10 == 7:
            receive(connection, request(session, b"r" * session))
            expected.append((session, b"r" * session))
        else:
            receive(connection, message(session, b"12345"))
            expected.append((session, b"12345"))

    await asyncio.sleep(0)

    assert expected == sorted(logged(owner))
    assert {3, 13, 23, 33, 43, 53, 63, 73, 83, 93} == {
        event.cluster_session_id for event in owner.posted if isinstance(event, ev.ClientKeepAlive)
    }


async def test_requests_of_one_length_are_appended_together(owner: FakeIngressOwner, ingress: Ingress) -> None:
    for session, connection in enumerate(connect(ingress, 30), 1):
        receive(connection, request(session, b"put %02d" % session))

    await asyncio.sleep(0)

    assert [(session, b"put %02d" % session) for session in range(1, 31)] == logged(owner)
    assert len(owner.log_buffer.take_pending()) == 1


@pytest.mark.parametrize("count", [12, 40], ids=["one by one", "as a run"])
async def test_message_for_the_session_of_another_connection_is_a_stray(
    owner: FakeIngressOwner, ingress: Ingress, count: int
) -> None:
    for session, connection in enumerate(connect(ingress, count), 1):
        receive(connection, message(4 if session == 9 else session, b"12345"))

    await asyncio.sleep(0)

    assert [(session, b"12345") for session in range(1, count + 1) if session != 9] == logged(owner)
    assert [event.cluster_session_id for event in owner.posted if isinstance(event, ev.ClientStray)] == [4]


async def test_half_a_frame_waits_for_the_pass_that_brings_the_rest(owner: FakeIngressOwner, ingress: Ingress) -> None:
    connections = connect(ingress, 20)
    whole = message(7, b"cut in two")
    for session, connection in enumerate(connections, 1):
        receive(connection, whole[:50] if session == 7 else message(session, b"12345"))
    await asyncio.sleep(0)
    in_first_pass = logged(owner)
    for session, connection in enumerate(connections, 1):
        receive(connection, whole[50:] if session == 7 else message(session, b"12345"))

    await asyncio.sleep(0)

    assert [(session, b"12345") for session in range(1, 21) if session != 7] == in_first_pass
    assert len(logged(owner)) == 39
    assert (7, b"cut in two") in logged(owner)
    assert ingress.unfinished_bytes == 0


async def test_both_halves_of_a_frame_may_come_in_one_pass(owner: FakeIngressOwner, ingress: Ingress) -> None:
    connections = connect(ingress, 20)
    whole = message(7, b"cut in two")
    for data in (whole[:50], whole[50:]):
        receive(connections[6], data)
        receive(connections[7], message(8, b"between"))
    receive(connections[6], message(7, b"next"))

    await asyncio.sleep(0)

    assert [payload for session, payload in logged(owner) if session == 7] == [b"cut in two", b"next"]
    assert [payload for session, payload in logged(owner) if session == 8] == [b"between", b"between"]


async def test_payload_that_looks_like_a_frame_is_none_where_a_read_began_within_a_message(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """An application passes on what strangers write, and chance cuts it: the second read begins with the payload."""
    connections = connect(ingress, 20)
    whole = message(7, message(7, b"of a stranger"))
    receive(connections[6], whole[:64])
    receive(connections[6], whole[64:])

    await asyncio.sleep(0)

    assert [(7, whole[64:])] == logged(owner)
    assert ingress.unfinished_bytes == 0


async def test_message_amid_the_fragments_of_another_one_is_refused_as_it_is_alone(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    connections = connect(ingress, 20)
    fragments = encode_message(message(7, b"x" * 200)[32:], stream_id=INGRESS_STREAM_ID, mtu_length=128)
    for data in (fragments[:128], message(7, b"amid"), fragments[128:]):
        receive(connections[6], data)

    await asyncio.sleep(0)

    assert logged(owner) == []
    assert connections[6].connection_id not in ingress.connections


async def test_nothing_is_taken_of_a_connection_after_bytes_that_make_no_sense(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    connections = connect(ingress, 20)
    receive(connections[6], message(7, b"before"))
    receive(connections[6], bytes(64))
    receive(connections[6], message(7, b"after"))
    receive(connections[7], message(8, b"of another"))

    await asyncio.sleep(0)

    assert logged(owner) == [(7, b"before"), (8, b"of another")]
    assert connections[6].connection_id not in ingress.connections


async def test_strange_bytes_of_one_client_cost_the_others_nothing(owner: FakeIngressOwner, ingress: Ingress) -> None:
    chance = random.Random(2611)
    sources = (message(1, b"12345"), request(1, b"put"), keep_alive_of(1), setup())
    for _ in range(300):
        owner.make_publisher()
        ingress.connections.clear()
        first, *others = connect(ingress, 6)
        strange = bytearray(chance.choice(sources))
        for _ in range(chance.randrange(1, 6)):
            strange[chance.randrange(len(strange))] = chance.choice((0, 1, 40, 127, 255, chance.randrange(256)))
        before = len(logged(owner))
        receive(first, bytes(strange))
        for session, connection in enumerate(others, 2):
            receive(connection, message(session, b"12345"))

        ingress.gathered.take()

        found = logged(owner)[before:]
        assert [(session, b"12345") for session in range(2, 7)] == [one for one in found if one[0] != 1]
        owner.log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)


async def test_several_parts_of_a_connection_keep_their_order_whatever_their_lengths(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    connections = connect(ingress, 20)
    sent: dict[int, list[bytes]] = {session: [] for session in range(1, 21)}
    chance = random.Random(26)
    for _ in range(300):
        session = chance.randrange(1, 21)
        size = chance.choice((3, 3, 3, 40, GATHERED_PART_BYTES + 1000))
        sent[session].append(payload := b"%05d" % len(sent[session]) + b"x" * size)
        receive(connections[session - 1], message(session, payload))
        if chance.random() < 0.05:
            await asyncio.sleep(0)

    await asyncio.sleep(0)

    found: dict[int, list[bytes]] = {session: [] for session in range(1, 21)}
    log = b"".join(owner.log_buffer.chunks_from(0))
    assert log
    for session, payload in logged(owner):
        if payload[:5].isdigit() and len(payload) < 100:
            found[session].append(payload)
    assert found == {session: [p for p in payloads if len(p) < 100] for session, payloads in sent.items()}


async def test_what_a_lost_connection_brought_is_in_the_log_before_its_end_is_told(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    connections = connect(ingress, 20)
    for session, connection in enumerate(connections, 1):
        receive(connection, message(session, b"12345"))
    connections[4].connection_lost(ConnectionResetError())

    assert len(logged(owner)) == 20
    assert [type(event) for event in owner.posted] == [ev.ClientDisconnected]


async def test_nothing_is_taken_of_a_connection_that_was_ended_amid_the_pass(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    connections = connect(ingress, 20)
    for session, connection in enumerate(connections, 1):
        receive(connection, message(session, b"12345"))
    connections[4].life.end_with("it makes room")

    await asyncio.sleep(0)

    assert [session for session, _ in logged(owner)] == [session for session in range(1, 21) if session != 5]
    assert not any(isinstance(event, ev.ClientStray) for event in owner.posted)


async def test_what_is_gathered_when_reading_is_paused_waits_and_counts_as_unfinished(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """A leader that holds may append nothing."""
    connections = connect(ingress, 20)
    for session, connection in enumerate(connections, 1):
        receive(connection, message(session, b"12345"))
    ingress.pause()
    await asyncio.sleep(0)
    while_paused = (owner.log_buffer.append_position, ingress.unfinished_bytes)
    ingress.resume()

    await passes(2)

    assert while_paused == (0, 20 * 96)
    assert [(session, b"12345") for session in range(1, 21)] == sorted(logged(owner))
    assert ingress.unfinished_bytes == 0


async def test_what_a_client_said_before_it_left_is_kept_while_nobody_is_read(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not gathered would still be in the socket, and its connection is kept for that."""
    connections = connect(ingress, 20)
    for session, connection in enumerate(connections[:2], 1):
        receive(connection, message(session, b"12345"))
    ingress.pause()
    await asyncio.sleep(0)
    monkeypatch.setattr(ingress_bytes, "has_peer_closed", lambda transport, *, if_unread: True)
    close_half_open(ingress)
    while_paused = [*ingress.connections]
    ingress.resume()

    await passes(2)

    assert while_paused == [1, 2]
    assert logged(owner) == [(1, b"12345"), (2, b"12345")]
    ingress.pause()
    close_half_open(ingress)
    assert not ingress.connections
    assert ingress.unfinished_bytes == 0


async def test_full_window_is_noticed_within_the_pass_and_stops_reading(owner: FakeIngressOwner) -> None:
    owner.window_bytes = 1000
    ingress = Ingress(owner, gate=quiet_gate())
    for session, connection in enumerate(connect(ingress, 12), 1):
        receive(connection, message(session, b"x" * (200 + session)))

    await asyncio.sleep(0)

    assert ingress.is_paused
    assert owner.log_buffer.append_position + ingress.unfinished_bytes == 12 * 288
    assert owner.log_buffer.append_position <= 1000 + GATHERED_BYTES


async def test_member_that_does_not_lead_drops_what_is_gathered(owner: FakeIngressOwner, ingress: Ingress) -> None:
    for session, connection in enumerate(connect(ingress, 20), 1):
        receive(connection, message(session, b"12345"))
    owner.publisher = None

    await asyncio.sleep(0)

    assert owner.log_buffer.append_position == 0


async def test_no_more_is_gathered_than_the_buffer_has_room_for(owner: FakeIngressOwner) -> None:
    owner = FakeIngressOwner(window_bytes=64 << 20, term_length_bytes=1 << 20)
    ingress = Ingress(owner, gate=quiet_gate())
    count = 0
    for session, connection in enumerate(connect(ingress, 200), 1):
        receive(connection, message(session, b"x" * 1300) + message(session, b"y" * 1200))
        count += 2
        assert ingress.gathered.end < GATHERED_BYTES + GATHERED_PART_BYTES
    within_the_pass = owner.log_buffer.append_position

    await asyncio.sleep(0)

    assert within_the_pass >= GATHERED_BYTES
    assert len(logged(owner)) == count


@pytest.mark.parametrize("lengths", [(96,), (96, 288)], ids=["one length", "two lengths"])
async def test_a_message_never_crosses_a_term(lengths: tuple[int, ...]) -> None:
    owner = FakeIngressOwner(window_bytes=64 << 20, term_length_bytes=64 << 10)
    ingress = Ingress(owner, gate=quiet_gate())
    connections = connect(ingress, 100)
    for _ in range(12):
        for session, connection in enumerate(connections, 1):
            receive(connection, message(session, b"x" * (lengths[session % len(lengths)] - 64)))
        await asyncio.sleep(0)

    assert len(logged(owner)) == 1200
    assert owner.log_buffer.append_position > 64 << 10


async def test_messages_that_no_service_takes_are_in_no_log(owner: FakeIngressOwner, ingress: Ingress) -> None:
    connections = connect(ingress, 20)
    owner.make_publisher(refused_ingress=REFUSES_MESSAGES | REFUSED_BY_SETTING)
    for session, connection in enumerate(connections, 1):
        receive(connection, message(session, b"12345"))

    await asyncio.sleep(0)

    assert owner.log_buffer.append_position == 0
    assert sum(isinstance(event, ev.ClientDisconnected) for event in owner.posted) == 20


async def test_padding_of_gathered_messages_is_clean_in_the_log(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """What a client leaves behind its payload would be in the log for ever."""
    for session, connection in enumerate(connect(ingress, 20), 1):
        frame = bytearray(message(session, b"12345"))
        if session == 6:
            frame[-1] = 1
        receive(connection, bytes(frame))

    await asyncio.sleep(0)

    log = b"".join(owner.log_buffer.chunks_from(0))
    assert len(logged(owner)) == 20
    assert all(not any(log[offset + 69 : offset + 96]) for offset in range(0, len(log), 96))


async def test_few_connections_do_not_wait_for_the_end_of_the_pass(owner: FakeIngressOwner, ingress: Ingress) -> None:
    (connection,) = connect(ingress, 1)

    receive(connection, message(1, b"12345"))

    assert logged(owner) == [(1, b"12345")]


# --- with real sockets


def is_set_up(connection: IngressBytes) -> bool:
    return connection.life.state is ConnectionState.SET_UP


@asynccontextmanager
async def listening(ingress: Ingress, count: int) -> AsyncIterator[list[socket.socket]]:
    """Clients on real sockets, with the sessions 1, 2, ... of a member that listens."""
    await ingress.start(SOCKETS, Endpoint("127.0.0.1", 0))
    assert ingress._listener is not None
    port = ingress._listener.endpoint.port
    clients: list[socket.socket] = []
    try:
        for _ in range(count):
            clients.append(client := socket.create_connection(("127.0.0.1", port)))
            client.sendall(setup())
        await until(lambda: len(ingress.connections) == count and all(map(is_set_up, ingress.connections.values())))
        sessions = {client.getsockname()[1]: session for session, client in enumerate(clients, 1)}
        for connection in ingress.connections.values():
            assert connection.egress.transport is not None
            _, peer_port = connection.egress.transport.get_extra_info("peername")
            connection.life.bind(ClusterSessionId(sessions[peer_port]), TERM)
        yield clients
    finally:
        for client in clients:
            client.close()
        ingress.close()


def test_two_thousand_connections_that_are_ready_at_once() -> None:
    """One of them is reset amid them, one sends half a frame, one reads nothing of what it is sent."""
    owner = FakeIngressOwner(window_bytes=1 << 30, term_length_bytes=1 << 20)
    ingress = Ingress(owner, gate=quiet_gate())

    async def main() -> None:
        async with listening(ingress, 2_000) as clients:
            whole = message(1000, b"in two passes")
            for session, client in enumerate(clients, 1):
                client.sendall(whole[:40] if session == 1000 else message(session, b"12345"))
            clients[499].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            clients[499].close()
            await until(lambda: len(logged(owner)) >= 1_998 and len(ingress.connections) == 1_999)
            clients[999].sendall(whole[40:])
            await until(lambda: (1000, b"in two passes") in logged(owner))
            slow, *others = sorted(ingress.connections.values(), key=lambda connection: connection.life.session_id or 0)
            while not slow.egress.waiting:
                slow.egress.write(bytes(1 << 16))
            for connection in others:
                connection.egress.write(b"reply")
            loop = asyncio.get_running_loop()
            for client in (clients[1], clients[998], clients[1999]):
                client.setblocking(False)
                assert await loop.sock_recv(client, 500) == b"reply"

    uvloop.run(main())

    sessions = [session for session, payload in logged(owner) if payload == b"12345"]
    assert {*range(1, 2_001)} - {500, 1000} <= set(sessions)
    assert len(sessions) == len(set(sessions))
