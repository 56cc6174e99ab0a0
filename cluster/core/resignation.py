"""A leader that cannot give a member what it needs of the log hands its term over to a follower that has it.

The log of a leader may be damaged where nothing reads it: below the newest snapshot. It leads as well as any other,
until a member that has lost its disk asks for that part. Only a leader replays its log to a member that catches up, so
this one has to give way to a follower whose log is whole as far as anybody knows. Beginning an election is not enough:
under load the leader's log is always some messages longer, the member in need is no voter, and then nobody can win but
the leader. Hence in three steps:

1. The leader *holds*, as it does while it is suspended: nothing is appended, and clients wait.
2. As soon as a follower has recorded everything, the leader begins an election. Both logs are equal.
3. It is reluctant to lead (`reluctance`) for as long as the damage is known, so the follower wins.

It does not flap. A leader that gave way and is elected all the same, because no other can win or the other is damaged
as well, does so again only after a pause that doubles; and where no follower comes up within a heartbeat timeout, the
leader goes on at once, and looks again when it is asked again.
"""

from __future__ import annotations

from .actions import ActionControl
from .context import ConsensusContext
from .control_toggle import ControlToggle
from .events import LogUnreadable
from .members import ClusterMember, is_active
from .phase import NEVER_NS
from .reason import Reason
from .reason import ReasonKind as K
from .reluctance import Reluctance

_POLL_NS = 1_000_000
"""How often a leader that holds looks whether a follower has everything: that takes a round trip and a sync."""

_FIRST_PAUSE_HEARTBEAT_TIMEOUTS = 4
_PAUSE_LIMIT_NS = 3_600_000_000_000


class ResignationControl:
    """One member's giving up of terms for damage in its log. It outlives terms."""

    def __init__(self, ctx: ConsensusContext, actions: ActionControl) -> None:
        self._ctx = ctx
        self._actions = actions
        self._reason: Reason | None = None
        """Why this leader holds now, to give up its term; None while it does not."""
        self._deadline_ns = NEVER_NS
        self._resigned_count = 0
        self._not_before_ns = 0

    def __repr__(self) -> str:
        return f"<ResignationControl pending={self._reason} resigned={self._resigned_count}>"

    def on_log_unreadable(self, event: LogUnreadable) -> None:
        """A member needs what cannot be read here."""
        ctx = self._ctx
        ctx.note_reluctance(Reluctance.LOG_DAMAGED, event.detail)
        is_possible = self._actions.toggle in (ControlToggle.NEUTRAL, ControlToggle.SUSPEND) and any(
            self._could_lead(member) for member in ctx.others
        )
        if self._reason is not None or ctx.now_ns < self._not_before_ns or not is_possible:
            return
        self._reason = Reason(K.LOG_UNREADABLE, member_id=event.member_id, detail=event.detail)
        self._deadline_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns
        self._actions.hold_for_successor(is_held=True)

    def poll(self) -> Reason | None:
        """Look whether a follower can take over. Returns the reason for an election, if it can."""
        reason, ctx = self._reason, self._ctx
        if reason is None:
            return None
        end_position = ctx.log_buffer.append_position
        if ctx.append_position == end_position and any(
            self._could_lead(member) and member.append_position >= end_position for member in ctx.others
        ):
            first_pause_ns = _FIRST_PAUSE_HEARTBEAT_TIMEOUTS * ctx.config.leader_heartbeat_timeout_ns
            pause_ns = min(first_pause_ns << min(self._resigned_count, 20), _PAUSE_LIMIT_NS)
            self._resigned_count += 1
            self._not_before_ns = ctx.now_ns + pause_ns
            return reason
        if ctx.now_ns >= self._deadline_ns:
            self._not_before_ns = ctx.now_ns + ctx.config.leader_heartbeat_timeout_ns
            self.roll_back()
        return None

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return NEVER_NS if self._reason is None else self._ctx.now_ns + _POLL_NS

    def roll_back(self) -> None:
        """The term is over, or goes on."""
        self._reason = None
        self._actions.hold_for_successor(is_held=False)

    def _could_lead(self, member: ClusterMember) -> bool:
        """Whether a follower takes part in this term with the live log, so it is a voter, and would be elected."""
        ctx = self._ctx
        return (
            member.is_reachable
            and not member.is_reluctant
            and not member.is_catching_up
            and member.live_join_position is not None
            and member.append_leadership_term_id == ctx.leadership_term_id
            and is_active(member, ctx.now_ns, ctx.config.leader_heartbeat_timeout_ns)
        )
