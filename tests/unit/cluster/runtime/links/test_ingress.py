"""What a member does with the bytes of its clients: whole, cut, stray, too many and wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop

import trimaran.cluster.runtime.links.ingress as ingress_module
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_ingress_owner import FakeIngressOwner
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.unit.cluster.runtime.ingress_client import (
    CLIENT_MTU,
    SESSION,
    TERM,
    Client,
    control,
    keep_alive,
    session_message,
    setup,
)
from tests.waiting import let_pass, until, within
from trimaran.cluster.core import events as ev
from trimaran.cluster.runtime.links import connection_life
from trimaran.cluster.runtime.links.connection_state import ConnectionState
from trimaran.cluster.runtime.links.egress_tracker import READ_LIMIT_BYTES
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.ingress_bytes import IngressBytes
from trimaran.service_api import LocalProtocolError
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.frame import (
    TYPE_STATUS,
    encode_frame,
    encode_message,
    iter_whole_messages,
    unpack_header,
)
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.queries import AskedQuery, QueryRequest, write_query
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session import (
    NULL_CORRELATION_ID,
    REFUSED_BY_SETTING,
    REFUSES_MESSAGES,
    REFUSES_REQUESTS,
    AskingKeepAlive,
    EventCode,
    KeepAliveAnswer,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler


@pytest.fixture
def owner() -> FakeIngressOwner:
    return FakeIngressOwner()


@pytest.fixture
def ingress(owner: FakeIngressOwner) -> Ingress:
    return Ingress(owner, gate=quiet_gate())


def payloads(owner: FakeIngressOwner) -> list[bytes]:
    """What the session messages in the log carry."""
    log = b"".join(owner.log_buffer.chunks_from(0))
    assembler = MessageAssembler()
    found, offset = [], 0
    while offset < len(log):
        header = unpack_header(log, offset)
        message = assembler.append_fragment(header.type, header.flags, log[offset + 32 : offset + header.frame_length])
        if message is not None:
            found.append(message[32:])
        offset += (header.frame_length + 31) & -32
    return found


# --- messages in


def test_session_messages_are_appended_in_order_however_they_are_cut(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Chunks end where the network likes; the incomplete frame is kept per connection."""
    client, other = Client(ingress), Client(ingress)
    data = b"".join(session_message(b"message %d" % number) for number in range(5))

    for start in range(0, len(data), 37):
        client.send(data[start : start + 37])
        other.send(session_message(b"between")[:40])
        other.connection._carry = b""

    assert payloads(owner) == [b"message %d" % number for number in range(5)]
    assert owner.flush_count > 0


def test_message_in_fragments_is_appended_whole_and_before_what_follows_it(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """A message longer than the client's mtu comes as adjacent frames. Source: samples README §2."""
    owner = FakeIngressOwner(term_length_bytes=1 << 20)
    client = Client(Ingress(owner, gate=quiet_gate()))
    long = bytes(range(256)) * 400

    client.send(session_message(b"first") + session_message(long) + session_message(b"last"))

    assert payloads(owner) == [b"first", long, b"last"]
    assert owner.posted == []


def test_message_of_one_frame_that_is_longer_than_the_logs_mtu_is_fragmented(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """Clients cut at 65,504 bytes, whatever mtu the log was made with."""
    client = Client(ingress)

    client.send(session_message(b"x" * 3000) + session_message(b"next"))

    assert payloads(owner) == [b"x" * 3000, b"next"]
    assert not client.transport.is_closed


def test_message_longer_than_the_log_can_hold_ends_the_connection(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """The limit is an eighth of a term. Source: Aeron `FrameDescriptor.computeMaxMessageLength`."""
    client = Client(ingress)

    client.send(session_message(b"x" * (8 << 10)))

    assert client.transport.is_aborted
    assert payloads(owner) == []


@pytest.mark.parametrize("payload", [b"short", b"x" * 5_000], ids=["one frame", "fragments"])
async def test_what_no_service_takes_ends_the_connection_and_is_in_no_log(
    owner: FakeIngressOwner, ingress: Ingress, payload: bytes
) -> None:
    """2 MB of messages to a service without `on_session_message` left honest clients 2 answers in 9 s."""
    owner.make_publisher(refused_ingress=REFUSES_MESSAGES)
    client = Client(ingress)

    client.send(session_message(payload) + session_message(payload))

    assert payloads(owner) == []
    (frame,) = FrameParser().feed(client.transport.take_written())
    event = SessionEvent.decode(frame.payload)
    assert (event.code, event.detail) == (
        EventCode.ERROR,
        "the service takes no messages: it has no on_session_message",
    )
    assert ingress.connections == {}


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (REFUSES_REQUESTS, "the service takes no requests: it has no on_request"),
        (
            REFUSES_REQUESTS | REFUSED_BY_SETTING,
            "the cluster takes no requests: it runs with aeron_messages_only",
        ),
    ],
)
async def test_a_request_that_is_refused_is_in_no_log_and_its_client_is_told_why(
    owner: FakeIngressOwner, ingress: Ingress, refused: int, reason: str
) -> None:
    owner.make_publisher(refused_ingress=refused)
    client = Client(ingress)
    request = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, SESSION, 0, 1, 0)

    client.send(encode_frame(request + b"payload", stream_id=INGRESS_STREAM_ID))

    assert payloads(owner) == []
    (frame,) = FrameParser().feed(client.transport.take_written())
    assert SessionEvent.decode(frame.payload).detail.startswith(reason)


