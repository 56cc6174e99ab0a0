"""What members say and use while a round runs: leaders and terms, memory and descriptors, twice a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...cluster.documents.query import StatusQueryError, query_status
from ...service_api.documents.member_status import MemberStatus
from ...service_api.net.transport import SOCKETS, NetworkStack

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_INTERVAL_S: Final = 0.5
_ASK_TIMEOUT_S: Final = 1.0


@dataclass(slots=True, frozen=True, kw_only=True)
class ChaosSample:
    """One look at one member; what it did not say is None."""

    monotonic_ns: int
    member_id: int
    pid: int
    rss_bytes: int
    descriptor_count: int
    status: MemberStatus | None


class Sampler:
    """Looks at every member until it is cancelled."""

    def __init__(
        self, endpoints: dict[int, str], pid_of: Callable[[int], int | None], network: NetworkStack = SOCKETS
    ) -> None:
        self.samples: list[ChaosSample] = []
        self.newest: dict[int, ChaosSample] = {}
        self._endpoints = endpoints
        self._pid_of = pid_of
        self._network = network

    def add(self, member_id: int, endpoint: str) -> None:
        """Look at one member more."""
        self._endpoints[member_id] = endpoint

    def forget(self, member_id: int) -> None:
        """Look at a member no more."""
        self._endpoints.pop(member_id, None)
        self.newest.pop(member_id, None)

    async def run(self) -> None:
        """Look, for ever."""
        watched: set[int] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for member_id in self._endpoints.keys() - watched:
                    tasks.create_task(self._watch(member_id))
                watched |= self._endpoints.keys()
                await asyncio.sleep(_INTERVAL_S)

    async def ask(self, member_id: int) -> MemberStatus | None:
        """Ask one member how it is; None if it does not say so within a second."""
        endpoint = self._endpoints.get(member_id)
        if endpoint is None:
            return None
        try:
            return await query_status(endpoint, _ASK_TIMEOUT_S, network=self._network)
        except StatusQueryError:
            return None

    async def ask_all(self) -> dict[int, MemberStatus]:
        """Ask all members at once, and return what those say that answer."""
        found = await asyncio.gather(*(self.ask(member_id) for member_id in [*self._endpoints]))
        return {status.member_id: status for status in found if status is not None}

    def maxima(self) -> dict[int, dict[str, int]]:
        """Return the most memory (bytes) and descriptors of each member, over all its lives."""
        found: dict[int, dict[str, int]] = defaultdict(lambda: {"rss_bytes": 0, "descriptor_count": 0})
        for sample in self.samples:
            most = found[sample.member_id]
            most["rss_bytes"] = max(most["rss_bytes"], sample.rss_bytes)
            most["descriptor_count"] = max(most["descriptor_count"], sample.descriptor_count)
        return dict(sorted(found.items()))

    async def _watch(self, member_id: int) -> None:
        while member_id in self._endpoints:
            begun_s = time.monotonic()
            status = await self.ask(member_id)
            pid = self._pid_of(member_id)
            if pid is not None:
                rss_bytes, descriptor_count = process_usage(pid)
                sample = ChaosSample(
                    monotonic_ns=time.monotonic_ns(),
                    member_id=member_id,
                    pid=pid,
                    rss_bytes=rss_bytes,
                    descriptor_count=descriptor_count,
                    status=status,
                )
                self.samples.append(sample)
                self.newest[member_id] = sample
            await asyncio.sleep(max(_INTERVAL_S - (time.monotonic() - begun_s), 0.05))


def process_usage(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process in bytes, and how many descriptors it has open; 0 when it is gone."""
    directory = Path(f"/proc/{pid}")
    try:
        resident_pages = int((directory / "statm").read_text().split()[1])
        return resident_pages * _PAGE_BYTES, len(os.listdir(directory / "fd"))
    except OSError:
        return 0, 0
