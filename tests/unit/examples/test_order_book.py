"""The order book of the examples, by hand, against a slow one, and in a cluster in memory."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.order_book import CancelOrder, Depth, Fill, Order, OrderBook, OrderRefused, PlaceOrder, Side
from trimaran.client.typed import EventReader, TypedClient
from trimaran.cluster.testing import MemoryCluster, TypedHarness

SIDES: Final[tuple[Side, ...]] = ("buy", "sell")
FILLS: Final = EventReader((Fill,))


def fills_of(book: TypedHarness[OrderBook]) -> list[Fill]:
    assert {message.topic for message in book.published} <= {"fills"}
    return [FILLS.read(message.payload) for message in book.published]


def test_the_best_price_goes_first_and_then_the_oldest() -> None:
    book = TypedHarness(OrderBook)
    for owner, price in (("ann", 102), ("bob", 101), ("cyd", 101)):
        book.call(PlaceOrder(owner, "sell", price, 5))

    placed = book.call(PlaceOrder("dee", "buy", 102, 12))

    assert placed.quantity == 0
    assert fills_of(book) == [Fill(2, 4, 101, 5), Fill(3, 4, 101, 5), Fill(1, 4, 102, 2)]
    assert book.ask(Depth("sell")) == [(102, 3)]
    assert book.ask(Depth("buy")) == []


def test_what_is_left_rests_until_it_is_cancelled() -> None:
    book = TypedHarness(OrderBook)
    order_id = book.call(PlaceOrder("ann", "buy", 99, 5)).order_id
    book.call(PlaceOrder("bob", "sell", 99, 2))
    book.restart()

    assert book.call(CancelOrder(order_id)) == Order(order_id, "ann", "buy", 99, 3)
    assert book.call(CancelOrder(order_id)) is None

    with pytest.raises(OrderRefused, match="expected above 0"):
        book.call(PlaceOrder("ann", "buy", 99, 0))
    assert book.service.levels == {}


orders = st.tuples(st.sampled_from(SIDES), st.integers(95, 105), st.integers(1, 9))


@given(st.lists(orders, max_size=40))
def test_the_book_never_crosses_and_loses_no_quantity(placed: list[tuple[Side, int, int]]) -> None:
    book = TypedHarness(OrderBook)
    for side, price, quantity in placed:
        book.call(PlaceOrder("ann", side, price, quantity))
        buys, sells = book.ask(Depth("buy")), book.ask(Depth("sell"))
        assert not buys or not sells or buys[0][0] < sells[0][0]

    filled = sum(fill.quantity for fill in fills_of(book))
    resting = sum(quantity for side in SIDES for _, quantity in book.ask(Depth(side)))
    assert sum(quantity for _, _, quantity in placed) == 2 * filled + resting


def test_members_agree_after_their_leader_was_killed() -> None:
    with MemoryCluster(OrderBook) as cluster:

        async def test() -> None:
            client = TypedClient(await cluster.connect())
            await client.call(PlaceOrder("ann", "sell", 101, 5))
            cluster.kill_leader()
            assert (await client.call(PlaceOrder("bob", "buy", 101, 3))).quantity == 0
            assert await client.ask(Depth("sell")) == [(101, 2)]
            await cluster.restart()
            await cluster.assert_identical()

        cluster.run(test())