def test_control_messages_are_posted_with_the_connection_they_came_on(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress)
    connection_id = client.connection.connection_id
    connect = SessionConnectRequest(
        correlation_id=CorrelationId(9), response_stream_id=EGRESS_STREAM_ID, version=256, response_channel=""
    )
    close = SessionCloseRequest(leadership_term_id=TermId(TERM), cluster_session_id=ClusterSessionId(SESSION))

    client.send(control(connect) + control(keep_alive()) + control(close))

    assert owner.posted == [
        ev.ClientConnect(connection_id, connect, address="127.0.0.1"),
        ev.ClientKeepAlive(connection_id, TERM, ClusterSessionId(SESSION)),
        ev.ClientClose(connection_id, TERM, ClusterSessionId(SESSION)),
    ]


def test_keep_alive_that_tells_nothing_new_is_no_event_and_counts_as_activity(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress)
    owner.known_keep_alive = (client.connection.connection_id, TERM, SESSION)
    owner.now_ns += 1_000_000

    client.send(control(keep_alive()))

    assert owner.posted == []
    assert ingress.last_activity_ns(client.connection.connection_id) == owner.now_ns


def answers(client: Client) -> list[KeepAliveAnswer]:
    """Take the answers to keep-alives that a client was sent."""
    written, client.transport.written = bytes(client.transport.written), bytearray()
    return [KeepAliveAnswer.decode(encoded) for _, encoded in iter_whole_messages(written)]


def ask(client: Client, number: int) -> None:
    asking = AskingKeepAlive(**dict(keep_alive()), correlation_id=CorrelationId(number))
    client.send(control(asking))


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_keep_alive_that_asks_is_answered_with_whether_the_member_leads(
    owner: FakeIngressOwner, ingress: Ingress, is_leader: bool
) -> None:
    client = Client(ingress)
    if not is_leader:
        owner.publisher = None

    ask(client, 17)

    assert answers(client) == [KeepAliveAnswer(correlation_id=CorrelationId(17), is_leader=int(is_leader))]
    assert [type(event) for event in owner.posted] == [ev.ClientKeepAlive]


