"""When the messages of an open loop are due: at a steady rate, with bursts at told times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Burst(NamedTuple):
    """A while in which messages are due more often."""

    after_s: float
    """When it begins, counted from the first message of a phase."""
    length_s: float
    times: float
    """The rate meanwhile, as a multiple of the steady one."""


class ArrivalPiece(NamedTuple):
    """Messages that are due one after the other, all at the same distance."""

    rate_per_s: float
    message_count: int


def arrival_pieces(rate_per_s: float, bursts: Iterable[Burst], message_count: int) -> Iterator[ArrivalPiece]:
    """Divide a phase into pieces of one rate; `bursts` are in the order of time and do not overlap.

    A phase that ends before a burst begins goes without it.
    """
    at_s, left = 0.0, message_count
    for burst in bursts:
        for rate, length_s in ((rate_per_s, burst.after_s - at_s), (rate_per_s * burst.times, burst.length_s)):
            count = min(left, round(rate * length_s))
            if count > 0:
                yield ArrivalPiece(rate, count)
                left -= count
        at_s = burst.after_s + burst.length_s
    if left:
        yield ArrivalPiece(rate_per_s, left)


def messages_in(rate_per_s: float, bursts: Iterable[Burst], length_s: float) -> int:
    """Count the messages of a phase that lasts so long."""
    return round(rate_per_s * (length_s + sum(burst.length_s * (burst.times - 1) for burst in bursts)))
