"""The numbers that a running member shows: where each is read, and the few that are counted.

Almost all numbers are read from the parts when they are needed. Only rare effects are counted: elections, refusals,
sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ....service_api.documents.member_status import MemberStatus
from ...core import effects as fx
from ...core.consensus_module import ConsensusModule
from ..watching.snapshot_counts import SnapshotCounts

if TYPE_CHECKING:
    from ...service.wiring import Container
    from ..files.wiring import Files
    from ..ground.wiring import Ground
    from ..links.wiring import Links
    from ..repair.wiring import Repair
    from ..snapshots.wiring import Snapshots
    from ..turns.agent import ConsensusModuleAgent
    from ..turns.wiring import AgentTurns
    from ..watching.disk_space import DiskSpaceWatch
    from .progress_tracker import ProgressTracker

CLOSE_REASONS: Final = {
    "CLIENT_ACTION": "client",
    "TIMEOUT": "timeout",
    "closed by the service": "service",
}
"""The logged reasons for the close of a session, each with the label that counts it; others count as `other`."""

REFUSALS: Final = {
    "invalid client version": "version",
    "concurrent session limit": "limit",
    "authentication rejected": "authentication",
}
"""How a line about a session that was never opened begins, and the label that counts it; another is `malformed`."""

_UNOPENED: Final = {"session.timed_out": "timeout", "session.token_refused": "token"}
_NS_PER_S: Final = 1_000_000_000


class EffectCounts:
    """How often what happened since this process began."""

    def __init__(self, snapshots: SnapshotCounts) -> None:
        self.snapshots = snapshots
        self.elections = 0
        self.elections_by_fault = 0
        self.elections_won = 0
        self.votes_refused = 0
        self.nominations_refused = 0
        self.leaders_refused = 0
        self.log_truncations = 0
        self.sessions_opened = 0
        self.sessions_closed: Counter[str] = Counter(dict.fromkeys((*CLOSE_REASONS.values(), "other"), 0))
        self.sessions_refused: Counter[str] = Counter(
            dict.fromkeys((*REFUSALS.values(), "malformed", *_UNOPENED.values()), 0)
        )

    def __repr__(self) -> str:
        return f"<EffectCounts elections={self.elections}>"

    def watch(self, agent: ConsensusModuleAgent) -> None:
        """Count from now on what an agent is asked to perform."""
        for kind, name in (
            (fx.OpenLogPublication, "elections_won"),
            (fx.VoteRefused, "votes_refused"),
            (fx.NominationRefused, "nominations_refused"),
            (fx.LeaderRefused, "leaders_refused"),
            (fx.TruncateLog, "log_truncations"),
        ):
            agent.watch(kind, partial(self._count, name))
        agent.watch(fx.ElectionStarted, self._on_election_started)
        agent.watch(fx.SessionChanged, self._on_session_changed)

    def _count(self, name: str, effect: object) -> None:
        setattr(self, name, getattr(self, name) + 1)

    def _on_election_started(self, effect: fx.ElectionStarted) -> None:
        self.elections += 1
        self.elections_by_fault += not effect.reason.kind.is_of_order

    def _on_session_changed(self, effect: fx.SessionChanged) -> None:
        if effect.event == "session.opened":
            self.sessions_opened += 1
        elif effect.event == "session.closed":
            self.sessions_closed[CLOSE_REASONS.get(effect.reason, "other")] += 1
        elif effect.event == "session.rejected":
            self.sessions_refused[REFUSALS.get(effect.reason.partition(":")[0], "malformed")] += 1
        else:
            self.sessions_refused[_UNOPENED[effect.event]] += 1


@dataclass(slots=True, kw_only=True)
class Vitals:
    """The rooms of one member, for who shows its numbers: its status and its metrics."""

    module: ConsensusModule
    ground: Ground
    links: Links
    files: Files
    container: Container
    snapshots: Snapshots
    repair: Repair
    turns: AgentTurns
    disk_space: DiskSpaceWatch
    progress: ProgressTracker
    counts: EffectCounts
    start_position: int
    """Where the log ended when this process began."""
    is_service_started: bool = False
    status: MemberStatus = field(init=False, repr=False)
    """The status at the scrape that is under way."""

    def cold_segments(self) -> Iterator[tuple[tuple[str], int]]:
        """Yield how many segments went to cold storage and came back, and how many attempts failed."""
        standing, cold = self.files.archive.cold_standing, self.files.archive.cold
        yield ("shipped",), 0 if standing is None else standing.shipped_count
        yield ("fetched",), 0 if cold is None else cold.counts.fetched_count
        counts = (
            None if standing is None else standing.failed_count,
            None if cold is None else cold.counts.failed_count,
        )
        yield ("failed",), sum(count or 0 for count in counts)

    @property
    def now_ns(self) -> int:
        """Monotonic time."""
        return self.ground.host.clock.monotonic_ns()

    @property
    def uptime_s(self) -> float:
        """How long this process has been a member."""
        return (self.now_ns - self.ground.started_ns) / _NS_PER_S
