"""Connections between simulated machines, and protocols that note what they are told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.unit.cluster.testing.simulation.small_world import MS, World, forever, world
from trimaran.cluster.testing.simulation.world.network import SimulatedTransport
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import Purpose

PORT = 80


class Peer(asyncio.Protocol):
    """One end of a connection: what it has received, and what it was told."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.events: list[str] = []
        self.pieces: list[int] = []
        self.stays_open_after_eof = False

    @property
    def transport(self) -> SimulatedTransport:
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self._transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(len(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.stays_open_after_eof

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else f"lost: {exc.args[-1]}")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """Reads into a small buffer, and pauses after so many bytes."""

    def __init__(self, *, pause_every_bytes: int) -> None:
        self.data = bytearray()
        self.reads: list[int] = []
        self._buffer = bytearray(10)
        self._pause_every_bytes = self._until_pause = pause_every_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[: min(10, self._until_pause)]

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport.is_reading()
        self.data += self._buffer[:nbytes]
        self.reads.append(nbytes)
        self._until_pause -= nbytes
        if not self._until_pause:
            self._until_pause = self._pause_every_bytes
            self.transport.pause_reading()


def listen(it: World, name: str, factory: Callable[[], asyncio.BaseProtocol], port: int = PORT) -> None:
    """Let a new process listen."""

    async def serve() -> None:
        await it.network.listen(Purpose.LOG, Endpoint(name, port), lambda accepted: factory(), gate=ConnectionGate())
        await forever()

    it.start(name, serve)


def dial(it: World, name: str, target: str, factory: Callable[[], asyncio.BaseProtocol], seen: list[str]) -> None:
    """Let a new process connect, and say what came of it."""

    async def connect() -> None:
        try:
            await it.network.dial(Purpose.LOG, Endpoint(target, PORT), factory)
        except OSError as error:
            seen.append(str(error))
        else:
            seen.append("connected")
        await forever()

    it.start(name, connect)


@contextmanager
def connected(*, seed: int = 1) -> Iterator[tuple[World, Peer, Peer]]:
    """Two machines, a and b, and a connection that a made."""
    with world("a", "b", seed=seed) as it:
        a, b, seen = Peer(), Peer(), list[str]()
        listen(it, "b", lambda: b)
        it.run(MS)
        dial(it, "a", "b", lambda: a, seen)
        it.run(10 * MS)
        assert seen == ["connected"]
        assert a.events == b.events == ["made"]
        yield it, a, b


def set_user_timeout(peer: Peer, timeout_ms: int) -> None:
    peer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
