"""One connection to the ingress of a member that leads, without a socket, and what clients send."""

from __future__ import annotations

from tests.unit.cluster.runtime.fake_gate import let_in
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.ingress_bytes import IngressBytes
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import (
    INGRESS_STREAM_ID,
    ClusterSessionId,
    TermId,
)
from trimaran.service_api.wire.frame import encode_frame, encode_message
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session import (
    SessionKeepAlive,
    SessionMessageHeader,
)

TERM, SESSION = 3, 11
CLIENT_MTU = 65504


def setup() -> bytes:
    return SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID).encode()


def control(message: Message) -> bytes:
    return encode_frame(message.encode(), stream_id=INGRESS_STREAM_ID)


def session_message(payload: bytes, *, term: int = TERM, session: int = SESSION) -> bytes:
    header = SessionMessageHeader(
        leadership_term_id=TermId(term), cluster_session_id=ClusterSessionId(session), timestamp=0
    )
    return encode_message(header.encode() + payload, stream_id=INGRESS_STREAM_ID, mtu_length=CLIENT_MTU)


def keep_alive() -> SessionKeepAlive:
    return SessionKeepAlive(leadership_term_id=TermId(TERM), cluster_session_id=ClusterSessionId(SESSION))


class Client:
    """One connection to the ingress of a member that leads."""

    def __init__(self, ingress: Ingress, *, is_bound: bool = True) -> None:
        self.accepted = let_in(ingress.gate, Purpose.INGRESS)
        self.connection = IngressBytes(ingress, self.accepted)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self.send(setup())
        if is_bound:
            self.connection.life.bind(ClusterSessionId(SESSION), TERM)

    def send(self, data: bytes) -> None:
        receive(self.connection, data)
