"""Confirms that a leader still leads, so that it can answer a query without a log entry and without a clock.

*The problem.* A leader's own state is not good enough for a linearizable read. It may have been deposed without
knowing: cut off, or stopped for a while, with a higher term committing writes that it has not heard of.

*The idea* (Raft dissertation §6.4, ReadIndex). The leader notes its commit position, then asks the others whether they
still follow it, and takes an answer of a majority, itself included, as proof. A read that was asked for before the
round began may then be answered from any state that holds the log up to the position noted.

*Why that is right.* A member acknowledges in the leader's term T only: following that leader, outside of any election,
and with no candidate term above T. So it had voted in no higher term when it acknowledged. A leader of a higher term
has the vote of a majority, hence of one of those who acknowledged, given after it did, that is after the round began.
So when the round began nothing had been committed by a higher term, and nobody had been told that it was. What term T
committed, this leader committed: it knows.

*What earlier terms committed.* In Raft a new leader must first commit an entry of its own term, because only then does
it know its commit position to be at least that of every leader before it. Here that is done before there is a leader:
it waits in LEADER_LOG_REPLICATION until a majority has recorded its whole log and marked the new term at that position,
durably, and takes that position as committed (`election`, "the term is marked before it is acknowledged"). A mark does
what the empty entry does: no log that ends in an older term can win any more. So the commit position is never below
`term_base_log_position`, where this leader's term begins, and all that earlier leaders ever called committed lies below
that. This is an invariant here, and nothing has to be waited for.

*Rounds.* One is under way at a time; what is asked for meanwhile waits for the next one. A read may only use a round
that began after it was asked for: an acknowledgement may be older than a read that came while it was on its way.
Messages may be lost, so a round repeats its question with every heartbeat interval. A cluster of one needs no round.

*Followers* read from their own state, with a bound on its age. A follower asks its leader, and notes when, by its own
monotonic clock. The leader answers with the position of a round that began later. So everything that was acknowledged
to anybody before the follower asked lies below the position; that stays true for ever, under any leader. The age of a
read is the time from then to when the query came in; two readings of one member's clock, no clocks are compared. The
time since the last commit position heard would be no such bound: it may have been sent by a leader that was deposed
before. The answer carries the time of the question back, and the follower takes it for no other: one that was delayed,
even over a restart, cannot make an old position look new.

*Rejected.* Leases (a leader that trusts its clock to know that nobody else can lead yet) save the round, and are wrong
on a machine that was suspended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....service_api import invariant
from ....service_api.types import MemberId
from ...messages.reads import LeadershipProbe, LeadershipProbeAck, ReadPosition, ReadPositionRequest
from .. import effects as fx
from ..context import ConsensusContext
from ..events import ReadsWanted
from ..vocabulary.phase import NEVER_NS


@dataclass(slots=True)
class _Round:
    """A question under way."""

    begun_ns: int
    through: int
    """The reads up to this number were asked for before it began."""
    probe_id: int = 0
    log_position: int = 0
    """How far the log was committed when it began."""
    acknowledged: dict[MemberId, None] = field(default_factory=dict)
    asking: dict[MemberId, int] = field(default_factory=dict)
    """Followers that asked before it began, and when by their own clocks."""


class LeaderReads:
    """The rounds of one leadership term, on its leader."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._round: _Round | None = None
        self._probe_count = 0
        self._wanted = 0
        self._covered = 0
        self._asking: dict[MemberId, int] = {}
        """Followers that wait for the next round: one question of each, the newest."""
        self.deadline_ns = NEVER_NS
        """When to `poll` at the latest."""

    def __repr__(self) -> str:
        return f"<LeaderReads wanted={self._wanted} round={self._round!r}>"

    def on_wanted(self, event: ReadsWanted) -> None:
        """Somebody wants to read, here."""
        self._wanted = max(self._wanted, event.through)
        self._begin_what_is_wanted()

    def on_request(self, message: ReadPositionRequest) -> None:
        """A follower asks. Several of its questions are one: the newest, which the older ones cannot be hurt by."""
        if message.leadership_term_id == self._ctx.leadership_term_id:
            self._asking[MemberId(message.follower_member_id)] = message.asked_ns
            self._begin_what_is_wanted()

    def on_ack(self, message: LeadershipProbeAck) -> None:
        """A member still follows this leader; it counts for the round that it answers, and no other."""
        current = self._round
        if (
            current is None
            or message.leadership_term_id != self._ctx.leadership_term_id
            or message.probe_id != current.probe_id
        ):
            return
        current.acknowledged[MemberId(message.follower_member_id)] = None
        if self._is_confirmed(current):
            self._finish(current)
            self._begin_what_is_wanted()

    def poll(self) -> None:
        """Ask again those who have not answered."""
        current = self._round
        if current is not None and self._ctx.now_ns >= self.deadline_ns:
            self._ask(current)

    def _begin_what_is_wanted(self) -> None:
        while self._round is None and (self._wanted > self._covered or self._asking):
            self._begin()

    def _begin(self) -> None:
        ctx = self._ctx
        invariant(
            ctx.commit_position >= ctx.term_base_log_position,
            "a leader has committed what earlier terms have",
            commit_position=ctx.commit_position,
            term_base_log_position=ctx.term_base_log_position,
        )
        self._probe_count += 1
        self._covered = self._wanted
        asking, self._asking = self._asking, {}
        begun = _Round(
            begun_ns=ctx.now_ns,
            through=self._covered,
            probe_id=self._probe_count,
            log_position=ctx.commit_position,
            asking=asking,
        )
        self._round = begun
        if self._is_confirmed(begun):
            self._finish(begun)
        else:
            self._ask(begun)

    def _is_confirmed(self, current: _Round) -> bool:
        voters = self._ctx.roster.current.voter_ids
        return self._ctx.is_majority(len(voters & {self._ctx.config.member_id, *current.acknowledged}))

    def _ask(self, current: _Round) -> None:
        ctx = self._ctx
        self.deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        probe = LeadershipProbe(
            leadership_term_id=ctx.leadership_term_id,
            probe_id=current.probe_id,
            leader_member_id=ctx.config.member_id,
        )
        for member in ctx.others:
            if member.member_id not in current.acknowledged:
                ctx.send(member.member_id, probe)

    def _finish(self, current: _Round) -> None:
        ctx = self._ctx
        self._round = None
        self.deadline_ns = NEVER_NS
        for member_id, asked_ns in current.asking.items():
            ctx.send(
                member_id,
                ReadPosition(
                    leadership_term_id=ctx.leadership_term_id,
                    asked_ns=asked_ns,
                    log_position=current.log_position,
                    leader_member_id=ctx.config.member_id,
                ),
            )
        ctx.emit(fx.ReadConfirmed(current.through, current.log_position, current.begun_ns))


