"""The connections of a client to members: sockets, and what conductors and links share of them.

`MemberConnection` reads into one big buffer, which all connections of an event loop share, and hands views of it to its
owner.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final, Protocol, cast
from weakref import WeakKeyDictionary

from ..service_api.endpoint import Endpoint
from ..service_api.errors import ClusterError
from ..service_api.net.sockets import NameUnresolvedError
from ..service_api.net.transport import UNACKNOWLEDGED_LIMIT_MS, Purpose, limit_unacknowledged
from .config import ClientConfig
from .protocol.session_identity import SessionShare

_HELD_BACK_LIMIT_MS: Final = 30_000
"""`UNACKNOWLEDGED_LIMIT_MS` while the socket is full: TCP counts a member that holds its clients back as one that does
not answer."""

_buffers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, memoryview]]] = WeakKeyDictionary()
"""Of each running loop, by length: see `shared_buffer`."""


def shared_buffer(loop: asyncio.AbstractEventLoop, length: int) -> memoryview:
    """Return the buffer of this length that all connections of a loop receive into.

    The loop asks for a buffer and reports what it put there without anything in between, so one is enough; what is
    left of an incomplete frame each connection keeps for itself. With a buffer of 256 KiB for each connection, 10,000
    sessions of one process with three members would take 7.7 GB.
    """
    buffers = _buffers.setdefault(loop, {})
    if length not in buffers:
        buffers[length] = memoryview(bytearray(length))
    return buffers[length]


class Connection(Protocol):
    """What a conductor has of a connection: a socket's, or a part of one that sessions share."""

    connection_id: int
    lost: asyncio.Future[None]
    """Done once it has come to its end."""

    @property
    def is_writable(self) -> bool:
        """Whether what is written now is sent soon."""

    @property
    def unsent_bytes(self) -> int:
        """What was written and the system has not taken; without bound once the connection fails."""

    def write(self, data: bytearray) -> None:
        """Send bytes; they must not change afterwards."""

    def set_reading(self, is_reading: bool) -> None:
        """Read, or leave the bytes in the socket."""

    def abort(self) -> None:
        """Close without waiting for anything."""


class ConnectionOwner(Protocol):
    """Whose a connection to a member is."""

    def on_connected(self, connection: MemberConnection) -> None:
        """Take a dialled connection into use."""

    def on_received(self, connection: MemberConnection, data: memoryview) -> int:
        """Handle the whole frames at the beginning of `data`; return how many bytes they took."""

    def on_lost(self, connection_id: int, reason: str) -> None:
        """Note the end of a connection."""

    def flush(self) -> None:
        """Write what waits."""


class ConnectionShare(Protocol):
    """What a conductor has of the connections that its session shares with others."""

    @property
    def session(self) -> SessionShare:
        """What tells the session apart."""

    def defer(self, call: Callable[[], None]) -> None:
        """Call a function at the end of this turn of the loop, before what the sessions have written is sent."""

    async def attach(self, connection_id: int, endpoint: str) -> Connection:
        """Return the session's part of the connection to an endpoint, once that stands.

        Raises:
            OSError: the endpoint cannot be reached.
        """

    def look(self) -> None:
        """Look at the session: its state may have changed."""


class MemberConnection(asyncio.BufferedProtocol):
    """One connection to a member: received bytes go into one buffer that never grows."""

    def __init__(self, owner: ConnectionOwner, connection_id: int, *, receive_buffer_bytes: int) -> None:
        self.connection_id = connection_id
        self.is_writable = False
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._buffer = shared_buffer(loop, receive_buffer_bytes)
        self._carry = b""
        """The beginning of a frame whose end has not come."""
        self._transport: asyncio.Transport | None = None

    def __repr__(self) -> str:
        return f"<MemberConnection {self.connection_id} writable={self.is_writable}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to talk."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        limit_unacknowledged(self._transport, UNACKNOWLEDGED_LIMIT_MS)
        self.is_writable = True
        self._owner.on_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the reason to the protocol, once."""
        self.is_writable = False
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        self._owner.on_lost(self.connection_id, describe_connection_error(exc) if exc else "closed by the member")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Offer the free end of the buffer; never empty, for it is longer than the longest frame."""
        carried = len(self._carry)
        if not carried:
            return self._buffer
        self._buffer[:carried] = self._carry
        return self._buffer[carried:]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the whole frames and keep the beginning of the next one."""
        filled = len(self._carry) + nbytes
        consumed = self._owner.on_received(self, self._buffer[:filled])
        self._carry = bytes(self._buffer[consumed:filled]) if consumed != filled else b""

    def pause_writing(self) -> None:
        """Keep what is offered: the socket is full."""
        self.is_writable = False
        self._limit_unacknowledged(_HELD_BACK_LIMIT_MS)

    def resume_writing(self) -> None:
        """Write what was kept."""
        self.is_writable = True
        self._limit_unacknowledged(UNACKNOWLEDGED_LIMIT_MS)
        self._owner.flush()

    def write(self, data: bytearray) -> None:
        """Write bytes to the socket, unless it has failed; they must not change afterwards."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        """What was written and the system has not taken; without bound once the connection fails.

        A transport that fails empties its buffer at once, and calls `connection_lost` later.
        """
        if self._transport is None or self._transport.is_closing():
            return sys.maxsize
        return self._transport.get_write_buffer_size()

    def set_reading(self, is_reading: bool) -> None:
        """Read, or leave the bytes in the socket so that the member feels it."""
        if self._transport is None or self._transport.is_closing():
            return
        if is_reading and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not is_reading and self._transport.is_reading():
            self._transport.pause_reading()

    def close(self) -> None:
        """Close once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def _limit_unacknowledged(self, limit_ms: int) -> None:
        if self._transport is not None:
            limit_unacknowledged(self._transport, limit_ms)


async def dial_member(owner: ConnectionOwner, connection_id: int, endpoint: str, config: ClientConfig) -> None:
    """Connect to a member; the owner gets the connection.

    Raises:
        OSError: the endpoint cannot be reached.
    """
    await config.network.dial(
        Purpose.INGRESS,
        Endpoint.parse(endpoint),
        lambda: MemberConnection(owner, connection_id, receive_buffer_bytes=config.receive_buffer_bytes),
    )


def describe_connection_error(error: BaseException) -> str:
    """Return what went wrong with a socket, in a few words."""
    if isinstance(error, ClusterError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, NameUnresolvedError):
        return str(error.strerror)
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0:
        return os.strerror(code).lower()
    return str(error) or type(error).__name__
