"""A leader hands its term over to a follower that has the whole log. Six reasons: an operator or client asks, the
leader is to stop, another member is preferred, the leader's disk is slower than a majority's, its own log is damaged
where a member needs it, or the leader is a witness or removed.

Stopping, or beginning an election, is not enough. The members would notice silence or closed links, canvass and wait a
random time; and under load the leader's log is always some messages longer than any other. So there are three steps:

1. The leader *holds*, as it does while it is suspended: nothing is appended, and clients wait.
2. As soon as the target has recorded everything, durably, and all of it is committed, the leader asks it to stand
   (`TransferLeadership`). The target takes the leader's word in the place of a canvass, and stands in the next term.
3. Its request for votes ends the leader's term, as any of a higher term does. The new leader tells the clients.

*It is a hint, never a rule of safety.* The target raises its term durably before it asks for votes, logs are compared,
and a member votes once in a term. A request that is repeated, late or forged makes a follower stand that has no less
log than the request names: at worst that costs one election, and that the request is of the newest term and of its
leader bounds it to one for each term.

*It does not go wrong for long.* Where the target is not elected within an election timeout after the hold began, the
leader goes on where it stopped. A transfer that nobody asked for is made again only after a pause that doubles. The
member with the highest `leader_priority` gets its leadership back so, once it has been fit for it for the whole pause;
it never disturbs a leader. A leader with a slow disk (`sync_comparison`) waits for the same pause: it gives its term to
a member whose disk is clearly faster, whatever the priorities are, and is reluctant to take it back.

*A witness leads only to hand over.* It has no service, so it holds from the beginning of its term to the end. It wins
an election where what a majority has recorded is in its log and in no other that is there: the leader is gone, and the
member that is left lacks the end. It leads by the rules of every leader, so that member catches up from it, and is
asked to stand as soon as everything is committed. What it is worth as a leader does not count: also one that is
reluctant, or holds before an entry, is better than a leader without a service.

Source: Raft dissertation §3.10.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....service_api.types import MemberId
from ...messages.transfer import TransferLeadership
from .. import effects as fx
from ..context import ConsensusContext
from ..events import LogUnreadable, TransferRequested
from ..peers.sync_comparison import find_faster
from ..vocabulary.back_off import back_off_ns
from ..vocabulary.control_toggle import ActionStep, ControlToggle
from ..vocabulary.members import ClusterMember, is_active
from ..vocabulary.phase import NEVER_NS
from ..vocabulary.reluctance import Reluctance
from .actions import ActionControl, Asker

_POLL_NS: Final = 1_000_000
"""How often a leader that holds looks at its target: what it has comes as news, that it is gone does not."""

_FIRST_PAUSE_HEARTBEAT_TIMEOUTS: Final = 4
_PAUSE_LIMIT_NS: Final = 3_600_000_000_000

_ABLE: Final = Reluctance.CLOCK_OFF.value | Reluctance.DISK_NEARLY_FULL.value | Reluctance.SYNCS_SLOW.value
"""Reasons for which a member would rather not lead, and yet leads better than one whose log is damaged."""


@dataclass(slots=True)
class _Transfer:
    """One hand-over, from the hold to its outcome."""

    target_id: MemberId
    is_named: bool
    """Whether it is this target or none."""
    is_needed: bool
    """Whether this leader cannot do what a leader is there for."""
    asker: Asker
    why: str
    deadline_ns: int
    log_position: int
    """Where the leader's log ends."""
    next_request_ns: int | None = None
    """When the target is asked again; None until it has everything and is asked."""


