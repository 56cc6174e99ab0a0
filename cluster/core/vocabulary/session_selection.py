"""The sessions that an operator wants closed."""

from __future__ import annotations

from dataclasses import dataclass

from ....service_api.types import ClusterSessionId


@dataclass(slots=True, frozen=True)
class SessionSelection:
    """One session by its id, or all of a principal or an address: exactly one of the three is given."""

    cluster_session_id: ClusterSessionId | None = None
    encoded_principal: bytes | None = None
    address: str | None = None
    """As `connection_gate.address_of` says it: an IPv4 address, or a network of 64 bits of IPv6."""
