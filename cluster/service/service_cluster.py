"""The `Cluster` of one service in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol
from uuid import UUID

from ...service_api import LocalProtocolError, Role
from ...service_api.groups.group import Group
from ...service_api.payloads import plain_bytes
from ...service_api.session import ClientSession
from ...service_api.types import ClusterSessionId, MemberId, TimeUnit
from ...service_api.wire.queries import QUERY_RESPONSE_OVERHEAD_BYTES
from ...service_api.wire.topics import TOPIC_MARK, encode_topic_message, is_topic_message
from ..core.vocabulary.timers import TimerIds, check_deadline
from .arguments import whole_number
from .client_session import ContainerClientSession, EgressContainer, OutputMark
from .entry_random import EntryRandom
from .service_logger import OnceLogger


class ModuleRequests(Protocol):
    """What services may ask of the consensus module, at a log position."""

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer, by its id in the log."""

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer, by its id in the log."""

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Close a client session."""

    def offer(self, service_id: int, payload: bytes) -> None:
        """Take in a message of a service for the log."""

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        """Refuse if messages of these lengths cannot all be taken in."""


class ServiceContainer(Protocol):
    """What the services of a container share."""

    member_id: MemberId
    role: Role
    time_unit: TimeUnit
    group: Group
    log_position: int
    feature_level: int
    sessions: dict[ClusterSessionId, ContainerClientSession]
    client_sessions: Mapping[ClusterSessionId, ContainerClientSession]
    egress: EgressContainer
    max_payload_length: int

    @property
    def is_replaying(self) -> bool:
        """Whether entries come that were in the log before the current term."""


class ServiceCluster:
    """Implements `Cluster` for one service."""

    __slots__ = ("_container", "_random", "_requests", "_timer_ids", "logger", "service_id")

    def __init__(
        self, container: ServiceContainer, requests: ModuleRequests, service_id: int, timer_ids: TimerIds
    ) -> None:
        self.service_id = service_id
        self._container = container
        self._requests = requests
        self._timer_ids = timer_ids
        self._random: EntryRandom | None = None
        self.logger = OnceLogger(container, service_id)

    def __repr__(self) -> str:
        return f"<ServiceCluster service={self.service_id} {self._container!r}>"

    @property
    def member_id(self) -> MemberId:
        """The id of this member."""
        return self._container.member_id

    @property
    def role(self) -> Role:
        """LEADER in a term that this member leads, else FOLLOWER."""
        return self._container.role

    @property
    def is_replaying(self) -> bool:
        """Whether entries come that were in the log before the current term."""
        return self._container.is_replaying

    @property
    def time(self) -> int:
        """Cluster time of the entry being processed."""
        return self._container.egress.time

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of cluster time."""
        return self._container.time_unit

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this one is."""
        return self._container.group

    @property
    def log_position(self) -> int:
        """The end of the entry being processed."""
        return self._container.log_position

    @property
    def feature_level(self) -> int:
        """Which behaviour the service has to have at the entry being processed."""
        return self._container.feature_level

    @property
    def payload_limit_bytes(self) -> int:
        """The longest payload of whatever a service sends or answers."""
        # Of all that carries a payload the answer to a query has the most around it.
        return self._container.max_payload_length - QUERY_RESPONSE_OVERHEAD_BYTES

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open client sessions, in ascending order of id."""
        return self._container.client_sessions

    @property
    def random(self) -> Random:
        """Random numbers that the entry being processed decides."""
        return self._entry_random

    def uuid(self) -> UUID:
        """Return a UUID that the entry being processed decides."""
        return self._entry_random.uuid()

    @property
    def _entry_random(self) -> EntryRandom:
        if self._random is None:  # a generator has 2.5 KB of state: services that draw nothing have none
            self._random = EntryRandom(self, self.service_id)
        return self._random

    def check_drawing(self) -> None:
        """Refuse to draw random numbers where entries do not decide.

        Raises:
            LocalProtocolError: this is no log-ordered callback.
        """
        self._check_legal("cluster.random")

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        """Ask for a client session to be closed; False if there is no such session."""
        self._check_legal("close_client_session")
        session_id = ClusterSessionId(whole_number("session_id", session_id))
        session = self._container.sessions.get(session_id)
        if session is None:
            return False
        session.close()
        return True

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer; it fires once cluster time reaches `deadline`."""
        self._check_legal("schedule_timer")
        correlation_id = whole_number("correlation_id", correlation_id)
        deadline = whole_number("deadline", deadline)
        check_deadline(deadline)
        timer_id = self._timer_ids.encode(self.service_id, correlation_id)
        egress = self._container.egress
        if egress.digest is not None:
            egress.absorb(OutputMark.TIMER, timer_id, deadline)
        self._requests.schedule_timer(timer_id, deadline)

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none."""
        self._check_legal("cancel_timer")
        correlation_id = whole_number("correlation_id", correlation_id)
        timer_id = self._timer_ids.encode(self.service_id, correlation_id)
        egress = self._container.egress
        if egress.digest is not None:
            egress.absorb(OutputMark.CANCEL, timer_id)
        return self._requests.cancel_timer(timer_id)

    def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Send a message through the log to every service of the cluster.

        Raises:
            LocalProtocolError: the call is not legal in this callback, or the payload is too long.
        """
        self._check_legal("offer")
        payload = plain_bytes("payload", payload)
        if is_topic_message(payload):
            raise LocalProtocolError(f"payload begins as a topic message does, {TOPIC_MARK!r}: use publish")
        self._send(payload)

    def check_room(self, lengths: Sequence[int]) -> None:
        """Make sure that messages of these lengths can all be sent through the log now."""
        self._check_legal("check_room")
        self._requests.check_room(self.service_id, lengths)

    def publish(self, topic: str, payload: bytes | bytearray | memoryview) -> None:
        """Send an event through the log to those who subscribe to a topic.

        Raises:
            LocalProtocolError: the call is not legal in this callback, the topic is none, or the payload is too long.
        """
        self._check_legal("publish")
        self._send(encode_topic_message(topic, plain_bytes("payload", payload)))

    def _send(self, payload: bytes | bytearray | memoryview) -> None:
        limit = self._container.max_payload_length
        if len(payload) > limit:
            raise LocalProtocolError(f"payload too long: length={len(payload)} limit={limit}")
        egress = self._container.egress
        if egress.digest is not None:
            egress.absorb(OutputMark.OFFER, self.service_id, payload=payload)
        self._requests.offer(self.service_id, bytes(payload))

    def _check_legal(self, call: str) -> None:
        egress = self._container.egress
        if not egress.is_open:
            egress.refuse(call)
