"""One connection to a Redis server: commands out, replies in, by RESP2.

A command is an array of binary strings. A reply is a status, an error, a number, a binary string, an array, or nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterError, ConfigurationError
from ...service_api.tls.outside import dial_outside, trusted_authorities

Reply = int | str | bytes | None | list["Reply"]
"""A status is a str; a string is bytes."""

DEFAULT_PORT: Final = 6379
REPLY_LIMIT_BYTES: Final = 64 << 20
"""A longer reply ends the connection: a server that sends one is none of Redis, or the stream is of somebody else."""
_ELEMENT_LIMIT: Final = 4_096
_DEPTH_LIMIT: Final = 8
_LINE_LIMIT_BYTES: Final = 1 << 16
_SCHEMES: Final = ("redis", "rediss")
_OPTIONS: Final = ("stream", "maxlen", "password-file", "ca")
_SHAPE: Final = "redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]?stream=NAME"


class RedisError(ClusterError):
    """The server answered a command with an error; `code` is its first word, such as OOM."""

    def __init__(self, text: str) -> None:
        super().__init__(f"redis answered: {text}")
        self.code = text.split(" ", 1)[0]


class RespError(OSError):
    """What the server sent is no reply: the connection is of no use any more."""


class RedisAddress(NamedTuple):
    """What a URL says of a server and a stream."""

    host: str
    port: int
    database: int
    stream: bytes
    stream_limit: int | None
    """How many entries are kept in the stream, about; None: all."""
    user: str | None
    password: str | None
    is_tls: bool
    ca_file: Path | None

    def __repr__(self) -> str:
        return f"redis{'s' if self.is_tls else ''}://{self.host}:{self.port}/{self.database}?stream={self.stream!r}"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]?stream=NAME`, or `rediss://` for TLS.

        Further options: `maxlen=N`, `password-file=PATH`, `ca=PATH` (certificates that are trusted, PEM).

        Raises:
            ConfigurationError: the URL is none, or its certificates cannot be read; a password is not in the text.
            OSError: the file of the password cannot be read.
        """
        try:
            parts = urlsplit(url)
            port, options = parts.port or DEFAULT_PORT, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ConfigurationError(f"not the URL of a Redis stream: {error}; expected {_SHAPE}") from error
        unknown = [name for name in options if name not in _OPTIONS]
        database, limit = parts.path.strip("/") or "0", options.get("maxlen")
        for is_wrong, what in (
            (parts.scheme not in _SCHEMES, f"scheme={parts.scheme!r} expected redis or rediss"),
            (not parts.hostname, "there is no host"),
            (unknown, f"options={unknown} expected some of {', '.join(_OPTIONS)}"),
            (not options.get("stream"), "stream=NAME is missing"),
            (not database.isdecimal(), f"database={database!r} expected a number"),
            (limit is not None and not (limit.isdecimal() and int(limit)), f"maxlen={limit!r} expected 1 or more"),
            ("ca" in options and parts.scheme != "rediss", "ca= is for rediss://"),
            (parts.password and "password-file" in options, "there are two passwords"),
        ):
            if is_wrong:
                raise ConfigurationError(f"not the URL of a Redis stream: {what}; expected {_SHAPE}")
        ca_file = Path(options["ca"]) if "ca" in options else None
        if parts.scheme == _SCHEMES[1]:
            trusted_authorities(ca_file)
        password = unquote(parts.password) if parts.password else None
        if "password-file" in options:
            password = Path(options["password-file"]).read_text().strip()
        return cls(
            host=parts.hostname or "",
            port=port,
            database=int(database),
            stream=options["stream"].encode(),
            stream_limit=None if limit is None else int(limit),
            user=unquote(parts.username) if parts.username else None,
            password=password,
            is_tls=parts.scheme == "rediss",
            ca_file=ca_file,
        )


class RedisConnection:
    """A connection that is logged in; use it in `async with`. It belongs to one task: one command is under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: RedisAddress) -> Self:
        """Connect, log in, and choose the database.

        Raises:
            PeerRefusedError: its certificate is not trusted, or is for another name.
            OSError: the server cannot be reached.
            RedisError: it does not let us in.
        """
        reader, writer = await dial_outside(
            Endpoint(address.host, address.port),
            trusted=trusted_authorities(address.ca_file) if address.is_tls else None,
            limit_bytes=_LINE_LIMIT_BYTES,
        )
        connection = cls(reader, writer)
        try:
            if address.password is not None:
                user = () if address.user is None else (address.user.encode(),)
                await connection.call(b"AUTH", *user, address.password.encode())
            if address.database:
                await connection.call(b"SELECT", b"%d" % address.database)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def call(self, *words: bytes) -> Reply:
        """Send a command and return its reply. If it is cancelled, the connection is of no use any more.

        Raises:
            RedisError: the server says no.
            OSError: the connection is lost.
        """
        head = [b"*%d\r\n" % len(words)]
        self._writer.write(
            b"".join(head + [part for word in words for part in (b"$%d\r\n" % len(word), word, b"\r\n")])
        )
        await self._writer.drain()
        return await self._read(0)

    async def _read(self, depth: int) -> Reply:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise RespError(f"the connection ended within a reply: {error}") from error
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text.decode(errors="replace")
        if kind == b"-":
            raise RedisError(text.decode(errors="replace"))
        try:
            number = int(text)
        except ValueError as error:
            raise RespError(f"not a reply of Redis: {line[:64]!r}") from error
        if kind == b":":
            return number
        if number == -1 and kind in b"$*":
            return None
        if kind == b"$" and 0 <= number <= REPLY_LIMIT_BYTES:
            return await self._read_string(number)
        if kind == b"*" and 0 <= number <= _ELEMENT_LIMIT and depth < _DEPTH_LIMIT:
            return [await self._read(depth + 1) for _ in range(number)]
        raise RespError(f"not a reply of Redis: {line[:64]!r}")

    async def _read_string(self, length: int) -> bytes:
        try:
            data = await self._reader.readexactly(length + 2)
        except asyncio.IncompleteReadError as error:
            raise RespError(f"the connection ended within a reply: {error}") from error
        return data[:-2]
