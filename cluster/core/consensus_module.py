"""The consensus module of one member: pure, deterministic, driven from outside.

Events and messages go in with the time of the turn, effects come out in order. A member is at any moment in an
election or in a term, as leader or follower: that is its phase. This class holds what outlives the phases, gives each
input to the handler that the phase has for it, or else to its own, and changes the phase. It reads no clock, no file,
no socket and no random source of its own, and it never awaits.

Source: aeron.md §3; seed 002.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...service_api import Role
from ...service_api.types import ClusterSessionId, MemberId, TimeUnit
from ...service_api.wire.log.messages import (
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from ..messages.condition import ConditionQuery, MemberCondition
from ..messages.consensus import RequestVote
from ..messages.digests import ServiceDigest, StateFields
from . import effects as fx
from . import events as ev
from .context import ConsensusContext
from .digests.digest_comparison import DigestComparison
from .digests.field_comparison import FieldComparison
from .election.election import Election, LastElection
from .election.phases import PHASES
from .membership.membership_control import MembershipControl
from .peers.conditions import ConditionExchange
from .peers.message_rules import SENDER_FIELDS, find_fault, find_leader_fault, find_standby_fault
from .roles.actions import ActionControl
from .roles.follower import FollowerTerm
from .roles.leader import LeaderTerm
from .roles.transfer import TransferControl
from .service_messages import ServiceMessages
from .sessions.sessions import SessionManager
from .snapshots.snapshot import SnapshotControl
from .snapshots.standby_snapshots import StandbySnapshots
from .vocabulary.configuration import decode_text
from .vocabulary.election_state import ElectionState
from .vocabulary.feature_levels import FeatureLevels
from .vocabulary.phase import ConsensusPhase, Handlers, NoPhase
from .vocabulary.reason import Reason
from .vocabulary.reason import ReasonKind as K
from .vocabulary.timers import TimerService

_OF_ONE_PHASE = (
    *SENDER_FIELDS,
    ev.ReadsWanted,
    ev.LogStopped,
    ev.LogTruncated,
    ev.LogUnreadable,
    ev.LogCommitted,
    ev.ReplicationDone,
    ev.BelowOldestSegment,
    ev.SnapshotFetchFailed,
    ev.ActivityFailed,
    ev.LogJoined,
    ev.LogImageClosed,
    ev.CatchupImageAvailable,
    ev.ClientClose,
    ev.ClientAdmin,
    ev.ClientStray,
)
"""Messages and events that may mean something in one phase and nothing in another: they came too late, or to the wrong
member."""


class ConsensusModule:
    """One member's consensus module.

    `step` for what happened, `poll` for what time made due, `next_deadline_ns` for when to poll next, `take_effects`
    after either. The `on_replay_*` methods are called for entries that are delivered, in log order, on every member.
    At most one of `election`, `leader` and `follower` is there: the phase.
    """

    def __init__(self, ctx: ConsensusContext, *, last_activity_ns: Callable[[int], int | None]) -> None:
        self.ctx = ctx
        self.sessions = SessionManager(ctx)
        self.timers = TimerService()
        self.service_messages = ServiceMessages(ctx)
        self.snapshots = SnapshotControl(ctx, self.sessions, self.timers, self.service_messages)
        self.digests = DigestComparison(ctx)
        self.fields = FieldComparison(ctx)
        self.membership = MembershipControl(ctx)
        self.membership.on_members_changed = self.sessions.tell_members
        self.standbys = StandbySnapshots(ctx, self.snapshots)
        self.actions = ActionControl(
            ctx, self.sessions, self.snapshots, self.standbys, self.membership, redispatch=self._dispatch
        )
        self.transfer = TransferControl(ctx, self.actions)
        self.snapshots.on_finished = self.actions.on_snapshot_finished
        self.conditions = ConditionExchange(ctx)
        self.election: Election | None = None
        self.leader: LeaderTerm | None = None
        self.follower: FollowerTerm | None = None
        self.last_election: LastElection | None = None
        self.is_deadline_stale = True
        """Whether something has happened since the last `next_deadline_ns` that may have brought the deadline forward.

        Most inputs only move it back: an early poll does nothing, and asking every part costs a tenth of a message."""
        self._phase: ConsensusPhase = NoPhase()
        self._last_activity_ns = last_activity_ns
        self._common: Handlers = {
            **dict.fromkeys(_OF_ONE_PHASE, _ignore),
            ev.LinkChanged: ctx.on_link_changed,
            ev.SeedAnnounced: ctx.note_seed,
            ev.FeatureLevelSaid: ctx.on_feature_level_said,
            ev.MembersHeard: self._on_members_heard,
            ConditionQuery: self.conditions.on_query,
            MemberCondition: self.conditions.on_condition,
            ev.ReluctanceChanged: self._on_reluctance_changed,
            ev.SyncsMeasured: self.conditions.on_syncs_measured,
            ev.LiveJoined: self._on_live_joined,
            ev.Recorded: self._on_recorded,
            ev.ReplayDone: self._on_replay_done,
            ev.SnapshotFetched: self._on_snapshot_fetched,
            ev.ActionRequested: self.actions.on_request,
            ev.TransferRequested: self.transfer.on_request,
            ev.DeliveredTo: self.actions.on_delivered,
            ev.SnapshotCaptured: self.snapshots.on_captured,
            ev.StandbySaid: self.standbys.on_said,
            ev.SnapshotTaken: self.snapshots.on_taken,
            ev.SnapshotFailed: self.snapshots.on_failed,
            ev.StandbySnapshotFetched: self.standbys.on_fetched,
            ev.StandbySnapshotFetchFailed: self.standbys.on_fetch_failed,
            ev.SnapshotDigested: self.digests.on_snapshot_digested,
            ServiceDigest: self._on_service_digest,
            StateFields: self.fields.on_fields,
            ev.ClientConnect: self.sessions.redirect_connect,
            ev.ClientChallengeResponse: self.sessions.redirect_challenge_response,
            ev.ClientKeepAlive: self.sessions.on_follower_keep_alive,
            ev.ClientDisconnected: self.sessions.on_disconnected,
        }

    def __repr__(self) -> str:
        ctx = self.ctx
        return f"<ConsensusModule member={ctx.config.member_id} {ctx.role.name} {self._phase!r}>"

    # --- the contract with the agent

    def start(self, *, now_ns: int, timestamp: int) -> None:
        """Begin the first election of this process."""
        self.ctx.now_ns, self.ctx.timestamp = now_ns, timestamp
        self.ctx.me.is_reachable = True
        self.ctx.cluster_clock.start(now_ns)
        self.conditions.start()
        self.standbys.start()
        self.actions.start()
        self._begin_election(Reason(K.NODE_STARTED), is_node_startup=True)

    def step(self, event: object, *, now_ns: int, timestamp: int) -> None:
        """Take in one message or event. Unknown types are a bug of the caller and raise KeyError."""
        ctx = self.ctx
        ctx.now_ns, ctx.timestamp = now_ns, timestamp
        roster = ctx.roster
        if roster.change_count != roster.history.change_count:
            roster.refresh()
        self._dispatch(event)
        if self.election is not None:
            self._settle(self.election)
        self.membership.look()

    def take_recorded(self, position: int, now_ns: int) -> bool:
        """Take in that the log is durable here up to a position, if nothing can come of that. False: give it to `step`.

        Nothing can where this member leads, and no other voter has recorded more than is committed.
        """
        leader, roster = self.leader, self.ctx.roster
        if leader is None or self.election is not None or roster.change_count != roster.history.change_count:
            return False
        return leader.take_recorded(position, now_ns)

    def _dispatch(self, event: object) -> None:
        refused, kind = None, type(event)
        told: Any = event  # of the type that `kind` says
        if kind in SENDER_FIELDS:  # by type: asking a pydantic model for its instances takes microseconds
            refused = find_fault(self.ctx, told)
        elif kind is ev.LeaderSaid:
            refused, event = find_leader_fault(self.ctx, told), told.message
            kind = type(event)
        elif kind is ev.StandbySaid:
            refused = find_standby_fault(self.ctx, told)
        if refused is not None:
            self.ctx.emit(refused)
            return
        reason = (self._phase.handlers.get(kind) or self._common[kind])(event)
        if reason is not None:
            self._begin_election_if_due(reason)
            if kind is RequestVote and self.election is not None:
                self.election.handlers[RequestVote](event)  # what ends a term asks for a vote in the next

    def poll(self, *, now_ns: int, timestamp: int) -> None:
        """Do what time alone has made due."""
        ctx = self.ctx
        ctx.now_ns, ctx.timestamp = now_ns, timestamp
        ctx.roster.refresh()
        self.conditions.poll()
        self.digests.poll()
        self.transfer.poll_outcome()
        self.membership.poll()
        self.standbys.poll()
        reason = self._phase.poll()
        if reason is not None:
            self._begin_election_if_due(reason)
        elif self.election is not None:
            self._settle(self.election)
        self.membership.look()

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would do anything."""
        self.is_deadline_stale = False
        return min(
            self._phase.next_deadline_ns(),
            self.conditions.next_deadline_ns(),
            self.digests.next_deadline_ns(),
            self.membership.next_deadline_ns(),
            self.standbys.next_deadline_ns(),
            self.transfer.outcome_deadline_ns(),
        )

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
        self.is_deadline_stale = True
        self.sessions.on_replay_session_open(event, end_position)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A session was closed."""
        self.is_deadline_stale = True
        self.sessions.on_replay_session_close(event)

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: bytes | memoryview) -> int | None:
        """A message of a service. Gives the id of that service; None if no service may be given the message."""
        self.is_deadline_stale = True
        return self.service_messages.on_replay_service_message(session_id, payload)

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        """A new leader's first entry: from here on the log's times are in the unit that it names.

        `code_digest` names the code of that leader's services.
        """
        self.is_deadline_stale = True
        self.ctx.cluster_clock.use_unit(TimeUnit.MILLIS if event.time_unit is None else event.time_unit)
        self.ctx.term_code_digest = code_digest

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        """A timer fired."""
        self.is_deadline_stale = True
        self.timers.on_fired(event.correlation_id)

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action. True if nothing after it may be delivered before `ResumeDelivery`."""
        self.is_deadline_stale = True
        return self.actions.on_replay_action(event, end_position)

    def on_replay_membership_change(self, event: MembershipChangeEvent, end_position: int) -> None:
        """The members changed: it is known already, unless the log was not looked through.

        Raises:
            ConfigurationError: this member is another kind of member than its settings say, so it must stop.
        """
        self.is_deadline_stale = True
        configuration = decode_text(event.cluster_members, end_position)
        if configuration is not None:
            self.ctx.roster.history.append(configuration)
            self.ctx.roster.check_kind(runs_services=self.ctx.config.service_count > 0)

    def _on_service_digest(self, message: ServiceDigest) -> None:
        self.fields.note_code(MemberId(message.member_id), message.code_digest)
        self.digests.on_digest(message)

    def on_replay_feature_level(self, event: FeatureLevelRaise) -> None:
        """Another feature level is in force behind this entry.

        Raises:
            ConfigurationError: the code here does not know it: this member must stop before the entry.
        """
        self.is_deadline_stale = True
        levels = FeatureLevels(event.feature_level, event.trimaran_level)
        self.ctx.enter_feature_levels(levels, log_position=event.log_position)

    def on_replay_entry_skip(self, event: EntrySkip) -> bool:
        """An earlier entry is skipped. False if this member does not know of it, so that its state has that entry."""
        self.is_deadline_stale = True
        return event.skipped_log_position in self.ctx.skipped_entries

    # --- from phase to phase

    def _begin_election_if_due(self, reason: Reason) -> None:
        if self.actions.may_ignore(reason):
            self.ctx.time_of_last_leader_ns = self.ctx.now_ns
        else:
            self._begin_election(reason)

    def _begin_election(self, reason: Reason, *, is_node_startup: bool = False) -> None:
        self.leader = None
        self.follower = None
        self._phase = NoPhase()
        self.ctx.forget_leader()
        self.ctx.is_spare = False
        self.sessions.roll_back()
        self.timers.rearm()
        self.service_messages.roll_back()
        self.actions.roll_back()
        self.transfer.roll_back()
        self.membership.roll_back()
        self._phase = self.election = election = Election(self.ctx, PHASES, is_node_startup=is_node_startup, why=reason)
        self.last_election = election.record
        election.poll()
        self._settle(election)

    def _settle(self, election: Election) -> None:
        """End an election that has come to CLOSED: its term begins."""
        if election.state is not ElectionState.CLOSED:
            return
        self.election = None
        ctx = self.ctx
        if ctx.role is Role.LEADER:
            self._phase = self.leader = leader = LeaderTerm(
                ctx,
                self.sessions,
                self.timers,
                self.service_messages,
                self._last_activity_ns,
                self.actions,
                self.transfer,
                self.snapshots,
                self.standbys,
            )
            leader.poll()
        else:
            self._phase = self.follower = FollowerTerm(ctx, self.actions)
            self.membership.on_follow()
        self.transfer.on_term_begun()

    # --- what means the same in every phase that has no handler of its own for it

    def _on_live_joined(self, event: ev.LiveJoined) -> None:
        if event.member_id in self.ctx.members:
            self.ctx.members[event.member_id].live_join_position = event.position

    def _on_members_heard(self, event: ev.MembersHeard) -> None:
        if event.is_rumour:
            self.ctx.roster.hear_rumour(event.configuration)
        else:
            self.membership.hear(event.configuration, is_trusted=event.is_trusted)

    def _on_reluctance_changed(self, event: ev.ReluctanceChanged) -> None:
        self.ctx.note_reluctance(event.kind, event.detail)

    def _on_recorded(self, event: ev.Recorded) -> None:
        self.ctx.append_position = max(self.ctx.append_position, event.position)

    def _on_replay_done(self, event: ev.ReplayDone) -> None:
        self.ctx.cluster_clock.note_replayed(event.timestamp, self.ctx.now_ns)
        self.ctx.roster.history.note_delivered(event.position)

    def _on_snapshot_fetched(self, _: ev.SnapshotFetched) -> None:
        self.ctx.emit(fx.StopSnapshotFetch())  # this member has found its way without


def _ignore(_: object) -> None:
    """What this phase has no use for."""
