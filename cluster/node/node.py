"""The composition root: builds one member out of its parts, runs it, and takes it down in order.

Nothing here decides anything. Files are opened and repaired first, then everything listens, then the first election
begins; so a node that cannot run says so before it has told any other member that it exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

import structlog

from trimaran.archive import Archive, Recording
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.store.replay import ReplayLimit
from trimaran.cluster.auth.metrics_access import MetricsAccess
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.events import LinkChanged, SeedAnnounced
from trimaran.cluster.core.log.log_publisher import max_message_length
from trimaran.cluster.core.log.retention import needed_log_position
from trimaran.cluster.core.peers.member_settings import find_seeded, settings_of
from trimaran.cluster.core.service_messages import SERVICE_LIMIT
from trimaran.cluster.documents.operations import Operation
from trimaran.cluster.node.consensus_context import make_context
from trimaran.cluster.runtime.answering.gate_limits import make_gate
from trimaran.cluster.runtime.answering.inspector import Inspector
from trimaran.cluster.runtime.answering.metrics_server import MetricsServer
from trimaran.cluster.runtime.answering.operation_handler import OperationHandler
from trimaran.cluster.runtime.answering.order_relay import OrderRelay
from trimaran.cluster.runtime.answering.progress_tracker import ProgressTracker
from trimaran.cluster.runtime.answering.status_publisher import StatusPublisher
from trimaran.cluster.runtime.answering.vitals import EffectCounts, Vitals
from trimaran.cluster.runtime.files.archive_log_reader import ArchiveLogReader
from trimaran.cluster.runtime.files.cluster_identity import ClusterIdentity
from trimaran.cluster.runtime.files.copy_notes import CopyNotes
from trimaran.cluster.runtime.files.log_recording import open_log
from trimaran.cluster.runtime.files.member_files import MemberFiles
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.runtime.ground.member_network import make_network
from trimaran.cluster.runtime.ground.secret_files import SecretFiles
from trimaran.cluster.runtime.links.ingress import Ingress
from trimaran.cluster.runtime.links.member_links import MemberLinks
from trimaran.cluster.runtime.repair.at_start import mend_at_start
from trimaran.cluster.runtime.repair.coming_back import open_directory
from trimaran.cluster.runtime.repair.comparing import LogComparer
from trimaran.cluster.runtime.repair.joining import settle_roster
from trimaran.cluster.runtime.repair.upkeep import Upkeep, describe_facts
from trimaran.cluster.runtime.shared_machine.tuning import MachineTuning, SharedMachineTuning
from trimaran.cluster.runtime.snapshots.backup_provider import BackupProvider
from trimaran.cluster.runtime.snapshots.cold_shipper import ColdShipper
from trimaran.cluster.runtime.snapshots.handlers import snapshot_handlers
from trimaran.cluster.runtime.snapshots.recovery import (
    Recovered,
    adopt_members,
    check_replayed_code,
    find_newest_term_time_unit,
    load_snapshots,
    remove_leftovers,
)
from trimaran.cluster.runtime.snapshots.retention import Retention
from trimaran.cluster.runtime.snapshots.snapshot_shipping import FetchProgress, SnapshotFetcher, SnapshotProvider
from trimaran.cluster.runtime.snapshots.snapshot_taker import find_length_bytes
from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent, NodeEnd
from trimaran.cluster.runtime.turns.container_requests import ContainerRequests
from trimaran.cluster.runtime.turns.departure import Departure
from trimaran.cluster.runtime.turns.divergence_reporter import DivergenceReporter
from trimaran.cluster.runtime.turns.entry_skips import EntrySkips
from trimaran.cluster.runtime.turns.log_control import LogControl
from trimaran.cluster.runtime.turns.member_roster import MemberRoster
from trimaran.cluster.runtime.turns.queries import QueryHandler
from trimaran.cluster.runtime.turns.request_stages import watch_stages
from trimaran.cluster.runtime.watching.disk_space import DiskSpaceWatch
from trimaran.cluster.runtime.watching.stall_tracker import make_stall_tracker, watch_delivery, with_stop_watches
from trimaran.cluster.runtime.watching.sync_timer import TimedFileSystem
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.service.digests import DeliveryDigests
from trimaran.cluster.service.double_execution import double_services
from trimaran.cluster.service.query_check import QueryCheck
from trimaran.cluster.service.service_code import CodeGuard, format_code
from trimaran.cluster.service.witness_log_adapter import WitnessLogAdapter
from trimaran.cluster.settings.config import NodeConfig
from trimaran.service_api import ClusteredService, ConfigurationError, ServiceFailedError
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.rights import Rights
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.service_directory import check_services
from trimaran.service_api.types import (
    BACKUP_STREAM_ID,
    COMMIT_POSITION_COUNTER_ID,
    INSPECTION_STREAM_ID,
    OPERATION_STREAM_ID,
    SNAPSHOT_SHIPPING_STREAM_ID,
    MemberId,
    TimeUnit,
)
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH

_LOOK_INTERVAL_S: Final = 1.0

logger = structlog.get_logger()


class Node:
    """One member: its files, its links, its consensus module and its services."""

    def __init__(
        self,
        config: NodeConfig,
        services: Sequence[ClusteredService],
        archive: Archive,
        recording: Recording,
        files: MemberFiles,
        host: Host,
        recovered: Recovered | None,
        code: CodeGuard,
        *,
        holds: bool,
    ) -> None:
        self._config = config
        self._clock, self._network, self._pid = host.clock, host.network, host.pid
        self._copy_state = host.copy_state if config.snapshot_copies_process else None
        self.archive = archive
        self._recording = recording
        self._files = files
        self.errors = files.errors
        self.stalls = make_stall_tracker(config, host.clock.monotonic_ns)
        self._secret_files = SecretFiles(config, host.network)
        ctx = make_context(
            config, files, recording, host, code=code, services=services, secrets=self._secret_files.secrets
        )
        self.module = ConsensusModule(
            ctx, last_activity_ns=lambda connection_id: self._ingress.last_activity_ns(connection_id)
        )
        self.tuning = self._make_tuning(ctx, host)
        archive.make_replay_pace = self.tuning.make_replay_pace
        self.agent = ConsensusModuleAgent(
            self.module, clock=host.clock, ingress_window_bytes=config.ingress_window_bytes, tuning=self.tuning
        )
        self.on_closing: Callable[[], None] = lambda: None
        """Called when it begins to close, which has to come to an end."""
        self.departure = Departure(self.agent, self.stop, timeout_s=config.handover_timeout_ms / 1e3)
        self._audit = AuditTrail(info=logger.info, warn=logger.warning, monotonic_ns=host.clock.monotonic_ns)
        self.upkeep = self._make_upkeep(host)
        self.comparer = LogComparer(
            ctx,
            archive,
            files,
            self.upkeep.mender,
            facts=lambda: describe_facts(ctx),
            network=host.network,
            directory=config.directory,
        )
        self._operations = OperationHandler(
            self.agent,
            relay=OrderRelay(self.module, host.network),
            audit=self._audit,
            depart=self.departure.run,
            scrub=self.upkeep.ask,
            trust=self.comparer.trust,
        )
        self._rights = Rights(self._audit)
        self._rights.decide(CallerRole.MEMBER, ctx.roster.judge)
        self.gate = make_gate(config, host.descriptor_limit, self._rights)
        self._ingress = Ingress.of_config(self.agent, ctx, config, gate=self.gate, trim_memory=host.trim_memory)
        self.gathered_ingress = self._ingress.gathered
        self.service_agent = self._make_service_agent(services, code)
        ctx.delivered_time = lambda: self.service_agent.time
        self._digests, self._adapter = self._make_delivery()
        self.queries = self._make_query_handler()
        if recovered is not None:
            self._restore(recovered)
        self._skips = EntrySkips(ctx, files, self._adapter, self.agent, directory=config.directory)
        self._skips.attach(holds=holds)
        watch_delivery(self._adapter, self.stalls)
        self._disk_space = DiskSpaceWatch(host.file_system, config.directory)
        self.vitals = self._make_vitals(files.timed_disk, started_ns=host.clock.monotonic_ns())
        self._metrics: MetricsServer | None = None
        self._fetcher: SnapshotFetcher | None = None
        self._retention = self._make_retention(host)
        self._progress = self._make_progress_tracker()
        self._status = self._make_status_publisher(services)

    def __repr__(self) -> str:
        return f"<Node member={self._config.member_id} {self.module!r}>"

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: NodeConfig, *services: ClusteredService, host: Host | None = None, holds: bool = False
    ) -> AsyncIterator[Node]:
        """Lock the directory, open and repair the files, and close them again at the end.

        The services, one to ten, have ids in this order, from 0 on; a witness has none. A node that `holds` stands
        still before the entry at which its service failed last.

        Raises:
            ConfigurationError: no services, too many, not as many as the newest snapshot has, or two of one name.
            ClusterError: the directory is in use, or a file in it cannot be used.
        """
        if config.is_witness and services:
            raise ConfigurationError(
                f"member_id={config.member_id} is a witness by witnesses={config.witnesses!r}: it runs no service, "
                f"services={len(services)}"
            )
        if not config.is_witness and not 1 <= len(services) <= SERVICE_LIMIT:
            raise ConfigurationError(f"services={len(services)}: expected 1 to {SERVICE_LIMIT}")
        check_services(services, shared_timer_ids=config.shared_timer_ids)
        code = CodeGuard.of_services(
            services, app_version=config.app_version, accepted=config.accept_code, directory=config.directory
        )
        host = Host.of_operating_system(make_network(config)) if host is None else host
        async with open_directory(config, host) as (files, archive):
            search = await mend_at_start(config, archive, files, host, service_count=len(services))
            recording = await open_log(archive, files.recording_log.recording_log)
            files.mark.confirm_boot()
            recovered = await load_snapshots(archive, files.recording_log, recording, service_count=len(services))
            check_replayed_code(
                archive,
                files.recording_log.recording_log,
                recording.descriptor,
                recovered,
                code,
                append_position=recording.append_position,
            )
            await remove_leftovers(archive, files.recording_log, recording, service_count=len(services))
            node = cls(config, services, archive, recording, files, host, recovered, code, holds=holds)
            roster = node.module.ctx.roster
            adopt_members(search, roster)
            await settle_roster(config, host.network, files.members, roster)
            roster.check_kind(runs_services=not config.is_witness)
            roster.check_group(config.own_group)
            time_unit = find_newest_term_time_unit(
                archive,
                files.recording_log.recording_log,
                recording.descriptor,
                recovered,
                append_position=recording.append_position,
            )
            node.adopt_time_unit(time_unit)
            yield node

    async def run(self) -> NodeEnd:
        """Listen, take part in elections and terms until `stop`, then close in order; say why.

        Raises:
            ConfigurationError: an endpoint cannot be listened on.
            ClusterError: this member cannot go on; the error says why.
        """
        failure: ServiceFailedError | None = None
        async with ActivityScope() as tasks:
            log, links = self._connect(tasks), self._links
            self.agent.watch(fx.AdminProgressed, self._operations.on_admin_progressed)
            server = ArchiveServer(
                self.archive,
                network=self._network,
                gate=self.gate,
                audit=self._audit,
                cluster_id=lambda: self.module.ctx.cluster_id,
                whole_cluster_id=self.module.ctx.whole_cluster_id,
                counters={COMMIT_POSITION_COUNTER_ID: self._watch_commit()},
            )
            try:
                self.agent.hold()
                await self._listen(log, links, server, tasks)
                tasks.create_task(self._run_housekeeping(log), name="every-second")
                self._retention.start(tasks)
                tasks.create_task(self._disk_space.run(), name="disk-space")
                self.upkeep.start(tasks)
                self._secret_files.watch(tasks)
                tasks.create_task(self.comparer.watch(self._restart_after_difference), name="compare-logs")
                await self.service_agent.start()
                self.module.digests.begin_position = self._adapter.position
                self._digests.start_from(self._adapter.position)
                self.vitals.is_service_started = True
                assert self.agent.terminated is not None
                if not self.agent.terminated.done():  # else it was told to stop while its service loaded its state
                    code, directory = format_code(self.module.ctx.config.code_digest), str(self._config.directory)
                    logger.info("node.started", pid=self._pid, directory=directory, code=code)
                    self.agent.start()
                    self.departure.tasks = tasks
                await self.agent.terminated
                self.service_agent.terminate()
            except ServiceFailedError as error:
                failure = error
            finally:
                self.on_closing()
                self.agent.close()
                self.tuning.close()
                self.queries.close()
                self._ingress.close()
                links.close()
                if self._metrics is not None:
                    self._metrics.close()
                await server.aclose()
                await log.aclose()
                self.gate.close()
        if failure is not None:
            self._skips.note_failure(failure)
            return NodeEnd.ENTRY_HELD
        self._skips.note_skip(self.log_start_position)
        self.comparer.note_settled(self.log_start_position)
        if self.agent.end is NodeEnd.STOPPED:
            await self._retention.finish()
        logger.info("node.stopped")
        return self.agent.end

    def adopt_time_unit(self, time_unit: TimeUnit | None) -> None:
        """Count cluster time in the unit of the log, before the services start; None leaves it as it is."""
        if time_unit is None:
            time_unit = self.module.ctx.time_unit
        self.module.ctx.cluster_clock.use_unit(time_unit)
        self.service_agent.time_unit = time_unit

    def _restart_after_difference(self) -> None:
        self.agent.restart(NodeEnd.LOG_DIFFERED)

    def _restore(self, recovered: Recovered) -> None:
        """Begin where a snapshot ends; what it holds was committed."""
        position, timestamp = recovered.log_position, recovered.timestamp
        self.module.snapshots.restore(recovered.module, recovered.clients, timestamp)
        self.service_agent.restore(
            recovered.clients,
            recovered.images,
            closing=[s.cluster_session_id for s in recovered.module.sessions if s.close_reason is not None],
            replies=recovered.replies,
            log_position=position,
            timestamp=timestamp,
            feature_level=recovered.module.feature_levels.feature_level,
        )
        self._adapter.start_from(position)
        logger.info("snapshot.loaded", log_position=position, sessions=len(recovered.clients))

    def _connect(self, tasks: ActivityScope) -> LogControl:
        """Make the parts that talk to other members, and attach them to the agent."""
        self._copy_notes = CopyNotes(self.module.ctx, self._files.log_copies, network=self._network, tasks=tasks)
        config, log = self._config, self._make_log(tasks)
        inspector = Inspector(
            self.module,
            clock=self._clock,
            delivered_position=lambda: self._adapter.position,
            last_activity_ns=self._ingress.last_activity_ns,
        )
        self._links = MemberLinks(
            settings_of(self.module.ctx),
            self.module.ctx.roster,
            on_message=self.agent.post,
            on_link_changed=lambda member_id, is_up: self.agent.post(LinkChanged(member_id, is_up)),
            on_members_heard=self.agent.post,
            make_status=self._status.encode,
            documents={
                OPERATION_STREAM_ID: self._operations.row,
                SNAPSHOT_SHIPPING_STREAM_ID: SnapshotProvider(self.module.ctx, self.archive, self._retention).row,
                BACKUP_STREAM_ID: BackupProvider(self.module.ctx, self.archive, self._retention).row,
                INSPECTION_STREAM_ID: inspector.row,
            },
            audit=self._audit,
        )
        self._identity = ClusterIdentity(
            self._files.cluster_id,
            self.module,
            self.archive,
            announced=lambda: self._links.announced_cluster_ids,
            on_known=lambda: self._links.announce(self._identity.cluster_id),
        )
        self._listen_to_links(self._links)
        self.agent.attach(
            links=self._links,
            ingress=self._ingress,
            log=log,
            adapter=self._adapter,
            service=self.service_agent,
            queries=self.queries,
            snapshot_handlers=snapshot_handlers(
                self.module.ctx,
                self.archive,
                self.service_agent,
                self._retention,
                network=self._network,
                post=self.agent.post,
                on_failed=self.agent.terminate,
                monotonic_ns=self._clock.monotonic_ns,
                counts=self.vitals.counts.snapshots,
                tasks=tasks,
                copy_state=self._copy_state,
            ),
            fetcher=self._make_fetcher(tasks),
            roster=MemberRoster(
                self._links,
                log,
                self._files.members,
                tasks=tasks,
                review_rights=lambda: self._rights.review(self.gate.connections()),
                on_failed=self.agent.terminate,
            ),
            divergence=DivergenceReporter(
                config.directory,
                config.service,
                member_id=MemberId(config.member_id),
                comparer=self.comparer,
                restart=self._restart_after_difference,
                fail=self.agent.terminate,
                go_on=self.agent.go_on,
                tasks=tasks,
            ),
            tasks=tasks,
        )
        self._watch_agent(log)
        return log

    def _watch_agent(self, log: LogControl) -> None:
        """Have what it does counted and timed, once it is attached."""
        watch_stages(self._ingress.stages, self.stalls, self.agent, log, self._adapter, follows=bool(self.vitals.disk))
        self.vitals.counts.watch(self.agent)
        self.agent.watch(fx.StateChanged, self.tuning.on_state_changed)
        # At once: who told the id may be removed within the second, and a log without its first entry gives none.
        self.agent.watch(fx.ElectionClosed, lambda effect: self._identity.look())

    def _listen_to_links(self, links: MemberLinks) -> None:
        if (remembered := self._files.members.newest) is not None:
            links.tell_members(remembered)  # committed before this start: a member that lags finds who moved
        links.on_announced = self._identity.look
        links.find_seeded = lambda: find_seeded(self.module.ctx, self.log_start_position)
        links.on_feature_level = self.agent.post
        links.on_seeded = lambda member_id: self.agent.post(SeedAnnounced(member_id))

    def _make_tuning(self, ctx: ConsensusContext, host: Host) -> MachineTuning:
        if self._config.shared_machine == "off":
            return MachineTuning()
        return SharedMachineTuning(
            ctx,
            self.archive,
            host,
            is_disk_shared=self._config.is_disk_shared,
            on_failed=lambda error: self.agent.terminate(error),
        )

    def _make_delivery(self) -> tuple[DeliveryDigests, BoundedLogAdapter]:
        digests = DeliveryDigests(
            self.service_agent.services,
            self.service_agent.egress,
            self.module.digests.on_replay_digest if self.service_agent.services else _tell_nobody,
            monotonic_ns=self._clock.monotonic_ns,
        )
        make_adapter = BoundedLogAdapter if self.service_agent.services else WitnessLogAdapter
        adapter = make_adapter(
            self.module.ctx.log_buffer,
            ArchiveLogReader(self.archive, self._recording.recording_id),
            self.service_agent,
            self.module,
            monotonic_ns=self._clock.monotonic_ns,
            digests=digests,
        )
        return digests, adapter

    def _make_log(self, tasks: ActivityScope) -> LogControl:
        return LogControl(
            self.module.ctx,
            self.archive,
            self._recording,
            network=self._network,
            recording_log_file=self._files.recording_log,
            node_state_file=self._files.node_state,
            post=self.agent.post,
            on_recorded=self.agent.on_recorded,
            on_failed=self.agent.terminate,
            tasks=tasks,
            tuning=self.tuning,
            audit=self._audit,
            copy_notes=self._copy_notes,
        )

    @property
    def delivered_position(self) -> int:
        """How far the service has processed the log."""
        return self._adapter.position

    @property
    def log_start_position(self) -> int:
        """Where the log begins that is still here."""
        return self.archive.descriptor(self._recording.recording_id).start_position

    def _snapshot_fetch(self) -> FetchProgress | None:
        return None if self._fetcher is None else self._fetcher.progress

    async def take_snapshot(self) -> int:
        """Have every member take a snapshot; give its log position once this one, which must lead, has it durably.

        Raises:
            NotLeaderError: another member leads, or none.
            ActionRefusedError: it will not be taken, as things are.
            ClusterError: the snapshot was not taken here, or it is not known whether it will be.
        """
        return await self._operations.run(Operation.SNAPSHOT)

    async def suspend(self) -> int:
        """Have the cluster take no input until `resume`; clients wait. Otherwise as `take_snapshot`."""
        return await self._operations.run(Operation.SUSPEND)

    async def resume(self) -> int:
        """Have a suspended cluster go on. Otherwise as `take_snapshot`."""
        return await self._operations.run(Operation.RESUME)

    async def shutdown(self) -> int:
        """Stop every member at one position, each with a snapshot, this one last. Otherwise as `take_snapshot`."""
        return await self._operations.run(Operation.SHUTDOWN)

    async def skip_entry(self, log_position: int) -> int:
        """Have every member skip the entry that ends at a position, before which this one, which leads, holds."""
        return await self._operations.run(Operation.SKIP_ENTRY, log_position=log_position)

    async def abort(self) -> int:
        """Stop every member at one position, without a snapshot. Otherwise as `shutdown`."""
        return await self._operations.run(Operation.ABORT)

    async def transfer(self, target_member_id: int | None = None) -> int:
        """Hand over to another member, or to the one that fits best, which leads then. Otherwise as `take_snapshot`."""
        return await self._operations.run(Operation.TRANSFER, target_member_id=target_member_id)

    def stop(self) -> None:
        """Stop this member in order, and at once: `departure` hands over first."""
        self.module.actions.quit()
        self.agent.terminate(None)

    async def _listen(self, log: LogControl, links: MemberLinks, server: ArchiveServer, tasks: ActivityScope) -> None:
        me = self._config.listening
        if self._config.metrics_endpoint:
            with _naming("metrics", self._config.metrics_endpoint):
                await self._start_metrics(Endpoint.parse(self._config.metrics_endpoint, may_be_ephemeral=True))
        with _naming("ingress", me.ingress):
            await self._ingress.start(self._network, Endpoint.parse(me.ingress))
        with _naming("log or catchup", f"{me.log}, {me.catchup}"):
            await log.start(Endpoint.parse(me.log), Endpoint.parse(me.catchup), gate=self.gate)
        with _naming("archive", me.archive):
            await server.start(Endpoint.parse(me.archive))
        consensus = Endpoint.parse(me.consensus)
        with _naming("consensus", me.consensus):
            await links.start(self._network, consensus, tasks, gate=self.gate)
        advertised = Endpoint.parse(self._config.me.consensus)  # what commands dial
        await links.start_locally(self._network, self._config.directory, advertised, tasks, gate=self.gate)

    def _make_service_agent(self, services: Sequence[ClusteredService], code: CodeGuard) -> ClusteredServiceAgent:
        ctx = self.module.ctx
        doubles = double_services(services, self._clock.monotonic_ns) if self._config.double_execution else {}
        agent = ClusteredServiceAgent(
            [with_stop_watches(service, self.stalls) for service in doubles.values() or services],
            ContainerRequests(self.module),
            member_id=ctx.config.member_id,
            time_unit=ctx.time_unit,
            shared_timer_ids=ctx.config.shared_timer_ids,
            monotonic_ns=self._clock.monotonic_ns,
            query_check=QueryCheck() if self._config.check_queries else None,
            max_payload_length=max_message_length(ctx.config.term_length_bytes) - SESSION_HEADER_LENGTH,
            group=ctx.config.group,
        )
        agent.code = code
        agent.doubles = doubles
        if self._config.strict:
            from trimaran.cluster.service.strict.strict_log import log_findings  # nothing else of a node needs the lint

            agent.guard = log_findings(agent)
        return agent

    def _make_progress_tracker(self) -> ProgressTracker:
        return ProgressTracker(
            self.module,
            delivered_position=lambda: self._adapter.position,
            snapshot_fetch=self._snapshot_fetch,
            monotonic_ns=self._clock.monotonic_ns,
        )

    def _make_status_publisher(self, services: Sequence[ClusteredService]) -> StatusPublisher:
        return StatusPublisher(
            self.module,
            clock=self._clock,
            pid=self._pid,
            delivered_position=lambda: self._adapter.position,
            connection_count=lambda: len(self._ingress.connections),
            gate=self.gate,
            upkeep=self.upkeep,
            differing_members=lambda: self._links.differences,
            snapshot_length=lambda: find_length_bytes(self.archive, self.module.snapshots.newest),
            snapshotless_services=[type(service).__qualname__ for service in services if not service.takes_snapshots],
            snapshot_fetch=self._snapshot_fetch,
            cold_standing=lambda: self.archive.cold_standing,
            disk_space=lambda: self._disk_space.newest,
            certificate=lambda: self._network.expires,
            stalls=self.stalls,
            errors=self.errors,
            query_change=lambda: None if (check := self.service_agent.query_check) is None else check.last_change,
            progress=self._progress,
        )

    def _make_query_handler(self) -> QueryHandler:
        return QueryHandler(
            self.module,
            self.service_agent,
            self._adapter,
            self._ingress.connections,
            post=self.agent.post,
            monotonic_ns=self._clock.monotonic_ns,
        )

    def _make_vitals(self, timed_disk: TimedFileSystem | None, *, started_ns: int) -> Vitals:
        return Vitals(
            module=self.module,
            agent=self.agent,
            ingress=self._ingress,
            gate=self.gate,
            service=self.service_agent,
            queries=self.queries,
            stalls=self.stalls,
            errors=self.errors,
            disk=timed_disk,
            disk_space=self._disk_space,
            certificate=lambda: self._network.expires,
            archive=self.archive,
            upkeep=self.upkeep,
            counts=EffectCounts(),
            clock=self._clock,
            delivered_position=lambda: self._adapter.position,
            snapshot_fetch=self._snapshot_fetch,
            describe_status=lambda: self._status.describe(),
            health_limits=self._config.health_limits,
            ingress_window_bytes=self._config.ingress_window_bytes,
            started_ns=started_ns,
            start_position=self.module.ctx.append_position,
        )

    def _watch_commit(self) -> ReplayLimit:
        """Give the commit position as what bounds the replays of backups, so that no more than that ever leaves."""
        limit = ReplayLimit(self.module.ctx.commit_position)
        self.agent.watch(fx.CommitAdvanced, lambda effect: limit.advance(effect.position))
        return limit

    def _make_retention(self, host: Host) -> Retention:
        """Purge what is not needed any more, beginning with what a crash kept from being purged."""
        ctx = self.module.ctx
        retention = Retention(
            self.archive,
            ctx.log_recording_id,
            member_positions=self.module.positions_behind,
            log_purge_limit=self._log_purge_limit,
            monotonic_ns=self._clock.monotonic_ns,
            on_failed=self.agent.terminate,
            cold=ColdShipper.of_config(self._config, self.archive, ctx, host),
        )
        position = needed_log_position(ctx.recording_log, ctx.config.retention, service_count=ctx.config.service_count)
        retention.purge(fx.PurgeArchive((), position))
        return retention

    def _log_purge_limit(self) -> int | None:
        limits = self.module.ctx.log_purge_limit, self._identity.find_log_purge_limit()
        return min((each for each in limits if each is not None), default=None)

    def _make_upkeep(self, host: Host) -> Upkeep:
        post, on_failed = self.agent.post, self.agent.terminate
        return Upkeep(
            self.module.ctx,
            self.archive,
            self._config,
            host=host,
            copies=self._files.log_copies,
            post=post,
            on_failed=on_failed,
        )

    def _make_fetcher(self, tasks: ActivityScope) -> SnapshotFetcher:
        self._fetcher = SnapshotFetcher(
            self.module.ctx,
            self.archive,
            self._files.recording_log,
            network=self._network,
            copy_notes=self._copy_notes,
            post=self.agent.post,
            on_installed=lambda: self.agent.restart(NodeEnd.SNAPSHOT_INSTALLED),
            on_failed=self.agent.terminate,
            monotonic_ns=self._clock.monotonic_ns,
            tasks=tasks,
        )
        return self._fetcher

    async def _start_metrics(self, endpoint: Endpoint) -> None:
        # Here, because it takes 50 ms, and few members of a test or a simulation want metrics.
        from trimaran.cluster.runtime.answering.metrics import CONTENT_TYPE, MetricsPage

        self._metrics = MetricsServer(
            make_page=MetricsPage(self.vitals).render,
            content_type=CONTENT_TYPE,
            why_not_ready=self.vitals.why_not_ready,
            monotonic_ns=self._clock.monotonic_ns,
            access=MetricsAccess(self._secret_files.metrics_token),
        )
        found = await self._metrics.start(self._network, endpoint, gate=self.gate)
        logger.info("metrics.listening", endpoint=str(found))

    async def _run_housekeeping(self, log: LogControl) -> None:
        """Show in the mark file that this process is alive, look for clients that left, and what has moved."""
        while True:
            self._files.mark.update_activity(self._clock.epoch_time())
            self._ingress.look()
            self._progress.look()
            self._identity.look()
            self.service_agent.failures.summarise()
            self.tuning.on_second(self.module.ctx.log_buffer.append_position)
            log.look_at_damage()
            self._copy_notes.look()
            await asyncio.sleep(_LOOK_INTERVAL_S)


def _tell_nobody(kind: int, service_id: int, log_position: int, digest: bytes, value: str) -> None:
    """A witness computes nothing that could be compared."""


@contextlib.contextmanager
def _naming(what: str, endpoint: str) -> Iterator[None]:
    """Say which endpoint cannot be listened on."""
    try:
        yield
    except OSError as error:
        advice = "; the setting listen says what to bind, such as 0.0.0.0" if error.errno == errno.EADDRNOTAVAIL else ""
        reason = f"{error.strerror or error}{advice}"
        raise ConfigurationError(f"cannot listen on {what} endpoint={endpoint}: {reason}") from error
