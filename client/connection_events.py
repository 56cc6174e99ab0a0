"""What happens to the connections of a client, as a stream that may be watched.

Why a stream and not more methods of the listener: a listener is called between two messages, because what it does then
(resend) has to happen before the next one. News about connections needs no such place. A stream can be read later, by
several tasks, from the first event on, and without a listener.

The newest events are kept in one ring. A reader has only its place in it, so that it costs nothing, and needs no end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..service_api.types import ClusterSessionId, MemberId, TermId


@dataclass(slots=True, frozen=True)
class Connected:
    """A connection to a member is up."""

    endpoint: str
    member_id: MemberId | None
    """None while the cluster has not told yet whose endpoint it is."""


@dataclass(slots=True, frozen=True)
class Disconnected:
    """A connection that was up is gone; the client dials again. Dials that fail are not told one by one."""

    endpoint: str
    member_id: MemberId | None
    reason: str


@dataclass(slots=True, frozen=True)
class SessionOpened:
    """The cluster has opened the session."""

    cluster_session_id: ClusterSessionId
    leadership_term_id: TermId
    leader_member_id: MemberId


@dataclass(slots=True, frozen=True)
class LeaderLost:
    """The path to the leader is gone: offers wait from now on."""

    reason: str


@dataclass(slots=True, frozen=True)
class NewLeader:
    """The path to a leader stands again, perhaps to the same one: what was not answered may be lost."""

    leadership_term_id: TermId
    leader_member_id: MemberId


@dataclass(slots=True, frozen=True)
class SessionClosed:
    """The session has ended for this client: always the last event."""

    reason: str
    is_confirmed: bool
    """Whether the cluster said so. If not, the cluster keeps the session until it has been silent for too long."""


ConnectionEvent = Connected | Disconnected | SessionOpened | LeaderLost | NewLeader | SessionClosed


class ConnectionEventLog:
    """The newest events of one client; at the limit the oldest goes."""

    __slots__ = ("_events", "total_count")

    def __init__(self, limit: int) -> None:
        self._events: deque[ConnectionEvent] = deque(maxlen=limit)
        self.total_count = 0
        """Events that there have been: the number that the next one gets."""

    def append(self, event: ConnectionEvent) -> None:
        """Add the newest event."""
        self._events.append(event)
        self.total_count += 1

    @property
    def first_number(self) -> int:
        """The number of the oldest event that is kept."""
        return self.total_count - len(self._events)

    def event(self, number: int) -> ConnectionEvent:
        """Return an event that is kept."""
        return self._events[number - self.first_number]
