"""Whether a member that answers keep-alives still does: a process that is stopped keeps its connections.

A member answers the keep-alives that ask for it, and says whether it leads. One of an earlier version, or of Aeron,
answers none: on a connection on which no answer ever came, silence says nothing.

Silence is counted in keep-alives, not in time alone: after the client's own process stood still, what came meanwhile is
read before the next one is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_SILENCE_NS: Final = 3_000_000_000
"""A member that does not read its clients says so within two seconds, and then once a second."""

_UNANSWERED_LIMIT: Final = 2


@dataclass(slots=True)
class KeepAliveWatch:
    """What was asked on one connection, and is not answered."""

    is_answered_here: bool = False
    """Whether the member has answered a keep-alive on this connection."""
    unanswered_count: int = 0
    """Keep-alives since anything came."""
    _unanswered_since_ns: int = 0
    _sent_bytes: int = 0

    def on_asked(self, now_ns: int, *, sent_bytes: int, is_backed_up: bool) -> None:
        """Note a keep-alive. It does not count while it waits behind others that the socket takes slowly."""
        is_moving, self._sent_bytes = is_backed_up and sent_bytes != self._sent_bytes, sent_bytes
        if is_moving:
            return
        if not self.unanswered_count:
            self._unanswered_since_ns = now_ns
        self.unanswered_count += 1

    def is_silent(self, now_ns: int, *, least_ns: int) -> bool:
        """Return whether the member has stopped to answer, for at least this long."""
        return (
            self.is_answered_here
            and self.unanswered_count >= _UNANSWERED_LIMIT
            and now_ns - self._unanswered_since_ns >= least_ns
        )
