"""How a subscription ends that cannot go on."""

from __future__ import annotations

from ...service_api.errors import ClusterError, ClusterTimeoutError


class SubscriptionError(ClusterError):
    """A subscription cannot begin or go on where it was asked to."""


class PositionPrunedError(SubscriptionError):
    """The log below `first_position` was removed on every member that can be reached."""

    def __init__(self, *, position: int, first_position: int) -> None:
        super().__init__(
            f"position={position} is below the log that the members keep: first_position={first_position}; "
            "begin there, or take the state below it from a snapshot"
        )
        self.position = position
        self.first_position = first_position


class PositionBeyondEndError(SubscriptionError):
    """The position is beyond what is committed: it is of another cluster, or was never committed."""

    def __init__(self, *, position: int, commit_position: int) -> None:
        super().__init__(
            f"position={position} is beyond the committed log: commit_position={commit_position}; "
            "a position to go on from is the end_position of an entry of this cluster"
        )
        self.position = position
        self.commit_position = commit_position


class NoEntryAtPositionError(SubscriptionError):
    """No entry begins at the position."""

    def __init__(self, *, position: int, reason: str) -> None:
        super().__init__(
            f"no entry begins at position={position}: {reason}; "
            "a position to go on from is the end_position of an entry, or 0"
        )
        self.position = position


class SubscriptionRefusedError(SubscriptionError):
    """Every member that answers refuses this caller; says which role is needed."""


class SubscriptionTimeoutError(SubscriptionError, ClusterTimeoutError):
    """No member served the log in time; says what each of them answered."""
