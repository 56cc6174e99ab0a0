"""The transport seam: what it does on sockets, and that nothing goes past it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest
import uvloop

from tests.places import ROOT
from tests.tls import Issuer
from tests.waiting import passes, until, within
from trimaran.service_api.access.identity import LOCAL_OPERATOR
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net import local_socket, transport
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from trimaran.service_api.net.transport import (
    SOCKETS,
    NetworkStack,
    Purpose,
    as_accepted_transport,
    as_member_transport,
    has_peer_closed,
    limit_unacknowledged,
)
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.types import MemberId

ANY_PORT: Final = Endpoint("127.0.0.1", 0)
PRODUCT: Final = ("archive", "client", "cluster", "service_api")
SEAM: Final = "service_api/net/transport.py"
LOCAL_SEAM: Final = "service_api/net/local_socket.py"
"""Makes the control sockets for the seam."""
ADDRESS_SEAM: Final = "service_api/net/sockets.py"
"""Resolves names, and makes the sockets at what they resolve to, for the seam."""
CALLS: Final = frozenset(
    {
        "create_connection",
        "create_datagram_endpoint",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "open_connection",
        "open_unix_connection",
        "socketpair",
        "start_server",
        "start_tls",
        "start_unix_server",
    }
)
"""What makes a connection or listens for one, by whichever object it is called."""
MODULES: Final = frozenset({"http", "select", "selectors", "socket", "socketserver", "ssl", "urllib.request"})
USERS_OF_SOCKET: Final = {"archive/spark/session.py", "cluster/testing/simulation/world/network.py"}
"""These use names of `socket` alone: whether a kind of socket exists, and which options a transport is given."""
LOG_LINES: Final = "service_api/log_lines.py"
"""Asks whether a line can be written without waiting."""
OUTSIDE_SEAM: Final = "service_api/tls/outside.py"
"""Dials servers that are none of the cluster's."""
MAKERS_OF_CONTEXTS: Final = {
    "service_api/tls/credentials.py": ["ssl"],
    "service_api/tls/hello.py": ["ssl"],
    "service_api/tls/stack.py": ["socket", "ssl"],
}
"""These give the seam what it encrypts with; of `socket` they name the type that it returns."""


