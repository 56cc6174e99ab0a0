"""CANVASS and NOMINATE: find the member with the newest log, which may stand.

The canvass is a survey that doubles as Raft's pre-vote: nobody raises a term that a majority would not vote for. Who
finds its log the newest waits a random while, raises the term and asks for votes. A member that is reluctant to lead
first leaves this to a willing one (`reluctance`).

Source: seed 001; aeron.md §2.3 CANVASS and NOMINATE.
"""

from __future__ import annotations

from ....service_api import Role
from ....service_api.types import NULL_POSITION, MemberId
from ...messages.consensus import CanvassPosition, NewLeadershipTerm, RequestVote
from ..events import ActivityFailed, LinkChanged
from ..peers import dialogue
from ..vocabulary.election_state import ElectionState
from ..vocabulary.members import (
    ClusterMember,
    is_quorum_candidate,
    is_unanimous_candidate,
    may_vote_for,
)
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from ..vocabulary.reluctance import HOLD_BACK_ELECTION_TIMEOUTS, able_members, has_equal_log
from .announcement import Announcement
from .election import Election, ElectionPhase
from .voting import Voting, excused


class Canvass(ElectionPhase):
    """A member asks where the others' logs end, and perhaps is to stand."""

    def __init__(self, election: Election) -> None:
        super().__init__(election, status_interval_ns=election.ctx.config.election_status_interval_ns)
        self.states = {
            ElectionState.CANVASS: (self._enter_canvass, self._poll_canvass),
            ElectionState.NOMINATE: (self._enter_nominate, self._poll_nominate),
        }
        self.handlers = {
            CanvassPosition: self.on_canvass_position,
            RequestVote: Voting(election).on_request_vote,
            NewLeadershipTerm: Announcement(election).on_new_leadership_term,
            LinkChanged: self.on_link_changed,
            ActivityFailed: self.on_activity_failed,
        }

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        if self._election.state is ElectionState.NOMINATE:
            return min(self.deadline_ns, self.next_status_ns)
        return super().next_deadline_ns()

    def on_canvass_position(self, message: CanvassPosition) -> None:
        """A member says where its log ends. Who speaks first is answered: our last canvass may have been too early."""
        ctx, member_id = self._ctx, MemberId(message.follower_member_id)
        is_news = ctx.members[member_id].log_position == NULL_POSITION
        ctx.note_canvass(message)
        if is_news:
            ctx.send(member_id, dialogue.canvass_position(ctx))
        if self._election.state is ElectionState.CANVASS:
            self._poll_canvass()

    def on_link_changed(self, event: LinkChanged) -> None:
        """A member's process came or went: there may be one less to wait for."""
        self._election.on_link_changed(event)
        if not event.is_up and self._election.state is ElectionState.CANVASS:
            self._poll_canvass()

    def _enter_canvass(self) -> None:
        ctx = self._ctx
        self._election.is_successor = False
        ctx.role = Role.FOLLOWER
        ctx.forget_leader()
        for member in ctx.others:
            member.forget_election()
        ctx.note_own_log()
        if self._election.is_extended_canvass:
            self.deadline_ns = ctx.now_ns + ctx.config.startup_canvass_timeout_ns
        else:
            self.deadline_ns = ctx.time_of_last_leader_ns + ctx.config.leader_heartbeat_timeout_ns
        self._canvass()

    def _poll_canvass(self) -> None:
        ctx, election = self._ctx, self._election
        self._forget_silent()
        is_over = ctx.now_ns >= self.deadline_ns
        if ctx.lacks_seed:
            election.fetch_seed()
        elif ctx.is_barred:
            election.refuse_nomination(Reason(K.NOT_A_VOTER))
        elif not ctx.may_stand:
            election.refuse_nomination(ctx.vote_state_reason)
        elif not ctx.roster.may_stand:
            kind = K.NOT_COUNTED if ctx.roster.history.is_complete else K.MEMBERS_UNKNOWN
            election.refuse_nomination(Reason(kind, members=ctx.roster.current.describe()))
        elif is_unanimous_candidate(ctx.voting_members, ctx.me, excused(election)):
            self._nominate(Reason(K.NEWEST_LOG_OF_ALL))
        elif is_over and is_quorum_candidate(ctx.voting_members, ctx.me):
            self._nominate(Reason(K.NEWEST_LOG_OF_QUORUM))
        elif is_over:
            self._explain_missing_quorum()
        if election.state is ElectionState.CANVASS and ctx.now_ns >= self.next_status_ns:
            self._canvass()

    def _nominate(self, reason: Reason) -> None:
        """Go on to stand, unless this member is reluctant and a willing one has not had its time yet.

        A witness is the most reluctant of all: it leaves it to every member that can lead.
        """
        ctx, election = self._ctx, self._election
        able = self._find_able()
        if able:
            if election.holds_back_until_ns is None:
                is_equal = any(has_equal_log(member, ctx.me) for member in able)
                begin_ns = ctx.now_ns if is_equal else max(ctx.now_ns, self.deadline_ns)
                hold_back_ns = HOLD_BACK_ELECTION_TIMEOUTS * ctx.config.election_timeout_ns
                election.holds_back_until_ns = begin_ns + hold_back_ns
            if ctx.now_ns < election.holds_back_until_ns:
                kinds = "witness" if ctx.roster.is_witness else ", ".join(kind.label for kind in ctx.reluctance)
                member_ids = ", ".join(str(member.member_id) for member in able)
                election.refuse_nomination(Reason(K.RELUCTANT, kinds=kinds, member_ids=member_ids))
                return
        election.enter(ElectionState.NOMINATE, reason)

    def _find_able(self) -> list[ClusterMember]:
        """Find the members to which this one leaves the election for a while."""
        ctx = self._ctx
        if not (ctx.reluctance or ctx.roster.is_witness):
            return []
        able = able_members(ctx.voting_members, ctx.me, is_any_willing=ctx.roster.is_witness)
        return [member for member in able if ctx.roster.can_lead(member.member_id)]

    def _enter_nominate(self) -> None:
        ctx, election = self._ctx, self._election
        election.is_extended_canvass = False
        if election.is_successor:
            self._stand_as_successor()
            return
        delay_limit_ns = ctx.config.election_timeout_ns // 2 << min(max(election.failed_ballot_count - 2, 0), 5)
        self.deadline_ns = ctx.now_ns + int(ctx.random() * delay_limit_ns)

    def _stand_as_successor(self) -> None:
        """Stand without a canvass: the leader's word and this log's end take its place; the others may vote or not."""
        for member in self._ctx.others:
            member.forget_election()
        self._ctx.note_own_log()
        self._ctx.stand_in_next_term()
        reason = Reason(K.NOMINATION, term_id=self._ctx.candidate_term_id)
        self._election.enter(ElectionState.CANDIDATE_BALLOT, reason)

    def _poll_nominate(self) -> None:
        ctx, election = self._ctx, self._election
        if ctx.is_barred or not ctx.roster.may_stand:
            election.restart(Reason(K.NOT_A_VOTER))
        elif ctx.now_ns >= self.deadline_ns and not is_quorum_candidate(ctx.voting_members, ctx.me):
            election.restart(Reason(K.CANVASS_OUTDATED))
        elif ctx.now_ns >= self.deadline_ns:
            ctx.stand_in_next_term()
            election.enter(ElectionState.CANDIDATE_BALLOT, Reason(K.NOMINATION, term_id=ctx.candidate_term_id))
        elif ctx.now_ns >= self.next_status_ns:
            self._canvass()

    def _canvass(self) -> None:
        self.next_status_ns = self._ctx.now_ns + self.status_interval_ns
        self._ctx.broadcast(dialogue.canvass_position(self._ctx))

    def _forget_silent(self) -> None:
        """Drop what a member said that canvasses no more: it may follow a leader by now that this one cannot hear."""
        ctx = self._ctx
        for member in ctx.others:
            if ctx.now_ns - member.time_of_last_canvass_ns > ctx.config.leader_heartbeat_timeout_ns:
                member.forget_election()

    def _explain_missing_quorum(self) -> None:
        """Say so when too few members are voters for a quorum."""
        ctx, election = self._ctx, self._election
        spoken = [member for member in ctx.voting_members if member.log_position != NULL_POSITION]
        barred = [member for member in spoken if not may_vote_for(member, ctx.me)]
        if barred and ctx.is_majority(len(spoken)):
            election.refuse_nomination(
                Reason(
                    K.NO_QUORUM_OF_VOTERS,
                    member_ids=", ".join(str(member.member_id) for member in barred),
                    voter_count=len(spoken) - len(barred),
                    member_count=len(ctx.voting_members),
                )
            )
