"""CANDIDATE_BALLOT and FOLLOWER_BALLOT: votes are asked for, given and counted.

- *A ballot ends as soon as its outcome is certain.* Won, the term begins; lost, there is another canvass and another
  random delay, longer and longer, so that two candidates get out of each other's way.
- *A successor* (`transfer`) *has won with a quorum*: who has not answered by then is told who leads when it does.
- *A no is a veto in the first ballot only.* It says that somebody has a newer log or another candidate; but it may come
  from a member that nobody else can hear.

Source: seed 001; aeron.md §2.3 CANDIDATE_BALLOT and FOLLOWER_BALLOT.
"""

from __future__ import annotations

from ....service_api import Role
from ....service_api.types import NULL_TERM_ID, MemberId
from ...messages.consensus import CanvassPosition, NewLeadershipTerm, RequestVote, Vote
from ..events import ActivityFailed, LinkChanged
from ..peers import dialogue
from ..vocabulary.election_state import ElectionState
from ..vocabulary.members import is_ballot_open, is_quorum_leader, is_unanimous_leader, may_vote_for
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from .announcement import Announcement
from .election import Election, ElectionPhase
from .voting import Voting, excused


class Ballot(ElectionPhase):
    """A member stands, or has voted for one that does."""

    def __init__(self, election: Election) -> None:
        super().__init__(election, status_interval_ns=election.ctx.config.election_status_interval_ns)
        self.states = {
            ElectionState.CANDIDATE_BALLOT: (self._enter_candidate_ballot, self._poll_candidate_ballot),
            ElectionState.FOLLOWER_BALLOT: (self._enter_follower_ballot, self._poll_follower_ballot),
        }
        self.handlers = {
            CanvassPosition: self.on_canvass_position,
            RequestVote: Voting(election).on_request_vote,
            Vote: self.on_vote,
            NewLeadershipTerm: Announcement(election).on_new_leadership_term,
            LinkChanged: self.on_link_changed,
            ActivityFailed: self.on_activity_failed,
        }

    def on_canvass_position(self, message: CanvassPosition) -> None:
        """A member says where its log ends; the candidate that this one voted for has given up if it canvasses."""
        ctx, election = self._ctx, self._election
        member_id = MemberId(message.follower_member_id)
        if election.state is ElectionState.CANDIDATE_BALLOT:
            if not ctx.note_canvass(message).is_voter:
                self._poll_candidate_ballot()
        elif ctx.vote_given == (ctx.candidate_term_id, member_id):
            election.enter(ElectionState.CANVASS, Reason(K.CANDIDATE_GAVE_UP, member_id=member_id))
            election.handlers[CanvassPosition](message)
        else:
            ctx.note_canvass(message)

    def on_vote(self, message: Vote) -> None:
        """Count a vote, if it is for this ballot."""
        ctx = self._ctx
        if (
            self._election.state is not ElectionState.CANDIDATE_BALLOT
            or message.candidate_term_id != ctx.candidate_term_id
            or message.candidate_member_id != ctx.config.member_id
        ):
            return
        member = ctx.members[MemberId(message.follower_member_id)]
        member.candidate_term_id = message.candidate_term_id
        member.log_leadership_term_id = message.log_leadership_term_id
        member.log_position = message.log_position
        member.vote = member.vote or bool(message.vote)  # a vote that was given is not taken back
        self._poll_candidate_ballot()

    def on_link_changed(self, event: LinkChanged) -> None:
        """A member's process came or went: there may be one less to wait for."""
        self._election.on_link_changed(event)
        if not event.is_up and self._election.state is ElectionState.CANDIDATE_BALLOT:
            self._poll_candidate_ballot()

    def _enter_candidate_ballot(self) -> None:
        ctx = self._ctx
        ctx.role = Role.CANDIDATE
        for member in ctx.others:
            member.vote = None
            member.candidate_term_id = NULL_TERM_ID
        ctx.me.vote = True
        ctx.me.candidate_term_id = ctx.candidate_term_id
        ctx.note_own_log()
        self.deadline_ns = ctx.now_ns + ctx.config.election_timeout_ns
        self._request_votes()

    def _poll_candidate_ballot(self) -> None:
        ctx, election = self._ctx, self._election
        members, term_id, absent = ctx.voting_members, ctx.candidate_term_id, excused(election)
        is_first = election.failed_ballot_count == 0
        if is_unanimous_leader(members, term_id, absent):
            election.enter(ElectionState.LEADER_LOG_REPLICATION, Reason(K.UNANIMOUS_VOTE))
        elif election.is_successor and is_quorum_leader(members, term_id, is_no_a_veto=False):
            election.enter(ElectionState.LEADER_LOG_REPLICATION, Reason(K.QUORUM_VOTE_FOR_SUCCESSOR))
        elif ctx.now_ns < self.deadline_ns and is_ballot_open(members, term_id, absent, is_no_a_veto=is_first):
            if ctx.now_ns >= self.next_status_ns:
                self._request_votes()
        elif is_quorum_leader(members, term_id, is_no_a_veto=is_first):
            reason = Reason(K.QUORUM_VOTE if is_first else K.QUORUM_VOTE_AGAIN)
            election.enter(ElectionState.LEADER_LOG_REPLICATION, reason)
        else:
            election.failed_ballot_count += 1
            election.enter(ElectionState.CANVASS, Reason(K.BALLOT_NOT_WON, term_id=term_id))

    def _request_votes(self) -> None:
        ctx = self._ctx
        self.next_status_ns = ctx.now_ns + self.status_interval_ns
        for member in ctx.others:
            if member.vote is None and may_vote_for(member, ctx.me):
                dialogue.send_request_vote(ctx, member.member_id)

    def _enter_follower_ballot(self) -> None:
        ctx, config = self._ctx, self._ctx.config
        ctx.role = Role.FOLLOWER
        self._election.is_extended_canvass = False
        # Longer than the candidate's ballot, which may be won at its very end: the winner has to mark its term first.
        self.deadline_ns = ctx.now_ns + config.election_timeout_ns + config.election_status_interval_ns
        self.next_status_ns = self.deadline_ns  # a voter has nothing to repeat, but may find itself too late

    def _poll_follower_ballot(self) -> None:
        if self._ctx.now_ns >= self.deadline_ns:
            self._election.enter(ElectionState.CANVASS, Reason(K.NO_LEADER_OF_BALLOT))
