"""A follower between two elections: reports what it recorded, delivers what is committed, watches the leader.

Source: seed 002, "Consensus work"; aeron.md §3.3.
"""

from __future__ import annotations

from ..messages.consensus import CommitPosition, NewLeadershipTerm, TerminationPosition
from . import dialogue
from . import effects as fx
from .context import ConsensusContext
from .leadership_probe import FollowerReads
from .members import is_spare
from .reason import Reason
from .reason import ReasonKind as K


class FollowerTerm:
    """One leadership term of another member, as this one follows it. Dropped when the next election begins."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self.reads = FollowerReads(ctx)
        self._next_report_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        ctx.time_of_last_leader_ns = ctx.now_ns
        self.on_link_changed()
        self._advance_commit()

    def __repr__(self) -> str:
        ctx = self._ctx
        return f"<FollowerTerm term={ctx.leadership_term_id} append={ctx.append_position} commit={ctx.commit_position}>"

    def poll(self) -> Reason | None:
        """Do what time has made due. Gives the reason for an election, if there is one."""
        ctx = self._ctx
        if ctx.now_ns >= self._leader_deadline_ns():
            assert ctx.leader_member_id is not None
            return Reason(K.LEADER_HEARTBEAT_TIMEOUT, leader_member_id=ctx.leader_member_id)
        if ctx.now_ns >= self._next_report_ns:
            self._report()
        self.reads.poll()
        return None

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return min(self._next_report_ns, self._leader_deadline_ns(), self.reads.deadline_ns)

    def on_link_changed(self) -> None:
        """Another member can be reached, or no more: look whether those who can be are enough without this one."""
        ctx = self._ctx
        assert ctx.leader_member_id is not None
        ctx.is_spare = is_spare(ctx.members.values(), ctx.config.member_id, ctx.leader_member_id)

    def on_recorded(self, position: int) -> None:
        """More of the log is durable here: tell the leader."""
        self._ctx.append_position = position
        self._report()
        self._advance_commit()

    def on_commit_position(self, message: CommitPosition) -> None:
        """The leader is alive and has committed this far."""
        self._on_leader_alive(message.log_position)

    def on_log_committed(self, position: int) -> None:
        """The leader says the same with its log."""
        self._on_leader_alive(position)

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """The leader repeats what this follower knows already."""
        self._on_leader_alive(message.commit_position)

    def on_termination_position(self, message: TerminationPosition) -> None:
        """The leader is alive, and says where the cluster stops, which is committed."""
        if message.leadership_term_id == self._ctx.leadership_term_id:
            self._on_leader_alive(message.log_position)

    def _on_leader_alive(self, commit_position: int | None) -> None:
        ctx = self._ctx
        ctx.time_of_last_leader_ns = ctx.now_ns
        if commit_position is not None and commit_position > ctx.notified_commit_position:
            ctx.notified_commit_position = commit_position
            self._advance_commit()

    def _advance_commit(self) -> None:
        ctx = self._ctx
        position = min(ctx.notified_commit_position, ctx.append_position)
        if position > ctx.commit_position:
            ctx.commit_position = position
            ctx.emit(fx.CommitAdvanced(position))

    def _report(self) -> None:
        ctx = self._ctx
        self._next_report_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        assert ctx.leader_member_id is not None
        dialogue.send_append_position(ctx, ctx.leader_member_id, leadership_term_id=ctx.leadership_term_id)

    def _leader_deadline_ns(self) -> int:
        last_ns = self._ctx.time_of_last_leader_ns
        assert last_ns is not None
        return last_ns + self._ctx.config.leader_heartbeat_timeout_ns
