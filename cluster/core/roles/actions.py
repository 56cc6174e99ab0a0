"""The actions of operators: suspend, resume, take a snapshot, shut down, abort.

The leader alone is asked. It puts a ClusterActionRequest into the log, so that every member acts at one position: a
SHUTDOWN is a SNAPSHOT action with a termination after it, an ABORT a termination where the log ends. A STANDBY_SNAPSHOT
is a SNAPSHOT action that standbys alone act at (`standby_snapshots`). Which action is under way is the control toggle:
INACTIVE but on the leader, NEUTRAL while there is none. A second action is refused until the first is done, with two
exceptions: a suspended cluster may be resumed and aborted, and nothing waits for a standby. What an operator asks for
while the leader does something that nobody asked for, such as the snapshot of its schedule, waits until that is over:
nobody can know when to ask instead. So no snapshot is ever
taken of a suspended cluster, and a member that starts from one finds every SUSPEND that still holds in the log after
it; that is why snapshots hold no module state.

The leader acts when it appends, every member settles when the entry is delivered. So of an action that a deposed
leader appended and did not deliver nothing is left here: the state goes back to what was delivered, and the caller
hears that it is not known what will become of it. If the entry commits all the same, it is delivered like any other.

An entry that the leader cannot deliver is skipped by an `EntrySkip` in the log (`service.skipped_entries`). The
feature level is raised by a `FeatureLevelRaise` (`membership.feature_levels`).

While the cluster is suspended, while the leader stands still before an entry that it cannot deliver, and once it is to
stop, the leader appends nothing of clients, timers, services or sessions: it *holds*. Clients are not read, so they
wait; what came in just before is kept and done on release, and every session has its time again.

Source: aeron.md §3.11-§3.13; seed 000, "ClusterActionRequest".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ....service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_DEFAULT,
    CLUSTER_ACTION_FLAGS_ENTRY_SKIP,
    CLUSTER_ACTION_FLAGS_FEATURE_LEVEL,
    CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT,
    ClusterAction,
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
)
from ....service_api.wire.session import AdminResponseCode
from ...messages.consensus import TerminationAck, TerminationPosition
from .. import effects as fx
from ..context import ConsensusContext
from ..events import ActionRequested, AdminAsker, DeliveredTo
from ..log.log_comparison import LogDifference
from ..log.log_publisher import LogPublisher
from ..membership.membership_control import MembershipControl
from ..sessions.sessions import SessionManager
from ..snapshots.snapshot import SnapshotControl
from ..snapshots.standby_snapshots import StandbySnapshots
from ..vocabulary.configuration import ChangeRefusedError
from ..vocabulary.control_toggle import FINAL_STEPS, ActionStep, ControlToggle
from ..vocabulary.feature_levels import choose_feature_level
from ..vocabulary.held_entry import DIFFERENCE_ADVICE
from ..vocabulary.module_state import ModuleState, ModuleStateMachine
from ..vocabulary.reason import Reason
from ..vocabulary.reason import ReasonKind as K
from ..vocabulary.session_selection import SessionSelection
from .termination import TerminationControl

_HELD_LIMIT: Final = 10_000
"""Events of clients kept while the leader holds; more are dropped, and the client asks again when nothing comes."""


_T = ControlToggle

_ACTIONS: Final[dict[ControlToggle, tuple[ClusterAction | None, ModuleState]]] = {
    _T.SUSPEND: (ClusterAction.SUSPEND, ModuleState.SUSPENDED),
    _T.RESUME: (ClusterAction.RESUME, ModuleState.ACTIVE),
    _T.SNAPSHOT: (ClusterAction.SNAPSHOT, ModuleState.SNAPSHOT),
    _T.SHUTDOWN: (ClusterAction.SNAPSHOT, ModuleState.SNAPSHOT),
    _T.ABORT: (None, ModuleState.TERMINATING),
}
"""What an action is in the log, if anything, and the leader's state once it has appended the action."""

_CHANGES: Final = frozenset({_T.CHANGE_MEMBERS, _T.RAISE_FEATURE_LEVEL, _T.CLOSE_SESSIONS})
"""What says itself what it puts into the log, or why it does not."""

