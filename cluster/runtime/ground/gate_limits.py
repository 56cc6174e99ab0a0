"""What a member's gate lets in: limits for each endpoint, made of the settings and of the descriptors that there are.

Descriptors are shared out before anybody connects. Clients never have those that members, operators, files and
recordings may need; of these each endpoint has its part, so that none can take another's.
"""

from __future__ import annotations

from typing import Final

import structlog

from ....archive.net.server.archive_server import CONNECTION_LIMIT as ARCHIVE_CONNECTION_LIMIT
from ....service_api.access.rights import Rights
from ....service_api.net.connection_gate import ConnectionGate, GateLimits
from ....service_api.net.descriptors import DescriptorBudget
from ....service_api.net.transport import Purpose
from ...settings.config import NodeConfig

METRICS_CONNECTION_LIMIT: Final = 16
"""Scrapers and probes at once; beyond it the oldest makes room."""
_FILES: Final = 80
"""Segments that are written, prepared and replayed, snapshots, mark files, what the process itself has open."""
_CONSENSUS: Final = 96
"""Members' links, and questions of operators: 8 at once on each of their streams."""
_DOCUMENTS: Final = 32
"""At the control socket, as many as may be asked at once."""
_LOG: Final = 16
_MEMBER_COUNT: Final = 7
"""Members for which there is room at least: a cluster may grow while this process runs."""
_PER_MEMBER: Final = 8
"""Links to and from one other member, with one of each kind that is being replaced."""

logger = structlog.get_logger()


def make_gate(config: NodeConfig, descriptor_limit: int | None, rights: Rights) -> ConnectionGate:
    """Make the gate of a member; `descriptor_limit` is that of its process, None where there is none to keep."""
    others = max(len(config.members), _MEMBER_COUNT) - 1
    consensus, archive = _CONSENSUS + _PER_MEMBER * others, ARCHIVE_CONNECTION_LIMIT
    reserved = _FILES + consensus + _DOCUMENTS + 2 * _LOG + archive + METRICS_CONNECTION_LIMIT
    clients, part = config.connection_limit, 1.0
    budget = None
    if descriptor_limit is not None:
        budget = DescriptorBudget(descriptor_limit, reserved=reserved)
        clients = min(clients, budget.client_limit)
        part = budget.reserved / reserved  # with few descriptors everybody has less
        if part < 1:
            logger.warning(
                "descriptors.scarce",
                limit=descriptor_limit,
                wanted_at_least=2 * reserved,
                client_connection_limit=clients,
                reason="raise the limit of open files of this process (ulimit -n, LimitNOFILE)",
            )
    setup_timeout_s = config.setup_timeout_ms / 1000

    def fixed(count: int) -> GateLimits:
        """Limit an endpoint for members and operators."""
        limit = max(4, int(count * part))
        return GateLimits(connection_limit=limit, address_limit=limit, setup_timeout_s=setup_timeout_s)

    limits = {
        Purpose.INGRESS: GateLimits(
            connection_limit=clients,
            address_limit=config.address_connection_limit,
            setup_timeout_s=setup_timeout_s,
        ),
        # These have deadlines of their own.
        Purpose.CONSENSUS: GateLimits.of_count(fixed(consensus).connection_limit),
        Purpose.DOCUMENTS: GateLimits.of_count(fixed(_DOCUMENTS).connection_limit),
        Purpose.ARCHIVE: GateLimits.of_count(fixed(archive).connection_limit),
        Purpose.METRICS: GateLimits.of_count(METRICS_CONNECTION_LIMIT),
        Purpose.LOG: fixed(_LOG),
        Purpose.CATCHUP: fixed(_LOG),
    }
    return ConnectionGate(limits, descriptors=budget, rights=rights, warn=logger.warning)
