"""Safety rules, each broken on purpose behind a switch: what the checks of this directory have to catch.

A plant replaces one function or method while a test runs; nothing in the product knows of it. `PLANTS` is the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from trimaran.cluster.core import context
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.election import ballot, canvass, election, leader_phase, voting
from trimaran.cluster.core.election.election import Election
from trimaran.cluster.core.election.leader_phase import LeaderPhase
from trimaran.cluster.core.events import ClientConnect
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.peers import dialogue, message_rules
from trimaran.cluster.core.roles import leader, leadership_probe
from trimaran.cluster.core.roles.follower import FollowerTerm
from trimaran.cluster.core.roles.transfer import TransferControl
from trimaran.cluster.core.sessions import session_claims, sessions
from trimaran.cluster.core.sessions.session_answers import answer
from trimaran.cluster.core.sessions.sessions import SessionManager
from trimaran.cluster.core.vocabulary import members
from trimaran.cluster.core.vocabulary.configuration import MemberKind
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.core.vocabulary.members import ClusterMember
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.core.vocabulary.timers import TimerService
from trimaran.cluster.messages.reads import LeadershipProbe
from trimaran.cluster.messages.transfer import TransferLeadership
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.session import EventCode


@dataclass(frozen=True, slots=True)
class Plant:
    """One broken rule: how to break it, and what finds it.

    `finder` names a test of this directory that must fail; without one, the first of the control run's seeds, from
    `first_seed` on, whose cluster breaks a rule of the referee finds it.
    """

    name: str
    rule: str
    break_it: Callable[[pytest.MonkeyPatch], None]
    finder: str | None = None
    first_seed: int = 0
    """Where to begin to look: what is rare is sought where it was found."""


def _count_positions_of_any_term(patch: pytest.MonkeyPatch) -> None:
    real = members.quorum_position

    def quorum_position(everyone: Sequence[ClusterMember], **facts: int) -> int:
        for member in everyone:
            if member.append_position >= 0:
                member.append_leadership_term_id = TermId(facts["leadership_term_id"])
        return real(everyone, **facts)

    def forget_term(member: ClusterMember) -> None:
        """What was reported in an older term is kept."""

    patch.setattr(leader_phase, "quorum_position", quorum_position)
    patch.setattr(leader, "quorum_position", quorum_position)
    patch.setattr(ClusterMember, "forget_term", forget_term)


def _truncate_below_the_own_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "invariant", lambda *_, **__: None)


def _vote_for_any_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context, "compare_log", lambda *_: 0)
    patch.setattr(members, "compare_log", lambda *_: 0)


def _persist_candidate_term_late(patch: pytest.MonkeyPatch) -> None:
    """The effect goes out at the end of the turn, after the votes."""
    real = ConsensusContext.emit

    def propose(ctx: ConsensusContext, candidate_term_id: TermId) -> None:
        if candidate_term_id > ctx.candidate_term_id:
            ctx.candidate_term_id = candidate_term_id
            late.append((ctx, fx.PersistCandidateTerm(candidate_term_id, ctx.append_position, ctx.timestamp)))

    def emit(ctx: ConsensusContext, effect: fx.Effect) -> None:
        real(ctx, effect)
        if isinstance(effect, fx.StateChanged | fx.ElectionClosed):
            for entry in [entry for entry in late if entry[0] is ctx]:
                late.remove(entry)
                real(ctx, entry[1])

    late: list[tuple[ConsensusContext, fx.Effect]] = []
    patch.setattr(ConsensusContext, "propose_candidate_term", propose)
    patch.setattr(ConsensusContext, "emit", emit)


def _forget_votes(patch: pytest.MonkeyPatch) -> None:
    """The candidate term is kept in memory only."""

    def propose(ctx: ConsensusContext, candidate_term_id: TermId) -> None:
        ctx.candidate_term_id = max(ctx.candidate_term_id, candidate_term_id)

    patch.setattr(ConsensusContext, "propose_candidate_term", propose)


def _mark_the_term_late(patch: pytest.MonkeyPatch) -> None:
    """The recording log knows the term, its file does not."""

    def begin_log_term(ctx: ConsensusContext, leadership_term_id: TermId, term_base_log_position: int) -> None:
        ctx.recording_log.ensure_coherent(
            recording_id=ctx.log_recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=-1,
            timestamp=ctx.timestamp,
        )
        ctx.log_leadership_term_id = leadership_term_id

    patch.setattr(ConsensusContext, "begin_log_term", begin_log_term)


def _lead_without_a_quorum_of_marks(patch: pytest.MonkeyPatch) -> None:
    """Raft figure 8: the winner takes its log for committed because a majority holds as many bytes."""

    def poll(self: LeaderPhase) -> None:
        self._quorum_position()
        reason = Reason(ReasonKind.ACTIVITY_FAILED, detail="planted")
        self._election.enter(ElectionState.LEADER_REPLAY, reason)

    patch.setattr(LeaderPhase, "_poll_leader_log_replication", poll)


def _drop_marks_with_a_truncation(patch: pytest.MonkeyPatch) -> None:
    real = RecordingLog.truncate_terms
    patch.setattr(RecordingLog, "truncate_terms", lambda self, position: real(self, position - 1))


def _follow_older_leaders(patch: pytest.MonkeyPatch) -> None:
    """An announcement is taken at its word, whatever this member has voted for since."""
    patch.setattr(Election, "refuses", lambda *_: False)


def _deliver_what_is_recorded(patch: pytest.MonkeyPatch) -> None:
    """Replay and delivery go to the end of the window, committed or not."""
    real = BoundedLogAdapter.poll

    def poll(self: BoundedLogAdapter, limit_bytes: int) -> bool:
        self.limit_position = max(self.limit_position, self._log_buffer.append_position)
        return real(self, limit_bytes)

    patch.setattr(BoundedLogAdapter, "poll", poll)


def _give_session_ids_from_memory(patch: pytest.MonkeyPatch) -> None:
    """A leader counts on from what it gave out itself."""
    real = SessionManager.on_replay_session_open

    def on_replay_session_open(self: SessionManager, event: SessionOpenEvent, end_position: int) -> None:
        given = self._next_session_id
        real(self, event, end_position)
        self._next_session_id = given

    patch.setattr(SessionManager, "on_replay_session_open", on_replay_session_open)


def _answer_before_the_open_commits(patch: pytest.MonkeyPatch) -> None:
    real = SessionManager.on_connect

    def on_connect(self: SessionManager, event: ClientConnect, publisher: LogPublisher) -> None:
        known = {*self._awaiting_open}
        real(self, event, publisher)
        for session_id in {*self._awaiting_open} - known:
            session = self.sessions[session_id]
            del self._awaiting_open[session_id]
            answer(
                self._ctx,
                event.connection_id,
                session.correlation_id,
                EventCode.OK,
                session_id=session_id,
                detail="",
            )
            self._open_ingress(event.connection_id, session_id)

    patch.setattr(SessionManager, "on_connect", on_connect)


def _let_log_time_go_backwards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsensusContext, "stamp", lambda ctx: ctx.timestamp)


def _keep_uncommitted_opens(patch: pytest.MonkeyPatch) -> None:
    real = SessionManager.roll_back

    def roll_back(self: SessionManager) -> None:
        before = dict(self.sessions)
        real(self)
        for key in before:
            if key not in self.sessions:
                self._keep(before[key])

    patch.setattr(SessionManager, "roll_back", roll_back)


def _keep_uncommitted_closes(patch: pytest.MonkeyPatch) -> None:
    real = SessionManager.roll_back

    def roll_back(self: SessionManager) -> None:
        before = {key: (one.state, one.is_close_appended) for key, one in self.sessions.items()}
        real(self)
        for key, session in self.sessions.items():
            session.state, session.is_close_appended = before[key]

    patch.setattr(SessionManager, "roll_back", roll_back)


def _keep_uncommitted_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimerService, "rearm", lambda self: None)


def _forget_what_failed_terms_were(patch: pytest.MonkeyPatch) -> None:
    """The leader never notices that a member's last mark is of a term that failed."""
    real = dialogue.send_new_leadership_term

    def send(ctx: ConsensusContext, member: ClusterMember, *, is_startup: bool) -> None:
        kept, member.log_position = member.log_position, 1 << 62
        real(ctx, member, is_startup=is_startup)
        member.log_position = kept

    patch.setattr(dialogue, "send_new_leadership_term", send)


