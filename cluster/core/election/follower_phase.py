"""The right column of the election's diagram: a member that follows a known leader, from its announcement to the live
log.

Rounds of log replication bring what is missing of earlier terms, one leadership term a round, out of the leader's
archive; the replay processes what is recorded, never past the known commit; catch-up brings what is missing of the
current term and merges into the live log. What a state waits for comes back as an event, and no progress for a
heartbeat timeout is a failure.

Source: seed 001, "Replication and Catchup Details"; aeron.md §2.3-§2.5.
"""

from __future__ import annotations

from typing import Final

from ....service_api.types import MemberId, RecordingId, TermId
from ...messages.consensus import CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote, StopCatchup
from .. import effects as fx
from ..events import (
    ActivityFailed,
    BelowOldestSegment,
    CatchupImageAvailable,
    LinkChanged,
    LogCommitted,
    LogImageClosed,
    LogJoined,
    Recorded,
    ReplayDone,
    ReplicationDone,
)
from ..peers import dialogue
from ..vocabulary.election_state import ElectionState
from ..vocabulary.phase import NEVER_NS
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from . import higher_term
from .election import Election, ElectionPhase
from .voting import Voting

_S = ElectionState

_ASK_HEARTBEATS: Final = 5
"""So many heartbeats of the leader lie between two questions to a source that is not in the term yet."""


