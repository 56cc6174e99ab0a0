"""The simulation's own services have this in common: a digest of all they were given, and what they found wrong."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from .....service_api import Cluster, ClusteredService

_FAULT_LIMIT: Final = 20


class DigestingService(ClusteredService):
    """Digests its entries and answers one after another, so that `state_hash` costs nothing."""

    cluster: Cluster

    def __init__(self) -> None:
        self.faults: list[str] = []
        """Entries that this member was given and should not have been; at most 20 are kept."""
        self.digest = bytes(8)

    def state_hash(self) -> int:
        """Return a number that is the same on members which were given the same entries and gave the same answers."""
        return int.from_bytes(self.digest, "little")

    def absorb(self, *what: object) -> None:
        """Take an entry or an answer into the digest."""
        parts = [bytes(part) if isinstance(part, bytes | memoryview) else str(part).encode() for part in what]
        self.digest = blake2b(self.digest + b" ".join(parts), digest_size=8).digest()

    def report(self, fault: str) -> None:
        """Note a fault."""
        if len(self.faults) < _FAULT_LIMIT:
            self.faults.append(fault)
