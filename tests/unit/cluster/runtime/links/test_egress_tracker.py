"""One bound for the egress of all clients: who is cut off, who goes on, and that nothing stays counted."""

from __future__ import annotations

import pytest

from trimaran.cluster.runtime.links.egress_tracker import (
    READ_LIMIT_BYTES,
    STALLED_AFTER_NS,
    EgressTracker,
    WaitingEgress,
)
from trimaran.service_api.shares import share_of

LIMIT = 64 << 20
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1

    def monotonic_ns(self) -> int:
        return self.now_ns


class Connection:
    """A connection whose socket takes what the test says."""

    def __init__(self, tracker: EgressTracker, name: str) -> None:
        self._tracker = tracker
        self._name = name
        self.unsent_bytes = 0
        self.sent = bytearray()
        self.is_choked = False
        self.cut_off_reason = ""
        self.waiting: WaitingEgress | None = None

    def __repr__(self) -> str:
        return f"<Connection {self._name}>"

    def fill(self, length: int = 200_000) -> None:
        """Let the transport fill up, as the loop would."""
        self.unsent_bytes = length
        self.waiting = self._tracker.begin(self)

    def write(self, data: bytes) -> None:
        assert self.waiting is not None
        self._tracker.add(self, self.waiting, data)

    def take(self, length: int) -> None:
        """The client reads."""
        self.unsent_bytes = max(0, self.unsent_bytes - length)
        if not self.unsent_bytes and self.waiting is not None:
            self._tracker.pump(self, self.waiting)

    # What the tracker calls.

    def send_now(self, data: bytes | bytearray) -> None:
        self.sent += data
        self.unsent_bytes += len(data)
        if self.unsent_bytes > 100_000 and self.waiting is not None:
            self.waiting.is_socket_full = True

    def choke(self, is_choked: bool) -> None:
        self.is_choked = is_choked

    def on_all_sent(self) -> None:
        self.waiting = None

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        self.cut_off_reason = reason
        self.unsent_bytes = 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tracker(clock: Clock) -> EgressTracker:
    return EgressTracker(LIMIT, clock.monotonic_ns)


def test_what_waits_is_sent_in_order_once_the_socket_takes_it(tracker: EgressTracker) -> None:
    client = Connection(tracker, "slow")
    client.fill(100)
    pieces = [bytes([index]) * (1_000 if index % 2 else 70_000) for index in range(20)]
    for piece in pieces:
        client.write(piece)

    while client.waiting is not None:
        client.take(client.unsent_bytes)

    assert client.sent == b"".join(pieces)
    assert tracker.held_bytes == 0


def test_small_writes_are_joined_so_that_objects_cost_no_more_than_what_they_hold(tracker: EgressTracker) -> None:
    client = Connection(tracker, "slow")
    client.fill()

    for _ in range(10_000):
        client.write(b"x" * 64)

    assert client.waiting is not None
    assert len(client.waiting.pieces) < 12


def test_egress_of_forty_sessions_that_read_nothing_stays_within_one_limit(
    tracker: EgressTracker, clock: Clock
) -> None:
    """Issue 20 §3: 40 sessions that read nothing took the leader to 2,358 MB, each below its own limit."""
    clients = [Connection(tracker, f"flood {index}") for index in range(40)]
    for client in clients:
        client.fill()
    most = 0
    for _ in range(100):
        clock.now_ns += 10_000_000
        for client in clients:
            if not client.cut_off_reason:
                client.write(bytes(100_000))
            most = max(most, tracker.held_bytes)

    assert most <= LIMIT
    assert any(client.cut_off_reason for client in clients)


def test_client_that_reads_nothing_is_cut_off_before_one_that_reads_and_holds_more(
    tracker: EgressTracker, clock: Clock
) -> None:
    honest, *flood = (Connection(tracker, str(index)) for index in range(12))
    for client in (honest, *flood):
        client.fill(14 * MIB if client is honest else 200_000)
    clock.now_ns += STALLED_AFTER_NS
    honest.take(MIB)  # it reads, slowly
    for _ in range(80):
        for client in flood:
            if not client.cut_off_reason:
                client.write(bytes(MIB // 8))

    assert sum(bool(client.cut_off_reason) for client in flood) > 0
    assert not honest.cut_off_reason
    assert "limit=67108864" in next(client.cut_off_reason for client in flood if client.cut_off_reason)


def test_one_connection_may_hold_its_share_only(tracker: EgressTracker) -> None:
    client = Connection(tracker, "greedy")
    client.fill()

    for _ in range(share_of(LIMIT) // MIB + 1):
        if not client.cut_off_reason:
            client.write(bytes(MIB))

    assert "this connection" in client.cut_off_reason
    assert tracker.held_bytes == 0


def test_client_that_does_not_read_is_not_read_until_it_has_read(tracker: EgressTracker) -> None:
    client = Connection(tracker, "slow")
    client.fill()
    client.write(bytes(READ_LIMIT_BYTES))
    was_choked = client.is_choked

    while client.waiting is not None:
        client.take(client.unsent_bytes)

    assert was_choked
    assert not client.is_choked


def test_what_a_connection_held_is_free_when_it_is_gone(tracker: EgressTracker) -> None:
    client = Connection(tracker, "gone")
    client.fill()
    client.write(bytes(MIB))

    tracker.end(client)

    assert tracker.held_bytes == 0
    tracker.end(client)
    assert tracker.held_bytes == 0


def test_many_clients_that_each_hold_too_little_to_wait_are_within_the_limit_too(tracker: EgressTracker) -> None:
    clients = [Connection(tracker, str(index)) for index in range(1_000)]
    for client in clients:
        client.unsent_bytes = 100_000

    tracker.look(clients)

    assert sum(client.unsent_bytes for client in clients) <= LIMIT
    assert tracker.cut_off_count == sum(bool(client.cut_off_reason) for client in clients)
