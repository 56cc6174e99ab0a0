"""A follower between two elections: reports what it recorded, delivers what is committed, watches the leader.

Source: seed 002, "Consensus work"; aeron.md §3.3.
"""

from __future__ import annotations

from typing import Final

from ....service_api.types import MemberId
from ...messages.consensus import (
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    TerminationPosition,
)
from ...messages.reads import LeadershipProbe, ReadPosition
from ...messages.transfer import TransferLeadership
from .. import effects as fx
from .. import events as ev
from ..context import ConsensusContext
from ..election import higher_term
from ..peers import dialogue
from ..vocabulary.members import is_spare
from ..vocabulary.phase import NEVER_NS, Handlers
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from . import leadership_probe
from .actions import ActionControl
from .leadership_probe import FollowerReads

_LONG_SILENCE_HEARTBEATS: Final = 2
_SOURCE_ELECTION_TIMEOUTS: Final = 3
"""So long a log source is left to come into the term before this member goes back to it."""


class FollowerTerm:
    """One leadership term of another member, as this one follows it. Dropped when the next election begins."""

    def __init__(self, ctx: ConsensusContext, actions: ActionControl) -> None:
        assert ctx.leader_member_id is not None
        self._ctx = ctx
        self._actions = actions
        self._leader_member_id = ctx.leader_member_id
        self._reads = FollowerReads(ctx, ctx.leader_member_id)
        self._next_report_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        self._next_look_ns = NEVER_NS if ctx.log_source.wanted_member_id is None else ctx.now_ns
        """When to look next whether the log comes from the member that it should come from."""
        self._moved_ns, self._moved_position = ctx.now_ns, ctx.append_position
        """When the log was seen to have all that is committed, or to have got further, and how far."""
        self._source_seen_ns = ctx.now_ns
        """Since when the member that the log should come from can be used, while it comes from the leader."""
        self._heard_again_ns: int | None = None
        """When the leader was heard after a long silence: this process stood still, or the link did."""
        self._silence_limit_ns = max(
            ctx.config.election_timeout_ns, _LONG_SILENCE_HEARTBEATS * ctx.config.leader_heartbeat_interval_ns
        )
        self.handlers: Handlers = {
            RequestVote: self.on_request_vote,
            NewLeadershipTerm: self.on_new_leadership_term,
            CommitPosition: self.on_commit_position,
            CatchupPosition: self.on_catchup_position,
            TerminationPosition: self.on_termination_position,
            LeadershipProbe: self.on_leadership_probe,
            TransferLeadership: self.on_transfer_leadership,
            ReadPosition: self._reads.on_answer,
            ev.ReadsWanted: self._reads.on_wanted,
            ev.LinkChanged: self.on_link_changed,
            ev.LogImageClosed: self.on_log_image_closed,
            ev.LogCommitted: self.on_log_committed,
            ev.Recorded: self.on_recorded,
        }
        self._note_spare()
        self._on_leader_alive(None)

    def __repr__(self) -> str:
        ctx = self._ctx
        return f"<FollowerTerm term={ctx.leadership_term_id} append={ctx.append_position} commit={ctx.commit_position}>"

    def poll(self) -> Reason | None:
        """Do what time has made due. Gives the reason for an election, if there is one."""
        ctx = self._ctx
        if ctx.now_ns >= self._leader_deadline_ns():
            return Reason(K.LEADER_HEARTBEAT_TIMEOUT, leader_member_id=self._leader_member_id)
        if ctx.now_ns >= self._next_report_ns:
            self._report()
        self._reads.poll()
        return self._look_at_source() if ctx.now_ns >= self._next_look_ns else None

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return min(self._next_report_ns, self._leader_deadline_ns(), self._reads.deadline_ns, self._next_look_ns)

    # --- messages

    def on_request_vote(self, message: RequestVote) -> Reason | None:
        """Only a request of a higher term matters: the member that sent it has won a canvass."""
        return higher_term.of_candidate(self._ctx, message)

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> Reason | None:
        """The leader repeats what this follower knows already, or there is one of a higher term."""
        reason = higher_term.of_leader(self._ctx, message)
        if reason is None and message.leader_member_id == self._leader_member_id:
            self._on_leader_alive(message.commit_position)
        return reason

    def on_commit_position(self, message: CommitPosition) -> Reason | None:
        """The leader is alive and has committed this far, or there is one of a higher term."""
        ctx = self._ctx
        reason = higher_term.of_commit(ctx, message)
        if (message.leader_member_id, message.leadership_term_id) == (self._leader_member_id, ctx.leadership_term_id):
            self._on_leader_alive(message.log_position)
        return reason

    def on_catchup_position(self, message: CatchupPosition) -> None:
        """A standby follows this member: it gets the log of this term from here, and all that comes to it.

        One that is ahead of this member, or not in this term, asks again.
        """
        ctx, asker_id = self._ctx, MemberId(message.follower_member_id)
        is_below = asker_id > ctx.config.member_id  # so two never wait for each other
        is_here = message.leadership_term_id == ctx.leadership_term_id and message.log_position <= ctx.append_position
        if ctx.roster.is_standby(asker_id) and is_below and is_here:
            ctx.emit(fx.StartCatchupReplay(asker_id, message.log_position, ctx.log_session_id))

    def on_termination_position(self, message: TerminationPosition) -> None:
        """The leader is alive, and says where the cluster stops, which is committed."""
        if message.leadership_term_id == self._ctx.leadership_term_id:
            self._on_leader_alive(message.log_position)
        self._actions.on_termination_position(message)

    def on_leadership_probe(self, message: LeadershipProbe) -> None:
        """The leader asks whether this member still follows it."""
        if leadership_probe.may_acknowledge(self._ctx, message):
            leadership_probe.acknowledge(self._ctx, message)

    def on_transfer_leadership(self, message: TransferLeadership) -> Reason | None:
        """The leader asks this member to stand, which it does if it has all that the leader has, durably."""
        ctx = self._ctx
        sender = message.leader_member_id, message.leadership_term_id
        is_of_this_term = sender == (self._leader_member_id, ctx.leadership_term_id)
        has_all = message.log_position == ctx.append_position == ctx.log_buffer.append_position
        if self._is_behind_time() or not is_of_this_term or not has_all or not self._may_stand:
            return None
        return Reason(
            K.LEADERSHIP_TRANSFERRED, leader_member_id=self._leader_member_id, log_position=message.log_position
        )

    @property
    def _may_stand(self) -> bool:
        ctx = self._ctx
        # A witness that leads takes no input, not even an operator's: so one that holds before an entry stands, too.
        is_needed = not ctx.roster.can_lead(self._leader_member_id)
        return ctx.is_voter and ctx.may_stand and ctx.roster.may_lead and (ctx.held is None or is_needed)

    # --- events

    def on_link_changed(self, event: ev.LinkChanged) -> Reason | None:
        """A member's process came or went: the leader's, or one that may make this member spare."""
        self._ctx.on_link_changed(event)
        self._note_spare()
        if event.is_up:
            return None
        if event.member_id == self._leader_member_id:
            return Reason(K.LEADER_LINK_CLOSED, leader_member_id=event.member_id)
        if event.member_id == self._ctx.log_source_id:
            return Reason(K.LOG_SOURCE_LOST, member_id=event.member_id)
        return None

    def on_log_image_closed(self, event: ev.LogImageClosed) -> Reason | None:
        """The leader's log ended, or that of the member that it comes from."""
        ctx = self._ctx
        is_ours = event.log_session_id == ctx.log_session_id
        if is_ours and ctx.is_relayed:
            ctx.log_source.give_up(ctx.leadership_term_id, ctx.now_ns)
        return Reason(K.LOG_LINK_CLOSED, detail=event.reason) if is_ours else None

    def on_recorded(self, event: ev.Recorded) -> None:
        """More of the log is durable here: tell the leader, before anything is delivered."""
        self._ctx.append_position = event.position
        if not self._ctx.is_relayed:  # the leader counts on a standby for nothing
            self._report()
        if event.committed is None:
            self._ctx.advance_commit()
        else:
            self.on_log_committed(event.committed)

    def on_log_committed(self, event: ev.LogCommitted) -> None:
        """The leader says with its log how far that is committed."""
        if event.leadership_term_id == self._ctx.leadership_term_id:
            self._on_leader_alive(event.log_position)

    # --- helpers

    def _is_behind_time(self) -> bool:
        """Whether what the leader says may be older than an election timeout, after which it gives a transfer up."""
        ctx, since_ns = self._ctx, self._heard_again_ns
        timeout_ns = self._silence_limit_ns
        if ctx.now_ns - ctx.time_of_last_leader_ns > timeout_ns:
            return True
        return since_ns is not None and ctx.now_ns - since_ns < timeout_ns

    def _on_leader_alive(self, commit_position: int | None) -> None:
        ctx = self._ctx
        if ctx.now_ns - ctx.time_of_last_leader_ns > self._silence_limit_ns:
            self._heard_again_ns = ctx.now_ns
        self._ctx.note_leader(commit_position)
        self._ctx.advance_commit()

    def _note_spare(self) -> None:
        """Look whether those who can be reached are enough without this one."""
        ctx = self._ctx
        ctx.is_spare = is_spare(ctx.voting_members, ctx.config.member_id, self._leader_member_id)

    def _report(self) -> None:
        ctx = self._ctx
        self._next_report_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        ctx.cluster_clock.note(ctx.delivered_time(), ctx.now_ns)
        dialogue.send_append_position(ctx, self._leader_member_id, leadership_term_id=ctx.leadership_term_id)

    def _look_at_source(self) -> Reason | None:
        """Look whether the log should come from another member than it does. Gives the reason for an election."""
        ctx = self._ctx
        self._next_look_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        timeout_ns = ctx.config.leader_heartbeat_timeout_ns
        wanted_id = ctx.choose_log_source(self._leader_member_id)
        if wanted_id == ctx.log_source_id == self._leader_member_id:
            self._source_seen_ns = ctx.now_ns
            return None
        if wanted_id != ctx.log_source_id:  # a process that has just begun is in no term yet
            grace_ns = _SOURCE_ELECTION_TIMEOUTS * ctx.config.election_timeout_ns
            is_due = wanted_id == self._leader_member_id or ctx.now_ns - self._source_seen_ns >= grace_ns
            return Reason(K.LOG_SOURCE_BACK, member_id=wanted_id) if is_due else None
        if ctx.append_position >= ctx.notified_commit_position or ctx.append_position > self._moved_position:
            self._moved_ns, self._moved_position = ctx.now_ns, ctx.append_position
        if ctx.now_ns - self._moved_ns < timeout_ns:
            return None
        ctx.log_source.give_up(ctx.leadership_term_id, ctx.now_ns)
        return Reason(
            K.LOG_SOURCE_STALLED,
            member_id=wanted_id,
            append_position=ctx.append_position,
            commit_position=ctx.notified_commit_position,
        )

    def _leader_deadline_ns(self) -> int:
        return self._ctx.time_of_last_leader_ns + self._ctx.config.leader_heartbeat_timeout_ns
