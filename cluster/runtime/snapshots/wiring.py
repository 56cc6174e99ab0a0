"""Makes what takes, copies, hands out and removes snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from ....service_api.types import BACKUP_STREAM_ID, SNAPSHOT_SHIPPING_STREAM_ID
from ...core import effects as fx
from ...core.consensus_module import ConsensusModule
from ...core.log.retention import needed_log_position
from ...service.wiring import Container
from ..files.wiring import Files
from ..ground.agent_door import ModuleAgent
from ..ground.room import Room
from ..ground.wiring import Ground
from ..links.wiring import Links
from ..watching.snapshot_counts import SnapshotCounts
from .cold_shipper import ColdShipper
from .handlers import snapshot_handlers
from .offers import Offers
from .recovery import Recovered
from .retention import Retention
from .snapshot_shipping import SnapshotFetcher

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Snapshots(Room):
    """The snapshots of one member."""

    ground: Ground
    retention: Retention
    fetcher: SnapshotFetcher
    counts: SnapshotCounts
    handlers: Mapping[type, Callable[[Any], None]]  # Any: each takes the effect that it is keyed by
    """The functions that perform effects about snapshots, by the class of the effect."""

    def start(self) -> None:
        """Purge what is not needed any more, from now on."""
        self.retention.start(self.ground.tasks)


def make_snapshots(ground: Ground, agent: ModuleAgent, files: Files, container: Container, links: Links) -> Snapshots:
    """Make what handles the snapshots of a member, and have backups and other members answered."""
    ctx, host, archive, counts = agent.module.ctx, ground.host, files.archive, SnapshotCounts()
    retention = _make_retention(ground, agent, files)
    offers = Offers(ctx, archive, retention)
    links.documents.rows[SNAPSHOT_SHIPPING_STREAM_ID] = offers.member_row
    links.documents.rows[BACKUP_STREAM_ID] = offers.backup_row
    fetcher = SnapshotFetcher(
        ctx,
        archive,
        files.member.recording_log,
        network=host.network,
        copy_notes=files.copy_notes,
        agent=agent,
        monotonic_ns=host.clock.monotonic_ns,
        tasks=ground.tasks,
    )
    handlers = snapshot_handlers(
        ctx,
        archive,
        container.agent,
        retention,
        network=host.network,
        agent=agent,
        monotonic_ns=host.clock.monotonic_ns,
        counts=counts,
        tasks=ground.tasks,
        copy_state=host.copy_state if ground.config.snapshot_copies_process else None,
    )
    return Snapshots(ground, retention, fetcher, counts, handlers)


def _make_retention(ground: Ground, agent: ModuleAgent, files: Files) -> Retention:
    """Purge what is not needed any more, beginning with what a crash kept from being purged."""
    module, ctx, identity = agent.module, agent.module.ctx, files.identity

    def log_purge_limit() -> int | None:
        limits = ctx.log_purge_limit, identity.find_log_purge_limit()
        return min((each for each in limits if each is not None), default=None)

    retention = Retention(
        files.archive,
        ctx.log_recording_id,
        member_positions=module.positions_behind,
        log_purge_limit=log_purge_limit,
        monotonic_ns=ground.host.clock.monotonic_ns,
        on_failed=agent.terminate,
        cold=ColdShipper.of_config(ground.config, files.archive, ctx, ground.host),
    )
    position = needed_log_position(ctx.recording_log, ctx.config.retention, service_count=ctx.config.service_count)
    retention.purge(fx.PurgeArchive((), position))
    return retention


def restore_module(module: ConsensusModule, recovered: Recovered) -> None:
    """Have the consensus module begin where a snapshot ends; what it holds was committed."""
    module.snapshots.restore(recovered.module, recovered.clients, recovered.timestamp)
    logger.info("snapshot.loaded", log_position=recovered.log_position, sessions=len(recovered.clients))


def restore_container(container: Container, recovered: Recovered) -> None:
    """Have the services begin where a snapshot ends."""
    container.agent.restore(
        recovered.clients,
        recovered.images,
        closing=[s.cluster_session_id for s in recovered.module.sessions if s.close_reason is not None],
        replies=recovered.replies,
        log_position=recovered.log_position,
        timestamp=recovered.timestamp,
        feature_level=recovered.module.feature_levels.feature_level,
    )
    container.adapter.start_from(recovered.log_position)
