"""How connections of simulated TCP end: in order, by abort, by reset, with a process, with a machine."""

from __future__ import annotations

import socket

import pytest

from trimaran.cluster.simulation.world.network import WINDOW_BYTES, LinkQuality

from .connections import connected, set_user_timeout
from .small_world import MS, SECOND


def test_an_orderly_end_comes_after_every_byte() -> None:
    with connected() as (it, a, b):
        sent = bytes(3 * WINDOW_BYTES)
        a.transport.write(sent)
        a.transport.close()
        a.transport.write(b"too late")
        assert a.transport.is_closing()
        it.run()

        assert b.data == sent
        assert [event for event in a.events if event.startswith("lost")] == ["lost"]
        assert b.events == ["made", "eof", "lost"]
        assert it.network.transports == {}


def test_closing_an_end_where_nothing_waits_ends_it_at_once_through_a_block_too() -> None:
    """The kernel has taken everything; asyncio does not wait for it."""
    with connected() as (it, a, b):
        it.cut("a", "b")
        a.transport.close()
        it.run(MS)
        assert a.events == ["made", "lost"]
        it.run(10 * SECOND)
        assert b.events == ["made"]

        it.mend("a", "b")
        it.run(2 * SECOND)
        assert b.events == ["made", "eof", "lost"]


def test_an_end_may_stay_open_after_the_others_end() -> None:
    with connected() as (it, a, b):
        b.stays_open_after_eof = True
        a.transport.close()
        it.run()

        assert b.events == ["made", "eof"]
        assert not b.transport.is_closing()


def test_an_aborted_connection_is_reset() -> None:
    with connected() as (it, a, b):
        it.cut("a", "b")
        a.transport.write(b"never sent")
        a.transport.abort()
        a.transport.abort()
        it.run()
        assert (a.events, b.events) == (["made", "lost"], ["made"])

        it.mend("a", "b")
        it.run()
        assert b.events == ["made", "lost: connection reset by peer"]
        assert b.data == b""


def test_a_reset_on_the_way_ends_both_ends() -> None:
    with connected() as (it, a, b):
        a.transport.write(b"lost")
        it.network.reset(b.transport)
        it.run()

        assert a.events == b.events == ["made", "lost: connection reset by the network"]
        assert b.data == b""
        a.transport.write(b"nothing happens")
        a.transport.close()
        it.run()
        assert it.network.transports == {}


def test_the_peer_of_a_killed_process_gets_what_was_sent_and_then_the_end() -> None:
    with connected() as (it, a, b):
        a.transport.write(b"last words")
        it.machines["a"].kill()
        it.run()

        assert b.data == b"last words"
        assert b.events == ["made", "eof", "lost"]
        assert a.events == ["made"]


def test_a_process_killed_with_unread_bytes_resets_its_peer() -> None:
    with connected() as (it, a, b):
        a.transport.pause_reading()
        b.transport.write(b"unread")
        it.run()
        it.machines["a"].kill()
        it.run()

        assert b.events == ["made", "lost: connection reset by peer"]


def test_what_waited_in_a_killed_process_is_gone() -> None:
    with connected() as (it, a, b):
        it.cut("a", "b")
        a.transport.write(b"in the process")
        it.machines["a"].kill()
        it.mend("a", "b")
        it.run(2 * SECOND)

        assert b.data == b""
        assert b.events == ["made", "eof", "lost"]


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


def test_whoever_sends_to_an_end_that_is_no_more_is_told() -> None:
    """An end that gave up says nothing; its machine does, once it is sent something."""
    with connected() as (it, a, b):
        set_user_timeout(a, 1_000)
        it.cut("a", "b")
        a.transport.write(b"x")
        it.run(5 * SECOND)
        it.mend("a", "b")
        it.run(5 * SECOND)
        assert a.events[-1] == "lost: connection timed out"
        assert b.events == ["made"]

        b.transport.write(b"y")
        it.run()
        assert b.events == ["made", "lost: connection reset by peer"]


def test_a_sender_with_a_full_window_hears_of_its_peers_death() -> None:
    with connected() as (it, a, b):
        b.transport.pause_reading()
        a.transport.write(bytes(4 * WINDOW_BYTES))
        it.run(MS // 2)
        it.machines["b"].kill()
        it.run(5 * SECOND)

        assert a.events[-1].startswith("lost")
        assert it.network.transports == {}


def test_a_machine_without_power_is_silent_and_then_knows_of_nothing() -> None:
    with connected() as (it, a, b):
        it.machines["b"].lose_power(lambda: False)
        a.transport.write(b"x")
        it.run(60 * SECOND)
        assert a.events == ["made"]

        it.machines["b"].regain_power()
        it.run()
        assert a.events == ["made", "lost: connection reset by peer"]
        assert b.events == ["made"]
        assert b.data == b""


def test_an_idle_end_hears_of_a_power_loss_when_it_sends() -> None:
    with connected() as (it, a, _):
        it.machines["b"].lose_power(lambda: False)
        it.run()
        it.machines["b"].regain_power()
        it.run(60 * SECOND)
        assert a.events == ["made"]

        a.transport.write(b"x")
        it.run()
        assert a.events == ["made", "lost: connection reset by peer"]


def test_a_sender_with_a_user_timeout_does_not_wait_for_power() -> None:
    with connected() as (it, a, _):
        set_user_timeout(a, 2_000)
        it.machines["b"].lose_power(lambda: False)
        a.transport.write(b"x")
        it.run(3 * SECOND)

        assert a.events == ["made", "lost: connection timed out"]


def test_an_idle_end_with_keep_alives_hears_of_a_power_loss_and_of_a_long_silence() -> None:
    for has_power_again in (True, False):
        with connected() as (it, a, _):
            a.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            it.run(60 * SECOND)
            assert a.events == ["made"]

            it.machines["b"].lose_power(lambda: False)
            it.run(3 * SECOND)
            assert a.events == ["made"]
            if has_power_again:
                it.machines["b"].regain_power()
            it.run(5 * SECOND)
            expected = "connection reset by peer" if has_power_again else "connection timed out"
            assert a.events == ["made", f"lost: {expected}"]
