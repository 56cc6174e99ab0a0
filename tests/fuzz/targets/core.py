"""The consensus module of a member whose peers say anything, again and in any order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.target import target
from tests.unit.cluster.core.forged import KINDS, OTHERS, PHASES, WAITS_NS, Victim
from trimaran.cluster.core import events as ev


def _seeds() -> Iterator[bytes]:
    for phase in range(len(PHASES)):
        for kind in range(len(KINDS)):
            yield bytes([phase, 0, kind, 0, *range(12), 3, 2, 1, 0, 4])


@target(_seeds, length_limit=400)
def consensus_core(data: bytes) -> None:
    """Messages of members, forged, repeated and reordered, to a consensus module in each of its phases."""
    source = iter(data)

    def choose(count: int) -> int:
        return next(source, 0) % count

    victim = Victim([*PHASES][choose(len(PHASES))])
    for _ in range(48):
        operation = next(source, None)
        if operation is None or victim.is_terminated:
            return
        match operation % 8:
            case 0 | 1 | 2:
                sender = OTHERS[operation // 8 % 2]
                victim.say(sender, victim.forge(KINDS[choose(len(KINDS))], sender, choose))
            case 3:
                victim.wait(WAITS_NS[choose(len(WAITS_NS))])
            case 4:
                if victim.said:
                    victim.feed(victim.said[choose(len(victim.said))])
            case 5:
                victim.record()
            case 6:
                victim.join()
            case _:
                victim.feed(ev.LinkChanged(OTHERS[choose(2)], is_up=bool(choose(2))))
