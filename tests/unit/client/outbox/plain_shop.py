"""The service that tests of the outbox run."""

from __future__ import annotations

from trimaran import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication
from trimaran.service_api.outbox import Outbox
from trimaran.service_api.outbox.outbox import OutboxCounts


class Shop(ClusteredService):
    """Wants each order delivered, and each second one invoiced as well."""

    def __init__(self) -> None:
        self.outbox = Outbox(effect_limit=100)

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.outbox.attach(cluster)
        if snapshot is not None:
            async for message in snapshot:
                assert self.outbox.load(message)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        for message in self.outbox.snapshot_messages():
            await snapshot.offer(message)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        reply = self.outbox.on_request(payload)
        if reply is not None:
            return reply
        key = self.outbox.add(b"deliver " + payload)
        if int(payload) % 2:
            self.outbox.add(b"invoice " + payload)
        return str(key).encode()

    def on_query(self, payload: memoryview) -> bytes:
        answer = self.outbox.on_query(payload)
        assert answer is not None
        return answer

    def outbox_counts(self) -> list[OutboxCounts]:
        return [self.outbox.counts]
