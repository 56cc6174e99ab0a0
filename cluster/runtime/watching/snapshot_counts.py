"""Counts of the snapshots that a member takes."""

from __future__ import annotations


class SnapshotCounts:
    """The snapshots that this member has taken since its process began. Times in nanoseconds."""

    def __init__(self) -> None:
        self.taken = 0
        self.failed = 0
        self.last_duration_ns = 0
        self.last_stop_ns = 0
        """The part of it in which delivery stood still."""
        self.max_duration_ns = 0
        self.last_length_bytes = 0
        """The length of the services' state in the last one that was taken."""

    def __repr__(self) -> str:
        return f"<SnapshotCounts taken={self.taken} failed={self.failed}>"

    def on_taken(self, duration_ns: int, length_bytes: int, stop_ns: int) -> None:
        """One is complete and durable."""
        self.taken += 1
        self.last_duration_ns, self.last_length_bytes, self.last_stop_ns = duration_ns, length_bytes, stop_ns
        self.max_duration_ns = max(self.max_duration_ns, duration_ns)

    def on_failed(self) -> None:
        """A service could not write its state."""
        self.failed += 1
