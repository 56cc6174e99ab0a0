"""Makes what answers questions and orders: documents, metrics, the archive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from ....archive.net.server.archive_server import ArchiveServer
from ....archive.net.server.policy import ReadOnly
from ....archive.net.server.served_archive import ServedArchive
from ....archive.store.replay import ReplayLimit
from ....service_api.endpoint import Endpoint
from ....service_api.types import (
    COMMIT_POSITION_COUNTER_ID,
    DIAGNOSIS_STREAM_ID,
    INSPECTION_STREAM_ID,
    OPERATION_STREAM_ID,
)
from ...auth.metrics_access import MetricsAccess
from ...core import effects as fx
from ...core import events as ev
from ...core.vocabulary.reluctance import Reluctance
from ...documents.health import describe_full_disk
from ...service.wiring import Container
from ..files.process_log import ProcessLog
from ..files.wiring import Files
from ..ground.room import Room
from ..ground.wiring import Ground, naming
from ..links.wiring import Links
from ..repair.wiring import Repair
from ..snapshots.wiring import Snapshots
from ..turns.agent import ConsensusModuleAgent
from ..turns.wiring import AgentTurns
from ..watching.disk_space import DiskSpaceWatch
from .diagnostician import Diagnostician
from .inspector import Inspector
from .metrics_server import MetricsServer
from .operation_handler import OperationHandler
from .order_relay import OrderRelay
from .progress_tracker import ProgressTracker
from .status import encode_status
from .vitals import EffectCounts, Vitals

if TYPE_CHECKING:
    from .metrics import MetricsPage

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Answers(Room):
    """The answers of one member to clients' tools, operators, scrapers and backups."""

    ground: Ground
    links: Links
    operations: OperationHandler
    diagnostician: Diagnostician
    vitals: Vitals
    metrics: MetricsServer | None
    archive_server: ArchiveServer

    def use_log(self, process_log: ProcessLog) -> None:
        """Show, and change if an operator says so, the log of this process, which is this member's alone."""
        self.operations.process_log = self.diagnostician.process_log = process_log

    async def listen(self) -> None:
        """Listen for scrapers, for readers of the archive and, when all else listens, for members."""
        ground, config = self.ground, self.ground.config
        if self.metrics is not None:
            assert config.metrics is not None
            with naming("metrics", str(config.metrics)):
                found = await self.metrics.start(ground.host.network, config.metrics, gate=ground.gate)
            logger.info("metrics.listening", endpoint=str(found))
        with naming("archive", config.listening.archive):
            await self.archive_server.start(Endpoint.parse(config.listening.archive))
        await self.links.listen_for_members()

    def start(self) -> None:
        """Look how much room the disk has, from now on."""
        self.ground.tasks.create_task(self.vitals.disk_space.run(), name="disk-space")

    def look(self) -> None:
        """Look what has moved, and be reluctant to lead while the disk is nearly full."""
        self.vitals.progress.look()
        space, ctx = self.vitals.disk_space.newest, self.vitals.module.ctx
        detail = None if space is None else describe_full_disk(*space, self.ground.config.health_limits)
        if (detail is not None) != (Reluctance.DISK_NEARLY_FULL in ctx.reluctance):
            self.vitals.turns.agent.post(ev.ReluctanceChanged(Reluctance.DISK_NEARLY_FULL, detail))

    def close(self) -> None:
        """Answer no scraper any more."""
        if self.metrics is not None:
            self.metrics.close()

    async def aclose(self) -> None:
        """End every session with the archive."""
        await self.archive_server.aclose()


def make_answers(
    ground: Ground,
    files: Files,
    container: Container,
    links: Links,
    snapshots: Snapshots,
    repair: Repair,
    turns: AgentTurns,
) -> Answers:
    """Make what answers about a member, and put its documents among those that the member gives."""
    agent, module, host, adapter = turns.agent, turns.agent.module, ground.host, container.adapter
    operations = OperationHandler(
        agent,
        relay=OrderRelay(module, host.network),
        audit=ground.audit,
        departure=turns.departure,
        upkeep=repair.upkeep,
        comparer=repair.comparer,
    )
    agent.watch(fx.AdminProgressed, operations.on_admin_progressed)
    agent.watch(fx.SessionsRevoked, operations.on_sessions_revoked)
    inspector = Inspector(
        module,
        clock=host.clock,
        delivered=adapter,
        last_activity_ns=links.ingress.last_activity_ns,
        traffic=links.ingress.traffic,
    )
    vitals = Vitals(
        module=module,
        ground=ground,
        links=links,
        files=files,
        container=container,
        snapshots=snapshots,
        repair=repair,
        turns=turns,
        disk_space=DiskSpaceWatch(
            host.file_system,
            ground.config.directory,
            monotonic_ns=host.clock.monotonic_ns,
            notice_s=ground.config.min_disk_time_ms / 1_000,
        ),
        progress=ProgressTracker(module, delivered=adapter, fetcher=snapshots.fetcher, clock=host.clock),
        counts=EffectCounts(snapshots.counts),
        start_position=module.ctx.append_position,
    )
    vitals.counts.watch(agent)
    metrics = _make_metrics(ground, vitals) if ground.config.metrics_endpoint else None
    diagnostician = Diagnostician(
        module,
        ground.config,
        read_error_area=files.member.mark.read_error_area,
        render_metrics=lambda: _make_page(vitals).render(),
    )
    links.documents.rows[OPERATION_STREAM_ID] = operations.row
    links.documents.rows[DIAGNOSIS_STREAM_ID] = diagnostician.row
    links.documents.rows[INSPECTION_STREAM_ID] = inspector.row
    links.documents.make_status = partial(encode_status, vitals)
    served = ServedArchive(
        files.archive,
        authorisation=ReadOnly(),
        network=host.network,
        audit=ground.audit,
        cluster_id=lambda: module.ctx.cluster_id,
        whole_cluster_id=module.ctx.whole_cluster_id,
        port_name=f"the archive port of member {module.ctx.roster.member_id}",
        find_ingress=lambda: module.ctx.roster.own_ingress,
        counters={COMMIT_POSITION_COUNTER_ID: _watch_commit(agent)},
    )
    return Answers(ground, links, operations, diagnostician, vitals, metrics, ArchiveServer(served, gate=ground.gate))


def _make_metrics(ground: Ground, vitals: Vitals) -> MetricsServer:
    from .metrics import CONTENT_TYPE

    return MetricsServer(
        _make_page(vitals),
        content_type=CONTENT_TYPE,
        monotonic_ns=ground.host.clock.monotonic_ns,
        access=MetricsAccess(ground.secrets.metrics_token),
    )


def _make_page(vitals: Vitals) -> MetricsPage:
    # Here, because it takes 50 ms, and few members of a test or a simulation want metrics.
    from .metrics import MetricsPage

    return MetricsPage(vitals)


def _watch_commit(agent: ConsensusModuleAgent) -> ReplayLimit:
    """Give the commit position as what bounds the replays of backups, so that no more than that ever leaves."""
    limit = ReplayLimit(agent.module.ctx.commit_position)
    agent.watch(fx.CommitAdvanced, lambda effect: limit.advance(effect.position))
    return limit
