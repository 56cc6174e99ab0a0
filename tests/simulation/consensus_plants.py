"""Planted bugs in votes, terms, commits and the copying of the log from member to member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimaran.archive import Recording
from trimaran.archive.net import replication
from trimaran.cluster.core import context
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.election import ballot, canvass, election, voting
from trimaran.cluster.core.election.announcement import Announcement
from trimaran.cluster.core.election.canvass import Canvass
from trimaran.cluster.core.election.election import Election, InitPhase
from trimaran.cluster.core.election.leader_phase import LeaderPhase
from trimaran.cluster.core.election.voting import Voting
from trimaran.cluster.core.peers import dialogue
from trimaran.cluster.core.roles import leader
from trimaran.cluster.core.roles.leader import LeaderTerm
from trimaran.cluster.core.vocabulary import members
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.core.vocabulary.members import ClusterMember
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.messages.consensus import NewLeadershipTerm
from trimaran.cluster.runtime.shared_machine.spare_sync import SpareSync
from trimaran.cluster.runtime.turns import log_replication
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.service_api import ClusterError
from trimaran.service_api.types import TermId

from .plant import Plant, Planting

# --- 1: acknowledged before a quorum has it


def _commit_alone(planting: Planting) -> None:
    def quorum_position(everyone: Sequence[ClusterMember], *, leadership_term_id: int, **_: int) -> int:
        planting.ran()
        return max(
            member.append_position for member in everyone if member.append_leadership_term_id == leadership_term_id
        )

    planting.replace(leader, "quorum_position", quorum_position)


def _commit_with_half(planting: Planting) -> None:
    def quorum_threshold(member_count: int) -> int:
        planting.ran()
        return max(1, member_count // 2)

    for module in (members, context):
        planting.replace(module, "quorum_threshold", quorum_threshold)


def _report_what_was_received(planting: Planting) -> None:
    real = dialogue.send_append_position

    def send_append_position(ctx: ConsensusContext, *args: Any, **facts: Any) -> None:  # passed on as they come
        recorded = ctx.append_position
        if ctx.log_buffer.append_position > recorded:
            planting.ran()
            ctx.append_position = ctx.log_buffer.append_position
        real(ctx, *args, **facts)
        ctx.append_position = recorded

    planting.replace(dialogue, "send_append_position", send_append_position)


def _report_what_waits(planting: Planting) -> None:
    """A spare follower counts what it will sync later."""
    real = SpareSync._may_wait

    def may_wait(self: SpareSync, recording: Recording) -> bool:
        waits = real(self, recording)
        if waits and recording.on_recorded is not None:
            planting.ran()
            recording.on_recorded(recording.append_position)
        return waits

    planting.replace(SpareSync, "_may_wait", may_wait)


def _commit_what_the_leader_says(planting: Planting) -> None:
    def advance_commit(ctx: ConsensusContext) -> None:
        position = min(ctx.notified_commit_position, ctx.log_buffer.append_position)
        if position > ctx.commit_position:
            if position > ctx.append_position:
                planting.ran()
            ctx.commit_position = position
            ctx.emit(fx.CommitAdvanced(position))

    planting.replace(ConsensusContext, "advance_commit", advance_commit)


# --- 2: votes and terms


def _forget_votes(planting: Planting) -> None:
    def propose(ctx: ConsensusContext, candidate_term_id: TermId) -> None:
        if candidate_term_id > ctx.candidate_term_id:
            planting.ran()
            ctx.candidate_term_id = candidate_term_id
            ctx.is_voter = True

    planting.replace(ConsensusContext, "propose_candidate_term", propose)


def _vote_before_it_is_durable(planting: Planting) -> None:
    """The effect goes out at the end of the turn, after the votes."""
    real = ConsensusContext.emit
    late: list[tuple[ConsensusContext, fx.Effect]] = []

    def propose(ctx: ConsensusContext, candidate_term_id: TermId) -> None:
        if candidate_term_id > ctx.candidate_term_id:
            planting.ran()
            ctx.candidate_term_id = candidate_term_id
            ctx.is_voter = True
            late.append((ctx, fx.PersistCandidateTerm(candidate_term_id, ctx.append_position, ctx.timestamp)))

    def emit(ctx: ConsensusContext, effect: fx.Effect) -> None:
        real(ctx, effect)
        if isinstance(effect, fx.StateChanged | fx.ElectionClosed):
            for entry in [entry for entry in late if entry[0] is ctx]:
                late.remove(entry)
                real(ctx, entry[1])

    planting.replace(ConsensusContext, "propose_candidate_term", propose)
    planting.replace(ConsensusContext, "emit", emit)


def _mark_terms_in_memory(planting: Planting) -> None:
    """The recording log knows the term, its file does not."""

    def begin_log_term(ctx: ConsensusContext, leadership_term_id: TermId, term_base_log_position: int) -> None:
        planting.ran()
        ctx.recording_log.ensure_coherent(
            recording_id=ctx.log_recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=-1,
            timestamp=ctx.timestamp,
        )
        ctx.log_leadership_term_id = leadership_term_id

    planting.replace(ConsensusContext, "begin_log_term", begin_log_term)


def _vote_twice(planting: Planting) -> None:
    """A vote is given to every candidate of a term, not to the first."""
    real = Voting.on_request_vote

    def on_request_vote(self: Voting, message: Any) -> None:  # a RequestVote
        ctx = self._ctx
        voted = ctx.candidate_term_id
        if message.candidate_term_id == voted and self._election.state is ElectionState.FOLLOWER_BALLOT:
            planting.ran()
            ctx.candidate_term_id = TermId(voted - 1)
        real(self, message)
        ctx.candidate_term_id = max(voted, ctx.candidate_term_id)

    planting.replace(Voting, "on_request_vote", on_request_vote)


# --- 6: who may lead


def _vote_for_any_log(planting: Planting) -> None:
    real = members.compare_log

    def compare_log(term_a: int, position_a: int, term_b: int, position_b: int) -> int:
        if real(term_a, position_a, term_b, position_b) > 0:
            planting.ran()
        return 0

    planting.replace(context, "compare_log", compare_log)
    planting.replace(members, "compare_log", compare_log)


def _compare_only_lengths(planting: Planting) -> None:
    """The longer log wins, of whatever term its end is."""
    real = members.compare_log

    def compare_log(term_a: int, position_a: int, term_b: int, position_b: int) -> int:
        order = (position_a > position_b) - (position_a < position_b)
        if order * real(term_a, position_a, term_b, position_b) < 0:
            planting.ran()
        return order

    planting.replace(context, "compare_log", compare_log)
    planting.replace(members, "compare_log", compare_log)


# --- 7: copies


def _take_a_broken_copy_for_whole(planting: Planting) -> None:
    """A copy out of another archive breaks off, and passes for done."""
    real = replication.replicate

    async def replicate(*, stop_position: int, **facts: Any) -> int:  # passed on as they come
        try:
            return await real(stop_position=stop_position, **facts)
        except (ClusterError, OSError):
            planting.ran()
            return stop_position

    planting.replace(log_replication, "replicate", replicate)


def _report_a_copy_before_it_is_durable(planting: Planting) -> None:
    real = replication.replicate

    async def replicate(*, recording: Any, **facts: Any) -> int:  # passed on as they come
        wait = recording.wait_recorded

        async def wait_recorded(position: int) -> None:
            if recording.recorded_position < position:
                planting.ran()

        recording.wait_recorded = wait_recorded
        try:
            await real(recording=recording, **facts)
        finally:
            recording.wait_recorded = wait
        return int(recording.append_position)

    planting.replace(log_replication, "replicate", replicate)


# --- 8: truncation


def _truncate_what_matches(planting: Planting) -> None:
    """A member that hears of a leader again throws away what it has of that leader's term, and copies it again."""
    real = Announcement.on_new_leadership_term

    def on_new_leadership_term(self: Announcement, message: NewLeadershipTerm) -> None:
        ctx, election = self._ctx, self._election
        is_fitting = message.log_leadership_term_id == ctx.log_leadership_term_id == message.leadership_term_id
        is_idle = election.state is ElectionState.CANVASS
        if is_idle and is_fitting and message.term_base_log_position < ctx.append_position:
            planting.ran()
            reason = Reason(ReasonKind.ACTIVITY_FAILED, detail="planted")
            election.restart(reason, truncate_position=message.term_base_log_position)
            return
        real(self, message)

    planting.replace(election, "invariant", lambda *_, **__: None)
    planting.replace(Announcement, "on_new_leadership_term", on_new_leadership_term)


