"""Sockets at what a name resolves to, for the transport seam.

A name is resolved at each call, and nothing here remembers an address: a member that has moved is found at the next
dial. Where a name has several addresses they are tried at intervals, the next one without waiting for the end of the
one before: an address that does not answer at all costs a quarter of a second, not the whole time of the dial.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..endpoint import Endpoint

ADDRESS_LIMIT: Final = 16
"""A dial tries no more addresses of one name."""
_STAGGER_S: Final = 0.25
"""Between the beginnings of two attempts, as in RFC 8305."""

BIND_TIMEOUT_S: Final = 5.0
"""How long an address that is in use is waited for: a dial to a dead neighbour, or a process that ends, may have it."""
_BIND_INTERVAL_S: Final = 0.1

Address = tuple[socket.AddressFamily, Any]  # the second as sockets of that family take it
OnBound = Callable[[Endpoint], None]
"""Told of each address that is bound, before it is listened on; it raises what forbids that."""


class NameUnresolvedError(OSError):
    """A host name has no address; the text says which name."""


async def resolve(endpoint: Endpoint, *, passive: bool = False) -> list[Address]:
    """Look up the addresses of an endpoint's host now; `passive` for those to listen on.

    Raises:
        NameUnresolvedError: it has none, or who would know does not answer.
    """
    loop = asyncio.get_running_loop()
    flags = socket.AI_PASSIVE if passive else 0
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "it cannot be a name"
        raise NameUnresolvedError(errno.EADDRNOTAVAIL, f"host={endpoint.host} does not resolve: {reason}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def open_listening_sockets(endpoint: Endpoint, *, backlog: int, on_bound: OnBound) -> list[socket.socket]:
    """Listen on every address of the endpoint's host; with port 0 all have the port that the first one got.

    An address that is in use is tried again for `BIND_TIMEOUT_S`.

    Raises:
        OSError: none of them is this machine's, or one cannot be had.
    """
    deadline_s = asyncio.get_running_loop().time() + BIND_TIMEOUT_S
    found = await resolve(endpoint, passive=True)
    sockets: list[socket.socket] = []
    try:
        for family, address in found:
            port = sockets[0].getsockname()[1] if sockets else endpoint.port
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                await _bind(sock, (address[0], port, *address[2:]), deadline_s)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or len(found) == 1:
                    raise
                sockets.pop().close()  # a name may have an address of a family that this machine does not use
                continue
            on_bound(Endpoint(*sock.getsockname()[:2]))
            sock.listen(backlog)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"no address of this machine: {endpoint}")
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


async def _bind(sock: socket.socket, address: Any, deadline_s: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() >= deadline_s:
                raise
        else:
            return
        await asyncio.sleep(_BIND_INTERVAL_S)


async def connect_any(endpoint: Endpoint) -> socket.socket:
    """Connect to whichever address of the endpoint's host answers first; those listed first begin first.

    Raises:
        OSError: none answers; where they fail in different ways the text has each.
    """
    addresses = (await resolve(endpoint))[:ADDRESS_LIMIT]
    race = _Race()
    try:
        await race.run(addresses)
    except BaseException:
        race.close()
        raise
    if race.winner is None:
        raise _sum_up(race.failures, addresses)
    return race.winner


class _Race:
    """Attempts to connect, of which the first to succeed counts."""

    def __init__(self) -> None:
        self.winner: socket.socket | None = None
        self.failures: list[OSError] = []
        self._ended = asyncio.Event()

    async def run(self, addresses: Sequence[Address]) -> None:
        """Begin an attempt at intervals, or when one fails, until one succeeds or all have failed."""
        async with asyncio.TaskGroup() as group:
            attempts = []
            for address in addresses:
                self._ended.clear()
                attempts.append(group.create_task(self._attempt(*address)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STAGGER_S):
                        await self._ended.wait()
                if self.winner is not None:
                    break
            while self.winner is None and len(self.failures) < len(attempts):
                self._ended.clear()
                await self._ended.wait()
            for attempt in attempts:
                attempt.cancel()

    async def _attempt(self, family: socket.AddressFamily, address: Any) -> None:
        sock = socket.socket(family, socket.SOCK_STREAM)
        is_kept = False
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
            is_kept = self.winner is None
            self.winner = self.winner or sock
        except OSError as error:
            self.failures.append(error)
        finally:
            if not is_kept:
                sock.close()
            self._ended.set()

    def close(self) -> None:
        """Give up what has succeeded."""
        if self.winner is not None:
            self.winner.close()


def _sum_up(failures: Sequence[OSError], addresses: Sequence[Address]) -> OSError:
    first = failures[0]
    if all(failure.errno == first.errno for failure in failures):
        return first
    tried = ", ".join(str(address[0]) for _, address in addresses)
    reasons = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    return OSError(first.errno, f"none of {tried} answers: {reasons}")
