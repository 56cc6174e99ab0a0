"""Makes the agent that takes a member's turns, and connects it with what performs its effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from ....archive import Archive
from ....service_api import ClusteredService
from ....service_api.access.identity import CallerRole
from ....service_api.endpoint import Endpoint
from ...core import effects as fx
from ...core import events as ev
from ...core.consensus_module import ConsensusModule
from ...core.context import ConsensusContext
from ...service.service_code import CodeGuard
from ...service.wiring import Container, make_container
from ..files.archive_log_reader import ArchiveLogReader
from ..files.wiring import Files
from ..ground.room import Room
from ..ground.wiring import Ground, naming
from ..links.wiring import Links
from ..repair.wiring import Repair
from ..shared_machine.tuning import MachineTuning, SharedMachineTuning
from ..snapshots.wiring import Snapshots
from ..watching.recent_syncs import RecentSyncs
from ..watching.stall_tracker import watch_delivery, with_stop_watches
from .agent import ConsensusModuleAgent
from .container_requests import ContainerRequests
from .departure import Departure
from .divergence_reporter import DivergenceReporter
from .entry_skips import EntrySkips
from .log_control import LogControl
from .member_roster import MemberRoster
from .queries import QueryHandler
from .request_stages import watch_stages

_NS_PER_MS: Final = 1_000_000

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class AgentTurns(Room):
    """The turns of one member, and its log."""

    ground: Ground
    agent: ConsensusModuleAgent
    log: LogControl
    queries: QueryHandler
    departure: Departure
    skips: EntrySkips
    syncs: RecentSyncs

    async def listen(self) -> None:
        """Listen for the live log and for catch-up replays."""
        me = self.ground.config.listening
        with naming("log or catchup", f"{me.log}, {me.catchup}"):
            await self.log.start(Endpoint.parse(me.log), Endpoint.parse(me.catchup), gate=self.ground.gate)

    def take_part(self) -> None:
        """Begin the first election."""
        self.agent.start()
        self.departure.tasks = self.ground.tasks

    def look(self) -> None:
        """Look how far the log has come, what of it is damaged, and how long syncs take."""
        self.agent.tuning.on_second(self.agent.module.ctx.log_buffer.append_position)
        self.log.look_at_damage()
        self._look_at_syncs()

    def _look_at_syncs(self) -> None:
        """Log a slow sync, and tell the consensus module how long a sync takes now."""
        now_ns = self.agent.monotonic_ns()
        slow = self.syncs.take_slow(now_ns)
        if slow is not None:
            worst, count = slow
            logger.warning(
                "sync.slow",
                file=str(worst.file),
                duration_ms=round(worst.duration_ns / _NS_PER_MS, 1),
                is_running=worst.is_running,
                limit_ms=self.syncs.slow_ns // _NS_PER_MS,
                count=count,
            )
        typical_ns = self.syncs.find_typical_ns(now_ns)
        if typical_ns != self.agent.module.ctx.sync_ns:
            self.agent.post(ev.SyncsMeasured(typical_ns))

    def close(self) -> None:
        """Take no more turns."""
        self.agent.close()
        self.agent.tuning.close()
        self.queries.close()

    async def aclose(self) -> None:
        """Write where the log ends."""
        await self.log.aclose()


def make_agent(ground: Ground, ctx: ConsensusContext, archive: Archive) -> ConsensusModuleAgent:
    """Make the agent of a member, and the consensus module that it drives."""
    config, host = ground.config, ground.host
    tuning = MachineTuning()
    if config.shared_machine != "off":
        tuning = SharedMachineTuning(
            ctx,
            archive,
            host,
            is_disk_shared=config.is_disk_shared,
            on_failed=lambda error: agent.terminate(error),
        )
    archive.make_replay_pace = tuning.make_replay_pace
    agent = ConsensusModuleAgent(
        ConsensusModule(ctx, last_activity_ns=lambda connection_id: agent.ingress.last_activity_ns(connection_id)),
        clock=host.clock,
        ingress_window_bytes=config.ingress_window_bytes,
        tuning=tuning,
    )
    ground.rights.decide(CallerRole.MEMBER, ctx.roster.judge)
    return agent


def make_member_container(
    ground: Ground,
    agent: ConsensusModuleAgent,
    files: Files,
    services: Sequence[ClusteredService],
    code: CodeGuard,
) -> Container:
    """Make the container of a member's services, which reads the log of its archive."""
    container = make_container(
        agent.module,
        services,
        ground.config,
        code=code,
        requests=ContainerRequests(agent.module),
        log=ArchiveLogReader(files.archive, files.log.recording_id),
        with_watch=partial(with_stop_watches, stalls=ground.stalls),
        monotonic_ns=ground.host.clock.monotonic_ns,
    )
    watch_delivery(container.adapter, ground.stalls)
    return container


def make_turns(
    ground: Ground,
    agent: ConsensusModuleAgent,
    files: Files,
    container: Container,
    links: Links,
    snapshots: Snapshots,
    repair: Repair,
    *,
    holds: bool,
) -> AgentTurns:
    """Make what performs the effects of the consensus module, and attach it to the agent."""
    config, host, tasks, module, adapter = ground.config, ground.host, ground.tasks, agent.module, container.adapter
    skips = EntrySkips(module.ctx, files.member, adapter, agent, directory=config.directory)
    skips.attach(holds=holds)
    log = LogControl(
        module.ctx,
        files.archive,
        files.log,
        network=host.network,
        recording_log_file=files.member.recording_log,
        node_state_file=files.member.node_state,
        agent=agent,
        tasks=tasks,
        tuning=agent.tuning,
        audit=ground.audit,
        copy_notes=files.copy_notes,
    )
    queries = QueryHandler(
        module,
        container.agent,
        adapter,
        links.ingress.connections,
        post=agent.post,
        monotonic_ns=host.clock.monotonic_ns,
    )
    agent.attach(
        links=links.members,
        ingress=links.ingress,
        log=log,
        adapter=adapter,
        service=container.agent,
        queries=queries,
        snapshot_handlers=snapshots.handlers,
        fetcher=snapshots.fetcher,
        roster=MemberRoster(
            links.members,
            log,
            files.member.members,
            tasks=tasks,
            rights=ground.rights,
            gate=ground.gate,
            agent=agent,
        ),
        divergence=DivergenceReporter(
            config.directory,
            config.service,
            member_id=module.ctx.config.member_id,
            comparer=repair.comparer,
            agent=agent,
            tasks=tasks,
        ),
        tasks=tasks,
    )
    watch_stages(links.ingress.stages, ground.stalls, agent, log, adapter, follows=bool(config.metrics_endpoint))
    agent.watch(fx.StateChanged, agent.tuning.on_state_changed)
    # At once: who told the id may be removed within the second, and a log without its first entry gives none.
    agent.watch(fx.ElectionClosed, lambda effect: files.identity.look())
    departure = Departure(agent, timeout_s=config.handover_timeout_ms / 1e3)
    return AgentTurns(ground, agent, log, queries, departure, skips, files.member.timed_disk.recent)
