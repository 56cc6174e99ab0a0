"""The transport seam: everything of Trimaran that listens or dials does it through a `NetworkStack`.

There are two stacks. `SocketStack` makes TCP connections with the event loop's own transports, and the simulator's
network is the other one. A process gets its stack from the machine it runs on (`cluster.runtime.host.Host`), a client
from its configuration. No other module of the product makes a socket; a test looks at all of them.

The seam acts when a connection is made and never again: what a stack gives to a protocol is the loop's own transport,
so a byte that arrives costs nothing more. The socket options of a connection, and the question whether a peer that is
not read has closed, are here, too, because they reach below the transport.

Each call names what the connection is for. That is all that encryption needs: a stack that knows the `ssl.SSLContext`
of each purpose hands it to the loop in its own `listen` and `dial`, and no caller changes. Certificates belong to the
caller's side of a purpose: a member shows the same identity on `CONSENSUS`, `LOG`, `CATCHUP` and `ARCHIVE`, whichever
side dials, and an operator shows its own on `DOCUMENTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import termios
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, TypeVar, cast

from .endpoint import Endpoint

STREAM_LIMIT_BYTES: Final = 64 << 10
"""What a `StreamReader` holds before its connection is not read, unless its owner says otherwise."""

UNACKNOWLEDGED_LIMIT_MS: Final = 4_000
"""How long what was sent may stay unacknowledged before a connection is given up and dialled again.

Without it a connection that lost packets for a while waits for TCP's next try, which is as far off as the outage was
long: after a partition of 15 s a link stayed silent for 11.6 s more.
"""

_KEEP_ALIVE_IDLE_S: Final = 2
_KEEP_ALIVE_INTERVAL_S: Final = 1
_KEEP_ALIVE_COUNT: Final = 3
"""When to ask whether the other side is still there, how often, and how many questions may go unanswered.

A machine that loses power sends no last word. Where nothing is sent either, as on a log link that its follower has not
joined yet, the link to it would stay for ever, and nobody would dial again once the machine is back.
"""
_KEEP_ALIVE_OPTIONS: Final = (
    ("TCP_KEEPIDLE", _KEEP_ALIVE_IDLE_S),
    ("TCP_KEEPINTVL", _KEEP_ALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", _KEEP_ALIVE_COUNT),
)

P = TypeVar("P", bound=asyncio.BaseProtocol)
OnStreams = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Runs one accepted connection from its first byte to its last."""


class Purpose(Enum):
    """What a connection is for. One endpoint may serve two: `DOCUMENTS` are asked for at the consensus endpoint."""

    INGRESS = "ingress"
    """Clients and their sessions."""
    CONSENSUS = "consensus"
    """A member's messages to another."""
    DOCUMENTS = "documents"
    """Questions of operators, Spark and other members to a member: status, inspection, operations, snapshots."""
    LOG = "log"
    """The leader's live log to a follower."""
    CATCHUP = "catchup"
    """A replay of the log to a follower that lags behind."""
    ARCHIVE = "archive"
    """Control sessions and replays of an archive."""
    METRICS = "metrics"
    """Scrapers and probes over HTTP."""


