"""A log as a leader writes it, in a window, and the services that tests deliver it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.vocabulary.feature_levels import FeatureLevels
from trimaran.cluster.messages.digests import FieldDigest
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.service.digests import DeliveryDigests
from trimaran.service_api import CloseReason, Cluster, ClusteredService, Role
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId, TimeUnit
from trimaran.service_api.wire.log.messages import (
    ClusterAction,
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from trimaran.service_api.wire.session import SessionMessageHeader

TERM, SESSION = TermId(3), ClusterSessionId(11)


class RecordingService(ClusteredService):
    """Remembers every callback; does what the test puts into `on_message`."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.on_message: Callable[[ClientSession, bytes], object] = lambda session, payload: None
        self.cluster: Cluster | None = None

    def on_start(self, cluster: Cluster, snapshot: object) -> None:
        self.cluster = cluster

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.calls.append(("open", session.id, timestamp))

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.calls.append(("message", session.id, timestamp, bytes(payload)))
        self.on_message(session, bytes(payload))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.calls.append(("close", session.id, timestamp, close_reason))

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.calls.append(("service message", service_id, timestamp, bytes(payload)))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.calls.append(("timer", correlation_id, timestamp))

    def on_role_change(self, role: Role) -> None:
        self.calls.append(("role", role))

    def on_new_leadership_term_event(self, **facts: object) -> None:
        self.calls.append(("term", facts["leadership_term_id"], facts["log_position"]))

    @property
    def payloads(self) -> list[bytes]:
        return [call[3] for call in self.calls if call[0] == "message" and isinstance(call[3], bytes)]


