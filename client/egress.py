"""What a client receives: the listener's callbacks and the iterator's messages."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Protocol

from ..service_api.wire.session import EventCode


class EgressMessage(NamedTuple):
    """One message that the clustered service sent to this session."""

    payload: bytes
    """The service's bytes; a copy, yours to keep."""

    timestamp: int
    """Cluster time, in the cluster's time unit, of the log entry that the service was handling."""

    leadership_term_id: int
    """The leadership term of the leader that sent it."""


_new_message: Final = tuple.__new__
"""Makes an EgressMessage in half the time of its own constructor."""


class EgressListener(Protocol):
    """Receives egress as plain function calls on the event loop, without an object per message.

        class Totals:
            def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
                self.total = int(bytes(payload))

            def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
                self.must_resend = True

            def on_session_event(self, code: EventCode, detail: str) -> None:
                self.is_open = code is EventCode.OK

        ClusterClient.connect(endpoints, egress_listener=Totals())

    What it is called for has its place between two messages. News about single connections has none, and is in
    `ClusterClient.connection_events`, whether there is a listener or not.

    The callbacks must not block. An exception goes to the loop's exception handler; the message counts as
    handled.
    """

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Handle one message. `payload` is valid only during the call: copy what must stay."""

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """The path to a leader stands again: what was offered and not answered may be lost, resend it."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """The cluster said something about this session: OK, ERROR or CLOSED."""


class EgressQueue:
    """The listener that feeds the egress iterator: it copies messages into a queue.

    Bounded by the shell, which stops reading the sockets while `is_full`; what one received chunk holds may
    overshoot.
    """

    __slots__ = ("_limit", "is_awaited", "messages")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.messages: deque[EgressMessage] = deque()
        self.is_awaited = False
        """Whether a task waits for a message: two would take each other's."""

    @property
    def is_full(self) -> bool:
        """Whether the sockets should rest."""
        return len(self.messages) >= self._limit

    @property
    def is_low(self) -> bool:
        """Whether there is room enough to read again: half, so that reading does not flap."""
        return len(self.messages) <= self._limit // 2

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Queue a copy."""
        self.messages.append(_new_message(EgressMessage, (bytes(payload), timestamp, leadership_term_id)))

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing: the messages carry their term."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing: a closed session ends the iteration with its reason."""
