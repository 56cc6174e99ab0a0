"""Two services of one node: one sells seats, the other keeps the books. What they tell each other goes through the log.

    trimaran node --service examples.seats:BoxOffice,examples.seats:Ledger ...

`BoxOffice` (service 0) holds a seat for a minute, by a timer, until it is paid. What it sold and what came free again
it offers to the log; `Ledger` (service 1) hears of it there, in the same order on every member, also when leaders fail
in between: each message is delivered once. Each service has a snapshot of its own.

Requests, as text: `hold SEAT`, `pay SEAT PRICE`. A query to the cluster is answered by the ledger: its takings.
"""

from __future__ import annotations

import json

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

HOLD_MS = 60_000


class BoxOffice(ClusteredService):
    """Holds and sells seats; a seat's number is the id of its timer."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        """Who holds a seat: the session's id, by seat."""
        self.sold: set[int] = set()

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the seats."""
        self.cluster = cluster
        if snapshot is None:
            return
        async for message in snapshot:
            held, sold = json.loads(message)
            self.held, self.sold = {int(seat): holder for seat, holder in held.items()}, set(sold)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the seats; the timers are in the cluster's own snapshot."""
        await snapshot.offer(json.dumps([self.held, sorted(self.sold)]).encode())

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Hold a seat, or sell it to who holds it."""
        match bytes(payload).decode().split():
            case ["hold", seat] if int(seat) in self.held or int(seat) in self.sold:
                return b"taken"
            case ["hold", seat]:
                self.held[int(seat)] = session.id
                self.cluster.schedule_timer(int(seat), timestamp + HOLD_MS)
                return b"held"
            case ["pay", seat, price] if self.held.get(int(seat)) == session.id:
                del self.held[int(seat)]
                self.sold.add(int(seat))
                self.cluster.cancel_timer(int(seat))
                self.cluster.offer(f"sold {seat} {price}".encode())
                return b"sold"
            case ["pay", _, _]:
                return b"not held"
        return b"expected: hold SEAT, or pay SEAT PRICE"

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Let a seat go that was not paid in time."""
        if self.held.pop(correlation_id, None) is not None:
            self.cluster.offer(f"lapsed {correlation_id}".encode())


class Ledger(ClusteredService):
    """Adds up what the box office has sold."""

    def __init__(self) -> None:
        self.takings = 0
        self.lapsed_count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the books."""
        if snapshot is None:
            return
        async for message in snapshot:
            self.takings, self.lapsed_count = json.loads(message)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the books."""
        await snapshot.offer(json.dumps([self.takings, self.lapsed_count]).encode())

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Take what the box office says into the books."""
        match bytes(payload).decode().split():
            case ["sold", _, price]:
                self.takings += int(price)
            case ["lapsed", _]:
                self.lapsed_count += 1

    def on_query(self, payload: memoryview) -> bytes:
        """Tell the takings."""
        return str(self.takings).encode()