def _truncate_to_the_commit_position_of_the_leader(planting: Planting) -> None:
    """What the leader has not called committed is taken for surplus, although a quorum may be counting it."""
    real = Announcement._follow

    def follow(self: Announcement, message: NewLeadershipTerm) -> None:
        ctx = self._ctx
        commit_position = message.commit_position
        if commit_position is not None and 0 <= commit_position < ctx.append_position:
            planting.ran()
            reason = Reason(ReasonKind.ACTIVITY_FAILED, detail="planted")
            self._election.restart(reason, truncate_position=commit_position)
            return
        real(self, message)

    planting.replace(election, "invariant", lambda *_, **__: None)
    planting.replace(Announcement, "_follow", follow)


# --- 9: positions that go back


def _take_any_commit_position(planting: Planting) -> None:
    """A member that joins a new leader takes that leader's commit position, which may be lower than its own."""

    def note_leader(ctx: ConsensusContext, commit_position: int | None) -> None:
        ctx.time_of_last_leader_ns = ctx.now_ns
        if commit_position is None or commit_position < 0:
            return
        ctx.notified_commit_position = commit_position
        position = min(commit_position, ctx.append_position)
        if position < ctx.commit_position:
            planting.ran()
        if position != ctx.commit_position:
            ctx.commit_position = position
            ctx.emit(fx.CommitAdvanced(position))

    planting.replace(ConsensusContext, "note_leader", note_leader)


