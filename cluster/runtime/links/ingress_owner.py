"""What ingress needs of its member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ....service_api.types import ClusterSessionId
from ....service_api.wire.queries import AskedQuery
from ...core.log.log_publisher import LogPublisher


class IngressOwner(Protocol):
    """What ingress needs of the consensus module's agent."""

    @property
    def publisher(self) -> LogPublisher | None:
        """The leader's publisher of entries, or None while this member does not lead."""

    def post(self, event: object) -> None:
        """Hand an event to the core."""

    def post_soon(self, event: object) -> None:
        """Hand an event to the core once this pass of the loop is over, in order with the others."""

    def take_soon(self) -> None:
        """Give the core now what `post_soon` has put by: what comes next depends on it."""

    def holds_session(self, connection_id: int) -> bool:
        """Whether the client of a connection has shown that an open session is its own, to a leader or a follower."""

    def is_keep_alive_known(self, connection_id: int, leadership_term_id: int, session_id: ClusterSessionId) -> bool:
        """Whether a keep-alive tells the core nothing: only that it came counts."""

    def disconnect_egress(self, session_id: ClusterSessionId) -> None:
        """Send no egress of a session any more: its connection is gone."""

    def on_query(self, connection_id: int, question: AskedQuery) -> None:
        """Take a query; it is answered on its connection."""

    def schedule_flush(self) -> None:
        """Send and record what has been appended, once this turn of the loop is over."""

    @property
    def monotonic_ns(self) -> Callable[[], int]:
        """The clock for durations itself: it is read several times for each chunk."""

    def stamp(self) -> int:
        """Now, for log entries: never below the newest time in the log."""

    def is_window_full(self) -> bool:
        """Whether more is appended and not delivered than the ingress window allows."""
