"""How the other members are: each asks every other one a second, and once more when a link comes up.

The answer of a member (`messages.condition`) says its time of day, the highest term that it vouches for, and why it
would rather not lead. It counts only with the nonce of a question, which went out on the link that this member dialled
itself, to the other's configured endpoint. A stranger may call itself any member and say anything; this it
cannot answer without being where that member is.

Four things are made of it: which clocks agree (`clock_agreement`), and so whether this member's own is off; whether its
disk is slower than a majority's (`sync_comparison`); how far terms may honestly be (`terms`); and to whom a reluctant
member may leave an election (`reluctance`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ....service_api.types import NULL_VALUE, MemberId, TermId
from ...messages.condition import ConditionQuery, MemberCondition
from ..context import ConsensusContext
from ..events import SyncsMeasured
from ..vocabulary.phase import NEVER_NS
from ..vocabulary.reluctance import Reluctance
from .clock_agreement import ClockAgreement
from .sync_comparison import describe_slow_syncs

_INTERVAL_NS: Final = 1_000_000_000
_REPEAT_NS: Final = 50_000_000
"""Between two questions to one member at least, when an answer is wanted now."""

_UNANSWERED_LIMIT: Final = 8
"""Questions to one member that may be open; the oldest is forgotten."""

_NONCE_LIMIT: Final = 1 << 62


class ConditionExchange:
    """The questions of one member, and what it knows of the others from their answers. It outlives every phase."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._asked: defaultdict[MemberId, dict[int, int]] = defaultdict(dict)
        """By member: when each of the newest questions that it has not answered was asked, by nonce."""
        self._next_round_ns = NEVER_NS
        self.clocks = ClockAgreement(
            member_count=lambda: len({id(ctx.me), *map(id, ctx.voting_members)}),
            limit_ns=ctx.config.clock_skew_limit_ns,
        )
        ctx.ask_condition = self.ask_again

    def __repr__(self) -> str:
        return f"<ConditionExchange {self.clocks!r}>"

    def start(self) -> None:
        """Begin to ask."""
        self._next_round_ns = self._ctx.now_ns + _INTERVAL_NS

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        return self._next_round_ns

    def poll(self) -> None:
        """Ask every member that can be reached, when that is due."""
        ctx = self._ctx
        if ctx.now_ns < self._next_round_ns:
            return
        self._next_round_ns = ctx.now_ns + _INTERVAL_NS
        for member in ctx.others:
            if member.is_reachable:
                self._ask(member.member_id)
        self._judge_clocks()  # what is old counts no more
        self._judge_syncs()

    def ask_again(self, member_id: MemberId) -> None:
        """Ask one member now: it has come up, or says what nobody vouches for. At most twenty times a second."""
        newest_ns = max(self._asked[member_id].values(), default=None)
        if newest_ns is None or self._ctx.now_ns - newest_ns >= _REPEAT_NS:
            self._ask(member_id)

    def on_query(self, message: ConditionQuery) -> None:
        """A member asks how this one is."""
        ctx = self._ctx
        ctx.send(
            MemberId(message.member_id),
            MemberCondition(
                nonce=message.nonce,
                epoch_ms=ctx.timestamp,
                leadership_term_id=TermId(ctx.vouched_term_id),
                reluctance=sum(kind.value for kind in ctx.reluctance),
                member_id=ctx.config.member_id,
                leader_priority=ctx.config.leader_priority,
                snapshot_position=ctx.newest_snapshot_position,
                sync_ns=NULL_VALUE if ctx.sync_ns is None else ctx.sync_ns,
            ),
        )

    def on_condition(self, message: MemberCondition) -> None:
        """A member says how it is."""
        ctx, member_id = self._ctx, MemberId(message.member_id)
        asked_ns = self._asked[member_id].pop(message.nonce, None)
        if asked_ns is None:
            return  # it answers no question of this member
        ctx.members[member_id].reluctance = message.reluctance
        ctx.members[member_id].leader_priority = message.leader_priority
        ctx.members[member_id].snapshot_position = message.snapshot_position
        ctx.members[member_id].sync_ns = None if message.sync_ns == NULL_VALUE else message.sync_ns
        ctx.vouch_for_term(message.leadership_term_id)
        self._judge_syncs()
        if member_id not in ctx.roster.current.voter_ids:
            return
        self.clocks.note(
            member_id, asked_ns=asked_ns, now_ns=ctx.now_ns, their_epoch_ms=message.epoch_ms, epoch_ms=ctx.timestamp
        )
        self._judge_clocks()

    def on_syncs_measured(self, event: SyncsMeasured) -> None:
        """This member says how long a sync of its own disk takes."""
        self._ctx.sync_ns = event.typical_ns
        self._judge_syncs()

    def _ask(self, member_id: MemberId) -> None:
        ctx = self._ctx
        nonce, asked = int(ctx.random() * _NONCE_LIMIT), self._asked[member_id]
        if len(asked) >= _UNANSWERED_LIMIT:
            del asked[next(iter(asked))]
        asked[nonce] = ctx.now_ns
        ctx.send(member_id, ConditionQuery(nonce=nonce, member_id=ctx.config.member_id))

    def _judge_clocks(self) -> None:
        """Reckon with the majority's clock where this member's own is off, and be reluctant to lead."""
        ctx, clocks = self._ctx, self.clocks
        is_changed = clocks.judge(ctx.now_ns)
        majority_ns = clocks.majority_ns or 0
        ctx.cluster_clock.correction_ns = majority_ns if clocks.is_off else 0
        if is_changed:
            ctx.note_reluctance(Reluctance.CLOCK_OFF, clocks.describe_problem() if clocks.is_off else None)

    def _judge_syncs(self) -> None:
        """Be reluctant to lead while this member's disk is slow, and those of a majority are not."""
        ctx = self._ctx
        detail = None
        if ctx.me in ctx.voting_members:
            detail = describe_slow_syncs(
                ctx.sync_ns,
                {
                    one.member_id: one.sync_ns
                    for one in ctx.voting_members
                    if one is not ctx.me and one.is_reachable and one.sync_ns is not None
                },
                voter_count=len(ctx.voting_members),
                slow_ns=ctx.config.sync_slow_ns,
                was_slow=Reluctance.SYNCS_SLOW in ctx.reluctance,
            )
        ctx.note_reluctance(Reluctance.SYNCS_SLOW, detail)
