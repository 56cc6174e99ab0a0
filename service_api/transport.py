"""The transport seam: everything of Trimaran that listens or dials does it through a `NetworkStack`.

There are two stacks. `SocketStack` makes TCP connections with the event loop's own transports, and the simulator's
network is the other one. A process gets its stack from the machine it runs on (`cluster.runtime.host.Host`), a client
from its configuration. No other module of the product makes a socket; a test looks at all of them.

What is accepted passes the process's `ConnectionGate` first, which may refuse it, or end another one for it: before
anything is made for it here.

The seam acts when a connection is made and never again: what a stack gives to a protocol is the loop's own transport,
so a byte that arrives costs nothing more. The socket options of a connection, and the question whether a peer that is
not read has closed, are here, too, because they reach below the transport.

Each call names what the connection is for. That is all that encryption needs: a stack that knows the `ssl.SSLContext`
of each purpose gives it in its own `listening_context` and `dial`, and no caller changes. Certificates belong to the
caller's side of a purpose: a member shows the same identity on `CONSENSUS`, `LOG`, `CATCHUP` and `ARCHIVE`, whichever
side dials, and an operator shows its own on `DOCUMENTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import select
import socket
import termios
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from .connection_purpose import Purpose as Purpose
from .endpoint import Endpoint

if TYPE_CHECKING:
    import ssl

    from .connection_gate import AcceptedConnection, ConnectionGate

LISTEN_BACKLOG: Final = 4_096
"""Connections that the kernel completes before they are accepted; it caps this at its own limit (`somaxconn`)."""

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

_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long an accepted connection may take to agree on encryption."""

_ACCEPT_LIMIT: Final = 64
"""Connections that one endpoint accepts in a pass of the loop, so that others have their turn."""

_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""What `accept` says when the system has nothing left to give."""

P = TypeVar("P", bound=asyncio.BaseProtocol)
MakeProtocol = Callable[["AcceptedConnection"], asyncio.BaseProtocol]
"""Makes the protocol of an accepted connection, which has to `attach` the transport and to `leave` in the end."""
OnStreams = Callable[["AcceptedConnection", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Runs one accepted connection from its first byte to its last."""


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
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> Listener:
        """Accept the connections that the gate lets in, each with a protocol of its own.

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
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        on_streams: OnStreams,
        *,
        gate: ConnectionGate,
        limit_bytes: int = STREAM_LIMIT_BYTES,
    ) -> Listener:
        """Accept the connections that the gate lets in, and run a task with a reader and a writer for each.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        loop = asyncio.get_running_loop()

        def make_protocol(accepted: AcceptedConnection) -> asyncio.StreamReaderProtocol:
            return _AcceptedStreams(accepted, asyncio.StreamReader(limit=limit_bytes, loop=loop), on_streams)

        return await self.listen(purpose, endpoint, make_protocol, gate=gate)

    async def dial_streams(
        self, purpose: Purpose, endpoint: Endpoint, *, limit_bytes: int = STREAM_LIMIT_BYTES
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and return a reader and a writer. Raises as `dial` does."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit_bytes, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.dial(purpose, endpoint, lambda: protocol)
        return reader, DroppingWriter(transport, protocol, reader, loop)


class _AcceptedStreams(asyncio.StreamReaderProtocol):
    """Reader and writer of an accepted connection."""

    def __init__(self, accepted: AcceptedConnection, reader: asyncio.StreamReader, on_streams: OnStreams) -> None:
        super().__init__(reader, partial(on_streams, accepted), loop=asyncio.get_running_loop())
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the gate has ended it meanwhile."""
        self._accepted.attach(cast(asyncio.Transport, transport))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the gate."""
        self._accepted.leave()
        super().connection_lost(exc)


class SocketListener(Listener):
    """Listening sockets of one endpoint, and the connections that are being made of what they accept.

    Not a server of the loop: the gate has to be asked before there is a transport, and where descriptors have run out
    the loop's own servers stop for a second (asyncio), or close whatever comes (uvloop), members as well.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: MakeProtocol,
        gate: ConnectionGate,
        encryption: ssl.SSLContext | None,
    ) -> None:
        self.endpoint = Endpoint(endpoint.host, sockets[0].getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._purpose, self._make_protocol, self._gate = purpose, make_protocol, gate
        self._encryption = encryption
        self._making: dict[asyncio.Task[None], None] = {}
        for sock in sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def __repr__(self) -> str:
        return f"<SocketListener {self._purpose.value} {self.endpoint}>"

    def close(self) -> None:
        """Stop listening; connections stay."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets = []

    async def wait_closed(self) -> None:
        """Return once every connection that was accepted is made."""
        if self._making:
            await asyncio.wait(list(self._making))

    def _accept(self, listening: socket.socket) -> None:
        """Accept what has come, a number of connections at most."""
        for _ in range(_ACCEPT_LIMIT):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                if not self._accept_without_descriptor(listening):
                    return
                continue
            self._begin(sock, peer)

    def _accept_without_descriptor(self, listening: socket.socket) -> bool:
        """Have a descriptor freed, and accept with that; a connection that may not have it is closed at once.

        Whether there may be more to accept.
        """
        may_have_it = self._gate.on_out_of_descriptors(self._purpose)
        try:
            sock, peer = listening.accept()
        except OSError:
            return False
        if may_have_it:
            self._begin(sock, peer)
        else:
            sock.close()
            self._gate.renew_spares()
        return True

    def _begin(self, sock: socket.socket, peer: object) -> None:
        accepted = self._gate.enter(self._purpose, peer)
        if accepted is None:
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._make(sock, accepted))
        self._making[task] = None
        task.add_done_callback(self._making.pop)

    async def _make(self, sock: socket.socket, accepted: AcceptedConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make_protocol, accepted),
                sock,
                ssl=self._encryption,
                ssl_handshake_timeout=None if self._encryption is None else _HANDSHAKE_TIMEOUT_S,
            )
        except OSError:  # it was reset meanwhile
            accepted.leave()
            sock.close()


class SocketStack(NetworkStack):
    """TCP, by the running event loop."""

    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> Listener:
        """Listen on every address of the endpoint's host."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                port = sockets[0].getsockname()[1] if sockets else endpoint.port
                sock = socket.socket(family, kind, protocol)
                sockets.append(sock)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    sock.bind((address[0], port, *address[2:]))
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL or len(found) == 1:
                        raise
                    sockets.pop().close()  # a name may have an address of a family that this machine does not use
                    continue
                sock.listen(LISTEN_BACKLOG)
            if not sockets:
                raise OSError(errno.EADDRNOTAVAIL, f"no address of this machine: {endpoint}")
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        return SocketListener(sockets, purpose, endpoint, make_protocol, gate, self.listening_context(purpose))

    def listening_context(self, purpose: Purpose) -> ssl.SSLContext | None:
        """Return what encrypts the connections that are accepted; None: nothing does."""
        return None

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