class TransferControl:
    """One member's giving up of terms. It outlives terms: how one ends is known in the next."""

    def __init__(self, ctx: ConsensusContext, actions: ActionControl) -> None:
        self._ctx = ctx
        self._actions = actions
        self._running: _Transfer | None = None
        """Leader: the transfer for which it holds."""
        self._awaited: _Transfer | None = None
        """In the election after: the transfer whose outcome is not known yet."""
        self._unasked_count = 0
        self._not_before_ns = 0
        self._better_since_ns: int | None = None
        """Leader: since when a member that is preferred, or has a faster disk than a slow one, could lead."""
        self._next_look_ns = 0

    def __repr__(self) -> str:
        return f"<TransferControl running={self._running} awaited={self._awaited} unasked={self._unasked_count}>"

    @property
    def is_running(self) -> bool:
        """Leader: whether it hands over."""
        return self._running is not None

    @property
    def asked_id(self) -> MemberId | None:
        """Leader: the member that is asked to stand; None while there is none, or it has not got everything yet."""
        transfer = self._running
        return None if transfer is None or transfer.next_request_ns is None else transfer.target_id

    # --- what begins a transfer

    def on_request(self, event: TransferRequested) -> None:
        """Begin to hand over, now or when what nobody asked for is over, or say why not."""
        if not self._actions.puts_off(partial(self.try_begin, event)):
            self.try_begin(event)

    def try_begin(self, event: TransferRequested) -> bool:
        """Begin to hand over, or say why not. Whether it has begun."""
        target, refusal = None, self._actions.find_refusal(ControlToggle.TRANSFER)
        if refusal is None:
            target, refusal = self._find_target(event.target_id)
        if target is None:
            self._actions.tell(event.asker, ActionStep.REFUSED, None, refusal or "")
            return False
        self._begin(target, "an operator asks for it", asker=event.asker, is_named=event.target_id is not None)
        return True

    def on_log_unreadable(self, event: LogUnreadable) -> None:
        """A member needs what cannot be read here. Only a leader replays its log, so another one has to lead."""
        ctx = self._ctx
        ctx.note_reluctance(Reluctance.LOG_DAMAGED, event.detail)
        target = self._best(is_needed=True)
        is_free = self._running is None and ctx.now_ns >= self._not_before_ns
        if target is None or not is_free or self._actions.toggle not in (ControlToggle.NEUTRAL, ControlToggle.SUSPEND):
            return
        why = f"member {event.member_id} needs a part of the log that is damaged here: {event.detail}"
        self._begin_unasked(target, why, is_needed=True)

    def _look_for_better(self) -> None:
        """Hand over to a better member that has been fit to lead for the whole pause.

        That is one with a higher priority or, while this leader's disk is slow, one with a clearly faster disk.
        """
        ctx = self._ctx
        if ctx.now_ns < self._next_look_ns:
            return
        self._next_look_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        slowness = ctx.reluctance.get(Reluctance.SYNCS_SLOW) if ctx.config.slow_disk_hand_over else None
        if slowness is None:
            target = self._best(above=ctx.config.leader_priority)
        else:
            target = self._best(among=self._find_faster_ids())
        if target is None or self._actions.find_refusal(ControlToggle.TRANSFER) is not None:
            self._better_since_ns = None
        elif self._better_since_ns is None:
            self._better_since_ns = ctx.now_ns
        elif ctx.now_ns >= max(self._better_since_ns + self._pause_ns(), self._not_before_ns):
            priorities = f"leader_priority={target.leader_priority} against {ctx.config.leader_priority}"
            self._begin_unasked(target, slowness or priorities)

    def _find_faster_ids(self) -> Collection[MemberId]:
        ctx = self._ctx
        known_ns = {one.member_id: one.sync_ns for one in ctx.voting_members if one.sync_ns is not None}
        return {} if ctx.sync_ns is None else find_faster(ctx.sync_ns, known_ns)

    def _look_for_heir(self, why: str) -> None:
        """Hand over to a member that can lead, again and again until one does."""
        ctx = self._ctx
        if ctx.now_ns < self._next_look_ns:
            return
        self._next_look_ns = ctx.now_ns + ctx.config.leader_heartbeat_interval_ns
        target = self._best()
        if target is not None:
            self._begin(target, why, asker=None, is_named=False)

    def _begin_unasked(self, target: ClusterMember, why: str, *, is_needed: bool = False) -> None:
        self._not_before_ns = self._ctx.now_ns + self._pause_ns()
        self._unasked_count += 1
        self._begin(target, why, asker=None, is_named=False, is_needed=is_needed)

    def _pause_ns(self) -> int:
        first_ns = _FIRST_PAUSE_HEARTBEAT_TIMEOUTS * self._ctx.config.leader_heartbeat_timeout_ns
        return back_off_ns(self._unasked_count, first_ns=first_ns, limit_ns=_PAUSE_LIMIT_NS)

    def _begin(self, target: ClusterMember, why: str, *, asker: Asker, is_named: bool, is_needed: bool = False) -> None:
        ctx = self._ctx
        deadline_ns = ctx.now_ns + ctx.config.election_timeout_ns
        end_position = ctx.log_buffer.append_position
        self._better_since_ns = None
        self._running = _Transfer(target.member_id, is_named, is_needed, asker, why, deadline_ns, end_position)
        self._actions.hold_for_transfer(is_asked=asker is not None)
        self._tell(self._running, ActionStep.HOLDING, f"takes no input until member {target.member_id} leads")
        self.on_progress()

    # --- the leader

    def poll(self) -> None:
        """Do what time has made due, in a term that this member leads."""
        transfer, ctx = self._running, self._ctx
        if transfer is None:
            if ctx.roster.is_witness:
                self._look_for_heir("this leader is a witness")
            elif ctx.is_removed and self._actions.find_refusal(ControlToggle.TRANSFER) is None:
                self._look_for_heir("this leader is removed")
            else:
                self._look_for_better()
            return
        if ctx.now_ns >= transfer.deadline_ns:
            waited_s = ctx.config.election_timeout_ns / 1e9
            self._give_up(transfer, f"member {transfer.target_id} was not elected within {waited_s:g} s")
            return
        target = ctx.members.get(transfer.target_id)
        is_needed = transfer.is_needed
        obstacle = "it is no member any more" if target is None else self._obstacle(target, is_needed=is_needed)
        if obstacle is not None:
            other = None if transfer.is_named else self._best(is_needed=is_needed)
            if other is None:
                self._give_up(transfer, obstacle)
                return
            transfer.target_id, transfer.next_request_ns = other.member_id, None
        self.on_progress()

    def on_progress(self) -> None:
        """More of the log is durable somewhere: ask the target to stand, if it has everything by now."""
        transfer, ctx = self._running, self._ctx
        if transfer is None:
            return
        end_position = transfer.log_position = ctx.log_buffer.append_position
        target = ctx.members.get(transfer.target_id)
        if target is None:
            return  # it is no member any more, which `poll` finds
        if min(target.append_position, ctx.append_position, ctx.commit_position) < end_position:
            return
        is_first = transfer.next_request_ns is None
        if transfer.next_request_ns is not None and ctx.now_ns < transfer.next_request_ns:
            return
        transfer.next_request_ns = ctx.now_ns + ctx.config.election_status_interval_ns
        ctx.send(
            target.member_id,
            TransferLeadership(
                leadership_term_id=ctx.leadership_term_id,
                log_position=end_position,
                leader_member_id=ctx.config.member_id,
            ),
        )
        if is_first:
            self._tell(transfer, ActionStep.ASKED, "has the whole log, and is asked to stand", transfer.target_id)

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return self._next_look_ns if self._running is None else self._ctx.now_ns + _POLL_NS

    def _give_up(self, transfer: _Transfer, why: str) -> None:
        """Go on as leader."""
        self._running = None
        self._not_before_ns = max(self._not_before_ns, self._ctx.now_ns + self._ctx.config.leader_heartbeat_timeout_ns)
        self._actions.release_after_transfer()
        self._tell(transfer, ActionStep.FAILED, f"given up, this leader goes on: {why}")

    # --- from term to term

    def roll_back(self) -> None:
        """The term is over: by the target's ballot, if it was asked to stand."""
        transfer, self._running = self._running, None
        self._better_since_ns = None
        self._actions.release_after_transfer()
        if transfer is None:
            return
        if transfer.next_request_ns is None:
            self._tell(transfer, ActionStep.FAILED, "the term ended before the target had the whole log")
            return
        transfer.deadline_ns = self._ctx.now_ns + self._ctx.config.leader_heartbeat_timeout_ns
        self._awaited = transfer

    def on_term_begun(self) -> None:
        """A term begins: it says what became of a transfer before it."""
        transfer, self._awaited = self._awaited, None
        if transfer is None:
            return
        ctx = self._ctx
        leader_id = ctx.leader_member_id
        is_done = leader_id == transfer.target_id if transfer.is_named else leader_id != ctx.config.member_id
        detail = f"member {leader_id} leads leadership_term_id={ctx.leadership_term_id}"
        self._tell(transfer, ActionStep.DONE if is_done else ActionStep.FAILED, detail, leader_id)

    def poll_outcome(self) -> None:
        """Wait for an outcome no longer than one can be expected."""
        transfer, ctx = self._awaited, self._ctx
        if transfer is None:
            return
        is_majority_there = ctx.is_majority(
            sum(member is ctx.me or member.is_reachable for member in ctx.voting_members)
        )
        if is_majority_there and ctx.now_ns < transfer.deadline_ns:
            return
        self._awaited = None
        why = "no leader has been elected yet" if is_majority_there else "too few members can be reached"
        self._tell(transfer, ActionStep.UNKNOWN, f"this member leads no more; {why}")

    def outcome_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll_outcome` would act."""
        return NEVER_NS if self._awaited is None else min(self._awaited.deadline_ns, self._ctx.now_ns + 10 * _POLL_NS)

    # --- who could lead

    def _find_target(self, target_id: int | None) -> tuple[ClusterMember | None, str | None]:
        """Find the member to hand over to, or why there is none."""
        ctx = self._ctx
        others = [member for member in ctx.voting_members if member is not ctx.me]
        if not others:
            return None, "this cluster has no other member that votes"
        if target_id is None:
            best = self._best()
            why_not = "; ".join(self._obstacle(member) or "" for member in others)
            return best, None if best is not None else f"no other member can lead: {why_not}"
        target = ctx.members.get(MemberId(target_id))
        if target is None:
            return None, f"member_id={target_id} expected one of {[int(one.member_id) for one in others]}"
        obstacle = self._obstacle(target)
        return (target, None) if obstacle is None else (None, obstacle)

    def _best(
        self, *, above: int | None = None, among: Collection[MemberId] | None = None, is_needed: bool = False
    ) -> ClusterMember | None:
        """Find the member that fits best: by its priority, then by how much of the log it has.

        If it `is_needed`, one that is reluctant fits as well, as long as it can lead.
        """
        fit = [
            member
            for member in self._ctx.voting_members
            if (above is None or member.leader_priority > above)
            and (among is None or member.member_id in among)
            and self._obstacle(member, is_needed=is_needed) is None
        ]
        return max(
            fit,
            key=lambda one: (not one.is_reluctant, one.leader_priority, one.append_position, -one.member_id),
            default=None,
        )

    def _obstacle(self, member: ClusterMember, *, is_needed: bool = False) -> str | None:
        """Say why a member cannot take over now; None if it takes part in this term and is near the log's end."""
        ctx, name = self._ctx, f"member {member.member_id}"
        if member is ctx.me:
            return f"{name} is the leader"
        if member not in ctx.voting_members:
            return f"{name} has no vote: learners and removed members do not lead"
        if not ctx.roster.can_lead(member.member_id):
            return f"{name} is a witness: it runs no service, and is not asked to lead"
        if not member.is_reachable:
            return f"{name} cannot be reached"
        if member.append_leadership_term_id != ctx.leadership_term_id:
            return f"{name} is not in leadership_term_id={ctx.leadership_term_id}: it has not joined this leader yet"
        if member.is_catching_up or member.live_join_position is None:
            return f"{name} is catching up: append_position={member.append_position}"
        if not member.is_voter:
            return f"{name} came with an empty directory, and votes again after the next entry that the others commit"
        timeout_ns = ctx.config.leader_heartbeat_timeout_ns
        if not is_active(member, ctx.now_ns, timeout_ns):
            return f"{name} has reported nothing for {timeout_ns / 1e9:g} s"
        lacking = ctx.log_buffer.append_position - member.append_position
        limit = max(ctx.config.catchup_near_bytes, ctx.config.ingress_window_bytes)  # that much is under way at times
        if lacking > limit:
            return f"{name} is too far behind: it lacks {lacking} bytes of the log, expected at most {limit}"
        reluctance = member.reluctance & ~(_ABLE if is_needed else 0)
        if reluctance and not ctx.roster.is_witness:
            return f"{name} is reluctant to lead: see `trimaran health`"
        return None

    def _tell(self, transfer: _Transfer, step: ActionStep, detail: str, member_id: MemberId | None = None) -> None:
        """Tell who asked, and the member's log."""
        self._ctx.emit(fx.TransferNoted(transfer.target_id, step, transfer.log_position, transfer.why, detail))
        if transfer.asker is not None:
            self._actions.tell(transfer.asker, step, transfer.log_position, detail, member_id)
