"""Builds the messages that a member sends to others from its state: one function for each message.

Elections and terms say the same things at different times; the words are here, the timing is theirs.
"""

from __future__ import annotations

from ....service_api import invariant
from ....service_api.types import NULL_POSITION, NULL_TERM_ID, MemberId, TermId
from ....service_api.wire.versioned import build
from ...messages.consensus import (
    APPEND_POSITION_FLAG_CATCHUP,
    APPEND_POSITION_FLAG_HELD,
    APPEND_POSITION_FLAG_NO_VOTER,
    APPEND_POSITION_FLAG_NONE,
    APPEND_POSITION_FLAG_RELAYED,
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from ..context import PROTOCOL_VERSION, ConsensusContext
from ..vocabulary.members import ClusterMember


def canvass_position(ctx: ConsensusContext) -> CanvassPosition:
    """Return where this log ends, and the highest term this member knows of; none if it is no voter."""
    return CanvassPosition(
        log_leadership_term_id=ctx.log_leadership_term_id,
        log_position=ctx.append_position,
        leadership_term_id=max(ctx.leadership_term_id, ctx.candidate_term_id) if ctx.is_voter else NULL_TERM_ID,
        follower_member_id=ctx.config.member_id,
        protocol_version=PROTOCOL_VERSION,
    )


def send_request_vote(ctx: ConsensusContext, member_id: MemberId) -> None:
    """Ask for a vote in the candidate term."""
    ctx.send(
        member_id,
        RequestVote(
            log_leadership_term_id=ctx.log_leadership_term_id,
            log_position=ctx.append_position,
            candidate_term_id=ctx.candidate_term_id,
            candidate_member_id=ctx.config.member_id,
            protocol_version=PROTOCOL_VERSION,
        ),
    )


def send_vote(ctx: ConsensusContext, request: RequestVote, *, vote: bool) -> None:
    """Answer a request, with where this log ends."""
    ctx.send(
        MemberId(request.candidate_member_id),
        Vote(
            candidate_term_id=request.candidate_term_id,
            log_leadership_term_id=ctx.log_leadership_term_id,
            log_position=ctx.append_position,
            candidate_member_id=request.candidate_member_id,
            follower_member_id=ctx.config.member_id,
            vote=vote,
        ),
    )


def send_new_leadership_term(ctx: ConsensusContext, member: ClusterMember, *, is_startup: bool) -> None:
    """Announce the leadership term to a member, together with the term that follows the last one in its log.

    A member whose log ends before its own last term begins, as the leader has it, marked that term where no quorum did:
    it is told of that very term instead, and drops the mark.

    Source: seed 001, "1st NewLeadershipTerm"; aeron.md §2.4, "what a settled leader answers".
    """
    next_term_id, next_base, next_end = NULL_TERM_ID, NULL_POSITION, NULL_POSITION
    if member.log_leadership_term_id < ctx.leadership_term_id:
        entry = ctx.recording_log.term_entry(member.log_leadership_term_id)
        if entry is None or entry.term_base_log_position <= member.log_position:
            entry = ctx.recording_log.term_after(member.log_leadership_term_id)
        invariant(
            entry is not None,
            "the leader's recording log has every term",
            missing_term_id=member.log_leadership_term_id + 1,
            leadership_term_id=ctx.leadership_term_id,
        )
        assert entry is not None
        next_term_id, next_base = TermId(entry.leadership_term_id), entry.term_base_log_position
        next_end = entry.log_position
    ctx.send(
        member.member_id,
        NewLeadershipTerm(
            log_leadership_term_id=member.log_leadership_term_id,
            next_leadership_term_id=next_term_id,
            next_term_base_log_position=next_base,
            next_log_position=next_end,
            leadership_term_id=ctx.leadership_term_id,
            term_base_log_position=ctx.term_base_log_position,
            log_position=ctx.log_buffer.append_position,
            leader_recording_id=ctx.log_recording_id,
            timestamp=ctx.term_time,
            leader_member_id=ctx.config.member_id,
            log_session_id=ctx.log_session_id,
            app_version=ctx.config.app_version,
            is_startup=is_startup,
            commit_position=ctx.commit_position,
        ),
    )


def answer_vote_of_this_term(ctx: ConsensusContext, message: Vote, *, is_startup: bool) -> None:
    """Announce the term to a member whose vote for it comes when the ballot is won: it waits for the outcome."""
    if not message.vote or (message.candidate_term_id, message.candidate_member_id) != (
        ctx.leadership_term_id,
        ctx.config.member_id,
    ):
        return
    member = ctx.members[MemberId(message.follower_member_id)]
    member.log_leadership_term_id = message.log_leadership_term_id
    member.log_position = message.log_position
    send_new_leadership_term(ctx, member, is_startup=is_startup)


def send_append_position(
    ctx: ConsensusContext, leader_member_id: MemberId, *, leadership_term_id: TermId, is_catchup: bool = False
) -> None:
    """Send the leader the position that is durable here in a leadership term."""
    ctx.send(
        leader_member_id,
        build(
            AppendPosition,
            {
                "leadership_term_id": leadership_term_id,
                "log_position": ctx.append_position,
                "follower_member_id": ctx.config.member_id,
                "flags": (APPEND_POSITION_FLAG_CATCHUP if is_catchup else APPEND_POSITION_FLAG_NONE)
                | (APPEND_POSITION_FLAG_NONE if ctx.held is None else APPEND_POSITION_FLAG_HELD)
                | (APPEND_POSITION_FLAG_RELAYED if ctx.is_relayed else APPEND_POSITION_FLAG_NONE)
                | (APPEND_POSITION_FLAG_NONE if ctx.is_voter else APPEND_POSITION_FLAG_NO_VOTER),
            },
        ),
    )


def broadcast_commit_position(ctx: ConsensusContext) -> None:
    """Send every other member the commit position: the leader's heartbeat."""
    ctx.broadcast(
        CommitPosition(
            leadership_term_id=ctx.leadership_term_id,
            log_position=ctx.commit_position,
            leader_member_id=ctx.config.member_id,
        )
    )


def send_catchup_position(ctx: ConsensusContext, source_id: MemberId) -> None:
    """Ask the leader, or the member that this one follows in its place, for the log from here on."""
    ctx.send(
        source_id,
        CatchupPosition(
            leadership_term_id=ctx.leadership_term_id,
            log_position=ctx.append_position,
            follower_member_id=ctx.config.member_id,
            catchup_endpoint=ctx.config.catchup_endpoint,
        ),
    )


def send_stop_catchup(ctx: ConsensusContext, member_id: MemberId) -> None:
    """Send a follower the message that ends its catch-up: it has joined the live log."""
    ctx.send(member_id, StopCatchup(leadership_term_id=ctx.leadership_term_id, follower_member_id=member_id))
