"""Services that end the process, or their task, in one callback: `tests.system.exiting:on_request_SystemExit`."""

from __future__ import annotations

import asyncio
from typing import Any

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

EXITS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
}


class Ordinary(ClusteredService):
    """Does a little of everything."""

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self._cluster = cluster

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        session.offer(payload)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        word = bytes(payload)
        if word == b"timer":
            self._cluster.schedule_timer(1, timestamp)
        elif word == b"offer":
            self._cluster.offer(b"to the services")
        return b"done"

    def on_query(self, payload: memoryview) -> bytes:
        return b"answer"

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"state")


def __getattr__(name: str) -> Any:
    """Make the service whose callback raises what its name says."""
    callback, _, kind = name.rpartition("_")
    if kind not in EXITS:
        raise AttributeError(name)

    def leave(self: ClusteredService, *arguments: object, **named: object) -> None:
        raise EXITS[kind]

    async def leave_soon(self: ClusteredService, *arguments: object) -> None:
        await asyncio.sleep(0)
        raise EXITS[kind]

    is_async = callback == "on_take_snapshot"
    return type(name, (Ordinary,), {callback: leave_soon if is_async else leave})