class FakeRequests:
    """Implements `ModuleRequests` and `ModuleReplay`: a list of what the module was told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.time_units: list[TimeUnit | None] = []
        self.code_digests: list[int] = []
        self.stands_still = False
        self.knows_skips = True
        self.feature_level = 0
        self.offered_by: int | None = 0

    def on_replay_membership_change(self, event: MembershipChangeEvent, end_position: int) -> None:
        self.told.append(("members", event.cluster_size, end_position))

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        self.told.append(("schedule", correlation_id, deadline))

    def cancel_timer(self, correlation_id: int) -> bool:
        self.told.append(("cancel", correlation_id))
        return True

    def close_session(self, session_id: ClusterSessionId) -> None:
        self.told.append(("close session", session_id))

    def offer(self, service_id: int, payload: bytes) -> None:
        self.told.append(("offer", service_id, payload))

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        self.told.append(("check room", service_id, *lengths))

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: memoryview) -> int | None:
        self.told.append(("service message", session_id, bytes(payload)))
        return self.offered_by

    def on_replay_session_open(self, event: SessionOpenEvent, end_position: int) -> None:
        self.told.append(("opened", event.cluster_session_id, end_position))

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        self.told.append(("closed", event.cluster_session_id))

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        self.code_digests.append(code_digest)
        self.time_units.append(event.time_unit)

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        self.told.append(("fired", event.correlation_id))

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        self.told.append(("action", event.action, end_position))
        return self.stands_still

    def on_replay_feature_level(self, event: FeatureLevelRaise) -> None:
        self.told.append(("feature level", event.feature_level))
        FeatureLevels(event.feature_level, event.trimaran_level).check(
            self.feature_level, log_position=event.log_position
        )

    def on_replay_entry_skip(self, event: EntrySkip) -> bool:
        self.told.append(("skip", event.skipped_log_position))
        return self.knows_skips


class FakeReader:
    """Implements `LogReader` on bytes."""

    def __init__(self, log: bytes = b"") -> None:
        self.log = log
        self.reads: list[tuple[int, int]] = []

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        self.reads.append((position, stop_position))
        end = position
        while end < min(stop_position, len(self.log)):
            length = (int.from_bytes(self.log[end : end + 4], "little") + 31) & -32
            if end > position and end + length > position + limit_bytes:
                break
            end += length
        return self.log[position:end]


class Rig:
    """A log, and a container that it is delivered to."""

    def __init__(self, *, term_length_bytes: int = 64 << 10, retained_bytes: int = 1 << 30) -> None:
        self.now_ns = 0
        self.log_buffer = LogBuffer(position=0, retained_bytes=retained_bytes)
        self.publisher = LogPublisher(
            self.log_buffer,
            log_session_id=7,
            initial_term_id=0,
            term_length_bytes=term_length_bytes,
            mtu_length_bytes=1408,
            checksums=True,
        )
        self.service = RecordingService()
        self.requests = FakeRequests()
        self.reader = FakeReader()
        self.agent = ClusteredServiceAgent(
            [self.service],
            self.requests,
            member_id=MemberId(0),
            time_unit=TimeUnit.MILLIS,
            max_payload_length=term_length_bytes // 8 - 32,
        )
        self.told_digests: list[tuple[object, ...]] = []
        """Kind, service id, log position and digest."""
        self.told_fields: list[tuple[int, Sequence[FieldDigest]]] = []
        """Log position, and the fields of the state there."""
        self.digests = DeliveryDigests(
            [self.service],
            self.agent.egress,
            lambda kind, service_id, position, digest, value: self.told_digests.append(
                (kind, service_id, position, digest)
            ),
            lambda service_id, position, fields: self.told_fields.append((position, fields)),
            monotonic_ns=lambda: self.now_ns,
        )
        self.adapter = BoundedLogAdapter(
            self.log_buffer,
            self.reader,
            self.agent,
            self.requests,
            monotonic_ns=lambda: self.now_ns,
            digests=self.digests,
        )

    # --- entries

    def open(self, session_id: int = SESSION, *, timestamp: int = 100) -> int:
        return self.publisher.append_message(
            SessionOpenEvent(
                leadership_term_id=TERM,
                correlation_id=CorrelationId(5),
                cluster_session_id=ClusterSessionId(session_id),
                timestamp=timestamp,
                response_stream_id=102,
            ).encode()
        )

    def message(self, payload: bytes, *, session_id: int = SESSION, timestamp: int = 100) -> int:
        header = SessionMessageHeader(
            leadership_term_id=TERM, cluster_session_id=ClusterSessionId(session_id), timestamp=timestamp
        )
        return self.publisher.append_message(header.encode() + payload)

    def close(self, reason: CloseReason = CloseReason.CLIENT_ACTION, *, timestamp: int = 100) -> int:
        return self.publisher.append_message(
            SessionCloseEvent(
                leadership_term_id=TERM, cluster_session_id=SESSION, timestamp=timestamp, close_reason=reason
            ).encode()
        )

    def timer(self, correlation_id: int, *, timestamp: int = 100) -> int:
        return self.publisher.append_message(
            TimerEvent(
                leadership_term_id=TERM, correlation_id=CorrelationId(correlation_id), timestamp=timestamp
            ).encode()
        )

    def term(self, *, wrong_by: int = 0) -> int:
        event = NewLeadershipTermEvent(
            leadership_term_id=TERM,
            log_position=0,
            timestamp=100,
            term_base_log_position=0,
            leader_member_id=MemberId(0),
            log_session_id=7,
            time_unit=TimeUnit.MILLIS,
            app_version=1,
        )
        end_position = self.publisher.end_position_of(len(event.encode())) + wrong_by
        return self.publisher.append_message(event.model_copy(update={"log_position": end_position}).encode())

    def action(self, *, wrong_by: int = 0) -> int:
        event = ClusterActionRequest(
            leadership_term_id=TERM, log_position=0, timestamp=100, action=ClusterAction.SNAPSHOT, flags=0
        )
        end_position = self.publisher.end_position_of(len(event.encode())) + wrong_by
        return self.publisher.append_message(event.model_copy(update={"log_position": end_position}).encode())

    def one_chunk(self) -> None:
        """Make one chunk of everything that was appended, as if it had been received in one go."""
        log = b"".join(self.log_buffer.chunks_from(0))
        self.log_buffer.reset(0)
        self.log_buffer.append(log)

    def to_archive(self, position: int) -> None:
        """Let the window begin at `position`; what is below it is in the archive only."""
        self.reader.log = b"".join(self.log_buffer.chunks_from(0))
        rest = self.reader.log[position:]
        self.log_buffer.reset(position)
        if rest:
            self.log_buffer.append(rest)

    def deliver(self, position: int | None = None) -> None:
        """Deliver everything up to a commit position."""
        self.adapter.advance_limit(self.log_buffer.append_position if position is None else position)
        while self.adapter.poll(512 << 10):
            pass
