"""Links of one member whose other side is the test, and what is said on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import structlog

from tests.unit.cluster.core.rosters import roster_at
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport
from trimaran.cluster.core.context import PROTOCOL_VERSION
from trimaran.cluster.core.events import (
    FeatureLevelSaid,
    LeaderSaid,
    LinkChanged,
    MembersHeard,
    SeedAnnounced,
    StandbySaid,
)
from trimaran.cluster.messages.consensus import (
    CanvassPosition,
)
from trimaran.cluster.messages.settings import MemberSettings
from trimaran.cluster.runtime.links.document_server import DocumentRow, answering_once
from trimaran.cluster.runtime.links.member_links import MemberLinks, _Outbound
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.identity import Caller
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import AcceptedConnection
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import (
    CONSENSUS_STREAM_ID,
    OPERATION_STREAM_ID,
    STATUS_STREAM_ID,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message

ME, ONE, TWO = MemberId(0), MemberId(1), MemberId(2)
STATUS = b'{"role": "FOLLOWER"}'
QUESTION_STREAM_ID, OTHER_STREAM_ID = 1000, 1001
NOWHERE = Endpoint("127.0.0.1", 1)
logger = structlog.get_logger()


SETTINGS = MemberSettings(
    member_id=ME,
    member_count=3,
    service_count=1,
    service_queue_limit_bytes=64 << 20,
    term_length_bytes=64 << 20,
    mtu_length_bytes=65504,
    checksums=True,
    shared_timer_ids=False,
    aeron_messages_only=False,
    app_version=1 << 8,
)


ASK = SetupFrame(session_id=-1, stream_id=STATUS_STREAM_ID).encode()


def setup(member_id: int, *, stream_id: int = CONSENSUS_STREAM_ID, **settings: object) -> bytes:
    """What a connection begins with; a member's with its settings."""
    frame = SetupFrame(session_id=member_id, stream_id=stream_id, member_id=member_id).encode()
    return frame + greeting(member_id, **settings) if stream_id == CONSENSUS_STREAM_ID else frame


def greeting(member_id: int, **settings: object) -> bytes:
    return framed(SETTINGS.model_copy(update={"member_id": member_id, **settings}))


def framed(message: Message) -> bytes:
    return encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID)


def canvass(member_id: int, position: int = 0) -> CanvassPosition:
    return CanvassPosition(
        log_leadership_term_id=TermId(0),
        log_position=position,
        leadership_term_id=TermId(0),
        follower_member_id=MemberId(member_id),
        protocol_version=PROTOCOL_VERSION,
    )


class Links:
    """Links of member 0 to members 1 and 2, and what they told."""

    def __init__(self, peers: dict[MemberId, Endpoint] | None = None, *, member_id: MemberId = ME) -> None:
        self.messages: list[Message | LeaderSaid | StandbySaid] = []
        self.begins: bool | None = None
        """How the log begins here."""
        self.seeded: list[MemberId] = []
        self.changes: list[tuple[MemberId, bool]] = []
        self.heard: list[MembersHeard] = []
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.requests: list[bytes] = []
        self.failure: Exception | None = None
        """What a status and `OTHER_STREAM_ID` raise."""
        self.gate = quiet_gate()
        self.links = MemberLinks(
            SETTINGS.model_copy(update={"member_id": member_id}),
            roster_at(member_id, peers or {ONE: NOWHERE, TWO: NOWHERE}),
            post=self._take,
            find_seeded=lambda: self.begins,
            make_status=self._make_status,
            documents={
                QUESTION_STREAM_ID: DocumentRow(self._answer, lambda request: Permission.INSPECTION),
                OTHER_STREAM_ID: DocumentRow(answering_once(self._answer_once), lambda request: Permission.INSPECTION),
                OPERATION_STREAM_ID: DocumentRow(self._answer, lambda request: Permission.ABORT),
            },
            audit=AuditTrail(info=logger.info, warn=logger.warning, monotonic_ns=lambda: 0),
        )
        self.said: list[FeatureLevelSaid] = []
        self.asked = self.links._document_servers[Purpose.CONSENSUS]

    def _take(self, said: object) -> None:
        match said:
            case LinkChanged():
                self.changes.append((said.member_id, said.is_up))
            case MembersHeard():
                self.heard.append(said)
            case FeatureLevelSaid():
                self.said.append(said)
            case SeedAnnounced():
                self.seeded.append(said.member_id)
            case _:
                assert isinstance(said, (Message, LeaderSaid, StandbySaid))
                self.messages.append(said)

    async def _answer(self, request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        self.requests.append(request)
        while (answer := await self.answers.get()) is not None:
            yield answer

    async def _answer_once(self, request: bytes) -> bytes:
        if self.failure is not None:
            raise self.failure
        return request[::-1]

    def _make_status(self) -> bytes:
        if self.failure is not None:
            raise self.failure
        return STATUS

    def dialled(self, member_id: MemberId) -> tuple[_Outbound, FakeTransport]:
        outbound, transport = _Outbound(self.links, member_id, asyncio.Future()), FakeTransport()
        outbound.connection_made(transport)
        assert transport.take_written() == setup(ME)
        return outbound, transport

    def accepted(self, data: bytes = b"", *, caller: Caller | None = None) -> tuple[Dialler, FakeTransport]:
        accepted, transport = let_in(self.gate, Purpose.CONSENSUS), FakeTransport()
        if caller is not None:
            accepted.identify(caller)
        transport.protocol = greeting = self.links._accept(accepted)
        greeting.connection_made(transport)
        dialler = Dialler(transport, accepted)
        dialler.data_received(data)
        return dialler, transport


class Dialler:
    """Speaks to whichever protocol has an accepted connection now, as the loop does."""

    def __init__(self, transport: FakeTransport, accepted: AcceptedConnection) -> None:
        self._transport = transport
        self.accepted = accepted

    @property
    def _protocol(self) -> asyncio.Protocol:
        assert isinstance(self._transport.protocol, asyncio.Protocol)
        return self._transport.protocol

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
