"""A real HTTP server that takes what a webhook posts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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


@contextmanager
def received(statuses: list[int]) -> Iterator[Receiver]:
    """Run a receiver in a thread of its own."""
    with Receiver(statuses) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
