"""When the messages of an open loop are due."""

from __future__ import annotations

from trimaran.benchmarks.load.arrivals import ArrivalPiece, Burst, arrival_pieces, messages_in

BURSTS = (Burst(1.0, 0.5, 4.0), Burst(3.0, 1.0, 2.0))


def test_bursts_raise_the_rate_while_they_last() -> None:
    count = messages_in(100.0, BURSTS, 6.0)

    assert count == 600 + 150 + 100
    assert [*arrival_pieces(100.0, BURSTS, count)] == [
        ArrivalPiece(100.0, 100),
        ArrivalPiece(400.0, 200),
        ArrivalPiece(100.0, 150),
        ArrivalPiece(200.0, 200),
        ArrivalPiece(100.0, 200),
    ]


def test_a_phase_that_ends_before_a_burst_goes_without_it() -> None:
    assert [*arrival_pieces(100.0, BURSTS, 80)] == [ArrivalPiece(100.0, 80)]


def test_a_burst_may_come_first_and_the_last_message_ends_a_piece() -> None:
    assert [*arrival_pieces(100.0, [Burst(0.0, 1.0, 4.0)], 300)] == [ArrivalPiece(400.0, 300)]
