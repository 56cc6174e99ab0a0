"""The leader between two elections: appends, counts what a quorum has recorded, keeps followers and sessions alive.

Source: seed 002, "Consensus work"; aeron.md §3.3-§3.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....service_api.access.permissions import describe_refusal
from ....service_api.types import TICKS_PER_MS, ClusterSessionId, CorrelationId, MemberId
from ....service_api.wire.log.code_digest import with_code_digest
from ....service_api.wire.log.messages import NewLeadershipTermEvent, TimerEvent
from ....service_api.wire.session import TRANSFER_TARGET, AdminRequest, AdminRequestType, AdminResponseCode
from ...messages.consensus import (
    APPEND_POSITION_FLAG_CATCHUP,
    APPEND_POSITION_FLAG_HELD,
    APPEND_POSITION_FLAG_NO_VOTER,
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    TerminationAck,
    Vote,
)
from ...messages.reads import LeadershipProbeAck, ReadPositionRequest
from .. import effects as fx
from ..context import ConsensusContext
from ..election import higher_term
from ..events import (
    ActionRequested,
    AdminAsker,
    ClientAdmin,
    ClientChallengeResponse,
    ClientClose,
    ClientConnect,
    ClientKeepAlive,
    ClientStray,
    LiveJoined,
    LogUnreadable,
    ReadsWanted,
    Recorded,
    ReluctanceChanged,
    TransferRequested,
)
from ..log.log_publisher import LogPublisher
from ..peers import dialogue
from ..service_messages import ServiceMessages
from ..sessions.sessions import SessionManager
from ..snapshots.snapshot import SnapshotControl
from ..snapshots.standby_snapshots import StandbySnapshots
from ..vocabulary.control_toggle import ActionStep, ControlToggle
from ..vocabulary.members import ClusterMember, is_active, quorum_position
from ..vocabulary.phase import Handlers
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from ..vocabulary.timers import TimerService
from .actions import ActionControl
from .leadership_probe import LeaderReads
from .snapshot_schedule import SnapshotSchedule
from .transfer import TransferControl

_TIMER_LIMIT = 20
"""Timers fired in one poll, so that many at once do not delay ingress. Source: aeron.md §3.3."""

_SESSION_CHECK_INTERVAL_NS = 100_000_000
_TIMER_RESOLUTION_NS = 1_000_000

_CANNOT_LEAD = APPEND_POSITION_FLAG_CATCHUP | APPEND_POSITION_FLAG_HELD | APPEND_POSITION_FLAG_NO_VOTER

_COMMIT_DELAY_NS = 4_000_000
"""How long a new commit position may wait for log that it can go with to the followers.

