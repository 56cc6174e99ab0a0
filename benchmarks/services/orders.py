"""A service with many orders, whose snapshot is written in one of three ways.

OrdersByMessage   each order a message of its own, encoded in Python: what an author writes first
OrdersInPieces    `on_take_snapshot` with `encode_pieces`: delivery stands still until all is written
OrdersByCopy      `snapshot_messages` with `encode_pieces`: a copy of the process writes them
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import msgspec

from ...service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication
from ...service_api.snapshots import encode_pieces, read_pieces

ORDERS_PER_FILL: Final = 20_000
_PART: Final = "orders"


class Order(msgspec.Struct):
    """One order: about 90 bytes as a message."""

    order_id: int
    customer: str
    symbol: str
    side: str
    price: int
    quantity: int
    note: str


class _Orders(ClusteredService):
    """Sends each message back; grows by `ORDERS_PER_FILL` orders where that is asked for."""

    fill: bytes = b"fill"

    def __init__(self) -> None:
        self.orders: dict[int, Order] = {}

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Echo, and grow if that is asked for."""
        if payload == self.fill:
            begin = len(self.orders)
            for number in range(begin, begin + ORDERS_PER_FILL):
                self.orders[number] = Order(
                    number,
                    f"customer-{number % 50_000}",
                    f"SYM{number % 900:04}",
                    "buy",
                    number * 7,
                    number % 1_000,
                    "",
                )
        elif self.orders:
            order = self.orders[timestamp % len(self.orders)]  # some order changes with each message
            order.quantity += 1
        session.offer(payload)


class OrdersByMessage(_Orders):
    """Writes a message for each order."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the orders."""
        if snapshot is not None:
            async for message in snapshot:
                order = Order(*json.loads(message))
                self.orders[order.order_id] = order

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the orders."""
        for order in self.orders.values():
            await snapshot.offer(json.dumps(msgspec.structs.astuple(order)).encode())


class OrdersInPieces(_Orders):
    """Writes pieces, and stands still meanwhile."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the orders."""
        if snapshot is not None:
            async for _, orders in read_pieces(snapshot, {_PART: tuple[int, Order]}):
                self.orders.update(orders)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the orders."""
        for piece in encode_pieces(_PART, self.orders.items()):
            await snapshot.offer(piece)


class OrdersByCopy(OrdersInPieces):
    """Yields pieces, which a copy of the process does."""

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield the orders."""
        return encode_pieces(_PART, self.orders.items())
