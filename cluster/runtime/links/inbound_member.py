"""A member's messages, on the connection that it dialled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ....service_api import RemoteProtocolError
from ....service_api.types import MemberId
from ....service_api.wire.frame import HEADER_LENGTH, TYPE_DATA
from ....service_api.wire.message import Message, decode_message, find_class, registry_of
from ....service_api.wire.stream import StreamFrame
from ...core.events import LeaderSaid, StandbySaid
from ...core.peers.message_rules import SENDER_FIELDS
from ...messages.backup import StandbySnapshot
from ...messages.consensus import StopCatchup, TerminationPosition
from ...messages.settings import MembersNotice
from .heard_members import HeardMembers
from .inbound_connection import InboundConnection, InboundProtocol

_ACCEPTED: Final = registry_of(*SENDER_FIELDS, MembersNotice)
"""The messages that a member takes from another: those that the core handles."""

_NAMELESS: Final[dict[type[Message], Callable[[MemberId, Any], LeaderSaid | StandbySaid]]] = {  # Any: its own message
    StopCatchup: LeaderSaid,
    TerminationPosition: LeaderSaid,
    StandbySnapshot: StandbySaid,
}
"""Messages that do not name their sender. Types are looked up: asking a pydantic model for its instances takes
microseconds."""


class InboundMember(InboundProtocol):
    """The connection of a member that has said its settings; its messages must agree with its setup frame."""

    def __init__(
        self, connection: InboundConnection, peer_id: MemberId, heard: HeardMembers, *, is_heard: bool
    ) -> None:
        """Listen to the member; without `is_heard` drop what it says, for it is not of this cluster."""
        super().__init__(connection)
        self._peer_id = peer_id
        self._heard = heard
        self._is_heard = is_heard

    def take(self, frames: Sequence[StreamFrame]) -> None:
        """Have the core handle the messages; what one has to say of its sender names this connection.

        Raises:
            RemoteProtocolError: a message that no member sends here, or that another one should have sent.
        """
        heard, peer_id = self._heard, self._peer_id
        for frame in frames:
            if frame.type != TYPE_DATA:
                continue
            if not self._is_heard or peer_id in heard.differences:
                return
            raw = frame.raw
            kind = find_class(_ACCEPTED, raw, HEADER_LENGTH)
            if kind is None:
                if heard.passes_over(peer_id, raw):
                    continue
                message = decode_message(raw, HEADER_LENGTH, registry=_ACCEPTED)  # says what is wrong with it
            else:
                message = kind.decode(raw, HEADER_LENGTH)
            self._check_sender(message)
            if type(message) is MembersNotice:
                heard.on_notice(message, shows_member=self._connection.accepted.knows_caller)
            elif peer_id in heard.roster.members:  # others were told who the members are
                heard.speaking = self._connection.transport
                with_sender = _NAMELESS.get(type(message))
                heard.post(message if with_sender is None else with_sender(peer_id, message))
                heard.speaking = None

    def _check_sender(self, message: Message) -> None:
        """Refuse a message that another member should have sent: one link speaks for one member."""
        kind = type(message)
        name = "member_id" if kind is MembersNotice else SENDER_FIELDS[kind]
        if name is not None and (member_id := getattr(message, name)) != self._peer_id:
            raise RemoteProtocolError(f"{type(message).__name__}.{name}={member_id} expected={self._peer_id}")
