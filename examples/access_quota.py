"""A replicated quota: at most 10 requests a minute from each host, across the death of any member.

Request:  host TAB epoch seconds TAB url        Reply:  allowed|denied TAB remaining

Time comes from the request, so the outcome depends on the order of the log alone, the same on every member.
The client calls `request`, so each request counts once, whichever leader answers it.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from typing import NamedTuple

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

ALLOWED_LIMIT = 10
WINDOW_S = 60
MEMORY_S = 24 * 3600  # a host's requests may arrive out of order by as much as this


class Request(NamedTuple):
    """One web request."""

    host: str
    time_s: int
    url: str

    def encode(self) -> bytes:
        """What a client asks."""
        return "\t".join(map(str, self)).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Request:
        """Read a request; raises ValueError if it is none."""
        host, time_s, url = str(payload, "utf-8").split("\t")
        return cls(host, int(time_s), url)


class AccessQuota(ClusteredService):
    """Allows a request of a host at time t if fewer than 10 of that host were allowed in (t - 60 s, t]."""

    def __init__(self) -> None:
        self.allowed_times: dict[str, list[int]] = {}  # by host, ascending

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Decide. What cannot be decoded raises ValueError, which the client is told."""
        request = Request.decode(payload)
        return self.decide(request.host, request.time_s).encode()

    def decide(self, host: str, time_s: int) -> str:
        """Apply the rule. Only what is allowed is remembered, and only what is allowed counts."""
        times = self.allowed_times.setdefault(host, [])
        count = bisect_right(times, time_s) - bisect_right(times, time_s - WINDOW_S)
        if count >= ALLOWED_LIMIT:
            return "denied\t0"
        insort(times, time_s)
        del times[: bisect_right(times, times[-1] - MEMORY_S)]
        return f"allowed\t{ALLOWED_LIMIT - 1 - count}"

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """One message per host."""
        for host, times in self.allowed_times.items():
            await snapshot.offer(json.dumps([host, times]).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        if snapshot is not None:
            async for message in snapshot:
                host, times = json.loads(message)
                self.allowed_times[host] = times
