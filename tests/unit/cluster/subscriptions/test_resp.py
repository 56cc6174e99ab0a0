"""URLs of streams, and what is made of a server's answers: by a server that answers as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tls import Issuer
from trimaran.cluster.subscriptions import EntryKind, LogEntry
from trimaran.cluster.subscriptions.redis_stream import RedisRefusedError, RedisStreamSink
from trimaran.cluster.subscriptions.resp import RedisAddress, RedisConnection, RedisError, Reply
from trimaran.service_api.errors import ConfigurationError

ENTRY = LogEntry(96, 192, EntryKind.REQUEST, 3, 1_000, 7, b"paid")


class ToldServer:
    """Answers commands with these bytes, one after the other; b"" closes the connection. Keeps the commands."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.commands: list[list[bytes]] = []
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                count = int((await reader.readuntil(b"\r\n"))[1:])
                words = []
                for _ in range(count):
                    length = int((await reader.readuntil(b"\r\n"))[1:])
                    words.append((await reader.readexactly(length + 2))[:-2])
                self.commands.append(words)
                answer = self.answers.pop(0)
                writer.write(answer)
                if not answer:
                    break
        writer.close()

    @property
    def names(self) -> list[bytes]:
        return [words[0] for words in self.commands]


@contextlib.asynccontextmanager
async def told(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[ToldServer]:
    server = ToldServer(list(answers))
    async with await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=tls) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
    for task in server.tasks:  # the client has gone
        await task


def test_an_url_says_where_the_stream_is_and_shows_no_password(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s p\n")

    plain = RedisAddress.parse("redis://host?stream=orders")
    full = RedisAddress.parse("rediss://ann:p%40ss@[::1]:7000/3?stream=a%20b&maxlen=1000")
    by_file = RedisAddress.parse(f"redis://ann@host/?stream=x&password-file={tmp_path / 'secret'}")

    assert plain == RedisAddress("host", 6379, 0, b"orders", None, None, None, False, None)
    assert full == RedisAddress("::1", 7000, 3, b"a b", 1000, "ann", "p@ss", True, None)
    assert (by_file.user, by_file.password) == ("ann", "s p")
    assert "p@ss" not in repr(full)
    assert "p@ss" not in repr(RedisStreamSink("redis://ann:p%40ss@host?stream=x"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://host", "stream=NAME"),
        ("redis://host?stream=", "stream=NAME"),
        ("redis:///0?stream=x", "no host"),
        ("redis://host/db?stream=x", "database='db' .*number"),
        ("redis://host:x?stream=x", "URL.*Redis"),
        ("redis://host?stream=x&maxlen=0", "maxlen='0' .*1"),
        ("redis://host?stream=x&maxlan=5", r"options=\['maxlan'\]"),
        ("redis://host?stream=x&ca=/f", "ca= is for rediss"),
        ("rediss://host?stream=x&ca=/there/is/none", "read: file=/there/is/none"),
        ("redis://a:secret@host?stream=x&password-file=/f", "two passwords"),
        ("http://host?stream=x", "scheme='http' .*redis or rediss"),
        ("redis://u:secret@host", "stream=NAME"),
    ],
)
def test_an_url_that_is_none_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        RedisAddress.parse(url)

    assert "secret" not in str(raised.value)


async def test_a_connection_logs_in_and_chooses_the_database() -> None:
    async with told(b"+OK\r\n", b"+OK\r\n", b":1\r\n") as server:
        address = RedisAddress.parse(f"redis://ann:pass@127.0.0.1:{server.port}/2?stream=x")
        async with await RedisConnection.open(address) as connection:
            assert await connection.call(b"EXISTS", b"a\r\nb") == 1

    assert server.commands == [[b"AUTH", b"ann", b"pass"], [b"SELECT", b"2"], [b"EXISTS", b"a\r\nb"]]


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (b"+PONG\r\n", "PONG"),
        (b":-7\r\n", -7),
        (b"$0\r\n\r\n", b""),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*2\r\n$4\r\na\r\nb\r\n*1\r\n:1\r\n", [b"a\r\nb", [1]]),
    ],
)
async def test_replies_are_read(answer: bytes, reply: Reply) -> None:
    async with told(answer) as server:
        connection = await RedisConnection.open(RedisAddress.parse(f"redis://127.0.0.1:{server.port}?stream=x"))
        async with connection:
            assert await connection.call(b"ANY") == reply


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"$x\r\n",
        b"$-2\r\n",
        b"$99999999999\r\n",
        b"*5000\r\n",
        b"*1\r\n" * 20,
        b"%1\r\n",
    ],
)
async def test_what_is_no_reply_ends_the_connection(answer: bytes) -> None:
    async with told(answer) as server:
        connection = await RedisConnection.open(RedisAddress.parse(f"redis://127.0.0.1:{server.port}?stream=x"))
        async with connection:
            with pytest.raises(OSError, match="reply"):
                await connection.call(b"ANY")


async def test_a_server_that_refuses_the_password_is_not_asked_again() -> None:
    async with (
        told(b"-WRONGPASS invalid username-password pair\r\n") as server,
        RedisStreamSink(f"redis://a:secret@127.0.0.1:{server.port}/0?stream=x") as sink,
    ):
        with pytest.raises(RedisRefusedError, match="WRONGPASS") as raised:
            await sink.load_position()

    assert "secret" not in str(raised.value)
    assert server.names == [b"AUTH"]


async def test_a_batch_is_sent_until_the_server_has_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.subscriptions.redis_stream.FIRST_PAUSE_S", 0.001)
    busy = (b"-LOADING the dataset\r\n", b"", b"-OOM full\r\n", b"-READONLY a replica\r\n", b"nonsense\r\n")
    async with (
        told(*busy, b"+OK\r\n") as server,
        RedisStreamSink(f"redis://127.0.0.1:{server.port}/0?stream=x") as sink,
    ):
        await sink.deliver([ENTRY])

    assert server.names == [b"EVAL"] * 6
    assert len({tuple(words) for words in server.commands}) == 1
    assert server.commands[0][3:8] == [b"x", b"0", b"", b"192", b"14"]


async def test_with_tls_the_server_shows_a_certificate_that_is_trusted_and_has_its_name(tmp_path: Path) -> None:
    host = Issuer.create(tmp_path).host("localhost")
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(host.certificate, host.key)

    async with told(b"+OK\r\n", tls=serving) as server:
        url = f"rediss://localhost:{server.port}/0?stream=x&ca={host.authorities}"
        async with RedisStreamSink(url) as sink:
            await sink.deliver([ENTRY])
        for wrong in (url.replace("localhost", "127.0.0.1"), url.partition("&ca=")[0]):
            async with RedisStreamSink(wrong) as sink:
                with pytest.raises(RedisRefusedError, match="certificate verify"):
                    await sink.load_position()

    assert server.names == [b"EVAL"]


async def test_an_error_has_the_code_of_the_server() -> None:
    async with told(b"-WRONGTYPE not a stream\r\n") as server:
        connection = await RedisConnection.open(RedisAddress.parse(f"redis://127.0.0.1:{server.port}?stream=x"))
        async with connection:
            with pytest.raises(RedisError, match="WRONGTYPE") as raised:
                await connection.call(b"XLEN", b"x")

    assert raised.value.code == "WRONGTYPE"
