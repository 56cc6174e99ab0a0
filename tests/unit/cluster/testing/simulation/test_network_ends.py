"""How connections of simulated TCP end: in order, by abort, by reset, with a process, with a machine, by silence."""

from __future__ import annotations

import socket

import pytest

from tests.unit.cluster.testing.simulation.connections import Peer, connected, set_user_timeout
from tests.unit.cluster.testing.simulation.small_world import MS, SECOND, World
from trimaran.cluster.testing.simulation.world.network import WINDOW_BYTES, LinkQuality

TIMED_OUT, RESET = "lost: connection timed out", "lost: connection reset by peer"
TORN = "lost: connection reset by the network"


def play(story: str, it: World, a: Peer, b: Peer) -> None:
    """Do what a story says, step by step; a sender sends one byte, and "a waits 4 s" sets its user timeout."""
    ends = {"a": a, "b": b}
    for step in story.split("; "):
        match step.split():
            case [name, "sends"]:
                ends[name].transport.write(b"x")
            case [name, "fills", "the", "window"]:
                ends[name].transport.write(bytes(4 * WINDOW_BYTES))
            case [name, "stops", "reading"]:
                ends[name].transport.pause_reading()
            case [name, "stays", "open"]:
                ends[name].stays_open_after_eof = True
            case [name, "waits", seconds, "s"]:
                set_user_timeout(ends[name], int(seconds) * 1_000)
            case [name, "probes"]:
                ends[name].transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            case [name, "closes"]:
                ends[name].transport.close()
            case [name, "aborts"]:
                ends[name].transport.abort()
            case [name, "dies"]:
                it.machines[name].kill()
            case [name, "loses", "power"]:
                it.machines[name].lose_power(lambda: False)
            case [name, "has", "power"]:
                it.machines[name].regain_power()
            case ["cut"]:
                it.cut("a", "b")
            case ["cut", source, "to", target]:
                it.network.block(source, target)
            case ["mend", source, "to", target]:
                it.network.unblock(source, target)
            case ["mend"]:
                it.network.unblock_all()
            case ["tear"]:
                it.network.reset(b.transport)
            case [seconds, "s"]:
                it.run(round(float(seconds) * SECOND))
            case _:
                raise ValueError(step)


