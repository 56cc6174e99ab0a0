"""The right column of the election's diagram: a member that follows a known leader, from its announcement to the live
log.

Rounds of log replication bring what is missing of earlier terms, one leadership term a round, out of the leader's
archive; the replay processes what is recorded, never past the known commit; catch-up brings what is missing of the
current term and merges into the live log. What a state waits for comes back as an event, and no progress for a
heartbeat timeout is a failure.

Source: seed 001, "Replication and Catchup Details"; aeron.md §2.3-§2.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from trimaran.service_api import Role, invariant
from trimaran.service_api.types import NULL_POSITION, MemberId, RecordingId, TermId

from ...messages.consensus import NewLeadershipTerm, StopCatchup
from .. import dialogue
from .. import effects as fx
from ..context import ConsensusContext
from ..election_state import FOLLOWER_STATES, LEADER_STATES, ElectionState
from ..events import (
    BelowOldestSegment,
    LogImageClosed,
    LogJoined,
    ReplicationDone,
    SnapshotFetched,
    SnapshotFetchFailed,
)
from ..reason import Reason
from ..reason import ReasonKind as K

_FETCH_BACKOFF_BASE_NS = 500_000_000
_FETCH_BACKOFF_LIMIT_NS = 30_000_000_000


@dataclass(slots=True)
class Replication:
    """One round of log replication: exists in FOLLOWER_LOG_REPLICATION only."""

    leader_recording_id: RecordingId
    stop_position: int
    term_id: TermId


@dataclass(slots=True)
class Leader:
    """The leader as a follower learned of it: exists from the NewLeadershipTerm on."""

    member_id: MemberId
    recording_id: RecordingId
    log_session_id: int
    catchup_join_position: int | None
    """The leader's append position when it was ahead of ours; None when there is nothing to catch up."""
    near_bytes: int
    """How near the end of the leader's log the live log is joined; less each time that this was too far."""
    is_live_joined: bool = False


@dataclass(slots=True)
class SnapshotFetch:
    """A leader that does not have what this log lacks, and is asked for a snapshot: exists until another leads."""

    leader_member_id: int
    leadership_term_id: int
    is_running: bool = True
    failure_count: int = 0
    retry_ns: int = 0
    """When to ask again, once it is not running."""


