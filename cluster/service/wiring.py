"""Makes the service container of a member, and what delivers the log to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...service_api import ClusteredService
from ...service_api.wire.session import SESSION_HEADER_LENGTH
from ..core.consensus_module import ConsensusModule
from ..core.log.log_publisher import max_message_length
from .agent import ClusteredServiceAgent
from .bounded_log_adapter import BoundedLogAdapter, LogBytesReader
from .digests import DeliveryDigests
from .double_execution import double_services
from .query_check import QueryCheck
from .service_cluster import ModuleRequests
from .service_code import CodeGuard
from .witness_log_adapter import WitnessLogAdapter


class ContainerSettings(Protocol):
    """The settings of a member that say how its services are watched."""

    @property
    def double_execution(self) -> bool:
        """True if each service runs twice."""

    @property
    def check_queries(self) -> bool:
        """True if queries are checked for changes of the state."""

    @property
    def strict(self) -> bool:
        """True if callbacks are checked for calls that leave the log."""


@dataclass(slots=True, frozen=True)
class Container:
    """The services of one member."""

    module: ConsensusModule
    agent: ClusteredServiceAgent
    digests: DeliveryDigests
    adapter: BoundedLogAdapter
    snapshotless_services: Sequence[str]
    """The services that cannot write their state."""

    async def start(self) -> None:
        """Start the services where the log is delivered from."""
        await self.agent.start()
        self.module.digests.begin_position = self.adapter.position
        self.digests.start_from(self.adapter.position)


def make_container(
    module: ConsensusModule,
    services: Sequence[ClusteredService],
    settings: ContainerSettings,
    *,
    code: CodeGuard,
    requests: ModuleRequests,
    log: LogBytesReader,
    with_watch: Callable[[ClusteredService], ClusteredService],
    monotonic_ns: Callable[[], int],
) -> Container:
    """Make the container of a member, which may run no services; `with_watch` adds a stop-watch to a service."""
    ctx, config = module.ctx, module.ctx.config
    doubles = double_services(services, monotonic_ns) if settings.double_execution else {}
    agent = ClusteredServiceAgent(
        [with_watch(service) for service in doubles.values() or services],
        requests,
        member_id=config.member_id,
        time_unit=ctx.time_unit,
        shared_timer_ids=config.shared_timer_ids,
        monotonic_ns=monotonic_ns,
        query_check=QueryCheck(monotonic_ns) if settings.check_queries else None,
        max_payload_length=max_message_length(config.term_length_bytes) - SESSION_HEADER_LENGTH,
        group=config.group,
    )
    agent.code = code
    agent.doubles = doubles
    if settings.strict:
        from .strict.strict_log import log_findings  # no other part of a member needs the lint

        agent.guard = log_findings(agent)
    ctx.delivered_time = lambda: agent.time
    on_digest = module.digests.on_replay_digest if services else _tell_nobody
    on_fields = module.fields.on_replay_fields
    digests = DeliveryDigests(agent.services, agent.egress, on_digest, on_fields, monotonic_ns=monotonic_ns)
    make_adapter = BoundedLogAdapter if services else WitnessLogAdapter
    adapter = make_adapter(ctx.log_buffer, log, agent, module, monotonic_ns=monotonic_ns, digests=digests)
    snapshotless = [type(service).__qualname__ for service in services if not service.takes_snapshots]
    return Container(module, agent, digests, adapter, snapshotless)


def _tell_nobody(kind: int, service_id: int, log_position: int, digest: bytes, value: str) -> None:
    """A witness computes nothing that could be compared."""
