"""The rules of voting: which candidate gets this member's vote, and which members a ballot does not wait for.

- *A vote is given once, and stays given.* It is durable before it is sent; this process remembers for whom it was and
  says so again when asked again. After a restart only the term is known, and the answer is no.
- *Nobody waits for who will not answer*: who cannot be reached, who may not vote, and in a ballot who said nothing in
  the canvass before it. A leader that was stopped or cut off keeps its connections for long.

Source: seed 001; aeron.md §2.4, §2.8.
"""

from __future__ import annotations

from ....service_api.types import NULL_POSITION, MemberId
from ...messages.consensus import RequestVote
from .. import effects as fx
from ..peers import dialogue
from ..vocabulary.election_state import BALLOT_STATES, LEADER_STATES, ElectionState
from ..vocabulary.members import may_vote_for
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from . import higher_term
from .election import Election


class Voting:
    """How a member answers a request for its vote, in every state but INIT."""

    def __init__(self, election: Election) -> None:
        self._election, self._ctx = election, election.ctx

    def on_request_vote(self, message: RequestVote) -> None:
        """Vote, at most once in a term, and only for a log that is no older than this member's."""
        ctx, election = self._ctx, self._election
        candidate_id = MemberId(message.candidate_member_id)
        ctx.note_log(message.log_leadership_term_id, message.log_position)
        if ctx.is_barred:
            self._abstain(message)
            return
        if (message.candidate_term_id, candidate_id) == ctx.vote_given:
            self._repeat_vote(message)
            return
        reason = higher_term.of_candidate(ctx, message)
        if reason is None:
            self._refuse_vote(message, Reason(K.VOTED_IN_TERM, candidate_term_id=ctx.candidate_term_id))
        elif ctx.compare_log_with(message.log_leadership_term_id, message.log_position) > 0:
            ctx.observe_candidate_term(message.candidate_term_id)
            self._refuse_vote(
                message,
                Reason(
                    K.OWN_LOG_NEWER,
                    log_term_id=ctx.log_leadership_term_id,
                    append_position=ctx.append_position,
                    candidate_log_term_id=message.log_leadership_term_id,
                    candidate_log_position=message.log_position,
                ),
            )
            if election.state in LEADER_STATES:
                election.restart(reason)
            elif election.state in (ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT):
                # The ballot that this member waits for is of a term that it takes no part in any more.
                election.enter(ElectionState.CANVASS, reason)
        elif election.state in BALLOT_STATES:
            ctx.propose_candidate_term(message.candidate_term_id)
            ctx.vote_given = (message.candidate_term_id, candidate_id)
            dialogue.send_vote(ctx, message, vote=True)
            election.enter(ElectionState.FOLLOWER_BALLOT, Reason(K.VOTED, member_id=candidate_id))

    def _repeat_vote(self, message: RequestVote) -> None:
        """Say yes again to the candidate of this ballot, whose second request crossed the answer to its first.

        A member that is through with that ballot says nothing: a no would contradict the yes.
        """
        if self._election.state in BALLOT_STATES and message.candidate_term_id == self._ctx.candidate_term_id:
            dialogue.send_vote(self._ctx, message, vote=True)

    def _refuse_vote(self, message: RequestVote, reason: Reason) -> None:
        ctx = self._ctx
        ctx.emit(fx.VoteRefused(MemberId(message.candidate_member_id), message.candidate_term_id, reason))
        dialogue.send_vote(ctx, message, vote=False)

    def _abstain(self, message: RequestVote) -> None:
        """Neither yes nor no: a no would be a veto. A canvass that names no term tells why."""
        ctx, candidate_id = self._ctx, MemberId(message.candidate_member_id)
        if self._election.state in BALLOT_STATES:
            ctx.emit(fx.VoteRefused(candidate_id, message.candidate_term_id, Reason(K.NOT_A_VOTER)))
            ctx.send(candidate_id, dialogue.canvass_position(ctx))


def excused(election: Election) -> set[MemberId]:
    """Whom not to wait for: who cannot be reached, except at the first canvass after a start, or may not vote.

    In a ballot also who said nothing in the canvass before it, such as the leader whose silence began the election:
    one that was stopped or cut off keeps its connections for long. A successor has held no canvass.
    """
    me, is_waiting_for_all = election.ctx.me, election.is_extended_canvass
    is_ballot = election.state is ElectionState.CANDIDATE_BALLOT
    return {
        member.member_id
        for member in election.ctx.others
        if not (member.is_reachable or is_waiting_for_all)
        or not may_vote_for(member, me)
        or (is_ballot and not election.is_successor and member.log_position == NULL_POSITION)
    }
