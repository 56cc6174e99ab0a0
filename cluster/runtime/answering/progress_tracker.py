"""Measures how long a member has got no further with what it has to do, so that one question is enough to see it.

In a term it has to deliver what is committed. In an election it may have to replay a log to its service, or copy one
from another member. The tracker compares positions; it knows no reason. A member that has nothing to do is idle,
however long its positions stand still.
"""

from __future__ import annotations

from typing import Final

from ....service_api import Clock
from ...core.consensus_module import ConsensusModule
from ...core.vocabulary.election_state import ElectionState
from ..snapshots.snapshot_shipping import SnapshotFetcher
from ..turns.queries import DeliveredLog

_MOVING_STATES: Final = frozenset(
    {
        ElectionState.LEADER_REPLAY,
        ElectionState.FOLLOWER_LOG_REPLICATION,
        ElectionState.FOLLOWER_REPLAY,
        ElectionState.FOLLOWER_CATCHUP_INIT,
        ElectionState.FOLLOWER_CATCHUP_AWAIT,
        ElectionState.FOLLOWER_CATCHUP,
    }
)
"""States in which a position moves, or something is wrong; in the others a member waits for members."""


class ProgressTracker:
    """Looks at the positions of one member whenever `look` is called: once a second, and when its status is asked."""

    def __init__(
        self,
        module: ConsensusModule,
        *,
        delivered: DeliveredLog,
        fetcher: SnapshotFetcher,
        clock: Clock,
    ) -> None:
        self._module = module
        self._delivered = delivered
        self._fetcher = fetcher
        self._clock = clock
        self._seen: tuple[object, ...] | None = None
        """What has to change; None while there is nothing to do."""
        self._since_ns = 0

    def __repr__(self) -> str:
        return f"<ProgressTracker seen={self._seen} since_ns={self._since_ns}>"

    def look(self) -> int | None:
        """Return for how many nanoseconds nothing has moved that should; None if there is nothing to do."""
        now_ns, found = self._clock.monotonic_ns(), self._find_work()
        if found is None or found != self._seen:
            self._seen, self._since_ns = found, now_ns
        return None if found is None else now_ns - self._since_ns

    def _find_work(self) -> tuple[object, ...] | None:
        ctx, delivered_position = self._module.ctx, self._delivered.position
        election, fetch = self._module.election, self._fetcher.progress
        if fetch is not None:
            return ("snapshot", fetch.copied_bytes, fetch.length_bytes)
        if election is None:
            return ("term", delivered_position) if delivered_position < ctx.commit_position else None
        if election.state not in _MOVING_STATES:
            return None
        return ("election", ctx.log_buffer.append_position, ctx.append_position, delivered_position)
