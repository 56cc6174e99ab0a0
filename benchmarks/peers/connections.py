"""A load process with many connections and one request in flight on each, made so that it is not what limits.

Raw sockets on epoll, requests that are encoded before, one read and one write for each request: about as little as
Python can do. What requests and answers look like is the dialect's. Run it as
`python -m trimaran.benchmarks.peers.connections PARAMETERS`, the JSON of `ConnectionsParameters`; it talks to the
harness in lines, as `trimaran.benchmarks.load.client_process` does:

    -> {"event": "ready"}    every session is open                                    <- go
       each connection has one request in flight; the harness waits as long as it measures   <- go BEGIN_NS END_NS
    -> {"event": "result", ...}   the answers that came between, on the monotonic clock; then it closes the sessions
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...service_api.errors import ClusterError, ClusterTimeoutError
from ..load.lines import ProcessParameters, emit, run_process
from ..machine.environment import tune_garbage_collector
from ..statistics.histogram import Histogram
from .pipeline import IDLE_S, Dialect, JetStreamDialect, ZooKeeperDialect
from .session_dialect import SessionDialect

_OPENING_LIMIT: Final = 64
"""Sessions that are being opened at a time."""
_BEGINNING_LIMIT: Final = 64
"""Requests that are the first of their connection, between two looks at what has been answered."""
_KEEP_ALIVE_S: Final = 2.0
"""Sessions that rest are shown to be alive so often: ours end after 10 s without a word."""
_OPENING_LIMIT_S: Final = 120.0
_CLOSING_LIMIT_S: Final = 10.0
_CONNECT_LIMIT_S: Final = 30.0
_LOOK_S: Final = 0.5
_BUFFER_BYTES: Final = 65_536
_EVENTS_LIMIT: Final = 1_024
"""Of one look: answers that wait longer in it would make latencies longer than they are."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ConnectionsParameters(ProcessParameters):
    """What one load process is told."""

    dialect: str
    host: str
    port: int
    first: int
    """The number of its first connection: each has its own, over all processes."""
    connections: int
    payload: int


_DIALECTS: Final[Mapping[str, Callable[[int, int], Dialect]]] = {
    "jetstream": lambda payload, number: JetStreamDialect(payload, inbox=b"_INBOX.trimaran.%d" % number),
    "trimaran": SessionDialect,
    "zookeeper": lambda payload, number: ZooKeeperDialect(payload),
}
"""By name: a dialect for each connection, of its payload and its number."""


class _Connection:
    """One connection, and its session."""

    __slots__ = ("dialect", "is_one_answer", "is_open", "pending", "receive", "request", "send", "sent_ns", "sock")

    def __init__(self, sock: socket.socket, dialect: Dialect) -> None:
        self.sock = sock
        self.dialect = dialect
        # Bound once: looking them up takes as long as the rest of a turn's Python.
        self.receive, self.send = sock.recv, sock.send
        self.is_one_answer = dialect.is_one_answer
        self.pending = bytearray()
        self.request = b""
        self.sent_ns = 0
        self.is_open = False


