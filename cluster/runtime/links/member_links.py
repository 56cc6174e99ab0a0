"""The consensus links: every member dials every other, and sends its messages on its own connection.

Messages are best effort: what matters is repeated by the state that needs it. A connection that closes is news, because
it means that the process at the other end is probably gone; the core hears of it at once, when it comes and when it
goes.

The first message on a link says which settings its member has, and which cluster it belongs to; the member that was
dialled answers with its own, and again when it learns its cluster (`inbound_greeting`). That a *member* differs, and
counts as one that cannot be reached, is believed only where this member dialled: a configured endpoint answers there,
while a stranger who dials in may claim any id. It is forgotten when that connection ends.

A message that this version does not know is passed over: a cluster is upgraded a member at a time, and a newer member
may say more. What this version knows and does not take on these links ends the link.

The same endpoint answers a client that asks for this member's status (`cluster.status`): a connection whose setup frame
names the status stream gets one document and is closed. What else may be asked here is in a table (`answering`). A
connection that does not say in time what it is, or does not take its answer, is dropped, so what is not a member holds
nothing for long. The same documents are to be had at the control socket, where the callers may operate this member:
what others ask at the endpoint does not keep them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from ....service_api import RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.line_limiter import LineLimiter
from ....service_api.cluster_id import ClusterId
from ....service_api.documents.document import printable_line
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import ConnectionGate
from ....service_api.net.transport import Listener, LocalListener, NetworkStack, Purpose, as_member_transport
from ....service_api.types import CONSENSUS_STREAM_ID, MemberId
from ....service_api.wire.frame import TYPE_DATA, encode_frame
from ....service_api.wire.link_frames import SetupFrame
from ....service_api.wire.message import Message, decode_message
from ....service_api.wire.stream import FrameParser
from ...core import effects as fx
from ...core.events import FeatureLevelSaid, LinkChanged
from ...core.peers.member_settings import difference, remedy
from ...core.vocabulary.configuration import Configuration
from ...core.vocabulary.members import KnownLevel
from ...core.vocabulary.roster import Roster
from ...messages.settings import MemberSettings, MembersNotice
from ..ground.activities import ActivityScope
from .dialling import DialledMembers
from .document_server import DocumentRow, DocumentServer
from .heard_members import GREETING, HeardMembers
from .inbound_connection import InboundConnections
from .inbound_greeting import InboundGreeting, InboundParts
from .own_greeting import OwnGreeting
from .speaker import expect_own_words

_WRITE_LIMIT_BYTES: Final = 1 << 20
"""What may wait for a member that does not read; beyond it messages are dropped, since they are repeated anyway."""

_LOOK_INTERVAL_S: Final = 2.0
"""Between two looks at whether the control socket and its links are still there."""

_ListenLocally = Callable[[], Awaitable[LocalListener | None]]

_GREETING_LIMIT_BYTES: Final = 1 << 16
"""The longest frame of an answer."""

logger = structlog.get_logger()


class MemberLinks:
    """This member's consensus connections: one out to each other member, and whatever they dial in."""

    def __init__(
        self,
        settings: MemberSettings,
        roster: Roster,
        *,
        post: Callable[[object], None],
        find_seeded: Callable[[], bool | None],
        make_status: Callable[[], bytes],
        documents: Mapping[int, DocumentRow],
        audit: AuditTrail,
    ) -> None:
        """Begin without links. All that members say is posted: messages, and events about links and members.

        `find_seeded` is asked when a member connects: is the log here seeded?
        """
        self._roster = roster
        self._post = post
        self._dialled = DialledMembers(
            Purpose.CONSENSUS, partial(_Outbound, self), drop=self._abort, find_former=self._find_former
        )
        self._dial: Callable[[Mapping[MemberId, Endpoint]], None] | None = None
        self._own = OwnGreeting(settings, find_seeded)
        self._heard = HeardMembers(roster, post)
        self._outbound: dict[MemberId, asyncio.Transport] = {}
        self._inbound = InboundConnections()
        self._document_servers = {
            purpose: DocumentServer(documents, make_status, audit) for purpose in (Purpose.CONSENSUS, Purpose.DOCUMENTS)
        }
        parts = InboundParts(
            connections=self._inbound,
            own=self._own,
            heard=self._heard,
            document_servers=self._document_servers,
            audit=audit,
        )
        self._accept = partial(InboundGreeting, parts)
        self._answered: dict[MemberId, MemberSettings] = {}
        self.differences = self._heard.differences
        """Members that are not heard, and in which settings they differ: what their configured endpoints answered."""
        self.announced_cluster_ids: dict[MemberId, ClusterId] = {}
        """The cluster ids that were answered there; `NULL_CLUSTER_ID` of a member that does not know yet."""
        self.on_announced: Callable[[], None] = lambda: None
        """The callback for changes of these."""
        self.passed_over_counts = self._heard.passed_over_counts
        """The number of messages of each member that this version does not know."""
        self._refusals = LineLimiter[tuple[MemberId | None, str]]()
        """Refused messages, by member and message."""
        self._listeners: list[Listener] = []

    def __repr__(self) -> str:
        return f"<MemberLinks member={self._own.member_id} up={sorted(self._outbound)}>"

    async def start(
        self, network: NetworkStack, endpoint: Endpoint, tasks: ActivityScope, *, gate: ConnectionGate
    ) -> None:
        """Listen, and keep dialling every other member until the task group ends.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        for server in self._document_servers.values():
            server.tasks = tasks
        self._listeners.append(await network.listen(Purpose.CONSENSUS, endpoint, self._accept, gate=gate))
        self._dial = partial(self._dialled.dial, network, tasks=tasks)
        self.dial_roster()

    def dial_roster(self) -> None:
        """Dial whom the roster names from now on, and no others."""
        if self._dial is None:
            return
        self._dial(
            {
                member_id: Endpoint.parse(member.consensus)
                for member_id, member in self._roster.addresses.items()
                if member_id != self._own.member_id
            }
        )

    def _find_former(self, member_id: MemberId) -> Endpoint | None:
        former = self._roster.former_address_of(member_id)
        return None if former is None else Endpoint.parse(former.consensus)

    def _abort(self, member_id: MemberId) -> None:
        if member_id in self._outbound:
            self._outbound[member_id].abort()

    def tell_members(self, configuration: Configuration) -> None:
        """Tell everyone that is linked, and will be, who the members are: that is committed."""
        message = self._own.note_members(configuration)
        for member_id in self._outbound:
            self.send(member_id, message)
        self._inbound.answer(self._own.notice)

    async def start_locally(
        self,
        network: NetworkStack,
        directory: Path,
        endpoint: Endpoint,
        tasks: ActivityScope,
        *,
        gate: ConnectionGate,
    ) -> None:
        """Listen on the control socket, too, where there can be one; without it commands here are strangers.

        The socket and its links are looked after until the task group ends.
        """
        listen = partial(network.listen_locally, directory, endpoint, self._accept, gate=gate)
        listener = await self._listen_locally(listen)
        if listener is not None:
            tasks.create_task(self._look_after(listener, listen), name="control-socket")

    async def _listen_locally(self, listen: _ListenLocally) -> LocalListener | None:
        try:
            listener = await listen()
        except OSError as error:
            logger.warning("control_socket.unavailable", reason=str(error))
            return None
        if listener is not None:
            self._listeners.append(listener)
            if not listener.control.is_published:
                logger.warning("control_socket.not_published", reasons=listener.control.problems)
        return listener

    async def _look_after(self, listener: LocalListener, listen: _ListenLocally) -> None:
        """Put the control socket and its links back when something has removed them.

        A look takes 0.1 ms on the loop: three directories, most of them in memory.
        """
        found: LocalListener | None = listener
        while found is not None:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            if found not in self._listeners:
                return  # closed: the member is ending, and what runs beside it ends a little later
            if not found.control.is_there:
                logger.warning("control_socket.removed", control=repr(found.control))
                found.close()
                self._listeners.remove(found)
                found = await self._listen_locally(listen)
            elif mended := found.control.mend():
                logger.warning("control_socket.linked_again", runtime_directories=[*map(str, mended)])

    def send(self, member_id: MemberId, message: Message) -> None:
        """Send a message now, or drop it when the link is down, about to be, or choked.

        A connection that failed is closed before this side is told that it is lost; uvloop raises on writes to it.
        """
        transport = self._outbound.get(member_id)
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > _WRITE_LIMIT_BYTES:
            return
        transport.write(encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID))

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for transport in [*self._outbound.values(), *(each.transport for each in self._inbound)]:
            transport.close()

    def announce(self, cluster_id: ClusterId) -> None:
        """Tell every member that dialled in, and those that will, which cluster this member belongs to."""
        self._own.cluster_id = cluster_id
        self._inbound.answer(self._own.encode())
        for member_id, theirs in [*self._answered.items()]:
            self._on_answered_settings(member_id, theirs)

    def _on_answered_settings(self, member_id: MemberId, theirs: MemberSettings) -> None:
        """Take what a configured endpoint answered: whether its member is of this cluster, and what that changes."""
        self._answered[member_id] = theirs
        announced = ClusterId(theirs.cluster_id)
        if self.announced_cluster_ids.get(member_id) != announced:
            self.announced_cluster_ids[member_id] = announced
            self.on_announced()
        found, before = difference(self._own.settings, theirs), self.differences.get(member_id)
        if found is None:
            if before is not None:
                del self.differences[member_id]
                logger.info("member.settings_agreed", peer_member_id=member_id)
                self._post(LinkChanged(member_id, is_up=True))
            known_level = KnownLevel(theirs.feature_level or 0, printable_line(theirs.limiting_service))
            self._post(FeatureLevelSaid(member_id, known_level))
        elif found != before:
            self.differences[member_id] = found
            if before is None:
                self._post(LinkChanged(member_id, is_up=False))
            reason = f"{found}; {remedy(self._own.settings, theirs, self._roster)}"
            logger.error("member.settings_differed", peer_member_id=member_id, reason=reason)

    def _on_outbound_lost(self, member_id: MemberId) -> None:
        """Forget what the member said: the next connection begins with it."""
        if self._outbound.pop(member_id, None) is None:
            return
        self._answered.pop(member_id, None)
        self.announced_cluster_ids.pop(member_id, None)
        if self.differences.pop(member_id, None) is None:
            self._post(LinkChanged(member_id, is_up=False))

    def on_message_refused(self, effect: fx.MessageRefused) -> None:
        """Name who sent what no member sends in good order: the first time, and from then on with a count, rarely.

        A message that had to wait is of one of the connections that speak for that member.
        """
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        count = self._refusals.count((effect.member_id, effect.message), now_ns)
        if count is None:
            return
        speaking = self._heard.speaking
        peers = (
            self._inbound.find_peernames(effect.member_id)
            if speaking is None
            else [speaking.get_extra_info("peername")]
        )
        logger.warning(
            "member_message.refused",
            peer_member_id=effect.member_id,
            peernames=peers,
            message=effect.message,
            fault=effect.fault,
            count=count,
            reason="no member sends this in good order: see whether these addresses are members'",
        )


class _Outbound(asyncio.Protocol):
    """The connection to one member: nothing is read from it but that member's settings, and its end."""

    def __init__(self, links: MemberLinks, member_id: MemberId, closed: asyncio.Future[None]) -> None:
        self._links = links
        self._peer_id = member_id
        self._closed = closed
        self._parser = FrameParser(_GREETING_LIMIT_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = as_member_transport(transport)
        own = self._links._own
        setup = SetupFrame(
            session_id=own.member_id,
            stream_id=CONSENSUS_STREAM_ID,
            cluster_id=own.cluster_id,
            member_id=own.member_id,
        )
        stream.write(setup.encode() + own.encode())
        self._links._outbound[self._peer_id] = stream
        self._links._post(LinkChanged(self._peer_id, is_up=True))

    def data_received(self, data: bytes) -> None:
        heard = self._links._heard
        try:
            for frame in self._parser.feed(data):
                if frame.type == TYPE_DATA and not heard.passes_over(self._peer_id, frame.raw):
                    told = decode_message(frame.payload, registry=GREETING)
                    assert isinstance(told, (MemberSettings, MembersNotice))
                    expect_own_words(told, self._peer_id)
                    if isinstance(told, MemberSettings):
                        self._links._on_answered_settings(self._peer_id, told)
                    elif self._peer_id not in heard.differences:
                        heard.on_notice(told, shows_member=True)
        except RemoteProtocolError as error:
            logger.warning("consensus_link.answer_refused", peer_member_id=self._peer_id, reason=str(error))
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links._on_outbound_lost(self._peer_id)
        if not self._closed.done():
            self._closed.set_result(None)
