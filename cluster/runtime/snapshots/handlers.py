"""What performs the effects of the core that are about snapshots on this member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....archive import Archive
from ....service_api.net.transport import NetworkStack
from ...core import effects as fx
from ...core.context import ConsensusContext
from ...service.agent import ClusteredServiceAgent
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from ..ground.state_copy import CopyState
from ..watching.snapshot_counts import SnapshotCounts
from .retention import Retention
from .snapshot_taker import SnapshotTaker
from .standby_fetcher import StandbySnapshotFetcher


def snapshot_handlers(
    ctx: ConsensusContext,
    archive: Archive,
    service: ClusteredServiceAgent,
    retention: Retention,
    *,
    network: NetworkStack,
    agent: AgentDoor,
    monotonic_ns: Callable[[], int],
    counts: SnapshotCounts,
    tasks: ActivityScope,
    copy_state: CopyState | None,
) -> dict[type, Callable[[Any], None]]:  # Any: each takes the effect that it is keyed by
    """Return the handler of each effect: a snapshot is taken, one of a standby is copied, old ones are removed."""
    taker = SnapshotTaker(
        archive,
        service,
        agent=agent,
        monotonic_ns=monotonic_ns,
        counts=counts,
        tasks=tasks,
        copy_state=copy_state,
    )
    fetcher = StandbySnapshotFetcher(ctx, archive, network=network, agent=agent, monotonic_ns=monotonic_ns, tasks=tasks)
    return {
        fx.TakeSnapshot: taker.take,
        fx.FetchStandbySnapshot: fetcher.fetch,
        fx.PurgeArchive: retention.purge,
    }
