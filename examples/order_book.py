"""An order book for one instrument: price before time, and fills on a topic that nobody can miss.

trimaran up --service order_book:OrderBook --service-dir examples --port 9000   # in one terminal
trimaran subscribe --config trimaran-data/cluster.toml --topic fills   # in another one
python examples/order_book.py   # in a third one
"""

from __future__ import annotations

from typing import Literal

from trimaran import Command, Context, Event, Query, Reply, ServiceError, TypedService, answers, handles, state
from trimaran.client.typed import SyncTypedClient, asks, calls

Side = Literal["buy", "sell"]


class Order(Reply):
    order_id: int
    owner: str
    side: Side
    price: int  # in ticks: whole numbers are the same on every machine
    quantity: int  # that is not filled


class PlaceOrder(Command[Order]):
    owner: str
    side: Side
    price: int
    quantity: int


class CancelOrder(Command[Order | None]):
    order_id: int


class Depth(Query[list[tuple[int, int]]]):  # prices and quantities, the best first
    side: Side


class Fill(Event):
    maker_id: int
    taker_id: int
    price: int
    quantity: int


class OrderRefused(ServiceError):
    reason: str


class OrderBook(TypedService):
    """Open orders, and what is at each price."""

    events = (Fill,)

    orders: dict[int, Order] = state()
    levels: dict[tuple[Side, int], tuple[int, ...]] = state()  # by side and price: the ids there, oldest first
    next_id: int = state(default=1)

    @handles(PlaceOrder)
    def place(self, ctx: Context, message: PlaceOrder) -> Order:
        if message.quantity <= 0 or message.price <= 0:
            raise OrderRefused(f"price={message.price} quantity={message.quantity} expected above 0")
        taker = Order(self.next_id, message.owner, message.side, message.price, message.quantity)
        self.next_id, left = self.next_id + 1, taker.quantity
        while left and (maker := self._best_for(taker)) is not None:
            quantity = min(left, maker.quantity)
            left -= quantity
            ctx.publish("fills", Fill(maker.order_id, taker.order_id, maker.price, quantity))
            self._set_quantity(maker, maker.quantity - quantity)
        if left:
            level = (taker.side, taker.price)
            self.levels[level] = (*self.levels.get(level, ()), taker.order_id)
        return self._set_quantity(taker, left)

    @handles(CancelOrder)
    def cancel(self, ctx: Context, message: CancelOrder) -> Order | None:
        order = self.orders.get(message.order_id)
        if order is not None:
            self._set_quantity(order, 0)
        return order

    @answers(Depth)
    def depth(self, ctx: Context, message: Depth) -> list[tuple[int, int]]:
        prices = sorted(self._prices(message.side), reverse=message.side == "buy")
        return [(price, sum(self.orders[one].quantity for one in self.levels[message.side, price])) for price in prices]

    def _prices(self, side: Side) -> list[int]:
        return [price for level_side, price in self.levels if level_side == side]

    def _best_for(self, taker: Order) -> Order | None:
        is_buy = taker.side == "buy"
        other: Side = "sell" if is_buy else "buy"
        price = (min if is_buy else max)(self._prices(other), default=taker.price)
        ids = self.levels.get((other, price), ())
        return self.orders[ids[0]] if ids and (price <= taker.price if is_buy else price >= taker.price) else None

    def _set_quantity(self, order: Order, quantity: int) -> Order:
        changed = Order(order.order_id, order.owner, order.side, order.price, quantity)
        level: tuple[Side, int] = order.side, order.price
        ids = self.levels.get(level, ())
        if quantity:
            self.orders[order.order_id] = changed
        elif self.orders.pop(order.order_id, None) is not None:
            self.levels[level] = tuple(each for each in ids if each != order.order_id)
            if not self.levels[level]:
                del self.levels[level]
        return changed


class SyncOrderBookClient(SyncTypedClient):
    place = calls(PlaceOrder)
    cancel = calls(CancelOrder)
    depth = asks(Depth)


if __name__ == "__main__":
    with SyncOrderBookClient.connect(["127.0.0.1:9000", "127.0.0.1:9010", "127.0.0.1:9020"]) as client:
        client.place("ann", "sell", price=101, quantity=5)
        print(client.place("bob", "buy", price=102, quantity=3), client.depth("sell"))