# --- 10: figure 8


def _lead_without_a_quorum_of_marks(planting: Planting) -> None:
    """The winner takes its whole log for committed, whoever holds it."""

    def poll(self: LeaderPhase) -> None:
        if self._quorum_position() < self._ctx.append_position:
            planting.ran()
        reason = Reason(ReasonKind.ACTIVITY_FAILED, detail="planted")
        self._election.enter(ElectionState.LEADER_REPLAY, reason)

    planting.replace(LeaderPhase, "_poll_leader_log_replication", poll)


# --- 11: backwards


def _lower_the_term_with_a_truncation(planting: Planting) -> None:
    real = InitPhase._on_log_truncated

    def on_log_truncated(self: InitPhase, event: ev.LogTruncated) -> None:
        ctx = self._ctx
        last = ctx.recording_log.last_term()
        if last is not None and last.leadership_term_id < ctx.candidate_term_id:
            planting.ran()
            ctx.candidate_term_id = ctx.leadership_term_id = TermId(last.leadership_term_id)
        real(self, event)

    planting.replace(InitPhase, "_on_log_truncated", on_log_truncated)


def _lower_the_term_with_an_announcement(planting: Planting) -> None:
    """A member takes the term of the leader that it hears of, whatever it has voted for since."""

    def refuses(self: Election, message: NewLeadershipTerm) -> bool:
        ctx = self.ctx
        if message.leadership_term_id < ctx.candidate_term_id:
            planting.ran()
            ctx.candidate_term_id = message.leadership_term_id
        return False

    planting.replace(Election, "refuses", refuses)


# --- 12: ends


# --- 15, 17: who comes back


def _stand_without_asking(planting: Planting) -> None:
    """No canvass: a member that hears of no leader stands, as in Raft without pre-vote."""
    real = members.is_quorum_candidate

    def is_quorum_candidate(*facts: Any) -> bool:  # passed on as they come
        if not real(*facts):
            planting.ran()
        return True

    planting.replace(canvass, "is_quorum_candidate", is_quorum_candidate)


def _let_everybody_vote(planting: Planting) -> None:
    """A member whose directory was removed votes as any other, and is counted as any other."""
    real = ConsensusContext.__post_init__

    def post_init(ctx: ConsensusContext) -> None:
        real(ctx)
        if not ctx.is_voter:
            planting.ran()
        ctx.is_voter = True

    for module in (members, canvass, ballot, voting):
        planting.replace(module, "may_vote_for", lambda *_: True)
    planting.replace(ConsensusContext, "__post_init__", post_init)


# --- 19: what is shown


def _deliver_what_is_recorded(planting: Planting) -> None:
    """Delivery goes to the end of the window, committed or not."""
    real = BoundedLogAdapter.poll

    def poll(self: BoundedLogAdapter, limit_bytes: int) -> bool:
        if self._log_buffer.append_position > self.limit_position:
            planting.ran()
            self.limit_position = self._log_buffer.append_position
        return real(self, limit_bytes)

    planting.replace(BoundedLogAdapter, "poll", poll)


# --- 21: no leader


def _wait_for_everybody(planting: Planting) -> None:
    """Only what all members agree to is agreed: a majority is not enough to canvass, nor to win."""

    def refuse(*_: object) -> bool:
        planting.ran()
        return False

    planting.replace(canvass, "is_quorum_candidate", refuse)
    planting.replace(ballot, "is_quorum_leader", refuse)
    for module in (canvass, ballot):
        planting.replace(module, "excused", lambda _: set())


def _lead_without_followers(planting: Planting) -> None:
    """A leader that hears of no majority leads on."""
    real = LeaderTerm.poll

    def poll(self: LeaderTerm) -> Reason | None:
        if real(self) is not None:
            planting.ran()
        return None

    planting.replace(LeaderTerm, "poll", poll)


# --- 27, 28: legal input, slow members


