"""Messages with a higher term than this member's: they end a term, or restart an election."""

from __future__ import annotations

from ...messages.consensus import CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote
from ..context import ConsensusContext
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K


def of_leader(ctx: ConsensusContext, message: NewLeadershipTerm) -> Reason | None:
    """A member leads a higher term."""
    if message.leadership_term_id <= ctx.leadership_term_id:
        return None
    return Reason(K.HIGHER_TERM_LEADER, member_id=message.leader_member_id, term_id=message.leadership_term_id)


def of_commit(ctx: ConsensusContext, message: CommitPosition) -> Reason | None:
    """A member commits in a higher term."""
    if message.leadership_term_id <= ctx.leadership_term_id:
        return None
    return Reason(K.HIGHER_TERM_COMMIT, member_id=message.leader_member_id, term_id=message.leadership_term_id)


def of_canvass(ctx: ConsensusContext, message: CanvassPosition) -> Reason | None:
    """A member knows of a higher term."""
    highest = max(message.leadership_term_id, message.log_leadership_term_id)
    if highest <= ctx.leadership_term_id:
        return None
    return Reason(K.HIGHER_TERM_CANVASS, member_id=message.follower_member_id, term_id=highest)


def of_candidate(ctx: ConsensusContext, message: RequestVote) -> Reason | None:
    """A member stands for a higher term than any that this one has voted or stood in: it has won a canvass."""
    if message.candidate_term_id <= ctx.candidate_term_id:
        return None
    is_older = ctx.compare_log_with(message.log_leadership_term_id, message.log_position) > 0
    return Reason(
        K.HIGHER_TERM_CANDIDATE,
        member_id=message.candidate_member_id,
        term_id=message.candidate_term_id,
        comparison="an older log" if is_older else "a log that is no older",
    )