def calls_past_the_seam(source: str) -> list[str]:
    """Name what a module calls or imports that makes connections."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLS or ast.unparse(node.func) == "socket.socket":
                found.append(ast.unparse(node.func))
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in MODULES:
            found.append(node.module)
    return found


def test_nothing_in_the_product_listens_or_dials_past_the_seam() -> None:
    files = {str(file.relative_to(ROOT)): file for name in PRODUCT for file in (ROOT / name).rglob("*.py")}
    past = {name: calls_past_the_seam(file.read_text(encoding="utf-8")) for name, file in files.items()}

    assert len(files) > 300
    assert {"loop.create_connection", "socket.socket"} <= set(past.pop(SEAM))
    assert {*past.pop(LOCAL_SEAM)} == {*past.pop(ADDRESS_SEAM)} == {"socket", "socket.socket"}
    assert {*past.pop(OUTSIDE_SEAM)} == {"ssl", "asyncio.open_connection"}
    assert {name: past.pop(name) for name in MAKERS_OF_CONTEXTS} == MAKERS_OF_CONTEXTS
    assert past.pop(LOG_LINES) == ["select"]
    assert {name: found for name, found in past.items() if found and name not in USERS_OF_SOCKET} == {}
    assert {name: past[name] for name in USERS_OF_SOCKET} == {name: ["socket"] for name in USERS_OF_SOCKET}


@pytest.mark.parametrize(
    "source",
    [
        "await loop.create_connection(f, 'h', 1)",
        "await asyncio.open_connection('h', 1)",
        "asyncio.start_server(f, 'h', 1)",
        "self._loop().create_server(f)",
        "import socket",
        "from socket import socket",
        "import urllib.request",
    ],
)
def test_a_way_past_the_seam_would_be_found(source: str) -> None:
    assert calls_past_the_seam(source)


@asynccontextmanager
async def echoing() -> AsyncIterator[Endpoint]:
    async def echo(accepted: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    listener = await SOCKETS.listen_for_streams(Purpose.ARCHIVE, Endpoint("127.0.0.1", 0), echo, gate=ConnectionGate())
    try:
        yield listener.endpoint
    finally:
        listener.close()
        await listener.wait_closed()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_streams_and_threads_reach_what_is_listened_on(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    def ask(endpoint: Endpoint) -> bytes:
        with SOCKETS.dial_blocking(Purpose.ARCHIVE, endpoint, 20) as connection:
            connection.sendall(b"thread")
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(100)

    async def main() -> None:
        async with echoing() as endpoint:
            assert endpoint.port
            reader, writer = await SOCKETS.dial_streams(Purpose.ARCHIVE, endpoint)
            writer.write(b"stream")
            writer.write_eof()
            assert await reader.read() == b"STREAM"
            writer.close()
            assert await asyncio.to_thread(ask, endpoint) == b"THREAD"
        with pytest.raises(ConnectionRefusedError):
            await SOCKETS.dial(Purpose.ARCHIVE, endpoint, asyncio.Protocol)

    run(main())


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_whose_dial_is_cancelled_as_it_is_made_is_told_as_lost(
    run: Callable[[Coroutine[Any, Any, None]], None], has_tls: bool, tmp_path: Path
) -> None:
    """uvloop closed it without a word: the link counted as up, and the next message to that member ended the node.

    Found by `make chaos`: seed 21, round 1 of `--modes membership`.
    """
    stack: NetworkStack = TlsStack(Issuer.create(tmp_path).member(0), member_id=MemberId(0)) if has_tls else SOCKETS
    events: list[str] = []
    dials: list[asyncio.Task[Any]] = []  # as `dial` gives them

    class Watching(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            events.append("made")
            asyncio.get_running_loop().call_soon(dials[0].cancel)  # runs before the dial hears of the connection

        def connection_lost(self, exc: Exception | None) -> None:
            events.append("lost")

    async def main() -> None:
        listener = await stack.listen(Purpose.LOG, ANY_PORT, lambda accepted: asyncio.Protocol(), gate=ConnectionGate())
        dials.append(asyncio.create_task(stack.dial(Purpose.LOG, listener.endpoint, Watching, member_id=MemberId(0))))
        async with within(20):
            with pytest.raises(asyncio.CancelledError):
                await dials[0]
        await until(lambda: "lost" in events)
        listener.close()
        await listener.wait_closed()

    run(main())

    assert events == ["made", "lost"]


def test_a_port_that_is_held_is_not_free_and_nobody_listens_there() -> None:
    with SOCKETS.hold(Endpoint("127.0.0.1", 0)) as holder:
        endpoint = Endpoint(*holder.getsockname())
        with pytest.raises(OSError, match="in use"):
            SOCKETS.hold(endpoint)
        with pytest.raises(ConnectionRefusedError):
            SOCKETS.dial_blocking(Purpose.ARCHIVE, endpoint, 20)
    SOCKETS.hold(endpoint).close()


class Connection(asyncio.Protocol):
    """One end of a connection, and a future of its transport."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(as_accepted_transport(transport))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.Transport, asyncio.Transport]]:
    """The dialled and the accepted end of a connection."""
    theirs = Connection()
    listener = await SOCKETS.listen(Purpose.LOG, ANY_PORT, lambda accepted: theirs, gate=ConnectionGate())
    dialled, _ = await SOCKETS.dial(Purpose.LOG, listener.endpoint, asyncio.Protocol)
    accepted = await theirs.made
    assert isinstance(accepted, asyncio.Transport)
    yield dialled, accepted
    dialled.close()
    accepted.close()
    listener.close()
    await listener.wait_closed()


