"""Taking a snapshot: whether delivery goes on before it is written, and what is in it either way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from tests.unit.archive.streams import launch
from tests.unit.cluster.runtime.fake_agent import FakeAgent
from tests.waiting import within
from trimaran.archive import Archive
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.messages.snapshot import Timer
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.ground.state_copy import CopyState, StateCopy
from trimaran.cluster.runtime.snapshots.snapshot_recording import SnapshotReader
from trimaran.cluster.runtime.snapshots.snapshot_taker import SMALL_STATE_BYTES, SnapshotTaker
from trimaran.cluster.runtime.watching.snapshot_counts import SnapshotCounts
from trimaran.service_api import ClusteredService, ClusterError, SnapshotPublication
from trimaran.service_api.types import CorrelationId

POSITION = 512


class Yielding(ClusteredService):
    def __init__(self, state: list[bytes]) -> None:
        self.state = state

    def snapshot_messages(self) -> Iterator[bytes]:
        yield from self.state


class Writing(ClusteredService):
    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"written")


class Container:
    """What the taker needs of a `ClusteredServiceAgent`."""

    log_position = POSITION

    def __init__(self, *services: ClusteredService) -> None:
        self.services = services
        self.requests = self

    def snapshot_messages(self) -> list[Timer]:
        return []

    async def take_snapshot(self, service_id: int, publication: SnapshotPublication) -> None:
        result = self.services[service_id].on_take_snapshot(publication)
        assert result is not None
        await result


class Copy:
    """Sets a state aside in memory."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self.batches = [list(messages), []]
        self.is_closed = False

    def read_batch(self) -> list[bytes]:
        return self.batches.pop(0)

    def close(self) -> None:
        self.is_closed = True


class Taking:
    """One snapshot, and what is told of it."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.agent = FakeAgent()
        self.events, self.errors = self.agent.posted, self.agent.failures
        self.counts = SnapshotCounts()

    async def run(self, *services: ClusteredService, copy_state: CopyState | None) -> list[type]:
        marker = Timer(correlation_id=CorrelationId(1), deadline=2)
        effect = fx.TakeSnapshot(POSITION, 0, 9, (marker,), (marker,))
        before = len(self.events)
        async with ActivityScope() as tasks:
            taker = SnapshotTaker(
                self.archive,
                cast(Any, Container(*services)),
                agent=self.agent,
                monotonic_ns=lambda: 0,
                counts=self.counts,
                tasks=tasks,
                copy_state=copy_state,
            )
            taker.take(effect)
            async with within(10):
                while not any(
                    isinstance(event, ev.SnapshotTaken | ev.SnapshotFailed) for event in self.events[before:]
                ):
                    assert not self.errors
                    await asyncio.sleep(0)
        return [type(event) for event in self.events[before:] if not isinstance(event, ev.SnapshotDigested)]

    async def read(self) -> list[list[bytes]]:
        """What each service has written, after its container."""
        [taken] = [event for event in self.events if isinstance(event, ev.SnapshotTaken)]
        readers = [SnapshotReader(self.archive.frames(each), ClusterError) for each in taken.service_recording_ids]
        return [[message async for message in reader][1:] for reader in readers]


@pytest.fixture
async def taking() -> AsyncIterator[Taking]:
    archive = await launch(MemoryFileSystem())
    yield Taking(archive)
    await archive.aclose()


LARGE = [bytes([number]) * 8_000 for number in range(SMALL_STATE_BYTES // 8_000 + 20)]


async def test_small_state_that_is_yielded_is_set_aside_without_a_copy(taking: Taking) -> None:
    def refuse(messages: Iterator[bytes]) -> StateCopy:
        raise AssertionError("a small state is not worth a copy")

    told = await taking.run(Yielding([b"a", b"b"]), copy_state=refuse)

    assert told == [ev.SnapshotCaptured, ev.SnapshotTaken]
    assert await taking.read() == [[b"a", b"b"]]


async def test_large_state_is_written_by_a_copy_and_delivery_goes_on_before(taking: Taking) -> None:
    service, copies = Yielding([*LARGE]), []

    def copy(messages: Iterator[bytes]) -> StateCopy:
        copies.append(Copy(messages))
        service.state.append(b"changed after the copy")
        return copies[0]

    told = await taking.run(service, copy_state=copy)

    assert told == [ev.SnapshotCaptured, ev.SnapshotTaken]
    assert await taking.read() == [LARGE]
    assert copies[0].is_closed


@pytest.mark.parametrize("is_refused", [False, True], ids=["no copies here", "no memory for a copy"])
async def test_large_state_is_written_while_delivery_stands_where_no_copy_can_be_made(
    taking: Taking, *, is_refused: bool
) -> None:
    def refuse(messages: Iterator[bytes]) -> StateCopy:
        raise OSError(errno.ENOMEM, "no memory")

    told = await taking.run(Yielding([*LARGE]), copy_state=refuse if is_refused else None)

    assert told == [ev.SnapshotTaken]
    assert await taking.read() == [LARGE]


async def test_delivery_goes_on_once_only_states_are_left_that_are_set_aside(taking: Taking) -> None:
    """The recordings are in order of the services all the same."""
    told = await taking.run(Yielding([b"a"]), Writing(), copy_state=None)

    assert told == [ev.SnapshotCaptured, ev.SnapshotTaken]
    assert await taking.read() == [[b"a"], [b"written"]]


@pytest.mark.parametrize("services", [(Writing(),), (Yielding(LARGE), Writing())])
async def test_delivery_stands_until_the_end_where_a_state_may_not_change(
    taking: Taking, services: tuple[ClusteredService, ...]
) -> None:
    assert await taking.run(*services, copy_state=None) == [ev.SnapshotTaken]


async def test_digests_are_the_same_however_the_state_was_written(taking: Taking) -> None:
    for copy_state in (Copy, None):
        await taking.run(Yielding([*LARGE]), Writing(), copy_state=copy_state)

    digested = [event for event in taking.events if isinstance(event, ev.SnapshotDigested)]
    assert [event.service_id for event in digested] == [0, 1, -1] * 2
    assert digested[:3] == digested[3:]


async def test_service_that_fails_costs_the_snapshot_and_the_copy_is_closed(taking: Taking) -> None:
    class Failing(Copy):
        def read_batch(self) -> list[bytes]:
            raise ClusterError("killed")

    copies: list[Failing] = []

    def copy(messages: Iterator[bytes]) -> StateCopy:
        copies.append(Failing(messages))
        return copies[0]

    told = await taking.run(Yielding([*LARGE]), copy_state=copy)

    assert told == [ev.SnapshotCaptured, ev.SnapshotFailed]
    assert (copies[0].is_closed, taking.counts.failed) == (True, 1)
