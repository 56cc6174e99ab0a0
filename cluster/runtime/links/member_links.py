"""The consensus links: every member dials every other, and sends its messages on its own connection.

Messages are best effort: what matters is repeated by the state that needs it. A connection that closes is news, because
it means that the process at the other end is probably gone; it is told at once, both when it comes and when it goes.

The first message on a link says which settings its member has, and which cluster it belongs to; the member that was
dialled answers with its own, and again when it learns its cluster. A connection whose settings cannot go with this
member's is not heard (`core.member_settings`). That a *member* differs, and counts as one that cannot be reached, is
believed only where this member dialled: a configured endpoint answers there, while a stranger who dials in may claim
any id. It is forgotten when that connection ends. Links of a member that differs stay, for it would only dial again.

A message that this version does not know is passed over: a cluster is upgraded a member at a time, and a newer member
may say more. What this version knows and does not take on these links ends the link.

The same endpoint answers a client that asks for this member's status (`cluster.status`): a connection whose setup frame
names the status stream gets one document and is closed. What else may be asked here is in a table (`answering`). A
connection that does not say in time what it is, or does not take its answer, is dropped, so what is not a member holds
nothing for long. The same documents are to be had at the control socket, where the callers may operate this member:
what others ask at the endpoint does not keep them waiting.

Where the endpoint tells callers apart, a link must be of the member that it says (`speaker`), and of one that is
spoken to. The certificate of any other member gets one answer, who the members are, and the link ends: so a member that
was removed while it was down learns of it. What such a process says of the members is a rumour (`roster`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from trimaran.cluster.core.peers.member_settings import difference, remedy
from trimaran.cluster.core.vocabulary.configuration import Configuration, decode_text
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links.document_server import (
    DocumentRequest,
    DocumentRow,
    DocumentServer,
    encode_other_cluster,
    encode_refusal,
)
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.line_limiter import LineLimiter
from trimaran.service_api.access.permissions import Permission, describe_refusal
from trimaran.service_api.cluster_id import ClusterId, describe_other_cluster, is_other_cluster
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from trimaran.service_api.net.transport import (
    Listener,
    LocalListener,
    NetworkStack,
    Purpose,
    as_member_transport,
    as_stream_transport,
)
from trimaran.service_api.types import CONSENSUS_STREAM_ID, STATUS_STREAM_ID, MemberId
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, TYPE_SETUP, encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import (
    MESSAGES,
    ClusterMessage,
    Message,
    TrimaranMessage,
    decode_message,
    is_of,
    peek_header,
    registry_key,
    registry_of,
)
from trimaran.service_api.wire.stream import FrameParser, StreamFrame

from ...core import effects as fx
from ...core.events import FeatureLevelSaid, LeaderSaid, MembersHeard, StandbySaid
from ...core.peers.message_rules import SENDER_FIELDS
from ...messages.backup import StandbySnapshot
from ...messages.consensus import StopCatchup, TerminationPosition
from ...messages.settings import MemberSettings, MembersNotice
from .dialling import DialledMembers
from .speaker import audited, expect_speaker

_WRITE_LIMIT_BYTES: Final = 1 << 20
"""What may wait for a member that does not read; beyond it messages are dropped, since they are repeated anyway."""

_LINK_LIMIT: Final = 4
"""Connections that may say at once that they are one member's: it has one, and dials again before the old one ends."""

_UNKNOWN_LIMIT: Final = 16
"""Links at once of processes that say an id that no member has: new members that the log here does not know yet."""

_STATUS_LIMIT: Final = 8
"""Status answers that may be on their way at once on an endpoint; more are refused, and the client may ask again."""

_LOOK_INTERVAL_S: Final = 2.0
"""Between two looks at whether the control socket and its links are still there."""

_ListenLocally = Callable[[], Awaitable[LocalListener | None]]

