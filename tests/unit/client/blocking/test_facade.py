"""Blocking classes made from asyncio ones: calls, limits, iterators, contexts, twins, and the ends of all of them."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.client.client_threads import client_threads
from tests.unit.client.fake_member import DEADLINE_S
from tests.waiting import patient, wait_blocking
from trimaran.client.blocking.facade import Blocking, BlockingClient, BlockingEvent, BlockingIterator, BlockingScope
from trimaran.service_api.connecting import ClosedAtExit, Connecting
from trimaran.service_api.errors import ClusterTimeoutError, LocalProtocolError, SessionClosedError


class Room:
    """A room of a house."""

    name: str

    def __init__(self, name: str) -> None:
        self.name = name

    async def enter(self) -> str:
        """Go in."""
        return f"in {self.name}"


class Visit:
    """A visit, which is a context and an iterator."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __aenter__(self) -> Visit:
        self.seen.append("begun")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.seen.append("failed" if kind else "ended")

    def __aiter__(self) -> Visit:
        return self

    async def __anext__(self) -> Room:
        if len(self.seen) > 2:
            raise StopAsyncIteration
        self.seen.append("next")
        return Room(f"room {len(self.seen)}")

    def note(self, text: str) -> list[str]:
        """Note a text."""
        self.seen.append(text)
        return self.seen

    async def aclose(self) -> None:
        """Leave."""
        self.seen.append("closed")


class House(ClosedAtExit):
    """A client of a house."""

    bell: asyncio.Event
    hall: Room

    def __init__(self, *names: str, config: Any = None) -> None:
        self.rooms = [Room(name) for name in names]
        self.hall = Room("hall")
        self.thread = ""
        self.released: list[str] = []
        self.is_closed = False

    @classmethod
    def connect(cls, *names: str, config: Any = None) -> Connecting[House]:
        """Open the house."""
        return Connecting(cls(*names, config=config)._open)

    async def _open(self) -> House:
        self.bell = asyncio.Event()
        self.thread = threading.current_thread().name
        if not self.rooms:
            raise ClusterTimeoutError("no room")
        return self

    async def aclose(self) -> None:
        """Close the house."""
        self.is_closed = True
        self.bell.set()

    @property
    def room_count(self) -> int:
        """How many rooms there are."""
        return len(self.rooms)

    def add(self, name: str) -> Room:
        """Add a room.

        It is empty.
        """
        self.rooms.append(Room(name))
        return self.rooms[-1]

    async def find(self, name: str, *, timeout_s: float | None = None) -> list[Room]:
        """Find rooms; `timeout_s` is its own."""
        return [room for room in self.rooms if room.name == name]

    async def wait(self) -> None:
        """Wait for the bell."""
        await self.bell.wait()

    async def walk(self) -> AsyncIterator[Room]:
        """Go from room to room, then wait for the bell."""
        try:
            for room in self.rooms:
                yield room
            await self.bell.wait()
        finally:
            self.released.append("walk")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Room]:
        """Have a room for a while."""
        try:
            yield Room(name)
        finally:
            self.released.append(name)

    def visit(self) -> Visit:
        """Begin a visit."""
        return Visit()

    async def sweep(self) -> None:
        """Do what the twin does in its own way."""

    async def inspect(self) -> None:
        """Do what the twin has no use for."""


class SyncRoom(Blocking, of=Room):
    """A room."""


class SyncVisit(BlockingScope, BlockingIterator[SyncRoom], of=Visit):
    """A visit."""


class _OwnWay(BlockingClient):
    def sweep(self) -> str:
        return "swept"


class SyncHouse(_OwnWay, of=House, without=("inspect",)):
    """A house."""


HOUSE: Any = SyncHouse  # Any: no stub tells what the facade makes for this test


def made() -> Any:
    return HOUSE.connect("a", "b")


def test_calls_run_in_the_thread_and_what_they_give_has_its_twin() -> None:
    with made() as house:
        assert house._target.thread == "trimaran-client"
        assert (house.add("c").name, house.room_count) == ("c", 3)
        (found,) = house.find("b")
        assert type(found).__name__ == "SyncRoom"
        assert found.enter() == "in b"
        assert repr(found).startswith("<SyncRoom <")
        assert house.hall is house.hall


def test_what_the_class_has_already_or_does_not_want_is_left_alone() -> None:
    with made() as house:
        assert house.sweep() == "swept"
        assert not hasattr(house, "inspect")
        assert not hasattr(house, "aclose")
        assert not hasattr(SyncRoom, "rooms")


