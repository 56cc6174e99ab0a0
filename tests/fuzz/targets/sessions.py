"""The session protocol: what a member gets from clients, and what a client gets from members."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.loops import on_loop
from tests.fuzz.samples import make_sample, sample_messages
from tests.fuzz.target import expect, target
from tests.fuzz.targets.wire import pieces_of
from tests.unit.client.dialogue import ENDPOINTS_TEXT, SECOND, Dialogue
from tests.unit.client.fake_member import egress_frames, session_event
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_ingress_owner import FakeIngressOwner
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.unit.cluster.runtime.ingress_client import SESSION, TERM, control, keep_alive, session_message, setup
from trimaran.client.protocol.admin import SNAPSHOT_WISH
from trimaran.cluster.core import events as ev
from trimaran.cluster.runtime.links.connection_state import ConnectionState
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.ingress_bytes import IngressBytes
from trimaran.cluster.runtime.links.ingress_messages import HANDLERS
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import INGRESS_STREAM_ID, ClusterSessionId
from trimaran.service_api.wire.frame import encode_frame, encode_message, iter_headers
from trimaran.service_api.wire.message import registry_of
from trimaran.service_api.wire.queries import QueryResponse
from trimaran.service_api.wire.request import REPLY_HEADER, REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session import (
    AdminResponse,
    Challenge,
    EventCode,
    NewLeaderEvent,
    SessionEvent,
    SessionLimits,
)

_TERM_LENGTH = 1 << 14


def _ingress_seeds() -> Iterator[bytes]:
    request = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, SESSION, 0, 1, 0) + b"payload"
    messages = b"".join(session_message(bytes([n]) * 40) for n in range(6))
    yield b"\x01\xff" + setup() + messages + encode_frame(request, stream_id=INGRESS_STREAM_ID) + session_message(b"x")
    yield b"\x01\x1f" + setup() + session_message(bytes(900)) + control(keep_alive())
    long = session_message(b"")[32:64] + bytes(3000)
    yield b"\x01\xff" + setup() + encode_message(long, stream_id=INGRESS_STREAM_ID, mtu_length=1024)
    for flags in (0, 1):
        for message in sample_messages([*HANDLERS]):
            yield bytes([flags, 255]) + setup() + control(message)


@target(_ingress_seeds)
def ingress(data: bytes) -> None:
    """What a client sends to a member, before its session is open and after: refused, or a log of valid messages."""
    if len(data) >= 2:
        on_loop(lambda: _connect(data[0], 1 + data[1], data[2:]))


def _connect(flags: int, piece_length: int, stream: bytes) -> None:
    owner = FakeIngressOwner(term_length_bytes=_TERM_LENGTH, mtu_length_bytes=1408)
    if flags & 2:
        owner.publisher = None
    ingress_side = Ingress(owner, gate=quiet_gate())
    connection = IngressBytes(ingress_side, let_in(ingress_side.gate, Purpose.INGRESS))
    transport = FakeTransport()
    connection.connection_made(transport)
    setup_length = len(setup())
    for piece in (*pieces_of(stream[:setup_length], piece_length), *pieces_of(stream[setup_length:], piece_length)):
        if transport.is_closed or connection.egress.unsent_bytes:
            break
        if flags & 1 and connection.life.state is ConnectionState.SET_UP:
            connection.life.bind(ClusterSessionId(SESSION), TERM)
        receive(connection, piece)
        expect(connection.unfinished_bytes <= 2 * len(stream), "what is unfinished was sent", connection=connection)
        expect(
            bool(connection.life.session_ids) or connection.unfinished_bytes <= 1 << 14, "a stranger's frame is short"
        )
    for event in owner.posted:
        if isinstance(event, ev.ClientConnect):
            event.request.encode()
    log = b"".join(owner.log_buffer.chunks_from(0))
    ends = [offset + header.aligned_length for offset, header in iter_headers(log)]
    expect((ends[-1] if ends else 0) == len(log), "the log is whole frames", log=log)
    connection.connection_lost(None)
    expect(ingress_side.unfinished_bytes == 0, "nothing is held for a connection that is gone")


# --- egress


def _egress_seeds() -> Iterator[bytes]:
    opened = egress_frames(
        session_event(EventCode.OK, correlation_id=0, term=0, leader=0, detail=ENDPOINTS_TEXT).encode()
    )
    reply = REPLY_HEADER.pack(*REQUEST_MESSAGE, 0, 7, 0, 1, 0) + b"reply"
    message = session_message(b"hello", term=0, session=7)[32 : 32 + 37]
    yield b"\x00\xff" + opened
    yield b"\x01\xff" + egress_frames(message) * 3 + egress_frames(reply) * 2
    new_leader = make_sample(NewLeaderEvent).model_copy(
        update={"leadership_term_id": 3, "cluster_session_id": 7, "ingress_endpoints": ENDPOINTS_TEXT}
    )
    yield b"\x01\xff" + egress_frames(new_leader.encode())
    known = registry_of(SessionEvent, NewLeaderEvent, Challenge, AdminResponse, SessionLimits, QueryResponse)
    for flags in (0, 1):
        for other in sample_messages(known.values()):
            yield bytes([flags, 255]) + egress_frames(other.encode())


@target(_egress_seeds)
def egress(data: bytes) -> None:
    """What members send to a client: one connection is refused, or the session goes on in an orderly way."""
    if len(data) < 2:
        return
    flags, piece_length, stream = data[0], 1 + data[1], data[2:]
    dialogue = Dialogue()
    if flags & 1:
        dialogue.open()
        dialogue.protocol.request_admin(SNAPSHOT_WISH, lambda outcome: None)
    else:
        dialogue.up(0)
    carried = b""
    for piece in pieces_of(stream, piece_length):
        carried += piece
        try:
            carried = carried[dialogue.feed(0, carried) :]
        except RemoteProtocolError:
            dialogue.down(0, "refused")
            break
    dialogue.wait(SECOND)
    dialogue.protocol.close(dialogue.now_ns)
    dialogue.wait(10 * SECOND)
