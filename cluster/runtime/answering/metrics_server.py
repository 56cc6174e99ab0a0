"""The HTTP endpoint of one member: `/metrics`, `/livez`, `/readyz`, and nothing else.

As little HTTP as a scraper or a probe needs: one GET per connection, answered from the loop. Probes are for anybody,
metrics for whom `MetricsAccess` lets read them. It listens for any client that can reach it, so nothing that comes in
is kept or believed: the length of a request, the time it may take, the number of connections and the number of pages
made in a second are bounded, and what goes beyond is refused or dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from ....service_api.net.transport import Listener, NetworkStack, Purpose, as_stream_transport
from ...auth.metrics_access import MetricsAccess

REQUEST_LIMIT_BYTES: Final = 8192
"""The longest request, headers included; a longer one is refused."""
DEADLINE_S: Final = 5.0
"""How long a connection may take for everything, from its beginning to its end."""
PAGE_AGE_LIMIT_NS: Final = 100_000_000
"""A page that is no older is given again: making one takes 1 ms of the loop."""

_END_OF_REQUEST: Final = (b"\r\n\r\n", b"\n\n")
_TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

logger = structlog.get_logger()


class MetricsPages(Protocol):
    """The answers to scrapers and probes."""

    def render(self) -> bytes:
        """Make the page of metrics."""

    def why_not_ready(self) -> str | None:
        """Return in one line why clients had better go elsewhere; None when all is well."""


class MetricsServer:
    """Answers scrapers and probes."""

    def __init__(
        self,
        pages: MetricsPages,
        *,
        content_type: str,
        monotonic_ns: Callable[[], int],
        access: MetricsAccess,
    ) -> None:
        self._access = access
        self._pages = pages
        self._content_type = content_type
        self._monotonic_ns = monotonic_ns
        self._page = b""
        self._page_ns: int | None = None
        self._connections: dict[_Connection, None] = {}
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        return f"<MetricsServer connections={len(self._connections)}>"

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    async def start(self, network: NetworkStack, endpoint: Endpoint, *, gate: ConnectionGate) -> Endpoint:
        """Listen; return the endpoint, with the port that the system chose if that was 0.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        self._listener = await network.listen(
            Purpose.METRICS, endpoint, lambda accepted: _Connection(self, accepted), gate=gate
        )
        return self._listener.endpoint

    def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in [*self._connections]:
            connection.abort()

    def answer(self, request: bytes, accepted: AcceptedConnection) -> bytes:
        """Answer one request: everything up to the empty line."""
        words = request.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(400, "expected: GET /metrics HTTP/1.1")
        if words[0] != b"GET":
            return _response(405, "only GET", extra="Allow: GET\r\n")
        path = words[1].split(b"?", 1)[0]
        if path == b"/livez":
            return _response(200, "ok")
        if path == b"/readyz":
            reason = self._pages.why_not_ready()
            return _response(200, "ok") if reason is None else _response(503, f"not ready: {reason}")
        if path == b"/metrics":
            refusal = self._access.refusal(accepted, request)
            if refusal is None:
                return self._metrics()
            status, text = refusal
            return _response(status, text, extra="WWW-Authenticate: Bearer\r\n" if status == 401 else "")
        return _response(404, "unknown path: expected /metrics, /livez or /readyz")

    def _metrics(self) -> bytes:
        now_ns = self._monotonic_ns()
        if self._page_ns is None or now_ns - self._page_ns > PAGE_AGE_LIMIT_NS:
            try:
                self._page = self._pages.render()
            except Exception as error:
                # Who watches must not be able to bring down what is watched.
                logger.error("metrics.failed", error=repr(error), exc_info=error)
                return _response(500, "the metrics could not be read; see metrics.failed in the log")
            self._page_ns = now_ns
        return _response(200, self._page, content_type=self._content_type)


class _Connection(asyncio.Protocol):
    """One connection: takes one request, gives one answer, and closes."""

    def __init__(self, server: MetricsServer, accepted: AcceptedConnection) -> None:
        self._server = server
        self._accepted = accepted
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_answered = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_stream_transport(transport)
        self._accepted.attach(self._transport)
        self._server._connections[self] = None
        self._deadline = asyncio.get_running_loop().call_later(DEADLINE_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._accepted.leave()
        self._server._connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._received += data
        ends = [at for end in _END_OF_REQUEST if (at := self._received.find(end)) >= 0]
        if ends and min(ends) <= REQUEST_LIMIT_BYTES:
            self._give(self._server.answer(bytes(self._received[: min(ends)]), self._accepted))
        elif len(self._received) > REQUEST_LIMIT_BYTES:
            self._give(_response(431, f"a request has at most {REQUEST_LIMIT_BYTES} bytes"))

    def abort(self) -> None:
        """Drop the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def _give(self, response: bytes) -> None:
        self._is_answered = True
        self._received.clear()
        assert self._transport is not None
        self._transport.write(response)
        self._transport.close()  # once it is written; the deadline bounds how long that takes


def _response(status: int, body: str | bytes, *, content_type: str = _TEXT, extra: str = "") -> bytes:
    data = f"{body}\n".encode() if isinstance(body, str) else body
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{extra}\r\n"
    )
    return head.encode() + data
