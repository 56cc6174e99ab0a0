"""Simulated TCP does what TCP does: bytes in order or none, back pressure, silence, resets."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.unit.cluster.testing.simulation.connections import (
    PORT,
    Buffered,
    Peer,
    connected,
    dial,
    listen,
    set_user_timeout,
)
from tests.unit.cluster.testing.simulation.small_world import MS, SECOND, World, forever, world
from trimaran.cluster.testing.simulation.world.network import WINDOW_BYTES, LinkQuality
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from trimaran.service_api.net.transport import Purpose

# --- connecting


GATE = ConnectionGate()


def make_peer(accepted: AcceptedConnection) -> Peer:
    return Peer()


def test_a_closed_server_and_a_dead_process_refuse_as_well() -> None:
    with world("a", "b", "c") as it:
        seen: list[str] = []

        async def serve_shortly() -> None:
            listener = await it.network.listen(Purpose.LOG, Endpoint("c", PORT), make_peer, gate=GATE)
            listener.close()
            await listener.wait_closed()
            await forever()

        it.start("c", serve_shortly)
        listen(it, "b", Peer)
        it.run(MS)
        it.machines["b"].kill()
        dial(it, "a", "b", Peer, seen)
        it.run()
        dial(it, "b", "c", Peer, seen)
        it.run()

        assert seen == ["[Errno 111] connection refused: b:80", "[Errno 111] connection refused: c:80"]


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
def test_nobody_connects_through_a_block_in_either_direction_and_everybody_after_it(direction: tuple[str, str]) -> None:
    with world() as it:
        seen: list[str] = []
        listen(it, "b", Peer)
        it.network.block(*direction)
        dial(it, "a", "b", Peer, seen)
        it.run(30 * SECOND)
        assert seen == []

        it.network.unblock(*direction)
        assert it.run_until(lambda: seen == ["connected"]) <= SECOND


def test_a_machine_without_power_does_not_answer_until_it_is_back() -> None:
    with world() as it:
        seen: list[str] = []
        it.machines["b"].lose_power(lambda: False)
        dial(it, "a", "b", Peer, seen)
        it.run(30 * SECOND)
        assert seen == []

        it.machines["b"].regain_power()
        it.run()
        assert seen == ["[Errno 111] connection refused: b:80"]


def test_a_cancelled_connect_leaves_nothing_behind() -> None:
    with world() as it:
        served: list[Peer] = []

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0015):  # it has arrived, and the answer is on its way
                    await it.network.dial(Purpose.LOG, Endpoint("b", PORT), Peer)
            await forever()

        def serve() -> Peer:
            served.append(Peer())
            return served[-1]

        listen(it, "b", serve)
        it.run(MS)
        it.start("a", give_up)
        it.run()

        assert it.network.transports == {}
        assert served == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_nobody_goes_on_trying_to_connect_for_a_process_that_gave_up_or_died(is_killed: bool) -> None:
    with world() as it:

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await it.network.dial(Purpose.LOG, Endpoint("b", PORT), Peer)
            await forever()

        it.machines["b"].lose_power(lambda: False)
        it.start("a", give_up)
        it.run(4 * SECOND)
        if is_killed:
            it.machines["a"].kill()
        it.run(6 * SECOND)

        before = it.scheduler.event_count
        it.run(60 * SECOND)
        assert it.scheduler.event_count == before


# --- bytes


@pytest.mark.parametrize("seed", range(5))
def test_bytes_come_in_order_and_complete_whatever_happens_to_segments(seed: int) -> None:
    random = Random(seed)
    with connected(seed=seed) as (it, a, b):
        it.network.quality = LinkQuality(MS // 10, 20 * MS, 0.5)
        sent = bytearray()
        for number in range(200):
            data = random.randbytes(random.randrange(1, 3_000))
            sent += data
            kind = (bytes, bytearray, memoryview)[number % 3]
            a.transport.write(kind(data))
            it.run(random.randrange(10 * MS))
            if random.random() < 0.1:
                disturb(it, random)
        it.run(60 * SECOND)

        assert b.data == sent
        assert len(b.pieces) > 250
        assert a.transport.get_write_buffer_size() == 0


def disturb(it: World, random: Random) -> None:
    """Block, pause or let the receiver block, for a while."""
    duration_ns = random.randrange(300 * MS)
    match random.randrange(4):
        case 0:
            it.cut("a", "b")
            it.after(duration_ns, it.mend, "a", "b")
        case 1:
            direction = random.choice((("a", "b"), ("b", "a")))
            it.network.block(*direction)
            it.after(duration_ns, it.network.unblock, *direction)
        case 2:
            it.loop("b").pause()
            it.after(duration_ns, it.loop("b").resume)
        case _:
            it.loop("b").call_soon(it.loop("b").block, duration_ns)


def test_a_buffer_that_changes_after_the_write_is_sent_as_it_was() -> None:
    with connected() as (it, a, b):
        buffer = bytearray(b"before")
        a.transport.write(memoryview(buffer))
        buffer[:] = b"after!"
        a.transport.writelines([b" one", b" two"])
        a.transport.write(b"")
        it.run()

        assert b.data == b"before one two"


def test_what_a_busy_process_sends_leaves_when_its_clock_says_so() -> None:
    with connected() as (it, a, b):

        def send_late() -> None:
            it.loop("a").block(50 * MS)
            a.transport.write(b"late")

        it.loop("a").call_soon(send_late)
        assert it.run_until(lambda: bool(b.data)) == 51 * MS


def test_a_receiver_that_does_not_read_stops_the_sender_and_lets_it_go_on() -> None:
    with connected() as (it, a, b):
        b.transport.pause_reading()
        piece, count = bytes(32 << 10), 0
        while "pause" not in a.events:
            a.transport.write(piece)
            count += 1
            it.run(5 * MS)
        buffered = a.transport.get_write_buffer_size()

        assert b.data == b""
        assert WINDOW_BYTES <= count * len(piece) - buffered <= WINDOW_BYTES + len(piece)
        assert a.transport.get_write_buffer_limits() == (16 << 10, 64 << 10)
        assert 64 << 10 < buffered <= (64 << 10) + len(piece)

        b.transport.resume_reading()
        it.run()
        assert len(b.data) == count * len(piece)
        assert a.events == ["made", "pause", "resume"]


def test_the_writers_limits_are_what_it_sets() -> None:
    with connected() as (it, a, _):
        it.cut("a", "b")
        a.transport.set_write_buffer_limits(high=100)
        a.transport.write(bytes(100))
        assert a.events == ["made"]
        a.transport.write(b"x")
        assert a.events == ["made", "pause"]
        assert a.transport.get_write_buffer_limits() == (25, 100)


def test_a_buffered_protocol_that_pauses_in_the_middle_of_a_segment_gets_the_rest_later() -> None:
    with world() as it:
        a, b = Peer(), Buffered(pause_every_bytes=25)
        listen(it, "b", lambda: b)
        it.run(MS)
        dial(it, "a", "b", lambda: a, [])
        it.run(10 * MS)
        sent = bytes(range(200))
        a.transport.write(sent[:70])
        a.transport.write(sent[70:])
        it.run()
        assert b.data == sent[:25]
        assert b.reads == [10, 10, 5]
        assert a.transport._in_flight_bytes == len(sent) - 25

        for read_count in range(2, 9):
            b.transport.resume_reading()
            it.run()
            assert len(b.data) == 25 * read_count
        assert b.data == sent
        assert b.reads == [10, 10, 5] * 8
        assert a.transport._in_flight_bytes == 0


@pytest.mark.parametrize("is_buffered", [False, True])
def test_a_protocol_that_receives_may_hand_its_connection_to_another_kind(is_buffered: bool) -> None:
    """Links of members begin with a greeting, and go on with the protocol that it names."""
    with world() as it:
        later = Buffered(pause_every_bytes=1_000) if is_buffered else Peer()

        class First(Peer):
            def data_received(self, data: bytes) -> None:
                later.connection_made(self.transport)
                self.transport.set_protocol(later)
                super().data_received(data)

        a, b = Peer(), First()
        listen(it, "b", lambda: b)
        it.run(MS)
        dial(it, "a", "b", lambda: a, [])
        it.run(10 * MS)
        for piece in (b"first", b"second ", b"third"):
            a.transport.write(piece)
        it.run()

        assert (bytes(b.data), bytes(later.data)) == (b"first", b"second third")
        assert a.transport._in_flight_bytes == 0


def test_bytes_that_come_after_reading_goes_on_do_not_overtake_those_that_waited() -> None:
    with connected() as (it, a, b):
        b.transport.pause_reading()
        a.transport.write(b"one ")
        it.run()
        a.transport.write(b"two")

        # 1. The second piece is there. 2. Before its turn the reader goes on, and is to be given the first one later.
        it.after(MS, b.transport.resume_reading)
        it.run()
        assert b.data == b"one two"


def test_a_closing_end_reads_nothing_more() -> None:
    with connected() as (it, a, b):
        b.transport.pause_reading()
        a.transport.write(b"unread")
        it.run()
        b.transport.write(bytes(WINDOW_BYTES + 1))
        a.transport.pause_reading()
        it.run()
        b.transport.write(b"waits for room")
        b.transport.close()
        b.transport.resume_reading()
        it.run()

        assert b.data == b""
        assert b.transport.is_closing()
        assert not b.transport.is_reading()


# --- blocks


def test_what_was_on_its_way_before_a_block_arrives_at_most() -> None:
    with connected() as (it, a, b):
        a.transport.write(b"before")
        it.cut("a", "b")
        a.transport.write(b" after")
        it.run(10 * SECOND)

        assert b.data == b"before"


def test_one_direction_is_blocked_and_the_other_is_not() -> None:
    with connected() as (it, a, b):
        it.network.block("a", "b")
        a.transport.write(b"held")
        b.transport.write(b"heard")
        it.run()
        assert a.data == b"heard"
        assert b.data == b""


def test_a_direction_blocked_for_two_reasons_opens_when_both_are_gone() -> None:
    with connected() as (it, a, b):
        network = it.network
        network.block("a", "b")
        network.block("a", "b")
        network.unblock("a", "b")
        a.transport.write(b"x")
        it.run(5 * SECOND)
        assert network.is_blocked("a", "b")
        assert b.data == b""

        network.unblock("a", "b")
        it.run(2 * SECOND)
        assert b.data == b"x"
        network.unblock("a", "b")  # one too many means nothing
        network.block("a", "b")
        assert network.is_blocked("a", "b")


def test_a_paused_reader_is_no_reason_to_give_up() -> None:
    """Its machine acknowledges; what fills up is the window."""
    with connected() as (it, a, b):
        set_user_timeout(a, 1_000)
        it.loop("b").pause()
        a.transport.write(bytes(2 * WINDOW_BYTES))
        it.run(60 * SECOND)
        assert "lost: connection timed out" not in a.events

        it.loop("b").resume()
        it.run()
        assert len(b.data) == 2 * WINDOW_BYTES


# --- who looks on


def test_everything_that_is_written_and_everything_that_arrives_can_be_watched() -> None:
    with connected() as (it, a, b):
        written: list[tuple[int, bytes]] = []
        arrived: list[tuple[int, int]] = []
        it.network.segment_watchers.append(lambda transport, data: written.append((transport.number, bytes(data))))
        it.network.trace = lambda number, length: arrived.append((number, length))
        a.transport.write(b"one")
        it.network.block("b", "a")
        b.transport.write(b"three")
        it.run()
        a.transport.close()
        it.run()

        assert written == [(a.transport.number, b"one"), (b.transport.number, b"three")]
        assert arrived[0] == (b.transport.number, 3)
        assert arrived[1:3] == [(a.transport.number, -2), (b.transport.number, -1)]
