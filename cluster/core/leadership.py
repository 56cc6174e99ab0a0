"""What a leader tells another member about leadership terms, in an election and after it."""

from __future__ import annotations

from service_api import invariant
from service_api.types import NULL_POSITION, NULL_VALUE

from ..messages.consensus import NewLeadershipTerm
from .context import ConsensusContext
from .members import ClusterMember


def send_new_leadership_term(ctx: ConsensusContext, member: ClusterMember, *, is_startup: bool) -> None:
    """Announce the leadership term to a member, together with the term that follows the last one in its log.

    Source: seed 001, "1st NewLeadershipTerm"; aeron.md §2.4, "what a settled leader answers".
    """
    next_term_id, next_base, next_end = NULL_VALUE, NULL_POSITION, NULL_POSITION
    if member.log_leadership_term_id < ctx.leadership_term_id:
        entry = ctx.recording_log.term_entry(member.log_leadership_term_id + 1)
        invariant(
            entry is not None,
            "the leader's recording log has every term",
            missing_term_id=member.log_leadership_term_id + 1,
            leadership_term_id=ctx.leadership_term_id,
        )
        assert entry is not None
        next_term_id, next_base, next_end = (
            entry.leadership_term_id,
            entry.term_base_log_position,
            entry.log_position,
        )
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
            timestamp=ctx.timestamp,
            leader_member_id=ctx.config.member_id,
            log_session_id=ctx.log_session_id,
            app_version=ctx.config.app_version,
            is_startup=is_startup,
            commit_position=ctx.commit_position,
        ),
    )