_STRANGER_TIMEOUT_S: Final = 2.0
"""How long a connection may take to say what it is and to ask, and to take the answer."""

_ACCEPTED: Final = registry_of(*SENDER_FIELDS, MembersNotice)
"""What a member takes from another: what the core handles."""

_NAMELESS: Final[dict[type[Message], Callable[[MemberId, Any], LeaderSaid | StandbySaid]]] = {  # Any: its own message
    StopCatchup: LeaderSaid,
    TerminationPosition: LeaderSaid,
    StandbySnapshot: StandbySaid,
}
"""What does not name its sender. Types are looked up: asking a pydantic model for its instances takes microseconds."""

_GREETING: Final = registry_of(MemberSettings, MembersNotice)
"""What it takes first, and what it is answered."""

_GREETING_LIMIT_BYTES: Final = 1 << 16
"""The longest frame of an answer."""

_OWN_SCHEMAS: Final = frozenset({ClusterMessage.SCHEMA_ID, TrimaranMessage.SCHEMA_ID})
"""The schemas of which a later version may have messages that this one does not know."""

_PASSED_OVER_LIMIT: Final = 16
"""So many kinds of passed over messages of one member are told, each once."""

logger = structlog.get_logger()


class MemberLinks:
    """This member's consensus connections: one out to each other member, and whatever they dial in."""

    def __init__(
        self,
        settings: MemberSettings,
        roster: Roster,
        *,
        on_message: Callable[[Message | LeaderSaid | StandbySaid], None],
        on_link_changed: Callable[[MemberId, bool], None],
        on_members_heard: Callable[[MembersHeard], None],
        make_status: Callable[[], bytes],
        documents: Mapping[int, DocumentRow],
        audit: AuditTrail,
    ) -> None:
        self._member_id = MemberId(settings.member_id)
        self._fixed_settings = settings
        self._roster = roster
        self._dialled = DialledMembers(
            Purpose.CONSENSUS, partial(_Outbound, self), drop=self._abort, find_former=self._find_former
        )
        self._notice = b""
        self._dial: Callable[[Mapping[MemberId, Endpoint]], None] | None = None
        self._on_message = on_message
        self._on_link_changed = on_link_changed
        self._on_members_heard = on_members_heard
        self._make_status = make_status
        self._audit = audit
        self._document_servers = {
            purpose: DocumentServer(documents, audit) for purpose in (Purpose.CONSENSUS, Purpose.DOCUMENTS)
        }
        """At the endpoint and at the control socket."""
        self._outbound: dict[MemberId, asyncio.Transport] = {}
        self._inbound: dict[asyncio.Transport, _Inbound] = {}  # in order of their coming: closing has one order
        self._inbound_of: dict[MemberId, dict[AcceptedConnection, None]] = {}
        self._answered: dict[MemberId, MemberSettings] = {}
        self.differences: dict[MemberId, str] = {}
        """Members that are not heard, and in which settings they differ: what their configured endpoints answered."""
        self.announced_cluster_ids: dict[MemberId, ClusterId] = {}
        """What was answered there about the cluster; `NULL_CLUSTER_ID` of a member that does not know yet."""
        self.on_announced: Callable[[], None] = lambda: None
        """Told when that changes."""
        self.on_feature_level: Callable[[FeatureLevelSaid], None] = lambda event: None
        """Told what the services of each member can, by what was answered there; forget it when the link goes down."""
        self.on_seeded: Callable[[MemberId], None] = lambda member_id: None
        """Told of each member that says that its log is seeded, before any other message of it."""
        self.find_seeded: Callable[[], bool | None] = lambda: None
        """Whether this member's log is seeded, which members are told as it is when they connect."""
        self.passed_over_counts: Counter[MemberId] = Counter()
        """How many messages of each member this version does not know."""
        self._told_passed_over: dict[MemberId, set[tuple[int, int]]] = {}
        """The kinds that were logged, by schema id and template id."""
        self._refusals = LineLimiter[tuple[MemberId | None, str]]()
        """What was refused, by member and message."""
        self._speaking: asyncio.Transport | None = None
        """The link whose message is being handled."""
        self._status_counts: Counter[Purpose] = Counter()
        self._listeners: list[Listener] = []

    def __repr__(self) -> str:
        return f"<MemberLinks member={self._member_id} up={sorted(self._outbound)}>"

    async def start(
        self, network: NetworkStack, endpoint: Endpoint, tasks: ActivityScope, *, gate: ConnectionGate
    ) -> None:
        """Listen, and keep dialling every other member until the task group ends.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        for server in self._document_servers.values():
            server.tasks = tasks
        self._listeners.append(
            await network.listen(Purpose.CONSENSUS, endpoint, lambda accepted: _Inbound(self, accepted), gate=gate)
        )
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
                if member_id != self._member_id
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
        message = MembersNotice(
            member_id=self._member_id,
            log_position=configuration.log_position,
            cluster_members=configuration.encode_text(),
        )
        self._notice = encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID)
        for member_id in self._outbound:
            self.send(member_id, message)
        for inbound in [*self._inbound.values()]:
            inbound.answer(self._notice)

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
        listen = partial(network.listen_locally, directory, endpoint, partial(_Inbound, self), gate=gate)
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

    def find_unknown(self) -> list[MemberId]:
        """Find which ids the links say that no member has."""
        return [
            inbound._peer_id
            for inbound in self._inbound.values()
            if inbound._peer_id is not None and inbound._peer_id not in self._roster.members
        ]

    def on_inbound(self, member_id: MemberId, accepted: AcceptedConnection) -> None:
        """A connection says that it is a member's: of more than a few, the oldest goes."""
        links = self._inbound_of.setdefault(member_id, {})
        links[accepted] = None
        if len(links) > _LINK_LIMIT:
            next(iter(links)).refuse("superseded", f"newer links of member {member_id}: limit={_LINK_LIMIT}")

    def on_inbound_left(self, member_id: MemberId | None, accepted: AcceptedConnection) -> None:
        """Such a connection is lost."""
        if member_id is not None and member_id in self._inbound_of:
            self._inbound_of[member_id].pop(accepted, None)
            if not self._inbound_of[member_id]:
                del self._inbound_of[member_id]

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for listener in self._listeners:
            listener.close()
        for transport in [*self._outbound.values(), *self._inbound]:
            transport.close()

    def announce(self, cluster_id: ClusterId) -> None:
        """Tell every member that dialled in, and those that will, which cluster this member belongs to."""
        self._fixed_settings = self._fixed_settings.model_copy(update={"cluster_id": cluster_id})
        for inbound in [*self._inbound.values()]:
            inbound.answer_settings()
        for member_id, theirs in [*self._answered.items()]:
            self._on_answered_settings(member_id, theirs)

    @property
    def _settings(self) -> MemberSettings:
        return self._fixed_settings.model_copy(update={"is_log_seeded": self.find_seeded()})

    def greeting(self) -> bytes:
        """Encode the messages that say this member's settings, and who the members are, if it knows."""
        return encode_frame(self._settings.encode(), stream_id=CONSENSUS_STREAM_ID) + self._notice

    def _on_answered_settings(self, member_id: MemberId, theirs: MemberSettings) -> None:
        """Take what a configured endpoint answered: whether its member is of this cluster, and what that changes."""
        self._answered[member_id] = theirs
        announced = ClusterId(theirs.cluster_id)
        if self.announced_cluster_ids.get(member_id) != announced:
            self.announced_cluster_ids[member_id] = announced
            self.on_announced()
        found, before = difference(self._settings, theirs), self.differences.get(member_id)
        if found is None:
            if before is not None:
                del self.differences[member_id]
                logger.info("member.settings_agreed", peer_member_id=member_id)
                self._on_link_changed(member_id, True)
            self.on_feature_level(FeatureLevelSaid(member_id, theirs.feature_level or 0))
        elif found != before:
            self.differences[member_id] = found
            if before is None:
                self._on_link_changed(member_id, False)
            reason = f"{found}; {remedy(self._settings, theirs, self._roster)}"
            logger.error("member.settings_differed", peer_member_id=member_id, reason=reason)

    def _on_notice(self, notice: MembersNotice, *, shows_member: bool) -> None:
        """A member says who the members are; `shows_member` if its connection has shown that it is that member.

        Raises:
            RemoteProtocolError: that cannot be read.
        """
        configuration = decode_text(notice.cluster_members, notice.log_position)
        if configuration is not None and configuration.log_position > 0:
            is_known = self._roster.vouches_for(MemberId(notice.member_id))
            self._on_members_heard(
                MembersHeard(
                    configuration, is_trusted=shows_member and is_known, is_rumour=shows_member and not is_known
                )
            )

    def _on_outbound_lost(self, member_id: MemberId) -> None:
        """Forget what the member said: the next connection begins with it."""
        if self._outbound.pop(member_id, None) is None:
            return
        self._answered.pop(member_id, None)
        self.announced_cluster_ids.pop(member_id, None)
        if self.differences.pop(member_id, None) is None:
            self._on_link_changed(member_id, False)

    def on_message_refused(self, effect: fx.MessageRefused) -> None:
        """Name who sent what no member sends in good order: the first time, and from then on with a count, rarely.

        A message that had to wait is of one of the connections that speak for that member.
        """
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        count = self._refusals.count((effect.member_id, effect.message), now_ns)
        if count is None:
            return
        speaking = self._speaking
        peers = self._find_peernames(effect.member_id) if speaking is None else [speaking.get_extra_info("peername")]
        logger.warning(
            "member_message.refused",
            peer_member_id=effect.member_id,
            peernames=peers,
            message=effect.message,
            fault=effect.fault,
            count=count,
            reason="no member sends this in good order: see whether these addresses are members'",
        )

    def passes_over(self, member_id: MemberId, frame: bytes) -> bool:
        """Whether a frame holds a message that only a later version knows; a member's is counted, and told once.

        Raises:
            RemoteProtocolError: fewer bytes than a message has.
        """
        _, template_id, schema_id, version = peek_header(frame, HEADER_LENGTH)
        if schema_id not in _OWN_SCHEMAS or registry_key(schema_id, template_id) in MESSAGES:
            return False
        if member_id not in self._roster.members:
            return True  # anybody may say any id: nothing is kept of it
        self.passed_over_counts[member_id] += 1
        told = self._told_passed_over.setdefault(member_id, set())
        if (schema_id, template_id) not in told and len(told) < _PASSED_OVER_LIMIT:
            told.add((schema_id, template_id))
            logger.info(
                "member_message.passed_over",
                peer_member_id=member_id,
                schema_id=schema_id,
                template_id=template_id,
                version=version,
                reason="this version does not know the message: a newer member sent it",
            )
        return True

    def _find_peernames(self, member_id: MemberId | None) -> list[object]:
        """Find the addresses of the connections that speak for a member, or for any."""
        return [
            transport.get_extra_info("peername")
            for transport, inbound in self._inbound.items()
            if inbound._peer_id is not None and member_id in (None, inbound._peer_id)
        ]


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
        links = self._links
        setup = SetupFrame(
            session_id=links._member_id,
            stream_id=CONSENSUS_STREAM_ID,
            cluster_id=links._fixed_settings.cluster_id,
            member_id=links._member_id,
        )
        stream.write(setup.encode() + self._links.greeting())
        self._links._outbound[self._peer_id] = stream
        self._links._on_link_changed(self._peer_id, True)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._parser.feed(data):
                if frame.type == TYPE_DATA and not self._links.passes_over(self._peer_id, frame.raw):
                    told = decode_message(frame.payload, registry=_GREETING)
                    assert isinstance(told, (MemberSettings, MembersNotice))
                    _check_speaker(told, self._peer_id)
                    if isinstance(told, MemberSettings):
                        self._links._on_answered_settings(self._peer_id, told)
                    elif self._peer_id not in self._links.differences:
                        self._links._on_notice(told, shows_member=True)
        except RemoteProtocolError as error:
            logger.warning("consensus_link.answer_refused", peer_member_id=self._peer_id, reason=str(error))
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links._on_outbound_lost(self._peer_id)
        if not self._closed.done():
            self._closed.set_result(None)


