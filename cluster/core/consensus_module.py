"""The consensus module of one member: pure, deterministic, driven from outside.

Events and messages go in with the time of the turn, effects come out in order. A member is at any moment in an
election or in a term, as leader or follower; this class holds what outlives both, hands each input to whichever is
there, and knows the inputs that end a term. It reads no clock, no file, no socket and no random source of its own,
and it never awaits.

Source: aeron.md §3; seed 002.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimaran.service_api import Role
from trimaran.service_api.types import NULL_TERM_ID, ClusterSessionId, MemberId, TimeUnit
from trimaran.service_api.wire.log.messages import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)

from ..messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationAck,
    TerminationPosition,
    Vote,
)
from ..messages.reads import LeadershipProbe, LeadershipProbeAck, ReadPosition, ReadPositionRequest
from . import dialogue, leadership_probe
from . import effects as fx
from . import events as ev
from .actions import ActionControl
from .context import ConsensusContext
from .election.ballot import compare_own_log
from .election.election import Election
from .election_state import ElectionState
from .follower import FollowerTerm
from .leader import LeaderTerm
from .reason import Reason
from .reason import ReasonKind as K
from .service_messages import ServiceMessages
from .sessions.sessions import SessionManager
from .snapshots.snapshot import SnapshotControl
from .timers import TimerService


@dataclass(slots=True)
class LastElection:
    """The newest election of this member, for a status page. Times in monotonic nanoseconds."""

    reason: Reason
    """Why it began."""
    started_ns: int
    closed_ns: int | None = None
    """When it was over; None while it goes on."""
    leadership_term_id: int = NULL_TERM_ID
    """The term that came of it; -1 while it goes on."""


class ConsensusModule:
    """One member's consensus module.

    `step` for what happened, `poll` for what time made due, `next_deadline_ns` for when to poll next, `take_effects`
    after either. The `on_replay_*` methods are called for entries that are delivered, in log order, on every member.
    """

    def __init__(self, ctx: ConsensusContext, *, last_activity_ns: Callable[[int], int | None]) -> None:
        self.ctx = ctx
        self.sessions = SessionManager(ctx)
        self.timers = TimerService()
        self.service_messages = ServiceMessages(ctx)
        self.snapshots = SnapshotControl(ctx, self.sessions, self.timers, self.service_messages)
        self.actions = ActionControl(ctx, self.sessions, self.snapshots, redispatch=self._dispatch)
        self.snapshots.on_finished = self.actions.on_snapshot_finished
        self.election: Election | None = None
        self.leader: LeaderTerm | None = None
        self.follower: FollowerTerm | None = None
        self.last_election: LastElection | None = None
        self._last_activity_ns = last_activity_ns
        self._handlers: dict[type, Callable[[Any], None]] = {  # Any: each handler takes the type it is keyed by
            CanvassPosition: self._on_canvass_position,
            RequestVote: self._on_request_vote,
            Vote: self._on_vote,
            NewLeadershipTerm: self._on_new_leadership_term,
            AppendPosition: self._on_append_position,
            CommitPosition: self._on_commit_position,
            CatchupPosition: self._on_catchup_position,
            StopCatchup: self._on_stop_catchup,
            LeadershipProbe: self._on_leadership_probe,
            LeadershipProbeAck: self._on_leadership_probe_ack,
            ReadPositionRequest: self._on_read_position_request,
            ReadPosition: self._on_read_position,
            ev.LinkChanged: self._on_link_changed,
            ev.LogStopped: self._on_log_stopped,
            ev.LogTruncated: self._on_log_truncated,
            ev.Recorded: self._on_recorded,
            ev.LogCommitted: self._on_log_committed,
            ev.ReplayDone: self._on_replay_done,
            ev.ReplicationDone: self._on_replication_done,
            ev.BelowOldestSegment: self._on_below_oldest_segment,
            ev.SnapshotFetched: self._on_snapshot_fetched,
            ev.SnapshotFetchFailed: self._on_snapshot_fetch_failed,
            ev.ActivityFailed: self._on_activity_failed,
            ev.LogJoined: self._on_log_joined,
            ev.LogImageClosed: self._on_log_image_closed,
            ev.CatchupImageAvailable: self._on_catchup_available,
            ev.LiveJoined: self._on_live_joined,
            TerminationPosition: self._on_termination_position,
            TerminationAck: self._on_termination_ack,
            ev.ActionRequested: self.actions.on_request,
            ev.DeliveredTo: self.actions.on_delivered,
            ev.ReadsWanted: self._on_reads_wanted,
            ev.SnapshotTaken: self.snapshots.on_taken,
            ev.SnapshotFailed: self.snapshots.on_failed,
            ev.ClientConnect: self._on_client_connect,
            ev.ClientChallengeResponse: self._on_client_challenge_response,
            ev.ClientKeepAlive: self._on_client_keep_alive,
            ev.ClientClose: self._on_client_close,
            ev.ClientAdmin: self._on_client_admin,
            ev.ClientStray: self._on_client_stray,
            ev.ClientDisconnected: self._on_client_disconnected,
        }

    def __repr__(self) -> str:
        ctx = self.ctx
        doing = self.election or self.leader or self.follower
        return f"<ConsensusModule member={ctx.config.member_id} {ctx.role.name} {doing!r}>"

    # --- the contract with the agent

    def start(self, *, now_ns: int, timestamp: int) -> None:
        """Begin the first election of this process."""
        self.ctx.now_ns, self.ctx.timestamp = now_ns, timestamp
        self.ctx.me.is_reachable = True
        self.actions.start()
        self._begin_election(Reason(K.NODE_STARTED), is_node_startup=True)

    def step(self, event: object, *, now_ns: int, timestamp: int) -> None:
        """Take in one message or event. Unknown types are a bug of the caller and raise KeyError."""
        ctx = self.ctx
        ctx.now_ns, ctx.timestamp = now_ns, timestamp
        self._handlers[type(event)](event)
        if self.election is not None:
            self._settle()

    def _dispatch(self, event: object) -> None:
        self._handlers[type(event)](event)

    def poll(self, *, now_ns: int, timestamp: int) -> None:
        """Do what time alone has made due."""
        ctx = self.ctx
        ctx.now_ns, ctx.timestamp = now_ns, timestamp
        if self.election is not None:
            self.election.poll()
            self._settle()
            return
        term = self.leader or self.follower
        assert term is not None
        self._begin_election_if(term.poll())

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would do anything."""
        doing = self.election or self.leader or self.follower
        assert doing is not None
        return doing.next_deadline_ns()

    def take_effects(self) -> list[fx.Effect]:
        """Take what has been asked for since the last time, in order."""
        effects = self.ctx.effects
        self.ctx.effects = []
        return effects

    def positions_behind(self) -> dict[MemberId, int]:
        """Where the logs of those members end, as far as known, that can be reached and do not follow yet."""
        if self.leader is None:
            return {}
        return {
            member.member_id: max(member.append_position, member.log_position)
            for member in self.ctx.others
            if member.is_reachable
        }

    # --- entries delivered in log order, on every member

    def on_replay_session_open(self, event: SessionOpenEvent, end_position: int) -> None:
        """A session was opened."""
        self.sessions.on_replay_session_open(event, end_position)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A session was closed."""
        self.sessions.on_replay_session_close(event)

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: bytes | memoryview) -> int | None:
        """A message of a service. Gives the id of that service; None if no service may be given the message."""
        return self.service_messages.on_replay_service_message(session_id, payload)

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent) -> None:
        """A new leader's first entry: from here on the log's times are in the unit that it names."""
        self.ctx.time_unit = TimeUnit.MILLIS if event.time_unit is None else event.time_unit

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        """A timer fired."""
        self.timers.on_fired(event.correlation_id)

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action. True if nothing behind it may be delivered before `ResumeDelivery`."""
        return self.actions.on_replay_action(event, end_position)

    def on_service_close_session(self, session_id: ClusterSessionId) -> None:
        """The service asked for a session to be closed."""
        self.sessions.on_service_close(session_id)

    # --- elections begin and end here

    def _begin_election(self, reason: Reason, *, is_node_startup: bool = False) -> None:
        self.leader = None
        self.follower = None
        self.ctx.leader_member_id = None
        self.ctx.is_spare = False
        self.sessions.roll_back()
        self.timers.rearm()
        self.service_messages.roll_back()
        self.actions.roll_back()
        self.last_election = LastElection(reason, self.ctx.now_ns)
        self.election = Election(self.ctx, is_node_startup=is_node_startup, reason=reason)
        self.election.poll()
        self._settle()

    def _settle(self) -> None:
        """End an election that has come to CLOSED."""
        election, ctx = self.election, self.ctx
        if election is None or election.state is not ElectionState.CLOSED:
            return
        self.election = None
        assert self.last_election is not None
        self.last_election.closed_ns = ctx.now_ns
        self.last_election.leadership_term_id = ctx.leadership_term_id
        if ctx.role is Role.LEADER:
            self.leader = LeaderTerm(
                ctx, self.sessions, self.timers, self.service_messages, self._last_activity_ns, self.actions
            )
            self.leader.poll()
        else:
            self.follower = FollowerTerm(ctx)

    def _begin_election_if(self, reason: Reason | None) -> None:
        if reason is None:
            return
        if self.actions.may_ignore(reason):
            self.ctx.time_of_last_leader_ns = self.ctx.now_ns
        else:
            self._begin_election(reason)

    # --- consensus messages

    def _on_canvass_position(self, message: CanvassPosition) -> None:
        if self.election is not None:
            self.election.on_canvass_position(message)
        elif self.leader is not None:
            self._begin_election_if(self.leader.on_canvass_position(message))

    def _on_request_vote(self, message: RequestVote) -> None:
        """Outside an election only a request of a higher term matters: the member that sent it has won a canvass."""
        ctx = self.ctx
        if self.election is not None:
            self.election.on_request_vote(message)
            return
        if message.candidate_term_id <= ctx.candidate_term_id:
            if self.leader is not None:
                member = ctx.members[MemberId(message.candidate_member_id)]
                member.log_leadership_term_id = message.log_leadership_term_id
                member.log_position = message.log_position
                dialogue.send_new_leadership_term(ctx, member, is_startup=False)
            return
        comparison = "an older log" if compare_own_log(ctx, message) > 0 else "a log that is no older"
        self._begin_election(
            Reason(
                K.HIGHER_TERM_CANDIDATE,
                member_id=message.candidate_member_id,
                term_id=message.candidate_term_id,
                comparison=comparison,
            )
        )

    def _on_vote(self, message: Vote) -> None:
        if self.election is not None:
            self.election.on_vote(message)

    def _on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        ctx = self.ctx
        if self.election is not None:
            self.election.on_new_leadership_term(message)
        elif message.leadership_term_id > ctx.leadership_term_id:
            self._begin_election(
                Reason(K.HIGHER_TERM_LEADER, member_id=message.leader_member_id, term_id=message.leadership_term_id)
            )
        elif self.follower is not None and message.leader_member_id == ctx.leader_member_id:
            self.follower.on_new_leadership_term(message)

    def _on_append_position(self, message: AppendPosition) -> None:
        if self.election is not None:
            self.election.on_append_position(message)
        elif self.leader is not None:
            self.leader.on_append_position(message)

    def _on_commit_position(self, message: CommitPosition) -> None:
        ctx = self.ctx
        if self.election is not None:
            self.election.on_commit_position(message)
        elif message.leadership_term_id > ctx.leadership_term_id:
            self._begin_election(
                Reason(K.HIGHER_TERM_COMMIT, member_id=message.leader_member_id, term_id=message.leadership_term_id)
            )
        elif (
            self.follower is not None
            and message.leadership_term_id == ctx.leadership_term_id
            and message.leader_member_id == ctx.leader_member_id
        ):
            self.follower.on_commit_position(message)

    def _on_catchup_position(self, message: CatchupPosition) -> None:
        if self.leader is not None:
            self.leader.on_catchup_position(message)

    def _on_stop_catchup(self, message: StopCatchup) -> None:
        if self.election is not None and message.follower_member_id == self.ctx.config.member_id:
            self.election.on_stop_catchup(message)

    def _on_termination_position(self, message: TerminationPosition) -> None:
        if self.follower is not None:
            self.follower.on_termination_position(message)
            self.actions.on_termination_position(message)

    def _on_termination_ack(self, message: TerminationAck) -> None:
        if self.leader is not None:
            self.actions.on_termination_ack(message)

    # --- reads without a log entry: see `leadership_probe`

    def _on_leadership_probe(self, message: LeadershipProbe) -> None:
        """In an election nobody is followed, whatever this member thought before or will think after it."""
        if self.follower is not None and leadership_probe.may_acknowledge(self.ctx, message):
            leadership_probe.acknowledge(self.ctx, message)

    def _on_leadership_probe_ack(self, message: LeadershipProbeAck) -> None:
        if self.leader is not None:
            self.leader.reads.on_ack(message)

    def _on_read_position_request(self, message: ReadPositionRequest) -> None:
        if self.leader is not None:
            self.leader.on_read_position_request(message)

    def _on_read_position(self, message: ReadPosition) -> None:
        if self.follower is not None:
            self.follower.reads.on_answer(message)

    def _on_reads_wanted(self, event: ev.ReadsWanted) -> None:
        """In an election nobody can confirm anything: waiting callers were told when it began."""
        term = self.leader or self.follower
        if term is not None:
            term.reads.on_wanted(event.through)

    # --- events

    def _on_link_changed(self, event: ev.LinkChanged) -> None:
        ctx = self.ctx
        ctx.members[event.member_id].is_reachable = event.is_up
        if self.election is not None:
            self.election.on_link_changed(event)
        elif self.follower is not None:
            self.follower.on_link_changed()
            if not event.is_up and event.member_id == ctx.leader_member_id:
                self._begin_election_if(Reason(K.LEADER_LINK_CLOSED, leader_member_id=event.member_id))

    def _on_log_stopped(self, event: ev.LogStopped) -> None:
        if self.election is not None:
            self.election.on_log_stopped(event)

    def _on_log_truncated(self, event: ev.LogTruncated) -> None:
        if self.election is not None:
            self.election.on_log_truncated(event)

    def _on_recorded(self, event: ev.Recorded) -> None:
        if self.leader is not None:
            self.leader.on_recorded(event.position)
        elif self.follower is not None:
            self.follower.on_recorded(event.position)
        elif self.election is not None:
            self.election.on_recorded(event)

    def _on_log_committed(self, event: ev.LogCommitted) -> None:
        if event.leadership_term_id != self.ctx.leadership_term_id:
            return
        if self.follower is not None:
            self.follower.on_log_committed(event.log_position)
        elif self.election is not None:
            self.election.on_log_committed(event.log_position)

    def _on_replay_done(self, event: ev.ReplayDone) -> None:
        if self.election is not None:
            self.election.on_replay_done(event)

    def _on_replication_done(self, event: ev.ReplicationDone) -> None:
        if self.election is not None:
            self.election.on_replication_done(event)

    def _on_below_oldest_segment(self, event: ev.BelowOldestSegment) -> None:
        if self.election is not None:
            reason = self.election.on_below_oldest_segment(event)
            if reason is not None and self.last_election is not None:
                self.last_election.reason = reason  # for operators who ask why this takes so long

    def _on_snapshot_fetched(self, event: ev.SnapshotFetched) -> None:
        if self.election is not None:
            self.election.on_snapshot_fetched(event)
        else:
            self.ctx.emit(fx.StopSnapshotFetch())  # this member has found its way without

    def _on_snapshot_fetch_failed(self, event: ev.SnapshotFetchFailed) -> None:
        if self.election is not None:
            self.election.on_snapshot_fetch_failed(event)

    def _on_activity_failed(self, event: ev.ActivityFailed) -> None:
        if self.election is not None:
            self.election.on_activity_failed(event)

    def _on_log_joined(self, event: ev.LogJoined) -> None:
        if self.election is not None:
            self.election.on_log_joined(event)

    def _on_log_image_closed(self, event: ev.LogImageClosed) -> None:
        if self.election is not None:
            self.election.on_log_image_closed(event)
        elif self.follower is not None and event.log_session_id == self.ctx.log_session_id:
            self._begin_election_if(Reason(K.LOG_LINK_CLOSED, detail=event.reason))

    def _on_catchup_available(self, event: ev.CatchupImageAvailable) -> None:
        if self.election is not None and event.log_session_id == self.ctx.log_session_id:
            self.election.on_catchup_available()

    def _on_live_joined(self, event: ev.LiveJoined) -> None:
        if self.leader is not None:
            self.leader.on_live_joined(event)
        else:
            self.ctx.members[event.member_id].live_join_position = event.position

    # --- clients

    def _on_client_connect(self, event: ev.ClientConnect) -> None:
        if self.actions.is_holding:
            self.actions.hold(event)
        elif self.leader is not None:
            self.leader.on_client_connect(event)
        else:
            self.sessions.on_redirect(event.connection_id, event.request.correlation_id)

    def _on_client_challenge_response(self, event: ev.ClientChallengeResponse) -> None:
        if event.session_id >= 0:
            self.sessions.claims.add(event.connection_id, event.session_id, event.encoded_credentials)
        elif self.actions.is_holding:
            self.actions.hold(event)
        elif self.leader is None or not self.leader.on_client_challenge_response(event):
            self.sessions.on_redirect(event.connection_id, event.correlation_id)

    def _on_client_keep_alive(self, event: ev.ClientKeepAlive) -> None:
        if self.leader is not None:
            self.leader.on_client_keep_alive(event)
        else:
            self.sessions.on_follower_keep_alive(event.connection_id, event.cluster_session_id)

    def _on_client_close(self, event: ev.ClientClose) -> None:
        if self.actions.is_holding:
            self.actions.hold(event)
        elif self.leader is not None:
            self.leader.on_client_close(event)

    def _on_client_admin(self, event: ev.ClientAdmin) -> None:
        if self.leader is not None:
            self.leader.on_client_admin(event)

    def _on_client_stray(self, event: ev.ClientStray) -> None:
        if self.leader is not None:
            self.leader.on_client_stray(event)

    def _on_client_disconnected(self, event: ev.ClientDisconnected) -> None:
        self.sessions.on_disconnected(event.connection_id)
