"""The container of a member, with an observer of everything that a service sends.

Nothing is decided here: sessions, timers, service messages and snapshots are those of `core`, and the log is
delivered by the adapter and the container that a member runs. This writes down what they are asked for.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Final, NoReturn

from ...service_api import ClusteredService
from ...service_api.groups.group import Group
from ...service_api.session import ClientSession
from ...service_api.types import ClusterSessionId, MemberId, RecordingId, TermId, TimeUnit
from ...service_api.wire.log.messages import NewLeadershipTermEvent
from ...service_api.wire.request import RequestCode
from ...service_api.wire.session import SESSION_HEADER_LENGTH
from ..core.consensus_module import ConsensusModule
from ..core.context import ConsensusConfig, ConsensusContext
from ..core.log.log_buffer import LogBuffer
from ..core.log.log_publisher import max_message_length
from ..core.log.recording_log import RecordingLog
from ..core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from ..core.vocabulary.feature_levels import FEATURE_LEVEL_LIMIT
from ..core.vocabulary.members import KnownLevel
from ..core.vocabulary.roster import Roster
from ..service.agent import ClusteredServiceAgent
from ..service.client_session import ContainerClientSession, EgressContainer
from ..service.several_services import NoReceiverError
from .member_log import MemberLog
from .outputs import CallbackFailure, Output, OutputKind, Sink

ERROR_LIMIT: Final = 100
"""Errors that are kept with their tracebacks: the first ones. All are counted."""

_SECOND_NS: Final = 1_000_000_000

# Looked up once: a message to a client is what a replay meets most. Together 0.2 us of 0.9 a message.
_MESSAGE: Final = OutputKind.MESSAGE
_offer: Final = ContainerClientSession.offer
_new_tuple: Final = tuple.__new__


class Bystander(ClusteredService):
    """Stands for a service of the node that is not replayed: it takes what comes and does nothing."""

    feature_level = FEATURE_LEVEL_LIMIT

    def __init__(self, service_id: int) -> None:
        # So that no other service is given a request that was for this one.
        self.typed_name = f"service {service_id}"

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """A request that names it."""
        raise NoReceiverError(f"{self.typed_name} is not replayed")

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """A message of a client."""


class Recorder:
    """Counts what services give out, and tells the sink."""

    __slots__ = ("agent", "counts", "errors", "is_whole", "sink")

    def __init__(self, sink: Sink | None) -> None:
        self.sink = sink
        self.counts: Counter[OutputKind] = Counter()
        self.errors: list[CallbackFailure] = []
        self.is_whole = True
        """Whether every service of the node is replayed."""
        self.agent: ClusteredServiceAgent

    def record(
        self,
        kind: OutputKind,
        cluster_session_id: int | None = None,
        correlation_id: int | None = None,
        code: int | None = None,
        deadline: int | None = None,
        payload: bytes | bytearray | memoryview = b"",
    ) -> None:
        """Take note of one output, made at the entry that is being delivered."""
        self.counts[kind] += 1
        if self.sink is not None:
            agent = self.agent
            fields = (
                *(agent.log_position, agent.egress.time, kind),
                *(cluster_session_id, correlation_id, code, deadline, bytes(payload)),
            )
            self.sink(_new_tuple(Output, fields))

    def on_error(self, error: BaseException, service: ClusteredService) -> None:
        """Take note of a callback that raised."""
        text = f"{type(error).__name__}: {error}"
        self.record(OutputKind.ERROR, payload=text.encode(errors="replace"))
        if len(self.errors) < ERROR_LIMIT:
            trace = "".join(traceback.format_exception(error))
            agent = self.agent
            self.errors.append(
                CallbackFailure(agent.log_position, agent.egress.time, type(service).__qualname__, text, trace)
            )


class RecordedSession(ContainerClientSession):
    """A client session of a member that follows, with an ear at what is offered to it."""

    __slots__ = ("_recorder",)

    def __init__(
        self,
        session_id: ClusterSessionId,
        encoded_principal: bytes,
        container: EgressContainer,
        recorder: Recorder,
        *,
        max_payload_length: int,
    ) -> None:
        super().__init__(session_id, encoded_principal, container, max_payload_length=max_payload_length)
        self._recorder = recorder

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client."""
        if not _offer(self, payload):
            return False
        recorder = self._recorder
        if recorder.sink is None:
            recorder.counts[_MESSAGE] += 1
        else:
            recorder.record(_MESSAGE, self.id, payload=payload)
        return True

    def offer_reply(self, sequence: int, code: int, reply: bytes) -> None:
        """Send the reply to a request."""
        super().offer_reply(sequence, code, reply)
        # That nobody takes requests is not said of a node of which only some services are here.
        if code != RequestCode.NO_REQUESTS or self._recorder.is_whole:
            self._recorder.record(OutputKind.REPLY, self.id, sequence, code=code, payload=reply)


