"""What `drain` waits for, and what it may say.

There are no acknowledgements of single messages. What can be known is that the leader's connection took the bytes: that
they left this process. So a drain says that, and it says the opposite as soon as it is so: when the path to the leader
broke, or the leader changed, after an offer and before the drain that would have told of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ingress_publisher import IngressPublisher


@dataclass(slots=True, frozen=True)
class DrainTarget:
    """How far the connection to the leader has to have come."""

    connection_id: int
    publisher: IngressPublisher
    end_bytes: int
    """Of the publisher's `appended_bytes`."""
    offered_bytes: int
    """Of the publisher's `offered_bytes`."""
    indeterminate_count: int
    """How often it had become unknown what became of offers."""


class OfferTracker:
    """Knows whether all that was offered since the last drain went to a leader that is still there."""

    __slots__ = ("_indeterminate_reason", "_told_count", "indeterminate_count")

    def __init__(self) -> None:
        self.indeterminate_count = 0
        self._told_count = 0
        self._indeterminate_reason = ""

    def on_leader_left(self, publisher: IngressPublisher, reason: str) -> None:
        """Note that what was offered here, and not drained, may be lost."""
        if publisher.offered_bytes > publisher.settled_bytes:
            publisher.settled_bytes = publisher.offered_bytes
            self.indeterminate_count += 1
            self._indeterminate_reason = reason

    def target(self, connection_id: int, publisher: IngressPublisher) -> DrainTarget:
        """Return what is to be sent before everything that was offered up to now is sent."""
        return DrainTarget(
            connection_id, publisher, publisher.appended_bytes, publisher.offered_bytes, self.indeterminate_count
        )

    def settle(self, target: DrainTarget) -> None:
        """Note that a target was reached."""
        publisher = target.publisher
        publisher.settled_bytes = max(publisher.settled_bytes, target.offered_bytes)

    def take_indeterminate_reason(self, since_count: int | None = None) -> str | None:
        """Return the reason why offers may be lost, once, or to each drain that ran meanwhile; None: none is known."""
        known_count = self._told_count if since_count is None else since_count
        if self.indeterminate_count == known_count:
            return None
        self._told_count = self.indeterminate_count
        return self._indeterminate_reason
