"""Services by careless authors, for system tests: what they come to is not the same on every member."""

from __future__ import annotations

import random
from pathlib import Path

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication


class RandomService(ClusteredService):
    """Adds a random number for each request. It has no `state_hash` and takes no snapshots."""

    def __init__(self) -> None:
        self.total = 0

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.total += random.randint(1, 6)
        return b"%d" % self.total


class OddService(ClusteredService):
    """Counts requests; `odd ID PATH` counts a thousand on one member, while a file is there.

    What clients are told is the same everywhere.
    """

    cluster: Cluster

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        word, *rest = bytes(payload).decode().split()
        is_odd = word == "odd" and int(rest[0]) == self.cluster.member_id and Path(rest[1]).exists()
        self.count += 1000 if is_odd else 1
        return b"done"

    def on_query(self, payload: memoryview) -> bytes:
        self.count += 1 if bytes(payload) == b"change" else 0
        return b"%d" % self.count

    def state_hash(self) -> object:
        return self.count


class ForgetfulService(ClusteredService):
    """Counts requests, and writes the count to its snapshot; the newest request it forgets."""

    def __init__(self) -> None:
        self.count = 0
        self.newest = b""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        if snapshot is not None:
            async for message in snapshot:
                self.count = int(message)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d" % self.count)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.count += 1
        before, self.newest = self.newest, bytes(payload)
        return before


class HashedForgetfulService(ForgetfulService):
    """The same, and it has a `state_hash`."""

    def state_hash(self) -> object:
        return self.count, self.newest


class SetService(ClusteredService):
    """Keeps words, and writes them to its snapshot in another order in each process, as a set has it."""

    def __init__(self) -> None:
        self.words: set[str] = set()

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        words = [*self.words]
        random.shuffle(words)  # members of a test are forked from one process, and would have one order of sets
        await snapshot.offer(",".join(words).encode())

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.words.add(bytes(payload).decode())
        return b"done"