def _close_nothing_for_the_service(patch: pytest.MonkeyPatch) -> None:
    """Only the member that leads at that moment remembers that the service closed a session."""
    real = SessionManager.on_service_close

    def on_service_close(self: SessionManager, session_id: object) -> None:
        if self._ctx.leader_member_id == MemberId(self._ctx.config.member_id):
            real(self, session_id)  # type: ignore[arg-type]  # passed on as it came

    patch.setattr(SessionManager, "on_service_close", on_service_close)


def _let_everybody_vote(patch: pytest.MonkeyPatch) -> None:
    """A member whose directory was removed votes as any other, and is counted as any other."""
    for module in (members, canvass, ballot, voting):
        patch.setattr(module, "may_vote_for", lambda *_: True)
    real = ConsensusContext.__post_init__

    def begin(ctx: ConsensusContext) -> None:
        real(ctx)
        ctx.is_voter = True

    patch.setattr(ConsensusContext, "__post_init__", begin)


def _give_the_vote_back_at_once(patch: pytest.MonkeyPatch) -> None:
    """A member that has lost its directory votes again as soon as it follows a leader."""
    real = ConsensusContext.await_vote_beyond
    patch.setattr(ConsensusContext, "await_vote_beyond", lambda ctx, _: real(ctx, -1))


