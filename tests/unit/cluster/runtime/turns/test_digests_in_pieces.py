"""A member goes on with the digest of a large state between its other work, also where nothing is delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tests.unit.cluster.testing.counting import Counter
from trimaran.cluster.messages.digests import DigestKind
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.state_digest import DigestedField, StateDigest

PIECE_COUNT = 20


class Pieces:
    """A digest of some pieces."""

    def __init__(self, value: int) -> None:
        self.left_count, self.is_closed = PIECE_COUNT, False
        self.fields = {"total": DigestedField(b"%016d" % value, value, 8)}

    def advance(self, is_late: Callable[[], bool]) -> bool:
        self.left_count -= 1
        return not self.left_count

    def close(self) -> None:
        self.is_closed = True


class Large(Counter):
    """Has a state whose digest is made in pieces."""

    begun: ClassVar[list[Pieces]] = []

    def state_hash(self) -> object:
        return self.total

    def begin_digest(self) -> StateDigest:
        self.begun.append(Pieces(self.total))
        return self.begun[-1]


def test_an_idle_member_finishes_its_digests_and_tells_them() -> None:
    Large.begun.clear()
    with MemoryCluster(Large) as cluster:
        client = cluster.run(cluster.connect())
        cluster.run(client.request(b"5"))
        cluster.run(cluster.advance(5))

        last = Large.begun[-3:]
        nodes = [member.node for member in cluster._cluster.running()]
        told = [{place.kind for place in node.module.digests._own} for node in nodes if node is not None]

    assert [(each.left_count, each.is_closed) for each in last] == [(0, False)] * 3
    assert len(told) == 3
    assert all(DigestKind.STATE in kinds for kinds in told)
