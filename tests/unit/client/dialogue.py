"""Drives a `ClientProtocol` by hand: says what members send, shows what the client does. No loop, no clock."""

from __future__ import annotations

from tests.unit.client.fake_member import egress_frames, session_event
from trimaran.client.config import ClientConfig
from trimaran.client.protocol.effects import Dial, Disconnect, Effect
from trimaran.client.protocol.neighbours import Neighbours
from trimaran.client.protocol.protocol import ClientProtocol
from trimaran.service_api.types import EGRESS_STREAM_ID, INGRESS_STREAM_ID
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message, decode_message
from trimaran.service_api.wire.session import (
    ChallengeResponse,
    EventCode,
    SessionConnectRequest,
    SessionMessageHeader,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

MS = 1_000_000
SECOND = 1_000 * MS

ENDPOINTS = {0: "10.0.0.1:9000", 1: "10.0.0.2:9000", 2: "10.0.0.3:9000"}
ENDPOINTS_TEXT = ",".join(f"{member_id}={endpoint}" for member_id, endpoint in ENDPOINTS.items())


class RecordingListener:
    """Remembers every call, with copies of the payloads."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    @property
    def payloads(self) -> list[bytes]:
        return [call[3] for call in self.calls if call[0] == "message" and isinstance(call[3], bytes)]

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        self.calls.append(("message", timestamp, leadership_term_id, bytes(payload)))

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        self.calls.append(("new_leader", leadership_term_id, leader_member_id))

    def on_session_event(self, code: EventCode, detail: str) -> None:
        self.calls.append(("event", code, detail))


class Dialogue:
    """A protocol, its listener, and the members' side of each connection."""

    def __init__(
        self, *endpoints: str, config: ClientConfig | None = None, neighbours: Neighbours | None = None
    ) -> None:
        self.listener = RecordingListener()
        config = config or ClientConfig(endpoints=endpoints or tuple(ENDPOINTS.values()))
        self.protocol = ClientProtocol(config, self.listener, random=lambda: 0.0, neighbours=neighbours)
        self.now_ns = 0
        self.dialled: dict[str, int] = {}
        """By endpoint: the connection last dialled."""
        self.disconnected: list[int] = []
        self.setups: dict[int, SetupFrame] = {}
        self.proofs: list[tuple[int, ChallengeResponse]] = []
        """What showed members that the session is the client's, by member; `sent` leaves these out."""
        self._parsers: dict[int, FrameParser] = {}
        self.protocol.start(self.now_ns)
        self._take_effects()

    def connection(self, member_id: int) -> int:
        """The connection last dialled to a member."""
        return self.dialled[ENDPOINTS[member_id]]

    def up(self, *member_ids: int) -> None:
        """Let the dials to members succeed."""
        for member_id in member_ids:
            self.protocol.on_connected(self.connection(member_id), self.now_ns)
            self._take_effects()

    def down(self, member_id: int, reason: str = "connection refused") -> None:
        """Let the connection or dial to a member fail."""
        self.protocol.on_disconnected(self.connection(member_id), self.now_ns, reason)
        self._take_effects()

    def say(self, member_id: int, message: Message | bytes) -> None:
        """Let a member send a message."""
        encoded = message if isinstance(message, bytes) else message.encode()
        self.feed(member_id, egress_frames(encoded))

    def feed(self, member_id: int, data: bytes) -> int:
        """Let bytes of a member arrive."""
        consumed = self.protocol.receive_data(self.connection(member_id), memoryview(data), self.now_ns)
        self._take_effects()
        return consumed

    def wait(self, duration_ns: int) -> None:
        """Let time pass, polling at every deadline on the way."""
        end_ns = self.now_ns + duration_ns
        while (deadline_ns := self.protocol.next_deadline_ns()) is not None and deadline_ns <= end_ns:
            self.now_ns = max(deadline_ns, self.now_ns)
            self.protocol.poll(self.now_ns)
            self._take_effects()
        self.now_ns = end_ns

    def sent_bytes(self, member_id: int) -> bytes:
        """Take what the client sent to a member since the last look."""
        return bytes(self.protocol.data_to_send(self.connection(member_id)) or b"")

    def sent(self, member_id: int) -> list[Message | bytes]:
        """Take the messages that the client sent; an application message as its payload."""
        connection_id = self.connection(member_id)
        messages: list[Message | bytes] = []
        assembler = MessageAssembler()
        for frame in self._parsers.setdefault(connection_id, FrameParser(65504)).feed(self.sent_bytes(member_id)):
            if connection_id not in self.setups:
                self.setups[connection_id] = SetupFrame.decode(frame.raw)
                continue
            assert frame.stream_id == INGRESS_STREAM_ID
            encoded = assembler.append(frame)
            if encoded is not None:
                message = decode_message(encoded)
                if isinstance(message, ChallengeResponse) and message.correlation_id < 0:
                    self.proofs.append((member_id, message))
                    continue
                messages.append(encoded[32:] if isinstance(message, SessionMessageHeader) else message)
        return messages

    def correlation_id(self, member_id: int) -> int:
        """Take the connect request that a member just got and tell its correlation id."""
        (request,) = self.sent(member_id)
        assert isinstance(request, SessionConnectRequest)
        return request.correlation_id

    def open(self, *, leader: int = 0, term: int = 0, others_up: bool = True) -> None:
        """Open session 7 on a member, with connections to all; nothing sent is left."""
        self.up(leader)
        correlation_id = self.correlation_id(leader)
        self.say(
            leader,
            session_event(EventCode.OK, correlation_id=correlation_id, term=term, leader=leader, detail=ENDPOINTS_TEXT),
        )
        if others_up:
            self.up(*(member_id for member_id in ENDPOINTS if member_id != leader))
        for member_id in ENDPOINTS:
            self.sent(member_id)
        self.listener.calls.clear()

    def _take_effects(self) -> list[Effect]:
        effects = self.protocol.take_effects()
        for effect in effects:
            match effect:
                case Dial():
                    self.dialled[effect.endpoint] = effect.connection_id
                case Disconnect():
                    self.disconnected.append(effect.connection_id)
        return effects


def foreign_frame(payload: bytes, *, stream_id: int = EGRESS_STREAM_ID) -> bytes:
    """Build a frame of any stream."""
    return encode_message(payload, stream_id=stream_id, mtu_length=65504)
