"""The page of the examples that streams fills: what a browser gets, also after it or a member has gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx
import pytest

from examples.events_page import KEEP_ALIVE_S, EventsPage, serve
from examples.order_book import OrderBook, PlaceOrder
from tests.waiting import patient, within
from trimaran.client.typed import TypedClient
from trimaran.cluster.subscriptions import PositionPrunedError, Subscription
from trimaran.cluster.testing import MemoryCluster


class Browser:
    """Sends one request to the app, and keeps what comes."""

    def __init__(self, app: EventsPage, last_event_id: str | None = None) -> None:
        self.status, self.text = 0, ""
        self._gone = asyncio.Event()
        headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
        self._task = asyncio.ensure_future(
            app({"type": "http", "path": "/events", "headers": headers}, self._receive, self._send)
        )

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()

    @property
    def events(self) -> list[dict[str, str]]:
        """The events that were sent whole, by field."""
        return [dict(line.split(": ", 1) for line in part.split("\n")) for part in self.text.split("\n\n")[1:-1]]

    async def close(self) -> None:
        self._gone.set()
        await self._task


def in_cluster(test: Callable[[MemoryCluster, EventsPage], Awaitable[None]]) -> None:
    with MemoryCluster(OrderBook) as cluster:

        async def run() -> None:
            await cluster.wait_for_leader()
            await test(cluster, EventsPage(lambda at: cluster.subscribe(from_position=at, topics=["fills"])))

        cluster.run(run())


async def trade(client: TypedClient, price: int) -> None:
    await client.call(PlaceOrder("ann", "sell", price, 1))
    await client.call(PlaceOrder("bob", "buy", price, 1))


def test_a_browser_that_comes_back_gets_what_it_missed_once_although_the_leader_died() -> None:
    async def test(cluster: MemoryCluster, app: EventsPage) -> None:
        client = TypedClient(await cluster.connect())
        await trade(client, 7)
        first = Browser(app)
        await cluster.advance(1)
        await trade(client, 8)
        await cluster.advance(1)
        await first.close()
        cluster.kill_leader()
        await trade(client, 9)

        second = Browser(app, first.events[-1]["id"])
        await cluster.advance(5)
        await second.close()

        assert first.text.startswith("retry: 1000\n\n")
        assert [event["event"] for event in (*first.events, *second.events)] == ["fill"] * 3
        prices = [event["data"].partition('"price": ')[2][0] for event in (*first.events, *second.events)]
        assert prices == ["7", "8", "9"]

    in_cluster(test)


def test_a_quiet_stream_is_kept_alive() -> None:
    async def test(cluster: MemoryCluster, app: EventsPage) -> None:
        browser = Browser(app)
        await cluster.advance(KEEP_ALIVE_S + 1)
        await browser.close()

        assert browser.status == 200
        assert browser.text == "retry: 1000\n\n: the connection is alive\n\n"

    in_cluster(test)


@pytest.mark.parametrize("last_event_id", ["soon", "33", "-32"])
def test_an_id_that_is_none_is_refused(last_event_id: str) -> None:
    async def test(cluster: MemoryCluster, app: EventsPage) -> None:
        browser = Browser(app, last_event_id)
        await browser.close()

        assert browser.status == 400
        assert "id of an" in browser.text

    in_cluster(test)


class Pruned:
    """A subscription to a log whose beginning is gone."""

    def __init__(self, position: int) -> None:
        self._position = position

    async def __aenter__(self) -> Pruned:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def __anext__(self) -> None:
        if self._position == 0:
            raise PositionPrunedError(position=0, first_position=640)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def listening(app: EventsPage) -> AsyncIterator[int]:
    """Serve on a port, and wait at the end until every connection is closed, which a server does not before 3.12."""
    connections: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(cast("asyncio.Task[None]", asyncio.current_task()))
        await serve(app, reader, writer)
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    async with within(30):
        await asyncio.gather(*connections)


@contextlib.asynccontextmanager
async def serving(app: EventsPage) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        listening(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=patient(30)) as client,
    ):
        yield client


@pytest.mark.parametrize("head", [b"garbage\r\n\r\n", b"GET /", b"GET \xff HTTP/1.1\r\n\r\n"])
async def test_what_is_no_http_ends_the_connection(head: bytes) -> None:
    async with listening(EventsPage(_nothing)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        writer.write_eof()

        assert await reader.read() == b""
        writer.close()


def _nothing(position: int) -> Subscription:
    raise AssertionError(position)


async def test_over_http_the_page_comes_and_a_stream_that_fails_ends_with_where_to_go_on() -> None:
    def subscribe_from(position: int) -> Subscription:
        return cast("Subscription", Pruned(position))

    async with serving(EventsPage(subscribe_from)) as client:
        page, stream = await client.get("/"), await client.get("/events")
        wrong = await client.get("/events", headers={"Last-Event-ID": "x"})
        async with client.stream("GET", "/events", headers={"Last-Event-ID": "640"}) as resumed:
            begin = await anext(resumed.aiter_text())

    assert "new EventSource" in page.text
    assert stream.headers["content-type"] == "text/event-stream"
    assert "id: 640\nevent: lost\ndata: position=0 is below" in stream.text
    assert wrong.status_code == 400
    assert begin == "retry: 1000\n\n"
