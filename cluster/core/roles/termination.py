"""Stopping a whole cluster at one log position.

Once the position is committed, the leader tells every follower to stop there, again and again until each has
acknowledged: in Aeron it is told once, and a follower that misses it runs on alone. What is committed has to be heard
of once only: a follower that was told and holds the log that far does its part also when the leader is gone
meanwhile, and begins no election for it. Each writes the position into its recording log as the end of the term, and
stops.

The leader stops last: when every follower has acknowledged, or the deadline has passed. A member that is down learns
nothing; it finds the others gone, and starts again with them. So it is not waited for, once those who have acknowledged
are a majority with the leader: what is left could elect nobody, even if it were alive behind a broken network.

Source: aeron.md §3.11, §10 (TerminationPosition is sent once).
"""

from __future__ import annotations

from ....service_api.types import MemberId
from ...messages.consensus import TerminationAck, TerminationPosition
from .. import effects as fx
from ..context import ConsensusContext
from ..vocabulary.members import is_active


class TerminationControl:
    """One member's part in a termination: as leader, who was told and who has acknowledged; as follower, where."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self.position: int | None = None
        """Where the cluster stops; None while it does not. It is committed."""
        self.is_delivered = False
        """Whether everything up to the position was delivered here."""
        self.unacknowledged: list[MemberId] = []
        """Leader: who has not said yet that it stops."""
        self._is_recorded = False
        self._next_send_ns = 0
        self._deadline_ns: int | None = None

    def __repr__(self) -> str:
        return f"<TerminationControl position={self.position} unacknowledged={self.unacknowledged}>"

    def roll_back(self) -> None:
        """The term is over: the next leader knows of no termination."""
        self.position = None
        self.is_delivered = False
        self.unacknowledged = []
        self._deadline_ns = None

    def on_delivered(self, position: int) -> None:
        """Everything up to a position was delivered."""
        if self.position is not None and position >= self.position:
            self.is_delivered = True

    def record_end(self) -> None:
        """This member has done its part: write down, durably, where the term ends."""
        ctx = self._ctx
        assert self.position is not None
        ctx.recording_log.commit_log_position(ctx.log_leadership_term_id, self.position)
        ctx.emit(fx.PersistRecordingLog())
        self._is_recorded = True

    # --- the leader

    def begin(self, position: int) -> None:
        """The position is committed: tell every follower to stop there."""
        self.position = position
        self.unacknowledged = [
            each.member_id for each in self._ctx.others if self._ctx.roster.current.find(each.member_id)
        ]
        self._ctx.emit(fx.AwaitDelivery(position))
        self._send()

    def start_deadline(self) -> None:
        """The leader's own part is done: it waits for the others so long and no longer."""
        if self._deadline_ns is None:
            self._deadline_ns = self._ctx.now_ns + self._ctx.config.termination_timeout_ns

    def poll(self) -> None:
        """Send the termination again to members that have not acknowledged it."""
        due_ns = self.next_deadline_ns()
        if due_ns is not None and self._ctx.now_ns >= self._next_send_ns:
            self._send()

    def next_deadline_ns(self) -> int | None:
        """When `poll`, or the deadline, is due."""
        if self.position is None or not self.unacknowledged or self._is_recorded:
            return None
        return self._next_send_ns if self._deadline_ns is None else min(self._next_send_ns, self._deadline_ns)

    def on_ack(self, message: TerminationAck) -> MemberId | None:
        """A follower stops. Gives its id, if that is news."""
        member_id = MemberId(message.member_id)
        if (message.leadership_term_id, message.log_position) != (self._ctx.leadership_term_id, self.position):
            return None
        if member_id not in self.unacknowledged:
            return None
        self.unacknowledged.remove(member_id)
        return member_id

    @property
    def is_complete(self) -> bool:
        """Whether nobody has to be waited for any more."""
        return not self.unacknowledged or self.is_late or self._is_rest_down()

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline_ns is not None and self._ctx.now_ns >= self._deadline_ns

    def _is_rest_down(self) -> bool:
        """Whether those who have not acknowledged are gone, and too few to elect a leader.

        Gone is whose link is closed, and who has been silent for a heartbeat timeout: a follower that has just stopped
        closes its links in any order, and its acknowledgement may be on its way.
        """
        ctx, members = self._ctx, self._ctx.members
        voter_ids = ctx.roster.current.voter_ids
        return ctx.is_majority(len(voter_ids.difference(self.unacknowledged))) and not any(
            members[member_id].is_reachable
            or is_active(members[member_id], ctx.now_ns, ctx.config.leader_heartbeat_timeout_ns)
            for member_id in self.unacknowledged
            if member_id in members
        )

    def _send(self) -> None:
        ctx = self._ctx
        assert self.position is not None
        self._next_send_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        for member_id in self.unacknowledged:
            ctx.send(
                member_id, TerminationPosition(leadership_term_id=ctx.leadership_term_id, log_position=self.position)
            )

    # --- a follower

    def on_position(self, message: TerminationPosition) -> None:
        """The leader says where to stop; that it does means that everything up to there is committed."""
        ctx = self._ctx
        if message.leadership_term_id != ctx.leadership_term_id or self.position is not None:
            return
        self.position = message.log_position
        ctx.emit(fx.AwaitDelivery(self.position))

    @property
    def needs_no_leader(self) -> bool:
        """Whether this member can do its part with what it holds."""
        ctx = self._ctx
        return self.position is not None and ctx.commit_position >= self.position

    def acknowledge(self) -> None:
        """Acknowledge the termination to the leader, if there still is one."""
        ctx = self._ctx
        assert self.position is not None
        if ctx.leader_member_id is not None:
            ctx.send(
                ctx.leader_member_id,
                TerminationAck(
                    leadership_term_id=ctx.leadership_term_id,
                    log_position=self.position,
                    member_id=ctx.config.member_id,
                ),
            )
