"""The numbers that a running member shows: where each is read, and the few that are counted.

Almost everything is read off the parts when somebody asks. Counted are effects that are rare: elections, refusals,
sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.documents.health import why_not_ready
from trimaran.cluster.runtime.watching.snapshot_counts import SnapshotCounts
from trimaran.cluster.settings.health_limits import HealthLimits
from trimaran.service_api import Clock
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.tls.certificates import Certificate

if TYPE_CHECKING:
    from trimaran.archive import Archive
    from trimaran.cluster.runtime.files.error_log import ErrorLog
    from trimaran.cluster.runtime.links.ingress import Ingress
    from trimaran.cluster.runtime.repair.upkeep import Upkeep
    from trimaran.cluster.runtime.snapshots.snapshot_shipping import FetchProgress
    from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent
    from trimaran.cluster.runtime.turns.queries import QueryHandler
    from trimaran.cluster.runtime.watching.disk_space import DiskSpaceWatch
    from trimaran.cluster.runtime.watching.stall_tracker import StallTracker
    from trimaran.cluster.runtime.watching.sync_timer import TimedFileSystem
    from trimaran.cluster.service.agent import ClusteredServiceAgent

CLOSE_REASONS: Final = {
    "CLIENT_ACTION": "client",
    "TIMEOUT": "timeout",
    "closed by the service": "service",
}
"""What is logged about the close of a session, and the label that counts it; anything else is `other`."""

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

    def __init__(self) -> None:
        self.elections = 0
        self.elections_won = 0
        self.votes_refused = 0
        self.nominations_refused = 0
        self.leaders_refused = 0
        self.log_truncations = 0
        self.snapshots = SnapshotCounts()
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
            (fx.ElectionStarted, "elections"),
            (fx.OpenLogPublication, "elections_won"),
            (fx.VoteRefused, "votes_refused"),
            (fx.NominationRefused, "nominations_refused"),
            (fx.LeaderRefused, "leaders_refused"),
            (fx.TruncateLog, "log_truncations"),
        ):
            agent.watch(kind, partial(self._count, name))
        agent.watch(fx.SessionChanged, self._on_session_changed)

    def _count(self, name: str, effect: object) -> None:
        setattr(self, name, getattr(self, name) + 1)

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
    """The parts of one member that have something to tell."""

    module: ConsensusModule
    agent: ConsensusModuleAgent
    ingress: Ingress
    gate: ConnectionGate
    service: ClusteredServiceAgent
    queries: QueryHandler
    stalls: StallTracker
    errors: ErrorLog
    disk: TimedFileSystem | None
    """None when syncs are not timed."""
    disk_space: DiskSpaceWatch
    certificate: Callable[[], Certificate | None]
    """The certificate that expires first; None without TLS."""
    archive: Archive
    upkeep: Upkeep
    counts: EffectCounts
    clock: Clock
    delivered_position: Callable[[], int]
    snapshot_fetch: Callable[[], FetchProgress | None]
    describe_status: Callable[[], MemberStatus]
    health_limits: HealthLimits
    ingress_window_bytes: int
    started_ns: int
    start_position: int
    """Where the log ended when this process began."""
    is_service_started: bool = False

    @property
    def log_start_position(self) -> int:
        """Where the log on this disk begins."""
        return self.archive.descriptor(self.module.ctx.log_recording_id).start_position

    @property
    def cold_pending_bytes(self) -> int:
        """How much log is to leave the disk, and is not in cold storage."""
        standing = self.archive.cold_standing
        return 0 if standing is None else standing.pending_bytes

    def cold_segments(self) -> Iterator[tuple[tuple[str], int]]:
        """Yield how many segments went to cold storage and came back, and how many attempts failed."""
        standing, cold = self.archive.cold_standing, self.archive.cold
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
        return self.clock.monotonic_ns()

    @property
    def uptime_s(self) -> float:
        """How long this process has been a member."""
        return (self.now_ns - self.started_ns) / _NS_PER_S

    def why_not_ready(self) -> str | None:
        """Say in one line why clients had better go elsewhere; None when it is in a term and well."""
        module, ctx = self.module, self.module.ctx
        if not self.is_service_started:
            return "the service has not started"
        if module.election is not None:
            last = module.last_election
            reason = "" if last is None else f": {last.reason}"
            return f"in an election: state={module.election.state.name}{reason}"
        if module.leader is None and module.follower is None:
            return "no election has begun"
        if ctx.leader_member_id is None:
            return "no leader is known"
        return why_not_ready(self.describe_status(), self.health_limits)
