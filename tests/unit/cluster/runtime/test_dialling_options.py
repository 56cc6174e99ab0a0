"""The socket options of a member's connections."""

from __future__ import annotations

import asyncio
import socket

from cluster.runtime.dialling import as_member_transport, as_stream_transport


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
