"""A service by a careless author, for system tests: it counts requests, and fails as the request says.

`nested ...`: JSON, of whatever depth. `memory PATH IDS`: these members have no memory left while the file PATH exists.
`hoard N`: needs N MiB for a moment. `exit`: ends the process, as a script would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage


class CarelessService(ClusteredService):
    """Prints its count when it ends."""

    def __init__(self) -> None:
        self.count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self._cluster = cluster

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        word, _, rest = bytes(payload).decode().partition(" ")
        if word == "nested":
            json.loads(rest)
        elif word == "memory":
            path, member_ids = rest.split()
            if str(self._cluster.member_id) in member_ids.split(",") and Path(path).exists():
                raise MemoryError
        elif word == "hoard":
            bytearray(int(rest) << 20)
        elif word == "exit":
            sys.exit(4)
        self.count += 1
        return b"%d" % self.count

    def on_query(self, payload: memoryview) -> bytes:
        return b"%d" % self.count

    def on_terminate(self, cluster: Cluster) -> None:
        sys.stderr.write(json.dumps({"event": "test_careless.terminated", "count": self.count}) + "\n")
