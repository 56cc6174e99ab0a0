"""A client that keeps N requests in flight on one connection, for peers that answer in the order of the requests.

Run as a module with the JSON of `PipelineParameters` it is a process of its own; it prints one line of JSON. What a
peer's requests and answers look like is its dialect. Requests are encoded in one go for each batch of answers, so that
Python is no more than a small part of what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Protocol, cast

import uvloop

from ...service_api.errors import ClusterError
from ..load.lines import ProcessParameters
from ..machine.environment import tune_garbage_collector
from ..statistics.histogram import Histogram
from .peer import Measured

TIME_LIMIT_S: Final = 120.0
IDLE_S: Final = 0.1
"""When nothing was answered for so long, the connection is shown to be alive."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PipelineParameters(ProcessParameters):
    """What one load is."""

    dialect: str
    host: str
    port: int
    inflight: int
    messages: int
    payload: int


class Dialect(Protocol):
    """The requests and answers of a peer."""

    def greeting(self) -> bytes:
        """What a connection begins with."""

    def is_greeted(self, data: bytearray) -> bool:
        """Take the answer to the greeting from the beginning of `data`; False while it is not there whole."""

    def requests(self, first: int, count: int) -> bytes:
        """Encode `count` requests, numbered from `first`."""

    def keep_alive(self) -> bytes:
        """What is sent when nothing was answered for a while; its answer is none of those that are counted."""

    def take_answers(self, data: bytearray) -> int:
        """Take whole answers from the beginning of `data` and count them.

        Raises:
            ClusterError: one is a refusal.
        """

    def is_one_answer(self, data: bytes) -> bool:
        """Whether `data` is one whole answer and nothing else, as it is with one request in flight."""

    def farewell(self) -> bytes:
        """What ends the session; empty where there is none to be ended."""

    def is_over(self, data: bytearray) -> bool:
        """Whether the answer to the farewell is in `data`; a peer may close the connection instead."""


