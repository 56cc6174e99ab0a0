"""Clients that mean no good, or do not know better, beside those that are checked.

    never_read     a session that asks for long answers and reads none of them
    never_finish   a connection that begins a long message and never ends it
    dribble        a connection that sends one byte now and then
    silent         a connection to one of the endpoints that says nothing
    nonsense       a session whose messages the service can do nothing with, as fast as is allowed here
    noise          random bytes to any endpoint
    come_and_go    connections that are opened and closed at once

They go to the members themselves, past the proxies. Each kind is bounded, in connections and in bytes a second, so
that what is measured is the cluster and not this machine. What must hold is what holds without them: the checks of the
round, with the bounds of memory and descriptors, and that honest clients are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Final

from ...client import ClientConfig, ClusterClient
from ...service_api.errors import ClusterError
from ...service_api.types import INGRESS_STREAM_ID
from ...service_api.wire.link_frames import SetupFrame
from ..rig.processes import PORTS_PER_MEMBER
from .service import ChaosOperation, ChaosOperationKind

_HOST: Final = "127.0.0.1"
_RETRY_S: Final = 1.0
_LONG_ANSWER_BYTES: Final = 6_000
_NONSENSE_INTERVAL_S: Final = 0.01
_UNFINISHED_BYTES: Final = 1 << 20
_FIRST_CLIENT: Final = 1 << 20


class HostileKind(StrEnum):
    """What such a client does."""

    NEVER_READ = "never_read"
    NEVER_FINISH = "never_finish"
    DRIBBLE = "dribble"
    SILENT = "silent"
    NONSENSE = "nonsense"
    NOISE = "noise"
    COME_AND_GO = "come_and_go"


CLIENT_COUNTS: Final = {
    HostileKind.NEVER_READ: 12,
    HostileKind.NEVER_FINISH: 20,
    HostileKind.DRIBBLE: 20,
    HostileKind.SILENT: 20,
    HostileKind.NONSENSE: 1,
    HostileKind.NOISE: 3,
    HostileKind.COME_AND_GO: 2,
}


class HostileClients:
    """All of them, against one cluster."""

    def __init__(self, base_ports: list[int], config: ClientConfig, random: Random) -> None:
        self.attempts: Counter[HostileKind] = Counter()
        """How often one of a kind began: a connection that was refused or dropped is opened again."""
        self._base_ports = base_ports
        self._config = config
        self._random = random
        self._acts: dict[HostileKind, Callable[[int], Awaitable[None]]] = {
            HostileKind.NEVER_READ: self._never_read,
            HostileKind.NEVER_FINISH: self._never_finish,
            HostileKind.DRIBBLE: self._dribble,
            HostileKind.SILENT: self._be_silent,
            HostileKind.NONSENSE: self._talk_nonsense,
            HostileKind.NOISE: self._make_noise,
            HostileKind.COME_AND_GO: self._come_and_go,
        }

    async def run(self) -> None:
        """Go on until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind, count in CLIENT_COUNTS.items():
                for number in range(count):
                    tasks.create_task(self._repeat(kind, number))

    async def _repeat(self, kind: HostileKind, number: int) -> None:
        while True:
            self.attempts[kind] += 1
            with suppress(OSError, ClusterError, asyncio.IncompleteReadError):
                await self._acts[kind](number)
            await asyncio.sleep(_RETRY_S * self._random.uniform(0.5, 1.5))

    async def _open(self, *, endpoint: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an endpoint of a member that is drawn, past the proxies."""
        port = self._random.choice(self._base_ports) + endpoint
        connected = socket.socket()
        connected.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connected, (_HOST, port))
            return await asyncio.open_connection(sock=connected)
        except BaseException:
            connected.close()
            raise

    async def _never_read(self, number: int) -> None:
        """Nobody takes a message from the client's queue, so it stops to read its sockets."""
        config = ClientConfig(
            endpoints=self._config.endpoints, client_info="never reads", egress_queue_limit=1, close_timeout_s=0
        )
        async with await ClusterClient.connect(config=config) as client:
            asked = 0
            while not client.is_closed:
                asked += 1
                flood = ChaosOperation(
                    _FIRST_CLIENT + number, asked, ChaosOperationKind.LONG_ANSWER, a=_LONG_ANSWER_BYTES
                )
                if asked < 2_000:
                    client.try_offer(flood.encode())
                await asyncio.sleep(0.02)

    async def _never_finish(self, number: int) -> None:
        reader, writer = await self._open()
        try:
            begin = SetupFrame(session_id=number, stream_id=INGRESS_STREAM_ID).encode()
            # The header of a frame of 1 MiB, or of the first fragment of a message, and some of what it promises.
            promised = struct.pack("<iBBH", _UNFINISHED_BYTES, 0, 0xC0 if number % 2 else 0x80, 1)
            writer.write(begin + promised.ljust(32, b"\0") + bytes(self._random.randrange(65_536)))
            await reader.read(1 << 16)
            await reader.read()
        finally:
            writer.transport.abort()

    async def _dribble(self, number: int) -> None:
        reader, writer = await self._open(endpoint=number % PORTS_PER_MEMBER)
        try:
            data = SetupFrame(session_id=number, stream_id=INGRESS_STREAM_ID).encode() + bytes(1_000)
            for byte in data:
                if writer.is_closing() or reader.at_eof():
                    return
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0.5)
        finally:
            writer.transport.abort()

    async def _be_silent(self, number: int) -> None:
        reader, writer = await self._open(endpoint=number % PORTS_PER_MEMBER)
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    async def _talk_nonsense(self, number: int) -> None:
        config = ClientConfig(endpoints=self._config.endpoints, client_info="nonsense", close_timeout_s=0)
        async with await ClusterClient.connect(config=config) as client:
            while not client.is_closed:
                client.try_offer(self._random.randbytes(self._random.randrange(1, 64)))
                await asyncio.sleep(_NONSENSE_INTERVAL_S)

    async def _make_noise(self, number: int) -> None:
        reader, writer = await self._open(endpoint=self._random.randrange(PORTS_PER_MEMBER))
        try:
            if self._random.random() < 0.5:
                stream_id = self._random.choice((10, 100, 101, 108))
                writer.write(SetupFrame(session_id=number, stream_id=stream_id, member_id=number).encode())
            writer.write(self._random.randbytes(self._random.choice((1, 31, 64, 500, 70_000))))
            await writer.drain()
            async with asyncio.timeout(5.0):
                await reader.read()
        except TimeoutError:
            pass
        finally:
            writer.transport.abort()

    async def _come_and_go(self, number: int) -> None:
        for _ in range(20):
            _, writer = await self._open(endpoint=self._random.randrange(PORTS_PER_MEMBER))
            writer.transport.abort()
            await asyncio.sleep(0.02)
