"""A second service for system tests: for each message of a client it offers one to the log, and counts what comes.

Each message holds the number that it was offered as, so one that is lost, doubled or out of place is seen at once.
"""

from __future__ import annotations

import json
import struct
import sys

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

_STATE = struct.Struct("<qqq")


class TallyService(ClusteredService):
    """Prints where it stands whenever nothing that it has offered is on its way."""

    def __init__(self) -> None:
        self._offered_count = self._received_count = self._wrong_count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self._cluster = cluster
        if snapshot is not None:
            async for message in snapshot:
                self._offered_count, self._received_count, self._wrong_count = _STATE.unpack(message)
            self._print("test_tally.loaded")

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(_STATE.pack(self._offered_count, self._received_count, self._wrong_count))

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self._offered_count += 1
        self._cluster.offer(b"%d" % self._offered_count)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self._received_count += 1
        self._wrong_count += service_id != 1 or bytes(payload) != b"%d" % self._received_count
        if self._received_count == self._offered_count:
            self._print("test_tally.even")

    def on_terminate(self, cluster: Cluster) -> None:
        self._print("test_tally.terminated")

    def _print(self, event: str) -> None:
        state = {
            "offered": self._offered_count,
            "received": self._received_count,
            "wrong": self._wrong_count,
            "log_position": self._cluster.log_position,
        }
        print(json.dumps({"event": event, **state}), file=sys.stderr, flush=True)
