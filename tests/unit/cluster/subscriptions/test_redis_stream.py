"""Entries in a stream of a real Redis server: once each, whatever dies at whichever step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.redis_server import RedisServer, needs_redis
from tests.waiting import let_pass, passes
from trimaran.cluster.subscriptions import EntryKind, LogEntry
from trimaran.cluster.subscriptions.redis_stream import RedisRefusedError, RedisStreamBehindError, RedisStreamSink
from trimaran.cluster.subscriptions.resp import RedisAddress, RedisConnection, Reply

pytestmark = needs_redis

ENTRIES = [
    LogEntry(96 * n, 96 * (n + 1), EntryKind.TOPIC, 3, 1_000 + n, None, b"\xff\r\n%d" % n, "fills") for n in range(12)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


async def call(url: str, *words: bytes) -> Any:
    async with await RedisConnection.open(RedisAddress.parse(url)) as connection:
        return await connection.call(*words)


async def positions(url: str) -> list[int]:
    """The positions of the entries in the stream, in its order."""
    found: list[Any] = await call(url, b"XRANGE", RedisAddress.parse(url).stream, b"-", b"+")
    return [int(dict(zip(fields[::2], fields[1::2], strict=True))[b"position"]) for _, fields in found]


async def test_an_entry_has_its_fields_and_the_position_after_it_as_its_id(server: RedisServer) -> None:
    url = server.url("fields")
    async with RedisStreamSink(url) as sink:
        assert await sink.load_position() is None
        await sink.deliver(ENTRIES[:1])
        assert await sink.load_position() == 96

    found: Reply = await call(url, b"XRANGE", b"fields", b"-", b"+")

    fields = [b"position", b"0", b"end_position", b"96", b"kind", b"topic", b"leadership_term_id", b"3"]
    fields += [b"timestamp", b"1000", b"payload", b"\xff\r\n0", b"topic", b"fills"]
    assert found == [[b"96-0", fields]]


async def test_what_was_trimmed_or_delivered_by_another_process_is_not_added_again(server: RedisServer) -> None:
    url = server.url("twice")
    async with RedisStreamSink(url) as first, RedisStreamSink(url) as second:
        await first.deliver(ENTRIES[:3])
        await second.deliver(ENTRIES[:5])
        await first.deliver(ENTRIES[3:6])
        assert await positions(url) == [entry.position for entry in ENTRIES[:6]]
        await call(url, b"XTRIM", b"twice", b"MAXLEN", b"0")

        assert await second.load_position() == ENTRIES[5].end_position
        await second.deliver(ENTRIES[4:8])

    assert await positions(url) == [entry.position for entry in ENTRIES[6:8]]


async def test_a_limit_trims_the_oldest_entries(server: RedisServer) -> None:
    url = server.url("limited", "&maxlen=100")
    async with RedisStreamSink(url) as sink:
        for first in range(0, 2_000, 200):
            await sink.deliver([ENTRIES[0]._replace(position=n, end_position=n + 1) for n in range(first, first + 200)])

    kept = await positions(url)
    assert kept == list(range(kept[0], 2_000))
    assert 100 <= len(kept) < 400  # redis trims whole nodes of its tree


async def test_a_server_that_is_killed_again_and_again_has_each_entry_once(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as own:
        url = own.url("killed")
        async with RedisStreamSink(url) as sink:
            for number, entry in enumerate(ENTRIES):
                delivery = asyncio.create_task(sink.deliver([entry]))
                await passes(number)  # each time it has come further when the server dies
                own.kill()
                await asyncio.to_thread(own.start)
                await delivery

        assert await positions(url) == [entry.position for entry in ENTRIES]


@contextlib.asynccontextmanager
async def cut_after(port: int, sent: int | None, received: int | None) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Stand between sink and server, and cut both off after so many bytes in one direction; tells port and cut."""
    cut = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter, limit: int | None) -> None:
        while limit != 0:
            data = await source.read(65_536 if limit is None else limit)
            if not data:
                break
            target.write(data)
            await target.drain()
            limit = None if limit is None else limit - len(data)
        if limit == 0:
            cut.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        directions = [
            asyncio.create_task(forward(reader, server_writer, sent)),
            asyncio.create_task(forward(server_reader, writer, received)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            await asyncio.wait(directions)
            server_writer.close()
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1], cut
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def test_a_process_that_dies_at_any_step_leaves_each_entry_once(server: RedisServer) -> None:
    """Every process but the last one dies once it has sent, or received, a certain number of bytes."""
    url = server.url("cut")
    steps: list[tuple[int | None, int | None]] = [(sent, None) for sent in range(1, 2_600, 173)]
    steps += [(None, received) for received in (1, 3, 4, 5, 40, 300, 500)]
    reached = set()
    for sent, received in [*steps, (None, None)]:
        async with (
            cut_after(server.port, sent, received) as (port, cut),
            RedisStreamSink(f"redis://127.0.0.1:{port}/0?stream=cut") as sink,
        ):
            process = asyncio.create_task(deliver_rest(sink))
            dying = asyncio.create_task(cut.wait())
            await asyncio.wait([process, dying], return_when=asyncio.FIRST_COMPLETED)
            for task in (process, dying):
                task.cancel()
            await asyncio.wait([process, dying])
        found = await positions(url)
        assert found == [entry.position for entry in ENTRIES[: len(found)]]
        reached.add(len(found))

    assert found == [entry.position for entry in ENTRIES]
    assert len(reached) > 4


async def deliver_rest(sink: RedisStreamSink) -> None:
    """Deliver what the stream lacks, two entries at a time, once: a process that is started, and goes on."""
    begin = await sink.load_position() or 0
    rest = [entry for entry in ENTRIES if entry.position >= begin]
    for number in range(0, len(rest), 2):
        await sink.deliver(rest[number : number + 2])


async def test_a_stream_that_has_lost_its_end_is_told_and_a_new_start_fills_it(server: RedisServer) -> None:
    url = server.url("lost")
    async with RedisStreamSink(url) as sink:
        await sink.deliver(ENTRIES[:4])
        await call(url, b"DEL", b"lost")
        async with RedisStreamSink(url) as other:
            await other.deliver(ENTRIES[:2])

        with pytest.raises(RedisStreamBehindError, match=r"position=384, .*192; .*appendfsync always"):
            await sink.deliver(ENTRIES[4:6])

        await deliver_rest(sink)
    assert await positions(url) == [entry.position for entry in ENTRIES]


async def test_a_stream_of_somebody_else_is_refused(server: RedisServer) -> None:
    await call(server.url("x"), b"XADD", b"theirs", b"*", b"field", b"value")
    await call(server.url("x"), b"SET", b"text", b"value")

    for stream, reason in (("theirs", "a log"), ("text", "WRONGTYPE")):
        async with RedisStreamSink(server.url(stream)) as sink:
            with pytest.raises(RedisRefusedError, match=reason):
                await sink.load_position()
    async with RedisStreamSink(server.url("text")) as sink:
        with pytest.raises(RedisRefusedError, match="WRONGTYPE"):
            await sink.deliver(ENTRIES[:1])


async def test_a_full_server_is_waited_for(server: RedisServer) -> None:
    url = server.url("full")
    async with RedisStreamSink(url) as sink:
        await call(url, b"CONFIG", b"SET", b"maxmemory", b"1")
        delivery = asyncio.create_task(sink.deliver(ENTRIES))
        await let_pass(0.05)
        assert not delivery.done()
        await call(url, b"CONFIG", b"SET", b"maxmemory", b"0")
        await delivery

    assert await positions(url) == [entry.position for entry in ENTRIES]
