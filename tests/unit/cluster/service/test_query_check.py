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
    check, service = QueryCheck(lambda: 0), service_class()

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
        QueryCheck(lambda: 0).run(Visits(), memoryview(b""), log_position=96)


def test_what_a_query_raises_passes_through() -> None:
    with pytest.raises(KeyError, match="account"):
        QueryCheck(lambda: 0).run(Hashed(), memoryview(b"fail"), log_position=96)


@pytest.mark.parametrize("service_class", [Waiting, Large, Unordered])
def test_a_service_that_cannot_be_compared_is_left_alone(service_class: type[Hashed]) -> None:
    check, service = QueryCheck(lambda: 0), service_class()

    assert check.run(service, memoryview(b"change"), log_position=96) == b"answer"
    assert check.last_change is None


def test_comparing_takes_a_tenth_of_the_time_and_then_finds_the_next_change() -> None:
    """A store of 1,000 keys was digested twice for each of its queries: 11 to 23 a second."""
    now_ns = 0
    hashed_at: list[int] = []

    class Slow(Hashed):
        def state_hash(self) -> object:
            nonlocal now_ns
            hashed_at.append(now_ns)
            now_ns += 50
            return self.count

    check, service = QueryCheck(lambda: now_ns), Slow()
    for _ in range(1_000):
        check.run(service, memoryview(b"ask"), log_position=96)
        now_ns += 1

    assert 50 * len(hashed_at) <= now_ns / 10 + 100
    assert len(hashed_at) > 2

    now_ns += 2_000
    with pytest.raises(LocalProtocolError, match="on_query changed the state"):
        check.run(service, memoryview(b"change"), log_position=96)


def test_a_service_that_undoes_what_a_query_changes_is_not_compared() -> None:
    class Undoing(Hashed):
        @property
        def undoes_queries(self) -> bool:
            return True

        def state_hash(self) -> object:
            raise AssertionError("it was compared")

    assert QueryCheck(lambda: 0).run(Undoing(), memoryview(b"ask"), log_position=96) == b"answer"
