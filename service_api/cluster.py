"""What the framework hands to a service: its view of the cluster, and where snapshots come from and go to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from .session import ClientSession
from .types import ClusterSessionId, MemberId, Role, TimeUnit


class Cluster(Protocol):
    """The cluster as one service sees it, at the log position of the callback that runs.

    Source: Aeron `Cluster`.
    """

    @property
    def member_id(self) -> MemberId:
        """The id of the member this service runs in. Replicated state must not depend on it."""

    @property
    def role(self) -> Role:
        """The member's role now. Replicated state must not depend on it."""

    @property
    def time(self) -> int:
        """Cluster time of the log entry being processed, in `time_unit`. It never goes backwards."""

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of `time` and of every timestamp and deadline."""

    @property
    def log_position(self) -> int:
        """The end of the log entry being processed, in bytes."""

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open client sessions by id, in ascending order of id; the same on every member."""

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Ask for `on_timer_event(correlation_id)` once cluster time reaches `deadline`, in `time_unit`.

        The same id again moves the deadline; a deadline in the past fires at once. Only legal in log-ordered callbacks.
        """

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none. An event already in the log still comes."""


class SnapshotImage(Protocol):
    """A snapshot to load: the messages the service once wrote, in order."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class SnapshotPublication(Protocol):
    """Where a service writes its snapshot, message by message."""

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Append one message of the service's own making to the snapshot, waiting for room."""
