"""Changes of the members: the leader's rules, and what each member does once a change is committed.

The leader keeps the three rules of `configuration`, and two of operation: what is left must be able to commit, so that
one change too many does not stop the cluster for good, and a learner is promoted only once it has the log.

A member that is removed stops when it knows that to be committed: by its own log, by a commit position that the leader
tells it for so long, or by the configuration that the others answer it with (`roster`). A leader that removes itself
leads until that is committed, counts nowhere meanwhile, and then hands over (`transfer`). Where nobody can take over,
it stops once the others have had time to hear that it is removed.

Source: Raft dissertation, chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ....service_api import invariant
from ....service_api.types import MemberId
from .. import effects as fx
from ..context import ConsensusContext
from ..log.log_publisher import LogPublisher
from ..vocabulary.configuration import (
    ChangeRefusedError,
    Configuration,
    ConfigurationCause,
    text_room,
)
from ..vocabulary.member_change import MemberChange, MemberChangeKind
from ..vocabulary.members import ClusterMember, quorum_threshold
from ..vocabulary.phase import NEVER_NS

_FAREWELL_HEARTBEAT_TIMEOUTS: Final = 2
"""How long a leader speaks to a member that is removed, and a removed leader to all, once that is committed."""


def has_log(ctx: ConsensusContext, member: ClusterMember) -> bool:
    """Whether a member has this leader's log, so that it may be counted: it records the live log, near its end."""
    lag = ctx.log_buffer.append_position - member.append_position
    comes_live = member is ctx.me or member.is_relayed or member.live_join_position is not None
    is_joined = not member.is_catching_up and comes_live
    return is_joined and _is_present(ctx, member) and lag <= ctx.config.catchup_near_bytes


def _is_present(ctx: ConsensusContext, member: ClusterMember) -> bool:
    """Return whether a member takes part in this leader's term and is counted in it, or is the leader."""
    return member is ctx.me or (member.is_voter and ctx.takes_part(member))


