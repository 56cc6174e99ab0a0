"""Snapshots in the consensus module: when one is taken, what it holds, and how a loaded one is restored.

The leader appends a SNAPSHOT action. Every member delivers the log up to and with that entry, stands still there until
its own snapshot is recorded, or its state is set aside to be recorded, and goes on; consensus goes on meanwhile. One
snapshot is recorded at a time: at a second action a member stands still until the first one is recorded.

What a snapshot holds of the consensus module depends on delivered entries alone, so it is the same on every member: of
what a leader has appended and not delivered, nothing is in it.

A set counts once the entry of the module's snapshot is in the recording log, after those of the services.

Source: aeron.md §3.10; Aeron `ConsensusModuleSnapshotTaker`, `ServiceSnapshotTaker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ....service_api import CloseReason, RemoteProtocolError
from ....service_api.types import (
    NULL_POSITION,
    NULL_VALUE,
    TICKS_PER_MS,
    CorrelationId,
    MemberId,
    TermId,
    TimeUnit,
)
from ....service_api.wire.log.code_digest import UNKNOWN_CODE, CodedSnapshotMarker, with_code_digest
from ....service_api.wire.log.messages import ClusterActionRequest
from ....service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID, EntryType, RecordingLogEntry
from ....service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from ....service_api.wire.message import Message
from ...messages import snapshot as wire
from .. import effects as fx
from ..context import ConsensusContext
from ..events import SnapshotCaptured, SnapshotFailed, SnapshotTaken, StandbySnapshotFetched
from ..log.recording_log import RecordedSnapshot
from ..log.retention import drop_old_snapshots, needed_log_position
from ..service_messages import ServiceMessages, TrackerState, read_trackers, service_session_id_base
from ..sessions.session_state import SessionState
from ..sessions.sessions import ClusterSession, SessionManager
from ..vocabulary.configuration import Configuration, decode_text
from ..vocabulary.feature_levels import NO_FEATURES, FeatureLevels
from ..vocabulary.timers import TimerService

_NO_MESSAGES = wire.PendingMessageTracker(
    next_service_session_id=service_session_id_base(0) + 1,
    log_service_session_id=service_session_id_base(0),
    pending_message_capacity=0,
    service_id=0,
)
"""What a witness's snapshot says of services' messages: none were offered there."""


@dataclass(slots=True, frozen=True)
class SnapshotPlace:
    """Where a SNAPSHOT action was delivered: which place of the log a snapshot is of."""

    log_position: int
    leadership_term_id: int
    timestamp: int


@dataclass(slots=True)
class _Action:
    """A SNAPSHOT action that was delivered, while its snapshot is being recorded."""

    place: SnapshotPlace
    is_captured: bool = False
    """Whether delivery goes on while it is being recorded."""

    @property
    def log_position(self) -> int:
        """Where the entry of the action ends."""
        return self.place.log_position


@dataclass(slots=True, frozen=True)
class ModuleSnapshot:
    """A decoded snapshot of a consensus module."""

    log_position: int
    leadership_term_id: int
    time_unit: TimeUnit
    """Of its timers' deadlines, and of every time in the log."""
    next_session_id: int
    sessions: tuple[wire.ClusterSessionSnapshot, ...]
    timers: tuple[wire.Timer, ...]
    marker: SnapshotMarker
    """The first one."""
    trackers: tuple[TrackerState, ...] = ()
    """What each service has offered and the log does not hold yet."""
    members: Configuration | None = None
    """Who the members were; None in snapshots that do not say, such as Aeron's."""

    feature_levels: FeatureLevels = NO_FEATURES

    @property
    def term_code_digest(self) -> int:
        """Names the code that the leader of the snapshot's term ran."""
        return self.marker.code_digest if isinstance(self.marker, CodedSnapshotMarker) else UNKNOWN_CODE


