"""The transport seam: everything of Trimaran that listens or dials does it through a `NetworkStack`.

There are two stacks. `SocketStack` makes TCP connections with the event loop's own transports, and connections to
control sockets (`access.local_socket`); the simulator's network is the other one. A process gets its stack from the
machine it runs on (`cluster.runtime.host.Host`), a client from its configuration. No other module of the product makes
a socket; a test looks at all of them.

What is accepted passes the process's `ConnectionGate` first, which may refuse it, or end another one for it: before
anything is made for it here.

The seam acts when a connection is made and never again: what a stack gives to a protocol is the loop's own transport,
so a byte that arrives costs nothing more. The socket options of a connection, and the question whether a peer that is
not read has closed, are here, too, because they reach below the transport.

Each call names what the connection is for, and a member that dials another one which it means. That is all that
encryption needs (`service_api.tls`): a stack that encrypts gives an `Encryption` for what is accepted and what is
dialled, and no caller changes. It is agreed on before a protocol is made: the protocol begins with
`AcceptedConnection.caller` set.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from ..access.connection_purpose import Purpose as Purpose
from ..access.identity import CERTIFICATE_ENDS, LOCAL_OPERATOR, Caller
from ..access.shown_certificate import ShownCertificate
from ..cluster_id import NULL_CLUSTER_ID, ClusterId
from ..endpoint import Endpoint
from ..operating_system import optional_module
from ..types import MemberId
from .handshake_errors import HANDSHAKE_TIMEOUT_S, describe_handshake_error
from .handshake_errors import PeerRefusedError as PeerRefusedError
from .local_socket import AF_UNIX, LOCAL_PEER, ControlSocket, connect_locally, is_own_peer
from .sockets import connect_any, open_listening_sockets
from .turns import Turns

fcntl: Final = optional_module("fcntl")
termios: Final = optional_module("termios")
"""Both are used on Linux alone."""

if TYPE_CHECKING:
    from pathlib import Path

    from ..tls.certificates import Certificate
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
    ("TCP_KEEPALIVE", _KEEP_ALIVE_IDLE_S),  # the same, by its name on macOS
    ("TCP_KEEPINTVL", _KEEP_ALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", _KEEP_ALIVE_COUNT),
)

_GOODBYE_TIMEOUT_S: Final = 2.0
"""How long an encrypted connection that closes waits for the other side to say that it has heard so."""

_HANDSHAKE_LIMIT: Final = 512
"""Handshakes under way at one endpoint, each with some 50 KiB; at the limit the oldest is ended: an honest one takes
milliseconds. A connection that sends nothing costs none of that."""

_ACCEPT_LIMIT: Final = 16
"""Connections that one endpoint accepts in a pass of the loop, so that others have their turn."""

_HANDSHAKE_STARTS: Final = 1
"""Handshakes that begin at one endpoint in a pass of the loop, the others in the next ones. To begin takes 0.1 ms, and
the keys that follow in the next pass take milliseconds: where 8 began at once, 150 clients held a member's loop for 60
to 75 ms of processor time in one pass, and for 30 to 48 ms where 1 does (`stops`, two busy cores)."""

_ENCODING_DER: Final = 2
"""`_ssl.ENCODING_DER`, for Python before 3.13."""

_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""What `accept` says when the system has nothing left to give."""

