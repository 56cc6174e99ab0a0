"""After a flood memory goes back to the system: at once, and once more when all of it is free."""

from __future__ import annotations

from trimaran.cluster.runtime.links.freed_memory import AGAIN_AFTER_NS, TRIM_BYTES, FreedMemory


def test_memory_is_given_back_when_much_less_is_held_and_once_more_later() -> None:
    now_ns, trims = 0, []
    memory = FreedMemory(lambda: trims.append(now_ns), lambda: now_ns)
    memory.look(TRIM_BYTES, TRIM_BYTES)
    memory.look(TRIM_BYTES, 1)
    before = list(trims)

    memory.look(0, 0)
    memory.look(0, 0)
    now_ns = AGAIN_AFTER_NS
    memory.look(0, 0)
    memory.look(0, 0)

    assert before == []
    assert trims == [0, AGAIN_AFTER_NS]


def test_memory_is_given_back_when_enough_connections_have_ended_however_slowly() -> None:
    trims: list[None] = []
    memory = FreedMemory(lambda: trims.append(None), lambda: 0)
    for _ in range(3):
        memory.look(0, 0, TRIM_BYTES // 4)
    before = len(trims)

    memory.look(0, 0, TRIM_BYTES // 4)
    memory.look(0, 0, TRIM_BYTES // 2)

    assert (before, len(trims)) == (0, 1)
