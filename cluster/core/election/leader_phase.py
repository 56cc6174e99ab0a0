"""The left column of the election's diagram: a member that has won, until a quorum is in its term.

Source: seed 001; aeron.md §2.3 LEADER_LOG_REPLICATION to LEADER_READY.
"""

from __future__ import annotations

from ....service_api import Role
from ....service_api.types import NULL_POSITION, MemberId
from ...messages.consensus import AppendPosition, CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote, Vote
from .. import effects as fx
from ..events import ActivityFailed, ReplayDone
from ..peers import dialogue
from ..vocabulary.election_state import ElectionState
from ..vocabulary.members import quorum_position
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from . import higher_term
from .election import Election, ElectionPhase
from .voting import Voting


class LeaderPhase(ElectionPhase):
    """The states of the winner."""

    is_without_leader = False

    def __init__(self, election: Election) -> None:
        super().__init__(election, status_interval_ns=election.ctx.config.leader_heartbeat_interval_ns)
        self.states = {
            ElectionState.LEADER_LOG_REPLICATION: (
                self._enter_leader_log_replication,
                self._poll_leader_log_replication,
            ),
            ElectionState.LEADER_REPLAY: (self._enter_leader_replay, self._poll_leader_replay),
            ElectionState.LEADER_INIT: (self._enter_leader_init, self._poll_leader_replay),
            ElectionState.LEADER_READY: (self._enter_leader_ready, self._poll_leader_replay),
        }
        self.handlers = {
            CanvassPosition: self.on_canvass_position,
            RequestVote: Voting(election).on_request_vote,
            Vote: self.on_vote,
            NewLeadershipTerm: self.on_new_leadership_term,
            AppendPosition: self.on_append_position,
            CommitPosition: self.on_commit_position,
            ReplayDone: self.on_replay_done,
            ActivityFailed: self.on_activity_failed,
        }

    # --- messages and events

    def on_canvass_position(self, message: CanvassPosition) -> None:
        """A member says where its log ends: it is told what it needs, unless it is in a higher term."""
        ctx = self._ctx
        member = ctx.note_canvass(message)
        reason = higher_term.of_canvass(ctx, message)
        if reason is not None:
            self._election.restart(reason)
        else:
            dialogue.send_new_leadership_term(ctx, member, is_startup=self._election.is_node_startup)

    def on_vote(self, message: Vote) -> None:
        """A vote that was not needed any more."""
        dialogue.answer_vote_of_this_term(self._ctx, message, is_startup=self._election.is_node_startup)

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """Another member leads: nothing to this one, unless its term is higher."""
        reason = None if self._election.refuses(message) else higher_term.of_leader(self._ctx, message)
        if reason is not None:
            self._election.restart(reason)

    def on_commit_position(self, message: CommitPosition) -> None:
        """Another member leads: nothing to this one, unless its term is higher."""
        reason = higher_term.of_commit(self._ctx, message)
        if reason is not None:
            self._election.restart(reason)

    def on_append_position(self, message: AppendPosition) -> None:
        """A follower reports what it has recorded."""
        ctx = self._ctx
        if message.leadership_term_id > ctx.leadership_term_id:
            return
        member = ctx.members[MemberId(message.follower_member_id)]
        member.on_append(message)
        member.time_of_last_append_ns = ctx.now_ns
        self._election.poll()

    def on_replay_done(self, event: ReplayDone) -> None:
        """The whole log was processed."""
        ctx = self._ctx
        ctx.cluster_clock.note_replayed(event.timestamp, ctx.now_ns)
        if self._election.state is ElectionState.LEADER_REPLAY:
            self._election.enter(ElectionState.LEADER_INIT, Reason(K.REPLAYED, position=event.position))

    # --- states, in the order of the diagram

    def _enter_leader_log_replication(self) -> None:
        ctx = self._ctx
        ctx.role = Role.LEADER
        ctx.enter_term(ctx.candidate_term_id, ctx.config.member_id, int(ctx.random() * 0x7FFF_FFFE) + 1)
        ctx.term_base_log_position = ctx.append_position
        for member in ctx.members.values():
            member.forget_term()
        ctx.begin_log_term(ctx.leadership_term_id, ctx.append_position)
        ctx.emit(fx.OpenLogPublication(ctx.leadership_term_id, ctx.log_session_id))
        self._announce()
        self._poll_leader_log_replication()

    def _poll_leader_log_replication(self) -> None:
        ctx = self._ctx
        if self._quorum_position() >= ctx.append_position:
            reason = Reason(K.QUORUM_HOLDS_LOG, position=ctx.append_position)
            self._election.enter(ElectionState.LEADER_REPLAY, reason)
        else:
            self._poll_leader_replay()

    def _enter_leader_replay(self) -> None:
        ctx = self._ctx
        ctx.commit_position = max(ctx.commit_position, ctx.append_position)
        ctx.emit(fx.CommitAdvanced(ctx.commit_position))
        ctx.emit(fx.StartReplay(ctx.append_position))

    def _poll_leader_replay(self) -> None:
        if not self._give_up_without_quorum() and self._ctx.now_ns >= self.next_status_ns:
            self._announce()

    def _enter_leader_init(self) -> None:
        self._election.enter(ElectionState.LEADER_READY, Reason(K.LOG_OPEN))

    def _enter_leader_ready(self) -> None:
        self._election.enter(ElectionState.CLOSED, Reason(K.QUORUM_IN_TERM))

    # --- helpers

    def _give_up_without_quorum(self) -> bool:
        """Step down when a majority has not been heard for a heartbeat timeout, however well they may hear this one."""
        ctx = self._ctx
        if ctx.now_ns - self._election.state_entered_ns < 2 * ctx.config.leader_heartbeat_timeout_ns:
            return False
        if ctx.is_majority(ctx.count_active_members()):
            return False
        self._election.restart(Reason(K.NO_FOLLOWER_QUORUM), is_failure=True)
        return True

    def _announce(self) -> None:
        """Tell every member that has spoken about the term, and all how far the log is committed."""
        ctx = self._ctx
        self.next_status_ns = ctx.now_ns + self.status_interval_ns
        for member in ctx.others:
            if member.log_position != NULL_POSITION:
                dialogue.send_new_leadership_term(ctx, member, is_startup=self._election.is_node_startup)
        dialogue.broadcast_commit_position(ctx)

    def _quorum_position(self) -> int:
        ctx = self._ctx
        ctx.note_own_append()
        return quorum_position(
            ctx.voting_members,
            leadership_term_id=ctx.leadership_term_id,
            now_ns=ctx.now_ns,
            heartbeat_timeout_ns=ctx.config.leader_heartbeat_timeout_ns,
        )
