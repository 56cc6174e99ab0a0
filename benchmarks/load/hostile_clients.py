"""Hostile clients: they never read, never finish a message or a handshake, dribble, send anything, or say nothing, and
they come in numbers.

Each kind is one class: `run` keeps `count` connections of its kind to one endpoint until it is cancelled, dialling
again whenever one is dropped; `counts` says how many there are and what became of the others. Everything is written by
hand on plain sockets: the client of the product would not do such things.

`python -m trimaran.benchmarks.load.hostile_clients KIND ENDPOINT COUNT` is a flood as a process of its own, which
prints its counts as a line of JSON four times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Final

from ...client.protocol.protocol import PROTOCOL_VERSION
from ...service_api.endpoint import Endpoint
from ...service_api.types import EGRESS_STREAM_ID, INGRESS_STREAM_ID, ClusterSessionId, CorrelationId, TermId
from ...service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, encode_frame, unpack_header
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.message import peek_header
from ...service_api.wire.session import (
    EventCode,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from ..rig.processes import raise_file_limit
from ..services.fan_out import COUNT

_RECEIVE_WINDOW_BYTES: Final = 4096
"""Asked of the kernel by those that do not read: what waits is to wait at the member."""
_FRAGMENT_BYTES: Final = 60_000
_DIAL_TIMEOUT_S: Final = 5.0
_KEEP_ALIVE_INTERVAL_S: Final = 0.5
_REPORT_INTERVAL_S: Final = 0.25
_PAUSE_S: Final = 0.05
"""Before a dropped connection is dialled again: many of them are one flood, not a busy loop."""


@dataclass(slots=True)
class FloodCounts:
    """How a flood fares. Counts are of connections."""

    open_count: int = 0
    most_open_count: int = 0
    dropped_count: int = 0
    """Ended by the member."""
    refused_count: int = 0
    """Not made: nobody accepted in time."""

    def on_open(self) -> None:
        """One more is there."""
        self.open_count += 1
        self.most_open_count = max(self.most_open_count, self.open_count)

    def on_dropped(self) -> None:
        """One was ended by the member."""
        self.open_count -= 1
        self.dropped_count += 1


class Flood(ABC):
    """So many hostile connections to one endpoint; `run` keeps them up."""

    def __init__(self, endpoint: str, *, count: int, stream_id: int = INGRESS_STREAM_ID) -> None:
        self._endpoint = Endpoint.parse(endpoint)
        self._count = count
        self._setup = SetupFrame(session_id=0, stream_id=stream_id).encode()
        self.counts: Final = FloodCounts()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._endpoint} {self.counts}>"

    async def run(self) -> None:
        """Keep the connections up until this is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._count):
                tasks.create_task(self._keep_up())

    async def _keep_up(self) -> None:
        while True:
            try:
                reader, writer = await self._dial()
            except (OSError, TimeoutError):
                self.counts.refused_count += 1
                await asyncio.sleep(_PAUSE_S)
                continue
            self.counts.on_open()
            try:
                with contextlib.suppress(OSError, EOFError):
                    await self._misbehave(reader, writer)
            finally:
                self.counts.on_dropped()
                writer.transport.abort()
            await asyncio.sleep(_PAUSE_S)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_WINDOW_BYTES)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(sock, (self._endpoint.host, self._endpoint.port))
        except BaseException:
            sock.close()
            raise
        return await asyncio.open_connection(sock=sock)

    @abstractmethod
    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Do on a new connection what this kind does; return, or raise OSError, once the member has ended it."""


class SilentFlood(Flood):
    """Connects and says nothing. Enough of them use up every descriptor of a member that lets them."""

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _wait_for_end(reader)


class DribblingFlood(Flood):
    """Sends the setup frame, then the beginning of a message, a byte at a time, for ever."""

    def __init__(
        self, endpoint: str, *, count: int, stream_id: int = INGRESS_STREAM_ID, interval_s: float = 0.2
    ) -> None:
        super().__init__(endpoint, count=count, stream_id=stream_id)
        self._interval_s = interval_s

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in (*self._setup, *encode_frame(bytes(8_000), stream_id=INGRESS_STREAM_ID)):
            writer.write(bytes((byte,)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    if not await reader.read(65536):
                        return


class HalfHandshakeFlood(Flood):
    """Sends the first half of what begins TLS, and no more."""

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = _client_hello(self._endpoint.host)
        writer.write(hello[: len(hello) // 2])
        await _wait_for_end(reader)


class RandomBytesFlood(Flood):
    """Sends random bytes, as fast as they are taken."""

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(os.urandom(_FRAGMENT_BYTES))
            await writer.drain()


class OversizedFlood(Flood):
    """Sends the setup frame, and the header of a frame that says it is 1 GiB long."""

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = bytearray(encode_frame(bytes(_FRAGMENT_BYTES), stream_id=INGRESS_STREAM_ID))
        frame[:4] = (1 << 30).to_bytes(4, "little")
        writer.write(self._setup + frame)
        await _wait_for_end(reader)


class UnfinishedFlood(Flood):
    """Sends fragments of one message of up to `message_bytes`, and never the last one. It opens no session."""

    def __init__(self, endpoint: str, *, count: int, message_bytes: int = 15 << 20) -> None:
        super().__init__(endpoint, count=count)
        self._message_bytes = message_bytes

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._setup)
        await _send_unfinished(writer, self._message_bytes, session_id=1, term_id=0)
        await _wait_for_end(reader)


class UnfinishedSessionFlood(Flood):
    """As `UnfinishedFlood`, but in a session that is open."""

    def __init__(self, endpoint: str, *, count: int, message_bytes: int = 15 << 20) -> None:
        super().__init__(endpoint, count=count)
        self._message_bytes = message_bytes

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._setup)
        event = await _open_session(reader, writer)
        await _send_unfinished(
            writer, self._message_bytes, session_id=event.cluster_session_id, term_id=event.leadership_term_id
        )
        await _wait_for_end(reader)


class NeverReadingFlood(Flood):
    """Opens sessions, sends messages that bring back many each (`FanOutService`), and reads nothing of it.

    `sent_bytes` are what one session sends in messages of `message_bytes`, each of which comes back `fan_out` times.
    """

    def __init__(
        self, endpoint: str, *, count: int, sent_bytes: int = 100_000, message_bytes: int = 1_000, fan_out: int = 600
    ) -> None:
        super().__init__(endpoint, count=count)
        self._message_count = sent_bytes // message_bytes
        self._payload = COUNT.pack(fan_out).ljust(message_bytes, b".")

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._setup)
        event = await _open_session(reader, writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        message = _session_message(event.cluster_session_id, event.leadership_term_id, self._payload)
        for _ in range(self._message_count):
            writer.write(encode_frame(message, stream_id=INGRESS_STREAM_ID))
            await writer.drain()
        keep_alive = SessionKeepAlive(
            leadership_term_id=event.leadership_term_id, cluster_session_id=event.cluster_session_id
        )
        while not writer.is_closing():  # that the member has ended it shows when something is written
            await asyncio.sleep(_KEEP_ALIVE_INTERVAL_S)
            writer.write(encode_frame(keep_alive.encode(), stream_id=INGRESS_STREAM_ID))


FLOODS: Final[dict[str, type[Flood]]] = {
    "silent": SilentFlood,
    "half-handshake": HalfHandshakeFlood,
    "dribble": DribblingFlood,
    "random-bytes": RandomBytesFlood,
    "oversized": OversizedFlood,
    "never-finish": UnfinishedFlood,
    "never-finish-in-session": UnfinishedSessionFlood,
    "never-read": NeverReadingFlood,
}
"""By the name that the command line takes."""


async def run_and_report(flood: Flood) -> None:
    """Run a flood and print its counts, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(flood.run())
        while True:
            await asyncio.sleep(_REPORT_INTERVAL_S)
            print(json.dumps(asdict(flood.counts)), flush=True)


