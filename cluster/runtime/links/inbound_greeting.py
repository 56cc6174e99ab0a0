"""A new connection to the consensus endpoint or the control socket: its setup frame says who it is, or what it asks.

A member says its settings next, and is answered with this member's. A connection whose settings cannot go with them is
not heard (`core.member_settings`), and stays, for its member would only dial again.

Where the endpoint tells callers apart, a link must be of the member that it says (`speaker`), and of one that is
spoken to. The certificate of any other member gets one answer, who the members are, and the link ends: so a member that
was removed while it was down learns of it. What such a process says of the members is a rumour (`roster`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from ....service_api import RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.identity import CallerRole
from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import describe_other_cluster, is_other_cluster
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.net.transport import Purpose
from ....service_api.types import CONSENSUS_STREAM_ID, MemberId
from ....service_api.wire.client_end import WRONG_PORT_ID, encode_client_end, find_wrong_port
from ....service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, TYPE_SETUP
from ....service_api.wire.link_frames import SetupFrame
from ....service_api.wire.message import decode_message, find_class
from ....service_api.wire.stream import StreamFrame
from ...core.events import SeedAnnounced
from ...core.peers.member_settings import difference
from ...messages.settings import MemberSettings, MembersNotice
from .document_server import DocumentServer, encode_other_cluster
from .heard_members import GREETING, HeardMembers
from .inbound_connection import Answered, InboundConnection, InboundConnections, InboundProtocol
from .inbound_member import InboundMember
from .own_greeting import OwnGreeting
from .speaker import audited, expect_own_words, expect_speaker

_UNKNOWN_LIMIT: Final = 16
"""Links at once of processes that say an id that no member has: new members that the log here does not know yet."""

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True, kw_only=True)
class InboundParts:
    """The parts of a member that its inbound connections need."""

    connections: InboundConnections
    own: OwnGreeting
    heard: HeardMembers
    document_servers: Mapping[Purpose, DocumentServer]
    """At the endpoint and at the control socket."""
    audit: AuditTrail


class InboundGreeting(InboundProtocol):
    """A new connection, until it is known what it speaks."""

    def __init__(self, parts: InboundParts, accepted: AcceptedConnection) -> None:
        super().__init__(InboundConnection(parts.connections, accepted, self))
        self._connection.describe_late = self._describe_late
        self._parts = parts
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._connection.begin(transport)

    def take(self, frames: Sequence[StreamFrame]) -> None:
        """Take the setup frame, and a member's settings; then give the connection, and the frames that follow, away.

        Raises:
            RemoteProtocolError: no connection begins like this.
        """
        connection = self._connection
        for count, frame in enumerate(frames, 1):
            if connection.peer_id is None:
                setup = _decode_setup(frame)
                if self._refuses_client(setup) or self._refuses_other_cluster(setup):
                    return
                self._on_setup(setup, frames[count:])
            elif frame.type == TYPE_DATA:
                self._on_settings(frame.payload, connection.peer_id)
            if connection.protocol is not self:
                connection.protocol.take(frames[count:])
                return

    def _refuses_client(self, setup: SetupFrame) -> bool:
        """Tell a client that wants a session where the ingress is."""
        roster = self._parts.heard.roster
        reason = find_wrong_port(setup, f"the consensus port of member {roster.member_id}", roster.own_ingress)
        if reason is None:
            return False
        self._accepted.log_ended("consensus_link.refused", reason)
        self._connection.hand_to(Answered(self._connection, "where the ingress is"))
        self._connection.answer_and_close(encode_client_end(reason, correlation_id=WRONG_PORT_ID))
        return True

    def _refuses_other_cluster(self, setup: SetupFrame) -> bool:
        """Refuse a question that is meant for another cluster; members say in their settings of which they are."""
        own_cluster_id = self._parts.own.cluster_id
        if setup.stream_id == CONSENSUS_STREAM_ID or not is_other_cluster(setup.cluster_id, own_cluster_id):
            return False
        refused = describe_other_cluster(own_cluster_id, expected=setup.cluster_id)
        self._accepted.note("other_cluster", refused)
        self._connection.answer_and_close(encode_other_cluster(refused))
        return True

    def _on_setup(self, setup: SetupFrame, following: Sequence[StreamFrame]) -> None:
        """Begin what the setup frame says. A process that is no member may say what came with it, and no more."""
        server = self._parts.document_servers[self._accepted.purpose]
        if setup.stream_id in server:
            server.open(setup.stream_id, self._connection)
        elif self._accepted.caller.role is CallerRole.OUTSIDER:
            self._answer_outsider(setup, following)
        else:
            self._parts.connections.link(self._connection, self._identify(setup))

    def _identify(self, setup: SetupFrame) -> MemberId:
        peer_id = MemberId(setup.member_id)
        own, members = self._parts.own, self._parts.heard.roster.members
        if setup.stream_id != CONSENSUS_STREAM_ID or peer_id == own.member_id or peer_id < 0:
            raise RemoteProtocolError(
                f"consensus link of stream_id={setup.stream_id} member_id={peer_id} "
                f"expected stream_id={CONSENSUS_STREAM_ID} member_id in {sorted(members)}"
            )
        if peer_id not in members:
            unknown = [each for each in self._parts.connections.linked_members if each not in members]
            if len(unknown) >= _UNKNOWN_LIMIT:
                raise RemoteProtocolError(
                    f"too many links of what is no member: member_id={peer_id} limit={_UNKNOWN_LIMIT}"
                )
        with audited(self._parts.audit, self._accepted, setup):
            expect_speaker(self._accepted, setup)
        return peer_id

    def _answer_outsider(self, setup: SetupFrame, frames: Sequence[StreamFrame]) -> None:
        """Tell a member that is none who the members are, take what it says of them, and end the link.

        Raises:
            RemoteProtocolError: it claims to be another one than it shows, or its messages cannot be read.
        """
        parts, accepted = self._parts, self._accepted
        try:
            with audited(parts.audit, accepted, setup):
                expect_speaker(accepted, setup)
        except RemoteProtocolError:
            if setup.stream_id != CONSENSUS_STREAM_ID or accepted.shown.member_id != setup.member_id:
                raise
        said = [
            decode_message(frame.payload, registry=GREETING)
            for frame in frames
            if frame.type == TYPE_DATA and find_class(GREETING, frame.raw, HEADER_LENGTH) is not None
        ]
        if said and isinstance(said[0], MemberSettings) and difference(parts.own.settings, said[0]) is None:
            for message in said:
                assert isinstance(message, (MemberSettings, MembersNotice))
                expect_own_words(message, MemberId(setup.member_id))
                if isinstance(message, MembersNotice):
                    parts.heard.on_notice(message, shows_member=True)
        self._connection.hand_to(Answered(self._connection, "who the members are"))
        self._connection.answer_and_close(parts.own.notice)

    def _on_settings(self, encoded: bytes, peer_id: MemberId) -> None:
        """Take the first message of a member, and listen to it from now on, or not."""
        settings = decode_message(encoded, registry=GREETING)
        if not isinstance(settings, MemberSettings):
            raise RemoteProtocolError(f"{type(settings).__name__} expected MemberSettings first")
        expect_own_words(settings, peer_id)
        parts, connection = self._parts, self._connection
        connection.forget_deadline()
        self._accepted.admit()
        found = difference(parts.own.settings, settings)
        connection.hand_to(InboundMember(connection, peer_id, parts.heard, is_heard=found is None))
        connection.is_greeted = True
        if found is None and settings.is_log_seeded:
            parts.heard.post(SeedAnnounced(peer_id))
        connection.answer(parts.own.encode())
        if found is not None:
            peername = connection.transport.get_extra_info("peername")
            logger.warning("consensus_link.not_heard", peer_member_id=peer_id, peername=peername, reason=found)
            if is_other_cluster(settings.cluster_id, parts.own.cluster_id):
                parts.audit.refused(Permission.MEMBER_LINK, self._accepted, found, claimed_member_id=peer_id)

    def _describe_late(self, within: str) -> str:
        missing = "setup frame" if self._connection.peer_id is None else "settings of a member"
        return f"no {missing} {within}: received_bytes={self._parser.buffered_bytes}"


def _decode_setup(frame: StreamFrame) -> SetupFrame:
    if frame.type != TYPE_SETUP:
        raise RemoteProtocolError(f"consensus link begins with frame type={frame.type} expected={TYPE_SETUP}")
    return SetupFrame.decode(frame.raw)
