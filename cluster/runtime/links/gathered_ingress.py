"""What many connections bring in one pass of the loop, appended to the log together.

The problem: a thousand clients with one request in flight each bring a thousand single frames. Taken one by one, each
costs a search for a run of frames, a chunk of the log, a write of the recording and a delivery of its own: 14 us of
processor time, where a frame of a long chunk costs 1 us.

The idea: the loop asks each connection for a buffer and reports what it put there. All of them receive into one buffer
in any case, so a connection that may do so leaves its frame there, and the next one receives behind it. At the end of
the pass the frames of all lie side by side. They are checked against the sessions of their connections, stamped and
appended as one run, with one look at the window and one flush.

What is left is the kernel's: to receive and to send one message on a connection of loopback takes it 8 to 9 us on the
machine this was measured on, where a message of one session with 1,024 in flight takes 2 us in all. Rejected, with the
user time of a message of a bare echo server with 1,000 connections, beside 1.6 to 2.1 us for a protocol of the loop:
sends beside the loop's reading (1.4 to 2.1), an epoll of our own with recv_into and send (0.6 to 1.3), readv and write
on descriptors (0.6 to 0.7). TLS and the simulator could use none of them. Rejected as well: io_uring with one submit
for a thousand sends. It takes 4.2 to 5.6 us of the kernel and 0.1 of Python a send, where send takes 5.9 to 6.6 and
0.2 to 0.8: 2 us of some 25, for a second way to write.

Who is gathered: connections on which one session is open, for parts of at most `GATHERED_PART_BYTES` that begin with a
frame. A longer part, and whatever is no ordinary message, is taken by its connection alone, after what was gathered
before it: connections keep the order in which the loop asks them.

Bounds: the shared buffer. `GATHERED_BYTES` of it are filled, then what is there is taken; so the window of ingress is
overrun by no more than by one long chunk. What was gathered when reading is paused waits with its connections, where
it counts as unfinished.

Invariant: what is gathered is taken before its connection is lost, and in the order in which it came on a connection.
Where a loop reads a connection more than once in a pass, its second part may begin within a frame or a message of which
the first part holds the beginning. Then it is for its connection, even if it looks like a frame of the session: a
payload may hold what a stranger wrote. And it is for nobody if the first part ended the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from ...core.log.log_publisher import LogPublisher
from ..watching.stage_watch import StageWatch
from .ingress_owner import IngressOwner

GATHERED_PART_BYTES: Final = 4 << 10
"""The longest part that is gathered: from about here on a chunk is worth its own append."""

GATHERED_BYTES: Final = 256 << 10
"""How much is gathered at most. The buffer has as much again for the next connection."""

LEAST_CONNECTIONS: Final = 4
"""With fewer there is nothing to gain, and a message would wait for the end of the pass."""


class GatheringConnection(Protocol):
    """A connection, as far as its parts are gathered."""

    connection_id: int
    sole_prefix: bytes
    """What the messages of the only session on it begin with; empty where there are none, or many."""
    last_activity_ns: int

    @property
    def next_prefix(self) -> bytes:
        """What its next bytes begin with if they are a message: `sole_prefix`, or empty within a frame or a message."""

    def take_rest(self, data: memoryview) -> None:
        """Take what was received; the beginning of its first frame may have come just before."""

    def keep(self, data: memoryview) -> None:
        """Keep what was received while reading is paused, until it goes on."""


class GatheringHub(Protocol):
    """What is needed of a member's ingress."""

    owner: IngressOwner
    buffer: bytearray
    view: memoryview
    stages: StageWatch
    is_paused: bool

    @property
    def connections(self) -> Mapping[int, object]:
        """Those that are not gone, by number."""

    def on_window_filled(self, connection_id: int) -> None:
        """Stop reading; this connection is read last when reading goes on."""


