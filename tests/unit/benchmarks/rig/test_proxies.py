"""Proxies between real sockets: what they hold back while a member is cut off, and what goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.waiting import within
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.benchmarks.rig.proxies import ProxyMesh
from trimaran.cluster.settings.member_endpoints import MemberEndpoints, parse_members
from trimaran.service_api.endpoint import Endpoint

MUCH = 4 << 20
TIMEOUT_S = 30


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Net:
    """A mesh of three, servers behind it, connections to it. `told[i, j]`: where member i is told that j listens."""

    def __init__(self, mesh: ProxyMesh) -> None:
        self.mesh = mesh
        self.told: dict[tuple[int, int], MemberEndpoints] = {
            (viewer_id, member.member_id): member
            for viewer_id, text in mesh.member_lists.items()
            for member in parse_members(text)
        }
        self.arrived: asyncio.Queue[Streams] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.Server] = []

    async def serve(self, endpoint: str, *, is_answering: bool = True) -> None:
        """Listen; answer everything in upper case, and close when the other side does."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            self.arrived.put_nowait((reader, writer))
            while is_answering and (data := await reader.read(1 << 16)):
                writer.write(data.upper())
                await writer.drain()
            if is_answering:
                writer.close()

        address = Endpoint.parse(endpoint)
        self._servers.append(await asyncio.start_server(answer, address.host, address.port, limit=1 << 16))

    async def connect(self, endpoint: str) -> Streams:
        address = Endpoint.parse(endpoint)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with within(TIMEOUT_S), ProxyMesh(find_base_ports(3)) as mesh:
        net = Net(mesh)
        yield net
        await net.close()


async def ask(streams: Streams, text: bytes) -> bytes:
    reader, writer = streams
    writer.write(text)
    return await reader.readexactly(len(text))


async def test_every_member_reaches_the_others_through_proxies_of_its_own(net: Net) -> None:
    consensus = [net.told[viewer_id, 1].consensus for viewer_id in (0, 1, 2)]
    await net.serve(net.told[1, 1].consensus)

    answers = [await ask(await net.connect(endpoint), b"hello") for endpoint in consensus]

    assert len(set(consensus)) == 3
    assert answers == [b"HELLO"] * 3


async def test_a_member_that_is_added_is_reached_through_one_proxy_of_its_own(net: Net) -> None:
    [base_port] = find_base_ports(1)
    added = await net.mesh.add(3, base_port)
    await net.serve(f"127.0.0.1:{base_port + 1}")
    streams = await net.connect(added.consensus)

    assert added.consensus != f"127.0.0.1:{base_port + 1}"
    assert await ask(streams, b"hello") == b"HELLO"
    net.mesh.reset(3)
    assert await streams[0].read() == b""
    net.mesh.isolate(3)
    net.mesh.heal_member(3)
    assert await ask(await net.connect(added.consensus), b"again") == b"AGAIN"


async def test_a_cut_holds_bytes_back_in_both_directions_and_closes_nothing(net: Net) -> None:
    await net.serve(net.told[1, 1].log)
    await net.serve(net.told[2, 2].log)
    to_cut, to_other = await net.connect(net.told[0, 1].log), await net.connect(net.told[0, 2].log)
    await ask(to_cut, b"before")

    net.mesh.isolate(1)
    held = asyncio.create_task(ask(to_cut, b"meanwhile"))
    # The other path stands: when its answer is back, the loop has turned often enough for the cut one.
    assert await ask(to_other, b"x" * MUCH) == b"X" * MUCH
    assert not held.done()
    assert not to_cut[0].at_eof()
    net.mesh.heal()

    assert await held == b"MEANWHILE"


async def test_a_connection_dialled_during_a_cut_gets_through_when_it_is_healed(net: Net) -> None:
    await net.serve(net.told[1, 1].archive)
    net.mesh.isolate(1)
    streams = await net.connect(net.told[2, 1].archive)
    answer = asyncio.create_task(ask(streams, b"patience"))
    net.mesh.heal()

    assert await answer == b"PATIENCE"


async def test_the_end_of_a_connection_waits_behind_the_cut_too(net: Net) -> None:
    await net.serve(net.told[1, 1].consensus)
    first, second = await net.connect(net.told[0, 1].consensus), await net.connect(net.told[2, 1].consensus)
    await ask(first, b"a")
    reader, _ = await net.arrived.get()
    net.mesh.isolate(1)
    first[1].close()
    second_answer = asyncio.create_task(ask(second, b"c"))
    await ask(await net.connect(await other_endpoint(net)), b"x" * MUCH)
    assert not reader.at_eof()
    net.mesh.heal()

    assert await second_answer == b"C"
    assert await reader.read() == b""


async def other_endpoint(net: Net) -> str:
    """A path that no cut of member 1 touches."""
    await net.serve(net.told[2, 2].archive)
    return net.told[0, 2].archive


async def test_a_dial_to_a_member_that_is_not_there_ends(net: Net) -> None:
    reader, _ = await net.connect(net.told[0, 2].consensus)

    with suppress(ConnectionResetError):
        assert await reader.read() == b""


async def test_a_receiver_that_does_not_read_is_not_buffered_without_bound(net: Net) -> None:
    await net.serve(net.told[1, 1].log, is_answering=False)
    _, writer = await net.connect(net.told[0, 1].log)
    sent = asyncio.create_task(write_and_drain(writer, 16 * MUCH))
    reader, _ = await net.arrived.get()

    received = await reader.readexactly(1)
    assert not sent.done()
    received += await reader.readexactly(16 * MUCH - 1)

    assert len(received) == 16 * MUCH
    await sent


async def write_and_drain(writer: asyncio.StreamWriter, length: int) -> None:
    writer.write(bytes(length))
    await writer.drain()


async def test_clients_are_led_through_proxies_of_their_own_and_may_be_spared(net: Net) -> None:
    net.mesh.route_clients(asyncio.get_running_loop())
    await net.serve(net.told[1, 1].ingress)
    streams = await net.connect(net.told[1, 1].ingress)
    assert await ask(streams, b"one") == b"ONE"

    net.mesh.isolate(1, also_from_clients=False)
    assert await ask(streams, b"two") == b"TWO"
    net.mesh.isolate(1)
    held = asyncio.create_task(ask(streams, b"three"))
    await ask(await net.connect(await other_endpoint(net)), b"x" * MUCH)
    assert not held.done()
    assert "(-1, 1)" in repr(net.mesh)
    net.mesh.heal()

    assert await held == b"THREE"