class SnapshotControl:
    """Takes snapshots of one member, where the log says so, and records where they are."""

    def __init__(
        self,
        ctx: ConsensusContext,
        sessions: SessionManager,
        timers: TimerService,
        service_messages: ServiceMessages,
    ) -> None:
        self._ctx = ctx
        self._sessions = sessions
        self._timers = timers
        self._service_messages = service_messages
        self._action: _Action | None = None
        self._waiting: tuple[_Action, fx.TakeSnapshot] | None = None
        """The next one, while delivery stands still at it and the one before is being recorded."""
        self.on_finished: Callable[[int, str | None], None] = lambda position, failure: None
        """Told the position of a snapshot that is recorded, or that cannot be and why."""

    def __repr__(self) -> str:
        return f"<SnapshotControl taking={self._action}>"

    @property
    def is_taking(self) -> bool:
        """Whether a snapshot is being recorded."""
        return self._action is not None

    @property
    def taking_position(self) -> int:
        """Where the snapshot was asked for that is being recorded; -1 without one."""
        return NULL_POSITION if self._action is None else self._action.log_position

    @property
    def newest_position(self) -> int | None:
        """Where the newest complete snapshot was taken."""
        position = self._ctx.newest_snapshot_position
        return None if position == NULL_POSITION else position

    @property
    def newest(self) -> Sequence[RecordingLogEntry]:
        """The entries of the newest complete snapshot; none without one."""
        return self._ctx.recording_log.latest_snapshots(self._ctx.config.service_count)

    @property
    def log_after_newest_bytes(self) -> int:
        """How much committed log there is after the newest complete snapshot; without one, in all."""
        return max(0, self._ctx.commit_position - (self.newest_position or 0))

    def find_newest_time_ms(self) -> int | None:
        """Return when the newest complete snapshot was taken, or the log began; None before the first term.

        Epoch time in milliseconds, as the cluster had it.
        """
        ctx = self._ctx
        newest = self.newest
        terms = (entry for entry in ctx.recording_log.entries if entry.is_valid_term)
        begin = newest[0] if newest else next(terms, None)
        return None if begin is None else begin.timestamp // TICKS_PER_MS[ctx.time_unit]

    def find_age_ns(self) -> int | None:
        """Return how old that is by cluster time, while this member leads."""
        ctx, newest_ms = self._ctx, self.find_newest_time_ms()
        if newest_ms is None:
            return None
        return (ctx.cluster_clock.read(ctx.now_ns) // TICKS_PER_MS[ctx.time_unit] - newest_ms) * 1_000_000

    # --- every member, in log order

    def on_replay_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A SNAPSHOT action is delivered. True if delivery has to stand still here until its snapshot is recorded."""
        newest_position = self.newest_position
        if newest_position is not None and newest_position >= end_position:
            return False
        if self._ctx.is_before_skip(end_position):
            return False  # a set there is one of a member that did not know of the skip: see `skipped_entries`
        action = _Action(SnapshotPlace(end_position, event.leadership_term_id, event.timestamp))
        try:
            effect = fx.TakeSnapshot(
                end_position,
                event.leadership_term_id,
                event.timestamp,
                tuple(self._container_messages(action.place)),
                tuple(self._module_messages(action.place)),
            )
        except ValueError as error:
            # A value that no message can hold was let in somewhere: a bug, which must not end members at each start.
            self._finish(action, f"the state cannot be encoded: {error}")
            return False
        if self._action is None:
            self._action = action
            self._ctx.emit(effect)
        else:
            self._waiting = action, effect
        return True

    def on_captured(self, event: SnapshotCaptured) -> None:
        """The state is set aside: go on while it is recorded."""
        action = self._action
        if action is not None and action.log_position == event.log_position:
            action.is_captured = True
            self._ctx.emit(fx.ResumeDelivery())

    def on_taken(self, event: SnapshotTaken) -> None:
        """The snapshot is recorded: say so in the recording log, durably, then go on."""
        action = self._action
        if action is None or action.log_position != event.log_position:
            return
        self._action = None
        is_recorded, term_id = self.record(action.place, event), action.place.leadership_term_id
        self._finish(action, None if is_recorded else f"no term for the snapshot: leadership_term_id={term_id}")

    def record(self, place: SnapshotPlace, recorded: SnapshotTaken | StandbySnapshotFetched) -> bool:
        """Add a complete snapshot to the recording log, and remove what is not kept now. False without its term."""
        ctx = self._ctx
        term = ctx.recording_log.term_entry(place.leadership_term_id)
        if term is None:
            return False
        # Where an invalid set of the same place is revived, the recording log names that one's recordings no more.
        replaced_ids = tuple(
            entry.recording_id
            for entry in ctx.recording_log.entries
            if entry.entry_type is EntryType.SNAPSHOT
            and not entry.is_valid
            and (entry.leadership_term_id, entry.log_position) == (place.leadership_term_id, place.log_position)
        )
        recordings = [*enumerate(recorded.service_recording_ids)]
        # From the highest service down, the module's last: it completes the set.
        for service_id, recording_id in [
            *reversed(recordings),
            (CONSENSUS_MODULE_SERVICE_ID, recorded.module_recording_id),
        ]:
            ctx.recording_log.append_snapshot(
                RecordedSnapshot(
                    recording_id=recording_id,
                    leadership_term_id=place.leadership_term_id,
                    term_base_log_position=term.term_base_log_position,
                    log_position=place.log_position,
                    timestamp=place.timestamp,
                    service_id=service_id,
                )
            )
        policy = ctx.config.retention
        old_ids = drop_old_snapshots(ctx.recording_log, policy, service_count=ctx.config.service_count)
        named = ctx.recording_log.own_recording_ids
        unnamed_ids = (*(each for each in replaced_ids if each not in named), *old_ids)
        ctx.emit(fx.PersistRecordingLog())
        needed_position = needed_log_position(ctx.recording_log, policy, service_count=ctx.config.service_count)
        if unnamed_ids or needed_position:
            ctx.emit(fx.PurgeArchive(unnamed_ids, needed_position))
        return True

    def on_failed(self, event: SnapshotFailed) -> None:
        """There is no snapshot at this position on this member: go on without it."""
        action = self._action
        if action is None or action.log_position != event.log_position:
            return
        self._action = None
        self._finish(action, event.reason)

    def _finish(self, action: _Action, failure: str | None) -> None:
        if self._waiting is not None:
            self._action, effect = self._waiting
            self._waiting = None
            self._ctx.emit(effect)
        elif not action.is_captured:
            self._ctx.emit(fx.ResumeDelivery())
        self.on_finished(action.log_position, failure)

    # --- what is in it

    def _container_messages(self, place: SnapshotPlace) -> Iterable[Message]:
        yield self._marker(place, wire.SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN)
        for session in self._open_sessions(place):
            yield wire.ClientSessionSnapshot(
                cluster_session_id=session.cluster_session_id,
                response_stream_id=session.response_stream_id,
                response_channel=session.response_channel,
                encoded_principal=session.encoded_principal,
            )
        yield self._marker(place, wire.SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.END)

    def _module_messages(self, place: SnapshotPlace) -> Iterable[wire.ModuleMessage]:
        # All but the first field tell of service 0 what its tracker tells again.
        trackers = [*self._service_messages.snapshot_messages()]
        first = trackers[0] if trackers else _NO_MESSAGES
        assert isinstance(first, wire.PendingMessageTracker)
        yield self._marker(place, wire.CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN)
        yield wire.ConsensusModuleSnapshot(
            next_session_id=self._sessions.next_committed_session_id,
            next_service_session_id=first.next_service_session_id,
            log_service_session_id=first.log_service_session_id,
            pending_message_capacity=first.pending_message_capacity,
        )
        members = self._ctx.roster.history.committed(place.log_position)
        if members.log_position > 0:
            yield wire.ClusterMembers(
                member_id=MemberId(NULL_VALUE),
                high_member_id=MemberId(members.high_member_id),
                cluster_members=members.encode_text(is_placed=True),
            )
        levels = self._ctx.feature_levels
        if levels != NO_FEATURES:
            yield wire.FeatureLevelSnapshot(feature_level=levels.feature_level, trimaran_level=levels.trimaran_level)
        for session in self._open_sessions(place):
            # A close for another reason is the leader's alone until it is delivered.
            yield wire.ClusterSessionSnapshot(
                cluster_session_id=session.cluster_session_id,
                correlation_id=session.correlation_id,
                opened_log_position=session.opened_log_position,
                time_of_last_activity=-1,
                close_reason=CloseReason.SERVICE_ACTION if session.is_closed_by_service else None,
                response_stream_id=session.response_stream_id,
                response_channel=session.response_channel,
            )
        for correlation_id, deadline in self._timers.pending():
            yield wire.Timer(correlation_id=CorrelationId(correlation_id), deadline=deadline)
        yield from trackers
        yield self._marker(place, wire.CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.END)

    def _open_sessions(self, place: SnapshotPlace) -> list[ClusterSession]:
        """Sessions whose opening was delivered, by id; the leader has others already."""
        sessions = self._sessions.sessions
        opened = (sessions[session_id] for session_id in sorted(sessions))
        return [session for session in opened if session.opened_log_position <= place.log_position]

    def _marker(self, place: SnapshotPlace, type_id: int, mark: SnapshotMark) -> SnapshotMarker:
        marker = SnapshotMarker(
            type_id=type_id,
            log_position=place.log_position,
            leadership_term_id=TermId(place.leadership_term_id),
            index=0,
            mark=mark,
            time_unit=self._ctx.time_unit,
            app_version=self._ctx.config.app_version,
        )
        return with_code_digest(marker, self._ctx.term_code_digest)

    # --- recovery

    def restore(self, snapshot: ModuleSnapshot, clients: Sequence[wire.ClientSessionSnapshot], timestamp: int) -> None:
        """Take the state of a snapshot over, before anything else happens: what it holds was committed.

        Raises:
            ConfigurationError: a feature level is in force that the code here does not know.
        """
        ctx = self._ctx
        ctx.enter_feature_levels(snapshot.feature_levels, log_position=snapshot.log_position)
        ctx.commit_position = snapshot.log_position
        if snapshot.members is not None:
            ctx.roster.history.start_from(snapshot.members)
        ctx.cluster_clock.use_unit(snapshot.time_unit)
        ctx.cluster_clock.note(timestamp, ctx.now_ns)
        ctx.term_code_digest = snapshot.term_code_digest
        principals = {client.cluster_session_id: client.encoded_principal for client in clients}
        sessions = [
            ClusterSession(
                cluster_session_id=session.cluster_session_id,
                correlation_id=session.correlation_id,
                opened_log_position=session.opened_log_position,
                response_stream_id=session.response_stream_id,
                response_channel=session.response_channel,
                encoded_principal=principals.get(session.cluster_session_id, b""),
                time_of_last_activity_ns=ctx.now_ns,
                state=SessionState.OPEN if session.close_reason is None else SessionState.CLOSING,
                is_closed_by_service=session.close_reason is CloseReason.SERVICE_ACTION,
            )
            for session in snapshot.sessions
        ]
        self._sessions.restore(sessions, next_session_id=snapshot.next_session_id)
        for timer in snapshot.timers:
            self._timers.schedule(timer.correlation_id, timer.deadline)
        self._service_messages.restore(snapshot.trackers)


def decode_module_snapshot(messages: Sequence[wire.ModuleMessage]) -> ModuleSnapshot:
    """Read the messages of a consensus module's snapshot, from its first marker to its last.

    Raises:
        RemoteProtocolError: they are not one, or hold what this version cannot take over.
    """
    begin = expect_marker(messages[0] if messages else None, wire.CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN)
    end = expect_marker(messages[-1], wire.CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.END)
    if (begin.log_position, begin.leadership_term_id) != (end.log_position, end.leadership_term_id):
        raise RemoteProtocolError(f"markers differ: begin={begin!r} end={end!r}")
    modules: list[wire.ConsensusModuleSnapshot] = []
    members: Configuration | None = None
    levels = NO_FEATURES
    sessions, timers, trackers = [], [], []
    for message in messages[1:-1]:
        match message:
            case wire.ConsensusModuleSnapshot():
                modules.append(message)
            case wire.ClusterSessionSnapshot():
                sessions.append(message)
            case wire.Timer():
                timers.append(message)
            case wire.PendingMessageTracker() | wire.PendingMessage():
                trackers.append(message)
            case wire.ClusterMembers():
                members = decode_text(message.cluster_members, None)
            case wire.FeatureLevelSnapshot():
                levels = FeatureLevels(message.feature_level, message.trimaran_level)
            case _:
                raise RemoteProtocolError(f"unexpected message: {type(message).__name__}")
    if len(modules) != 1:
        raise RemoteProtocolError(f"ConsensusModule messages={len(modules)} expected=1")
    return ModuleSnapshot(
        log_position=begin.log_position,
        leadership_term_id=begin.leadership_term_id,
        time_unit=TimeUnit.MILLIS if begin.time_unit is None else begin.time_unit,
        next_session_id=modules[0].next_session_id,
        sessions=tuple(sessions),
        timers=tuple(timers),
        marker=begin,
        trackers=read_trackers(modules[0], trackers),
        members=members,
        feature_levels=levels,
    )


def expect_marker(message: wire.ModuleMessage | None, type_id: int, mark: SnapshotMark) -> SnapshotMarker:
    """Return the marker that this message must be.

    Raises:
        RemoteProtocolError: it is another, or no marker.
    """
    if isinstance(message, SnapshotMarker) and (message.type_id, message.mark) == (type_id, mark):
        return message
    raise RemoteProtocolError(f"marker missing: type_id={type_id} mark={mark.name} actual={message!r}")
