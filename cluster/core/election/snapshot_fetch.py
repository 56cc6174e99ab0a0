"""Fetching a snapshot: from the leader, when its log no longer has what this member lacks, or the seed of the log.

A seed is the state that the log begins with (`context.lacks_seed`). It is needed before anything else, so any member
that has it is asked for it, be there a leader or not.

Meanwhile the election goes on: this member canvasses and may vote, and another leader may have the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....service_api import invariant
from ....service_api.types import MemberId
from ...messages.consensus import NewLeadershipTerm
from .. import effects as fx
from ..context import ConsensusContext
from ..events import SnapshotFetched, SnapshotFetchFailed
from ..vocabulary.back_off import back_off_ns

_FIRST_PAUSE_NS = 500_000_000
_PAUSE_LIMIT_NS = 30_000_000_000


@dataclass(slots=True)
class _Asked:
    """The leader that was asked, or a member that has the seed: exists until another leads."""

    leader_member_id: int
    leadership_term_id: int
    failure_count: int
    is_running: bool = True
    retry_ns: int = 0
    """When to ask again, once it is not running."""


class SnapshotFetch:
    """Whether one election waits for a snapshot, and whose."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._asked: _Asked | None = None

    def __repr__(self) -> str:
        return f"<SnapshotFetch {self._asked!r}>"

    def begin(self, leader_member_id: MemberId) -> None:
        """Ask the leader for its snapshot."""
        failure_count = 0 if self._asked is None else self._asked.failure_count
        self._asked = _Asked(leader_member_id, self._ctx.leadership_term_id, failure_count)
        self._ctx.emit(fx.FetchSnapshot(leader_member_id))

    def begin_seed(self) -> None:
        """Ask a member for the seed, one that can be reached first, unless one was asked a short while ago."""
        ctx, asked = self._ctx, self._asked
        if asked is not None and (asked.is_running or ctx.now_ns < asked.retry_ns):
            return
        member_ids = sorted(
            ctx.seeded_member_ids, key=lambda one: (one not in ctx.members or not ctx.members[one].is_reachable, one)
        )
        self.begin(member_ids[(0 if asked is None else asked.failure_count) % len(member_ids)])

    def on_fetched(self, event: SnapshotFetched, *, is_wanted: bool) -> None:
        """A snapshot is here: go on from it, unless what this log holds reaches as far by now."""
        ctx = self._ctx
        if self._asked is None or not is_wanted or event.log_position <= ctx.snapshot_needed_after:
            self._asked = None
            ctx.emit(fx.StopSnapshotFetch())
            return
        invariant(
            max(ctx.commit_position, ctx.append_position) <= event.log_position,
            "a snapshot replaces only what it covers",
            commit_position=ctx.commit_position,
            append_position=ctx.append_position,
            log_position=event.log_position,
        )
        ctx.emit(fx.InstallSnapshot(event.log_position))

    def on_failed(self, _: SnapshotFetchFailed) -> None:
        """Ask again after a pause that grows, as soon as a leader speaks."""
        asked = self._asked
        if asked is None:
            return
        asked.is_running = False
        pause_ns = back_off_ns(asked.failure_count, first_ns=_FIRST_PAUSE_NS, limit_ns=_PAUSE_LIMIT_NS)
        asked.failure_count += 1
        asked.retry_ns = self._ctx.now_ns + pause_ns

    def is_due_from(self, message: NewLeadershipTerm) -> bool:
        """Whether this leader has been asked for a snapshot, or was of no help a short while ago."""
        asked = self._asked
        return (
            asked is not None
            and (asked.is_running or self._ctx.now_ns < asked.retry_ns)
            and (asked.leader_member_id, asked.leadership_term_id)
            == (message.leader_member_id, message.leadership_term_id)
        )

    def end(self, leader_member_id: int) -> None:
        """This member tries the log of a leader again: another one's, or the same one's after a failure."""
        asked = self._asked
        if asked is None:
            return
        if asked.is_running:
            self._ctx.emit(fx.StopSnapshotFetch())
        if asked.leader_member_id != leader_member_id:
            self._asked = None