class ReplayedContainer(ClusteredServiceAgent):
    """The container of a member that follows."""

    def __init__(
        self,
        services: Sequence[ClusteredService],
        module: ConsensusModule,
        recorder: Recorder,
        *,
        member_id: int,
        time_unit: TimeUnit,
        group: Group,
    ) -> None:
        config = module.ctx.config
        super().__init__(
            services,
            _RecordedRequests(module, recorder),
            member_id=MemberId(member_id),
            time_unit=time_unit,
            group=group,
            max_payload_length=max_message_length(config.term_length_bytes) - SESSION_HEADER_LENGTH,
            shared_timer_ids=config.shared_timer_ids,
        )
        self._recorder = recorder
        self.leadership_term_id = -1
        """Of the newest term whose first entry was delivered, or of the snapshot that was loaded."""
        recorder.agent = self
        recorder.is_whole = not any(isinstance(service, Bystander) for service in services)

    def make_session(self, session_id: ClusterSessionId, encoded_principal: bytes) -> RecordedSession:
        """Make what services get for a session that opens."""
        return RecordedSession(
            session_id, encoded_principal, self.egress, self._recorder, max_payload_length=self.max_payload_length
        )

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        """A new leader's first entry."""
        self.leadership_term_id = event.leadership_term_id
        super().on_new_leadership_term_event(event, code_digest)

    def note_answer(self, error: BaseException, service: ClusteredService | None) -> None:
        """A callback raised: the log goes on, as on a member."""
        self._recorder.on_error(error, self.receiver if service is None else service)

    @property
    def receiver(self) -> ClusteredService:
        """The first service that is no bystander; who raised where the container does not say, which runs one then."""
        return next((service for service in self.services if not isinstance(service, Bystander)), self.services[0])


class _RecordedRequests:
    """What services ask of the consensus module, done as a member does it and told to the recorder."""

    def __init__(self, module: ConsensusModule, recorder: Recorder) -> None:
        self._module = module
        self._recorder = recorder

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer."""
        self._module.timers.schedule(correlation_id, deadline)
        self._recorder.record(OutputKind.TIMER_SCHEDULED, correlation_id=correlation_id, deadline=deadline)

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer."""
        is_cancelled = self._module.timers.cancel(correlation_id)
        if is_cancelled:
            self._recorder.record(OutputKind.TIMER_CANCELLED, correlation_id=correlation_id)
        return is_cancelled

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Close a client session."""
        self._module.sessions.on_service_close(session_id)
        self._recorder.record(OutputKind.SESSION_CLOSE, session_id)

    def offer(self, service_id: int, payload: bytes) -> None:
        """Take in a message of a service for the log."""
        messages = self._module.service_messages
        message_id = messages.trackers[service_id].next_service_session_id
        messages.offer(service_id, payload)
        self._recorder.record(OutputKind.OFFER, message_id, payload=payload)

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        """Refuse if messages of these lengths cannot all be taken in."""
        self._module.service_messages.trackers[service_id].check_room(lengths)


_ONLY_MEMBER: Final = Configuration.of_settings(
    [ConfiguredMember(MemberId(0), MemberKind.VOTER, ("-:1", "-:2", "-:3", "-:4", "-:5"))]
)
"""Until the log says who the members are, which nothing here depends on."""


def make_module(
    log: MemberLog,
    *,
    service_count: int,
    shared_timer_ids: bool,
    service_queue_limit_bytes: int,
    app_version: int,
    known_level: KnownLevel,
) -> ConsensusModule:
    """Make a consensus module that is delivered entries and does nothing else: it takes part in no election."""
    descriptor = log.log
    config = ConsensusConfig(
        member_id=MemberId(0),
        catchup_endpoint="",
        startup_canvass_timeout_ns=_SECOND_NS,
        election_timeout_ns=_SECOND_NS,
        election_status_interval_ns=_SECOND_NS,
        leader_heartbeat_timeout_ns=_SECOND_NS,
        leader_heartbeat_interval_ns=_SECOND_NS,
        session_timeout_ns=_SECOND_NS,
        session_limit=1,
        service_count=service_count,
        shared_timer_ids=shared_timer_ids,
        service_queue_limit_bytes=service_queue_limit_bytes,
        initial_term_id=descriptor.initial_term_id,
        term_length_bytes=descriptor.term_buffer_length,
        mtu_length_bytes=descriptor.mtu_length,
        checksums=descriptor.checksummed,
        ingress_window_bytes=0,
        catchup_near_bytes=0,
        app_version=app_version,
        known_level=known_level,
    )
    ctx = ConsensusContext(
        config=config,
        random=_no_random,
        recording_log=RecordingLog(),  # it names no snapshots, so each that the log asks for is made here, too
        log_recording_id=RecordingId(descriptor.recording_id),
        log_buffer=LogBuffer(position=0, retained_bytes=0),
        roster=Roster(MemberId(0), _ONLY_MEMBER),
        append_position=0,
        leadership_term_id=TermId(-1),
    )
    module = ConsensusModule(ctx, last_activity_ns=lambda connection_id: None)
    module.actions.start()
    return module


def _no_random() -> NoReturn:
    raise AssertionError("a replay uses no random numbers")