class _Inbound(asyncio.Protocol):
    """A connection that somebody dialled: its setup frame says who, or on which stream it asks.

    A member's messages must agree with its setup frame.
    """

    def __init__(self, links: MemberLinks, accepted: AcceptedConnection) -> None:
        self._links = links
        self._accepted = accepted
        accepted.end = self._refuse
        self._parser = FrameParser()
        self._peer_id: MemberId | None = None
        self._is_heard: bool | None = None
        """None until the member has said what its settings are."""
        self._is_status = False
        self._is_outsider = False
        """True where it has had its one answer."""
        self._request: DocumentRequest | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_stream_transport(transport)
        self._accepted.attach(self._transport)
        self._links._inbound[self._transport] = self
        self._deadline = asyncio.get_running_loop().call_later(_STRANGER_TIMEOUT_S, self._on_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self._accepted.leave()
        if self._transport is not None:
            self._links._inbound.pop(self._transport, None)
        self._links.on_inbound_left(self._peer_id, self._accepted)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._is_status:
            self._is_status = False
            self._links._status_counts[self._accepted.purpose] -= 1
        if self._request is not None:
            self._request.close()
            self._request = None

    def data_received(self, data: bytes) -> None:
        if self._is_status or self._is_outsider or (self._request is not None and self._request.is_asked):
            return  # it has its answer, or waits for it
        try:
            frames = self._parser.feed(data)
            for index, frame in enumerate(frames):
                if self._request is not None:
                    assert self._deadline is not None
                    self._deadline.cancel()
                    self._request.on_frame(frame, self._on_answered, self._refuse)
                    self._accepted.admit()  # so many may ask at once, and no more
                    return
                if self._peer_id is None:
                    setup = _decode_setup(frame.type, frame.raw)
                    if self._refuses_other_cluster(setup):
                        return
                    if setup.stream_id == STATUS_STREAM_ID:
                        self._answer_status()
                        return
                    server = self._links._document_servers[self._accepted.purpose]
                    if setup.stream_id in server:
                        assert self._transport is not None
                        self._request = server.open(setup.stream_id, self._accepted, self._transport)
                        continue
                    if self._accepted.caller.role is CallerRole.OUTSIDER:
                        self._answer_outsider(setup, frames[index + 1 :])
                        return
                    self._peer_id = self._identify(setup)
                elif frame.type == TYPE_DATA:
                    if self._is_heard is None:
                        self._on_settings(frame.payload)
                        continue
                    if not self._is_heard or self._peer_id in self._links.differences:
                        return  # it is not of this cluster
                    raw = frame.raw
                    if not is_of(_ACCEPTED, raw, HEADER_LENGTH) and self._links.passes_over(self._peer_id, raw):
                        continue
                    message = decode_message(raw, HEADER_LENGTH, registry=_ACCEPTED)
                    self._check_sender(message)
                    if type(message) is MembersNotice:
                        self._links._on_notice(message, shows_member=self._accepted.knows_caller)
                        continue
                    if self._peer_id not in self._links._roster.members:
                        continue  # it was told who the members are, and is none of them
                    self._hand_over(message)
        except RemoteProtocolError as error:
            self._refuse(str(error))

    def _refuses_other_cluster(self, setup: SetupFrame) -> bool:
        """Refuse a question that is meant for another cluster; members say in their settings of which they are."""
        own_cluster_id = self._links._fixed_settings.cluster_id
        if setup.stream_id == CONSENSUS_STREAM_ID or not is_other_cluster(setup.cluster_id, own_cluster_id):
            return False
        refused = describe_other_cluster(own_cluster_id, expected=setup.cluster_id)
        self._accepted.note("other_cluster", refused)
        assert self._transport is not None
        self._transport.write(encode_other_cluster(refused))
        self._transport.close()  # once it is written; the deadline bounds how long that takes
        return True

    def _hand_over(self, message: Message) -> None:
        """Have the core handle a message; what it has to say of the sender names this connection."""
        links = self._links
        links._speaking = self._transport
        assert self._peer_id is not None
        with_sender = _NAMELESS.get(type(message))
        links._on_message(message if with_sender is None else with_sender(self._peer_id, message))
        links._speaking = None

    def _identify(self, setup: SetupFrame) -> MemberId:
        peer_id = MemberId(setup.member_id)
        links = self._links
        is_known = peer_id in links._roster.members and peer_id != links._member_id
        if setup.stream_id != CONSENSUS_STREAM_ID or peer_id == links._member_id or peer_id < 0:
            raise RemoteProtocolError(
                f"consensus link of stream_id={setup.stream_id} member_id={peer_id} "
                f"expected stream_id={CONSENSUS_STREAM_ID} member_id in {sorted(links._roster.members)}"
            )
        if not is_known and len(links.find_unknown()) >= _UNKNOWN_LIMIT:
            raise RemoteProtocolError(
                f"too many links of what is no member: member_id={peer_id} limit={_UNKNOWN_LIMIT}"
            )
        with audited(links._audit, self._accepted, setup):
            expect_speaker(self._accepted, setup)
        self._links.on_inbound(peer_id, self._accepted)
        return peer_id

    def _answer_outsider(self, setup: SetupFrame, frames: Sequence[StreamFrame]) -> None:
        """Tell a member that is none who the members are, take what it says of them, and end the link.

        Raises:
            RemoteProtocolError: it claims to be another one than it shows, or its messages cannot be read.
        """
        links, accepted, transport = self._links, self._accepted, self._transport
        try:
            with audited(links._audit, accepted, setup):
                expect_speaker(accepted, setup)
        except RemoteProtocolError:
            if setup.stream_id != CONSENSUS_STREAM_ID or accepted.shown.member_id != setup.member_id:
                raise
        said = [
            decode_message(frame.payload, registry=_GREETING)
            for frame in frames
            if frame.type == TYPE_DATA and is_of(_GREETING, frame.raw, HEADER_LENGTH)
        ]
        if said and isinstance(said[0], MemberSettings) and difference(links._settings, said[0]) is None:
            for message in said:
                assert isinstance(message, (MemberSettings, MembersNotice))
                _check_speaker(message, MemberId(setup.member_id))
                if isinstance(message, MembersNotice):
                    links._on_notice(message, shows_member=True)
        self._is_outsider = True
        assert transport is not None
        transport.write(links._notice)
        transport.close()  # once it is written; the deadline bounds how long that takes

    def _on_settings(self, encoded: bytes) -> None:
        """Take the first message of a member, and listen to it from now on, or not."""
        settings = decode_message(encoded, registry=_GREETING)
        if not isinstance(settings, MemberSettings):
            raise RemoteProtocolError(f"{type(settings).__name__} expected MemberSettings first")
        assert self._peer_id is not None
        _check_speaker(settings, self._peer_id)
        assert self._deadline is not None
        self._deadline.cancel()
        self._accepted.admit()
        found = difference(self._links._settings, settings)
        self._is_heard = found is None
        if self._is_heard and settings.is_log_seeded:
            self._links.on_seeded(self._peer_id)
        self.answer_settings()
        if found is not None and self._transport is not None:
            peername = self._transport.get_extra_info("peername")
            logger.warning("consensus_link.not_heard", peer_member_id=self._peer_id, peername=peername, reason=found)
            if is_other_cluster(settings.cluster_id, self._links._fixed_settings.cluster_id):
                audit = self._links._audit
                audit.refused(Permission.MEMBER_LINK, self._accepted, found, claimed_member_id=self._peer_id)

    def answer_settings(self) -> None:
        """Say which settings this member has, and who the members are, to a member that has said so itself."""
        self.answer(self._links.greeting())

    def answer(self, message: bytes) -> None:
        """Say something to a member that has said its settings."""
        if self._is_heard is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.write(message)

    def _answer_status(self) -> None:
        links, transport, asker = self._links, self._transport, self._accepted
        assert transport is not None
        if links._status_counts[asker.purpose] >= _STATUS_LIMIT:
            raise RemoteProtocolError(f"too many status requests at once: limit={_STATUS_LIMIT}")
        links._status_counts[asker.purpose] += 1
        self._is_status = True
        if asker.may(Permission.STATUS):
            transport.write(encode_frame(links._make_status(), stream_id=STATUS_STREAM_ID))
        else:
            links._audit.refused(Permission.STATUS, asker, describe_refusal(Permission.STATUS, asker.caller))
            transport.write(encode_refusal(Permission.STATUS, asker))
        transport.close()  # once it is written; the deadline bounds how long that takes

    def _on_answered(self) -> None:
        """All of the answer is written: it has to be read in time."""
        assert self._transport is not None
        self._deadline = asyncio.get_running_loop().call_later(_STRANGER_TIMEOUT_S, self._on_deadline)
        self._transport.close()

    def _on_deadline(self) -> None:
        """Drop what has not said what it is, does not ask, or does not read its answer."""
        if self._request is not None:
            missing = "answer was not read" if self._request.is_answered else "no request"
            self._refuse(f"{missing} within {_STRANGER_TIMEOUT_S:g} s: {self._request!r}")
        elif self._is_status:
            self._refuse(f"status was not read within {_STRANGER_TIMEOUT_S:g} s")
        elif self._is_outsider:
            self._refuse(f"who the members are was not read within {_STRANGER_TIMEOUT_S:g} s")
        else:
            received = self._parser.buffered_bytes
            missing = "setup frame" if self._peer_id is None else "settings of a member"
            self._refuse(f"no {missing} within {_STRANGER_TIMEOUT_S:g} s: received_bytes={received}")

    def _refuse(self, reason: str) -> None:
        assert self._transport is not None
        peername = self._transport.get_extra_info("peername")
        ids = {"peer_member_id": self._peer_id, "peername": peername}
        self._accepted.log_ended("consensus_link.refused", reason, **ids)
        self._transport.abort()

    def _check_sender(self, message: Message) -> None:
        """Refuse a message that another member should have sent: one link speaks for one member."""
        kind = type(message)
        name = "member_id" if kind is MembersNotice else SENDER_FIELDS[kind]
        if name is not None and (member_id := getattr(message, name)) != self._peer_id:
            raise RemoteProtocolError(f"{type(message).__name__}.{name}={member_id} expected={self._peer_id}")


def _check_speaker(settings: MemberSettings | MembersNotice, expected: MemberId) -> None:
    """Refuse what another member says than the one at this end of the connection."""
    if settings.member_id != expected:
        raise RemoteProtocolError(f"{type(settings).__name__}.member_id={settings.member_id} expected={expected}")


def _decode_setup(frame_type: int, raw: bytes) -> SetupFrame:
    if frame_type != TYPE_SETUP:
        raise RemoteProtocolError(f"consensus link begins with frame type={frame_type} expected={TYPE_SETUP}")
    return SetupFrame.decode(raw)