def test_a_client_that_does_not_ask_gets_no_answer(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Aeron's has no such message."""
    client = Client(ingress)

    client.send(control(keep_alive()))
    ingress.pause()
    owner.now_ns += 5_000_000_000
    ingress.look()

    assert client.transport.written == b""


def test_clients_that_are_not_read_for_long_are_told_that_the_member_runs(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress)
    ask(client, 17)
    answers(client)

    ingress.pause()
    ingress.look()
    assert answers(client) == []
    owner.now_ns += 1_000_000_000
    ingress.pause()
    ingress.look()
    assert answers(client) == [KeepAliveAnswer(correlation_id=NULL_CORRELATION_ID, is_leader=1)]
    ingress.resume()
    ingress.look()
    assert answers(client) == []


def test_control_message_between_session_messages_keeps_its_place(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    positions: list[int] = []
    owner.post = lambda event: positions.append(owner.log_buffer.append_position)  # type: ignore[method-assign]

    client.send(session_message(b"a") + control(keep_alive()) + session_message(b"b"))

    assert payloads(owner) == [b"a", b"b"]
    assert positions == [96]


@pytest.mark.parametrize(("term", "session"), [(TERM - 1, SESSION), (TERM, SESSION + 1)])
def test_leader_is_told_of_a_stray_message_so_that_its_client_gets_an_answer(
    owner: FakeIngressOwner, ingress: Ingress, term: int, session: int
) -> None:
    client = Client(ingress)

    client.send(session_message(b"stray", term=term, session=session))

    assert owner.posted == [ev.ClientStray(client.connection.connection_id, term, ClusterSessionId(session))]
    assert payloads(owner) == []


def test_member_that_does_not_lead_drops_session_messages_without_an_event_for_each(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """The core ignores them there, and in an election they would fill the inbox while an effect settles.

    1. A leader under load loses its place; its clients' socket buffers are full of messages of the old term.
    2. The election waits for the disk. Meanwhile every message became an event in the inbox.
    3. At 65,536 of them, 6 MB of small messages, the node stopped itself.
    """
    client = Client(ingress)
    client.connection.life.unbind()
    owner.publisher = None

    client.send(session_message(b"late") * 100 + control(keep_alive()))

    assert [type(event) for event in owner.posted] == [ev.ClientKeepAlive]


# --- flow control


async def test_full_window_pauses_every_connection_and_those_that_come_later(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """Source: DESIGN §7; aeron.md §10 hazard 32."""
    client, other = Client(ingress), Client(ingress)
    owner.window_bytes = 96

    client.send(session_message(b"a") + session_message(b"b"))
    late = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS))
    late_transport = FakeTransport()
    late.connection_made(late_transport)

    assert [client.transport.is_reading(), other.transport.is_reading(), late_transport.is_reading()] == [False] * 3
    ingress.resume()
    assert [client.transport.is_reading(), other.transport.is_reading(), late_transport.is_reading()] == [True] * 3


def test_greedy_client_keeps_no_other_waiting_for_more_than_one_turn(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Or one that came first would fill the window again and again, before any other is read."""
    clients = [Client(ingress) for _ in range(3)]
    turns: list[int] = []

    for _ in range(6):  # as the loop does: those that are read again first are asked first, and all have sent something
        owner.window_bytes = owner.log_buffer.append_position
        order = [clients[number - 1] for number in ingress.connections]
        reading = next(client for client in order if client.transport.is_reading())
        reading.send(session_message(b"more"))
        turns.append(reading.connection.connection_id)
        assert not any(client.transport.is_reading() for client in clients)
        ingress.resume()

    assert turns == [1, 2, 3, 1, 2, 3]


def test_full_window_leaves_nothing_half_done(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """What came with the message that filled it is taken whole, what is cut waits; every message is there once.

    Source: aeron.md §3.5, an append that is refused: the fragment is polled again.
    """
    client = Client(ingress)
    owner.window_bytes = 96
    messages = [b"message %d" % number for number in range(40)]
    data = b"".join(map(session_message, messages))
    start = 0

    while start < len(data):
        assert client.transport.is_reading()
        client.send(data[start : start + 150])
        start += 150
        if not client.transport.is_reading():
            owner.window_bytes = owner.log_buffer.append_position + 96  # it is delivered up to here
            ingress.resume()

    assert payloads(owner) == messages
    assert not client.transport.is_closed


def test_message_that_the_log_cannot_hold_leaves_the_log_as_it_was(owner: FakeIngressOwner) -> None:
    """Not even the padding that would have to come before it."""
    assert owner.publisher is not None
    owner.publisher.append_message(b"x" * 8000)
    owner.log_buffer.take_pending()
    position = owner.log_buffer.append_position

    with pytest.raises(LocalProtocolError, match=f"limit={owner.publisher.max_message_length}"):
        owner.publisher.append_message(b"x" * (owner.publisher.max_message_length + 1))

    assert (owner.log_buffer.append_position, owner.log_buffer.take_pending()) == (position, [])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_connection_that_comes_while_the_window_is_full_is_not_read(
    owner: FakeIngressOwner, ingress: Ingress, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """uvloop begins to read after `connection_made`, whatever was asked for in it."""

    posted_while_paused: list[object] = []

    async def connect() -> None:
        await ingress.start(SOCKETS, Endpoint("127.0.0.1", 0))
        assert ingress._listener is not None
        ingress.pause()
        _, writer = await SOCKETS.dial_streams(Purpose.INGRESS, ingress._listener.endpoint)
        writer.write(setup() + control(keep_alive()))
        async with within(60):
            await until(lambda: ingress.connections)
            await let_pass(0.05)  # what must not be read has no event to wait for
            posted_while_paused.extend(owner.posted)
            ingress.resume()
            await until(lambda: owner.posted)
            writer.close()
            ingress.close()
            await until(lambda: not ingress.connections)

    run(connect())

    assert posted_while_paused == []


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_clients_that_left_while_nobody_is_read_are_dropped_and_their_messages_are_not(
    owner: FakeIngressOwner, ingress: Ingress, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Or a leader that is suspended runs out of sockets: a client gives up a silent connection and dials again."""

    def is_set_up(connection_id: int) -> bool:
        return (
            connection_id in ingress.connections
            and ingress.connections[connection_id].life.state is not ConnectionState.ACCEPTED
        )

    async def connect() -> None:
        await ingress.start(SOCKETS, Endpoint("127.0.0.1", 0))
        assert ingress._listener is not None
        writers = []
        for number in range(1, 5):
            _, writer = await SOCKETS.dial_streams(Purpose.INGRESS, ingress._listener.endpoint)
            writer.write(setup())
            writers.append(writer)
            await until(partial(is_set_up, number))
            if number <= 3:
                ingress.connections[number].life.bind(ClusterSessionId(SESSION), TERM)
        ingress.close_half_open_connections()
        ingress.pause()
        alive, unread, idle, unbound = writers
        unread.write(session_message(b"said before it left"))
        unbound.write(control(keep_alive()))
        for writer in (unread, idle, unbound):
            writer.close()
            await writer.wait_closed()

        def is_dropped() -> bool:
            ingress.close_half_open_connections()
            return {3, 4}.isdisjoint(ingress.connections)

        await until(is_dropped)
        assert [*ingress.connections] == [1, 2]
        ingress.resume()
        await until(lambda: [*ingress.connections] == [1])
        alive.close()
        await until(lambda: not ingress.connections)
        ingress.close()

    run(connect())

    assert payloads(owner) == [b"said before it left"]
    assert [event for event in owner.posted if isinstance(event, ev.ClientKeepAlive)] == []


def test_many_connections_are_looked_at_in_turn(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader of ten thousand clients must not stand still for it."""
    monkeypatch.setattr(ingress_module, "_LOOK_LIMIT", 2)
    looked: list[int] = []
    monkeypatch.setattr(IngressBytes, "abort_if_peer_closed", lambda self: looked.append(self.connection_id))
    for _ in range(5):
        Client(ingress)

    for _ in range(4):
        ingress.close_half_open_connections()

    assert looked == [1, 2, 3, 4, 5, 1, 2]


def test_messages_in_fragments_fill_the_window_too(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Or a client of long messages would never be paused, and memory would have no bound."""
    owner = FakeIngressOwner(term_length_bytes=1 << 20, window_bytes=64 << 10)
    ingress = Ingress(owner, gate=quiet_gate())
    client = Client(ingress)

    client.send(session_message(b"x" * 100_000))

    assert not client.transport.is_reading()


def test_client_is_not_silent_while_it_is_not_read(owner: FakeIngressOwner, ingress: Ingress) -> None:
    """Or an overload longer than the session timeout would close the sessions of clients that are alive."""
    client = Client(ingress)
    connection_id = client.connection.connection_id
    assert ingress.last_activity_ns(connection_id) == 1_000

    ingress.pause()
    owner.now_ns = 2_000
    assert ingress.last_activity_ns(connection_id) == 2_000
    ingress.resume()
    owner.now_ns = 3_000
    assert ingress.last_activity_ns(connection_id) == 2_000
    client.send(control(keep_alive()))

    assert ingress.last_activity_ns(connection_id) == 3_000


def test_connection_reads_again_only_when_both_reasons_not_to_are_gone(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress)
    client.transport.waiting_bytes = READ_LIMIT_BYTES + 1
    client.connection.pause_writing()
    ingress.pause()

    ingress.resume()
    assert not client.transport.is_reading()
    ingress.pause()
    client.transport.waiting_bytes = 0
    client.connection.resume_writing()
    assert not client.transport.is_reading()
    ingress.resume()

    assert client.transport.is_reading()


def test_egress_waits_while_the_socket_is_full_and_goes_out_in_order(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    client.connection.egress.write(b"first ")
    client.transport.waiting_bytes = 1 << 20
    client.connection.pause_writing()

    client.connection.egress.write(b"second ")
    client.connection.egress.write(b"third ")
    before = client.transport.take_written()
    waiting_bytes = ingress.egress_waiting_bytes
    client.transport.waiting_bytes = 0
    client.connection.resume_writing()
    client.connection.egress.write(b"fourth")

    assert before == b"first "
    assert client.transport.take_written() == b"second third fourth"
    assert (waiting_bytes, ingress.egress_waiting_bytes) == ((1 << 20) + 13, 0)


async def test_client_that_does_not_read_its_egress_is_cut_off_at_the_limit_and_told_why(
    owner: FakeIngressOwner,
) -> None:
    """The last frame says why; the core hears that the connection is gone at once, and the session stays."""
    ingress = Ingress(owner, gate=quiet_gate(), egress_limit_bytes=4 << 20)
    client = Client(ingress)
    client.connection.pause_writing()
    client.connection.egress.write(bytes(64))
    client.transport.take_written()

    client.connection.egress.write(bytes(1 << 20))
    client.connection.egress.write(b"never sent")

    (frame,) = FrameParser().feed(client.transport.take_written())
    event = SessionEvent.decode(frame.payload)
    assert (event.code, event.cluster_session_id) == (EventCode.ERROR, SESSION)
    assert "egress waits" in event.detail
    assert client.transport.is_eof_written
    assert owner.posted[-1] == ev.ClientDisconnected(client.connection.connection_id)
    assert ingress.egress_waiting_bytes == 0
    assert not ingress.connections


def test_egress_of_a_session_is_discarded_once_its_connection_is_gone(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    """Else each message for it would be laid out, for nobody; and not that of a session that moved on."""
    gone, moved = Client(ingress), Client(ingress)
    moved.connection.life.unbind()

    gone.connection.connection_lost(None)
    moved.connection.connection_lost(None)

    assert owner.disconnected == [SESSION]


async def test_client_with_too_much_in_its_transport_is_cut_off_without_a_word(owner: FakeIngressOwner) -> None:
    """What a transport holds cannot be dropped but with it, and the memory is wanted."""
    ingress = Ingress(owner, gate=quiet_gate(), egress_limit_bytes=4 << 20)
    client = Client(ingress)
    client.transport.waiting_bytes = (1 << 20) + 1

    client.connection.pause_writing()

    assert client.transport.is_aborted


async def test_what_still_waits_is_freed_soon_after_the_session_has_ended(
    owner: FakeIngressOwner, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_life, "LINGER_S", 0.0)
    client = Client(ingress)
    client.connection.pause_writing()
    client.connection.egress.write(bytes(1 << 20))

    client.connection.life.release(ClusterSessionId(SESSION))
    await until(lambda: client.transport.is_aborted)

    assert ingress.egress_waiting_bytes == 0


# --- what clients must not send


@pytest.mark.parametrize(
    "data",
    [
        control(keep_alive()),
        SetupFrame(session_id=0, stream_id=EGRESS_STREAM_ID).encode(),
        bytes(64),
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: somewhere.example\r\nAccept: */*\r\n\r\n    ",
    ],
    ids=["no setup frame first", "setup of another stream", "zeros", "ones", "http"],
)
def test_connection_that_begins_wrong_is_dropped(owner: FakeIngressOwner, ingress: Ingress, data: bytes) -> None:
    connection, transport = IngressBytes(ingress, let_in(ingress.gate, Purpose.INGRESS)), FakeTransport()
    connection.connection_made(transport)

    receive(connection, data)

    assert transport.is_aborted
    assert [type(event) for event in owner.posted] == [ev.ClientDisconnected]


@pytest.mark.parametrize(
    "data",
    [
        setup(),
        encode_frame(b"short", stream_id=INGRESS_STREAM_ID),
        encode_frame(keep_alive().encode()[:12], stream_id=INGRESS_STREAM_ID),
        encode_frame(b"x" * 64, stream_id=INGRESS_STREAM_ID, flags=0x40),
        control(
            SessionEvent(
                cluster_session_id=ClusterSessionId(1),
                correlation_id=CorrelationId(1),
                leadership_term_id=TermId(1),
                leader_member_id=MemberId(1),
                code=EventCode.OK,
                version=1,
                leader_heartbeat_timeout_ns=1,
                detail="",
            )
        ),
        keep_alive().encode().ljust(64, b"\0"),
    ],
    ids=["second setup", "no message", "cut message", "end without begin", "a member's message", "no frame"],
)
def test_connection_that_goes_on_wrong_is_dropped_and_what_came_before_stays(
    owner: FakeIngressOwner, ingress: Ingress, data: bytes
) -> None:
    client = Client(ingress)

    client.send(session_message(b"good") + data)

    assert client.transport.is_aborted
    assert payloads(owner) == [b"good"]


def test_status_frame_is_refused(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    frame = bytearray(encode_frame(b"", stream_id=INGRESS_STREAM_ID))
    frame[6] = TYPE_STATUS

    client.send(bytes(frame))

    assert client.transport.is_aborted


# --- egress and the end


def test_answer_that_ends_the_connection_is_written_first(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)
    message = keep_alive()

    client.connection.egress.send(message)
    client.connection.life.close()

    (frame,) = FrameParser().feed(client.transport.take_written())
    assert (frame.stream_id, frame.payload) == (EGRESS_STREAM_ID, message.encode())
    assert client.transport.is_closed
    assert not client.transport.is_aborted


def test_end_of_a_connection_is_told_once(owner: FakeIngressOwner, ingress: Ingress) -> None:
    client = Client(ingress)

    client.connection.connection_lost(None)
    client.connection.connection_lost(None)

    assert owner.posted == [ev.ClientDisconnected(client.connection.connection_id)]
    assert ingress.last_activity_ns(client.connection.connection_id) is None


@pytest.mark.parametrize("length", [0, 32, 200_000])
def test_queries_are_handed_over_and_are_in_no_log(owner: FakeIngressOwner, length: int) -> None:
    """Also those in fragments, and on a member that does not lead."""
    client = Client(Ingress(owner, gate=quiet_gate()))
    query = QueryRequest(
        correlation_id=CorrelationId(5),
        cluster_session_id=ClusterSessionId(SESSION),
        leadership_term_id=TermId(TERM),
        service_id=-1,
        max_staleness_ns=None,
        min_log_position=0,
        timeout_ns=1,
        payload=bytes(length),
    )

    client.send(encode_message(query.encode(), stream_id=INGRESS_STREAM_ID, mtu_length=CLIENT_MTU))
    owner.publisher = None
    client.send(encode_message(query.encode(), stream_id=INGRESS_STREAM_ID, mtu_length=CLIENT_MTU))

    asked = AskedQuery(CorrelationId(5), ClusterSessionId(SESSION), -1, None, 0, 1, bytes(length))
    assert owner.queries == [(client.connection.connection_id, asked)] * 2
    assert owner.log_buffer.append_position == 0
    assert owner.posted == []


def test_queries_among_messages_are_taken_in_their_order_however_they_are_cut(
    owner: FakeIngressOwner, ingress: Ingress
) -> None:
    client = Client(ingress)
    asked = [
        encode_message(
            write_query(number, SESSION, TERM, 0, None, 0, 1, b"?" * number),
            stream_id=INGRESS_STREAM_ID,
            mtu_length=CLIENT_MTU,
        )
        for number in range(40)
    ]
    data = b"".join(asked[:20]) + session_message(b"one") + b"".join(asked[20:39]) + session_message(b"two") + asked[39]

    for start in range(0, len(data), 93):
        client.send(data[start : start + 93])

    assert [question.correlation_id for _, question in owner.queries] == [*range(40)]
    assert [len(question.payload) for _, question in owner.queries] == [*range(40)]
    assert payloads(owner) == [b"one", b"two"]


def test_memory_of_many_refused_handshakes_is_given_back() -> None:
    trimmed: list[None] = []
    gate = quiet_gate()
    ingress = Ingress(FakeIngressOwner(), gate=gate, trim_memory=lambda: trimmed.append(None))
    ingress.look()
    assert trimmed == []

    for _ in range(600):
        connection = gate.enter(Purpose.INGRESS, ("10.0.0.1", 40_000))
        assert connection is not None
        connection.refuse("handshake", "no encrypted connection")
    ingress.look()
    assert trimmed == [None]

    ingress.look()
    assert trimmed == [None]
