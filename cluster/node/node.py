"""One member: opens its files, runs its parts, and takes them down in order.

Nothing here decides anything. Files are opened and repaired first, then everything listens, then the first election
begins; so a node that cannot run says so before it has told any other member that it exists. The parts are in `parts`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from ...service_api import ClusteredService, ConfigurationError, ServiceFailedError
from ...service_api.service_directory import check_services
from ..core.service_messages import SERVICE_LIMIT
from ..documents.operations import Operation
from ..runtime.files.log_recording import open_log
from ..runtime.ground.agent_door import NodeEnd
from ..runtime.ground.host import Host
from ..runtime.ground.member_network import make_network
from ..runtime.ground.wiring import make_ground
from ..runtime.repair.at_start import mend_at_start
from ..runtime.repair.coming_back import open_directory
from ..runtime.repair.joining import settle_roster
from ..runtime.snapshots.recovery import (
    adopt_members,
    check_replayed_code,
    find_newest_term_time_unit,
    load_snapshots,
    remove_leftovers,
)
from ..runtime.snapshots.wiring import restore_module
from ..runtime.turns.wiring import make_agent
from ..service.service_code import CodeGuard, format_code
from ..settings.config import NodeConfig
from .consensus_context import make_context
from .parts import MemberParts, make_parts

_LOOK_INTERVAL_S: Final = 1.0

logger = structlog.get_logger()


class Node:
    """One member: its files, its links, its consensus module and its services."""

    def __init__(self, parts: MemberParts) -> None:
        self.parts: Final = parts
        self.agent: Final = parts.turns.agent
        self.module: Final = parts.turns.agent.module
        self.departure: Final = parts.turns.departure
        self.service_agent: Final = parts.container.agent
        self.archive: Final = parts.files.archive
        self.errors: Final = parts.files.member.errors
        self.stalls: Final = parts.ground.stalls
        self.upkeep: Final = parts.repair.upkeep
        self._operations: Final = parts.answers.operations
        self.on_closing: Callable[[], None] = lambda: None
        """Called when it begins to close, which has to come to an end."""

    def __repr__(self) -> str:
        return f"<Node member={self.module.ctx.config.member_id} {self.module!r}>"

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
            log = await open_log(archive, files.recording_log.recording_log)
            files.mark.confirm_boot()
            recovered = await load_snapshots(archive, files.recording_log, log, service_count=len(services))
            check_replayed_code(
                archive,
                files.recording_log.recording_log,
                log.descriptor,
                recovered,
                code,
                append_position=log.append_position,
            )
            await remove_leftovers(archive, files.recording_log, log, service_count=len(services))
            ground = make_ground(config, host)
            ctx = make_context(config, files, log, host, code=code, services=services, secrets=ground.secrets.secrets)
            agent = make_agent(ground, ctx, archive)
            if recovered is not None:
                restore_module(agent.module, recovered)
            adopt_members(search, ctx.roster)
            await settle_roster(config, host.network, files.members, ctx.roster)
            ctx.roster.check_kind(runs_services=not config.is_witness)
            ctx.roster.check_group(config.own_group)
            time_unit = find_newest_term_time_unit(
                archive,
                files.recording_log.recording_log,
                log.descriptor,
                recovered,
                append_position=log.append_position,
            )
            if time_unit is not None:
                ctx.cluster_clock.use_unit(time_unit)
            yield cls(make_parts(ground, agent, files, archive, log, services, code, recovered, holds=holds))

    async def run(self) -> NodeEnd:
        """Listen, take part in elections and terms until `stop`, then close in order; say why.

        Raises:
            ConfigurationError: an endpoint cannot be listened on.
            EndpointInUseError: another process listens there.
            ClusterError: this member cannot go on; the error says why.
        """
        failure: ServiceFailedError | None = None
        parts, agent = self.parts, self.agent
        rooms = parts.rooms
        async with parts.ground.tasks as tasks:
            try:
                agent.hold()
                for room in rooms:
                    await room.listen()
                tasks.create_task(self._run_housekeeping(), name="every-second")
                for room in rooms:
                    room.start()
                assert agent.terminated is not None
                is_started = await self._start_service(agent.terminated)
                parts.answers.vitals.is_service_started = is_started
                if is_started and not agent.terminated.done():
                    code, config = format_code(self.module.ctx.config.code_digest), parts.ground.config
                    logger.info("node.started", pid=parts.ground.host.pid, directory=str(config.directory), code=code)
                    parts.turns.take_part()
                await agent.terminated
                if is_started:
                    self.service_agent.terminate()
            except ServiceFailedError as error:
                failure = error
            finally:
                self.on_closing()
                for room in reversed(rooms):
                    room.close()
                for room in reversed(rooms):
                    await room.aclose()
        if failure is not None:
            parts.turns.skips.note_failure(failure)
            return NodeEnd.ENTRY_HELD
        parts.turns.skips.note_skip(self.log_start_position)
        parts.repair.comparer.note_settled(self.log_start_position)
        if agent.end is NodeEnd.STOPPED:
            await parts.snapshots.retention.finish()
        logger.info("node.stopped")
        return agent.end

    async def _start_service(self, terminated: asyncio.Future[None]) -> bool:
        """Call `on_start`; False if this member was told to stop before it ended, which cancels it."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:

                def end(_: object) -> None:
                    limit.reschedule(loop.time())

                terminated.add_done_callback(end)
                try:
                    await self.parts.container.start()
                finally:
                    terminated.remove_done_callback(end)
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return True

    async def _run_housekeeping(self) -> None:
        """Have every room do what is due once a second."""
        while True:
            for room in self.parts.rooms:
                room.look()
            self.service_agent.failures.summarise()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    @property
    def delivered_position(self) -> int:
        """How far the service has processed the log."""
        return self.parts.container.adapter.position

    @property
    def log_start_position(self) -> int:
        """Where the log begins that is still here."""
        return self.parts.files.log_start_position

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
        self.departure.stop()
