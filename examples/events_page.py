"""A web page that shows the fills of the order book as they happen, by Server-Sent Events.

trimaran up --service order_book:OrderBook --service-dir examples --port 9000   # in one terminal
python -m examples.events_page                                                  # in another: http://127.0.0.1:8000

`EventsPage` is an ASGI app, which `uvicorn` runs too. The id of each event is its place in the log. A browser that
lost the connection sends the last one, and gets what comes after: no fill is lost, and none comes twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from examples.order_book import Fill
from trimaran import ClusterError
from trimaran.client.typed import EventReader
from trimaran.cluster.subscriptions import PositionPrunedError, Subscription, subscribe

PAGE = b"""<!doctype html><meta charset=utf-8><h1>Fills</h1><pre></pre><script>
new EventSource("/events").addEventListener("fill", event => {
  const fill = JSON.parse(event.data)
  document.querySelector("pre").append(`${fill.quantity} at ${fill.price}\n`)
})</script>"""
MEMBERS = "127.0.0.1:9001", "127.0.0.1:9011", "127.0.0.1:9021"
FILLS = EventReader((Fill,))
KEEP_ALIVE_S = 15.0
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class EventsPage:
    """Serves the page at `/`, a stream of fills at `/events`. `subscribe_from` subscribes from a position on."""

    def __init__(self, subscribe_from: Callable[[int], Subscription]) -> None:
        self._subscribe_from = subscribe_from

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # the server's life cycle
        if scope["path"] != "/events":
            await _answer(send, 200, b"text/html; charset=utf-8", PAGE)
            return
        try:
            subscription = self._subscribe_from(int(dict(scope["headers"]).get(b"last-event-id", b"0")))
        except (ValueError, ClusterError):
            await _answer(send, 400, b"text/plain", b"Last-Event-ID: expected the id of an event, a multiple of 32")
            return
        await _answer(send, 200, b"text/event-stream", b"", is_last=False)
        async with subscription, asyncio.TaskGroup() as tasks:
            stream = tasks.create_task(_stream(subscription, send))
            while (await receive())["type"] != "http.disconnect":
                pass
            stream.cancel()


async def _stream(subscription: Subscription, send: Send) -> None:
    with contextlib.suppress(OSError):  # the browser is gone
        async for text in _events(subscription):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _events(subscription: Subscription) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    try:
        while True:
            try:
                entry = await asyncio.wait_for(anext(subscription), KEEP_ALIVE_S)  # a cancelled read loses nothing
            except TimeoutError:
                yield ": the connection is alive\n\n"
                continue
            fill = asdict(FILLS.read(entry.payload))
            yield f"id: {entry.end_position}\nevent: fill\ndata: {json.dumps(fill)}\n\n"
    except PositionPrunedError as error:  # the browser comes back, and goes on at the oldest entry that there is
        yield f"id: {error.first_position}\nevent: lost\ndata: {error}\n\n"
    except ClusterError as error:
        yield f"event: failed\ndata: {error}\n\n"


async def _answer(send: Send, status: int, kind: bytes, body: bytes, *, is_last: bool = True) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def serve(app: EventsPage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Run the app for one connection: as much of HTTP as the page needs, each answer ends with the connection."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request" if await reader.read(1_024) else "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            writer.write(b"HTTP/1.1 %d -\r\nconnection: close\r\n" % message["status"])
            writer.write(b"".join(b"%b: %b\r\n" % pair for pair in message["headers"]) + b"\r\n")
        writer.write(message.get("body", b""))
        await writer.drain()
        if message["type"] == "http.response.body" and not message.get("more_body"):
            writer.close()

    with contextlib.suppress(OSError, ValueError, LookupError, EOFError, asyncio.LimitOverrunError):
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in head[1:])]
        path = head[0].split(b" ")[1].partition(b"?")[0].decode()
        await app({"type": "http", "path": path, "headers": headers}, receive, send)
    writer.close()


async def _main() -> None:
    app = EventsPage(lambda position: subscribe(MEMBERS, from_position=position, topics=["fills"]))
    await (await asyncio.start_server(partial(serve, app), "127.0.0.1", 8000)).serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