class ZooKeeperDialect:
    """`setData` on one znode of any version, which the leader syncs to disk on a majority before it answers."""

    PATH: Final = b"/trimaran-benchmark"
    _HEADER: Final = struct.Struct(">iiqi")
    _ANSWER: Final = struct.Struct(">iiqi68x")
    """With the state of the znode, of which nothing is read."""
    _PING_ID: Final = -2
    _PING: Final = 11
    _CLOSE: Final = -11

    def __init__(self, payload: int) -> None:
        body = struct.pack(">i", len(self.PATH)) + self.PATH + struct.pack(">i", payload) + b"x" * payload
        self._body = struct.pack(">i", 5) + body + struct.pack(">i", -1)
        self._length = struct.pack(">i", 4 + len(self._body))

    def greeting(self) -> bytes:
        """A new session, and the znode."""
        connect = struct.pack(">iqiqi16s?", 0, 0, 30_000, 0, 16, bytes(16), False)
        access = struct.pack(">ii", 1, 31) + _text(b"world") + _text(b"anyone")
        create = struct.pack(">ii", 0, 1) + _text(self.PATH) + _text(b"") + access + struct.pack(">i", 0)
        return _text(connect) + _text(create)

    def is_greeted(self, data: bytearray) -> bool:
        """A session was opened, and the znode is there; it may have been before."""
        lengths = []
        offset = 0
        for _ in range(2):
            if len(data) < offset + 4:
                return False
            (length,) = struct.unpack_from(">i", data, offset)
            offset += 4 + length
            lengths.append(length)
        if len(data) < offset:
            return False
        del data[:offset]
        return True

    def requests(self, first: int, count: int) -> bytes:
        """`setData` with growing ids."""
        length, body, pack = self._length, self._body, struct.Struct(">i").pack
        return b"".join([length + pack(number & 0x7FFF_FFFF) + body for number in range(first + 1, first + count + 1)])

    def keep_alive(self) -> bytes:
        """A ping, which its own client sends, too."""
        return _text(struct.pack(">ii", self._PING_ID, self._PING))

    def take_answers(self, data: bytearray) -> int:
        """Answers come in order; all but refusals and those to pings are of one length."""
        size = self._ANSWER.size
        count = 0
        while True:
            taken = 0
            for length, _, _, error in self._ANSWER.iter_unpack(data[: len(data) // size * size]):
                if error or length != size - 4:
                    break
                taken += 1
            del data[: taken * size]
            count += taken
            if len(data) < self._HEADER.size:
                return count
            length, number, _, error = self._HEADER.unpack_from(data)
            if number == self._PING_ID:
                del data[: 4 + length]
            elif error or length != size - 4:
                raise ClusterError(f"zookeeper refused a setData: error={error} length={length}")
            else:
                return count

    def is_one_answer(self, data: bytes) -> bool:
        """All but refusals and those to pings are of one length."""
        if len(data) != self._ANSWER.size:
            return False
        length, _, _, error = self._ANSWER.unpack(data)
        return length == self._ANSWER.size - 4 and not error

    def farewell(self) -> bytes:
        """`closeSession`: otherwise the session is kept until it times out."""
        return _text(struct.pack(">ii", 0, self._CLOSE))

    def is_over(self, data: bytearray) -> bool:
        """No: the server closes the connection."""
        return False


class JetStreamDialect:
    """A publication to a replicated stream, acknowledged to an inbox when a majority has it in memory."""

    SUBJECT: Final = b"trimaran.benchmark"

    def __init__(self, payload: int, *, inbox: bytes = b"_INBOX.trimaran") -> None:
        self._inbox = inbox
        self._request = b"PUB %b %b %d\r\n%b\r\n" % (self.SUBJECT, inbox, payload, b"x" * payload)

    def greeting(self) -> bytes:
        """No echo of commands; one subscription for all acknowledgements."""
        return b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %b 1\r\nPING\r\n' % self._inbox

    def is_greeted(self, data: bytearray) -> bool:
        """INFO, then PONG."""
        end = data.find(b"PONG\r\n")
        if end < 0:
            return False
        del data[: end + 6]
        return True

    def requests(self, first: int, count: int) -> bytes:
        """The same publication again and again."""
        return self._request * count

    def keep_alive(self) -> bytes:
        """Nothing: the server pings, and waits four minutes for an answer, longer than any load."""
        return b""

    def take_answers(self, data: bytearray) -> int:
        """Count the acknowledgements: each is a line that begins with MSG, and a line of JSON."""
        whole = data.rfind(b"}\r\n") + 3
        taken = data[:whole] if whole > 2 else b""
        for refusal in (b'"error"', b"-ERR"):
            if refusal in data:
                raise ClusterError(f"jetstream refused: {data.decode(errors='replace')[:500]}")
        del data[: len(taken)]
        return taken.count(b"MSG ")

    def is_one_answer(self, data: bytes) -> bool:
        """One line that begins with MSG, and one of JSON, which is no error."""
        is_whole = data.startswith(b"MSG ") and data.endswith(b"}\r\n") and data.count(b"\n") == 2
        return is_whole and b'"error"' not in data

    def farewell(self) -> bytes:
        """Nothing: there is no session."""
        return b""

    def is_over(self, data: bytearray) -> bool:
        """Yes, from the beginning."""
        return True


_DIALECTS: Final[dict[str, Callable[[int], Dialect]]] = {"zookeeper": ZooKeeperDialect, "jetstream": JetStreamDialect}


class _Pipeline(asyncio.Protocol):
    """One connection with its window."""

    def __init__(self, parameters: PipelineParameters, dialect: Dialect, done: asyncio.Future[None]) -> None:
        self._parameters = parameters
        self._dialect = dialect
        self._done = done
        self._data = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._is_greeted = False
        self._sent = self._answered = 0
        self._sent_ns: deque[tuple[int, int]] = deque()
        """For each batch that was sent: when, and how many of its answers are still to come."""
        self._answered_at_last_look = 0
        self.latencies_ns = array("q")
        self.started_ns = self.ended_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is one, and does not say so
        self._transport.write(self._dialect.greeting())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            state = f"answered={self._answered} sent={self._sent} of={self._parameters.messages}"
            self._done.set_exception(exc or ClusterError(f"the peer closed the connection: {state}"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            self._take()
        except ClusterError as error:
            if not self._done.done():
                self._done.set_exception(error)

    def _take(self) -> None:
        if not self._is_greeted:
            if not self._dialect.is_greeted(self._data):
                return
            self._is_greeted = True
            self.started_ns = time.perf_counter_ns()
            self._send(min(self._parameters.inflight, self._parameters.messages))
            asyncio.get_running_loop().call_later(IDLE_S, self._look)
        count = self._dialect.take_answers(self._data)
        if not count:
            return
        now_ns = time.perf_counter_ns()
        self._answered += count
        self._record(count, now_ns)
        self._send(min(count, self._parameters.messages - self._sent))
        if self._answered >= self._parameters.messages and not self._done.done():
            self.ended_ns = now_ns
            self._done.set_result(None)

    def _look(self) -> None:
        """Keep the connection alive when nothing was answered since the last look."""
        if self._done.done():
            return
        assert self._transport is not None
        if self._answered == self._answered_at_last_look:
            self._transport.write(self._dialect.keep_alive())
        self._answered_at_last_look = self._answered
        asyncio.get_running_loop().call_later(IDLE_S, self._look)

    def _send(self, count: int) -> None:
        if count:
            assert self._transport is not None
            self._transport.write(self._dialect.requests(self._sent, count))
            self._sent += count
            self._sent_ns.append((time.perf_counter_ns(), count))

    def _record(self, count: int, now_ns: int) -> None:
        while count:
            sent_ns, left = self._sent_ns.popleft()
            taken = min(count, left)
            self.latencies_ns.extend([now_ns - sent_ns] * taken)
            count -= taken
            if left > taken:
                self._sent_ns.appendleft((sent_ns, left - taken))


async def _run(parameters: PipelineParameters) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    pipeline = _Pipeline(parameters, _DIALECTS[parameters.dialect](parameters.payload), done)
    transport, _ = await loop.create_connection(lambda: pipeline, parameters.host, parameters.port)
    tune_garbage_collector()
    before = os.times()
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            await done
    finally:
        transport.abort()
    after = os.times()
    latencies = Histogram()
    latencies.record_all(pipeline.latencies_ns)
    took_s = (pipeline.ended_ns - pipeline.started_ns) / 1e9
    cpu_s = after.user + after.system - before.user - before.system
    print(json.dumps(asdict(Measured.of(latencies, took_s, client_s=cpu_s))))


def run_pipeline(parameters: PipelineParameters) -> Measured:
    """Run the load in a process of its own.

    Raises:
        ClusterError: it failed; the error says what it printed last.
    """
    command = (sys.executable, "-m", "trimaran.benchmarks.peers.pipeline", parameters.to_json())
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S + 30, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ClusterError(f"client of {parameters.dialect} failed: {last}")
    return Measured(**json.loads(done.stdout))


def _text(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


if __name__ == "__main__":
    uvloop.run(_run(PipelineParameters.from_json(sys.argv[1])))