class FollowerPhase(ABC):
    """The follower states of an `Election`, which is the only class that derives from this one."""

    _ctx: ConsensusContext
    _leader: Leader | None
    _replication: Replication | None
    _fetch: SnapshotFetch | None
    _deadline_ns: int
    _next_status_ns: int
    _is_extended_canvass: bool
    state: ElectionState

    @abstractmethod
    def _enter(self, new: ElectionState, reason: Reason) -> None:
        """The one door to another state."""

    @abstractmethod
    def restart(self, reason: Reason, *, is_failure: bool = False) -> None:
        """Go back to INIT."""

    def _adopt_leader(self, message: NewLeadershipTerm) -> None:
        """Follow the leader of this message: its log and this one agree up to this one's end."""
        ctx = self._ctx
        self._end_fetch(message)
        ctx.observe_candidate_term(message.leadership_term_id)
        ctx.is_cluster_formed = True
        ctx.leadership_term_id = message.leadership_term_id
        ctx.leader_member_id = MemberId(message.leader_member_id)
        ctx.log_session_id = message.log_session_id
        ctx.term_base_log_position = message.term_base_log_position
        self._is_extended_canvass = False
        is_behind = ctx.append_position < message.log_position
        self._leader = Leader(
            member_id=MemberId(message.leader_member_id),
            recording_id=RecordingId(message.leader_recording_id),
            log_session_id=message.log_session_id,
            catchup_join_position=message.log_position if is_behind else None,
            near_bytes=ctx.config.catchup_near_bytes,
        )
        self._on_leader_alive(message.commit_position)
        if ctx.append_position >= message.term_base_log_position:
            ctx.role = Role.FOLLOWER
            if ctx.log_leadership_term_id < message.leadership_term_id:
                ctx.begin_log_term(message.leadership_term_id, message.term_base_log_position)
            self._enter(
                ElectionState.FOLLOWER_REPLAY, Reason(K.LEADER_ANNOUNCED, leader_member_id=message.leader_member_id)
            )
            return
        self._plan_replication(message)

    def _plan_replication(self, message: NewLeadershipTerm) -> None:
        """Decide what one round of log replication copies: the rest of this log's term, or the whole next one."""
        ctx = self._ctx
        if message.next_term_base_log_position == NULL_POSITION:
            self.restart(
                Reason(
                    K.NEXT_TERM_UNKNOWN,
                    leader_member_id=message.leader_member_id,
                    log_term_id=ctx.log_leadership_term_id,
                ),
                is_failure=True,
            )
            return
        if ctx.append_position < message.next_term_base_log_position:
            term_id, stop_position = ctx.log_leadership_term_id, message.next_term_base_log_position
        else:
            term_id, stop_position = message.next_leadership_term_id, message.next_log_position
        invariant(
            stop_position != NULL_POSITION,
            "a term before the leader's own is closed",
            term_id=term_id,
            leadership_term_id=message.leadership_term_id,
        )
        self._replication = Replication(RecordingId(message.leader_recording_id), stop_position, term_id)
        self._enter(
            ElectionState.FOLLOWER_LOG_REPLICATION, Reason(K.TERM_MISSING, term_id=term_id, position=stop_position)
        )

    def on_below_oldest_segment(self, event: BelowOldestSegment) -> Reason | None:
        """The leader does not have what is missing here any more: ask it for a snapshot instead, and say so.

        Meanwhile this member canvasses: it may still vote, and another leader may have the log.
        """
        ctx = self._ctx
        if self.state not in FOLLOWER_STATES or self._leader is None:
            return None
        failure_count = 0 if self._fetch is None else self._fetch.failure_count
        self._fetch = SnapshotFetch(self._leader.member_id, ctx.leadership_term_id, failure_count=failure_count)
        leader_member_id = self._leader.member_id
        reason = Reason(
            K.BELOW_OLDEST_SEGMENT,
            position=event.position,
            oldest_position=event.oldest_position,
            leader_member_id=leader_member_id,
        )
        self.restart(reason)
        ctx.emit(fx.FetchSnapshot(leader_member_id))
        return reason

    def on_snapshot_fetched(self, event: SnapshotFetched) -> None:
        """A snapshot is here: go on from it, unless what this log holds reaches as far by now."""
        ctx, fetch = self._ctx, self._fetch
        is_waiting = self.state not in FOLLOWER_STATES and self.state not in LEADER_STATES
        if fetch is None or not is_waiting or event.log_position <= ctx.append_position:
            self._fetch = None
            ctx.emit(fx.StopSnapshotFetch())
            return
        invariant(
            max(ctx.commit_position, ctx.append_position) < event.log_position,
            "a snapshot replaces only what it covers",
            commit_position=ctx.commit_position,
            append_position=ctx.append_position,
            log_position=event.log_position,
        )
        ctx.emit(fx.InstallSnapshot(event.log_position))

    def on_snapshot_fetch_failed(self, event: SnapshotFetchFailed) -> None:
        """Ask again after a pause that grows, as soon as a leader speaks."""
        fetch = self._fetch
        if fetch is None:
            return
        fetch.is_running = False
        pause_ns = min(_FETCH_BACKOFF_BASE_NS << min(fetch.failure_count, 10), _FETCH_BACKOFF_LIMIT_NS)
        fetch.failure_count += 1
        fetch.retry_ns = self._ctx.now_ns + pause_ns

    def _waits_for_snapshot(self, message: NewLeadershipTerm) -> bool:
        """Whether this leader has been asked for a snapshot, or was of no help a short while ago."""
        fetch = self._fetch
        return (
            fetch is not None
            and (fetch.is_running or self._ctx.now_ns < fetch.retry_ns)
            and (fetch.leader_member_id, fetch.leadership_term_id)
            == (message.leader_member_id, message.leadership_term_id)
        )

    def _end_fetch(self, message: NewLeadershipTerm) -> None:
        """This member tries the log of a leader again: another one's, or the same one's after a failure."""
        fetch = self._fetch
        if fetch is None:
            return
        if fetch.is_running:
            self._ctx.emit(fx.StopSnapshotFetch())
        if fetch.leader_member_id != message.leader_member_id:
            self._fetch = None

    def on_stop_catchup(self, message: StopCatchup) -> None:
        """Follower: the live log has taken over from the catch-up replay."""
        is_ours = message.leadership_term_id == self._ctx.leadership_term_id
        if self.state is ElectionState.FOLLOWER_CATCHUP and is_ours and self._has_caught_up_as_voter():
            self._ctx.emit(fx.CloseCatchup())
            self._enter(ElectionState.FOLLOWER_LOG_INIT, Reason(K.CAUGHT_UP))

    def on_replication_done(self, event: ReplicationDone) -> None:
        """One leadership term was copied from the leader's archive."""
        if self.state is not ElectionState.FOLLOWER_LOG_REPLICATION:
            return
        self._ctx.append_position = event.position
        self._enter(ElectionState.CANVASS, Reason(K.TERM_REPLICATED, position=event.position))

    def on_catchup_available(self) -> None:
        """The leader's catch-up replay has connected at the append position."""
        if self.state is ElectionState.FOLLOWER_CATCHUP_AWAIT:
            self._enter(ElectionState.FOLLOWER_CATCHUP, Reason(K.CATCHUP_CONNECTED))

    def on_log_joined(self, event: LogJoined) -> None:
        """The live log begins to flow from the append position."""
        if self._leader is None or event.log_session_id != self._leader.log_session_id:
            return
        self._leader.is_live_joined = True
        if self.state is ElectionState.FOLLOWER_LOG_AWAIT:
            self._enter(ElectionState.FOLLOWER_READY, Reason(K.LIVE_LOG_JOINED))
        elif self.state is ElectionState.FOLLOWER_CATCHUP:
            self._report_append_position()  # so that the leader need not wait to end the replay

    def on_log_image_closed(self, event: LogImageClosed) -> None:
        """The live log was lost before the election ended; a catch-up goes on without, and joins it again nearer."""
        leader = self._leader
        if leader is None or event.log_session_id != leader.log_session_id:
            return
        if self.state is ElectionState.FOLLOWER_CATCHUP:
            leader.is_live_joined = False
            leader.near_bytes //= 2
        else:
            self.restart(Reason(K.LOG_LINK_CLOSED, detail=event.reason))

    def _enter_follower_log_replication(self) -> None:
        ctx, leader, replication = self._ctx, self._leader, self._replication
        assert leader is not None
        assert replication is not None
        self._deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns
        if replication.term_id > ctx.log_leadership_term_id:
            ctx.begin_log_term(replication.term_id, ctx.append_position)
        if replication.stop_position <= ctx.append_position:
            self._enter(ElectionState.CANVASS, Reason(K.TERM_EMPTY, term_id=replication.term_id))
            return
        ctx.emit(fx.StartLogReplication(leader.member_id, replication.leader_recording_id, replication.stop_position))

    def _poll_follower_log_replication(self) -> None:
        ctx = self._ctx
        if ctx.now_ns >= self._deadline_ns:
            self.restart(Reason(K.NO_PROGRESS, state=self.state.name), is_failure=True)
        elif ctx.now_ns >= self._next_status_ns:
            self._report_append_position()

    def _enter_follower_replay(self) -> None:
        ctx = self._ctx
        self._report_append_position()
        self._advance_commit()
        ctx.emit(fx.StartReplay(min(ctx.append_position, ctx.commit_position)))

    def _poll_follower_replay(self) -> None:
        if self._ctx.now_ns >= self._next_status_ns:
            self._report_append_position()

    def _enter_follower_catchup_init(self) -> None:
        ctx, leader = self._ctx, self._leader
        assert leader is not None
        ctx.emit(fx.AcceptCatchup(leader.log_session_id))
        dialogue.send_catchup_position(ctx, leader.member_id)
        self._enter(ElectionState.FOLLOWER_CATCHUP_AWAIT, Reason(K.CATCHUP_REQUESTED, position=ctx.append_position))

    def _enter_follower_catchup_await(self) -> None:
        self._await_progress()

    def _await_progress(self) -> None:
        self._deadline_ns = self._ctx.now_ns + self._ctx.config.leader_heartbeat_timeout_ns

    def _poll_waiting(self) -> None:
        ctx = self._ctx
        if ctx.now_ns >= self._deadline_ns:
            self.restart(Reason(K.NO_PROGRESS, state=self.state.name), is_failure=True)
        elif ctx.now_ns >= self._next_status_ns:
            self._report_append_position()

    def _enter_follower_catchup(self) -> None:
        self._await_progress()
        self._join_live_when_near()

    def _enter_follower_log_init(self) -> None:
        assert self._leader is not None
        if self._leader.is_live_joined:
            self._enter(ElectionState.FOLLOWER_READY, Reason(K.LIVE_LOG_JOINED_ALREADY))
        else:
            self._enter(ElectionState.FOLLOWER_LOG_AWAIT, Reason(K.NO_LIVE_LOG_YET))

    def _enter_follower_log_await(self) -> None:
        assert self._leader is not None
        self._await_progress()
        self._ctx.emit(fx.JoinLiveLog(self._leader.log_session_id))

    def _enter_follower_ready(self) -> None:
        self._ctx.become_voter()
        self._report_append_position()
        self._enter(ElectionState.CLOSED, Reason(K.FOLLOWING))

    def _on_leader_alive(self, commit_position: int | None) -> None:
        ctx = self._ctx
        ctx.time_of_last_leader_ns = ctx.now_ns
        if commit_position is not None:
            ctx.notified_commit_position = max(ctx.notified_commit_position, commit_position)
        self._advance_commit()
        if self.state is ElectionState.FOLLOWER_CATCHUP:
            self._join_live_when_near()

    def _advance_commit(self) -> None:
        """Let what is recorded here and known to be committed be delivered."""
        ctx = self._ctx
        if not self._knows_commit():
            return
        position = min(ctx.notified_commit_position, ctx.append_position)
        if position > ctx.commit_position:
            ctx.commit_position = position
            ctx.emit(fx.CommitAdvanced(position))

    def _knows_commit(self) -> bool:
        """Whether this log agrees with the leader's, so that its commit position speaks about this log too."""
        return self.state in FOLLOWER_STATES

    def _join_live_when_near(self) -> None:
        ctx, leader = self._ctx, self._leader
        assert leader is not None
        target = max(leader.catchup_join_position or 0, ctx.notified_commit_position)
        is_near = ctx.append_position >= target - leader.near_bytes
        if not leader.is_live_joined and is_near and self._has_caught_up_as_voter():
            ctx.emit(fx.JoinLiveLog(leader.log_session_id))

    def _has_caught_up_as_voter(self) -> bool:
        """Whether this log holds all that the leader's held when this member came.

        For a member that is no voter, being near is not enough: this member may have acknowledged every byte of that
        once.
        """
        ctx, leader = self._ctx, self._leader
        assert leader is not None
        return ctx.is_voter or ctx.append_position >= (leader.catchup_join_position or 0)

    def _report_append_position(self) -> None:
        """Tell the leader what is recorded here.

        In log replication the term is an older one, so it does not count.
        """
        ctx, leader = self._ctx, self._leader
        assert leader is not None
        self._next_status_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        dialogue.send_append_position(
            ctx,
            leader.member_id,
            leadership_term_id=ctx.log_leadership_term_id,
            is_catchup=self.state in (ElectionState.FOLLOWER_CATCHUP_AWAIT, ElectionState.FOLLOWER_CATCHUP),
        )
