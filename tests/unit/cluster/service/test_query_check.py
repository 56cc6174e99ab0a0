"""A query that changes the state is found by the state before and after it; what cannot be compared is left alone."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from trimaran.cluster.service.query_check import QueryCheck
from trimaran.service_api import ClusteredService, LocalProtocolError, SnapshotPublication


class Hashed(ClusteredService):
    """Has a `state_hash`."""

    def __init__(self) -> None:
        self.count = 0

    def on_query(self, payload: memoryview) -> bytes:
        word = bytes(payload)
        if word == b"fail":
            raise KeyError("no such account")
        self.count += word == b"change"
        return b"answer"

    def state_hash(self) -> object:
        return self.count


class Written(Hashed):
    """Writes snapshots, in a coroutine, and has no `state_hash`."""

    @property
    def has_state_hash(self) -> bool:
        return False

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d" % self.count)


class Waiting(Written):
    """Its snapshot waits for something."""

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await asyncio.sleep(1)


class Large(Written):
    """Its snapshot is long."""

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(bytes(2 << 20))


class Unordered(Written):
    """Writes no snapshot like another."""

    written = 0

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        self.written += 1
        await snapshot.offer(b"%d" % self.written)


@pytest.mark.parametrize("service_class", [Hashed, Written])
def test_a_query_that_changes_the_state_fails_by_name(service_class: type[Hashed]) -> None:
    check, service = QueryCheck(), service_class()

    assert check.run(service, memoryview(b"read"), log_position=96) == b"answer"
    assert check.last_change is None
    with pytest.raises(LocalProtocolError, match=r"on_query changed.*service=.*query=b'change'"):
        check.run(service, memoryview(b"change"), log_position=96)

    assert check.last_change is not None
    assert check.last_change.endswith("log_position=96")


def test_a_query_that_makes_the_missing_entry_of_a_defaultdict_fails() -> None:
    class Visits(Hashed):
        def __init__(self) -> None:
            self.visits: defaultdict[str, int] = defaultdict(int)

        def on_query(self, payload: memoryview) -> bytes:
            return b"%d" % self.visits["a"]

        def state_hash(self) -> object:
            return self.visits

    with pytest.raises(LocalProtocolError, match="on_query changed"):
        QueryCheck().run(Visits(), memoryview(b""), log_position=96)


def test_what_a_query_raises_passes_through() -> None:
    with pytest.raises(KeyError, match="account"):
        QueryCheck().run(Hashed(), memoryview(b"fail"), log_position=96)


@pytest.mark.parametrize("service_class", [Waiting, Large, Unordered])
def test_a_service_that_cannot_be_compared_is_left_alone(service_class: type[Hashed]) -> None:
    check, service = QueryCheck(), service_class()

    assert check.run(service, memoryview(b"change"), log_position=96) == b"answer"
    assert check.last_change is None
