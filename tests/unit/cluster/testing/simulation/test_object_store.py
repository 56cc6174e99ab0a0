"""The simulated object store: whole objects, and the ways in which it fails."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from trimaran.archive.disk.file_system import replace_file
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.testing.simulation.world.machine import Machine
from trimaran.cluster.testing.simulation.world.network import Network
from trimaran.cluster.testing.simulation.world.object_store import SimulatedObjects, SimulatedStore, StoreFault
from trimaran.cluster.testing.simulation.world.scheduler import Scheduler

FILE = Path("/place/file")
TRIES = 40
"""So many that each fault strikes some of them, and not others."""


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore(Random("store"))


@pytest.fixture
def machine() -> Machine:
    scheduler = Scheduler()
    return Machine(scheduler, Network(scheduler, Random("network")), Random("disk"), "here")


@pytest.fixture
def objects(store: SimulatedStore, machine: Machine) -> SimulatedObjects:
    disk = MemoryFileSystem()
    disk.make_directory(FILE.parent)
    replace_file(disk, FILE, b"content")
    return SimulatedObjects(store, machine, disk, "sim://store/one")


def failures_of(objects: SimulatedObjects) -> list[str]:
    """Write objects by file; give the names of those that were said not to be written."""
    failed = []
    for number in range(TRIES):
        try:
            objects.put_file(f"a/{number}", FILE)
        except OSError:
            failed.append(f"a/{number}")
    return failed


def test_object_is_read_as_it_was_written(objects: SimulatedObjects) -> None:
    objects.put("a/one", b"0123456789")
    objects.put_file("a/two", FILE)

    assert objects.read("a/one") == b"0123456789"
    assert objects.read_range("a/one", 2, 5) == b"234"
    assert objects.find_length("a/two") == 7
    assert objects.list_names("a") == ["one", "two"]
    with pytest.raises(OSError, match="ends too early"):
        objects.read_range("a/one", 8, 12)


def test_object_that_was_removed_is_gone(objects: SimulatedObjects) -> None:
    objects.put("one", b"1")
    objects.remove("one")
    objects.remove("one")

    assert objects.find_length("one") is None
    with pytest.raises(FileNotFoundError):
        objects.read("one")


def test_refusing_store_does_nothing(store: SimulatedStore, objects: SimulatedObjects) -> None:
    store.strike(StoreFault.REFUSING)
    failed = failures_of(objects)
    store.mend()

    assert 0 < len(failed) < TRIES
    assert [objects.find_length(name) for name in failed] == [None for _ in failed]


def test_store_that_loses_answers_has_done_what_it_was_asked(store: SimulatedStore, objects: SimulatedObjects) -> None:
    store.strike(StoreFault.LOSING_ANSWERS)
    failed = failures_of(objects)
    store.mend()

    assert 0 < len(failed) < TRIES
    assert [objects.read(name) for name in failed] == [b"content" for _ in failed]


def test_store_that_cuts_has_half_of_a_file(store: SimulatedStore, objects: SimulatedObjects) -> None:
    store.strike(StoreFault.CUTTING)
    failed = failures_of(objects)
    store.mend()

    assert 0 < len(failed) < TRIES
    assert [objects.read(name) for name in failed] == [b"con" for _ in failed]


def test_stale_listing_is_of_what_was_there(store: SimulatedStore, objects: SimulatedObjects) -> None:
    objects.put("a/one", b"1")
    store.strike(StoreFault.STALE)
    objects.put("a/two", b"2")
    stale = objects.list_names("a")
    store.mend()

    assert (stale, objects.list_names("a")) == (["one"], ["one", "two"])


def test_process_that_ended_does_nothing_more(
    store: SimulatedStore, machine: Machine, objects: SimulatedObjects
) -> None:
    ends = []
    store.end_midway(machine, 2, lambda: ends.append("here"))
    objects.put("one", b"1")
    for name in ("two", "three"):
        with pytest.raises(OSError, match="has ended"):
            objects.put(name, b"")
    store.on_started(machine)
    objects.put("four", b"4")

    assert ends == ["here"]
    assert [objects.find_length(name) for name in ("one", "two", "three", "four")] == [1, None, None, 1]