def _answer_every_canvass(planting: Planting) -> None:
    """Every canvass is answered with a canvass, which is answered with a canvass, and so on."""
    real = Canvass.on_canvass_position

    def on_canvass_position(self: Canvass, message: Any) -> None:  # a CanvassPosition
        member = self._ctx.members[message.follower_member_id]
        if member.log_position >= 0:
            planting.ran()
            self._ctx.send(member.member_id, dialogue.canvass_position(self._ctx))
        real(self, message)

    planting.replace(Canvass, "on_canvass_position", on_canvass_position)


def _forget_late_syncs(planting: Planting) -> None:
    planting.replace(SpareSync, "_sync_late", lambda *_: planting.ran())


def _commit_what_all_have(planting: Planting) -> None:
    """The leader waits for the slowest follower that is alive."""
    real = members.quorum_position

    def quorum_position(everyone: Sequence[ClusterMember], **facts: int) -> int:
        quorum = real(everyone, **facts)
        alive = [
            member.append_position
            for member in everyone
            if members.is_active(member, facts["now_ns"], facts["heartbeat_timeout_ns"])
        ]
        slowest = min(alive, default=-1)
        if slowest < quorum:
            planting.ran()
        return min(quorum, slowest)

    planting.replace(leader, "quorum_position", quorum_position)


PLANTS = (
    Plant("commit-alone", 1, "a position is committed once a majority has it durably", _commit_alone),
    Plant("half-is-a-quorum", 1, "a quorum is more than half of all members", _commit_with_half),
    Plant("report-received", 1, "a follower reports what it has on disk", _report_what_was_received),
    Plant("spare-reports-what-waits", 1, "a spare follower reports what it has synced", _report_what_waits),
    Plant("commit-received", 1, "a follower commits only what it has on disk", _commit_what_the_leader_says),
    Plant("vote-in-memory", 2, "a vote survives a restart", _forget_votes),
    Plant("vote-then-persist", 2, "a vote is durable before it is sent", _vote_before_it_is_durable),
    Plant("vote-twice", 2, "a member votes once in a term", _vote_twice),
    Plant("mark-in-memory", 2, "a term is marked, durably, before it is acknowledged", _mark_terms_in_memory),
    Plant("any-log-wins", 6, "no member votes for a log that is older than its own", _vote_for_any_log),
    Plant(
        "longest-log-wins",
        6,
        "of two logs, the one with the newer last term is newer",
        _compare_only_lengths,
        "two-ends",
    ),
    Plant(
        "broken-copy-is-whole",
        7,
        "a copy that is interrupted is not complete",
        _take_a_broken_copy_for_whole,
        "broken-copy",
    ),
    Plant("copy-not-durable", 7, "a copy is durable before it is reported", _report_a_copy_before_it_is_durable),
    Plant("truncate-matching", 8, "entries that match the leader's log are kept", _truncate_what_matches),
    Plant(
        "truncate-uncommitted",
        8,
        "only what contradicts the leader's log is truncated",
        _truncate_to_the_commit_position_of_the_leader,
    ),
    Plant("follower-commit-goes-back", 9, "a follower's commit position never goes back", _take_any_commit_position),
    Plant(
        "no-quorum-of-marks",
        10,
        "a quorum is in the term before the leader's log is committed",
        _lead_without_a_quorum_of_marks,
    ),
    Plant("truncation-lowers-term", 11, "a truncation leaves the voted term alone", _lower_the_term_with_a_truncation),
    Plant(
        "follow-older",
        11,
        "a member that voted in a higher term follows no older leader",
        _lower_the_term_with_an_announcement,
    ),
    Plant(
        "no-canvass",
        15,
        "a member stands only if a majority would vote for it",
        _stand_without_asking,
        "member-returns",
    ),
    Plant(
        "wiped-member-votes", 17, "a member that lost its directory does not vote", _let_everybody_vote, "wiped-member"
    ),
    Plant("deliver-uncommitted", 19, "nothing is delivered past the commit position", _deliver_what_is_recorded),
    Plant("unanimous-or-nothing", 21, "a majority is enough for an election", _wait_for_everybody, "member-left-out"),
    Plant(
        "leader-without-followers",
        21,
        "a leader that hears no majority steps down",
        _lead_without_followers,
        "leader-alone",
    ),
    Plant("canvass-storm", 27, "a canvass is answered once", _answer_every_canvass, "no-quorum"),
    Plant("late-sync-forgotten", 28, "a spare follower syncs in the end what it lets wait", _forget_late_syncs),
    Plant("slowest-decides", 28, "a commit waits for a majority only", _commit_what_all_have, "slow-disk"),
)