_LISTED_SESSIONS: Final = 20
"""Ids of closed sessions that a step lists."""

_STOPPED: Final = frozenset({ModuleState.QUITTING, ModuleState.CLOSED})
_LEADER_LOST: Final = frozenset({K.LEADER_LINK_CLOSED, K.LOG_LINK_CLOSED, K.LEADER_HEARTBEAT_TIMEOUT})


Asker = int | AdminAsker | None
"""Who asked: the number of a tool's request, or a client's admin request; None: the leader itself."""


@dataclass(slots=True)
class _Pending:
    """Leader: the action under way."""

    action: ControlToggle
    asker: Asker
    log_position: int
    """The end of its log entry; of an ABORT, the end of the log."""
    said: str
    """The step that the caller was told of when it was appended."""
    is_committed: bool = False
    notes: list[str] = field(default_factory=list)
    """What the caller should know at the end."""


class ActionControl:
    """One member's part in what operators ask for: the module state, the toggle, the action under way."""

    def __init__(
        self,
        ctx: ConsensusContext,
        sessions: SessionManager,
        snapshots: SnapshotControl,
        standbys: StandbySnapshots,
        membership: MembershipControl,
        *,
        redispatch: Callable[[object], None],
    ) -> None:
        self._ctx = ctx
        self._sessions = sessions
        self._snapshots = snapshots
        self._standbys = standbys
        self._membership = membership
        self._redispatch = redispatch
        self._machine = ModuleStateMachine(self._on_state_changed)
        self._delivered_state = ModuleState.ACTIVE
        """What delivered entries alone say: where a leader that loses its place goes back to."""
        self._publisher: LogPublisher | None = None
        self._pending: _Pending | None = None
        self._held: list[object] = []
        self._put_off: list[Callable[[], object]] = []
        """Requests of operators that came while the leader does something of its own; they begin when that is over."""
        self.termination = TerminationControl(ctx)
        self._is_held_for_transfer = False
        self._is_transfer_asked = False
        self.is_holding = False
        """Whether this leader appends nothing but actions, and clients are not read."""

    def __repr__(self) -> str:
        return f"<ActionControl {self.state.name} toggle={self.toggle.name} holding={self.is_holding}>"

    @property
    def state(self) -> ModuleState:
        """What this consensus module is doing."""
        return self._machine.state

    @property
    def toggle(self) -> ControlToggle:
        """The pending action, in the words of Aeron's control toggle."""
        if self._publisher is None:
            return ControlToggle.INACTIVE
        if self._pending is not None:
            return self._pending.action
        if self._is_held_for_transfer:
            return ControlToggle.TRANSFER
        # An action that an earlier leader appended goes on under this one.
        return {ModuleState.SUSPENDED: ControlToggle.SUSPEND, ModuleState.SNAPSHOT: ControlToggle.SNAPSHOT}.get(
            self.state, ControlToggle.NEUTRAL
        )

    def _on_state_changed(self, old: ModuleState, new: ModuleState, reason: str) -> None:
        self._ctx.emit(fx.ModuleStateChanged(old, new, reason, self._ctx.leadership_term_id))

    # --- what becomes of this member

    def start(self) -> None:
        """Everything is loaded."""
        self._machine.enter(ModuleState.ACTIVE, "started")

    def quit(self) -> None:
        """This member alone stops."""
        if self.state is not ModuleState.CLOSED:
            self._machine.enter(ModuleState.QUITTING, "asked to stop")

    def on_lead(self, publisher: LogPublisher, first_position: int) -> None:
        """This member leads now, and everything before its term is delivered; its first entry ends at a position."""
        self._publisher = publisher
        self._membership.on_lead(publisher, first_position)
        self._update_holding()

    def roll_back(self) -> None:
        """This member leads no more, or follows no more: what was not delivered may never be."""
        self._publisher = None
        self.termination.roll_back()
        self._standbys.roll_back()
        pending, self._pending = self._pending, None
        if self.state not in _STOPPED:
            self._machine.enter(self._delivered_state, "leadership changed")
        if pending is not None:
            certainty = (
                "it is committed and will take effect" if pending.is_committed else "it may or may not take effect"
            )
            if pending.action in (_T.SHUTDOWN, _T.ABORT):
                certainty = "all members, some or none may stop"
            self._report(pending, ActionStep.UNKNOWN, f"leadership changed: {certainty}")
        self._update_holding()

    def may_ignore(self, reason: Reason) -> bool:
        """Return True while the cluster terminates: a lost leader or quorum must then not start an election."""
        if self._publisher is not None:
            return reason.kind is K.INACTIVE_FOLLOWER_QUORUM and self.termination.position is not None
        return reason.kind in _LEADER_LOST and self.termination.needs_no_leader

    # --- the leader

    def on_request(self, event: ActionRequested) -> None:
        """Begin an action, now or when what nobody asked for is over, or say why not."""
        if event.asker is None or not self.puts_off(partial(self.try_begin, event)):
            self.try_begin(event)

    def puts_off(self, begin: Callable[[], object]) -> bool:
        """Keep what an operator asks for while something is under way that nobody asked for. False if nothing is."""
        if self._is_busy_unasked and len(self._put_off) < _HELD_LIMIT:
            self._put_off.append(begin)
            return True
        return False

    @property
    def _is_busy_unasked(self) -> bool:
        """True while this leader does something that no operator asked it for."""
        if self._publisher is None:
            return False
        if self._pending is not None:
            return self._pending.asker is None
        if self._is_held_for_transfer:
            return not self._is_transfer_asked
        return self.state is ModuleState.SNAPSHOT  # the snapshot of an earlier leader

    def _begin_put_off(self) -> None:
        if not self._put_off or self._is_busy_unasked:
            return
        put_off, self._put_off = self._put_off, []
        for begin in put_off:
            begin()

    def try_begin(self, event: ActionRequested) -> bool:
        """Begin an action, or say why not. Whether it has begun."""
        action, publisher = event.action, self._publisher
        refusal = self.find_refusal(action) or self._refusal_of_skip(event)
        if refusal is not None or publisher is None:
            self.tell(event.asker, ActionStep.REFUSED, None, refusal or "")
            return False
        log_action, state = _ACTIONS.get(action, (None, self.state))
        said = f"in the leader's log: {action.name}"
        if action in _CHANGES:
            try:
                position, said = self._append_change(event, publisher)
            except ChangeRefusedError as error:
                self.tell(event.asker, ActionStep.REFUSED, None, str(error))
                return False
        elif action is _T.SKIP_ENTRY:
            position, state = self._append_skip(publisher, event.log_position), self.state
        elif action is _T.STANDBY_SNAPSHOT:
            position = self._append(ClusterAction.SNAPSHOT, publisher, CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT)
        elif log_action is None:
            position = publisher.log_buffer.append_position
        else:
            position = self._append(log_action, publisher)
        self._pending = _Pending(action, event.asker, position, said=said)
        if state is not self.state:
            self._machine.enter(state, f"{action.name} {event.reason}")
        self._report(self._pending, ActionStep.APPENDED, said)
        self._update_holding()
        self.on_commit(self._ctx.commit_position)
        return True

    def find_refusal(self, action: ControlToggle) -> str | None:
        """Say why this member does not begin an action, as things are; None if it may."""
        toggle = self.toggle
        if toggle is _T.INACTIVE:
            return f"not the leader: leader_member_id={self._ctx.leader_member_id}"
        if self._ctx.roster.is_witness:
            return "a witness leads, only until another member has its whole log: ask again"
        if self.state in _STOPPED:
            return f"this member stops: state={self.state.name}"
        if action is _T.STANDBY_SNAPSHOT and (refusal := self._standbys.find_refusal()) is not None:
            return refusal
        if action is _T.RESUME and toggle is not _T.SUSPEND:
            return f"not suspended: toggle={toggle.name}"
        if self._pending is not None or (toggle is not _T.NEUTRAL and toggle is not _T.SUSPEND):
            return f"another action is pending: toggle={toggle.name}: ask again when it is over"
        if toggle is _T.SUSPEND and action not in (_T.RESUME, _T.ABORT):
            return "the cluster is suspended: resume it first"
        if self._ctx.held is not None and action not in (_T.ABORT, _T.SKIP_ENTRY):
            return f"the leader holds before {self._ctx.held}: see `trimaran health`"
        return None

    def _refusal_of_skip(self, event: ActionRequested) -> str | None:
        """Say why an entry is not skipped."""
        held = self._ctx.held
        if event.action is not _T.SKIP_ENTRY:
            return None
        if held is None:
            return (
                f"the leader has delivered the log, also the entry at log_position={event.log_position}: an entry is "
                "skipped only where no member that can lead has got past it; a member that holds there needs what it "
                "lacks, such as memory, or an empty directory: the leader gives it a snapshot"
            )
        if isinstance(held, LogDifference):
            return f"the leader holds before {held}: an entry of it may be valid on another member. {DIFFERENCE_ADVICE}"
        if event.log_position != held.log_position:
            return (
                f"log_position={event.log_position} expected={held.log_position}: the leader holds before {held}; no "
                "other entry can be skipped"
            )
        return None

    def _append_change(self, event: ActionRequested, publisher: LogPublisher) -> tuple[int, str]:
        """Append a change of members, feature level or sessions. Returns where its entries end, and what they say.

        Raises:
            ChangeRefusedError: it is not made as things are.
        """
        if event.action is _T.CHANGE_MEMBERS:
            assert event.change is not None
            return self._membership.request(event.change)
        if event.action is _T.CLOSE_SESSIONS:
            assert event.sessions is not None
            return self._close_sessions(event.sessions, publisher)
        ctx = self._ctx
        before = ctx.feature_levels
        level = choose_feature_level(before.feature_level, ctx.find_known_levels(), event.feature_level)
        position = publisher.append_positioned(
            FeatureLevelRaise(
                leadership_term_id=ctx.leadership_term_id,
                log_position=0,
                timestamp=ctx.stamp(),
                action=None,
                flags=CLUSTER_ACTION_FLAGS_FEATURE_LEVEL,
                feature_level=level,
                trimaran_level=before.trimaran_level,
            )
        )
        return position, f"feature_level={before.feature_level} becomes {level}"

    def _close_sessions(self, selection: SessionSelection, publisher: LogPublisher) -> tuple[int, str]:
        closed = [each.cluster_session_id for each in self._sessions.close_selected(selection, publisher)]
        if not closed and selection.cluster_session_id is not None:
            raise ChangeRefusedError(
                f"no open session: cluster_session_id={selection.cluster_session_id}; `trimaran sessions` lists them"
            )
        listed = ", ".join(map(str, closed[:_LISTED_SESSIONS])) + (", ..." if len(closed) > _LISTED_SESSIONS else "")
        return publisher.log_buffer.append_position, f"sessions closed: {len(closed)}{listed and f': {listed}'}"

    def _append_skip(self, publisher: LogPublisher, skipped_position: int | None) -> int:
        ctx = self._ctx
        assert skipped_position is not None
        return publisher.append_positioned(
            EntrySkip(
                leadership_term_id=ctx.leadership_term_id,
                log_position=0,
                timestamp=ctx.stamp(),
                action=None,
                flags=CLUSTER_ACTION_FLAGS_ENTRY_SKIP,
                skipped_log_position=skipped_position,
            )
        )

    def _append(self, action: ClusterAction, publisher: LogPublisher, flags: int = CLUSTER_ACTION_FLAGS_DEFAULT) -> int:
        ctx = self._ctx
        return publisher.append_positioned(
            ClusterActionRequest(
                leadership_term_id=ctx.leadership_term_id,
                log_position=0,
                timestamp=ctx.stamp(),
                action=action,
                flags=flags,
            )
        )

    def on_commit(self, position: int) -> None:
        """The log is committed up to a position."""
        pending = self._pending
        if pending is None or pending.is_committed or position < pending.log_position:
            return
        pending.is_committed = True
        self._report(pending, ActionStep.COMMITTED, "by a majority of members")
        if pending.action in (_T.SHUTDOWN, _T.ABORT):
            self.termination.begin(pending.log_position)
        elif pending.action is _T.SKIP_ENTRY:
            self._complete(ActionStep.DONE, "every member starts again and passes the entry over")
        elif pending.action is _T.CHANGE_MEMBERS:
            self._complete(ActionStep.DONE, f"the members are {self._ctx.roster.current.describe()}")
        elif pending.action is _T.CLOSE_SESSIONS:
            self._complete(ActionStep.DONE, pending.said)

    def on_termination_ack(self, message: TerminationAck) -> None:
        """A follower stops."""
        member_id = self.termination.on_ack(message)
        if member_id is not None and self._pending is not None:
            self._report(self._pending, ActionStep.ACKNOWLEDGED, "stops", member_id=member_id)
        self._check_termination()

    def poll(self) -> None:
        """Do what time has made due."""
        self.termination.poll()
        self._check_termination()

    def holds(self, event: object) -> bool:
        """Keep what a client wants until release, while this leader holds. False if it does not."""
        if self.is_holding and len(self._held) < _HELD_LIMIT:
            self._held.append(event)
        return self.is_holding

    def hold_for_transfer(self, *, is_asked: bool) -> None:
        """Append nothing, so that a follower comes to have everything. See `transfer`."""
        self._is_held_for_transfer, self._is_transfer_asked = True, is_asked
        self._update_holding()

    def release_after_transfer(self) -> None:
        """Go on: nothing is handed over any more."""
        self._is_held_for_transfer = False
        self._update_holding()

    def _update_holding(self) -> None:
        self._hold_or_release()
        self._begin_put_off()

    @property
    def is_log_closed(self) -> bool:
        """Return whether the leader appends nothing at all: the log is to end here, or another member should lead.

        In a cluster that is suspended the leader still appends what the cluster itself needs.
        """
        is_stopping = self._pending is not None and self._pending.action in (_T.SHUTDOWN, _T.ABORT)
        ctx = self._ctx
        return is_stopping or self._is_held_for_transfer or ctx.held is not None or ctx.roster.is_witness

    def _hold_or_release(self) -> None:
        is_barred = self.state is ModuleState.SUSPENDED or self.is_log_closed
        is_holding = self._publisher is not None and is_barred
        if is_holding == self.is_holding:
            return
        self.is_holding = is_holding
        self._ctx.emit(fx.HoldIngress(is_holding))
        if is_holding:
            return
        self._sessions.renew_activity()
        held, self._held = self._held, []
        for event in held:
            self._redispatch(event)

    # --- every member, in log order

    def on_replay_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action is delivered. True if delivery has to stand still here until a snapshot is recorded."""
        is_ours = event.flags in (None, CLUSTER_ACTION_FLAGS_DEFAULT)
        if is_ours and event.action is ClusterAction.SNAPSHOT:
            if self._snapshots.on_replay_action(event, end_position):
                self._settle(ModuleState.SNAPSHOT, f"SNAPSHOT delivered at {end_position}")
                return True
            return False
        if event.flags == CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT and event.action is ClusterAction.SNAPSHOT:
            return self._on_replay_standby_snapshot(event, end_position)
        if is_ours and event.action is ClusterAction.SUSPEND:
            self._settle(ModuleState.SUSPENDED, f"SUSPEND delivered at {end_position}")
        elif is_ours and event.action is ClusterAction.RESUME:
            self._settle(ModuleState.ACTIVE, f"RESUME delivered at {end_position}")
        if self._pending is not None and self._pending.log_position == end_position:
            self._complete(ActionStep.DONE, f"done on the leader: {self._pending.action.name}")
        return False

    def _on_replay_standby_snapshot(self, event: ClusterActionRequest, end_position: int) -> bool:
        """Standbys take a snapshot here. The leader goes on, and the caller is told when it has a copy."""
        pending = self._pending
        if pending is not None and pending.log_position == end_position:
            self._pending = None
            self._standbys.wait_for(end_position, partial(self._report, pending))
            self._update_holding()
        if not self._standbys.on_replay_action(event, end_position):
            return False
        self._settle(ModuleState.SNAPSHOT, f"SNAPSHOT for standbys delivered at {end_position}")
        return True

    def _settle(self, state: ModuleState, reason: str) -> None:
        self._delivered_state = state
        if self.state is not ModuleState.TERMINATING and self.state not in _STOPPED:
            self._machine.enter(state, reason)
        self._update_holding()

    def on_snapshot_finished(self, position: int, failure: str | None) -> None:
        """The snapshot at a position is recorded here, or cannot be."""
        if self._delivered_state is not ModuleState.SUSPENDED and not self._snapshots.is_taking:
            self._settle(ModuleState.ACTIVE, failure or f"snapshot taken at {position}")
        self._standbys.on_own_finished(position, failure)
        pending = self._pending
        if pending is not None and pending.log_position == position:
            if pending.action is _T.SNAPSHOT:
                self._complete(ActionStep.DONE if failure is None else ActionStep.FAILED, failure or "snapshot taken")
            elif failure is None:
                self._report(pending, ActionStep.SNAPSHOT_TAKEN, "on the leader")
            else:
                # Followers may have theirs, and stop: the log holds everything, so does this member.
                pending.notes.append(f"the leader took no snapshot: {failure}")
        self._check_termination()

    # --- termination

    def on_termination_position(self, message: TerminationPosition) -> None:
        """Follower: the leader says where to stop."""
        self.termination.on_position(message)
        self._check_termination()

    def on_delivered(self, event: DeliveredTo) -> None:
        """Everything up to a position that was asked about is delivered."""
        self.termination.on_delivered(event.position)
        self._check_termination()

    def _check_termination(self) -> None:
        """Go on with a termination: do this member's part, then stop, the leader when the others have."""
        termination = self.termination
        position = termination.position
        if position is None or not termination.is_delivered or self._snapshots.is_taking:
            return
        if self.state in _STOPPED:
            return
        self._machine.enter(ModuleState.TERMINATING, f"the cluster stops at {position}")
        if self._publisher is not None:
            termination.start_deadline()
            if not termination.is_complete:
                return
        self._machine.enter(ModuleState.CLOSED, f"stopped at {position}")
        termination.record_end()
        if self._publisher is None:
            termination.acknowledge()
        else:
            self._complete_termination()
        self._ctx.emit(fx.Terminate(position, f"the cluster stops at log_position={position}"))

    def _complete_termination(self) -> None:
        pending = self._pending
        if pending is None:
            return
        missing = [int(member_id) for member_id in self.termination.unacknowledged]
        if missing:
            timeout_s = self._ctx.config.termination_timeout_ns / 1e9
            is_late = self.termination.is_late
            why = f"no word from members {missing} within {timeout_s:g} s" if is_late else f"members {missing} are down"
            pending.notes.append(why)
        failed = bool(pending.notes)
        notes = "; ".join(pending.notes)
        self._complete(ActionStep.FAILED if failed else ActionStep.DONE, notes or "every member stops")

    # --- who asked

    def _complete(self, step: ActionStep, detail: str) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._report(pending, step, detail)
        if self.termination.position is None:
            self._update_holding()

    def _report(self, pending: _Pending, step: ActionStep, detail: str, *, member_id: int | None = None) -> None:
        self.tell(pending.asker, step, pending.log_position, detail, member_id)

    def tell(
        self, asker: Asker, step: ActionStep, log_position: int | None, detail: str, member_id: int | None = None
    ) -> None:
        """Tell a tool every step, a client only the end: the protocol has one answer for it."""
        is_final = step in FINAL_STEPS
        if asker is None:
            return
        if isinstance(asker, int):
            self._ctx.emit(fx.ActionProgressed(asker, step, log_position, detail, member_id, is_final))
        elif is_final:
            self._ctx.emit(fx.AdminProgressed(asker, step, log_position, detail))
            code = AdminResponseCode.OK if step is ActionStep.DONE else AdminResponseCode.ERROR
            place = "" if log_position is None else f" {log_position}"
            self._sessions.answer_admin(
                asker.cluster_session_id,
                asker.correlation_id,
                code,
                detail,
                payload=f"{step}{place}".encode(),
                request_type=asker.request_type,
            )