@pytest.mark.parametrize(
    ("story", "end_a", "end_b", "data"),
    [
        # In order: the kernel has taken everything, and asyncio does not wait for it.
        ("cut; a closes; 10 s", "lost", "", b""),
        ("cut; a closes; 10 s; mend; 2 s", "lost", "eof lost", b""),
        ("b stays open; a closes; 1 s", "lost", "eof", b""),
        # By abort, and by a reset on the way.
        ("cut; a sends; a aborts; a aborts; 1 s", "lost", "", b""),
        ("cut; a sends; a aborts; 1 s; mend; 1 s", "lost", RESET, b""),
        ("a sends; tear; 1 s; a sends; a closes; 1 s", TORN, TORN, b""),
        # With a process: the peer gets what was sent and then the end, or a reset if something was unread.
        ("a sends; a dies; 1 s", "", "eof lost", b"x"),
        ("a stops reading; b sends; 1 s; a dies; 1 s", "", RESET, b""),
        ("cut; a sends; a dies; mend; 2 s", "", "eof lost", b""),
        ("a fills the window; 0.0005 s; b dies; 5 s", "eof lost", "", b""),
        # With a machine: it is silent, and then knows of nothing.
        ("b loses power; a sends; 60 s", "", "", b""),
        ("b loses power; a sends; 60 s; b has power; 1 s", RESET, "", b""),
        ("b loses power; 1 s; b has power; 60 s", "", "", b""),
        ("b loses power; 1 s; b has power; 60 s; a sends; 1 s", RESET, "", b""),
        ("a waits 2 s; b loses power; a sends; 3 s", TIMED_OUT, "", b""),
        # An idle end with keep-alives hears of a power loss, and of a long silence.
        ("a probes; 60 s; b loses power; 3 s", "", "", b""),
        ("a probes; 60 s; b loses power; 3 s; b has power; 5 s", RESET, "", b""),
        ("a probes; 60 s; b loses power; 8 s", TIMED_OUT, "", b""),
        # By silence: a sender without acknowledgements gives up after its user timeout, and not before.
        ("a waits 4 s; cut; a sends; 3.999 s", "", "", b""),
        ("a waits 4 s; cut; a sends; 4 s", TIMED_OUT, "", b""),
        ("a waits 4 s; cut b to a; a sends; 3.999 s", "", "", b"x"),
        ("a waits 4 s; cut b to a; a sends; 4.001 s", TIMED_OUT, "", b"x"),
        ("a waits 4 s; a sends; cut; 4.001 s", TIMED_OUT, "", b"x"),
        # An acknowledgement stops that clock, and a way there without a way back does not.
        ("a waits 4 s; cut b to a; a sends; 1 s; cut a to b; mend b to a; 60 s", "", "", b"x"),
        ("a waits 4 s; cut; a sends; 3 s; mend a to b; 1.001 s", TIMED_OUT, "", b"x"),
        # What waited arrives and is acknowledged; the time of the first block counts for nothing at the next one.
        ("a waits 4 s; cut b to a; a sends; 3 s; mend; 0.999 s; cut; 3 s; a sends; 3.999 s", "", "", b"x"),
        ("a waits 4 s; cut b to a; a sends; 3 s; mend; 0.999 s; cut; 3 s; a sends; 4 s", TIMED_OUT, "", b"x"),
        ("a waits 4 s; " + "cut; a sends; 2.9 s; mend; 1.5 s; " * 5 + "1 s", "", "", b"xxxxx"),
        ("a waits 1 s; cut; 3600 s; mend; a sends; 2 s", "", "", b"x"),
        # A machine acknowledges what its process has not read.
        ("a waits 4 s; b stops reading; cut b to a; a sends; 2.9 s; mend; 60 s", "", "", b""),
        ("a waits 1 s; b stops reading; a sends; 10 s", "", "", b""),
        ("a waits 1 s; b stops reading; a sends; 10 s; cut b to a; a sends; 2 s", TIMED_OUT, "", b""),
        # An end that gave up says nothing; its machine does, once it is sent something.
        ("a waits 1 s; cut; a sends; 5 s; mend; 5 s", TIMED_OUT, "", b""),
        ("a waits 1 s; cut; a sends; 5 s; mend; 5 s; b sends; 1 s", TIMED_OUT, RESET, b""),
    ],
)
def test_connection_ends_as_tcp_ends_it(story: str, end_a: str, end_b: str, data: bytes) -> None:
    with connected() as (it, a, b):
        play(story, it, a, b)

        ends = [" ".join(event for event in peer.events if event.startswith(("eof", "lost"))) for peer in (a, b)]
        assert (*ends, b.data) == (end_a, end_b, data)


def test_an_orderly_end_comes_after_every_byte() -> None:
    with connected() as (it, a, b):
        sent = bytes(3 * WINDOW_BYTES)
        a.transport.write(sent)
        a.transport.close()
        a.transport.write(b"too late")
        assert a.transport.is_closing()
        it.run()

        assert b.data == sent
        assert b.events == ["made", "eof", "lost"]
        assert it.network.transports == {}


@pytest.mark.parametrize("seed", range(8, 12))
def test_an_end_that_a_block_held_back_does_not_overtake_the_bytes_before_it(seed: int) -> None:
    with connected(seed=seed) as (it, a, b):
        it.network.quality = LinkQuality(MS, 400 * MS)
        for _ in range(5):
            a.transport.write(b"x")
        it.cut("a", "b")
        it.machines["a"].kill()
        it.mend("a", "b")
        it.run(20 * SECOND)

        assert b.data == b"xxxxx"
        assert b.events == ["made", "eof", "lost"]
