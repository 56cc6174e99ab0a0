"""An election, from INIT to CLOSED: its state, its phase, and one door.

The election is a canvass (a survey that doubles as Raft's pre-vote), a nomination after a random delay, a ballot, and
then two columns of states: the leader's and the follower's, in which logs are made equal before the term begins. It
is pure: inputs are messages and events, outputs are effects; what takes long (stopping the log, copying a term,
replaying) is begun with an effect and comes back as an event.

A *phase* is one or more of the states together with what is known in these only: `InitPhase` here, then `Canvass`,
`Ballot`, `LeaderPhase` and `FollowerPhase`, each in its module. An `Election` holds what outlives its phases, and knows
none of them: `phases` says which phase has which state.

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
  up with a leader completely, even if its log, as far as it has copied that again, calls it the only member. Only where
  every log is empty may it vote and stand: so a cluster forms itself.
- *No term is spent in vain*, so that a member on half a link unsettles nobody. Who canvassed long ago counts no more;
  each ballot that fails makes the next nomination wait longer.
- *A request for a vote is kept until the log is stopped*, as it often is what ended the term.
- *A closed link is news, and so is silence*: members whose process is gone are not waited for, except at the first
  canvass after a start; a ballot does not wait for who said nothing in the canvass. See `voting`.

Source: seed 001; aeron.md §2.3-§2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....service_api import InvariantViolation, Role, invariant
from ....service_api.types import NULL_TERM_ID, NULL_VALUE, MemberId, TermId
from ...messages.consensus import NewLeadershipTerm, RequestVote
from .. import effects as fx
from ..context import ConsensusContext
from ..events import (
    ActivityFailed,
    LinkChanged,
    LogStopped,
    LogTruncated,
    SeedAnnounced,
    SnapshotFetched,
    SnapshotFetchFailed,
)
from ..vocabulary.back_off import back_off_ns
from ..vocabulary.election_state import LEGAL_TRANSITIONS, ElectionState
from ..vocabulary.phase import NEVER_NS, Handlers
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from .snapshot_fetch import SnapshotFetch

_FIRST_PAUSE_NS = 50_000_000
_PAUSE_LIMIT_NS = 5_000_000_000


@dataclass(slots=True)
class LastElection:
    """The newest election of this member, for a status page. Times in monotonic nanoseconds."""

    reason: Reason
    """Why it began, or why it takes so long."""
    started_ns: int
    closed_ns: int | None = None
    """When it was over; None while it goes on."""
    leadership_term_id: int = NULL_TERM_ID
    """The term that came of it; -1 while it goes on."""


class Election:
    """One election of one member. It is created for it and dropped when it is CLOSED."""

    def __init__(
        self,
        ctx: ConsensusContext,
        phases: Mapping[ElectionState, Callable[[Election], ElectionPhase]],
        *,
        is_node_startup: bool,
        why: Reason,
    ) -> None:
        self.ctx = ctx
        self.record = LastElection(why, ctx.now_ns)
        self.is_node_startup = is_node_startup
        self.is_extended_canvass = is_node_startup
        """Whether the canvass waits for members that cannot be reached yet: the first one after a start."""
        self.failed_ballot_count = 0
        self.nomination_refused: Reason | None = None
        """What this member said last of why it does not stand: said once while it holds."""
        self.holds_back_until_ns: int | None = None
        """Until when this member, reluctant to lead, leaves it to others; set when it could first stand."""
        self.is_successor = why.kind is K.LEADERSHIP_TRANSFERRED
        """Whether the leader asked this member to stand: so it does at once, for one ballot. See `transfer`."""
        self.fetch = SnapshotFetch(ctx)
        self.state = ElectionState.INIT
        self.state_entered_ns = ctx.now_ns
        self._phases = phases
        self._failure_count = 0
        self._refused_leader: tuple[int, int] | None = None
        self._handlers: Handlers = {
            LinkChanged: self.on_link_changed,
            SeedAnnounced: self._on_seed_announced,
            SnapshotFetched: self._on_snapshot_fetched,
            SnapshotFetchFailed: self.fetch.on_failed,
        }
        ctx.emit(fx.ElectionStarted(why))
        self._take_up(InitPhase(self, is_log_stopped=is_node_startup))

    def __repr__(self) -> str:
        ctx = self.ctx
        return (
            f"<Election member={ctx.config.member_id} {self.state.name} "
            f"term={ctx.candidate_term_id} append={ctx.append_position}>"
        )

    def poll(self) -> None:
        """Do what time has made due."""
        _, poll = self._phase.states[self.state]
        poll()

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return self._phase.next_deadline_ns()

    # --- the one door

    def enter(self, new: ElectionState, reason: Reason, phase: ElectionPhase | None = None) -> None:
        """Change the state; `phase` is what has the new one, where that knows something already.

        Raises:
            InvariantViolation: the table of transitions does not have this one.
        """
        old, ctx = self.state, self.ctx
        if new not in LEGAL_TRANSITIONS[old]:
            raise InvariantViolation(f"illegal election transition: old={old.name} new={new.name} reason={reason}")
        self.state = new
        self.state_entered_ns = ctx.now_ns
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
        if new is ElectionState.CLOSED:
            self._close()
        elif phase is None and new in self._phase.states:
            self._take_up(self._phase)
        else:
            self._take_up(phase or self._phases[new](self))

    def _take_up(self, phase: ElectionPhase) -> None:
        self._phase = phase
        self.handlers = {**self._handlers, **phase.handlers}
        phase.deadline_ns = NEVER_NS
        phase.next_status_ns = self.ctx.now_ns + phase.status_interval_ns
        enter, _ = phase.states[self.state]
        enter()

    def _close(self) -> None:
        ctx = self.ctx
        assert ctx.leader_member_id is not None
        self.record.closed_ns = ctx.now_ns
        self.record.leadership_term_id = ctx.leadership_term_id
        ctx.emit(fx.ElectionClosed(ctx.leadership_term_id, ctx.leader_member_id, ctx.append_position))

    def restart(self, reason: Reason, *, is_failure: bool = False, truncate_position: int | None = None) -> None:
        """Go back to INIT, after a growing pause when it is for a failure, so that nothing spins."""
        if self.state is ElectionState.INIT:
            return
        self.is_successor = False
        pause_ns = 0
        if is_failure:
            pause_ns = back_off_ns(self._failure_count, first_ns=_FIRST_PAUSE_NS, limit_ns=_PAUSE_LIMIT_NS)
            self._failure_count += 1
        init = InitPhase(self, pause_ns=pause_ns, truncate_position=truncate_position)
        self.enter(ElectionState.INIT, reason, init)

    # --- what is the same in every phase

    def refuses(self, message: NewLeadershipTerm) -> bool:
        """Whether a leader is not followed, for this member voted in a higher term.

        That is said once: the leader repeats itself until it learns of the higher term.
        """
        ctx = self.ctx
        if message.leadership_term_id >= ctx.candidate_term_id:
            return False
        refused = (message.leader_member_id, message.leadership_term_id)
        if refused != self._refused_leader:
            self._refused_leader = refused
            reason = Reason(K.VOTED_IN_HIGHER_TERM, candidate_term_id=ctx.candidate_term_id)
            ctx.emit(fx.LeaderRefused(MemberId(message.leader_member_id), message.leadership_term_id, reason))
        return True

    def refuse_nomination(self, reason: Reason) -> None:
        """Say, once while it holds, why this member does not stand."""
        if reason != self.nomination_refused:
            self.nomination_refused = reason
            self.ctx.emit(fx.NominationRefused(reason))

    def on_link_changed(self, event: LinkChanged) -> None:
        """A member's process came or went."""
        self.ctx.on_link_changed(event)
        if event.is_up:
            self.failed_ballot_count = min(self.failed_ballot_count, 1)

    def fetch_seed(self) -> None:
        """Ask for the snapshot that the log begins with; until it is here this member follows nobody, nor stands."""
        member_ids = ", ".join(map(str, sorted(self.ctx.seeded_member_ids)))
        self.record.reason = Reason(K.SEED_MISSING, member_ids=member_ids)  # for operators who ask why this takes long
        self.refuse_nomination(self.record.reason)
        self.fetch.begin_seed()

    def _on_seed_announced(self, event: SeedAnnounced) -> None:
        """A member's log is seeded: what this member had begun with an empty log and without the seed is void."""
        self.ctx.note_seed(event)
        if self.ctx.lacks_seed and self.state is not ElectionState.CANVASS:
            self.restart(Reason(K.SEED_MISSING, member_ids=event.member_id))

    def _on_snapshot_fetched(self, event: SnapshotFetched) -> None:
        """A snapshot is here: go on from it, unless this member follows or leads by now."""
        self.fetch.on_fetched(event, is_wanted=self._phase.is_without_leader)


