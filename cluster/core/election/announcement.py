"""A leader announces its term to a member that knows of none: the member follows it, or makes its log fit for it first.

What this log has and the leader's has not never committed: it is cut off, or the mark of its term is taken back. What
the leader's log has and this one has not is copied, one leadership term a round, and a canvass follows each round.

Source: seed 001, "Replication and Catchup Details"; aeron.md §2.3-§2.5.
"""

from __future__ import annotations

from ....service_api import Role, invariant
from ....service_api.types import NULL_POSITION, NULL_VALUE, MemberId
from ...messages.consensus import NewLeadershipTerm
from ..peers import dialogue
from ..vocabulary.election_state import ElectionState
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from .election import Election
from .follower_phase import FollowerPhase


class Announcement:
    """What a member does with a NewLeadershipTerm in a canvass or a ballot."""

    def __init__(self, election: Election) -> None:
        self._election, self._ctx = election, election.ctx

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """A leader announces itself: follow it, or make this log fit for it first."""
        ctx, election = self._ctx, self._election
        if ctx.lacks_seed or election.refuses(message):
            return
        if message.log_leadership_term_id != ctx.log_leadership_term_id:
            self._answer_with_canvass(message)
        elif NULL_VALUE < message.next_leadership_term_id == ctx.log_leadership_term_id:
            self._drop_failed_term(message)
        elif NULL_POSITION < message.next_term_base_log_position < ctx.append_position:
            reason = Reason(
                K.SURPLUS_LOG,
                append_position=ctx.append_position,
                next_term_id=message.next_leadership_term_id,
                next_term_base_log_position=message.next_term_base_log_position,
            )
            election.restart(reason, truncate_position=message.next_term_base_log_position)
        elif not election.fetch.is_due_from(message):
            self._follow(message)

    def _answer_with_canvass(self, message: NewLeadershipTerm) -> None:
        """Tell a leader that spoke about another log term where this log really ends; its answer will fit."""
        election = self._election
        if election.state in (ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT):
            reason = Reason(
                K.LEADER_ANSWERED_FOR_OTHER_LOG,
                leader_member_id=message.leader_member_id,
                log_term_id=message.log_leadership_term_id,
            )
            election.enter(ElectionState.CANVASS, reason)
        else:
            self._ctx.send(MemberId(message.leader_member_id), dialogue.canvass_position(self._ctx))

    def _drop_failed_term(self, message: NewLeadershipTerm) -> None:
        """Take back the mark of the last term, which no quorum entered: it began, if at all, beyond this log's end.

        No majority can have it here, or the leader would. With it, what is copied next would pass for that term's.
        """
        ctx = self._ctx
        entry = ctx.recording_log.term_entry(ctx.log_leadership_term_id)
        if entry is not None and entry.term_base_log_position != message.next_term_base_log_position:
            ctx.drop_log_term()
        self._answer_with_canvass(message)

    def _follow(self, message: NewLeadershipTerm) -> None:
        """Follow the leader of this message: its log and this one agree up to this one's end."""
        ctx, election = self._ctx, self._election
        election.fetch.end(message.leader_member_id)
        election.is_extended_canvass = False
        ctx.observe_candidate_term(message.leadership_term_id)
        ctx.is_cluster_formed = True
        ctx.enter_term(message.leadership_term_id, MemberId(message.leader_member_id), message.log_session_id)
        ctx.term_base_log_position = message.term_base_log_position
        ctx.note_leader(message.commit_position)
        if ctx.append_position < message.term_base_log_position:
            self._replicate(message)
            return
        ctx.role = Role.FOLLOWER
        if ctx.log_leadership_term_id < message.leadership_term_id:
            ctx.begin_log_term(message.leadership_term_id, message.term_base_log_position)
        election.enter(
            ElectionState.FOLLOWER_REPLAY,
            Reason(K.LEADER_ANNOUNCED, leader_member_id=message.leader_member_id),
            FollowerPhase(election, message),
        )

    def _replicate(self, message: NewLeadershipTerm) -> None:
        """Decide what one round of log replication copies: the rest of this log's term, or the whole next one."""
        ctx, election = self._ctx, self._election
        if message.next_term_base_log_position == NULL_POSITION:
            reason = Reason(
                K.NEXT_TERM_UNKNOWN,
                leader_member_id=message.leader_member_id,
                log_term_id=ctx.log_leadership_term_id,
            )
            election.restart(reason, is_failure=True)
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
        phase = FollowerPhase(election, message)
        reason = Reason(K.TERM_MISSING, term_id=term_id, position=stop_position)
        election.enter(ElectionState.FOLLOWER_LOG_REPLICATION, reason, phase)
        phase.replicate(term_id, stop_position)
