"""A service for the tests of groups: it keeps the numbers that came for each key, in order."""

from __future__ import annotations

from trimaran import Cluster, ClusteredService, SnapshotImage
from trimaran.service_api.session import ClientSession


class GroupLedger(ClusteredService):
    """Takes requests `key number`, refuses keys of other groups, and answers how many numbers a key has.

    A query fails if the numbers are not 0, 1, 2 and so on.
    """

    takes_snapshots = False

    def on_start(self, cluster: Cluster, image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self.numbers: dict[str, list[int]] = {}

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        key, number = bytes(payload).decode().split()
        self.cluster.group.check_key(key)
        numbers = self.numbers.setdefault(key, [])
        numbers.append(int(number))
        return str(len(numbers)).encode()

    def on_query(self, payload: memoryview) -> bytes:
        numbers = self.numbers.get(bytes(payload).decode(), [])
        if numbers != [*range(len(numbers))]:
            raise ValueError(f"a request is lost, or ran twice or in another order: {numbers[:100]}")
        return str(len(numbers)).encode()
