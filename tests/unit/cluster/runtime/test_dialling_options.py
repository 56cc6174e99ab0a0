"""The socket options of a member's connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from trimaran.cluster.runtime.links.dialling import (
    as_member_transport,
    as_stream_transport,
    dial_forever,
)
from trimaran.service_api.endpoint import Endpoint


async def test_the_silent_end_of_the_other_machine_is_noticed_on_every_connection() -> None:
    """Found by simulation: a log link that nobody had joined stayed up for ever when the follower lost power."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            as_stream_transport(transport)
            accepted.set_result(transport)

    server = await loop.create_server(Accepting, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dialled, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    as_member_transport(dialled)

    for transport in (dialled, await accepted):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        interval_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        count = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert idle_s + interval_s * count <= 10
        transport.close()
    server.close()
    await server.wait_closed()


async def test_a_name_that_nobody_knows_is_asked_for_again_until_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose name is not in the DNS yet is as one that is not there yet."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connected: asyncio.Future[None] = loop.create_future()
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_late(host: str, *arguments: Any, **options: Any) -> Any:  # as in the standard library
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve("127.0.0.1", *arguments, **options)

    class Dialling(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.set_result(None)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    dialling = asyncio.create_task(dial_forever(Endpoint("member-2.example", port), lambda closed: Dialling()))
    async with asyncio.timeout(20):
        await connected

    assert asked == ["member-2.example"] * 3
    dialling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dialling
    server.close()
