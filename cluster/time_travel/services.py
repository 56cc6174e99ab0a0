"""The services that a replay runs: objects, classes, or classes by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...service_api import ClusteredService, ConfigurationError
from ..core.service_messages import SERVICE_LIMIT
from ..settings.service_loading import load_service_class
from .container import Bystander
from .member_log import MemberLog

ServiceLike = str | Callable[[], ClusteredService]
"""`module:Class`, or what makes a service: its class, as a rule."""


def make_service(service: ServiceLike | ClusteredService, directory: Path) -> ClusteredService:
    """Make a service, or give the one that is made already.

    Raises:
        ConfigurationError: it cannot be found or made, or is none.
    """
    if isinstance(service, ClusteredService):
        return service
    made = (load_service_class(service, directory) if isinstance(service, str) else service)()
    if not isinstance(made, ClusteredService):
        raise ConfigurationError(f"not a service: service={service!r} expected a ClusteredService")
    return made


def make_services(
    service: ServiceLike | ClusteredService | Sequence[ServiceLike | ClusteredService],
    *,
    directory: Path,
    service_id: int,
    service_count: int | None,
    log: MemberLog,
) -> list[ClusteredService]:
    """Make as many services as the node had; those that are not given do nothing.

    The number is that of the services given, where these are several; else `service_count`, else what the newest
    snapshot says, and as many as `service_id` needs at least. A name may be several, with commas between.

    Raises:
        ConfigurationError: a service cannot be made, or there is no room for it.
    """
    names = [*service] if isinstance(service, Sequence) and not isinstance(service, str) else [service]
    given = [part for name in names for part in (name.split(",") if isinstance(name, str) else [name])]
    if len(given) == 1:
        count = service_count or max(service_id + 1, log.recording_log.latest_service_count() or 1)
        first_id = service_id
    else:
        count, first_id = service_count or len(given), 0
    if not given or first_id < 0 or not first_id + len(given) <= count <= SERVICE_LIMIT:
        raise ConfigurationError(
            f"services={len(given)} service_id={service_id} service_count={count}: expected room for them among "
            f"{SERVICE_LIMIT} services at most"
        )
    made = [make_service(each, directory) for each in given]
    return [made[i - first_id] if 0 <= i - first_id < len(made) else Bystander(i) for i in range(count)]