class FollowerReads:
    """The questions of one follower to its leader, in one term."""

    def __init__(self, ctx: ConsensusContext, leader_member_id: MemberId) -> None:
        self._ctx = ctx
        self._leader_member_id = leader_member_id
        self._round: _Round | None = None
        self._wanted = 0
        self.deadline_ns = NEVER_NS
        """When to `poll` at the latest."""

    def __repr__(self) -> str:
        return f"<FollowerReads wanted={self._wanted} round={self._round!r}>"

    def on_wanted(self, event: ReadsWanted) -> None:
        """Somebody wants to read, here."""
        self._wanted = max(self._wanted, event.through)
        if self._round is None:
            self._begin()

    def on_answer(self, message: ReadPosition) -> None:
        """The leader says how far the log was committed after this member asked."""
        ctx, current = self._ctx, self._round
        if (
            current is None
            or message.leadership_term_id != ctx.leadership_term_id
            or message.leader_member_id != self._leader_member_id
            or message.asked_ns != current.begun_ns
        ):
            return
        self._round = None
        self.deadline_ns = NEVER_NS
        ctx.emit(fx.ReadConfirmed(current.through, message.log_position, current.begun_ns))
        if self._wanted > current.through:
            self._begin()

    def poll(self) -> None:
        """Ask again."""
        current = self._round
        if current is not None and self._ctx.now_ns >= self.deadline_ns:
            self._ask(current)

    def _begin(self) -> None:
        self._round = _Round(begun_ns=self._ctx.now_ns, through=self._wanted)
        self._ask(self._round)

    def _ask(self, current: _Round) -> None:
        ctx = self._ctx
        self.deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        ctx.send(
            self._leader_member_id,
            ReadPositionRequest(
                leadership_term_id=ctx.leadership_term_id,
                asked_ns=current.begun_ns,
                follower_member_id=ctx.config.member_id,
            ),
        )


def may_acknowledge(ctx: ConsensusContext, message: LeadershipProbe) -> bool:
    """Return whether a follower, outside of any election, may say that the leader that asks still leads.

    A member without a vote may have helped to elect a newer leader, and has forgotten it.
    """
    return (
        message.leadership_term_id == ctx.leadership_term_id
        and message.leader_member_id == ctx.leader_member_id
        and ctx.candidate_term_id <= message.leadership_term_id
        and ctx.is_voter
    )


def acknowledge(ctx: ConsensusContext, message: LeadershipProbe) -> None:
    """Say so."""
    ctx.send(
        MemberId(message.leader_member_id),
        LeadershipProbeAck(
            leadership_term_id=message.leadership_term_id,
            probe_id=message.probe_id,
            follower_member_id=ctx.config.member_id,
        ),
    )