def _commit_by_who_forgot(patch: pytest.MonkeyPatch) -> None:
    """A majority is one whatever its members have forgotten."""
    patch.setattr(members, "voter_threshold", lambda _: 1)


def _confirm_whatever_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A follower says that its leader leads, though it may have helped to elect a newer one."""
    real = leadership_probe.may_acknowledge

    def may_acknowledge(ctx: ConsensusContext, message: LeadershipProbe) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ctx, "is_voter", True)
            return real(ctx, message)

    patch.setattr(leadership_probe, "may_acknowledge", may_acknowledge)


def _believe_terms_that_leap(patch: pytest.MonkeyPatch) -> None:
    """Whatever term a message names is taken for one that there is."""
    patch.setattr(message_rules, "_term_fault", lambda *_: None)


def _stand_however_reluctant(patch: pytest.MonkeyPatch) -> None:
    """A member that would lead badly stands as soon as it can, whoever else could."""
    patch.setattr(canvass, "able_members", lambda *_, **__: [])


def _ask_before_the_target_has_the_log(patch: pytest.MonkeyPatch) -> None:
    """The leader asks whom it has chosen, wherever that member's log ends."""
    real = TransferControl.on_progress

    def on_progress(self: TransferControl) -> None:
        transfer, ctx = self._running, self._ctx
        if transfer is None:
            return
        target = ctx.members[transfer.target_id]
        kept = target.append_position, ctx.append_position, ctx.commit_position
        target.append_position = ctx.append_position = ctx.commit_position = 1 << 62
        real(self)
        target.append_position, ctx.append_position, ctx.commit_position = kept

    patch.setattr(TransferControl, "on_progress", on_progress)


def _hold_on_after_giving_up(patch: pytest.MonkeyPatch) -> None:
    """The leader goes on, and its clients do not."""
    real = TransferControl._give_up

    def give_up(self: TransferControl, *facts: object) -> None:
        real(self, *facts)  # type: ignore[arg-type]  # passed on as it came
        self._actions.hold_for_transfer(is_asked=True)

    patch.setattr(TransferControl, "_give_up", give_up)


def _obey_transfers_of_any_term(patch: pytest.MonkeyPatch) -> None:
    """A request to stand is taken at its word, whoever made it, and when."""

    def on_transfer_leadership(self: FollowerTerm, message: TransferLeadership) -> Reason:
        return Reason(
            ReasonKind.LEADERSHIP_TRANSFERRED,
            leader_member_id=message.leader_member_id,
            log_position=message.log_position,
        )

    patch.setattr(FollowerTerm, "on_transfer_leadership", on_transfer_leadership)


def _let_a_witness_lead_on(patch: pytest.MonkeyPatch) -> None:
    """It holds nothing and hands nothing over: clients write into a log that no service there reads."""
    patch.setattr(Roster, "is_witness", property(lambda self: False))
    patch.setattr(Roster, "may_lead", property(lambda self: self._own_kind is not None))


def _never_let_a_witness_stand(patch: pytest.MonkeyPatch) -> None:
    """What only the witness has stays there."""
    patch.setattr(Roster, "may_stand", property(lambda self: self.may_lead))