def test_signatures_are_those_of_the_asyncio_class_with_twins_and_limits() -> None:
    names = ("add", "find", "wait", "walk", "lease")
    shown = {name: str(inspect.signature(getattr(SyncHouse, name))) for name in names}

    assert shown["add"] == "(self, name: 'str') -> 'SyncRoom'"
    assert shown["find"] == "(self, name: 'str', *, timeout_s: 'float | None' = None) -> 'list[SyncRoom]'"
    assert shown["wait"] == "(self, *, timeout_s: 'float | None' = None) -> 'None'"
    assert shown["walk"] == "(self, *, timeout_s: 'float | None' = None) -> 'Iterator[SyncRoom]'"
    assert shown["lease"] == "(self, name: 'str') -> 'AbstractContextManager[SyncRoom]'"
    assert inspect.getdoc(getattr(SyncHouse, "add")) == "Add a room.\n\nSee `House.add`."  # noqa: B009
    assert str(inspect.signature(HOUSE.connect)) == "(*names: 'str', config: 'Any' = None) -> 'Self'"


def test_a_call_ends_at_its_limit() -> None:
    with made() as house:
        with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.01"):
            house.wait(timeout_s=0.01)
        walk = house.walk(timeout_s=0.01)
        assert [next(walk).name, next(walk).name] == ["a", "b"]
        with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.01"):
            next(walk)


def test_an_iteration_that_is_closed_or_forgotten_ends_what_it_began() -> None:
    with made() as house:
        walk = house.walk()
        next(walk)
        walk.close()
        assert house._target.released == ["walk"]

        for room in house.walk():
            assert room.name == "a"
            break
        gc.collect()
        wait_blocking(lambda: len(house._target.released) == 2 or None, timeout_s=DEADLINE_S, what="the end of a walk")


def test_a_context_gives_a_twin_and_sees_errors() -> None:
    with made() as house:
        with house.lease("c") as room:
            assert room.enter() == "in c"
        with pytest.raises(ZeroDivisionError), house.lease("d"):
            raise ZeroDivisionError
        assert house._target.released == ["c", "d"]
        with house.visit() as visit:
            assert [room.name for room in visit] == ["room 2", "room 3"]
            notes = visit.note("x")
        assert notes == ["begun", "next", "next", "x", "ended"]
        with pytest.raises(ZeroDivisionError), visit:
            raise ZeroDivisionError
        assert visit.note("y")[-2:] == ["failed", "y"]


def test_an_event_of_the_loop_can_be_awaited_from_a_thread() -> None:
    with made() as house, ThreadPoolExecutor(1) as pool:
        assert isinstance(house.bell, BlockingEvent)
        assert not house.bell.wait(timeout_s=0.01)
        waiting = pool.submit(house.bell.wait)
        house._owner.thread.call(house._target.aclose)
        assert waiting.result(patient(DEADLINE_S))
        assert house.bell.is_set()


def test_after_close_calls_are_refused_and_scopes_end_quietly() -> None:
    with made() as house:
        walk = house.walk()
        next(walk)
        with house.lease("c"), house.visit():
            house.close()
        house.close()
        walk.close()
        new_walk = house.walk()
        uses: list[Callable[[], object]] = [lambda: house.add("x"), walk.__next__, new_walk.__next__, house.visit]
        for use in uses:
            with pytest.raises(SessionClosedError):
                use()
        assert house._target.is_closed
        assert house.room_count == 2
    assert client_threads() == []


def test_a_client_that_cannot_open_leaves_no_thread() -> None:
    with pytest.raises(ClusterTimeoutError, match="no room"):
        HOUSE.connect()

    assert client_threads() == []


def test_the_thread_ends_with_the_last_object_that_needs_it() -> None:
    house = made()
    room = house.add("c")
    del house
    gc.collect()
    assert room.enter() == "in c"

    del room
    gc.collect()
    wait_blocking(lambda: not client_threads() or None, timeout_s=DEADLINE_S, what="the end of the thread")


def test_its_own_thread_is_refused() -> None:
    with made() as house:

        async def use() -> str:
            with pytest.raises(LocalProtocolError, match="own event loop"):
                house.add("x")
            return "refused"

        assert house._owner.thread.call(use) == "refused"


@pytest.mark.parametrize("copying", [pickle.dumps, copy.deepcopy])
def test_it_cannot_be_copied(copying: Any) -> None:
    with made() as house, pytest.raises(TypeError, match="pickle"):
        copying(house)
