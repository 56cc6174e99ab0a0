"""Posting entries to a real HTTP server that fails, is busy, and refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trimaran import ConfigurationError
from trimaran.cluster.subscriptions import EntryKind, LogEntry
from trimaran.cluster.subscriptions.webhook import WebhookRefusedError, WebhookSink


class Receiver(ThreadingHTTPServer):
    """Answers with these statuses, one after the other, then with 200; keeps what it has taken."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = statuses
        self.taken: list[tuple[str, list[dict[str, Any]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            rows = [json.loads(line) for line in body.splitlines()]
            self.server.taken.append((self.headers["Idempotency-Key"], rows))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"no such hook" if status == 404 else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver([503, 429, 500]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def entry(position: int, payload: bytes) -> LogEntry:
    return LogEntry(position, position + 96, EntryKind.REQUEST, 3, 1_000, 7, payload)


async def test_a_batch_is_posted_until_it_is_taken_in_order(receiver: Receiver) -> None:
    async with WebhookSink(receiver.url) as sink:
        await sink.deliver([entry(96, b"one"), entry(192, b"\xff")])
        await sink.deliver([entry(288, b"three")])

    assert [key for key, _ in receiver.taken] == ["96-192", "288-288"]
    rows = [row for _, batch in receiver.taken for row in batch]
    assert [(row["position"], row["payload"], row["payload_encoding"]) for row in rows] == [
        (96, "one", "utf-8"),
        (192, "/w==", "base64"),
        (288, "three", "utf-8"),
    ]


async def test_a_receiver_that_refuses_ends_it_and_is_named(receiver: Receiver) -> None:
    receiver.statuses[:] = [404]
    async with WebhookSink(receiver.url) as sink:
        with pytest.raises(WebhookRefusedError, match=r"url=http.*status=404 answer='no such hook'"):
            await sink.deliver([entry(96, b"one")])

    assert receiver.taken == []


def test_an_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="url='ftp://x' expected http"):
        WebhookSink("ftp://x")