def _do_not_count_witnesses(patch: pytest.MonkeyPatch) -> None:
    """A majority is counted of the members that can lead."""
    patch.setattr(MemberKind, "votes", property(lambda self: self is MemberKind.VOTER))


def _let_a_witness_purge_like_others(patch: pytest.MonkeyPatch) -> None:
    """It keeps the log from its own snapshot on, which holds no service's state."""
    patch.setattr(ConsensusContext, "log_purge_limit", property(lambda self: None))


def _review_no_session(patch: pytest.MonkeyPatch) -> None:
    """Once a session is open nobody asks whether its client may still have one."""
    patch.setattr(SessionManager, "review", lambda manager, publisher: None)


def _claim_without_a_certificate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_claims, "bound_digest", lambda digest, certified_principal: digest)
    patch.setattr(sessions, "bound_digest", lambda digest, certified_principal: digest)


def _claim_without_a_proof(patch: pytest.MonkeyPatch) -> None:
    """The token alone takes a session over, however its principal was admitted."""
    patch.setattr(session_claims, "proven_digest", lambda digest, encoded_principal: digest)
    patch.setattr(sessions, "proven_digest", lambda digest, encoded_principal: digest)


PLANTS: tuple[Plant, ...] = (
    Plant(
        "transfer-too-early",
        "a leader asks a follower to stand only once that one has its whole log",
        _ask_before_the_target_has_the_log,
        "roles.test_transfer:test_target_stands_only_once_it_has_the_whole_log",
    ),
    Plant(
        "hold-not-released",
        "a leader that gives a transfer up takes input again",
        _hold_on_after_giving_up,
        "roles.test_transfer:test_leader_goes_on_when_the_target_is_not_elected_within_an_election_timeout",
    ),
    Plant(
        "old-transfer-obeyed",
        "a member stands for the leader of its term only, and with the whole log",
        _obey_transfers_of_any_term,
        "roles.test_transfer:test_request_that_is_old_or_names_another_log_or_leader_is_not_obeyed",
    ),
    Plant(
        "leap-term-believed",
        "a term is believed near one that is vouched for",
        _believe_terms_that_leap,
        "peers.test_message_rules:test_stranger_cannot_go_on_from_a_term_that_it_raised",
    ),
    Plant(
        "reluctant-stands",
        "a reluctant member leaves an election to a willing one that can win",
        _stand_however_reluctant,
        "vocabulary.test_reluctance:test_reluctant_member_leaves_a_canvass_to_a_willing_one",
    ),
    Plant(
        "any-term-counts",
        "the quorum counts only positions of this term",
        _count_positions_of_any_term,
        "election.test_election:test_winner_waits_until_a_quorum_holds_its_log_in_its_term",
    ),
    Plant("any-log-wins", "a vote goes to no older log", _vote_for_any_log),
    Plant(
        "truncate-below-commit",
        "nothing below the own commit position is truncated: the node stops instead",
        _truncate_below_the_own_commit,
        "election.test_follower_phase:test_own_commit_position_is_never_truncated",
    ),
    Plant(
        "wiped-member-votes",
        "a member that lost its directory elects nobody before it has caught up with a leader",
        _let_everybody_vote,
        "test_voter:test_member_that_lost_its_directory_elects_nobody_without_what_it_once_acknowledged",
    ),
    Plant("vote-after-send", "a vote is durable before it is sent", _persist_candidate_term_late),
    Plant("vote-in-memory", "a vote survives a restart", _forget_votes),
    Plant(
        "vote-back-at-once",
        "a member that forgot its votes has one again only with an entry that came later and committed without it",
        _give_the_vote_back_at_once,
        "test_voter:test_newcomer_that_has_caught_up_is_no_voter_yet",
    ),
    Plant(
        "commit-by-who-forgot",
        "nothing commits by a member that has forgotten what it acknowledged",
        _commit_by_who_forgot,
        "test_voter:test_member_that_lost_its_directory_helps_a_deposed_leader_to_commit_nothing",
    ),
    Plant(
        "confirm-who-forgot",
        "a member that has forgotten its votes confirms no leader",
        _confirm_whatever_is_forgotten,
        "test_voter:test_newcomer_does_not_confirm_that_a_leader_leads",
    ),
    Plant("mark-in-memory", "a term is marked, durably, before it is acknowledged", _mark_the_term_late),
    Plant(
        "figure-8",
        "a quorum is in the term before the leader's log commits",
        _lead_without_a_quorum_of_marks,
        first_seed=17,
    ),
    Plant(
        "mark-truncated",
        "a truncation keeps the mark of the term that it empties",
        _drop_marks_with_a_truncation,
        "election.test_follower_phase:test_truncation_to_where_a_term_begins_keeps_the_mark_of_that_term",
    ),
    Plant(
        "follow-older",
        "a member that voted in a higher term follows no older leader",
        _follow_older_leaders,
        "election.test_voting:test_member_that_voted_in_a_higher_term_follows_no_older_leader",
    ),
    Plant(
        "failed-term-relabelled",
        "the mark of a failed term gives way",
        _forget_what_failed_terms_were,
        "log.test_failed_terms:test_mark_of_a_failed_term_gives_way_to_the_leaders_history",
    ),
    Plant("deliver-uncommitted", "replay and delivery are bounded by the commit position", _deliver_what_is_recorded),
    Plant(
        "session-id-in-memory", "session ids come from committed state", _give_session_ids_from_memory, first_seed=29
    ),
    Plant(
        "answer-uncommitted-open",
        "nobody is told of a session before it commits",
        _answer_before_the_open_commits,
        "sessions.test_sessions:test_leader_appends_the_open_first_and_answers_when_it_is_delivered",
    ),
    Plant("time-goes-back", "log time never goes backwards across leaders", _let_log_time_go_backwards),
    Plant("open-not-rolled-back", "an uncommitted open is undone", _keep_uncommitted_opens),
    Plant("close-not-rolled-back", "an uncommitted close is undone", _keep_uncommitted_closes),
    Plant(
        "timer-not-rolled-back",
        "an uncommitted timer event is undone",
        _keep_uncommitted_timers,
        "vocabulary.test_terms:test_uncommitted_timers_fire_again_under_the_next_leader",
    ),
    Plant(
        "service-close-forgotten",
        "every member knows what its service closed",
        _close_nothing_for_the_service,
        "sessions.test_sessions:test_whoever_leads_appends_the_close_that_the_service_asked_for",
    ),
    Plant(
        "token-readmits",
        "a new leader ends the sessions of those who may have none any more, whatever token is shown",
        _review_no_session,
        "sessions.test_revocation:test_new_leader_ends_the_sessions_of_the_gone_before_anything_else",
    ),
    Plant(
        "token-without-certificate",
        "the token of a session that a certificate opened counts only with that certificate",
        _claim_without_a_certificate,
        "sessions.test_revocation:test_session_of_a_certificate_is_not_taken_over_without_it",
    ),
    Plant(
        "token-without-proof",
        "the token of a session that an authenticator opened counts only with the proof of its principal",
        _claim_without_a_proof,
        "sessions.test_session_proofs:test_thief_with_the_token_alone_gets_nothing_and_the_owner_notices_nothing",
    ),
    Plant(
        "witness-leads-on",
        "a witness leads only to hand over, and takes no input",
        _let_a_witness_lead_on,
        "test_witness:test_what_only_the_witness_has_comes_to_the_member_that_is_left_which_then_leads",
    ),
    Plant(
        "witness-never-stands",
        "a witness gives what only it has to the member that is left",
        _never_let_a_witness_stand,
        "test_witness:test_what_only_the_witness_has_comes_to_the_member_that_is_left_which_then_leads",
    ),
    Plant(
        "witness-not-counted",
        "a witness votes and counts",
        _do_not_count_witnesses,
        "test_witness:test_a_witness_leaves_the_election_to_a_member_with_as_much_log",
    ),
    Plant(
        "witness-stands-first",
        "a witness leaves the election to a member that can lead",
        _stand_however_reluctant,
        "test_witness:test_a_witness_leaves_the_election_to_a_member_with_as_much_log",
    ),
    Plant(
        "witness-purges-alone",
        "a witness keeps the log from the newest snapshot on that every member that can lead has",
        _let_a_witness_purge_like_others,
        "test_witness:test_a_witness_keeps_the_log_from_the_oldest_snapshot_that_a_member_has_as_its_newest",
    ),
)
"""Every plant, in the order of the rules."""
