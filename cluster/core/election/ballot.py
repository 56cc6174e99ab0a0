"""The top of the election's diagram: who stands, who votes, and who wins.

The canvass is a survey that doubles as Raft's pre-vote: nobody raises a term that a majority would not vote for. Who
finds its log the newest waits a random while, raises the term and asks for votes.

- *A vote is given once, and stays given.* It is durable before it is sent; this process remembers for whom it was and
  says so again when asked again. After a restart only the term is known, and the answer is no.
- *Nobody waits for who will not answer*: who cannot be reached, who may not vote, and in a ballot who said nothing in
  the canvass before it. A leader that was stopped or cut off keeps its connections for long.
- *A ballot ends as soon as its outcome is certain.* Won, the term begins; lost, there is another canvass and another
  random delay, longer and longer, so that two candidates get out of each other's way.
- *A no is a veto in the first ballot only.* It says that somebody has a newer log or another candidate; but it may come
  from a member that nobody else can hear.

Source: seed 001; aeron.md §2.3 CANVASS to FOLLOWER_BALLOT, §2.4, §2.8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from trimaran.service_api import Role
from trimaran.service_api.types import NULL_POSITION, NULL_TERM_ID, MemberId, TermId

from ...messages.consensus import CanvassPosition, RequestVote, Vote
from .. import dialogue
from .. import effects as fx
from ..context import ConsensusContext
from ..election_state import BALLOT_STATES, LEADER_STATES, ElectionState
from ..members import (
    ClusterMember,
    compare_log,
    is_ballot_open,
    is_empty_log,
    is_quorum_candidate,
    is_quorum_leader,
    is_unanimous_candidate,
    is_unanimous_leader,
    may_vote_for,
    quorum_threshold,
)
from ..reason import Reason
from ..reason import ReasonKind as K
from .follower_phase import Leader, Replication


class BallotPhase(ABC):
    """The states of an `Election` up to the ballot's end. That is the only class that derives from this one."""

    _ctx: ConsensusContext
    _leader: Leader | None
    _replication: Replication | None
    _deadline_ns: int
    _next_status_ns: int
    _is_extended_canvass: bool
    _failed_ballot_count: int
    _nomination_refused: Reason | None
    is_leader_startup: bool
    state: ElectionState
    state_entered_ns: int

    @abstractmethod
    def poll(self) -> None:
        """Do what time has made due."""

    @abstractmethod
    def _enter(self, new: ElectionState, reason: Reason) -> None:
        """The one door to another state."""

    @abstractmethod
    def restart(self, reason: Reason, *, is_failure: bool = False) -> None:
        """Go back to INIT."""

    # --- messages

    def on_canvass_position(self, message: CanvassPosition) -> None:
        """A member says where its log ends; a leader tells it what it needs, a candidate counts it."""
        ctx = self._ctx
        if self.state is ElectionState.INIT:
            return
        member = ctx.members[MemberId(message.follower_member_id)]
        is_voted_for = ctx.vote_given == (ctx.candidate_term_id, member.member_id)
        if self.state is ElectionState.FOLLOWER_BALLOT and is_voted_for:
            self._enter(ElectionState.CANVASS, Reason(K.CANDIDATE_GAVE_UP, member_id=member.member_id))
        state = self.state
        is_news = member.log_position == NULL_POSITION
        member.on_canvass(message.log_leadership_term_id, message.log_position)
        member.time_of_last_canvass_ns = ctx.now_ns
        member.is_voter = message.leadership_term_id > NULL_TERM_ID
        self._note_log(message.log_leadership_term_id, message.log_position)
        if is_news and state in (ElectionState.CANVASS, ElectionState.NOMINATE):
            ctx.send(member.member_id, dialogue.canvass_position(ctx))  # it may have come after our last canvass
        if state in LEADER_STATES:
            highest = max(message.leadership_term_id, message.log_leadership_term_id)
            if highest > ctx.leadership_term_id:
                self.restart(Reason(K.HIGHER_TERM_CANVASS, member_id=member.member_id, term_id=highest))
            else:
                dialogue.send_new_leadership_term(ctx, member, is_startup=self.is_leader_startup)
        elif state is ElectionState.CANVASS or (state is ElectionState.CANDIDATE_BALLOT and not member.is_voter):
            self.poll()

    def on_request_vote(self, message: RequestVote) -> None:
        """Vote, at most once in a term, and only for a log that is no older than this member's."""
        ctx = self._ctx
        if self.state is ElectionState.INIT:
            return
        candidate_id = MemberId(message.candidate_member_id)
        self._note_log(message.log_leadership_term_id, message.log_position)
        if not ctx.is_voter and ctx.is_cluster_formed:
            self._abstain(message)
            return
        if (message.candidate_term_id, candidate_id) == ctx.vote_given:
            self._repeat_vote(message)
            return
        if message.candidate_term_id <= ctx.candidate_term_id:
            self._refuse_vote(message, Reason(K.VOTED_IN_TERM, candidate_term_id=ctx.candidate_term_id))
            return
        if compare_own_log(ctx, message) > 0:
            ctx.observe_candidate_term(message.candidate_term_id)
            self._refuse_vote(message, own_log_newer(ctx, message))
            reason = Reason(
                K.HIGHER_TERM_CANDIDATE,
                member_id=candidate_id,
                term_id=message.candidate_term_id,
                comparison="an older log",
            )
            if self.state in LEADER_STATES:
                self.restart(reason)
            elif self.state in (ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT):
                # The ballot that this member waits for is of a term that it takes no part in any more.
                self._enter(ElectionState.CANVASS, reason)
        elif self.state in BALLOT_STATES:
            ctx.propose_candidate_term(message.candidate_term_id)
            ctx.vote_given = (message.candidate_term_id, candidate_id)
            dialogue.send_vote(ctx, message, vote=True)
            self._enter(ElectionState.FOLLOWER_BALLOT, Reason(K.VOTED, member_id=candidate_id))

    def on_vote(self, message: Vote) -> None:
        """Count a vote, if it is for this ballot."""
        ctx = self._ctx
        if (
            self.state is not ElectionState.CANDIDATE_BALLOT
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

    # --- states, in the order of the diagram

    def _enter_canvass(self) -> None:
        ctx = self._ctx
        ctx.role = Role.FOLLOWER
        ctx.leader_member_id = None
        self._leader = None
        self._replication = None
        for member in ctx.others:
            member.forget_election()
        self._refresh_own_view()
        if self._is_extended_canvass:
            self._deadline_ns = self.state_entered_ns + ctx.config.startup_canvass_timeout_ns
        elif ctx.time_of_last_leader_ns is None:
            self._deadline_ns = ctx.now_ns
        else:
            self._deadline_ns = ctx.time_of_last_leader_ns + ctx.config.leader_heartbeat_timeout_ns
        self._canvass()

    def _poll_canvass(self) -> None:
        ctx = self._ctx
        self._forget_silent()
        members = list(ctx.members.values())
        if not ctx.is_voter and ctx.is_cluster_formed:
            self._refuse_nomination(Reason(K.NO_FRANCHISE))
        elif is_unanimous_candidate(members, ctx.me, self._excused()):
            self._enter(ElectionState.NOMINATE, Reason(K.NEWEST_LOG_OF_ALL))
        elif ctx.now_ns >= self._deadline_ns and is_quorum_candidate(members, ctx.me):
            self._enter(ElectionState.NOMINATE, Reason(K.NEWEST_LOG_OF_QUORUM))
        elif ctx.now_ns >= self._deadline_ns:
            self._explain_missing_quorum()
        if self.state is ElectionState.CANVASS and ctx.now_ns >= self._next_status_ns:
            self._canvass()

    def _enter_nominate(self) -> None:
        ctx = self._ctx
        self._is_extended_canvass = False
        delay_limit_ns = ctx.config.election_timeout_ns // 2 << min(max(self._failed_ballot_count - 2, 0), 5)
        self._deadline_ns = ctx.now_ns + int(ctx.random() * delay_limit_ns)

    def _poll_nominate(self) -> None:
        ctx = self._ctx
        if not ctx.is_voter and ctx.is_cluster_formed:
            self.restart(Reason(K.NO_FRANCHISE))
        elif ctx.now_ns >= self._deadline_ns and not is_quorum_candidate(list(ctx.members.values()), ctx.me):
            self.restart(Reason(K.CANVASS_OUTDATED))
        elif ctx.now_ns >= self._deadline_ns:
            ctx.propose_candidate_term(TermId(ctx.candidate_term_id + 1))
            self._enter(ElectionState.CANDIDATE_BALLOT, Reason(K.NOMINATION, term_id=ctx.candidate_term_id))
        elif ctx.now_ns >= self._next_status_ns:
            self._canvass()

    def _enter_candidate_ballot(self) -> None:
        ctx = self._ctx
        ctx.role = Role.CANDIDATE
        for member in ctx.others:
            member.vote = None
            member.candidate_term_id = NULL_TERM_ID
        ctx.me.vote = True
        ctx.me.candidate_term_id = ctx.candidate_term_id
        self._refresh_own_view()
        self._deadline_ns = ctx.now_ns + ctx.config.election_timeout_ns
        self._request_votes()

    def _poll_candidate_ballot(self) -> None:
        ctx = self._ctx
        members, term_id, excused = list(ctx.members.values()), ctx.candidate_term_id, self._excused()
        is_first = self._failed_ballot_count == 0
        if is_unanimous_leader(members, term_id, excused):
            self._enter(ElectionState.LEADER_LOG_REPLICATION, Reason(K.UNANIMOUS_VOTE))
        elif ctx.now_ns < self._deadline_ns and is_ballot_open(members, term_id, excused, is_no_a_veto=is_first):
            if ctx.now_ns >= self._next_status_ns:
                self._request_votes()
        elif is_quorum_leader(members, term_id, is_no_a_veto=is_first):
            reason = Reason(K.QUORUM_VOTE if is_first else K.QUORUM_VOTE_AGAIN)
            self._enter(ElectionState.LEADER_LOG_REPLICATION, reason)
        else:
            self._failed_ballot_count += 1
            self._enter(ElectionState.CANVASS, Reason(K.BALLOT_NOT_WON, term_id=term_id))

    def _enter_follower_ballot(self) -> None:
        self._ctx.role = Role.FOLLOWER
        config = self._ctx.config
        self._is_extended_canvass = False
        # Longer than the candidate's ballot, which may be won at its very end: the winner has to mark its term first.
        self._deadline_ns = self._ctx.now_ns + config.election_timeout_ns + config.election_status_interval_ns
        self._next_status_ns = self._deadline_ns  # a voter has nothing to repeat, but may find itself too late

    def _poll_follower_ballot(self) -> None:
        if self._ctx.now_ns >= self._deadline_ns:
            self._enter(ElectionState.CANVASS, Reason(K.NO_LEADER_OF_BALLOT))

    # --- helpers

    def _repeat_vote(self, message: RequestVote) -> None:
        """Say yes again to the candidate of this ballot, whose second request crossed the answer to its first.

        A member that is through with that ballot says nothing: a no would contradict the yes.
        """
        if self.state in BALLOT_STATES and message.candidate_term_id == self._ctx.candidate_term_id:
            dialogue.send_vote(self._ctx, message, vote=True)

    def _refuse_vote(self, message: RequestVote, reason: Reason) -> None:
        ctx = self._ctx
        ctx.emit(fx.VoteRefused(MemberId(message.candidate_member_id), message.candidate_term_id, reason))
        dialogue.send_vote(ctx, message, vote=False)

    def _abstain(self, message: RequestVote) -> None:
        """Neither yes nor no: a no would be a veto. A canvass that names no term tells why."""
        ctx, candidate_id = self._ctx, MemberId(message.candidate_member_id)
        if self.state in BALLOT_STATES:
            ctx.emit(fx.VoteRefused(candidate_id, message.candidate_term_id, Reason(K.NO_FRANCHISE)))
            ctx.send(candidate_id, dialogue.canvass_position(ctx))

    def _note_log(self, log_leadership_term_id: int, log_position: int) -> None:
        if not is_empty_log(log_leadership_term_id, log_position):
            self._ctx.is_cluster_formed = True

    def _refuse_nomination(self, reason: Reason) -> None:
        """Say, once while it holds, why this canvass leads to no nomination."""
        if reason != self._nomination_refused:
            self._nomination_refused = reason
            self._ctx.emit(fx.NominationRefused(reason))

    def _explain_missing_quorum(self) -> None:
        """Say so when too few members are voters for a quorum."""
        ctx = self._ctx
        spoken = [member for member in ctx.members.values() if member.log_position != NULL_POSITION]
        barred = [member for member in spoken if not may_vote_for(member, ctx.me)]
        if barred and len(spoken) >= quorum_threshold(len(ctx.members)):
            self._refuse_nomination(
                Reason(
                    K.NO_FRANCHISED_QUORUM,
                    member_ids=", ".join(str(member.member_id) for member in barred),
                    voter_count=len(spoken) - len(barred),
                    member_count=len(ctx.members),
                )
            )

    def _canvass(self) -> None:
        self._next_status_ns = self._ctx.now_ns + self._ctx.config.election_status_interval_ns
        self._ctx.broadcast(dialogue.canvass_position(self._ctx))

    def _request_votes(self) -> None:
        ctx = self._ctx
        self._next_status_ns = ctx.now_ns + ctx.config.election_status_interval_ns
        for member in ctx.others:
            if member.vote is None and may_vote_for(member, ctx.me):
                dialogue.send_request_vote(ctx, member.member_id)

    def _excused(self) -> set[MemberId]:
        """Whom not to wait for: who cannot be reached, except at the first canvass after a start, or may not vote.

        In a ballot also who said nothing in the canvass before it, such as the leader whose silence began the election:
        one that was stopped or cut off keeps its connections for long.
        """
        me, is_waiting_for_all = self._ctx.me, self._is_extended_canvass
        is_ballot = self.state is ElectionState.CANDIDATE_BALLOT
        return {
            member.member_id
            for member in self._ctx.others
            if not (member.is_reachable or is_waiting_for_all)
            or not may_vote_for(member, me)
            or (is_ballot and member.log_position == NULL_POSITION)
        }

    def _forget_silent(self) -> None:
        """Drop what a member said that canvasses no more: it may follow a leader by now that this one cannot hear."""
        ctx = self._ctx
        for member in ctx.others:
            if ctx.now_ns - member.time_of_last_canvass_ns > ctx.config.leader_heartbeat_timeout_ns:
                member.forget_election()

    def _refresh_own_view(self) -> None:
        ctx = self._ctx
        me: ClusterMember = ctx.me
        me.log_leadership_term_id = ctx.log_leadership_term_id
        me.log_position = ctx.append_position
        me.is_voter = True  # without it, it stands for an empty log only


def compare_own_log(ctx: ConsensusContext, message: RequestVote) -> int:
    """Compare this member's log with the candidate's: positive when this one is newer."""
    return compare_log(
        ctx.log_leadership_term_id, ctx.append_position, message.log_leadership_term_id, message.log_position
    )


def own_log_newer(ctx: ConsensusContext, message: RequestVote) -> Reason:
    """Say where the two logs end."""
    return Reason(
        K.OWN_LOG_NEWER,
        log_term_id=ctx.log_leadership_term_id,
        append_position=ctx.append_position,
        candidate_log_term_id=message.log_leadership_term_id,
        candidate_log_position=message.log_position,
    )
