"""The one place that accounts for egress: what clients have not taken yet, of all connections of a member.

A socket that takes what it is given costs nothing here: its connection writes straight to the transport. Once a
transport holds `HIGH_WATER_BYTES`, its connection waits: whatever follows for it is kept here, in whole frames, and
goes out as the socket takes more. So what waits can be counted, and dropped again, which bytes in a transport cannot.

Bounds: `limit_bytes` for all that waits, and a share of it for each connection. At the bound a client is cut off, and
never the one that happens to write: first the connections whose sockets have taken nothing for a while, the one
that holds the most before the others; where all of them read, the one that holds the most. A client beyond
`READ_LIMIT_BYTES` is not read either. Connections that do not wait hold less than `HIGH_WATER_BYTES` each; `look`
counts those, too, once a second.

A connection that is cut off loses what waited here and gets one more message, which says why, then its end. Its session
stays: the client connects again, and its requests are answered with the replies that were kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from ....service_api.shares import share_of
from ....service_api.wire.frame import FLAG_END, align, unpack_header

HIGH_WATER_BYTES: Final = 128 << 10
"""What a transport may hold before its connection waits: more than one turn of the loop writes to a client that reads.

A lower mark would have the transport write earlier than at the end of the turn.
"""

READ_LIMIT_BYTES: Final = 4 << 20
"""What may wait for a client before it is not read."""

DEFAULT_LIMIT_BYTES: Final = 192 << 20

STALLED_AFTER_NS: Final = 200_000_000
"""A socket that takes nothing for so long belongs to a client that does not read."""

PIECE_BYTES: Final = 64 << 10
"""Small writes are joined up to this, so that objects do not cost more than what they hold; long ones are cut."""


class Waiter(Protocol):
    """A connection, as the tracker sees it."""

    @property
    def unsent_bytes(self) -> int:
        """What its transport holds."""

    def send_now(self, data: bytes | bytearray) -> None:
        """Give bytes to the transport."""

    def choke(self, is_choked: bool) -> None:
        """Stop reading the client, or read it again."""

    def on_all_sent(self) -> None:
        """Nothing waits any more: write straight to the transport again."""

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        """Tell the client why, and end the connection."""


class WaitingEgress:
    """What waits for one connection."""

    __slots__ = ("is_choked", "is_socket_full", "pieces", "queued_bytes", "taken_ns", "unsent_bytes")

    def __init__(self, now_ns: int) -> None:
        self.pieces: deque[bytes | bytearray] = deque()
        """Whole frames, in order; none of them has gone to the transport."""
        self.queued_bytes = 0
        """Of the pieces."""
        self.unsent_bytes = 0
        """What the transport held when it was looked at last."""
        self.taken_ns = now_ns
        """When the socket was last seen to have taken something."""
        self.is_socket_full = True
        self.is_choked = False

    def __repr__(self) -> str:
        return f"<WaitingEgress queued={self.queued_bytes} unsent={self.unsent_bytes}>"

    @property
    def held_bytes(self) -> int:
        """All that waits."""
        return self.queued_bytes + self.unsent_bytes


class EgressTracker:
    """Holds the egress that waits, and keeps it within the limit."""

    def __init__(self, limit_bytes: int, monotonic_ns: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Of all connections that wait."""
        self.cut_off_count = 0
        self._other_bytes = 0
        """What transports of connections that do not wait held at the last look."""
        self._monotonic_ns = monotonic_ns
        self._peak_bytes = 0
        self._waiting: dict[Waiter, WaitingEgress] = {}
        """In the order in which they began to wait."""

    def __repr__(self) -> str:
        return f"<EgressTracker held={self.held_bytes}/{self.limit_bytes} waiting={len(self._waiting)}>"

    @property
    def waiting_bytes(self) -> int:
        """All that clients have not taken: of those that wait now, of the others when they were looked at last."""
        return self.held_bytes + self._other_bytes

    def take_peak_bytes(self) -> int:
        """Return the most that was held since the last call."""
        peak_bytes, self._peak_bytes = self._peak_bytes, self.held_bytes
        return peak_bytes

    def begin(self, waiter: Waiter) -> WaitingEgress:
        """A transport is full: what follows for its connection waits."""
        waiting = self._waiting[waiter] = WaitingEgress(self._monotonic_ns())
        self._count(waiting, unsent_bytes=waiter.unsent_bytes)
        self._keep_to_limits(waiter, waiting)
        return waiting

    def add(self, waiter: Waiter, waiting: WaitingEgress, data: bytes | bytearray) -> None:
        """Keep whole frames for a connection that waits. At a bound somebody is cut off, perhaps this one."""
        if self._waiting.get(waiter) is not waiting:
            return  # it was cut off by what came just before
        pieces = waiting.pieces
        if pieces and len(pieces[-1]) + len(data) <= PIECE_BYTES:
            last = pieces[-1]
            if not isinstance(last, bytearray):
                last = pieces[-1] = bytearray(last)
            last += data
        else:
            pieces.append(data)
        self._count(waiting, queued_bytes=waiting.queued_bytes + len(data))
        self._keep_to_limits(waiter, waiting)

    def add_long(self, waiter: Waiter, waiting: WaitingEgress, data: bytes | bytearray) -> None:
        """Send what a transport should not hold at once; what it does not take waits. The connection has just begun."""
        waiting.is_socket_full = False
        for piece in _cut_between_messages(data):
            if waiting.is_socket_full:
                self.add(waiter, waiting, piece)
            else:
                waiter.send_now(piece)
        if not waiting.is_socket_full:
            self.pump(waiter, waiting)

    def pump(self, waiter: Waiter, waiting: WaitingEgress) -> None:
        """A transport has room again: give it what waits, until it is full or nothing is left."""
        if self._waiting.get(waiter) is not waiting:
            return
        pieces = waiting.pieces
        waiting.is_socket_full = False
        while pieces and not waiting.is_socket_full:
            data = pieces.popleft()
            self._count(waiting, queued_bytes=waiting.queued_bytes - len(data))
            waiter.send_now(data)
        waiting.taken_ns = self._monotonic_ns()
        self._count(waiting, unsent_bytes=waiter.unsent_bytes)
        if waiting.is_choked and waiting.held_bytes <= READ_LIMIT_BYTES // 2:
            waiting.is_choked = False
            waiter.choke(False)
        if not waiting.is_socket_full:
            self.end(waiter)
            waiter.on_all_sent()

    def end(self, waiter: Waiter) -> None:
        """Forget a connection: all is sent, or it is gone."""
        waiting = self._waiting.pop(waiter, None)
        if waiting is not None:
            waiting.pieces.clear()
            self._count(waiting, queued_bytes=0, unsent_bytes=0)

    def look(self, connections: Iterable[Waiter]) -> None:
        """Count again what the transports of all connections hold, and keep to the limit.

        To be called once in a while.
        """
        self._look_at_waiting()
        others = {waiter: waiter.unsent_bytes for waiter in connections if waiter not in self._waiting}
        self._other_bytes = sum(others.values())
        self._make_room()
        if self.waiting_bytes > self.limit_bytes:  # so many clients that even what each may hold unseen is too much
            for waiter, unsent_bytes in sorted(others.items(), key=lambda item: -item[1]):
                self._other_bytes -= unsent_bytes
                self._cut_off(waiter, self._overflow(), unsent_bytes)
                if self.waiting_bytes <= self.limit_bytes:
                    break

    def _keep_to_limits(self, waiter: Waiter, waiting: WaitingEgress) -> None:
        if waiting.held_bytes > READ_LIMIT_BYTES and not waiting.is_choked:
            waiting.is_choked = True
            waiter.choke(True)
        limit = share_of(self.limit_bytes)
        if waiting.held_bytes > limit:
            self._look_at(waiter, waiting, self._monotonic_ns())
            held_bytes = waiting.held_bytes
            if held_bytes > limit:
                self._cut_off(waiter, f"too much egress waits for this connection: {held_bytes=} {limit=}", held_bytes)
        self._make_room()

    def _make_room(self) -> None:
        """Cut connections off until the limit holds: those first whose sockets take nothing."""
        if self.waiting_bytes <= self.limit_bytes:
            return
        self._look_at_waiting()
        stalled_ns = self._monotonic_ns() - STALLED_AFTER_NS
        candidates = sorted(
            self._waiting.items(), key=lambda item: (item[1].taken_ns <= stalled_ns, item[1].held_bytes)
        )
        while candidates and self.waiting_bytes > self.limit_bytes:
            waiter, waiting = candidates.pop()
            self._cut_off(waiter, self._overflow(), waiting.held_bytes)

    def _overflow(self) -> str:
        return (
            f"too much egress waits for all clients of this member: waiting_bytes={self.waiting_bytes} "
            f"limit={self.limit_bytes}"
        )

    def _cut_off(self, waiter: Waiter, reason: str, waiting_bytes: int) -> None:
        self.end(waiter)
        self.cut_off_count += 1
        waiter.cut_off(reason, waiting_bytes)

    def _look_at_waiting(self) -> None:
        now_ns = self._monotonic_ns()
        for waiter, waiting in self._waiting.items():
            self._look_at(waiter, waiting, now_ns)

    def _look_at(self, waiter: Waiter, waiting: WaitingEgress, now_ns: int) -> None:
        """Note what the transport holds now, and whether its socket has taken anything."""
        unsent_bytes = waiter.unsent_bytes
        if unsent_bytes < waiting.unsent_bytes:
            waiting.taken_ns = now_ns
        self._count(waiting, unsent_bytes=unsent_bytes)

    def _count(
        self, waiting: WaitingEgress, *, queued_bytes: int | None = None, unsent_bytes: int | None = None
    ) -> None:
        """Change what waits for one connection, and so of all."""
        before = waiting.held_bytes
        if queued_bytes is not None:
            waiting.queued_bytes = queued_bytes
        if unsent_bytes is not None:
            waiting.unsent_bytes = unsent_bytes
        self.held_bytes += waiting.held_bytes - before
        if self.held_bytes > self._peak_bytes:
            self._peak_bytes = self.held_bytes


def _cut_between_messages(data: bytes | bytearray) -> Iterator[bytes]:
    """Cut frames between messages into pieces of about `PIECE_BYTES`; what is dropped later must not end within one."""
    view = memoryview(data)
    begin = offset = 0
    while offset < len(view):
        header = unpack_header(view, offset)
        offset += align(header.frame_length)
        if header.flags & FLAG_END and (offset - begin >= PIECE_BYTES or offset >= len(view)):
            yield bytes(view[begin:offset])
            begin = offset
