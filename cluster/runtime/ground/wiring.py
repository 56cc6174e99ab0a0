"""Makes the ground that all rooms of a member stand on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from ....service_api import ConfigurationError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.rights import Rights
from ....service_api.errors import EndpointInUseError
from ....service_api.net.connection_gate import ConnectionGate
from ...settings.config import NodeConfig
from ..watching.stall_tracker import StallTracker, make_stall_tracker
from .activities import ActivityScope
from .gate_limits import make_gate
from .host import Host
from .room import Room
from .secret_files import SecretFiles

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Ground(Room):
    """The settings and the machine of one member, and what guards both."""

    config: NodeConfig
    host: Host
    started_ns: int
    """When this process became a member."""
    secrets: SecretFiles
    stalls: StallTracker
    audit: AuditTrail
    rights: Rights
    gate: ConnectionGate
    tasks: ActivityScope = field(default_factory=ActivityScope)
    """The tasks that run beside the turns, for as long as the member runs."""

    def start(self) -> None:
        """Read files with secrets again when they change."""
        self.secrets.watch(self.tasks, self.gate)

    async def aclose(self) -> None:
        """Let no connection in."""
        self.gate.close()


def make_ground(config: NodeConfig, host: Host) -> Ground:
    """Make the ground of a member. Blocks while it reads files.

    Raises:
        ConfigurationError: the user's: a file with secrets or a place for cold storage cannot be used.
    """
    if config.cold_storage_url:
        host.open_objects(config.cold_storage_url)  # before anybody is asked for anything
    audit = AuditTrail(info=logger.info, warn=logger.warning, monotonic_ns=host.clock.monotonic_ns)
    rights = Rights(audit)
    return Ground(
        config,
        host,
        started_ns=host.clock.monotonic_ns(),
        secrets=SecretFiles(config, host.network),
        stalls=make_stall_tracker(config, host.clock.monotonic_ns),
        audit=audit,
        rights=rights,
        gate=make_gate(config, host.descriptor_limit, rights),
    )


@contextlib.contextmanager
def naming(what: str, endpoint: str) -> Iterator[None]:
    """Name the endpoint that cannot be listened on.

    Raises:
        EndpointInUseError: another process has it; a later start may find it free.
        ConfigurationError: the user's: it is no address of this machine, or not for this user.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EndpointInUseError(f"cannot listen on {what} endpoint={endpoint}: {error.strerror}") from error
        advice = "; the setting listen says what to bind, such as 0.0.0.0" if error.errno == errno.EADDRNOTAVAIL else ""
        reason = f"{error.strerror or error}{advice}"
        raise ConfigurationError(f"cannot listen on {what} endpoint={endpoint}: {reason}") from error
