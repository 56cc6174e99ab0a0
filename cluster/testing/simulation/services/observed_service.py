"""Wraps the user's service and records what is delivered to it, and its state."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from .....service_api import CloseReason, Cluster, ClusteredService, Role
from .....service_api.cluster import SnapshotImage, SnapshotPublication
from .....service_api.session import ClientSession
from .....service_api.state_digest import StateDigest


class EntryObserver:
    """Looks on while a service is given the entries of the log; each method does nothing unless it is overridden."""

    def on_begin(self, position: int) -> None:
        """Called before the service is given the entry that ends there; what it raises, the service raises."""

    def on_entry(self, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """Called after the entry with what it was; what it raises, the service raises."""

    def on_error(self, position: int, error: Exception) -> None:
        """Called if the service raised at the entry that ends there."""

    def on_loaded(self, position: int, state_hash: object) -> None:
        """Called with the position of a snapshot that was loaded, and the hash of the state."""


class ObservedService(ClusteredService):
    """Hands every callback on, and tells an observer of each log entry after the service has processed it."""

    def __init__(self, service: ClusteredService, observer: EntryObserver) -> None:
        self.service = service
        self.feature_level = service.feature_level
        self.typed_name = service.typed_name
        self._observer = observer
        self._cluster: Cluster | None = None

    def __repr__(self) -> str:
        return repr(self.service)

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Start the service; tell what it has become, if it was given a snapshot."""
        self._cluster = cluster
        result = self.service.on_start(cluster, snapshot)
        if result is not None:
            await result
        if snapshot is not None:
            self._observer.on_loaded(cluster.log_position, self._state_hash())

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Hand on, and tell."""
        with self._at_entry():
            self.service.on_session_open(session, timestamp)
        self._tell(timestamp, "open", session.id)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Hand on, and tell."""
        data = bytes(payload)
        with self._at_entry():
            self.service.on_session_message(session, timestamp, payload)
        self._tell(timestamp, "message", session.id, data)

    @property
    def takes_messages(self) -> bool:
        """Whether the service does."""
        return self.service.takes_messages

    @property
    def takes_snapshots(self) -> bool:
        """Whether the service writes its state."""
        return self.service.takes_snapshots

    @property
    def yields_snapshots(self) -> bool:
        """Whether the service yields its state."""
        return self.service.yields_snapshots

    def snapshot_messages(self) -> Iterator[bytes]:
        """Hand on."""
        return self.service.snapshot_messages()

    @property
    def takes_requests(self) -> bool:
        """Whether the service does."""
        return self.service.takes_requests

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes | bytearray | memoryview:
        """Hand on, and tell. An error is an answer like any other, unless it says that something cannot be."""
        data = bytes(payload)
        self._begin()
        try:
            return self.service.on_request(session, timestamp, payload)
        except AssertionError as error:
            self._raised(error)
            raise
        finally:
            self._tell(timestamp, "request", session.id, data)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Hand on, and tell."""
        with self._at_entry():
            self.service.on_session_close(session, timestamp, close_reason)
        self._tell(timestamp, "close", session.id, close_reason)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Hand on, and tell."""
        data = bytes(payload)
        with self._at_entry():
            self.service.on_service_message(service_id, timestamp, payload)
        self._tell(timestamp, "service message", service_id, data)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Hand on, and tell."""
        with self._at_entry():
            self.service.on_timer_event(correlation_id, timestamp)
        self._tell(timestamp, "timer", correlation_id)

    @property
    def takes_queries(self) -> bool:
        """Whether the service does."""
        return self.service.takes_queries

    @property
    def undoes_queries(self) -> bool:
        """True if the service undoes by itself what a query changes."""
        return self.service.undoes_queries

    def on_query(self, payload: memoryview) -> bytes:
        """Hand on; it is no log entry, and must leave the state as it is."""
        return self.service.on_query(payload)

    @property
    def has_state_hash(self) -> bool:
        """Whether the service has one."""
        return self.service.has_state_hash

    @property
    def state_types(self) -> Mapping[str, bytes]:
        """A digest of the type of each field of the state, by name."""
        return self.service.state_types

    def begin_digest(self) -> StateDigest | None:
        """Begin the service's."""
        return self.service.begin_digest()

    def state_hash(self) -> object:
        """Return the service's."""
        return self.service.state_hash()

    def outbox_counts(self) -> Sequence[tuple[str, int, int]]:
        """Return the service's."""
        return self.service.outbox_counts()

    def on_take_snapshot(self, snapshot: SnapshotPublication) -> Awaitable[None] | None:
        """Let the service write its state."""
        return self.service.on_take_snapshot(snapshot)

    def on_role_change(self, role: Role) -> None:
        """Hand on; it is no log entry."""
        self.service.on_role_change(role)

    def on_new_leadership_term_event(self, **fields: Any) -> None:  # Any: as the callback has them
        """Hand on, and tell."""
        with self._at_entry():
            self.service.on_new_leadership_term_event(**fields)
        told = (fields[name] for name in ("leadership_term_id", "leader_member_id", "term_base_log_position"))
        self._tell(fields["timestamp"], "term", *told)

    def on_terminate(self, cluster: Cluster) -> None:
        """Stop the service."""
        self.service.on_terminate(cluster)

    def _state_hash(self) -> object:
        """Return a copy of what the service returned: that may be the state itself, which changes at the next entry."""
        return deepcopy(self.service.state_hash()) if self.service.has_state_hash else None

    def _tell(self, timestamp: int, *what: object) -> None:
        assert self._cluster is not None
        self._observer.on_entry(self._cluster.log_position, timestamp, (*what, self._state_hash()))

    def _begin(self) -> None:
        assert self._cluster is not None
        self._observer.on_begin(self._cluster.log_position)

    @contextmanager
    def _at_entry(self) -> Iterator[None]:
        """Run the service at an entry; tell if it raises."""
        self._begin()
        try:
            yield
        except Exception as error:
            self._raised(error)
            raise

    def _raised(self, error: Exception) -> None:
        """Say that the service raised; the container logs it, and goes on or stops."""
        assert self._cluster is not None
        self._observer.on_error(self._cluster.log_position, error)
