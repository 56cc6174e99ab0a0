"""An election, from INIT to CLOSED: one method per state, one per message, one door.

The election is a canvass (a survey that doubles as Raft's pre-vote), a nomination after a random delay, a ballot, and
then two columns of states: the leader's and the follower's, in which logs are made equal before the term begins. It
is pure: inputs are messages and events, outputs are effects; what takes long (stopping the log, copying a term,
replaying) is begun with an effect and comes back as an event.

Where it is stricter than Aeron (each has a test that fails without it):

- *The term is marked before it is acknowledged.* A member writes the new term into its recording log, durably, before
  it reports a position in that term, and log comparisons use that mark. A majority of marks at one position is what
  Raft gets from committing a no-op entry: no log of an older term can win any more, so the leader may process its
  whole log (Raft paper §5.4.2, figure 8).
- *A member that voted in a term follows no leader of an older one*, and a leader that hears of a higher term steps
  down.
- *Positions of another term never count*, and nothing below the own commit position is ever truncated.
- *Who has lost its memory does not vote.* A member is a voter while it has a candidate term on disk. One whose
  directory was removed may have acknowledged what it no longer holds, so it helps nobody to lead before it has caught
  up with a leader completely. Only where every log is empty may it vote and stand: so a cluster forms itself.
- *No term is spent in vain*, so that a member on half a link unsettles nobody. Who canvassed long ago counts no more;
  each ballot that fails makes the next nomination wait longer.
- *A closed link is news, and so is silence*: members whose process is gone are not waited for, except at the first
  canvass after a start; a ballot does not wait for who said nothing in the canvass. See `election_ballot`.

Source: seed 001; aeron.md §2.3-§2.9.
"""

from __future__ import annotations

from trimaran.service_api import InvariantViolation, Role, invariant
from trimaran.service_api.types import NULL_POSITION, NULL_VALUE, MemberId, TermId

from ...messages.consensus import AppendPosition, CommitPosition, NewLeadershipTerm
from .. import dialogue
from .. import effects as fx
from ..context import ConsensusContext
from ..election_state import FOLLOWER_STATES, LEADER_STATES, LEGAL_TRANSITIONS, ElectionState
from ..events import ActivityFailed, LinkChanged, LogStopped, LogTruncated, Recorded, ReplayDone
from ..members import is_active, quorum_position, quorum_threshold
from ..reason import Reason
from ..reason import ReasonKind as K
from .ballot import BallotPhase
from .follower_phase import FollowerPhase, Leader, Replication, SnapshotFetch

NEVER_NS = 1 << 62
"""A monotonic time that does not come: no deadline."""

_BACKOFF_BASE_NS = 50_000_000
_BACKOFF_LIMIT_NS = 5_000_000_000


