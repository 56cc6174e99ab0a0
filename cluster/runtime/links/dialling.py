"""Connecting to another member, again and again, and the few socket options that every link wants."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import termios
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from trimaran.service_api.endpoint import Endpoint

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 2.0
_KEEP_ALIVE_IDLE_S: Final = 2
_KEEP_ALIVE_INTERVAL_S: Final = 1
_KEEP_ALIVE_COUNT: Final = 3
"""When to ask whether the other side is still there, how often, and how many questions may go unanswered.

A machine that loses power sends no last word. Where nothing is sent either, as on a log link that its follower has not
joined yet, the link to it would stay for ever, and nobody would dial anew once the machine is back.
"""
_KEEP_ALIVE_OPTIONS: Final = (
    ("TCP_KEEPIDLE", _KEEP_ALIVE_IDLE_S),
    ("TCP_KEEPINTVL", _KEEP_ALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", _KEEP_ALIVE_COUNT),
)
_UNACKNOWLEDGED_LIMIT_MS: Final = 4000
"""How long what was sent to another member may stay unacknowledged before the link is given up and dialled again.

Without it a link that lost packets for a while waits for TCP's next try, which is as far off as the outage was long:
after a partition of 15 s it stayed silent for 11.6 s more.
"""


def as_stream_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take a new stream connection, with small writes sent at once: batching is done before the socket, by turns of
    the loop. One whose other side is gone without a word is noticed.

    A cast, not a check: uvloop's transports have the methods but not the base class.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE_OPTIONS:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return cast(asyncio.Transport, transport)


def as_member_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take a connection to another member: as `as_stream_transport`, and given up when nothing gets through."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_LIMIT_MS)
    return as_stream_transport(transport)


def has_peer_closed(transport: asyncio.BaseTransport, *, if_unread: bool) -> bool:
    """Whether the other side has closed a connection that is not read, so that nobody says so.

    With `if_unread` also where some of what it sent before is unread. False where the system cannot tell: that takes
    Linux.
    """
    sock = transport.get_extra_info("socket")
    fd = -1 if sock is None else sock.fileno()
    if fd < 0 or not hasattr(select, "POLLRDHUP"):
        return False
    poller = select.poll()
    poller.register(fd, select.POLLRDHUP)
    events = sum(event for _, event in poller.poll(0))
    if not events or if_unread or events & (select.POLLERR | select.POLLHUP):
        return bool(events)
    unread = bytearray(4)
    fcntl.ioctl(fd, termios.FIONREAD, unread)
    return not any(unread)


async def dial_forever(
    endpoint: Endpoint, make_protocol: Callable[[asyncio.Future[None]], asyncio.BaseProtocol]
) -> None:
    """Keep one connection to the endpoint: whenever it is lost, connect again, pausing longer after each failure.

    `make_protocol` is given a future that its protocol resolves when the connection is lost.
    """
    loop = asyncio.get_running_loop()
    pause_s = _FIRST_PAUSE_S
    while True:
        closed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                transport, _ = await loop.create_connection(
                    partial(make_protocol, closed), endpoint.host, endpoint.port
                )
        except (OSError, TimeoutError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            continue
        pause_s = _FIRST_PAUSE_S
        try:
            await closed
        finally:
            transport.close()
        await asyncio.sleep(pause_s)