class GatheredIngress:
    """The parts of connections that lie side by side in the buffer of all."""

    __slots__ = ("_connections", "_ends", "_ingress", "end", "is_worth_it", "least_connections")

    def __init__(self, ingress: GatheringHub) -> None:
        self._ingress = ingress
        self.end = 0
        """Where the last part ends, and the next connection receives."""
        self.is_worth_it = False
        """Whether there are enough connections to gather at all."""
        self.least_connections = LEAST_CONNECTIONS
        """How many are enough."""
        self._connections: list[GatheringConnection] = []
        self._ends: list[int] = []

    def __repr__(self) -> str:
        return f"<GatheredIngress parts={len(self._ends)} end={self.end}>"

    def look(self, connection_count: int) -> None:
        """Note how many connections there are."""
        self.is_worth_it = connection_count >= self.least_connections

    def add(self, connection: GatheringConnection, length: int) -> None:
        """Leave the part of a connection, which lies at `end`, until the end of the pass."""
        self.end += length
        self._ends.append(self.end)
        self._connections.append(connection)
        if len(self._ends) == 1:
            asyncio.get_running_loop().call_soon(self.take)
        elif self.end >= GATHERED_BYTES:
            self.take()

    def take(self) -> None:
        """Append what is gathered; what is no ordinary message is taken by its connection."""
        if not self.end:
            return
        connections, ends = self._connections, self._ends
        self._connections, self._ends, self.end = [], [], 0
        stages = self._ingress.stages
        begin_ns = stages.received_ns = stages.monotonic_ns()
        if not self._append_uniform(self._ingress.buffer, connections, ends):
            if len(set(connections)) == len(connections):
                self._take_by_length(connections, ends)
            else:  # the parts of one connection keep their order
                self._take_each(self._ingress.buffer, connections, ends)
        now_ns = stages.monotonic_ns()
        for connection in connections:
            connection.last_activity_ns = now_ns
        stages.look("ingress", begin_ns, now_ns)

    def _append_uniform(self, buffer: bytearray, connections: list[GatheringConnection], ends: list[int]) -> bool:
        """Append the parts in a buffer if all are messages of one length."""
        ingress, owner = self._ingress, self._ingress.owner
        publisher = owner.publisher
        if publisher is None or ingress.is_paused:
            return False
        prefixes = [connection.sole_prefix for connection in connections]
        if not publisher.append_uniform(buffer, 0, ends, prefixes=prefixes, timestamp=owner.stamp()):
            return False
        self._on_appended(publisher, connections[-1])
        return True

    def _take_by_length(self, connections: list[GatheringConnection], ends: list[int]) -> None:
        """Take parts of different lengths, those of one length together: keep-alives come among the messages."""
        by_length: dict[int, list[tuple[GatheringConnection, int]]] = {}
        start = 0
        for connection, end in zip(connections, ends, strict=True):
            by_length.setdefault(end - start, []).append((connection, end))
            start = end
        view = self._ingress.view
        for length, parts in by_length.items():
            together = bytearray().join([view[end - length : end] for _, end in parts])
            same = [connection for connection, _ in parts]
            same_ends = [*range(length, len(together) + 1, length)]
            if len(by_length) == 1 or not self._append_uniform(together, same, same_ends):
                self._take_each(together, same, same_ends)

    def _take_each(self, buffer: bytearray, connections: list[GatheringConnection], ends: list[int]) -> None:
        """Append the messages among the parts in a buffer; connections take all else, each in its place."""
        ingress, owner = self._ingress, self._ingress.owner
        parts = ((connection.next_prefix, end) for connection, end in zip(connections, ends, strict=True))
        start = index = 0
        while index < len(ends):
            publisher = owner.publisher
            if publisher is None or ingress.is_paused:
                next(parts)
            else:
                count = publisher.append_each(buffer, start, parts, timestamp=owner.stamp())
                if count:
                    index += count
                    start = ends[index - 1]
                    self._on_appended(publisher, connections[index - 1])
            if index < len(ends):
                self._take_alone(buffer, connections[index], start, ends[index])
                start = ends[index]
                index += 1

    def _on_appended(self, publisher: LogPublisher, last: GatheringConnection) -> None:
        ingress, stages = self._ingress, self._ingress.stages
        if stages.received_ns >= stages.next_ns:
            stages.begin(publisher.log_buffer.append_position)
        ingress.owner.schedule_flush()
        if ingress.owner.is_window_full():
            ingress.on_window_filled(last.connection_id)

    def _take_alone(self, buffer: bytearray, connection: GatheringConnection, start: int, end: int) -> None:
        """Let a connection take its part, unless it is gone."""
        ingress = self._ingress
        if ingress.connections.get(connection.connection_id) is not connection:
            return
        if ingress.is_paused:
            connection.keep(memoryview(buffer)[start:end])
        else:
            connection.take_rest(memoryview(buffer)[start:end])