def _client_hello(host: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host).do_handshake()
    return outgoing.read()


async def _wait_for_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def _open_session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> SessionEvent:
    """Open a session on a leader's connection.

    Raises:
        ConnectionError: the member says no.
        EOFError: the member has ended the connection.
    """
    request = SessionConnectRequest(
        correlation_id=CorrelationId(1),
        response_stream_id=EGRESS_STREAM_ID,
        version=PROTOCOL_VERSION,
        response_channel="",
        encoded_credentials=b"",
        client_info="hostile",
    )
    writer.write(encode_frame(request.encode(), stream_id=INGRESS_STREAM_ID))
    while True:
        header = unpack_header(await reader.readexactly(HEADER_LENGTH))
        body = await reader.readexactly((header.frame_length + 31 & -32) - HEADER_LENGTH)
        _, template_id, schema_id, _ = peek_header(body)
        if (template_id, schema_id) == (SessionEvent.TEMPLATE_ID, SessionEvent.SCHEMA_ID):
            event = SessionEvent.decode(body)
            if event.code is not EventCode.OK:
                raise ConnectionError(event.detail)
            return event


async def _send_unfinished(writer: asyncio.StreamWriter, length: int, *, session_id: int, term_id: int) -> None:
    flags, payload = FLAG_BEGIN, _session_message(session_id, term_id, bytes(_FRAGMENT_BYTES))
    for _ in range(length // _FRAGMENT_BYTES):
        writer.write(encode_frame(payload, stream_id=INGRESS_STREAM_ID, flags=flags))
        await writer.drain()
        flags, payload = 0, bytes(_FRAGMENT_BYTES)


def _session_message(session_id: int, term_id: int, payload: bytes) -> bytes:
    header = SessionMessageHeader(
        leadership_term_id=TermId(term_id), cluster_session_id=ClusterSessionId(session_id), timestamp=0
    )
    return header.encode() + payload


def main() -> None:
    """Run one flood until the process is ended."""
    kind, endpoint, count = sys.argv[1:4]
    raise_file_limit(int(count) + 64)
    asyncio.run(run_and_report(FLOODS[kind](endpoint, count=int(count))))


if __name__ == "__main__":
    main()