async def test_the_silent_end_of_the_other_machine_is_noticed_on_every_connection() -> None:
    """Found by simulation: a log link that nobody had joined stayed up for ever when the follower lost power."""
    async with connected() as (dialled, accepted):
        as_member_transport(dialled)

        for transport in (dialled, accepted):
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            interval_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            count = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert idle_s + interval_s * count <= 10


async def test_a_limit_of_silence_can_be_changed_and_a_closed_connection_is_no_error() -> None:
    async with connected() as (dialled, _):
        option = socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
        sock = dialled.get_extra_info("socket")
        limit_unacknowledged(dialled, 1_000)
        assert sock.getsockopt(*option) == 1_000
        limit_unacknowledged(dialled, 30_000)
        assert sock.getsockopt(*option) == 30_000

        dialled.abort()
        await asyncio.sleep(0)
        limit_unacknowledged(dialled, 1_000)


async def test_a_peer_that_closed_is_seen_although_nothing_is_read() -> None:
    async with connected() as (dialled, accepted):
        accepted.pause_reading()
        assert not has_peer_closed(accepted, if_unread=True)
        dialled.write(b"unread")
        dialled.close()
        await until(lambda: has_peer_closed(accepted, if_unread=True))
        assert not has_peer_closed(accepted, if_unread=False)


class Second(asyncio.Protocol):
    """Has a connection from its second byte on."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class BufferedSecond(asyncio.BufferedProtocol):
    """The same, with a buffer that is smaller than what comes; a view, for asyncio's TLS writes into slices of it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self._buffer = memoryview(bytearray(10))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class First(asyncio.Protocol):
    """Gives its connection away, with what came, at the first byte; and says so on it."""

    def __init__(self, accepted: AcceptedConnection, second: Second | BufferedSecond) -> None:
        self._accepted, self._second = accepted, second

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_accepted_transport(transport)
        self._accepted.attach(self._transport)

    def data_received(self, data: bytes) -> None:
        assert not self._second.data, "the connection is the second one's"
        self._second.data += data
        self._transport.set_protocol(self._second)
        self._transport.write(b"handed on")

    def connection_lost(self, exc: Exception | None) -> None:
        self._second.events.append("lost by the first")