class MembershipControl:
    """One member's part in changes of the members. It outlives terms."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._publisher: LogPublisher | None = None
        self._first_position = 0
        """Leader: where the first entry of its term ends."""
        self._seen_position = ctx.roster.current.log_position
        self._looked_count = -1
        """How often the history had changed at the last look."""
        self._is_pending = True
        """Whether the newest change was not committed then."""
        """The end of the newest configuration that is known to be committed."""
        self._farewell_until_ns = NEVER_NS
        self._is_stopping = False
        self.on_members_changed: Callable[[], None] = lambda: None
        """Leader: told when clients should learn of other members."""
        ctx.roster.on_changed = lambda: ctx.emit(fx.RosterChanged())

    def __repr__(self) -> str:
        return f"<MembershipControl {self._ctx.roster.current!r} committed_at={self._seen_position}>"

    def on_lead(self, publisher: LogPublisher, first_position: int) -> None:
        """This member leads; the first entry of its term ends at a position. A cluster that forms notes its members."""
        self._publisher, self._first_position = publisher, first_position
        current = self._ctx.roster.current
        if current.log_position == 0 and self._fits(current):
            members = tuple(replace(member, is_as_formed=True) for member in current.members)
            self._append(replace(current, members=members, cause=ConfigurationCause.FORM), publisher)
        elif current.log_position == self._seen_position and self._ctx.roster.leaving:
            self._begin_farewell()

    def on_follow(self) -> None:
        """Another member leads: a leader before it that is none any more has heard so, or is gone."""
        if self._ctx.roster.current.log_position == self._seen_position:
            self._dismiss_leaving()

    def roll_back(self) -> None:
        """This member leads no more; one that has removed itself stops, if that is committed."""
        is_leaving, self._farewell_until_ns = self._farewell_until_ns != NEVER_NS, NEVER_NS
        self._publisher = None
        if is_leaving and self._ctx.is_removed:
            self._stop("this leader has removed itself")

    # --- the leader

    def request(self, change: MemberChange) -> tuple[int, str]:
        """Append a change. Returns where its entry ends, and what it says.

        Raises:
            ChangeRefusedError: it is not made as things are.
        """
        ctx, publisher = self._ctx, self._publisher
        if publisher is None:
            raise ChangeRefusedError(f"not the leader: leader_member_id={ctx.leader_member_id}")
        current = ctx.roster.current
        if not self._is_committed(current.log_position):
            raise ChangeRefusedError(
                f"the change before is not committed yet: log_position={current.log_position} "
                f"commit_position={ctx.commit_position}: ask again"
            )
        if not self._is_own_term_committed():
            raise ChangeRefusedError(
                f"this leader has committed nothing of its own yet: commit_position={ctx.commit_position} expected "
                f"{self._first_position}: ask again"
            )
        made = change.apply_to(current)
        self._check_ready(change, current, made)
        if not self._fits(made):
            mtu_length = ctx.config.mtu_length_bytes
            raise ChangeRefusedError(
                f"the members take {len(made.encode_text())} bytes, too many for one frame of the log: expected at "
                f"most {text_room(mtu_length)} with mtu_length_bytes={mtu_length}"
            )
        return self._append(made, publisher), f"members {current.describe()} become {made.describe()}"

    def _fits(self, configuration: Configuration) -> bool:
        """Whether a configuration goes into one frame, where it is found. One that settings give need not."""
        return len(configuration.encode_text()) <= text_room(self._ctx.config.mtu_length_bytes)

    def _is_committed(self, position: int) -> bool:
        return position <= self._ctx.commit_position

    def _is_own_term_committed(self) -> bool:
        return self._ctx.commit_position >= self._first_position

    def _check_ready(self, change: MemberChange, current: Configuration, made: Configuration) -> None:
        """Refuse what would leave the cluster without a majority, or count a member that has not the log."""
        ctx = self._ctx
        if change.kind is MemberChangeKind.PROMOTE:
            member = ctx.members[MemberId(change.member_id or 0)]
            if not member.is_voter:
                raise ChangeRefusedError(
                    f"member_id={member.member_id} came with an empty directory, and nothing has been committed since "
                    "that it could be counted with: ask again"
                )
            if not has_log(ctx, member):
                raise ChangeRefusedError(
                    f"member_id={member.member_id} has not the log yet: append_position={member.append_position} "
                    f"expected {ctx.log_buffer.append_position}: wait until `trimaran member list` shows it caught up"
                )
        moved_id = change.member_id if change.kind is MemberChangeKind.MOVE else None
        if moved_id == ctx.config.member_id:
            raise ChangeRefusedError(
                f"member_id={moved_id} leads, and the others answer it where it is: run `trimaran leader transfer` "
                "first, or replace it"
            )
        if made.voter_ids == current.voter_ids and moved_id not in made.voter_ids:
            return
        present = {one for one in made.voter_ids if one in ctx.members and _is_present(ctx, ctx.members[one])}
        present.discard(MemberId(-1 if moved_id is None else moved_id))  # from the entry on it is dialled elsewhere
        needed = quorum_threshold(len(made.voter_ids))
        if len(present) < needed:
            absent = sorted(made.voter_ids - present)
            advice = "start them, or remove these first" if moved_id is None else "replace it instead of moving it"
            raise ChangeRefusedError(
                f"of the voters {sorted(made.voter_ids)} members {absent} are not in the term, or have no vote yet, so "
                f"nothing could be committed: {len(present)} expected {needed}: {advice}"
            )

    def _append(self, made: Configuration, publisher: LogPublisher) -> int:
        ctx = self._ctx
        before = ctx.roster.current
        invariant(len(made.voter_ids ^ before.voter_ids) <= 1, "one voter changes at a time", before=before, made=made)
        made = replace(made, previous_log_position=before.log_position)
        position = publisher.append_positioned(
            made.to_event(
                leadership_term_id=ctx.leadership_term_id,
                timestamp=ctx.stamp(),
                leader_member_id=ctx.config.member_id,
                before=None if made.cause is ConfigurationCause.FORM else before,
            )
        )
        ctx.roster.history.append(replace(made, log_position=position))
        ctx.roster.refresh()
        return position

    # --- every member

    def look(self) -> None:
        """See whether a change has been committed since the last time, if there may be one."""
        ctx = self._ctx
        roster = ctx.roster
        history = roster.history
        if not self._is_pending and self._looked_count == history.change_count == roster.change_count:
            return
        roster.refresh()
        self._looked_count = history.change_count
        current = history.current
        self._is_pending = current.log_position > ctx.commit_position
        if current.log_position == self._seen_position or self._is_pending:
            return
        self._seen_position = current.log_position
        roster.note_committed(current)
        ctx.emit(fx.ConfigurationCommitted(current))
        is_leader = self._publisher is not None
        if is_leader:
            self._begin_farewell()
            self.on_members_changed()
        else:
            self._dismiss_leaving()
        if roster.latest.find(ctx.config.member_id) is None and not is_leader:
            self._stop(f"the members are {current.describe()} since log_position={current.log_position}")

    def _begin_farewell(self) -> None:
        ctx = self._ctx
        duration_ns = _FAREWELL_HEARTBEAT_TIMEOUTS * ctx.config.leader_heartbeat_timeout_ns
        self._farewell_until_ns = ctx.now_ns + duration_ns

    def _dismiss_leaving(self) -> None:
        """Follower: speak no more to members that are none; to the leader only after its term, which a vote ends."""
        roster = self._ctx.roster
        for member_id in roster.leaving:
            if member_id != self._ctx.leader_member_id:
                roster.dismiss(member_id)

    def poll(self) -> None:
        """Leader: end what is left to say to members that are removed, itself included, when that is due."""
        ctx = self._ctx
        roster = ctx.roster
        if self._farewell_until_ns == NEVER_NS:
            return
        if roster.current.log_position != self._seen_position:
            self._farewell_until_ns = NEVER_NS  # the change under way brings its own, once it is committed
            return
        is_over = ctx.now_ns >= self._farewell_until_ns
        for member_id in roster.leaving:
            if is_over or not roster.members[member_id].is_reachable:
                roster.dismiss(member_id)
        if is_over:
            self._farewell_until_ns = NEVER_NS
            if ctx.is_removed:
                self._stop("this leader has removed itself")

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return self._farewell_until_ns

    def hear(self, configuration: Configuration, *, is_trusted: bool) -> None:
        """Another member says who the members are, by its committed configuration.

        `is_trusted` if it surely is a member: then this one, where it is none any more, stops.
        """
        ctx = self._ctx
        ctx.roster.hear(configuration)
        if not is_trusted or configuration.find(ctx.config.member_id) is not None:
            return
        # One that has just come in hears older configurations too, of members that have not heard of it yet.
        if configuration.log_position >= ctx.roster.latest.log_position > 0:
            self._stop(f"the members are {configuration.describe()} since log_position={configuration.log_position}")

    def _stop(self, reason: str) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        ctx = self._ctx
        ctx.emit(fx.MemberRemoved(reason))
        ctx.emit(fx.Terminate(ctx.commit_position, f"this member is no member of the cluster any more: {reason}"))
