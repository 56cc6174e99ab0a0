"""One service without a cluster: the container of a member, driven by a test.

The container is the one that members run, so arguments are checked, replies are kept and calls outside of log entries
are refused as on a member. There is no log, no file and no loop: a call of the harness is one log entry, and what
follows from it, such as messages that the service offers to the cluster, is delivered before the call returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from ...service_api import CloseReason, ClusteredService, ConfigurationError, LocalProtocolError
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.payloads import Payload, plain_bytes
from ...service_api.service_directory import check_services
from ...service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId, TimeUnit
from ...service_api.wire.log.messages import SessionCloseEvent, SessionOpenEvent, TimerEvent
from ...service_api.wire.session import SESSION_HEADER_LENGTH
from ...service_api.wire.topics import SCHEMA_TOPIC, TopicMessage, decode_topic_message
from ..core.log.log_publisher import max_message_length
from ..messages.snapshot import ClientSessionSnapshot
from ..service.agent import ClusteredServiceAgent
from ..service.client_session import ContainerClientSession, EgressContainer
from ..service.double_execution import DoubledService
from ..service.kept_snapshot import KeptImage, KeptPublication, run_without_waiting, write_snapshot
from ..service.replies import RequestRunner
from ..service.state_difference import DERIVED_ADVICE, FORGOTTEN_ADVICE, describe_difference, find_forgotten
from .check import StrictFinding, StrictGuard

START_TIME: Final = 1_700_000_000_000
"""Cluster time at which a harness begins, in milliseconds since the Unix epoch."""
_LEADER_MEMBER_ID: Final = MemberId(0)
_TERM_ID: Final = TermId(0)
_ENTRY_LENGTH_BYTES: Final = 96
"""What an entry counts in `log_position`: any multiple of 32 does."""
_FOLLOWING_LIMIT: Final = 10_000
"""Entries that may follow from one call; a service beyond that never comes to rest."""
_SUSPENSION_LIMIT: Final = 10_000

S = TypeVar("S", bound=ClusteredService)
MakeService = Callable[[], ClusteredService]
Code = MakeService | Sequence[MakeService]
"""What a member runs: one service, or several in order of their ids."""


class HarnessSession:
    """One client of the harness: it sends to the service and keeps what the service sends back."""

    def __init__(self, harness: ServiceHarness[Any], session_id: ClusterSessionId) -> None:
        self.id = session_id
        self.egress: list[bytes] = []
        """What the service has offered to this session, in order."""
        self.close_reason: CloseReason | None = None
        """Why the session ended; None while it is open."""
        self._harness = harness
        self._sequence = 0

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else self.close_reason.name
        return f"<HarnessSession id={self.id} {state} egress={len(self.egress)}>"

    def request(self, payload: Payload) -> bytes:
        """Have the service run a request, and return its reply. What `on_request` raises passes through."""
        session = self._harness._session_of(self)
        if not self._harness.service.takes_requests:
            name = type(self._harness.service).__qualname__
            raise LocalProtocolError(f"the service takes no requests: service={name} expected a method on_request")
        self._sequence += 1
        sequence, data = self._sequence, memoryview(bytes(plain_bytes("payload", payload)))
        runner: RequestRunner = self._harness._container.requests
        replies: list[bytes] = []

        def deliver(now: int) -> None:
            runner.on_request(session, now, sequence, sequence - 1, data)
            replies.append(runner.sessions[self.id].kept[-1][1])  # before the session ends, if the service closes it

        self._harness._run_entry(deliver)
        return replies[0]

    def offer(self, payload: Payload) -> None:
        """Send a message to the service. What `on_session_message` raises passes through."""
        session, harness = self._harness._session_of(self), self._harness
        data = memoryview(bytes(plain_bytes("payload", payload)))
        harness._run_entry(lambda now: harness._container.on_session_message(session, now, data))

    def close(self, reason: CloseReason = CloseReason.CLIENT_ACTION) -> None:
        """End the session, as its client does, or by a timeout."""
        self._harness._session_of(self)
        self._harness._close_session(self.id, reason)


class ServiceHarness(Generic[S]):
    """Runs one service by hand, to unit-test it without a cluster.

        harness = ServiceHarness(Counter)
        assert harness.request(b"5") == b"5"
        harness.restart()  # from a snapshot
        assert harness.service.total == 5

    Every call is one log entry. What a callback raises passes through to the test; on a member it would be answered,
    and the log would go on. Time is that of the cluster, in milliseconds, and goes on with `advance` only.

    Args:
        service: The class, or a function that makes the service.
        snapshot: The messages of a snapshot to start from; None starts with nothing.
        time: Cluster time at the start, in milliseconds since the Unix epoch.
        strict: Whether a call raises `AssertionError` where a callback reads a clock, random numbers, the environment
            or a file, or uses the network, processes or threads. Each place is reported once.
        double_execution: Whether a second instance runs the same entries, and a call raises `ServiceDivergedError`
            where the two differ; see docs/determinism.md.
        group: Which of the cluster's groups the service is in; see docs/groups.md.
        term_length_bytes: The term length of the log: a message or an answer has at most an eighth of it.

    Raises:
        ConfigurationError: `service` makes no service.
        LocalProtocolError: its `on_start` waits for something outside: use the fixture `cluster`.
    """

    def __init__(
        self,
        service: Callable[[], S],
        *,
        snapshot: list[bytes] | None = None,
        time: int = START_TIME,
        strict: bool = True,
        double_execution: bool = False,
        group: Group = ONLY_GROUP,
        term_length_bytes: int = 64 << 20,
    ) -> None:
        self._make_service = service
        self.term_length_bytes = term_length_bytes
        """The term length of the log. A message has at most an eighth of it."""
        self.group = group
        """What the service finds as `cluster.group`."""
        self._is_doubled = double_execution
        self.service: S = new_service(service)
        self.timers: dict[int, int] = {}
        """Deadlines by correlation id, in milliseconds of cluster time, as scheduled and not fired."""
        self.offered: list[bytes] = []
        """What the service has offered to the cluster, in order. It was delivered to `on_service_message`, too."""
        self.published: list[TopicMessage] = []
        """What the service has published to topics, in order; without the schemas of events, which are not its own."""
        self.sessions: dict[ClusterSessionId, HarnessSession] = {}
        """Every session that there was, by id."""
        self._now = time
        self._following: deque[Callable[[int], None]] = deque()
        self._error: BaseException | None = None
        self._client: HarnessSession | None = None
        self._is_running = False
        self._guard = StrictGuard(self._on_finding) if strict else None
        self._container = self._start(snapshot, None)

    def __repr__(self) -> str:
        return f"<ServiceHarness {type(self.service).__name__} time={self._now} timers={len(self.timers)}>"

    @property
    def time(self) -> int:
        """Cluster time, in milliseconds since the Unix epoch."""
        return self._now

    # --- clients

    def open_session(self, encoded_principal: bytes = b"") -> HarnessSession:
        """Open a session. `encoded_principal` is what an authenticator would have set."""
        session_id = ClusterSessionId(len(self.sessions) + 1)
        session = self.sessions[session_id] = HarnessSession(self, session_id)

        def on_open(now: int) -> None:
            event = SessionOpenEvent(
                leadership_term_id=_TERM_ID,
                correlation_id=CorrelationId(session_id),
                cluster_session_id=session_id,
                timestamp=now,
                response_stream_id=0,
                response_channel="",
                encoded_principal=encoded_principal,
            )
            self._container.on_session_open(event)

        self._run_entry(on_open)
        return session

    @property
    def client(self) -> HarnessSession:
        """The session that `request`, `offer` and `egress` stand for; it opens when it is first used."""
        if self._client is None or self._client.close_reason is not None:
            self._client = self.open_session()
        return self._client

    def request(self, payload: Payload) -> bytes:
        """Have the service run a request, and return its reply. What `on_request` raises passes through."""
        return self.client.request(payload)

    def offer(self, payload: Payload) -> None:
        """Send a message to the service. What `on_session_message` raises passes through."""
        self.client.offer(payload)

    @property
    def egress(self) -> list[bytes]:
        """What the service has offered to `client`, in order."""
        return self.client.egress

    def query(self, payload: Payload) -> bytes:
        """Ask the service's `on_query`. What it raises passes through."""
        return self._container.query(memoryview(bytes(plain_bytes("payload", payload))))

    # --- time

    def advance(self, seconds: float) -> None:
        """Let cluster time go on; timers that are due by then fire in order of deadline, each at its time."""
        if not seconds >= 0:
            raise ConfigurationError(f"seconds={seconds} expected at least 0: time never goes backwards")
        end = self._now + round(seconds * 1_000)
        for _ in range(_FOLLOWING_LIMIT):
            due = min(((deadline, timer_id) for timer_id, deadline in self.timers.items()), default=(end + 1, 0))
            if due[0] > end:
                break
            self._now = max(self._now, due[0])
            self.fire_timer(due[1])
        else:
            raise ConfigurationError(f"timers without end: fired={_FOLLOWING_LIMIT} before time={end}")
        self._now = end

    def fire_timer(self, correlation_id: int) -> None:
        """Fire a timer now, whatever its deadline.

        Raises:
            ConfigurationError: no such timer is scheduled.
        """
        if correlation_id not in self.timers:
            raise ConfigurationError(f"no such timer: correlation_id={correlation_id} scheduled={sorted(self.timers)}")

        def on_timer(now: int) -> None:
            del self.timers[correlation_id]
            self._container.on_timer_event(
                TimerEvent(leadership_term_id=_TERM_ID, correlation_id=CorrelationId(correlation_id), timestamp=now)
            )

        self._run_entry(on_timer)

    # --- snapshots

    def snapshot(self) -> list[bytes]:
        """Have the service write a snapshot, and return its messages."""
        publication = KeptPublication()
        if self._container.doubles:
            run_without_waiting(self._container.take_snapshot(0, publication), "on_take_snapshot")
        else:
            write_snapshot(self.service, publication)
        return publication.messages

    def restart(self, service: Callable[[], Any] | None = None) -> None:  # Any: the next version of S
        """Take a snapshot and go on from it with a new instance: of other code if `service` says so.

        Sessions, timers and cluster time go on, as in a cluster: they are no part of the service's own snapshot.

        Raises:
            AssertionError: `strict`, and a field is another one afterwards: the snapshot forgets it. A service with a
                `state_hash` is compared by that, and nothing else of it.
        """
        messages, before, old = self.snapshot(), self._container, self.service
        self._make_service = self._make_service if service is None else service
        self.service = new_service(self._make_service)
        self._container = self._start(messages, before)
        if service is None and self._guard is not None:
            self._check_loaded(old)

    def _check_loaded(self, old: ClusteredService) -> None:
        if old.has_state_hash:
            problem, advice = describe_difference(old.state_hash(), self.service.state_hash()), FORGOTTEN_ADVICE
        else:
            problem, advice = find_forgotten(old, self.service) or "", f"{FORGOTTEN_ADVICE} {DERIVED_ADVICE}"
        if problem:
            raise AssertionError(f"not in the snapshot: {problem}; {advice}")

    def _start(self, messages: list[bytes] | None, before: ClusteredServiceAgent | None) -> _HarnessContainer:
        doubled = DoubledService(self.service, self._make_service) if self._is_doubled else None
        container = _HarnessContainer(self.service if doubled is None else doubled, self)
        container.doubles = {} if doubled is None else {0: doubled}
        container.egress.time = self._now
        container.guard = self._guard
        if messages is not None:
            sessions = [] if before is None else [*before.sessions.values()]
            container.restore(
                [
                    ClientSessionSnapshot(
                        cluster_session_id=session.id, response_stream_id=0, encoded_principal=session.encoded_principal
                    )
                    for session in sessions
                ],
                [KeptImage(messages)],
                closing=[session.id for session in sessions if session.is_closing],
                replies={} if before is None else before.requests.sessions,
                log_position=0 if before is None else before.log_position,
                timestamp=self._now,
            )
        run_without_waiting(container.start(), "on_start")
        return container

    # --- entries

    def _run_entry(self, deliver: Callable[[int], None]) -> None:
        """Deliver one entry and those that follow from it; raise what a callback has raised."""
        if self._is_running:
            raise LocalProtocolError("a callback of the service called the harness: only a test may")
        self._is_running = True
        try:
            self._following.append(deliver)
            for _ in range(_FOLLOWING_LIMIT):
                if not self._following:
                    return
                self._deliver(self._following.popleft())
            raise ConfigurationError(
                f"entries without end: delivered={_FOLLOWING_LIMIT} by one call "
                f"(does on_service_message offer again each time?)"
            )
        finally:
            self._following.clear()
            self._is_running = False

    def _deliver(self, deliver: Callable[[int], None]) -> None:
        container = self._container
        container.log_position += _ENTRY_LENGTH_BYTES
        container.egress.time = self._now
        container.enter_messages()
        try:
            deliver(self._now)
        finally:
            container.leave_messages()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _session_of(self, client: HarnessSession) -> ContainerClientSession:
        session = self._container.sessions.get(client.id)
        if session is None:
            raise LocalProtocolError(f"the session is closed: session={client!r} expected an open one")
        return session

    def _close_session(self, session_id: ClusterSessionId, reason: CloseReason) -> None:
        self._run_entry(lambda now: self._on_close(session_id, reason, now))

    def _on_close(self, session_id: ClusterSessionId, reason: CloseReason, now: int) -> None:
        event = SessionCloseEvent(
            leadership_term_id=_TERM_ID, cluster_session_id=session_id, timestamp=now, close_reason=reason
        )
        self.sessions[session_id].close_reason = reason
        self._container.on_session_close(event)

    # --- what the service asks for

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer; called by the container."""
        self.timers[correlation_id] = deadline

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; called by the container."""
        return self.timers.pop(correlation_id, None) is not None

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Close a session after this entry; called by the container."""
        self._following.append(lambda now: self._on_close(session_id, CloseReason.SERVICE_ACTION, now))

    def take_offer(self, service_id: int, payload: bytes) -> None:
        """Deliver a message of the service after this entry; called by the container."""
        published = decode_topic_message(payload)
        if published is not None:
            if published.topic != SCHEMA_TOPIC:
                self.published.append(published)
            return
        self.offered.append(payload)
        data = memoryview(payload)
        self._following.append(lambda now: self._container.on_service_message(service_id, now, data))

    def take_error(self, error: BaseException) -> None:
        """Keep what a callback raised, to raise it when the entry is over; called by the container."""
        self._error = self._error or error

    def _on_finding(self, finding: StrictFinding) -> None:
        self._error = self._error or AssertionError(str(finding))


class _Requests:
    """What the container may ask of the harness."""

    def __init__(self, harness: ServiceHarness[Any]) -> None:
        self.schedule_timer, self.cancel_timer = harness.schedule_timer, harness.cancel_timer
        self.close_session, self.offer = harness.close_session, harness.take_offer

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        """Take any number of messages: each is delivered at once."""


class _HarnessContainer(ClusteredServiceAgent):
    """The container of a member, with an ear at what is offered to clients and at errors."""

    def __init__(self, service: ClusteredService, harness: ServiceHarness[Any]) -> None:
        self._harness = harness
        super().__init__(
            [service],
            _Requests(harness),
            member_id=_LEADER_MEMBER_ID,
            time_unit=TimeUnit.MILLIS,
            max_payload_length=max_message_length(harness.term_length_bytes) - SESSION_HEADER_LENGTH,
            group=harness.group,
        )

    def make_session(self, session_id: ClusterSessionId, encoded_principal: bytes) -> ContainerClientSession:
        """Make what the service gets for a session that opens."""
        egress = self._harness.sessions[session_id].egress
        return _HeardSession(session_id, encoded_principal, self.egress, self.max_payload_length, egress)

    def on_service_error(self, error: BaseException, service: ClusteredService | None = None) -> None:
        """A callback raised: the test is told, once the entry is over."""
        self._harness.take_error(error)


class _HeardSession(ContainerClientSession):
    """A client session that keeps what is offered to it."""

    __slots__ = ("_egress",)

    def __init__(
        self,
        session_id: ClusterSessionId,
        encoded_principal: bytes,
        container: EgressContainer,
        max_payload_length: int,
        egress: list[bytes],
    ) -> None:
        super().__init__(session_id, encoded_principal, container, max_payload_length=max_payload_length)
        self._egress = egress

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client."""
        is_taken = super().offer(payload)
        if is_taken:
            self._egress.append(bytes(payload))
        return is_taken


def makers_of(code: Code) -> Sequence[MakeService]:
    """Return what makes the services of a node.

    Raises:
        ConfigurationError: one of them makes no service, there is none, or two have one name; said here, and not by
            three members.
    """
    makers = code if isinstance(code, Sequence) else [code]
    check_services([new_service(make) for make in makers])
    if not makers:
        raise ConfigurationError("service=[] expected at least one")
    return makers


def new_service(make: Callable[[], S]) -> S:
    """Make a service.

    Raises:
        ConfigurationError: what is given is an instance, or makes something else.
    """
    if isinstance(make, ClusteredService):
        raise ConfigurationError(
            f"service={type(make).__qualname__}(...) is an instance, expected the class or a function without "
            f"arguments that makes one: every member and every restart needs an instance of its own"
        )
    if not callable(make):
        raise ConfigurationError(f"service={make!r} expected a class of services, or a function that makes one")
    service: Any = make()  # a caller may not check types
    if not isinstance(service, ClusteredService):
        raise ConfigurationError(f"service={make!r} made type={type(service).__name__} expected a ClusteredService")
    return cast("S", service)