class ConnectionsLoad:
    """All connections of the process.

    Raises:
        ClusterError: the peer refused something or closed a connection; said by every method that waits.
    """

    def __init__(self, parameters: ConnectionsParameters) -> None:
        self._parameters = parameters
        self._epoll = select.epoll()
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        self._commands = b""
        self._connections: dict[int, _Connection] = {}
        """By file descriptor."""
        self._open_count = 0
        self._latencies_ns, self._answered_ns = array("q"), array("q")

    def open(self) -> None:
        """Open every session, a few at a time."""
        wanted, deadline = self._parameters.connections, time.monotonic() + _OPENING_LIMIT_S
        kept_alive = time.monotonic()
        while self._open_count < wanted:
            made = len(self._connections)
            for number in range(made, min(wanted, self._open_count + _OPENING_LIMIT)):
                self._connect(self._parameters.first + number)
            self._look(_LOOK_S, self._greet)
            now = time.monotonic()
            if now > deadline:
                raise ClusterTimeoutError(f"opened {self._open_count} of {wanted} sessions in {_OPENING_LIMIT_S:g} s")
            if now - kept_alive > _KEEP_ALIVE_S:
                self._keep_alive()
                kept_alive = now

    def rest(self) -> str:
        """Keep the sessions alive until the harness says to go on; return what it says besides."""
        kept_alive = time.monotonic()
        while not self._commands:
            self._look(_LOOK_S, self._drop)
            if time.monotonic() - kept_alive > _KEEP_ALIVE_S:
                self._keep_alive()
                kept_alive = time.monotonic()
        return self._next_command()

    def run(self) -> str:
        """Keep one request of each connection in flight until the harness says to go on; return what it says besides.

        A connection that has its answer sends its next request at once. They begin a few at a time: ten thousand that
        arrive in one instant are another load, which comes once.
        """
        for connection in self._connections.values():
            connection.request = connection.dialect.requests(0, 1)
        waiting = deque(self._connections.values())
        any_one = waiting[0]
        while waiting:
            for _ in range(min(_BEGINNING_LIMIT, len(waiting))):
                connection = waiting.popleft()
                connection.sent_ns = time.monotonic_ns()
                connection.send(connection.request)
            self._look(0, self._answer)
        while not self._commands:
            if not self._look(IDLE_S, self._answer):
                # A server that has lost a wake-up goes on with anything: see `peers.zookeeper`. One word is enough; one
                # of each session, while the server is busy with their requests, is a load that ended leaders.
                any_one.send(any_one.dialect.keep_alive())
        return self._next_command()

    def latencies(self, begin_ns: int, end_ns: int) -> Histogram:
        """Return how long the requests took whose answers came in this time."""
        found = Histogram()
        pairs = zip(self._answered_ns, self._latencies_ns, strict=True)
        found.record_all(latency_ns for at_ns, latency_ns in pairs if begin_ns <= at_ns < end_ns)
        return found

    def close(self) -> None:
        """End every session and wait for the peer's word on it, for a time: the next load is not to meet them."""
        for connection in self._connections.values():
            with suppress(OSError):
                connection.send(connection.dialect.farewell())
        deadline = time.monotonic() + _CLOSING_LIMIT_S
        for connection in list(self._connections.values()):
            if connection.dialect.is_over(connection.pending):
                self._end(connection)
        while self._connections and time.monotonic() < deadline:
            self._look(_LOOK_S, self._await_end)

    def _look(self, timeout_s: float, take: Callable[[_Connection, bytes], None]) -> int:
        """Give what has come on each connection to a function; return how many there were."""
        ready = self._epoll.poll(timeout_s, _EVENTS_LIMIT)
        connections = self._connections
        for descriptor, _ in ready:
            connection = connections.get(descriptor)
            if connection is None:
                self._read_command()
                continue
            try:
                data = connection.receive(_BUFFER_BYTES)
            except OSError:
                data = b""
            take(connection, data)
        return len(ready)

    def _connect(self, number: int) -> None:
        parameters = self._parameters
        sock = socket.create_connection((parameters.host, parameters.port), timeout=_CONNECT_LIMIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        connection = _Connection(sock, _DIALECTS[parameters.dialect](parameters.payload, number))
        self._connections[sock.fileno()] = connection
        self._epoll.register(sock, select.EPOLLIN)
        connection.send(connection.dialect.greeting())

    def _greet(self, connection: _Connection, data: bytes) -> None:
        self._drop(connection, data)
        if not connection.is_open and connection.dialect.is_greeted(connection.pending):
            connection.is_open = True
            self._open_count += 1

    def _drop(self, connection: _Connection, data: bytes) -> None:
        """Take what a session says that rests: answers to the word that it is alive."""
        if not data:
            raise ClusterError(f"the peer closed a connection: opened={self._open_count}")
        connection.pending += data
        if connection.is_open:
            connection.dialect.take_answers(connection.pending)

    def _answer(self, connection: _Connection, data: bytes) -> None:
        """Take the answer to the request in flight, and send the next one."""
        if connection.pending or not connection.is_one_answer(data):
            if not data:
                raise ClusterError(f"the peer closed a connection: answered={len(self._answered_ns)}")
            connection.pending += data
            if not connection.dialect.take_answers(connection.pending):
                return
        now_ns = time.monotonic_ns()
        self._answered_ns.append(now_ns)
        self._latencies_ns.append(now_ns - connection.sent_ns)
        connection.sent_ns = now_ns
        connection.send(connection.request)

    def _await_end(self, connection: _Connection, data: bytes) -> None:
        connection.pending += data
        if not data or connection.dialect.is_over(connection.pending):
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        del self._connections[connection.sock.fileno()]
        connection.sock.close()

    def _keep_alive(self) -> None:
        for connection in self._connections.values():
            if connection.is_open:
                connection.send(connection.dialect.keep_alive())

    def _read_command(self) -> None:
        data = os.read(sys.stdin.fileno(), _BUFFER_BYTES)
        if not data:
            raise ClusterError("the harness is gone: end of standard input")
        self._commands += data

    def _next_command(self) -> str:
        line, _, self._commands = self._commands.partition(b"\n")
        return line.decode().removeprefix("go").strip()


def run(parameters: ConnectionsParameters) -> None:
    """Open the sessions, make the load, and report.

    Raises:
        ClusterError: the peer refused something or closed a connection, or the harness is gone.
    """
    load = ConnectionsLoad(parameters)
    try:
        load.open()
        tune_garbage_collector()
        emit("ready")
        load.rest()
        begin_ns, end_ns = map(int, load.run().split())
        emit("result", latencies=load.latencies(begin_ns, end_ns).to_json())
        load.close()
    except OSError as error:
        raise ClusterError(f"{parameters.dialect}: {error!r}") from error


def main() -> None:
    """Run the process."""
    run_process(lambda: run(ConnectionsParameters.from_json(sys.argv[1])))


if __name__ == "__main__":
    main()
