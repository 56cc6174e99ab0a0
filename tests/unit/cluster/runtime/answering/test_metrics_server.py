"""The HTTP endpoint: what it answers, and clients that mean harm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog

from tests.waiting import wait_until, within
from trimaran.cluster.auth.metrics_access import MetricsAccess
from trimaran.cluster.runtime.answering import metrics_server
from trimaran.cluster.runtime.answering.metrics_server import REQUEST_LIMIT_BYTES, MetricsServer
from trimaran.cluster.runtime.ground.gate_limits import METRICS_CONNECTION_LIMIT
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate, GateLimits
from trimaran.service_api.net.transport import SOCKETS, Purpose

TIMEOUT_S = 30


class Pages:
    """Makes pages, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.now_ns = 0
        self.reason: str | None = None
        self.error: Exception | None = None
        self.body = b"a_metric 1\n"

    def why_not_ready(self) -> str | None:
        return self.reason

    def render(self) -> bytes:
        if self.error is not None:
            raise self.error
        self.count += 1
        return self.body


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[tuple[MetricsServer, Endpoint]]:
    server = MetricsServer(
        pages,
        content_type="text/x-metrics",
        monotonic_ns=lambda: pages.now_ns,
        access=MetricsAccess(None),
    )
    gate = ConnectionGate({Purpose.METRICS: GateLimits.of_count(METRICS_CONNECTION_LIMIT)})
    endpoint = await server.start(SOCKETS, Endpoint("127.0.0.1", 0), gate=gate)
    try:
        yield server, endpoint
    finally:
        server.close()
        await wait_until(lambda: server.connection_count == 0, timeout_s=TIMEOUT_S, what="the end of connections")


async def ask(endpoint: Endpoint, request: bytes, *, is_half_closed: bool = False) -> bytes:
    """Send bytes, and read until the other side closes."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        async with within(TIMEOUT_S):
            writer.write(request)
            if is_half_closed:
                writer.write_eof()
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n".encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_the_page_is_given_with_its_type_and_length() -> None:
    async with serving(Pages()) as (_, endpoint):
        head, _, body = (await ask(endpoint, get("/metrics?name=x"))).partition(b"\r\n\r\n")

    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Type: text/x-metrics" in head.splitlines()
    assert b"Content-Length: 11" in head.splitlines()
    assert body == b"a_metric 1\n"


async def test_a_member_that_is_not_ready_says_why() -> None:
    pages = Pages()
    async with serving(pages) as (_, endpoint):
        ready = await ask(endpoint, get("/readyz"))
        pages.reason = "in an election: state=CANVASS"
        not_ready = await ask(endpoint, get("/readyz"))
        live = await ask(endpoint, get("/livez"))

    assert (status_of(ready), status_of(not_ready), status_of(live)) == (200, 503, 200)
    assert not_ready.endswith(b"not ready: in an election: state=CANVASS\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 405),
        (b"DELETE /livez HTTP/1.1\r\n\r\n", 405),
        (get("/"), 404),
        (get("/../../etc/passwd"), 404),
        (get("/metrics/"), 404),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0 x\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\xfe\x00\n\n", 400),
        (b"GET /metrics HTTP/1.0\n\n", 200),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * (REQUEST_LIMIT_BYTES + 1), 431),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * REQUEST_LIMIT_BYTES + b"\r\n\r\n", 431),
        (get("/metrics") * 3, 200),
    ],
)
async def test_what_is_not_a_get_of_a_page_is_refused(request_bytes: bytes, status: int) -> None:
    async with serving(Pages()) as (_, endpoint):
        assert status_of(await ask(endpoint, request_bytes)) == status


async def test_a_request_may_come_in_pieces_and_half_closed() -> None:
    async with serving(Pages()) as (_, endpoint):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        for byte in get("/livez"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        async with within(TIMEOUT_S):
            pieces = await reader.read()
        writer.close()
        half = await ask(endpoint, get("/livez"), is_half_closed=True)

    assert status_of(pieces) == status_of(half) == 200


async def test_a_page_is_made_once_in_a_tenth_of_a_second() -> None:
    pages = Pages()
    async with serving(pages) as (_, endpoint):
        for now_ms in (0, 50, 100, 101, 150):
            pages.now_ns = now_ms * 1_000_000
            await ask(endpoint, get("/metrics"))

    assert pages.count == 2


async def test_a_page_that_cannot_be_made_is_a_500_and_harms_nobody() -> None:
    pages = Pages()
    pages.error = RuntimeError("no")
    with structlog.testing.capture_logs() as lines:
        async with serving(pages) as (_, endpoint):
            failed = await ask(endpoint, get("/metrics"))
            pages.error = None
            well = await ask(endpoint, get("/metrics"))

    assert (status_of(failed), status_of(well)) == (500, 200)
    assert b"RuntimeError" not in failed
    assert [line["event"] for line in lines] == ["metrics.failed"]


async def test_silent_connections_make_room_for_one_that_asks() -> None:
    async with serving(Pages()) as (server, endpoint):
        idle = [await asyncio.open_connection(endpoint.host, endpoint.port) for _ in range(METRICS_CONNECTION_LIMIT)]
        await wait_until(
            lambda: server.connection_count == METRICS_CONNECTION_LIMIT, timeout_s=TIMEOUT_S, what="connections"
        )

        served = await ask(endpoint, get("/livez"))
        oldest = await idle[0][0].read()
        for _, other in idle:
            other.transport.abort()

    assert status_of(served) == 200
    assert oldest == b""


@pytest.mark.parametrize("beginning", [b"", b"GET /metr"])
async def test_who_says_nothing_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch, beginning: bytes) -> None:
    monkeypatch.setattr(metrics_server, "DEADLINE_S", 0.05)
    async with serving(Pages()) as (_, endpoint):
        assert await ask(endpoint, beginning) == b""


async def test_who_does_not_read_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "DEADLINE_S", 0.2)
    pages = Pages()
    pages.body = bytes(32 << 20)
    async with serving(pages) as (server, endpoint):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, limit=1)
        writer.write(get("/metrics"))
        await wait_until(lambda: pages.count == 1, timeout_s=TIMEOUT_S, what="the page")
        await wait_until(lambda: server.connection_count == 0, timeout_s=TIMEOUT_S, what="the drop")
        writer.transport.abort()
        del reader


@pytest.mark.parametrize("seed", range(20))
async def test_noise_is_answered_or_dropped(seed: int) -> None:
    source = random.Random(seed)
    make: list[Callable[[], bytes]] = [
        lambda: source.randbytes(source.randrange(1, 20_000)),
        lambda: get("/metrics")[: source.randrange(1, 20)] + source.randbytes(40) + b"\r\n\r\n",
    ]
    async with serving(Pages()) as (_, endpoint):
        for _ in range(10):
            answer = await ask(endpoint, source.choice(make)(), is_half_closed=True)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
        assert status_of(await ask(endpoint, get("/livez"))) == 200
