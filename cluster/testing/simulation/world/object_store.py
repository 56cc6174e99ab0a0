"""An object store on virtual time, which all simulated machines reach: it is slow, refuses, and lists what was.

An object is there as a whole or not at all, with one exception that real stores know, too: what `put_file` was cut off
in may stay. Every operation takes a while, in the thread that asks.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final

from .....archive.disk.file_system import FileSystem, read_file
from .machine import Machine

_MS: Final = 1_000_000
_LATENCY_NS: Final = 2 * _MS
_SLOW_NS: Final = 80 * _MS
_FAILURE_RATE: Final = 0.3


class StoreFault(StrEnum):
    """What is wrong with the store for a while."""

    REFUSING = "refusing"
    """Some operations fail, and nothing is done."""
    LOSING_ANSWERS = "losing answers"
    """Some are done, and who asked hears of a failure."""
    CUTTING = "cutting"
    """Of some files the first half is written, and who asked hears of a failure."""
    SLOW = "slow"
    STALE = "stale"
    """Listings are of what was there when it began."""


class SimulatedStore:
    """The objects of a run, by URL."""

    def __init__(self, random: Random) -> None:
        self.objects: dict[str, bytes] = {}
        self.watchers: list[Callable[[str], None]] = []
        """Told of each object that was written or removed."""
        self._random = random
        self._fault: StoreFault | None = None
        self._listed: tuple[str, ...] = ()
        self._ends: dict[str, tuple[int, Callable[[], object]]] = {}
        """By address: after how many more operations the process that asks ends, and how."""

    def __repr__(self) -> str:
        return f"<SimulatedStore objects={len(self.objects)} fault={self._fault}>"

    def strike(self, fault: StoreFault) -> None:
        """Let something be wrong until `mend`."""
        self._fault, self._listed = fault, tuple(self.objects)

    def mend(self) -> None:
        """Let all be well."""
        self._fault = None

    def end_midway(self, machine: Machine, operation_count: int, end: Callable[[], object]) -> None:
        """Have a process end after so many more operations: none of those after them is done."""
        self._ends[machine.address] = operation_count, end

    def on_started(self, machine: Machine) -> None:
        """Another process runs on a machine: what its last one was to end of is forgotten."""
        self._ends.pop(machine.address, None)

    def begin(self, machine: Machine, url: str) -> None:
        """Take the time of an operation.

        Raises:
            OSError: it is not done.
        """
        if machine.loop is not None:
            slow_ns = _SLOW_NS if self._fault is StoreFault.SLOW else _LATENCY_NS
            machine.loop.wait_in_job(int(self._random.expovariate(1.0) * slow_ns))
        count, end = self._ends.get(machine.address, (1, None))
        if end is not None:
            self._ends[machine.address] = count - 1, end
            if count == 1:
                end()
            if count <= 1:
                raise OSError(errno.EIO, "the process has ended", url)
        if self.fails(StoreFault.REFUSING):
            raise OSError(errno.EIO, "simulated refusal of the store", url)

    def end(self, url: str) -> None:
        """Tell of what was done.

        Raises:
            OSError: it was done all the same.
        """
        if self.fails(StoreFault.LOSING_ANSWERS):
            raise OSError(errno.EIO, "simulated loss of the store's answer", url)

    def fails(self, fault: StoreFault) -> bool:
        """Draw whether this operation is one that a fault strikes."""
        return self._fault is fault and self._random.random() < _FAILURE_RATE

    def listed(self) -> tuple[str, ...]:
        """Return the URLs that a listing has now."""
        return self._listed if self._fault is StoreFault.STALE else tuple(self.objects)

    def write(self, url: str, data: bytes) -> None:
        """Put an object there as a whole."""
        self.objects[url] = data
        self.tell(url)

    def tell(self, url: str) -> None:
        """Tell who watches of an object that was written or removed."""
        for watch in self.watchers:
            watch(url)


class SimulatedObjects:
    """Implements `Objects`: what one machine sees of the store below a URL; its files are on `disk`."""

    def __init__(self, store: SimulatedStore, machine: Machine, disk: FileSystem, url: str) -> None:
        self.url: Final = url.rstrip("/")
        self._store, self._machine, self._disk = store, machine, disk

    def __repr__(self) -> str:
        return f"<SimulatedObjects {self.url}>"

    def put(self, name: str, data: bytes) -> None:
        """Write an object."""
        url = self._begin(name)
        self._store.write(url, bytes(data))
        self._store.end(url)

    def put_file(self, name: str, source: Path) -> None:
        """Write the content of a file, or half of it and an error."""
        url, data = self._begin(name), read_file(self._disk, source)
        if self._store.fails(StoreFault.CUTTING):
            self._store.write(url, data[: len(data) // 2])
            raise OSError(errno.EIO, "simulated end of an upload", url)
        self._store.write(url, data)
        self._store.end(url)

    def find_length(self, name: str) -> int | None:
        """Return how long an object is."""
        data = self._store.objects.get(self._begin(name))
        return None if data is None else len(data)

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of an object."""
        data = self.read(name)[begin:end]
        if len(data) != end - begin:
            raise OSError(errno.EIO, "the object ends too early", f"{self.url}/{name}")
        return data

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, as they are or as they were."""
        prefix = f"{self._begin(folder)}/"
        below = [url.removeprefix(prefix) for url in self._store.listed() if url.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in below})

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        url = self._begin(name)
        data = self._store.objects.get(url)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", url)
        return data

    def remove(self, name: str) -> None:
        """Remove an object."""
        url = self._begin(name)
        if self._store.objects.pop(url, None) is not None:
            self._store.tell(url)
        self._store.end(url)

    def _begin(self, name: str) -> str:
        url = f"{self.url}/{name}".rstrip("/")
        self._store.begin(self._machine, url)
        return url
