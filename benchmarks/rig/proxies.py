"""TCP proxies between every two members, and between clients and members, that can cut a member off.

A cut is what a network does when it drops everything: no socket closes and nobody is told. While a path is cut its
proxy does not read, so bytes wait where they are, an end of a connection included; when the path is healed they
flow on, in order. A connection that is dialled while the path is cut is accepted and gets nowhere. A cut may be of one
direction alone: what one member sends does not arrive, what it is sent does.

Each member has a list of members of its own, in which the others stand with the endpoints of the proxies that lead
from it to them. Three things go another way:

* A client is told endpoints by members, each of which names itself as it listens. So clients are led through their
  proxies by the event loop that dials for them: `route_clients`.
* A member that is added later (`add`) has one address for all others, that of proxies that lead to it, and dials the
  others where the log says. So a cut holds back what clients and members dial to it, and not what it dials itself.
* A catch-up replay is dialled to where the follower says that it listens, past the proxies. One that was not asked
  for before the cut cannot begin, for the request goes through them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, cast

from ...cluster.settings.member_endpoints import PORTS_PER_MEMBER, MemberEndpoints, format_members

CLIENTS: Final = -1
"""Stands for all clients where a member id says who dials."""
ANY_MEMBER: Final = -2
"""Stands for all members where they dial one that was added: the log has one address of it for all."""

_HOST: Final = "127.0.0.1"
_DELAYED_LIMIT: Final = 64
"""Reads of a connection that may wait for their time; then it is not read."""

Dial = Callable[..., Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]]


class ProxyMesh:
    """The proxies of one cluster. Use it as `async with ProxyMesh(base_ports) as mesh:`; it lives on that loop.

    Bounded: a proxy holds at most one write buffer and one read of each connection, or 64 reads while a path has a
    delay, for it stops reading one side while the other does not take what it has.
    """

    def __init__(self, base_ports: Sequence[int]) -> None:
        self._base_ports = dict(enumerate(base_ports))
        self._paths: list[_Path] = []
        self._servers: list[asyncio.Server] = []
        self._tasks = asyncio.TaskGroup()
        self._client_ports: dict[int, int] = {}
        self._dial: Dial
        self.member_lists: dict[int, str] = {}
        """By member: the `members` setting that it is to be started with."""

    def __repr__(self) -> str:
        cut = [(path.source_id, path.target_id) for path in self._paths if path.is_cut]
        return f"<ProxyMesh members={len(self._base_ports)} cut={cut}>"

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._dial = asyncio.get_running_loop().create_connection
        for member_id, base_port in self._base_ports.items():
            await self._lead_clients(member_id)
            others = [await self._lead(member_id, i) for i in self._base_ports if i != member_id]
            own = MemberEndpoints.from_base(member_id, f"{_HOST}:{base_port}")
            self.member_lists[member_id] = format_members(sorted([own, *others], key=lambda each: each.member_id))
        return self

    async def add(self, member_id: int, base_port: int) -> MemberEndpoints:
        """Open the proxies of a member that is to be added; gives where the others are to dial it."""
        self._base_ports[member_id] = base_port
        await self._lead_clients(member_id)
        return await self._lead(ANY_MEMBER, member_id)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
        for path in self._paths:
            path.close()
        await self._tasks.__aexit__(kind, error, trace)

    def isolate(self, member_id: int, *, also_from_clients: bool = True) -> None:
        """Cut a member off from every other one, both ways, and from clients."""
        for path in self._paths:
            is_spared = path.source_id == CLIENTS and not also_from_clients
            if member_id in (path.source_id, path.target_id) and not is_spared:
                path.cut()

    def cut_direction(self, source_id: int, target_id: int) -> None:
        """Hold what one member (or `CLIENTS`) sends to another, on any connection; the other direction flows on."""
        for path in self._paths:
            if (path.source_id, path.target_id) == (source_id, target_id):
                path.set_held(from_source=True)
            elif (path.source_id, path.target_id) == (target_id, source_id):
                path.set_held(from_target=True)

    def reset(self, member_id: int) -> None:
        """Reset every connection of a member, those of clients, too; all may dial again at once."""
        for path in self._paths:
            if member_id in (path.source_id, path.target_id):
                path.close()

    def heal_member(self, member_id: int) -> None:
        """Let everything flow again between a member and everybody else, without a delay."""
        for path in self._paths:
            if member_id in (path.source_id, path.target_id):
                path.heal()

    def set_delay(self, member_id: int, delay_s: float) -> None:
        """Have whatever a member sends or is sent arrive so much later, in order; 0 ends it."""
        for path in self._paths:
            if member_id in (path.source_id, path.target_id):
                path.delay_s = delay_s

    def heal(self) -> None:
        """Let everything flow again."""
        for path in self._paths:
            path.heal()

    def route_clients(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lead what this loop dials to a member's ingress through the clients' proxies, from now on."""
        dial, client_ports = loop.create_connection, self._client_ports

        async def create_connection(
            protocol_factory: Callable[[], asyncio.BaseProtocol],
            host: str | None = None,
            port: int | None = None,
            **options: Any,  # Any: whatever the loop takes
        ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
            through = client_ports.get(port, port) if port is not None else None
            return await cast(Dial, dial)(protocol_factory, host, through, **options)

        loop.create_connection = create_connection  # type: ignore[method-assign,assignment]

    async def _lead_clients(self, member_id: int) -> None:
        """Open the proxy from clients to a member."""
        base_port = self._base_ports[member_id]
        self._client_ports[base_port] = await self._listen(_Path(CLIENTS, member_id, self._dial), base_port)

    async def _lead(self, source_id: int, target_id: int) -> MemberEndpoints:
        """Open the proxies from one member to another; gives the endpoints that the first is to be told."""
        path, base_port = _Path(source_id, target_id, self._dial), self._base_ports[target_id]
        target = MemberEndpoints.from_base(target_id, f"{_HOST}:{base_port}")
        ports = [await self._listen(path, base_port + offset) for offset in range(1, PORTS_PER_MEMBER)]
        consensus, log, catchup, archive = (f"{_HOST}:{port}" for port in ports)
        return MemberEndpoints(
            member_id=target_id,
            ingress=target.ingress,
            consensus=consensus,
            log=log,
            catchup=catchup,
            archive=archive,
        )

    async def _listen(self, path: _Path, target_port: int) -> int:
        """Open one proxy; gives its port."""
        if path not in self._paths:
            self._paths.append(path)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Accepted(path, target_port, self._tasks), _HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port


@dataclass(slots=True, eq=False)
class _Path:
    """All connections that one member, or the clients, dialled to one member."""

    source_id: int
    target_id: int
    dial: Dial
    """The loop's own way to connect, past `route_clients`."""
    is_held_from_source: bool = False
    is_held_from_target: bool = False
    delay_s: float = 0.0
    sides: dict[_Side, None] = field(default_factory=dict)
    """Every side of every connection; a dictionary, to keep the order."""

    @property
    def is_cut(self) -> bool:
        """Whether nothing flows either way."""
        return self.is_held_from_source and self.is_held_from_target

    def cut(self) -> None:
        self.set_held(from_source=True, from_target=True)

    def heal(self) -> None:
        self.delay_s = 0.0
        self.set_held(from_source=False, from_target=False)

    def set_held(self, *, from_source: bool | None = None, from_target: bool | None = None) -> None:
        """Hold or let flow what either side sends; None leaves it as it is."""
        if from_source is not None:
            self.is_held_from_source = from_source
        if from_target is not None:
            self.is_held_from_target = from_target
        for side in [*self.sides]:
            side.set_reading()

    def close(self) -> None:
        for side in [*self.sides]:
            side.abort()


class _Side(asyncio.Protocol):
    """One side of a connection: what comes in here goes out at the other side."""

    is_source = False
    """Whether who dialled is at this side."""

    def __init__(self, path: _Path) -> None:
        self._path = path
        self._delayed: deque[tuple[float, bytes | None]] = deque()
        """What is to go out, and when; None: the end of the connection."""
        self._transport: asyncio.Transport | None = None
        self._is_choked = False
        self._early: list[bytes] = []
        """Came in before the other side stood."""
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have the methods, not the base class
        self._path.sides[self] = None
        self.set_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._path.sides.pop(self, None)
        if self.other is not None:
            self.other.send(None)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            # A loop may begin to read after `connection_made` whatever that asked for: one read, then it rests.
            self._early.append(data)
            self.set_reading()
        else:
            self.other.send(data)

    def eof_received(self) -> bool:
        """End the other side too, when it has sent what it holds; no protocol here half-closes."""
        return False

    def pause_writing(self) -> None:
        self._is_choked = True
        if self.other is not None:
            self.other.set_reading()

    def resume_writing(self) -> None:
        self._is_choked = False
        if self.other is not None:
            self.other.set_reading()

    def join(self, other: _Side) -> None:
        """Begin to forward."""
        self.other = other
        for data in self._early:
            other.send(data)
        self._early.clear()
        self.set_reading()

    def set_reading(self) -> None:
        """Read exactly while the path stands and the other side takes more."""
        if self._transport is None or self._transport.is_closing():
            return
        is_choked = self.other is None or self.other._is_choked or len(self.other._delayed) > _DELAYED_LIMIT
        if not is_choked and not self._is_held():
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def send(self, data: bytes | None) -> None:
        """Write bytes to this side, or close it, now or after the path's delay, in order."""
        if not self._path.delay_s and not self._delayed:
            self._send_now(data)
            return
        loop = asyncio.get_running_loop()
        self._delayed.append((loop.time() + self._path.delay_s, data))
        if len(self._delayed) == 1:
            loop.call_later(self._path.delay_s, self._send_due)
        if self.other is not None:
            self.other.set_reading()

    def _send_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._delayed and self._delayed[0][0] <= loop.time():
            self._send_now(self._delayed.popleft()[1])
        if self._delayed:
            loop.call_at(self._delayed[0][0], self._send_due)
        if self.other is not None:
            self.other.set_reading()

    def _send_now(self, data: bytes | None) -> None:
        if data is None:
            self.close()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _is_held(self) -> bool:
        return self._path.is_held_from_source if self.is_source else self._path.is_held_from_target

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Accepted(_Side):
    """The side that was dialled by a member or a client; it dials the other one once the path stands."""

    is_source = True

    def __init__(self, path: _Path, target_port: int, tasks: asyncio.TaskGroup) -> None:
        super().__init__(path)
        self._target_port = target_port
        self._tasks = tasks
        self._is_dialling = False

    def set_reading(self) -> None:
        # A SYN that is not let through is not answered; neither is one whose answer is not.
        is_held = self._path.is_held_from_source or self._path.is_held_from_target
        if self.other is None and not is_held and not self._is_dialling:
            self._is_dialling = True
            self._tasks.create_task(self._dial())
        super().set_reading()

    async def _dial(self) -> None:
        dialled = _Side(self._path)
        with suppress(OSError):
            await self._path.dial(lambda: dialled, _HOST, self._target_port)
        if dialled._transport is None or self not in self._path.sides:
            self.abort()
            dialled.abort()
            return
        self.join(dialled)
        dialled.join(self)