async def hand_on(stack: NetworkStack, second: Second | BufferedSecond, directory: Path | None) -> None:
    def make_first(accepted: AcceptedConnection) -> First:
        return First(accepted, second)

    purpose, gate = Purpose.CONSENSUS if directory is None else Purpose.DOCUMENTS, ConnectionGate()
    if directory is None:
        listener = await stack.listen(purpose, ANY_PORT, make_first, gate=gate)
    else:
        local = await stack.listen_locally(directory, Endpoint("127.0.0.1", 9_001), make_first, gate=gate)
        assert local is not None
        listener = local
    reader, writer = await stack.dial_streams(purpose, listener.endpoint, member_id=MemberId(0))
    async with within(20):
        writer.write(b"first ")
        assert await reader.readexactly(9) == b"handed on"
        for number in range(100):
            writer.write(b"%d " % number)
        writer.close()
        await until(lambda: bool(second.events))
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize("kind", ["plain", "tls", "control socket"])
@pytest.mark.parametrize("make_second", [Second, BufferedSecond])
@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_protocol_that_receives_may_hand_its_connection_to_another_kind(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    make_second: type[Second | BufferedSecond],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Links of members begin with a greeting, and go on with the protocol that it names."""
    monkeypatch.setattr(local_socket, "runtime_directories", lambda: [tmp_path / "runtime"])
    stack = TlsStack(Issuer.create(tmp_path).member(0), member_id=MemberId(0)) if kind == "tls" else SOCKETS
    second = make_second()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(hand_on(stack, second, tmp_path if kind == "control socket" else None))

    assert second.data == b"first " + b"".join(b"%d " % number for number in range(100))
    assert second.events == ["lost"]


async def close_while_connections_are_made() -> None:
    """Close an endpoint at each step of a connection from the accept on: none goes on without its owner."""
    loop, left = asyncio.get_running_loop(), ConnectionGate()
    for turns in range(6):
        made: list[asyncio.BaseTransport] = []

        class Owned(asyncio.Protocol):
            def __init__(self, accepted: AcceptedConnection) -> None:
                self.accepted = accepted
                accepted.end = self.refuse

            def refuse(self, reason: str) -> None:
                """Owners say why on the connection: they need it to be made."""
                raise AssertionError(reason)

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.accepted.attach(as_accepted_transport(transport))
                made.append(transport)  # noqa: B023  # it is of this pass

            def connection_lost(self, exc: Exception | None) -> None:
                self.accepted.leave()

        listener = await SOCKETS.listen(Purpose.INGRESS, ANY_PORT, Owned, gate=left)
        with socket.create_connection((listener.endpoint.host, listener.endpoint.port)) as dialled:
            dialled.setblocking(False)
            await until(lambda: left.count(Purpose.INGRESS))
            await passes(turns)
            listener.close()
            for transport in made:  # what an owner does: those it knows
                cast(asyncio.Transport, transport).abort()
            async with within(20):
                with contextlib.suppress(ConnectionResetError):
                    assert await loop.sock_recv(dialled, 1) == b"", f"turns={turns}"
        await listener.wait_closed()
        await until(lambda: not left.count(Purpose.INGRESS))


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_connection_that_was_accepted_and_is_not_made_ends_with_its_endpoint(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A member that starts again in its process kept it: peers spoke to the one before, and waited for ever."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(close_while_connections_are_made())


async def break_dialled_streams() -> None:
    """Write to a peer that has gone until the loop knows, then once more, and drain."""

    async def hang_up(accepted: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    listener = await SOCKETS.listen_for_streams(Purpose.CATCHUP, ANY_PORT, hang_up, gate=ConnectionGate())
    try:
        _, writer = await SOCKETS.dial_streams(Purpose.CATCHUP, listener.endpoint)

        def write_on() -> bool:
            writer.write(b"x" * 1_000)
            return writer.is_closing()

        await until(write_on)
        await passes(3)  # the loop closes its handle in passes of its own

        writer.write(b"x")
        with pytest.raises(ConnectionError):
            await writer.drain()
    finally:
        listener.close()
        await listener.wait_closed()


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_what_is_written_after_the_connection_is_lost_is_dropped_and_drain_says_so(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A leader replays to a follower that closes between two chunks; uvloop's own transport raises RuntimeError."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(break_dialled_streams())


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_control_socket_lets_in_processes_of_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """The two ends are one process here: what the kernel says of the peer is what the test says, on the member's side.

    tests/system/test_access.py has a process of another user.
    """
    monkeypatch.setattr(local_socket, "runtime_directories", lambda: [tmp_path / "runtime"])
    monkeypatch.setattr(transport, "is_own_peer", lambda sock: is_own)
    gate, endpoint = ConnectionGate(), Endpoint("127.0.0.1", 9001)
    callers = []

    def make_protocol(accepted: AcceptedConnection) -> asyncio.Protocol:
        callers.append((accepted.caller, accepted.knows_caller, accepted.address))
        return asyncio.Protocol()

    listener = await SOCKETS.listen_locally(tmp_path, endpoint, make_protocol, gate=gate)
    assert listener is not None
    reader, writer = await SOCKETS.dial_streams(Purpose.DOCUMENTS, endpoint)
    if is_own:
        await until(lambda: callers)
    else:
        async with within(20):
            assert await reader.read() == b""
    writer.close()
    listener.close()
    await listener.wait_closed()

    assert callers == ([(LOCAL_OPERATOR, True, "local")] if is_own else [])
    assert gate.refused_counts == ({} if is_own else {("documents", "foreign_user"): 1})
