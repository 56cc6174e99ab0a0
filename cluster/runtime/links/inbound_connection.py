"""Connections that were dialled to this member, whatever is spoken on them.

One protocol at a time has a connection, and hands it to the next one when it knows what comes:

    InboundGreeting     its setup frame says which of these it is, and a member says its settings
      InboundMember     a member's messages, until the link ends
      DocumentRequest   one request, and its answer
      Answered          the one answer that was written: a status, or who the members are

`InboundConnection` is what stays: who it is, what the gate knows of it, its deadline and its end.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ....service_api import RemoteProtocolError
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.net.transport import as_stream_transport
from ....service_api.types import MemberId
from ....service_api.wire.stream import FrameParser, StreamFrame

_STRANGER_TIMEOUT_S: Final = 2.0
"""How long a connection may take to say what it is and to ask, and to take the answer."""

_LINK_LIMIT: Final = 4
"""Connections that may say at once that they are one member's: it has one, and dials again before the old one ends."""


class InboundConnections:
    """The connections that there are, and the members that they say they are."""

    def __init__(self) -> None:
        self._connections: dict[InboundConnection, None] = {}
        """In order of their coming: closing has one order."""
        self._links_of: dict[MemberId, dict[AcceptedConnection, None]] = {}

    def __repr__(self) -> str:
        return f"<InboundConnections {len(self)} members={sorted(self._links_of)}>"

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[InboundConnection]:
        return iter([*self._connections])

    @property
    def linked_members(self) -> list[MemberId]:
        """Return the ids that connections say, once for each connection."""
        return [each.peer_id for each in self._connections if each.peer_id is not None]

    def answer(self, message: bytes) -> None:
        """Say something to every member that has said its settings."""
        for connection in self:
            connection.answer(message)

    def find_peernames(self, member_id: MemberId | None) -> list[object]:
        """Find the addresses of the connections that speak for a member, or for any."""
        return [
            each.transport.get_extra_info("peername")
            for each in self
            if each.peer_id is not None and member_id in (None, each.peer_id)
        ]

    def add(self, connection: InboundConnection) -> None:
        """Take a connection that is made."""
        self._connections[connection] = None

    def link(self, connection: InboundConnection, member_id: MemberId) -> None:
        """Take a connection as a member's, because it says so: of more than a few, the oldest goes."""
        links = self._links_of.setdefault(member_id, {})
        links[connection.accepted] = None
        if len(links) > _LINK_LIMIT:
            next(iter(links)).refuse("superseded", f"newer links of member {member_id}: limit={_LINK_LIMIT}")
        connection.peer_id = member_id

    def remove(self, connection: InboundConnection) -> None:
        """Forget a connection that is lost, perhaps before it was made."""
        self._connections.pop(connection, None)
        member_id = connection.peer_id
        if member_id is not None and member_id in self._links_of:
            self._links_of[member_id].pop(connection.accepted, None)
            if not self._links_of[member_id]:
                del self._links_of[member_id]


class InboundConnection:
    """One connection that was dialled to this member: who it is, how long it may take, and how it ends."""

    transport: asyncio.Transport
    describe_late: Callable[[str], str]
    """The words for what did not come, or was not read, within the time that there is."""

    def __init__(
        self, connections: InboundConnections, accepted: AcceptedConnection, protocol: InboundProtocol
    ) -> None:
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None
        self.accepted: Final = accepted
        self.protocol = protocol
        """The one that has the connection now."""
        self.parser: Final = FrameParser()
        self.peer_id: MemberId | None = None
        """The member that its setup frame names."""
        self.is_greeted = False
        """True once that member has said its settings, and is answered."""

    def __repr__(self) -> str:
        return f"<InboundConnection peer_member_id={self.peer_id} of={type(self.protocol).__name__}>"

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, once it is made; from now on the peer has a deadline."""
        self.transport = as_stream_transport(transport)
        self.accepted.end = self.refuse
        self.accepted.attach(self.transport)
        self._connections.add(self)
        self.expect_in_time()

    def hand_to(self, protocol: InboundProtocol) -> None:
        """Let another protocol have the connection. The frames that have come already are given to it next."""
        self.protocol = protocol
        self.transport.set_protocol(protocol)

    def expect_in_time(self) -> None:
        """Drop the connection if what its protocol waits for does not come in time."""
        self._deadline = asyncio.get_running_loop().call_later(_STRANGER_TIMEOUT_S, self._on_deadline)

    def forget_deadline(self) -> None:
        """Let the peer take its time: it has said what was expected."""
        if self._deadline is not None:
            self._deadline.cancel()

    def answer(self, message: bytes) -> None:
        """Say something to a member that has said its settings."""
        if self.is_greeted and not self.transport.is_closing():
            self.transport.write(message)

    def answer_and_close(self, message: bytes) -> None:
        """Say the last thing. The connection ends once it is written; the deadline bounds how long that takes."""
        self.transport.write(message)
        self.transport.close()

    def refuse(self, reason: str) -> None:
        """End the connection, and log why."""
        self.log_refused(reason)
        self.transport.abort()

    def log_refused(self, reason: str) -> None:
        """Log why a connection, or the request on it, is refused."""
        ids = {"peer_member_id": self.peer_id, "peername": self.transport.get_extra_info("peername")}
        self.accepted.log_ended("consensus_link.refused", reason, **ids)

    def leave(self) -> None:
        """Forget the connection, which is lost."""
        self.accepted.leave()
        self._connections.remove(self)
        self.forget_deadline()

    def _on_deadline(self) -> None:
        self.refuse(self.describe_late(f"within {_STRANGER_TIMEOUT_S:g} s"))


class InboundProtocol(asyncio.Protocol, ABC):
    """One of the protocols that a connection may speak."""

    def __init__(self, connection: InboundConnection) -> None:
        self._connection = connection
        self._parser = connection.parser

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole; bytes that cannot be right end the connection."""
        try:
            self.take(self._parser.feed(data))
        except RemoteProtocolError as error:
            self._connection.refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._connection.leave()

    @abstractmethod
    def take(self, frames: Sequence[StreamFrame]) -> None:
        """Take frames in their order.

        Raises:
            RemoteProtocolError: the peer must not send this here.
        """


class Answered(InboundProtocol):
    """A connection that has its one answer: it is closed once that is read, and what still comes is dropped."""

    def __init__(self, connection: InboundConnection, what: str, on_lost: Callable[[], object] = lambda: None) -> None:
        super().__init__(connection)
        self._on_lost = on_lost
        connection.describe_late = lambda within: f"{what} was not read {within}"

    def data_received(self, data: bytes) -> None:
        """Drop it."""

    def take(self, frames: Sequence[StreamFrame]) -> None:
        """Drop them."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        super().connection_lost(exc)
        self._on_lost()
