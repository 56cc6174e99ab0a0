"""The host of a member: clock, random numbers, disk, threads, connections.

The simulator brings another machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ....archive.disk.file_system import FileSystem, OsFileSystem
from ....archive.disk.object_store import ObjectStore, OpenObjects
from ....archive.store.worker import ThreadWorker, WorkerFactory
from ....service_api import Clock
from ....service_api.net.descriptors import raise_descriptor_limit
from ....service_api.net.transport import SOCKETS, NetworkStack
from ..shared_machine.processor_pressure import ReadWait, read_wait_ns
from ..shared_machine.processor_share import SetNice, set_session_nice
from .state_copy import CopyState, find_copy_state
from .system_clock import SystemClock

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


@dataclass(slots=True, frozen=True, kw_only=True)
class Host:
    """One machine, as a member sees it."""

    clock: Clock
    """Monotonic nanoseconds, and epoch time in milliseconds."""
    random: Callable[[], float]
    """Uniform in [0, 1): delays before a nomination, log session ids."""
    network: NetworkStack
    file_system: FileSystem
    make_worker: WorkerFactory
    open_objects: OpenObjects = ObjectStore
    """Opens a place in an object store, which reads and writes files of `file_system`."""
    pid: int
    """The process of the member, as its status names it."""
    boot_id: str
    """Differs whenever the machine was started again; empty when that cannot be told."""
    set_session_nice: SetNice
    """Says how nice to other processes this one is, which is meant to be alone in its session."""
    read_wait: ReadWait
    """Says how long the calling thread has waited for a processor."""
    sched_yield: Callable[[], None] | None
    """Lets another thread run that waits for this processor. None where nothing is won by staying awake."""
    copy_state: CopyState | None = None
    """Sets a service's state aside to be written while the service goes on; None where that cannot be done."""
    descriptor_limit: int | None = None
    """How many files and connections this process may have open; None where that is not to be kept to."""
    trim_memory: Callable[[], None] = lambda: None
    """Gives memory that was freed back to the system, where the allocator can be asked to."""
    spare_sync_delay_us: int = 20_000
    """How long a sync that no majority needs may wait where members share a disk."""

    @classmethod
    def of_operating_system(cls, network: NetworkStack = SOCKETS) -> Self:
        """Return the machine this process runs on, which may have as many files open as its hard limit says."""
        return cls(
            clock=SystemClock(),
            random=random.SystemRandom().random,
            network=network,
            file_system=OsFileSystem(),
            make_worker=ThreadWorker,
            pid=os.getpid(),
            boot_id=_read_boot_id(),
            set_session_nice=set_session_nice,
            read_wait=read_wait_ns,
            sched_yield=getattr(os, "sched_yield", None),
            copy_state=find_copy_state(),
            descriptor_limit=raise_descriptor_limit(),
            trim_memory=_trim_memory,
        )


def _trim_memory() -> None:
    """Call glibc's `malloc_trim`; elsewhere nothing.

    What a flood has taken lies in pieces between what is still in use, and the allocator keeps it otherwise.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        ctypes.CDLL(None).malloc_trim(0)


def _read_boot_id() -> str:
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except OSError:
        return ""