class ElectionPhase:
    """Some states of an election, and what is known in these only.

    A subclass sets `states`, with the methods that enter and poll each, and `handlers`.
    """

    states: Mapping[ElectionState, tuple[Callable[[], None], Callable[[], None]]]
    handlers: Handlers
    is_without_leader = True
    """Whether this member knows of no leader in these states, itself included."""

    def __init__(self, election: Election, *, status_interval_ns: int) -> None:
        self._election, self._ctx = election, election.ctx
        self.status_interval_ns = status_interval_ns
        """How often this member says where it stands."""
        self.deadline_ns = self.next_status_ns = NEVER_NS
        """When the state is over at the latest, and when to say again where this member stands; set on entering it."""

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        if self.deadline_ns > self._ctx.now_ns:
            return min(self.deadline_ns, self.next_status_ns)
        return self.next_status_ns

    def on_activity_failed(self, event: ActivityFailed) -> None:
        """What this state waited for failed."""
        self._election.restart(Reason(K.ACTIVITY_FAILED, detail=event.reason), is_failure=True)


class InitPhase(ElectionPhase):
    """INIT: the log is stopped, and cut back where that has to be."""

    def __init__(
        self,
        election: Election,
        *,
        is_log_stopped: bool = False,
        pause_ns: int = 0,
        truncate_position: int | None = None,
    ) -> None:
        super().__init__(election, status_interval_ns=NEVER_NS)  # it says nothing
        self._is_log_stopped = is_log_stopped
        self._not_before_ns = self._ctx.now_ns + pause_ns
        self._truncate_position = truncate_position
        self._vote_request: RequestVote | None = None
        """The newest request for a vote that came meanwhile: it is answered as soon as it can be."""
        self.states = {ElectionState.INIT: (self._enter_init, self._poll_init)}
        self.handlers = {
            LogStopped: self._on_log_stopped,
            LogTruncated: self._on_log_truncated,
            RequestVote: self._on_request_vote,
        }

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return self._not_before_ns if self._is_log_stopped else NEVER_NS

    def _enter_init(self) -> None:
        ctx = self._ctx
        ctx.forget_leader()
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
        election = self._election
        if ctx.is_barred or not ctx.roster.is_alone:
            if election.is_successor:
                election.enter(ElectionState.NOMINATE, Reason(K.SUCCESSOR))
                return
            election.enter(ElectionState.CANVASS, Reason(K.LOG_STOPPED))
            if self._vote_request is not None:
                election.handlers[RequestVote](self._vote_request)
            return
        if not ctx.may_stand:
            election.refuse_nomination(ctx.vote_state_reason)
            self._not_before_ns = NEVER_NS  # there is nobody else who could vouch for its term
            return
        ctx.stand_in_next_term()
        election.enter(ElectionState.LEADER_LOG_REPLICATION, Reason(K.ONLY_MEMBER))

    def _on_request_vote(self, message: RequestVote) -> None:
        """A member stands; where this log ends is known only once it is stopped."""
        known = self._vote_request
        if known is None or message.candidate_term_id >= known.candidate_term_id:
            self._vote_request = message

    def _on_log_stopped(self, event: LogStopped) -> None:
        """Nothing writes to the log any more."""
        ctx = self._ctx
        ctx.append_position = event.append_position
        truncate_position = self._truncate_position
        if truncate_position is not None and truncate_position < ctx.append_position:
            invariant(
                truncate_position >= ctx.commit_position,
                "committed entries are never truncated",
                truncate_position=truncate_position,
                commit_position=ctx.commit_position,
            )
            ctx.emit(fx.TruncateLog(truncate_position))
            return
        self._is_log_stopped = True
        self._poll_init()

    def _on_log_truncated(self, event: LogTruncated) -> None:
        """The log was cut back; the recording log follows."""
        ctx = self._ctx
        ctx.append_position = event.append_position
        # A term that begins right here is empty now, but its mark stays: no older log may win over it.
        ctx.recording_log.truncate_terms(event.append_position + 1)
        last = ctx.recording_log.last_term()
        ctx.log_leadership_term_id = TermId(NULL_VALUE if last is None else last.leadership_term_id)
        ctx.emit(fx.PersistRecordingLog())
        self._is_log_stopped = True
        self._poll_init()
