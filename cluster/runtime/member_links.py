"""The consensus links: every member dials every other, and says on its own connection what it has to say.

Messages are best effort: what matters is repeated by the state that needs it. A connection that closes is news, because
it means that the process at the other end is probably gone; it is told at once, both when it comes and when it goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from service_api import RemoteProtocolError
from service_api.types import CONSENSUS_STREAM_ID, MemberId
from service_api.wire.frame import TYPE_DATA, TYPE_SETUP, SetupFrame, encode_frame
from service_api.wire.message import Message, decode_message, registry_of
from service_api.wire.stream import FrameParser

from ..messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from .activities import ActivityScope
from .dialling import Endpoint, as_member_transport, as_stream_transport, dial_forever

_WRITE_LIMIT_BYTES: Final = 1 << 20
"""What may wait for a member that does not read; beyond it messages are dropped, since they are repeated anyway."""

_SENDER_FIELD: Final[dict[type[Message], str]] = {
    CanvassPosition: "follower_member_id",
    RequestVote: "candidate_member_id",
    Vote: "follower_member_id",
    NewLeadershipTerm: "leader_member_id",
    AppendPosition: "follower_member_id",
    CommitPosition: "leader_member_id",
    CatchupPosition: "follower_member_id",
}
"""Which field says who sent a message; a StopCatchup names only its receiver."""

_ACCEPTED: Final = registry_of(*_SENDER_FIELD, StopCatchup)
"""What a member takes from another: what the core handles."""

logger = structlog.get_logger()


class MemberLinks:
    """This member's consensus connections: one out to each other member, and whatever they dial in."""

    def __init__(
        self,
        member_id: MemberId,
        peers: Mapping[MemberId, Endpoint],
        *,
        on_message: Callable[[Message], None],
        on_link_changed: Callable[[MemberId, bool], None],
    ) -> None:
        self._member_id = member_id
        self._peers = peers
        self._on_message = on_message
        self._on_link_changed = on_link_changed
        self._outbound: dict[MemberId, asyncio.Transport] = {}
        self._inbound: set[asyncio.BaseTransport] = set()
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<MemberLinks member={self._member_id} up={sorted(self._outbound)}>"

    async def start(self, endpoint: Endpoint, tasks: ActivityScope) -> None:
        """Listen, and keep dialling every other member until the task group ends.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Inbound(self), endpoint.host, endpoint.port)
        for member_id, peer in self._peers.items():
            tasks.create_task(dial_forever(peer, self._outbound_factory(member_id)), name=f"consensus-link-{member_id}")

    def send(self, member_id: MemberId, message: Message) -> None:
        """Send a message now, or drop it when the link is down or choked."""
        transport = self._outbound.get(member_id)
        if transport is None or transport.get_write_buffer_size() > _WRITE_LIMIT_BYTES:
            return
        transport.write(encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID))

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for transport in [*self._outbound.values(), *self._inbound]:
            transport.close()

    def _outbound_factory(self, member_id: MemberId) -> Callable[[asyncio.Future[None]], asyncio.Protocol]:
        return lambda closed: _Outbound(self, member_id, closed)


class _Outbound(asyncio.Protocol):
    """The connection to one member: nothing is read from it but its end."""

    def __init__(self, links: MemberLinks, member_id: MemberId, closed: asyncio.Future[None]) -> None:
        self._links = links
        self._peer_id = member_id
        self._closed = closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = as_member_transport(transport)
        stream.write(SetupFrame(session_id=self._links._member_id, stream_id=CONSENSUS_STREAM_ID).encode())
        self._links._outbound[self._peer_id] = stream
        self._links._on_link_changed(self._peer_id, True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._links._outbound.pop(self._peer_id, None) is not None:
            self._links._on_link_changed(self._peer_id, False)
        if not self._closed.done():
            self._closed.set_result(None)


class _Inbound(asyncio.Protocol):
    """A connection that another member dialled: its setup frame says which, its messages must agree."""

    def __init__(self, links: MemberLinks) -> None:
        self._links = links
        self._parser = FrameParser()
        self._peer_id: MemberId | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_stream_transport(transport)
        self._links._inbound.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._links._inbound.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._parser.feed(data):
                if self._peer_id is None:
                    self._peer_id = self._identify(frame.type, frame.raw)
                elif frame.type == TYPE_DATA:
                    message = decode_message(frame.payload, registry=_ACCEPTED)
                    self._check_sender(message)
                    self._links._on_message(message)
        except RemoteProtocolError as error:
            logger.warning("consensus_link.refused", peer_member_id=self._peer_id, reason=str(error))
            assert self._transport is not None
            self._transport.abort()

    def _identify(self, frame_type: int, raw: bytes) -> MemberId:
        if frame_type != TYPE_SETUP:
            raise RemoteProtocolError(f"consensus link begins with frame type={frame_type} expected={TYPE_SETUP}")
        setup = SetupFrame.decode(raw)
        peer_id = MemberId(setup.session_id)
        if setup.stream_id != CONSENSUS_STREAM_ID or peer_id not in self._links._peers:
            raise RemoteProtocolError(
                f"consensus link of stream_id={setup.stream_id} member_id={peer_id} "
                f"expected stream_id={CONSENSUS_STREAM_ID} member_id in {sorted(self._links._peers)}"
            )
        return peer_id

    def _check_sender(self, message: Message) -> None:
        """Refuse a message that another member should have sent: one link speaks for one member."""
        name = _SENDER_FIELD.get(type(message))
        if name is not None and (member_id := getattr(message, name)) != self._peer_id:
            raise RemoteProtocolError(f"{type(message).__name__}.{name}={member_id} expected={self._peer_id}")