class FollowerPhase(ElectionPhase):
    """The states of a follower, and the leader as it learned of it."""

    is_without_leader = False

    def __init__(self, election: Election, message: NewLeadershipTerm) -> None:
        super().__init__(election, status_interval_ns=election.ctx.config.leader_heartbeat_interval_ns)
        ctx = self._ctx
        self._leader_member_id = MemberId(message.leader_member_id)
        self._leader_recording_id = RecordingId(message.leader_recording_id)
        self._log_session_id = message.log_session_id
        self._catchup_join_position = message.log_position if ctx.append_position < message.log_position else 0
        """The leader's append position when it was ahead of ours; 0 when there is nothing to catch up."""
        ctx.await_vote_beyond(message.log_position)
        self._near_bytes = ctx.config.catchup_near_bytes
        """How near the end of the leader's log the live log is joined; less each time that this was too far."""
        self._is_live_joined = False
        self._ask_again_ns = NEVER_NS
        """When to ask a source again for a replay: it may have come to this term later than this member."""
        ctx.log_source_id = self._leader_member_id
        poll = self._poll_waiting
        self.states = {
            _S.FOLLOWER_LOG_REPLICATION: (self._enter_follower_log_replication, poll),
            _S.FOLLOWER_REPLAY: (self._enter_follower_replay, poll),
            _S.FOLLOWER_CATCHUP_INIT: (self._enter_follower_catchup_init, poll),
            _S.FOLLOWER_CATCHUP_AWAIT: (self._enter_follower_catchup_await, poll),
            _S.FOLLOWER_CATCHUP: (self._enter_follower_catchup, poll),
            _S.FOLLOWER_LOG_INIT: (self._enter_follower_log_init, poll),
            _S.FOLLOWER_LOG_AWAIT: (self._enter_follower_log_await, poll),
            _S.FOLLOWER_READY: (self._enter_follower_ready, poll),
        }
        self.handlers = {
            CanvassPosition: self.on_canvass_position,
            RequestVote: Voting(election).on_request_vote,
            NewLeadershipTerm: self.on_new_leadership_term,
            CommitPosition: self.on_commit_position,
            LinkChanged: self.on_link_changed,
            LogCommitted: self.on_log_committed,
            Recorded: self.on_recorded,
            ReplicationDone: self.on_replication_done,
            ReplayDone: self.on_replay_done,
            CatchupImageAvailable: self.on_catchup_available,
            StopCatchup: self.on_stop_catchup,
            LogJoined: self.on_log_joined,
            LogImageClosed: self.on_log_image_closed,
            BelowOldestSegment: self.on_below_oldest_segment,
            ActivityFailed: self.on_activity_failed,
        }

    # --- messages

    def on_canvass_position(self, message: CanvassPosition) -> None:
        """A member says where its log ends: it looks for a leader, which will answer it."""
        self._ctx.note_canvass(message)

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """The leader repeats itself, or there is one of a higher term."""
        election = self._election
        if election.refuses(message):
            return
        reason = higher_term.of_leader(self._ctx, message)
        if reason is not None:
            election.restart(reason)
        elif message.leader_member_id == self._leader_member_id:
            self._on_leader_alive(message.commit_position)

    def on_commit_position(self, message: CommitPosition) -> None:
        """The leader is alive and has committed this far, or there is one of a higher term."""
        ctx = self._ctx
        reason = higher_term.of_commit(ctx, message)
        if reason is not None:
            self._election.restart(reason)
        elif (message.leader_member_id, message.leadership_term_id) == (self._leader_member_id, ctx.leadership_term_id):
            self._on_leader_alive(message.log_position)

    def on_log_committed(self, event: LogCommitted) -> None:
        """The leader says the same with the log that this member has joined."""
        if event.leadership_term_id == self._ctx.leadership_term_id:
            self._on_leader_alive(event.log_position)

    def on_stop_catchup(self, message: StopCatchup) -> None:
        """The live log has taken over from the catch-up replay."""
        ctx, election = self._ctx, self._election
        is_ours = (message.follower_member_id, message.leadership_term_id) == (
            ctx.config.member_id,
            ctx.leadership_term_id,
        )
        if election.state is _S.FOLLOWER_CATCHUP and is_ours and self._has_caught_up_as_voter():
            ctx.emit(fx.CloseCatchup())
            election.enter(_S.FOLLOWER_LOG_INIT, Reason(K.CAUGHT_UP))

    # --- events

    def on_link_changed(self, event: LinkChanged) -> None:
        """A member's process came or went: the leader's, or that of the log's source, ends the election's course."""
        self._election.on_link_changed(event)
        if event.is_up:
            return
        if event.member_id == self._leader_member_id:
            self._election.restart(Reason(K.LEADER_LINK_CLOSED, leader_member_id=event.member_id))
        elif event.member_id == self._ctx.log_source_id:
            self._election.restart(Reason(K.LOG_SOURCE_LOST, member_id=event.member_id))

    def on_recorded(self, event: Recorded) -> None:
        """More of the log is durable here."""
        ctx, state = self._ctx, self._election.state
        ctx.append_position = max(ctx.append_position, event.position)
        if event.committed is not None:
            self.on_log_committed(event.committed)
        if state is _S.FOLLOWER_CATCHUP:
            self._await_progress()
            ctx.advance_commit()
            self._report_append_position()
            self._join_live_when_near()
        elif state is _S.FOLLOWER_LOG_REPLICATION:
            self._await_progress()

    def on_replication_done(self, event: ReplicationDone) -> None:
        """One leadership term was copied from the leader's archive."""
        if self._election.state is _S.FOLLOWER_LOG_REPLICATION:
            self._ctx.append_position = event.position
            self._election.enter(_S.CANVASS, Reason(K.TERM_REPLICATED, position=event.position))

    def on_replay_done(self, event: ReplayDone) -> None:
        """The log was processed as far as it is committed."""
        ctx, join_position = self._ctx, self._catchup_join_position
        ctx.cluster_clock.note_replayed(event.timestamp, ctx.now_ns)
        if self._election.state is not _S.FOLLOWER_REPLAY:
            return
        ctx.log_source_id = ctx.choose_log_source(self._leader_member_id)
        if ctx.is_relayed or join_position > ctx.append_position:
            self._election.enter(_S.FOLLOWER_CATCHUP_INIT, Reason(K.BEHIND_LEADER, position=join_position))
        else:
            self._election.enter(_S.FOLLOWER_LOG_INIT, Reason(K.REPLAYED, position=event.position))

    def on_catchup_available(self, event: CatchupImageAvailable) -> None:
        """The catch-up replay has connected at the append position."""
        if self._election.state is _S.FOLLOWER_CATCHUP_AWAIT and event.log_session_id == self._log_session_id:
            self._election.enter(_S.FOLLOWER_CATCHUP, Reason(K.CATCHUP_CONNECTED))

    def on_log_joined(self, event: LogJoined) -> None:
        """The live log begins to flow from the append position."""
        if event.log_session_id != self._log_session_id:
            return
        self._is_live_joined = True
        state = self._election.state
        if state is _S.FOLLOWER_LOG_AWAIT:
            self._election.enter(_S.FOLLOWER_READY, Reason(K.LIVE_LOG_JOINED))
        elif state is _S.FOLLOWER_CATCHUP:
            self._report_append_position()  # so that the leader need not wait to end the replay

    def on_log_image_closed(self, event: LogImageClosed) -> None:
        """The live log was lost before the election ended; a catch-up goes on without, and joins it again nearer."""
        if event.log_session_id != self._log_session_id:
            return
        if self._election.state is _S.FOLLOWER_CATCHUP:
            self._is_live_joined = False
            self._near_bytes //= 2
        else:
            self._give_up_source()
            self._election.restart(Reason(K.LOG_LINK_CLOSED, detail=event.reason))

    def on_below_oldest_segment(self, event: BelowOldestSegment) -> None:
        """The leader does not have what is missing here any more: ask it for a snapshot instead, and say so."""
        election = self._election
        if self._ctx.is_relayed:
            self._give_up_source()
            election.restart(Reason(K.BEHIND_LEADER, position=event.oldest_position))  # the leader may have more
            return
        reason = Reason(
            K.BELOW_OLDEST_SEGMENT,
            position=event.position,
            oldest_position=event.oldest_position,
            leader_member_id=self._leader_member_id,
        )
        election.restart(reason)
        election.fetch.begin(self._leader_member_id)
        election.record.reason = reason  # for operators who ask why this takes so long

    def on_activity_failed(self, event: ActivityFailed) -> None:
        """What this state waited for failed: a source is not asked again at once."""
        self._give_up_source()
        super().on_activity_failed(event)

    # --- states, in the order of the diagram

    def _enter_follower_log_replication(self) -> None:
        self._await_progress()

    def replicate(self, term_id: TermId, stop_position: int) -> None:
        """FOLLOWER_LOG_REPLICATION: copy up to the stop position, which is all of this term or a part of it."""
        ctx = self._ctx
        if term_id > ctx.log_leadership_term_id:
            ctx.begin_log_term(term_id, ctx.append_position)
        if stop_position <= ctx.append_position:
            self._election.enter(_S.CANVASS, Reason(K.TERM_EMPTY, term_id=term_id))
            return
        source_id = ctx.choose_log_source(self._leader_member_id)
        ctx.emit(fx.StartLogReplication(self._leader_member_id, self._leader_recording_id, stop_position, source_id))

    def _enter_follower_replay(self) -> None:
        ctx = self._ctx
        self._report_append_position()
        ctx.advance_commit()
        ctx.emit(fx.StartReplay(min(ctx.append_position, ctx.commit_position)))

    def _enter_follower_catchup_init(self) -> None:
        ctx = self._ctx
        assert ctx.log_source_id is not None
        ctx.emit(fx.AcceptCatchup(self._log_session_id, ctx.log_source_id))
        self._ask_for_catchup(ctx.log_source_id)
        reason = Reason(K.CATCHUP_REQUESTED, position=ctx.append_position)
        self._election.enter(_S.FOLLOWER_CATCHUP_AWAIT, reason)

    def _enter_follower_catchup_await(self) -> None:
        self._await_progress()

    def _enter_follower_catchup(self) -> None:
        self._await_progress()
        self._join_live_when_near()

    def _enter_follower_log_init(self) -> None:
        if self._is_live_joined:
            self._election.enter(_S.FOLLOWER_READY, Reason(K.LIVE_LOG_JOINED_ALREADY))
        else:
            self._election.enter(_S.FOLLOWER_LOG_AWAIT, Reason(K.NO_LIVE_LOG_YET))

    def _enter_follower_log_await(self) -> None:
        self._await_progress()
        self._ctx.emit(fx.JoinLiveLog(self._log_session_id))

    def _enter_follower_ready(self) -> None:
        self._report_append_position()
        self._election.enter(_S.CLOSED, Reason(K.FOLLOWING))

    def _await_progress(self) -> None:
        self.deadline_ns = self._ctx.now_ns + self._ctx.config.leader_heartbeat_timeout_ns

    def _poll_waiting(self) -> None:
        ctx = self._ctx
        state, source_id = self._election.state, ctx.log_source_id
        if ctx.now_ns >= self.deadline_ns:
            self._give_up_source()
            self._election.restart(Reason(K.NO_PROGRESS, state=state.name), is_failure=True)
            return
        if ctx.now_ns >= self.next_status_ns:
            self._report_append_position()
        if state is _S.FOLLOWER_CATCHUP_AWAIT and source_id is not None and ctx.now_ns >= self._ask_again_ns:
            self._ask_for_catchup(source_id)

    # --- helpers

    def _ask_for_catchup(self, source_id: MemberId) -> None:
        """Ask for a replay; a member that is not in the term yet says nothing, so it is asked again."""
        ctx = self._ctx
        dialogue.send_catchup_position(ctx, source_id)
        pause_ns = _ASK_HEARTBEATS * ctx.config.leader_heartbeat_interval_ns
        self._ask_again_ns = ctx.now_ns + pause_ns if ctx.is_relayed else NEVER_NS

    def _give_up_source(self) -> None:
        if self._ctx.is_relayed:
            self._ctx.log_source.give_up(self._ctx.leadership_term_id, self._ctx.now_ns)

    def _on_leader_alive(self, commit_position: int | None) -> None:
        ctx = self._ctx
        ctx.note_leader(commit_position)
        ctx.advance_commit()
        if self._election.state is _S.FOLLOWER_CATCHUP:
            self._join_live_when_near()

    def _join_live_when_near(self) -> None:
        ctx = self._ctx
        target = max(self._catchup_join_position, ctx.notified_commit_position)
        is_near = ctx.append_position >= target - self._near_bytes
        if self._is_live_joined or not is_near or not self._has_caught_up_as_voter():
            return
        if not ctx.is_relayed:
            ctx.emit(fx.JoinLiveLog(self._log_session_id))
            return
        self._is_live_joined = True
        ctx.emit(fx.FollowCatchup())
        self._election.enter(_S.FOLLOWER_LOG_INIT, Reason(K.CAUGHT_UP))

    def _has_caught_up_as_voter(self) -> bool:
        """Whether this log holds all that the leader's held when this member came.

        A voter joins the live log sooner, to be counted sooner. A member without a vote is counted only for what comes
        later, so it takes all of this from the leader's archive.
        """
        ctx = self._ctx
        return ctx.is_voter or ctx.append_position >= self._catchup_join_position

    def _report_append_position(self) -> None:
        """Tell the leader what is recorded here.

        In log replication the term is an older one, so it does not count.
        """
        ctx = self._ctx
        self.next_status_ns = ctx.now_ns + self.status_interval_ns
        dialogue.send_append_position(
            ctx,
            self._leader_member_id,
            leadership_term_id=ctx.log_leadership_term_id,
            is_catchup=self._election.state in (_S.FOLLOWER_CATCHUP_AWAIT, _S.FOLLOWER_CATCHUP),
        )