class Election(BallotPhase, FollowerPhase):
    """One election of one member. It is created for it and dropped when it is CLOSED."""

    def __init__(self, ctx: ConsensusContext, *, is_node_startup: bool, reason: Reason) -> None:
        self._ctx = ctx
        self._is_extended_canvass = is_node_startup
        ctx.is_cluster_formed = ctx.is_cluster_formed or not ctx.is_log_empty
        self.is_leader_startup = is_node_startup
        self._leader: Leader | None = None
        self._replication: Replication | None = None
        self._truncate_position: int | None = None
        self._refused_leader: tuple[int, int] | None = None
        self._fetch: SnapshotFetch | None = None
        self._nomination_refused: Reason | None = None
        self._failure_count = 0
        self._failed_ballot_count = 0
        self._not_before_ns = ctx.now_ns
        self._deadline_ns = ctx.now_ns
        self._next_status_ns = ctx.now_ns
        self._is_log_stopped = is_node_startup
        self.state = ElectionState.INIT
        self.state_entered_ns = ctx.now_ns
        ctx.emit(fx.ElectionStarted(reason))
        self._enter_init()

    def __repr__(self) -> str:
        ctx = self._ctx
        return (
            f"<Election member={ctx.config.member_id} {self.state.name} "
            f"term={ctx.candidate_term_id} append={ctx.append_position}>"
        )

    def poll(self) -> None:
        """Do what time has made due."""
        _POLL[self.state](self)

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        if self.state is ElectionState.INIT:
            return self._not_before_ns if self._is_log_stopped else NEVER_NS
        if self._deadline_ns > self._ctx.now_ns or self.state is ElectionState.NOMINATE:
            return min(self._deadline_ns, self._next_status_ns)
        return self._next_status_ns

    # --- messages

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """A leader announces itself: adopt it, or make this log fit for it first."""
        ctx = self._ctx
        term_id = message.leadership_term_id
        if self.state is ElectionState.INIT:
            return
        if term_id < ctx.candidate_term_id:
            self._refuse_leader(message)
            return
        if self.state in LEADER_STATES:
            if term_id > ctx.leadership_term_id:
                self.restart(Reason(K.HIGHER_TERM_LEADER, member_id=message.leader_member_id, term_id=term_id))
        elif self.state in FOLLOWER_STATES:
            if term_id > ctx.leadership_term_id:
                self.restart(Reason(K.HIGHER_TERM_LEADER, member_id=message.leader_member_id, term_id=term_id))
            elif self._leader is not None and message.leader_member_id == self._leader.member_id:
                self._on_leader_alive(message.commit_position)
        elif message.log_leadership_term_id != ctx.log_leadership_term_id:
            self._answer_with_canvass(message)
        elif NULL_VALUE < message.next_leadership_term_id == ctx.log_leadership_term_id:
            self._drop_failed_term(message)
        elif NULL_POSITION < message.next_term_base_log_position < ctx.append_position:
            self._truncate_position = message.next_term_base_log_position
            self.restart(
                Reason(
                    K.SURPLUS_LOG,
                    append_position=ctx.append_position,
                    next_term_id=message.next_leadership_term_id,
                    next_term_base_log_position=message.next_term_base_log_position,
                )
            )
        elif not self._waits_for_snapshot(message):
            self._adopt_leader(message)

    def on_append_position(self, message: AppendPosition) -> None:
        """Leader: a follower reports what it has recorded."""
        ctx = self._ctx
        if self.state not in LEADER_STATES or message.leadership_term_id > ctx.leadership_term_id:
            return
        member = ctx.members[MemberId(message.follower_member_id)]
        member.append_leadership_term_id = message.leadership_term_id
        member.append_position = message.log_position
        member.time_of_last_append_ns = ctx.now_ns
        self.poll()

    def on_commit_position(self, message: CommitPosition) -> None:
        """Follower: the leader is alive and has committed this far."""
        ctx = self._ctx
        is_in_term = self.state in LEADER_STATES or self.state in FOLLOWER_STATES
        if message.leadership_term_id > ctx.leadership_term_id and is_in_term:
            self.restart(
                Reason(K.HIGHER_TERM_COMMIT, member_id=message.leader_member_id, term_id=message.leadership_term_id)
            )
        elif (
            self._leader is not None
            and message.leader_member_id == self._leader.member_id
            and message.leadership_term_id == ctx.leadership_term_id
        ):
            self._on_leader_alive(message.log_position)

    def on_log_committed(self, position: int) -> None:
        """Follower: the leader says the same with the log that this member has joined."""
        if self._leader is not None:
            self._on_leader_alive(position)

    # --- events

    def on_link_changed(self, event: LinkChanged) -> None:
        """A member's process came or went."""
        if event.is_up:
            self._failed_ballot_count = min(self._failed_ballot_count, 1)
            return
        if self._leader is not None and self._leader.member_id == event.member_id:
            self.restart(Reason(K.LEADER_LINK_CLOSED, leader_member_id=event.member_id))
        elif self.state in (ElectionState.CANVASS, ElectionState.CANDIDATE_BALLOT):
            self.poll()

    def on_log_stopped(self, event: LogStopped) -> None:
        """INIT: nothing writes to the log any more."""
        ctx = self._ctx
        if self.state is not ElectionState.INIT:
            return
        ctx.append_position = event.append_position
        truncate_position, self._truncate_position = self._truncate_position, None
        if truncate_position is not None and truncate_position < ctx.append_position:
            invariant(
                truncate_position
                >= max(ctx.commit_position, ctx.notified_commit_position if self._knows_commit() else 0),
                "committed entries are never truncated",
                truncate_position=truncate_position,
                commit_position=ctx.commit_position,
            )
            ctx.emit(fx.TruncateLog(truncate_position))
            return
        self._is_log_stopped = True
        self._poll_init()

    def on_log_truncated(self, event: LogTruncated) -> None:
        """INIT: the log was cut back; the recording log follows."""
        ctx = self._ctx
        ctx.append_position = event.append_position
        # A term that begins right here is empty now, but its mark stays: no older log may win over it.
        ctx.recording_log.truncate_terms(event.append_position + 1)
        last = ctx.recording_log.last_term()
        ctx.log_leadership_term_id = TermId(NULL_VALUE if last is None else last.leadership_term_id)
        ctx.emit(fx.PersistRecordingLog())
        self._is_log_stopped = True
        self._poll_init()

    def on_recorded(self, event: Recorded) -> None:
        """More of the log is durable here."""
        ctx = self._ctx
        ctx.append_position = max(ctx.append_position, event.position)
        if self.state is ElectionState.FOLLOWER_CATCHUP:
            self._deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns
            self._advance_commit()
            self._report_append_position()
            self._join_live_when_near()
        elif self.state is ElectionState.FOLLOWER_LOG_REPLICATION:
            self._deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns

    def on_replay_done(self, event: ReplayDone) -> None:
        """The log was processed as far as this state wanted."""
        ctx = self._ctx
        ctx.cluster_time = max(ctx.cluster_time, event.timestamp)
        if self.state is ElectionState.LEADER_REPLAY:
            self._enter(ElectionState.LEADER_INIT, Reason(K.REPLAYED, position=event.position))
        elif self.state is ElectionState.FOLLOWER_REPLAY:
            assert self._leader is not None
            join_position = self._leader.catchup_join_position
            if join_position is not None and join_position > ctx.append_position:
                self._enter(ElectionState.FOLLOWER_CATCHUP_INIT, Reason(K.BEHIND_LEADER, position=join_position))
            else:
                self._enter(ElectionState.FOLLOWER_LOG_INIT, Reason(K.REPLAYED, position=event.position))

    def on_activity_failed(self, event: ActivityFailed) -> None:
        """What this state waited for failed."""
        if self.state is not ElectionState.INIT:
            self.restart(Reason(K.ACTIVITY_FAILED, detail=event.reason), is_failure=True)

    # --- states, in the order of the diagram

    def restart(self, reason: Reason, *, is_failure: bool = False) -> None:
        """Go back to INIT, after a growing pause when it is for a failure, so that nothing spins."""
        if self.state is ElectionState.INIT:
            return
        if is_failure:
            pause_ns = min(_BACKOFF_BASE_NS << min(self._failure_count, 10), _BACKOFF_LIMIT_NS)
            self._failure_count += 1
            self._not_before_ns = self._ctx.now_ns + pause_ns
        self._is_log_stopped = False
        self._enter(ElectionState.INIT, reason)

    def _enter_init(self) -> None:
        ctx = self._ctx
        self._leader = None
        self._replication = None
        ctx.leader_member_id = None
        ctx.role = Role.FOLLOWER
        ctx.candidate_term_id = max(ctx.candidate_term_id, ctx.leadership_term_id, ctx.log_leadership_term_id)
        for member in ctx.members.values():
            member.forget_term()
        if not self._is_log_stopped:
            ctx.emit(fx.UnbindIngress(None))
            ctx.emit(fx.StopLog())

    def _poll_init(self) -> None:
        ctx = self._ctx
        if not self._is_log_stopped or ctx.now_ns < self._not_before_ns:
            return
        if len(ctx.members) > 1:
            self._enter(ElectionState.CANVASS, Reason(K.DECKS_CLEARED))
            return
        ctx.propose_candidate_term(TermId(ctx.candidate_term_id + 1))
        self._enter(ElectionState.LEADER_LOG_REPLICATION, Reason(K.ONLY_MEMBER))

    def _enter_leader_log_replication(self) -> None:
        ctx = self._ctx
        ctx.role = Role.LEADER
        ctx.leader_member_id = ctx.config.member_id
        ctx.leadership_term_id = ctx.candidate_term_id
        ctx.log_session_id = int(ctx.random() * 0x7FFF_FFFE) + 1
        ctx.term_base_log_position = ctx.append_position
        for member in ctx.members.values():
            member.forget_term()
        ctx.begin_log_term(ctx.leadership_term_id, ctx.append_position)
        ctx.emit(fx.OpenLogPublication(ctx.leadership_term_id, ctx.log_session_id))
        self._announce()
        self._poll_leader_log_replication()

    def _poll_leader_log_replication(self) -> None:
        ctx = self._ctx
        if self._quorum_position() >= ctx.append_position:
            self._enter(ElectionState.LEADER_REPLAY, Reason(K.QUORUM_HOLDS_LOG, position=ctx.append_position))
        elif not self._give_up_without_quorum():
            self._announce_when_due()

    def _enter_leader_replay(self) -> None:
        ctx = self._ctx
        ctx.commit_position = max(ctx.commit_position, ctx.append_position)
        ctx.emit(fx.CommitAdvanced(ctx.commit_position))
        ctx.emit(fx.StartReplay(ctx.append_position))

    def _poll_leader_replay(self) -> None:
        if not self._give_up_without_quorum():
            self._announce_when_due()

    def _give_up_without_quorum(self) -> bool:
        """Step down when a majority has not been heard for a heartbeat timeout, however well they may hear this one."""
        ctx = self._ctx
        timeout_ns = ctx.config.leader_heartbeat_timeout_ns
        if ctx.now_ns - self.state_entered_ns < 2 * timeout_ns:
            return False
        active_count = 1 + sum(is_active(member, ctx.now_ns, timeout_ns) for member in ctx.others)
        if active_count >= quorum_threshold(len(ctx.members)):
            return False
        self.restart(Reason(K.NO_FOLLOWER_QUORUM), is_failure=True)
        return True

    def _enter_leader_init(self) -> None:
        self._enter(ElectionState.LEADER_READY, Reason(K.LOG_OPEN))

    def _enter_leader_ready(self) -> None:
        self._enter(ElectionState.CLOSED, Reason(K.QUORUM_IN_TERM))

    def _poll_closed(self) -> None:
        """Nothing is left to do: the election object is about to be dropped."""

    def _enter_closed(self) -> None:
        ctx = self._ctx
        assert ctx.leader_member_id is not None
        ctx.emit(fx.ElectionClosed(ctx.leadership_term_id, ctx.leader_member_id, ctx.append_position))

    # --- the one door

    def _enter(self, new: ElectionState, reason: Reason) -> None:
        old, ctx = self.state, self._ctx
        if new not in LEGAL_TRANSITIONS[old]:
            raise InvariantViolation(f"illegal election transition: old={old.name} new={new.name} reason={reason}")
        self.state = new
        self.state_entered_ns = ctx.now_ns
        self._deadline_ns = NEVER_NS
        self._next_status_ns = ctx.now_ns + self._status_interval_ns()
        ctx.emit(
            fx.StateChanged(
                old=old,
                new=new,
                reason=reason,
                leadership_term_id=max(ctx.leadership_term_id, ctx.candidate_term_id),
                append_position=ctx.append_position,
                commit_position=ctx.commit_position,
            )
        )
        _ENTER[new](self)

    # --- helpers

    def _answer_with_canvass(self, message: NewLeadershipTerm) -> None:
        """Tell a leader that spoke about another log term where this log really ends; its answer will fit."""
        if self.state in (ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT):
            reason = Reason(
                K.LEADER_SPOKE_OF_OTHER_LOG,
                leader_member_id=message.leader_member_id,
                log_term_id=message.log_leadership_term_id,
            )
            self._enter(ElectionState.CANVASS, reason)
        else:
            self._ctx.send(MemberId(message.leader_member_id), dialogue.canvass_position(self._ctx))

    def _drop_failed_term(self, message: NewLeadershipTerm) -> None:
        """Take back the mark of the last term, which no quorum entered: it began, if at all, beyond this log's end.

        No majority can have it here, or the leader would. With it, what is copied next would pass for that term's.
        """
        ctx = self._ctx
        entry = ctx.recording_log.term_entry(ctx.log_leadership_term_id)
        if entry is not None and entry.term_base_log_position != message.next_term_base_log_position:
            ctx.drop_log_term()
        self._answer_with_canvass(message)

    def _refuse_leader(self, message: NewLeadershipTerm) -> None:
        """Say once that a leader is not followed; it repeats itself until it learns of the higher term."""
        refused = (message.leader_member_id, message.leadership_term_id)
        if refused != self._refused_leader:
            self._refused_leader = refused
            reason = Reason(K.VOTED_IN_HIGHER_TERM, candidate_term_id=self._ctx.candidate_term_id)
            self._ctx.emit(fx.LeaderRefused(MemberId(message.leader_member_id), message.leadership_term_id, reason))

    def _announce_when_due(self) -> None:
        if self._ctx.now_ns >= self._next_status_ns:
            self._announce()

    def _announce(self) -> None:
        """Leader: tell every member that has spoken about the term, and how far the log is committed."""
        ctx = self._ctx
        self._next_status_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        for member in ctx.others:
            if member.log_position != NULL_POSITION:
                dialogue.send_new_leadership_term(ctx, member, is_startup=self.is_leader_startup)
        dialogue.broadcast_commit_position(ctx)

    def _quorum_position(self) -> int:
        ctx = self._ctx
        me = ctx.me
        me.append_leadership_term_id = ctx.leadership_term_id
        me.append_position = ctx.append_position
        me.time_of_last_append_ns = ctx.now_ns
        return quorum_position(
            ctx.members.values(),
            leadership_term_id=ctx.leadership_term_id,
            now_ns=ctx.now_ns,
            heartbeat_timeout_ns=ctx.config.leader_heartbeat_timeout_ns,
        )

    def _status_interval_ns(self) -> int:
        if self.state in LEADER_STATES or self.state in FOLLOWER_STATES:
            return self._ctx.config.leader_heartbeat_interval_ns
        return self._ctx.config.election_status_interval_ns


_ENTER = {state: getattr(Election, f"_enter_{state.name.lower()}") for state in ElectionState}
_POLL = {state: getattr(Election, f"_poll_{state.name.lower()}", Election._poll_waiting) for state in ElectionState}
"""One method per state.

States that only wait for an event share `_poll_waiting`; some states are left in the same turn.
"""
