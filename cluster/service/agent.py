"""The service container: runs the services of a node in log order.

A node runs one service as a rule, and up to ten. All of them are given the same entries, one entry after another, and
each entry by service id; what one raises keeps nothing from the others. They share the client sessions. With one
service there is no loop over services where messages are delivered.

Source: aeron.md §4.2, §4.3; Aeron `ClusteredServiceAgent`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from ...service_api import (
    CloseReason,
    ClusteredService,
    LocalProtocolError,
    Role,
    ServiceDivergedError,
    ServiceFailedError,
    SnapshotImage,
    SnapshotPublication,
)
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.types import NULL_POSITION, NULL_VALUE, ClusterSessionId, MemberId, TimeUnit
from ...service_api.users_code import calls_users_code
from ...service_api.wire.log.messages import (
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from ...service_api.wire.queries import QUERY_RESPONSE_OVERHEAD_BYTES
from ...service_api.wire.request import REQUEST_HEADER_LENGTH
from ...service_api.wire.session import SESSION_HEADER_LENGTH
from ...service_api.wire.topics import is_topic_message
from ..core.vocabulary.timers import EVERY_SERVICE, TimerIds
from ..messages.snapshot import ClientSessionSnapshot
from .client_session import ContainerClientSession, EgressContainer, EgressOutlet
from .double_execution import DoubledService
from .failure_log import FailureLog
from .failures import failed_here, foreign_cause, is_own_cancellation
from .query_check import QueryCheck
from .replies import RequestRunner, SessionReplies
from .service_cluster import ModuleRequests, ServiceCluster
from .service_code import CodeGuard
from .several_services import EveryService, MessageReceiver

logger = structlog.get_logger()

_OPEN: Final = (1 << 63) - 1
"""The end of the replay while the member is in an election."""


class CallbackGuard(Protocol):
    """What is told when log-ordered callbacks may run."""

    def enter(self) -> None:
        """Callbacks follow, on this thread."""

    def leave(self) -> None:
        """No callback runs any more."""


class ClusteredServiceAgent:
    """Hands log entries to the services, and offers each of them its view of the cluster."""

    def __init__(
        self,
        services: Sequence[ClusteredService],
        requests: ModuleRequests,
        *,
        member_id: MemberId,
        time_unit: TimeUnit,
        max_payload_length: int,
        shared_timer_ids: bool = False,
        group: Group = ONLY_GROUP,
        query_check: QueryCheck | None = None,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.services = tuple(services)
        self.service: MessageReceiver = (
            services[0] if len(services) == 1 else EveryService(services, self.on_service_error)
        )
        """Who is given session messages by the log adapter."""
        self.egress = EgressContainer(requests.close_session)
        self.requests = RequestRunner(
            self.service,
            max_reply_length=max_payload_length - (REQUEST_HEADER_LENGTH - SESSION_HEADER_LENGTH),
            on_service_error=self.on_service_error,
        )
        self.sessions: dict[ClusterSessionId, ContainerClientSession] = {}
        self.client_sessions: Mapping[ClusterSessionId, ContainerClientSession] = MappingProxyType(self.sessions)
        """The open client sessions, in ascending order of id."""
        self.log_position = 0
        self.feature_level = 0
        """Which feature level is in force at the entry being processed."""
        self.role = Role.FOLLOWER
        self._replay_end_position = _OPEN
        self._history_end_position = _OPEN
        """Where the log ended when the first election of this process did: members ran that part before."""
        self.code: CodeGuard | None = None
        """Checks the code of the terms in that part."""
        self.member_id = member_id
        self.time_unit = time_unit
        self.group = group
        """Which of the cluster's groups has the log."""
        self.max_payload_length = max_payload_length
        self.error_count = 0
        self.failures = FailureLog(monotonic_ns)
        self._is_passing_over = False
        self.query_check = query_check
        """Compares the state before and after each query, where that is wanted."""
        self.guard: CallbackGuard | None = None
        """Looks at what callbacks call, where that is wanted."""
        self.doubles: Mapping[int, DoubledService] = MappingProxyType({})
        """Run each service twice, where that is wanted, by service id."""
        self._timer_ids = TimerIds(len(services), is_shared=shared_timer_ids)
        self.views = tuple(ServiceCluster(self, requests, service_id, self._timer_ids) for service_id in self._ids)
        """The cluster as each service sees it."""
        self._outlets: dict[ClusterSessionId, tuple[EgressOutlet, int]] = {}
        self._images: Sequence[SnapshotImage | None] = [None] * len(services)

    def __repr__(self) -> str:
        names = ",".join(type(service).__name__ for service in self.services)
        return f"<ClusteredServiceAgent {names} position={self.log_position} sessions={len(self.sessions)}>"

    @property
    def _ids(self) -> range:
        return range(len(self.services))

    @property
    def time(self) -> int:
        """Cluster time of the entry being processed."""
        return self.egress.time

    @property
    def is_replaying(self) -> bool:
        """Whether the entry being processed was in the log when the member's last election ended, or none has yet."""
        return self.log_position <= self._replay_end_position

    # --- the node

    @calls_users_code
    async def start(self) -> None:
        """Call `on_start` of the services, before any log entry."""
        images, self._images = self._images, ()
        for service, view, image in zip(self.services, self.views, images, strict=True):
            try:
                result = service.on_start(view, image)
                if inspect.isawaitable(result):
                    await result
            except BaseException as error:
                if isinstance(error, Exception) or is_own_cancellation(error):
                    raise
                # An exit would end the process in the middle, perhaps with the status of success.
                raise failed_here(
                    error, error, service=service, log_position=self.log_position, is_at_entry=False
                ) from error

    def restore(
        self,
        clients: Sequence[ClientSessionSnapshot],
        images: Sequence[SnapshotImage],
        *,
        closing: Collection[ClusterSessionId],
        replies: Mapping[ClusterSessionId, SessionReplies] = MappingProxyType({}),
        log_position: int,
        timestamp: int,
        feature_level: int = 0,
    ) -> None:
        """Take over what a container knew at a log position; each service gets its image when it starts.

        `closing` are the sessions that a service had asked to close: they must not look open again. `replies` are what
        clients have not acknowledged.
        """
        self.requests.restore(replies)
        for client in clients:
            session = self._add_session(client.cluster_session_id, client.encoded_principal)
            if session.id in closing:
                session.mark_closing()
        self.log_position, self.egress.time, self.feature_level = log_position, timestamp, feature_level
        self._images = images

    @calls_users_code
    async def take_snapshot(self, service_id: int, publication: SnapshotPublication) -> None:
        """Call `on_take_snapshot` of a service. Its exceptions pass through."""
        service = self.services[service_id]
        double = self.doubles.get(service_id)
        take = service.on_take_snapshot if double is None else double.take_snapshot
        result = take(publication)
        if inspect.isawaitable(result):
            await result

    @calls_users_code
    def query(self, payload: memoryview, service_id: int = NULL_VALUE) -> bytes:
        """Call `on_query` of a service, only between log entries. Its exceptions pass through.

        Without an id it is the first service that takes queries: one that is not typed where there is one, since typed
        clients name the service.

        Raises:
            LocalProtocolError: there is no such service, or its answer is no bytes, or too long for a client.
        """
        if service_id != NULL_VALUE and service_id not in self._ids:
            raise LocalProtocolError(f"no such service: service_id={service_id} services={len(self.services)}")
        if service_id == NULL_VALUE and isinstance(self.service, EveryService):
            directory = self.service.on_unnamed_query(payload)
            if directory is not None:
                return directory
        service = self._queried if service_id == NULL_VALUE else self.services[service_id]
        if self.query_check is None:
            answer: object = service.on_query(payload)
        else:
            answer = self.query_check.run(service, payload, log_position=self.log_position)
        if not isinstance(answer, bytes | bytearray | memoryview):
            raise LocalProtocolError(f"on_query gave type={type(answer).__name__} expected=bytes")
        encoded = bytes(answer)
        limit = self.max_payload_length - QUERY_RESPONSE_OVERHEAD_BYTES
        if len(encoded) > limit:
            raise LocalProtocolError(f"answer of on_query too long: length={len(encoded)} limit={limit}")
        return encoded

    @property
    def _queried(self) -> ClusteredService:
        """The service that answers a query which names none."""
        queried = [service for service in self.services if service.takes_queries]
        return next((service for service in queried if service.typed_name is None), (queried or self.services)[0])

    def terminate(self) -> None:
        """Call `on_terminate` of the services: no more callbacks follow."""
        for view in self.views:
            self._call(self.services[view.service_id], partial(_terminate, view))

    def on_term_begun(self, role: Role, append_position: int) -> None:
        """An election is over: the member leads the term or follows. Its log ended at `append_position`.

        A leader has delivered all of that; a follower delivers the rest as it hears that it is committed.
        """
        self._replay_end_position = NULL_POSITION if role is Role.LEADER else append_position
        self._history_end_position = min(self._history_end_position, append_position)
        self._change_role(role)

    def on_term_ended(self) -> None:
        """An election begins: until it is over, this member does not lead, and what is delivered is old."""
        self._replay_end_position = _OPEN
        self._change_role(Role.FOLLOWER)

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
        self._call_all(lambda service: service.on_session_open(session, event.timestamp))

    def on_session_message(self, session: ContainerClientSession, timestamp: int, payload: memoryview) -> None:
        """A session message that was assembled from fragments; the others are delivered by the log adapter itself."""
        self._call_all(lambda service: service.on_session_message(session, timestamp, payload))

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """A message that a service offered, for every service, or published, for none."""
        if is_topic_message(payload):
            return
        for service in self.services:
            try:
                service.on_service_message(service_id, timestamp, payload)
            except BaseException as error:
                self.on_service_error(error, service)

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
        self._call_all(lambda service: service.on_session_close(session, event.timestamp, reason))

    def on_timer_event(self, event: TimerEvent) -> None:
        """A timer fired: the service that set it is told, or each of them where they share the ids."""
        service_id, correlation_id = self._timer_ids.decode(event.correlation_id)
        if service_id == EVERY_SERVICE:
            self._call_all(lambda service: service.on_timer_event(correlation_id, event.timestamp))
            return
        if service_id not in self._ids:
            logger.error("timer.unknown_service", log_position=self.log_position, correlation_id=event.correlation_id)
            return
        self._call(self.services[service_id], lambda service: service.on_timer_event(correlation_id, event.timestamp))

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        """A new leader's first entry; `code_digest` names the code that its services ran.

        Raises:
            ConfigurationError: the term was over before this member started, and other code ran it.
        """
        if self.log_position <= self._history_end_position and self.code is not None:
            self.code.check(event, code_digest)
        self.time_unit = TimeUnit.MILLIS if event.time_unit is None else event.time_unit
        self._call_all(
            lambda service: service.on_new_leadership_term_event(
                leadership_term_id=event.leadership_term_id,
                log_position=event.log_position,
                timestamp=event.timestamp,
                term_base_log_position=event.term_base_log_position,
                leader_member_id=event.leader_member_id,
                log_session_id=event.log_session_id,
                time_unit=self.time_unit,
                app_version=event.app_version,
            )
        )

    def on_service_error(self, error: BaseException, service: ClusteredService | None = None) -> None:
        """A callback raised. Where state and message explain it, every member met the same, and the log goes on.

        Raises:
            ServiceFailedError: it is this member's alone, such as a lack of memory: the member must stop.
            ServiceDivergedError: two instances of the service differ: it must stop, too.
        """
        if isinstance(error, ServiceFailedError | ServiceDivergedError):
            raise error
        cause = foreign_cause(error)
        if cause is None and isinstance(error, SystemExit) and not self.egress.is_open:
            cause = error  # what belongs to no entry, such as `on_role_change`, others have not run
        if cause is not None:
            who = self.receiver if service is None else service
            raise failed_here(
                error, cause, service=who, log_position=self.log_position, is_at_entry=self.egress.is_open
            )
        self.error_count += 1
        self.note_answer(error, service)

    @property
    def receiver(self) -> ClusteredService:
        """Who raised where nobody says which service did: there is one then."""
        return self.services[0]

    def note_answer(self, error: BaseException, service: ClusteredService | None) -> None:
        """Tell of an error that is the same on every member."""
        who = self.receiver if service is None else service
        self.failures.note(error, service=who, log_position=self.log_position)

    @contextlib.contextmanager
    def passing_over(self) -> Iterator[None]:
        """Deliver one entry that an operator has skipped: no service is called, and a request is answered so."""
        self._is_passing_over = self.requests.is_passing_over = True
        try:
            yield
        finally:
            self._is_passing_over = self.requests.is_passing_over = False

    def enter_messages(self) -> None:
        """Session messages follow: the calls of log-ordered callbacks are legal."""
        self.egress.open()
        if self.guard is not None:
            self.guard.enter()

    def leave_messages(self) -> None:
        """No message is being delivered any more: what was offered to clients goes out."""
        if self.guard is not None:
            self.guard.leave()
        self.egress.close()

    def make_session(self, session_id: ClusterSessionId, encoded_principal: bytes) -> ContainerClientSession:
        """Make what services get for a session that opens."""
        return ContainerClientSession(
            session_id, encoded_principal, self.egress, max_payload_length=self.max_payload_length
        )

    def abandon_messages(self) -> None:
        """This member stops in the middle of a message: nothing that was offered to clients goes out."""
        if self.guard is not None:
            self.guard.leave()
        self.egress.abandon()

    def _add_session(self, session_id: ClusterSessionId, encoded_principal: bytes) -> ContainerClientSession:
        session = self.sessions[session_id] = self.make_session(session_id, encoded_principal)
        return session

    def _change_role(self, role: Role) -> None:
        if role is not self.role:
            self.role = role
            self._call_all(lambda service: service.on_role_change(role))

    def _call_all(self, callback: Callable[[ClusteredService], None]) -> None:
        for service in self.services:
            self._call(service, callback)

    @calls_users_code
    def _call(self, service: ClusteredService, callback: Callable[[ClusteredService], None]) -> None:
        if self._is_passing_over:
            return
        try:
            callback(service)
        except BaseException as error:
            self.on_service_error(error, service)


def _terminate(view: ServiceCluster, service: ClusteredService) -> None:
    service.on_terminate(view)
