"""The services under the snapshot benchmark: they echo, and hold as much state as they are told to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

FILL: Final = b"fill one MiB more"
"""A message that makes the state one mebibyte larger, and is answered like any other."""

_BLOB_BYTES: Final = 64 << 10
_BLOBS_PER_FILL: Final = 16


class StateService(ClusteredService):
    """Sends each message back; its state is a list of blobs, written to snapshots one by one."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the blobs."""
        if snapshot is not None:
            self.blobs = [message async for message in snapshot]

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Echo, and grow if that is asked for."""
        if len(payload) == len(FILL) and bytes(payload) == FILL:
            self.blobs += [bytes([len(self.blobs) % 251]) * _BLOB_BYTES for _ in range(_BLOBS_PER_FILL)]
        session.offer(payload)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the blobs."""
        for blob in self.blobs:
            await snapshot.offer(blob)


class StateByCopyService(StateService):
    """Yields the blobs, so that a copy of the process writes them, and delivery goes on meanwhile."""

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield the blobs."""
        yield from self.blobs