P = TypeVar("P", bound=asyncio.BaseProtocol)
MakeProtocol = Callable[["AcceptedConnection"], asyncio.BaseProtocol]
"""Makes the protocol of an accepted connection, which has to `attach` the transport and to `leave` in the end."""
OnStreams = Callable[["AcceptedConnection", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Runs one accepted connection from its first byte to its last."""
OnPurposeBound = Callable[[Purpose, Endpoint], None]
"""Told what each address is for that is bound, before it is listened on; it raises what forbids that."""
PeerCertificate = dict[str, Any]  # as `ssl.SSLSocket.getpeercert` gives it
"""A certificate that was verified."""


class Encryption(ABC):
    """How connections are encrypted, and who the other side is."""

    @property
    @abstractmethod
    def context(self) -> ssl.SSLContext:
        """What the next connection begins with."""

    @abstractmethod
    def identify(self, certificate: PeerCertificate | None) -> tuple[Caller, str]:
        """Tell who the other side is, and what it has shown where that makes it a stranger.

        Raises:
            PeerRefusedError: it is not who it has to be here.
        """


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
        """Stop listening; connections that are made stay, and those that are not yet are ended."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Return once nothing is left of it."""


class NetworkStack(ABC):
    """How a process listens and dials."""

    encrypts: bool = False
    """Whether a certificate can be refused, of which the one who dials is not told: the connection is lost at once."""
    cluster_id: ClusterId = NULL_CLUSTER_ID
    """The cluster that the own certificate names."""

    @property
    def expires(self) -> Certificate | None:
        """The certificate in use that expires first; None where there is none."""
        return None

    @property
    def shown(self) -> Certificate | None:
        """The certificate that the other side is shown; None where there is none."""
        return None

    @abstractmethod
    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> Listener:
        """Accept the connections that the gate lets in, each with a protocol of its own.

        Raises:
            OSError: the endpoint cannot be listened on.
        """

    async def listen_locally(
        self, directory: Path, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> LocalListener | None:
        """Listen on the control socket of the member with this directory and consensus endpoint; None: there is none.

        Raises:
            OSError: there can be no socket in the directory.
        """
        return None

    def reaches_locally(self, endpoint: Endpoint) -> bool:
        """Return whether documents of the member with this consensus endpoint are asked for at its control socket."""
        return False

    @abstractmethod
    async def dial(
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: Callable[[], P],
        *,
        member_id: MemberId | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect; a limit of time is the caller's. A member that means another one says which.

        Raises:
            OSError: the endpoint cannot be reached, or is another's (`PeerRefusedError`).
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
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        *,
        member_id: MemberId | None = None,
        limit_bytes: int = STREAM_LIMIT_BYTES,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and return a reader and a writer. Otherwise as `dial`."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit_bytes, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.dial(purpose, endpoint, lambda: protocol, member_id=member_id)
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
        encryption: Encryption | None,
    ) -> None:
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._purpose, self._make_protocol, self._gate = purpose, make_protocol, gate
        self._encryption = encryption
        self._making: dict[asyncio.Task[None], tuple[AcceptedConnection, socket.socket]] = {}
        self._handshakes: dict[AcceptedConnection, None] = {}
        """Those under way, the oldest first."""
        self._starts = Turns(self._loop, _HANDSHAKE_STARTS)
        for sock in sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def __repr__(self) -> str:
        return f"<SocketListener {self._purpose.value} {self.endpoint}>"

    def close(self) -> None:
        """Stop listening; connections that are made stay, and those that are not yet are ended.

        The owner drops its connections next, and knows only those that are made. One that was made afterwards
        would stay in a process that goes on, as a member that starts again does: its peer would speak to nobody.
        """
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets = []
        for accepted, sock in [*self._making.values()]:
            accepted.leave()  # one that is made after this ends at once: see `attach`
            _shut(sock)

    async def wait_closed(self) -> None:
        """Return once every connection that was accepted is made or ended."""
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
        self._identify(accepted)
        task = self._loop.create_task(self._make(sock, accepted))
        self._making[task] = (accepted, sock)
        task.add_done_callback(self._making.pop)

    def _identify(self, accepted: AcceptedConnection) -> None:
        """Say who the caller is, where the socket shows it."""

    async def _make(self, sock: socket.socket, accepted: AcceptedConnection) -> None:
        make_protocol = partial(self._make_protocol, accepted)
        try:
            if self._encryption is None:
                await self._loop.connect_accepted_socket(make_protocol, sock)
            else:
                await self._encrypt(sock, accepted, self._encryption, make_protocol)
        except OSError:  # it was reset meanwhile
            accepted.leave()
            sock.close()

    async def _encrypt(
        self,
        sock: socket.socket,
        accepted: AcceptedConnection,
        encryption: Encryption,
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """Agree on encryption; what the gate ends meanwhile fails at once, for its socket is shut.

        Nothing is made for the handshake before its first byte has come.
        """
        accepted.end = lambda _: _shut(sock)

        def open_protocol(transport: asyncio.Transport) -> asyncio.BaseProtocol:
            secured: ssl.SSLObject = transport.get_extra_info("ssl_object")
            caller, detail = encryption.identify(secured.getpeercert())
            ends = caller.role in CERTIFICATE_ENDS
            accepted.identify(caller, detail, take_certificate(secured) if ends else None)
            return make_protocol()

        opening = _Opening(open_protocol)
        try:
            await self._first_byte(sock)
            await self._starts.take()
            if accepted.is_over or not sock.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("closed before its first byte")
            self._begin_handshake(accepted)
            await self._loop.connect_accepted_socket(
                lambda: opening,
                sock,
                ssl=encryption.context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=_GOODBYE_TIMEOUT_S,
            )
            opening.expect_protocol()
        except OSError as error:
            accepted.refuse("handshake", f"no encrypted connection: {describe_handshake_error(error)}")
            raise
        finally:
            self._handshakes.pop(accepted, None)

    async def _first_byte(self, sock: socket.socket) -> None:
        """Return when there is a byte to read, or the end: a handshake with nobody would cost as much as another.

        Raises:
            TimeoutError: nothing came in time.
        """
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock.fileno(), _resolve, readable)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await readable
        finally:
            self._loop.remove_reader(sock.fileno())

    def _begin_handshake(self, accepted: AcceptedConnection) -> None:
        if len(self._handshakes) >= _HANDSHAKE_LIMIT:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.refuse("evicted", f"it makes room for newer handshakes: limit={_HANDSHAKE_LIMIT}")
        self._handshakes[accepted] = None


_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)
"""A connection that is reset leaves its port free; one that is closed in order keeps it for a minute."""


class _Opening(asyncio.Protocol, Generic[P]):
    """The protocol of a connection until it is made and, with TLS, encrypted.

    Then the other side is identified, and the real protocol begins.
    """

    def __init__(self, open_protocol: Callable[[asyncio.Transport], P]) -> None:
        self._open_protocol = open_protocol
        self._protocol: P | None = None
        self._refusal: OSError | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand over to the real protocol, before a byte can arrive."""
        self._transport = stream = cast(asyncio.Transport, transport)
        if stream.get_extra_info("sockname") == stream.get_extra_info("peername"):
            self._refusal = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            return
        try:
            self._protocol = protocol = self._open_protocol(stream)
        except PeerRefusedError as error:
            self._refusal = error
            return
        stream.set_protocol(protocol)
        protocol.connection_made(stream)

    def end_unheard(self) -> None:
        """Tell the protocol that its connection is lost, unless the loop does: the dial is cancelled.

        uvloop drops a connection whose dial is cancelled in the moment after `connection_made`: no `connection_lost`
        follows, the transport does not say that it is closing, and a write to it raises.
        """
        if self._protocol is not None and self._transport is not None and not self._transport.is_closing():
            self._protocol.connection_lost(None)

    def expect_protocol(self) -> P:
        """Return the protocol that has begun; once the dial has ended, since uvloop closes a socket twice before that.

        Raises:
            PeerRefusedError: the other side is not who it has to be.
            ConnectionRefusedError: nobody listens there, and the kernel gave the dial the port that it dialled.
        """
        if self._refusal is not None:
            assert self._transport is not None
            self._transport.abort()
            raise self._refusal
        if self._protocol is None:
            raise ConnectionResetError("the connection was lost when it had just been encrypted")
        return self._protocol


def take_certificate(secured: ssl.SSLObject) -> ShownCertificate | None:
    """Take the certificate of the other side of a connection that has just been made; None where it showed none."""
    shown, encoded = secured.getpeercert(), secured.getpeercert(binary_form=True)
    if not shown or encoded is None:
        return None
    return ShownCertificate(_find_chain(secured) or (encoded,), ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _find_chain(secured: Any) -> tuple[bytes, ...]:  # Any: it has a method since Python 3.13, and hides it before
    """Return the chain that was verified; empty where this Python does not tell."""
    if hasattr(secured, "get_verified_chain"):
        return tuple(secured.get_verified_chain())
    inner: Any = getattr(secured, "_sslobj", None)
    if not hasattr(inner, "get_verified_chain"):
        return ()
    return tuple(each.public_bytes(_ENCODING_DER) for each in inner.get_verified_chain() or ())


def _resolve(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is over already
        sock.shutdown(socket.SHUT_RDWR)


class LocalListener(SocketListener):
    """The control socket of a member. A process that it lets in may operate the member."""

    def __init__(
        self, control: ControlSocket, endpoint: Endpoint, make_protocol: MakeProtocol, gate: ConnectionGate
    ) -> None:
        super().__init__([control.socket], Purpose.DOCUMENTS, endpoint, make_protocol, gate, None)
        self.control: Final = control

    def close(self) -> None:
        """Stop listening, and remove the socket; connections as above."""
        if self._sockets:
            super().close()
            self.control.close()

    def _begin(self, sock: socket.socket, peer: object) -> None:
        if not is_own_peer(sock):
            self._gate.note(self._purpose, "foreign_user", *LOCAL_PEER, "a process of another user")
            sock.close()
            return
        super()._begin(sock, LOCAL_PEER)

    def _identify(self, accepted: AcceptedConnection) -> None:
        accepted.identify(LOCAL_OPERATOR)


class SocketStack(NetworkStack):
    """TCP, by the running event loop; to a member on this machine that can be operated here, its control socket.

    One rule for `Purpose.DOCUMENTS`: where a control socket for the endpoint is found and a process listens, it is
    dialled, otherwise TCP. Without `uses_control_sockets` always TCP, as from another machine.
    """

    def __init__(
        self,
        *,
        uses_control_sockets: bool = True,
        member_directories: Mapping[Endpoint, Path] = MappingProxyType({}),
        on_bound: OnPurposeBound = lambda _, bound: None,
    ) -> None:
        """`member_directories` are known ones of members on this machine, by their consensus endpoints."""
        self._uses_control_sockets = uses_control_sockets
        self._member_directories = member_directories
        self._on_bound = on_bound

    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> Listener:
        """Listen on every address of the endpoint's host."""
        encryption = self.listening(purpose)
        on_bound = partial(self._on_bound, purpose)
        sockets = await open_listening_sockets(endpoint, backlog=LISTEN_BACKLOG, on_bound=on_bound)
        for sock in sockets:
            _set_stream_options(sock)
        bound = Endpoint(endpoint.host, sockets[0].getsockname()[1])
        return SocketListener(sockets, purpose, bound, make_protocol, gate, encryption)

    async def listen_locally(
        self, directory: Path, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> LocalListener | None:
        """Listen on the control socket in a member's directory, and make it known to commands of this user."""
        return LocalListener(ControlSocket(directory, endpoint), endpoint, make_protocol, gate)

    def listening(self, purpose: Purpose) -> Encryption | None:
        """Return what encrypts the connections that are accepted; None: nothing does."""
        return None

    def dialling(self, purpose: Purpose, endpoint: Endpoint, member_id: MemberId | None) -> Encryption | None:
        """Return what encrypts a connection that is dialled; None: nothing does."""
        return None

    async def dial(
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: Callable[[], P],
        *,
        member_id: MemberId | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the first address of the endpoint's host that answers. A name is resolved now, at each call."""
        loop = asyncio.get_running_loop()
        local = self._dial_locally(purpose, endpoint)
        if local is not None:
            return await loop.create_unix_connection(make_protocol, sock=local)
        encryption = self.dialling(purpose, endpoint, member_id)
        where: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port}  # two forms of one call
        if not endpoint.is_address:
            where = {"sock": await connect_any(endpoint)}
        if encryption is None:
            opening = _Opening(lambda _: make_protocol())
            try:
                transport, _ = await loop.create_connection(lambda: opening, **where)
            except asyncio.CancelledError:
                opening.end_unheard()
                raise
            return transport, opening.expect_protocol()

        def open_protocol(transport: asyncio.Transport) -> P:
            encryption.identify(transport.get_extra_info("peercert"))
            return make_protocol()

        try:
            transport, opening = await loop.create_connection(
                lambda: _Opening(open_protocol),
                **where,
                ssl=encryption.context,
                server_hostname=endpoint.host,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=_GOODBYE_TIMEOUT_S,
            )
            return transport, opening.expect_protocol()
        except ssl.SSLError as error:
            raise PeerRefusedError(f"{endpoint}: {describe_handshake_error(error)}") from error

    def dial_blocking(self, purpose: Purpose, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """Connect without a loop, for threads that block anyway; `timeout_s` bounds this and each later call.

        Raises:
            OSError: the endpoint cannot be reached.
            UnicodeError: its host cannot be a name.
        """
        local = self._dial_locally(purpose, endpoint)
        if local is not None:
            local.settimeout(timeout_s)
            return local
        connected = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        if connected.getsockname() == connected.getpeername():
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            connected.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return connected

    def reaches_locally(self, endpoint: Endpoint) -> bool:
        """Return whether a control socket for the endpoint is found, and answers."""
        sock = self._dial_locally(Purpose.DOCUMENTS, endpoint)
        if sock is not None:
            sock.close()
        return sock is not None

    def _dial_locally(self, purpose: Purpose, endpoint: Endpoint) -> socket.socket | None:
        """Connect to the control socket of a member; None where TCP is to be used."""
        if purpose is not Purpose.DOCUMENTS or not self._uses_control_sockets:
            return None
        return connect_locally(endpoint, self._member_directories.get(endpoint))

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


def as_accepted_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take an accepted connection: its socket has its options from the one that listens. A cast, as below."""
    return cast(asyncio.Transport, transport)


def as_stream_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Take a new stream connection, with small writes sent at once: batching is done before the socket, by turns of
    the loop. One whose other side is gone without a word is noticed.

    A cast, not a check: uvloop's transports have the methods but not the base class.
    """
    sock = _find_tcp_socket(transport)
    if sock is not None:
        _set_stream_options(sock)
    return cast(asyncio.Transport, transport)


def _set_stream_options(sock: socket.socket) -> None:
    """Set what stream connections have; one that listens gives it to those that it accepts."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE_OPTIONS:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


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
    if fd < 0 or sys.platform == "win32" or not hasattr(select, "POLLRDHUP"):
        return False
    poller = select.poll()
    poller.register(fd, select.POLLRDHUP)
    events = sum(event for _, event in poller.poll(0))
    if not events or if_unread or events & (select.POLLERR | select.POLLHUP):
        return bool(events)
    unread = bytearray(4)
    fcntl.ioctl(fd, termios.FIONREAD, unread)
    return not any(unread)


def is_local(transport: asyncio.BaseTransport) -> bool:
    """Whether a connection goes through a control socket."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    return sock is not None and sock.family == AF_UNIX


def _find_tcp_socket(transport: asyncio.BaseTransport) -> socket.socket | None:
    sock: socket.socket | None = transport.get_extra_info("socket")
    return sock if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) else None