class DroppingWriter(asyncio.StreamWriter):
    """Drops what is written once the connection is closing, and the next `drain` raises ConnectionResetError.

    So do writers over asyncio's own transports; those of uvloop raise RuntimeError once the connection is lost.
    """

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, unless nobody is there to read it."""
        if not self.is_closing():
            super().write(data)


class Listener(ABC):
    """An endpoint that is listened on."""

    endpoint: Endpoint
    """The endpoint that was asked for, with the port that the system chose if that was 0."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening; connections stay."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Return once nothing is left of it."""


class NetworkStack(ABC):
    """How a process listens and dials."""

    @abstractmethod
    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept connections, each with a protocol of its own.

        Raises:
            OSError: the endpoint cannot be listened on.
        """

    @abstractmethod
    async def dial(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect; a limit of time is the caller's.

        Raises:
            OSError: the endpoint cannot be reached.
            UnicodeError: its host cannot be a name.
        """

    async def listen_for_streams(
        self, purpose: Purpose, endpoint: Endpoint, on_streams: OnStreams, *, limit_bytes: int = STREAM_LIMIT_BYTES
    ) -> Listener:
        """Accept connections, and run a task with a reader and a writer for each.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        loop = asyncio.get_running_loop()

        def make_protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(
                asyncio.StreamReader(limit=limit_bytes, loop=loop), on_streams, loop=loop
            )

        return await self.listen(purpose, endpoint, make_protocol)

    async def dial_streams(
        self, purpose: Purpose, endpoint: Endpoint, *, limit_bytes: int = STREAM_LIMIT_BYTES
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and return a reader and a writer. Raises as `dial` does."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit_bytes, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.dial(purpose, endpoint, lambda: protocol)
        return reader, DroppingWriter(transport, protocol, reader, loop)


class SocketListener(Listener):
    """The listening sockets of an event loop's server."""

    def __init__(self, server: asyncio.Server, endpoint: Endpoint) -> None:
        self._server = server
        self.endpoint = Endpoint(endpoint.host, server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._server.close()

    async def wait_closed(self) -> None:
        """Return once nothing is left of the server; from Python 3.12 on that includes its connections."""
        await self._server.wait_closed()


class SocketStack(NetworkStack):
    """TCP, by the running event loop."""

    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Listen on every address of the endpoint's host."""
        loop = asyncio.get_running_loop()
        return SocketListener(await loop.create_server(make_protocol, endpoint.host, endpoint.port), endpoint)

    async def dial(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the first address of the endpoint's host that answers."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(make_protocol, endpoint.host, endpoint.port)
        return transport, protocol

    def dial_blocking(self, purpose: Purpose, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """Connect without a loop, for threads that block anyway; `timeout_s` bounds this and each later call.

        Raises:
            OSError: the endpoint cannot be reached.
            UnicodeError: its host cannot be a name.
        """
        return socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)

    def hold(self, endpoint: Endpoint) -> socket.socket:
        """Take a port without listening on it, until the socket is closed: a way to find one that is free.

        Raises:
            OSError: it is taken.
        """
        holder = socket.socket()
        try:
            holder.bind((endpoint.host, endpoint.port))
        except OSError:
            holder.close()
            raise
        return holder


SOCKETS: Final = SocketStack()
"""The stack of a process that was given no other."""


def as_stream_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take a new stream connection, with small writes sent at once: batching is done before the socket, by turns of
    the loop. One whose other side is gone without a word is noticed.

    A cast, not a check: uvloop's transports have the methods but not the base class.
    """
    sock = _find_tcp_socket(transport)
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE_OPTIONS:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return cast(asyncio.Transport, transport)


def as_member_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take a connection to another member: as `as_stream_transport`, and given up when nothing gets through."""
    limit_unacknowledged(transport, UNACKNOWLEDGED_LIMIT_MS)
    return as_stream_transport(transport)


def limit_unacknowledged(transport: asyncio.BaseTransport, limit_ms: int) -> None:
    """Set how long sent bytes may stay unacknowledged until the connection is lost, where the system supports it."""
    sock = _find_tcp_socket(transport)
    if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):  # it was lost just now: `connection_lost` follows
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)


def has_peer_closed(transport: asyncio.BaseTransport, *, if_unread: bool) -> bool:
    """Whether the other side has closed a connection that is not read, so that nobody says so.

    With `if_unread` also where some of what it sent before is unread. False where the system cannot tell: that takes
    Linux. The bytes are those of the socket: on an encrypted connection the peer's notice that it closes is one of the
    unread, so there only `if_unread` tells.
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


def _find_tcp_socket(transport: asyncio.BaseTransport) -> socket.socket | None:
    sock: socket.socket | None = transport.get_extra_info("socket")
    return sock if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) else None