No client waits for it: their replies are from the leader, and a follower that asks where to read is told at once.
"""


class LeaderTerm:
    """One leadership term of this member, from the first entry on. Dropped when the next election begins."""

    def __init__(
        self,
        ctx: ConsensusContext,
        sessions: SessionManager,
        timers: TimerService,
        service_messages: ServiceMessages,
        last_activity_ns: Callable[[int], int | None],
        actions: ActionControl,
        transfer: TransferControl,
        snapshots: SnapshotControl,
        standbys: StandbySnapshots,
    ) -> None:
        self._ctx = ctx
        self._sessions = sessions
        self._timers = timers
        self._service_messages = service_messages
        self._last_activity_ns = last_activity_ns
        self._actions = actions
        self._transfer = transfer
        self._snapshot_schedule = SnapshotSchedule(ctx, actions, snapshots, standbys)
        self.reads = LeaderReads(ctx)
        ctx.commit_publish_pending_since_ns = None
        self._next_heartbeat_ns = ctx.now_ns
        self._next_session_check_ns = ctx.now_ns + _SESSION_CHECK_INTERVAL_NS
        self.publisher = _make_publisher(ctx)
        self.handlers: Handlers = {
            CanvassPosition: self.on_canvass_position,
            RequestVote: self.on_request_vote,
            Vote: self.on_vote,
            NewLeadershipTerm: self.on_new_leadership_term,
            CommitPosition: self.on_commit_position,
            AppendPosition: self.on_append_position,
            CatchupPosition: self.on_catchup_position,
            LeadershipProbeAck: self.reads.on_ack,
            ReadPositionRequest: self.on_read_position_request,
            TerminationAck: actions.on_termination_ack,
            ReadsWanted: self.reads.on_wanted,
            ReluctanceChanged: self.on_reluctance_changed,
            Recorded: self.on_recorded,
            LiveJoined: self.on_live_joined,
            LogUnreadable: transfer.on_log_unreadable,
            ClientConnect: self.on_client_connect,
            ClientChallengeResponse: self.on_client_challenge_response,
            ClientKeepAlive: sessions.on_keep_alive,
            ClientClose: self.on_client_close,
            ClientAdmin: self.on_client_admin,
            ClientStray: self.on_client_stray,
        }
        self._steps_down_from_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns
        """Until then a canvass of a higher term is not heeded: a member that comes and goes may not end every term."""
        for member in ctx.members.values():
            member.time_of_last_append_ns = ctx.now_ns
        ctx.cluster_clock.begin_term(ctx.now_ns, ctx.timestamp)
        first_position = self._append_new_leadership_term_event()
        sessions.on_lead()
        actions.on_lead(self.publisher, first_position)

    def __repr__(self) -> str:
        ctx = self._ctx
        return f"<LeaderTerm term={ctx.leadership_term_id} append={ctx.append_position} commit={ctx.commit_position}>"

    def poll(self) -> Reason | None:
        """Do what time has made due. Gives the reason for an election, if there is one."""
        ctx = self._ctx
        self._actions.poll()
        self._transfer.poll()
        self._snapshot_schedule.poll()
        if not self._actions.is_holding:
            if self._sessions.is_unreviewed:
                self._sessions.review(self.publisher)
            self._fire_timers()
            self._service_messages.append(self.publisher)
        self.reads.poll()
        if self._sessions.is_welcoming:
            self._sessions.welcome_slice()
        late_ns = ctx.now_ns - self._next_session_check_ns
        if late_ns >= 0:
            self._next_session_check_ns = ctx.now_ns + _SESSION_CHECK_INTERVAL_NS
            ctx.cluster_clock.steer(ctx.now_ns, ctx.timestamp)
            if late_ns > _SESSION_CHECK_INTERVAL_NS:
                self._sessions.excuse(late_ns)
            if not self._actions.is_holding:
                self._sessions.poll(self.publisher, self._last_activity_ns)
        publish_pending_since_ns = ctx.commit_publish_pending_since_ns
        if publish_pending_since_ns is not None and ctx.now_ns - publish_pending_since_ns >= _COMMIT_DELAY_NS:
            self._publish_commit_position()
            return None
        if ctx.now_ns < self._next_heartbeat_ns:
            return None
        self._publish_commit_position()
        active_count = ctx.count_active_members()
        if ctx.is_majority(active_count):
            return None
        return Reason(K.INACTIVE_FOLLOWER_QUORUM, active_count=active_count, member_count=len(ctx.voting_members))

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        ctx = self._ctx
        is_holding = self._actions.is_holding
        if self._sessions.is_welcoming or (not is_holding and self._service_messages.is_due):
            return ctx.now_ns
        deadline_ns = min(self._next_heartbeat_ns, self._next_session_check_ns, self.reads.deadline_ns)
        if ctx.commit_publish_pending_since_ns is not None:
            deadline_ns = min(deadline_ns, ctx.commit_publish_pending_since_ns + _COMMIT_DELAY_NS)
        deadline_ns = min(deadline_ns, self._transfer.next_deadline_ns())
        deadline_ns = min(deadline_ns, self._snapshot_schedule.next_deadline_ns())
        termination_ns = self._actions.termination.next_deadline_ns()
        if termination_ns is not None:
            deadline_ns = min(deadline_ns, termination_ns)
        timer = self._timers.next_deadline()
        if timer is None or is_holding:
            return deadline_ns
        tick_ns = 1_000_000 // TICKS_PER_MS[ctx.time_unit]
        # Cluster time drifts a little, so look again in steps.
        return min(
            deadline_ns,
            ctx.now_ns
            + max(
                _TIMER_RESOLUTION_NS,
                min((timer - ctx.cluster_clock.read(ctx.now_ns)) * tick_ns, 10 * _TIMER_RESOLUTION_NS),
            ),
        )

    # --- positions

    def on_recorded(self, event: Recorded) -> None:
        """More of the leader's own recording is durable: its vote in the quorum."""
        self._ctx.append_position = event.position
        self._advance_commit()
        self._transfer.on_progress()

    def take_recorded(self, position: int, now_ns: int) -> bool:
        """Do what `on_recorded` does where it cannot move the commit position. False: it may, and nothing was done."""
        ctx = self._ctx
        if self._transfer.is_running:
            return False
        own_id, commit_position, others_count = ctx.config.member_id, ctx.commit_position, 0
        for member in ctx.roster.voting_members:
            if member.member_id != own_id:
                if member.append_position > commit_position:
                    return False
                others_count += 1
        if not others_count:
            return False
        ctx.append_position, ctx.now_ns = position, now_ns
        ctx.note_own_append()
        return True

    def on_append_position(self, message: AppendPosition) -> Reason | None:
        """A follower reports what it has recorded. One that delivers the log takes over from a leader that cannot."""
        ctx = self._ctx
        member = ctx.members[MemberId(message.follower_member_id)]
        member.time_of_last_append_ns = ctx.now_ns
        if message.leadership_term_id != ctx.leadership_term_id:
            return None
        was_at = member.append_position
        member.on_append(message)
        if not member.is_voter and was_at == message.log_position:
            self._give_vote_back(message.log_position)
        if member.is_catching_up:
            self._stop_catchup_if_joined(member)
        if message.log_position > ctx.commit_position:  # otherwise it can be no news to a majority
            self._advance_commit()
        self._transfer.on_progress()
        if ctx.held is None or message.flags is None or message.flags & _CANNOT_LEAD:
            return None
        if message.log_position < ctx.log_buffer.append_position or not ctx.roster.can_lead(member.member_id):
            return None
        return Reason(K.HELD_LEADER, member_id=message.follower_member_id, log_position=ctx.held.log_position)

    def _give_vote_back(self, log_position: int) -> None:
        """Append padding if a member that waits for an entry to get its vote back has reported the end of a still log.

        It has reported that position twice, so it has heard that all of the log is committed.
        """
        ctx = self._ctx
        if log_position == ctx.log_buffer.append_position == ctx.commit_position and not self._actions.is_log_closed:
            self.publisher.append_padding()

    def _advance_commit(self) -> None:
        ctx = self._ctx
        ctx.note_own_append()
        position = min(
            ctx.append_position,
            quorum_position(
                ctx.roster.voting_members,
                leadership_term_id=ctx.leadership_term_id,
                now_ns=ctx.now_ns,
                heartbeat_timeout_ns=ctx.config.leader_heartbeat_timeout_ns,
            ),
        )
        if position > ctx.commit_position:
            ctx.commit_position = position
            self._say_commit_position()
            ctx.emit(fx.CommitAdvanced(position))
            self._actions.on_commit(position)

    def _say_commit_position(self) -> None:
        """Leave it to the log that follows to tell the followers, or tell them now if one of them does not get that.

        They are told now as well where the service is slow: their callbacks are to run beside this member's then. A
        standby that follows another one waits for the next heartbeat: it is not to cost anything.
        """
        ctx = self._ctx
        if ctx.now_ns < ctx.slow_delivery_until_ns:
            self._publish_commit_position()
            return
        for member in ctx.others:
            is_waiting = member.is_catching_up or member.live_join_position is None
            if member.is_reachable and is_waiting and not member.is_relayed:
                self._publish_commit_position()
                return
        if ctx.commit_publish_pending_since_ns is None:
            ctx.commit_publish_pending_since_ns = ctx.now_ns

    def _publish_commit_position(self) -> None:
        ctx = self._ctx
        ctx.commit_publish_pending_since_ns = None
        self._next_heartbeat_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        dialogue.broadcast_commit_position(ctx)

    # --- reads without a log entry: see `leadership_probe`

    def on_read_position_request(self, message: ReadPositionRequest) -> None:
        """A follower asks how far it has to read: it has to know then that this is committed."""
        if self._ctx.commit_publish_pending_since_ns is not None:
            self._publish_commit_position()
        self.reads.on_request(message)

    # --- members that come back, or are in a higher term

    def on_canvass_position(self, message: CanvassPosition) -> Reason | None:
        """A member asks where it stands."""
        ctx = self._ctx
        member = ctx.note_canvass(message)
        reason = higher_term.of_canvass(ctx, message)
        if reason is not None:
            return None if ctx.now_ns < self._steps_down_from_ns else reason
        ctx.emit(fx.StopCatchupReplay(member.member_id))
        dialogue.send_new_leadership_term(ctx, member, is_startup=False)
        return None

    def on_request_vote(self, message: RequestVote) -> Reason | None:
        """A candidate of no higher term is told who leads; one of a higher term has won a canvass."""
        ctx = self._ctx
        reason = higher_term.of_candidate(ctx, message)
        if reason is None:
            member = ctx.members[MemberId(message.candidate_member_id)]
            member.log_leadership_term_id = message.log_leadership_term_id
            member.log_position = message.log_position
            dialogue.send_new_leadership_term(ctx, member, is_startup=False)
        return reason

    def on_vote(self, message: Vote) -> None:
        """A vote for this term that was not needed any more."""
        dialogue.answer_vote_of_this_term(self._ctx, message, is_startup=False)

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> Reason | None:
        """Another member leads: nothing to this one, unless its term is higher."""
        return higher_term.of_leader(self._ctx, message)

    def on_commit_position(self, message: CommitPosition) -> Reason | None:
        """Another member leads: nothing to this one, unless its term is higher."""
        return higher_term.of_commit(self._ctx, message)

    def on_catchup_position(self, message: CatchupPosition) -> None:
        """A follower asks for the log from a position of the current term on."""
        ctx = self._ctx
        if message.leadership_term_id == ctx.leadership_term_id:
            # It dropped its live link, if it had one; where it once joined says nothing about this catch-up.
            member = ctx.members[MemberId(message.follower_member_id)]
            member.live_join_position = None
            member.is_catching_up = True
            ctx.emit(
                fx.StartCatchupReplay(
                    MemberId(message.follower_member_id),
                    message.log_position,
                    ctx.log_session_id,
                )
            )

    def on_live_joined(self, event: LiveJoined) -> None:
        """A follower's log link flows from this position on, without a gap."""
        member = self._ctx.members.get(event.member_id)
        if member is None:
            return  # it is no member any more
        member.live_join_position = event.position
        if member.is_catching_up:
            self._stop_catchup_if_joined(member)

    def _stop_catchup_if_joined(self, member: ClusterMember) -> None:
        """End its catch-up replay when the follower has recorded the log up to where its live link began to flow.

        The two are told on different connections, in either order.
        """
        join_position = member.live_join_position
        if join_position is not None and member.append_position >= join_position:
            # In this order: a follower that sees the replay end without a word takes it for a failure.
            dialogue.send_stop_catchup(self._ctx, member.member_id)
            self._ctx.emit(fx.StopCatchupReplay(member.member_id))

    # --- what makes this member a bad leader

    def on_reluctance_changed(self, event: ReluctanceChanged) -> Reason | None:
        """This leader has a reason not to lead: it goes on, unless it cannot do its work and another may be able to."""
        ctx = self._ctx
        is_new = ctx.note_reluctance(event.kind, event.detail)
        timeout_ns = ctx.config.leader_heartbeat_timeout_ns
        is_another_there = any(
            not member.is_reluctant
            and member.is_voter
            and member.is_reachable
            and is_active(member, ctx.now_ns, timeout_ns)
            and ctx.roster.can_lead(member.member_id)
            for member in ctx.others
        )
        if not (is_new and event.kind.ends_term and is_another_there):
            return None
        return Reason(K.LEADER_RELUCTANT, reluctance=event.kind.label, detail=event.detail or "")

    # --- clients

    def on_client_connect(self, event: ClientConnect) -> None:
        """A client asks for a session."""
        if not self._actions.holds(event):
            self._sessions.on_connect(event, self.publisher)

    def on_client_challenge_response(self, event: ClientChallengeResponse) -> None:
        """A client shows its session's secret, or answers a challenge; if it was not asked, it is sent to ask again."""
        is_answer = event.session_id < 0
        if is_answer and self._actions.holds(event):
            return
        if not is_answer or not self._sessions.pending.on_challenge_response(
            event.connection_id, event.session_id, event.encoded_credentials, self.publisher
        ):
            self._sessions.redirect_challenge_response(event)

    def on_client_stray(self, event: ClientStray) -> None:
        """A session message came that cannot be taken."""
        self._sessions.on_stray(event.connection_id, event.cluster_session_id, event.leadership_term_id)

    def on_client_close(self, event: ClientClose) -> None:
        """A client asks for its session to be closed."""
        if not self._actions.holds(event):
            self._sessions.on_close_request(event, self.publisher)

    def on_client_admin(self, event: ClientAdmin) -> None:
        """A client asks for an action over its session; it is answered when that is done, or was not."""
        ctx, request = self._ctx, event.request
        term_id, session_id = request.leadership_term_id, ClusterSessionId(request.cluster_session_id)
        session = self._sessions.session_on(event.connection_id, session_id)
        if session is None or term_id != ctx.leadership_term_id:
            self._sessions.on_stray(event.connection_id, session_id, term_id)
            return
        if self._actions.puts_off(partial(self.on_client_admin, event)):
            return
        principal, kind = session.encoded_principal, request.request_type
        correlation_id = CorrelationId(request.correlation_id)
        asker = AdminAsker(
            session_id, correlation_id, principal, event.caller, event.address, kind or AdminRequestType.SNAPSHOT
        )
        if not event.is_permitted and not ctx.authorisation.is_authorised(
            AdminRequest.SCHEMA_ID, AdminRequest.TEMPLATE_ID, kind, principal
        ):
            refusal = f"not allowed to this principal; {describe_refusal(asker.permission, event.caller)}"
            ctx.emit(fx.AdminProgressed(asker, ActionStep.REFUSED, detail=refusal))
            self._sessions.answer_admin(session_id, correlation_id, AdminResponseCode.UNAUTHORISED_ACCESS, refusal)
        elif kind is AdminRequestType.SNAPSHOT:
            if self._actions.try_begin(ActionRequested(asker, ControlToggle.SNAPSHOT)):
                ctx.emit(fx.AdminProgressed(asker, None))
        elif kind is AdminRequestType.TRANSFER and len(request.payload) in (0, TRANSFER_TARGET.size):
            target_id = TRANSFER_TARGET.unpack(request.payload)[0] if request.payload else None
            if self._transfer.try_begin(TransferRequested(asker, target_id)):
                ctx.emit(fx.AdminProgressed(asker, None))
        else:
            self._sessions.answer_admin(
                session_id,
                correlation_id,
                AdminResponseCode.ERROR,
                "no admin request of this type is known",
                request_type=kind,
            )

    # --- entries of the leader's own

    def _append_new_leadership_term_event(self) -> int:
        ctx = self._ctx
        event = NewLeadershipTermEvent(
            leadership_term_id=ctx.leadership_term_id,
            log_position=0,
            timestamp=ctx.stamp(),
            term_base_log_position=ctx.term_base_log_position,
            leader_member_id=ctx.config.member_id,
            log_session_id=ctx.log_session_id,
            time_unit=ctx.time_unit,
            app_version=ctx.config.app_version,
        )
        return self.publisher.append_positioned(with_code_digest(event, ctx.config.code_digest))

    def _fire_timers(self) -> None:
        ctx = self._ctx
        for correlation_id in self._timers.expired(ctx.cluster_clock.read(ctx.now_ns), limit=_TIMER_LIMIT):
            event = TimerEvent(
                leadership_term_id=ctx.leadership_term_id,
                correlation_id=CorrelationId(correlation_id),
                timestamp=ctx.stamp(),
            )
            self.publisher.append_message(event.encode())


def _make_publisher(ctx: ConsensusContext) -> LogPublisher:
    return LogPublisher(
        ctx.log_buffer,
        log_session_id=ctx.log_session_id,
        initial_term_id=ctx.config.initial_term_id,
        term_length_bytes=ctx.config.term_length_bytes,
        mtu_length_bytes=ctx.config.mtu_length_bytes,
        checksums=ctx.config.checksums,
        checksum_kind=ctx.config.checksum_kind,
        refused_ingress=ctx.config.refused_ingress,
    )
