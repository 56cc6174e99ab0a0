"""Sockets at what a name resolves to: each address has its turn, and no address is remembered."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvloop

from tests.waiting import wait_until, within
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net import sockets, transport
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.sockets import NameUnresolvedError, connect_any, open_listening_sockets, resolve
from trimaran.service_api.net.transport import SOCKETS, Purpose


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of each name, for a resolver in place of the system's."""
    known: dict[str, list[str]] = {}

    async def look_up(endpoint: Endpoint, *, passive: bool = False) -> list[sockets.Address]:
        return [(socket.AF_INET, (address, endpoint.port)) for address in known[endpoint.host]]

    monkeypatch.setattr(sockets, "resolve", look_up)
    return known


@contextmanager
def listening(address: str, port: int = 0, backlog: int = 8) -> Iterator[int]:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(backlog)
        yield sock.getsockname()[1]


@contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """An address that takes no connection and refuses none: its backlog is full."""
    with listening(address, port, backlog=0):
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((address, port))
        yield
        for filler in fillers:
            filler.close()


async def test_an_address_in_use_is_waited_for() -> None:
    """A member did not start because a dial, or a process that ends, had its port for a moment."""
    with listening("127.0.0.1") as port:
        opening = asyncio.create_task(
            open_listening_sockets(Endpoint("127.0.0.1", port), backlog=1, on_bound=lambda _: None)
        )
        await asyncio.sleep(0)
        assert not opening.done()

    async with within(30.0):
        (sock,) = await opening
    with closing(sock):
        assert sock.getsockname()[1] == port


async def test_an_address_that_stays_in_use_is_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "BIND_TIMEOUT_S", 0.01)

    with listening("127.0.0.1") as port, pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        await open_listening_sockets(Endpoint("127.0.0.1", port), backlog=1, on_bound=lambda _: None)


def is_free(port: int) -> bool:
    try:
        with listening("127.0.0.1", port):
            return True
    except OSError:
        return False


@contextmanager
def connected_to_itself() -> Iterator[socket.socket]:
    """The connection of a dial that the kernel gave the very port that it dialled."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        yield sock


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_dial_that_reaches_itself_is_refused_and_gives_the_port_back(
    run: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the port of a dead neighbour, which could not start again, and waited for its own answers."""

    async def dial(sock: socket.socket) -> None:
        async def connect(_: Endpoint) -> socket.socket:
            dialled = socket.socket(fileno=sock.detach())
            dialled.setblocking(False)
            return dialled

        monkeypatch.setattr(transport, "connect_any", connect)
        with pytest.raises(ConnectionRefusedError):
            await SOCKETS.dial(Purpose.LOG, Endpoint("localhost", 1), asyncio.Protocol)
        await wait_until(lambda: is_free(port), timeout_s=10.0, what="the port to be free")

    with connected_to_itself() as sock:
        port = sock.getsockname()[1]
        run(dial(sock))


def test_a_blocking_dial_that_reaches_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected_to_itself() as sock:
        monkeypatch.setattr(socket, "create_connection", lambda address, timeout: sock)

        with pytest.raises(ConnectionRefusedError):
            SOCKETS.dial_blocking(Purpose.LOG, Endpoint("127.0.0.1", 1), 1.0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("first", ["refuses", "is silent"])
def test_an_address_that_does_not_answer_leaves_the_turn_to_the_next(
    run: Callable[[Coroutine[Any, Any, str]], str], first: str, addresses: dict[str, list[str]]
) -> None:
    addresses["member-0"] = ["127.0.0.3", "127.0.0.2"]

    async def connect(port: int) -> str:
        async with within(20):
            with closing(await connect_any(Endpoint("member-0", port))) as sock:
                return str(sock.getpeername()[0])

    with listening("127.0.0.2") as port:
        if first == "refuses":
            assert run(connect(port)) == "127.0.0.2"
        else:
            with silent("127.0.0.3", port):
                assert run(connect(port)) == "127.0.0.2"


async def test_where_all_refuse_the_error_is_theirs(addresses: dict[str, list[str]]) -> None:
    addresses["member-0"] = ["127.0.0.3", "127.0.0.2"]
    with listening("127.0.0.2") as port:
        pass  # free again, and nobody listens

    with pytest.raises(ConnectionRefusedError):
        await connect_any(Endpoint("member-0", port))


async def test_a_member_that_moved_is_found_at_the_next_dial(addresses: dict[str, list[str]]) -> None:
    """Nothing remembers an address: the seam resolves a name at each dial."""

    async def peer(port: int) -> str:
        transport, _ = await SOCKETS.dial(Purpose.LOG, Endpoint("member-0", port), asyncio.Protocol)
        with closing(transport):
            return str(transport.get_extra_info("peername")[0])

    with listening("127.0.0.2") as port, listening("127.0.0.3", port):
        addresses["member-0"] = ["127.0.0.2"]
        assert await peer(port) == "127.0.0.2"
        addresses["member-0"] = ["127.0.0.3"]
        assert await peer(port) == "127.0.0.3"


async def test_a_dial_that_is_given_up_leaves_no_socket(addresses: dict[str, list[str]]) -> None:
    addresses["member-0"] = ["127.0.0.3"]
    with listening("127.0.0.3") as port:
        pass
    with silent("127.0.0.3", port), pytest.raises(TimeoutError):
        async with within(0.05):  # a socket that is not closed would be a warning, and a warning an error
            await connect_any(Endpoint("member-0", port))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64, "a..b"])
async def test_a_name_without_an_address_is_told_by_name(host: str) -> None:
    with pytest.raises(NameUnresolvedError, match=f"host={host}") as caught:
        await resolve(Endpoint(host, 9000))

    assert caught.value.errno == errno.EADDRNOTAVAIL


async def test_what_may_not_be_bound_is_never_listened_on() -> None:
    bound: list[Endpoint] = []

    def refuse(endpoint: Endpoint) -> None:
        bound.append(endpoint)
        raise PermissionError

    with pytest.raises(PermissionError):
        await open_listening_sockets(Endpoint("0.0.0.0", 0), backlog=1, on_bound=refuse)

    assert [endpoint.host for endpoint in bound] == ["0.0.0.0"]
    with pytest.raises(ConnectionRefusedError):
        await SOCKETS.dial(Purpose.LOG, Endpoint("127.0.0.1", bound[0].port), asyncio.Protocol)


async def test_ipv6_addresses_are_listened_on_and_dialled() -> None:
    endpoint = Endpoint.parse("[::1]:0", may_be_ephemeral=True)
    listener = await SOCKETS.listen(Purpose.LOG, endpoint, lambda _: asyncio.Protocol(), gate=ConnectionGate())

    transport, _ = await SOCKETS.dial(Purpose.LOG, listener.endpoint, asyncio.Protocol)

    assert str(listener.endpoint) == f"[::1]:{transport.get_extra_info('peername')[1]}"
    transport.close()
    listener.close()
