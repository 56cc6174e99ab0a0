"""The service container: runs one `ClusteredService` in log order, and is the `Cluster` that it sees.

Source: aeron.md §4.2, §4.3; Aeron `ClusteredServiceAgent`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import structlog

from service_api import CloseReason, ClusteredService, LocalProtocolError, Role, SnapshotImage, SnapshotPublication
from service_api.types import ClusterSessionId, MemberId, TimeUnit
from service_api.wire.queries import QUERY_RESPONSE_OVERHEAD_BYTES
from service_api.wire.request import REQUEST_HEADER_LENGTH
from service_api.wire.session import SESSION_HEADER_LENGTH

from ..messages.log import NewLeadershipTermEvent, SessionCloseEvent, SessionOpenEvent, TimerEvent
from ..messages.snapshot import ClientSession
from .client_session import ContainerClientSession, EgressContainer, EgressOutlet
from .replies import RequestRunner, SessionReplies

logger = structlog.get_logger()


class ModuleRequests(Protocol):
    """What a service may ask of the consensus module, at a log position."""

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer."""

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer."""

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Close a client session."""


class ClusteredServiceAgent:
    """Hands log entries to the service, and offers it its view of the cluster."""

    def __init__(
        self,
        service: ClusteredService,
        requests: ModuleRequests,
        *,
        member_id: MemberId,
        time_unit: TimeUnit,
        max_payload_length: int,
    ) -> None:
        self.service = service
        self.egress = EgressContainer(requests.close_session)
        self.requests = RequestRunner(
            service,
            max_reply_length=max_payload_length - (REQUEST_HEADER_LENGTH - SESSION_HEADER_LENGTH),
            on_service_error=self.on_service_error,
        )
        self.sessions: dict[ClusterSessionId, ContainerClientSession] = {}
        self.log_position = 0
        self.error_count = 0
        self._requests = requests
        self._member_id = member_id
        self._time_unit = time_unit
        self._max_payload_length = max_payload_length
        self._role = Role.FOLLOWER
        self._outlets: dict[ClusterSessionId, tuple[EgressOutlet, int]] = {}
        self._is_in_log_callback = False
        self._image: SnapshotImage | None = None
        self._sessions_view = MappingProxyType(self.sessions)

    def __repr__(self) -> str:
        name = type(self.service).__name__
        return f"<ClusteredServiceAgent {name} position={self.log_position} sessions={len(self.sessions)}>"

    # --- Cluster, as the service sees it

    @property
    def member_id(self) -> MemberId:
        """The id of this member."""
        return self._member_id

    @property
    def role(self) -> Role:
        """The member's role now."""
        return self._role

    @property
    def time(self) -> int:
        """Cluster time of the entry being processed."""
        return self.egress.time

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of cluster time."""
        return self._time_unit

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ContainerClientSession]:
        """The open client sessions, in ascending order of id."""
        return self._sessions_view

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer; it fires once cluster time reaches `deadline`."""
        self._check_in_log_callback("schedule_timer")
        self._requests.schedule_timer(correlation_id, deadline)

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none."""
        self._check_in_log_callback("cancel_timer")
        return self._requests.cancel_timer(correlation_id)

    # --- the node

    async def start(self) -> None:
        """Let the service set itself up, before any log entry."""
        image, self._image = self._image, None
        result = self.service.on_start(self, image)
        if inspect.isawaitable(result):
            await result

    def restore(
        self,
        clients: Sequence[ClientSession],
        image: SnapshotImage,
        *,
        closing: Collection[ClusterSessionId],
        replies: Mapping[ClusterSessionId, SessionReplies] = MappingProxyType({}),
        log_position: int,
        timestamp: int,
    ) -> None:
        """Take over what a container knew at a log position; the service gets the image when it starts.

        `closing` are the sessions that the service had asked to close: they must not look open to it again. `replies`
        are what clients have not acknowledged.
        """
        self.requests.restore(replies)
        for client in clients:
            session = self._add_session(client.cluster_session_id, client.encoded_principal)
            if session.id in closing:
                session.mark_closing()
        self.log_position, self.egress.time = log_position, timestamp
        self._image = image

    async def take_snapshot(self, publication: SnapshotPublication) -> None:
        """Let the service write its state; what it raises is raised."""
        result = self.service.on_take_snapshot(publication)
        if inspect.isawaitable(result):
            await result

    def query(self, payload: memoryview) -> bytes:
        """Let the service answer a query from its state; what it raises is raised. Only between log entries.

        Raises:
            LocalProtocolError: the answer is no bytes, or too long for a client.
        """
        self.egress.begin_query()
        try:
            answer = self.service.on_query(payload)
        finally:
            self.egress.end_query()
        if not isinstance(answer, bytes | bytearray | memoryview):
            raise LocalProtocolError(f"on_query gave type={type(answer).__name__} expected=bytes")
        encoded = bytes(answer)
        if len(encoded) > self._max_payload_length - QUERY_RESPONSE_OVERHEAD_BYTES:
            limit = self._max_payload_length - QUERY_RESPONSE_OVERHEAD_BYTES
            raise LocalProtocolError(f"answer of on_query too long: length={len(encoded)} limit={limit}")
        return encoded

    def terminate(self) -> None:
        """Tell the service that no more callbacks follow."""
        self._call(lambda: self.service.on_terminate(self))

    def on_role_change(self, role: Role) -> None:
        """The member's role changed."""
        self._role = role
        self._call(lambda: self.service.on_role_change(role))

    def connect_egress(self, session_id: ClusterSessionId, outlet: EgressOutlet, leadership_term_id: int) -> None:
        """Leader: send the session's egress to this connection; the session itself may be delivered later."""
        self._outlets[session_id] = (outlet, leadership_term_id)
        session = self.sessions.get(session_id)
        if session is not None:
            session.connect(outlet, leadership_term_id)

    def disconnect_egress(self, session_id: ClusterSessionId | None) -> None:
        """Stop sending the egress of one session, or of all of them."""
        if session_id is None:
            self._outlets.clear()
            for session in self.sessions.values():
                session.disconnect()
            return
        self._outlets.pop(session_id, None)
        session_or_none = self.sessions.get(session_id)
        if session_or_none is not None:
            session_or_none.disconnect()

    # --- log entries other than session messages, in log order

    def on_session_open(self, event: SessionOpenEvent) -> None:
        """A client session was opened."""
        session_id = ClusterSessionId(event.cluster_session_id)
        session = self._add_session(session_id, event.encoded_principal)
        outlet = self._outlets.get(session_id)
        if outlet is not None:
            session.connect(*outlet)
        self._call(lambda: self.service.on_session_open(session, event.timestamp))

    def on_session_message(self, session: ContainerClientSession, timestamp: int, payload: memoryview) -> None:
        """A session message that was assembled from fragments; the others are delivered by the log adapter itself."""
        self._call(lambda: self.service.on_session_message(session, timestamp, payload))

    def on_session_close(self, event: SessionCloseEvent) -> None:
        """A client session was closed."""
        session = self.sessions.pop(ClusterSessionId(event.cluster_session_id), None)
        self._outlets.pop(ClusterSessionId(event.cluster_session_id), None)
        self.requests.on_session_close(ClusterSessionId(event.cluster_session_id))
        if session is None:
            return
        session.flush()
        session.disconnect()
        reason = CloseReason.TIMEOUT if event.close_reason is None else event.close_reason
        self._call(lambda: self.service.on_session_close(session, event.timestamp, reason))

    def on_timer_event(self, event: TimerEvent) -> None:
        """A timer fired."""
        self._call(lambda: self.service.on_timer_event(event.correlation_id, event.timestamp))

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent) -> None:
        """A new leader's first entry."""
        self._call(
            lambda: self.service.on_new_leadership_term_event(
                leadership_term_id=event.leadership_term_id,
                log_position=event.log_position,
                timestamp=event.timestamp,
                term_base_log_position=event.term_base_log_position,
                leader_member_id=event.leader_member_id,
                log_session_id=event.log_session_id,
                time_unit=TimeUnit.MILLIS if event.time_unit is None else event.time_unit,
                app_version=event.app_version,
            )
        )

    def on_service_error(self, error: Exception) -> None:
        """A callback raised. On the log path every member met the same error at the same position: the log goes on.

        Elsewhere it is this member's alone; were it to stop for it, so would each that becomes leader after it.
        """
        self.error_count += 1
        logger.error("service.failed", log_position=self.log_position, error=repr(error), exc_info=error)

    def enter_messages(self) -> None:
        """Session messages follow: the calls of log-ordered callbacks are legal."""
        self._is_in_log_callback = True

    def leave_messages(self) -> None:
        """No session message is being delivered any more."""
        self._is_in_log_callback = False

    def _add_session(self, session_id: ClusterSessionId, encoded_principal: bytes) -> ContainerClientSession:
        session = self.sessions[session_id] = ContainerClientSession(
            session_id, encoded_principal, self.egress, max_payload_length=self._max_payload_length
        )
        return session

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self.on_service_error(error)

    def _check_in_log_callback(self, call: str) -> None:
        if not self._is_in_log_callback:
            raise LocalProtocolError(
                f"{call} is only legal in log-ordered callbacks:"
                " not in on_start, on_role_change, on_query or on_terminate"
            )
