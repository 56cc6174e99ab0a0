"""The typed services of a node by id and name: what a client asks for before it sends, and the rule about names.

The log knows a service by its id, as it knows timers, messages of services and snapshots. People know it by its name.
A client asks once which id a name has. So a service may be renamed without a change to its log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import ConfigurationError, RemoteProtocolError

Schema = Any
"""JSON; `typed.schema` has its form."""


class NamedService(Protocol):
    """A service, or the class of one."""

    typed_name: str | None


@dataclass(slots=True, frozen=True)
class ServiceSchemas:
    """What a typed service takes."""

    by_name: Mapping[str, Schema]
    announced: frozenset[bytes]
    """Fingerprints of the schemas that are in the log."""


@dataclass(slots=True, frozen=True)
class ServiceEntry:
    """One typed service of a node."""

    service_id: int
    name: str
    schemas: ServiceSchemas | None = None
    """None: ask the service itself."""


def check_services(services: Sequence[NamedService | type[NamedService]], *, shared_timer_ids: bool = False) -> None:
    """Refuse typed services that cannot be on one node.

    Raises:
        ConfigurationError: two have one name, so clients could not tell them apart; or several share timer ids, and
            each of them counts its timers from 1.
    """
    if shared_timer_ids and sum(service.typed_name is not None for service in services) > 1:
        raise ConfigurationError(
            "shared_timer_ids=true expected false where a node runs several typed services: each gives its timers ids "
            "from 1 on"
        )
    ids: dict[str, int] = {}
    for service_id, service in enumerate(services):
        name = service.typed_name
        if name is not None and ids.setdefault(name, service_id) != service_id:
            raise ConfigurationError(
                f"services {ids[name]} and {service_id} have one name: name={name} expected different ones; "
                f"give one of them another: class Other(TypedService, name='other')"
            )


def named_entries(services: Sequence[NamedService]) -> list[ServiceEntry]:
    """List the typed ones of a node's services, without their schemas."""
    return [ServiceEntry(number, one.typed_name) for number, one in enumerate(services) if one.typed_name is not None]


def show_entries(entries: Iterable[ServiceEntry]) -> str:
    """Write services for an error message."""
    return ", ".join(entry.name for entry in entries) or "none"


def encode_directory(entries: Iterable[ServiceEntry]) -> bytes:
    """Write the answer to a query for schemas."""
    return json.dumps([_as_json(entry) for entry in entries]).encode()


def _as_json(entry: ServiceEntry) -> dict[str, object]:
    found: dict[str, object] = {"service_id": entry.service_id, "name": entry.name}
    if entry.schemas is not None:
        found["schemas"] = [*entry.schemas.by_name.values()]
        found["announced"] = [fingerprint.hex() for fingerprint in sorted(entry.schemas.announced)]
    return found


def decode_directory(data: bytes) -> list[ServiceEntry]:
    """Read what `encode_directory` wrote.

    Raises:
        RemoteProtocolError: it is not that: what answered is no typed service.
    """
    try:
        return [_from_json(entry) for entry in json.loads(data)]
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteProtocolError(f"the service is no TypedService: it answered {data[:40]!r}") from error


def _from_json(entry: dict[str, object]) -> ServiceEntry:
    service_id, name, schemas = entry["service_id"], entry["name"], entry.get("schemas")
    if not (isinstance(service_id, int) and isinstance(name, str)):
        raise TypeError("service_id or name")
    if schemas is None:
        return ServiceEntry(service_id, name)
    announced = entry["announced"]
    if not (isinstance(schemas, list) and isinstance(announced, list)):
        raise TypeError("schemas or announced")
    by_name = {schema["name"]: schema for schema in schemas}
    return ServiceEntry(service_id, name, ServiceSchemas(by_name, frozenset(map(bytes.fromhex, announced))))
