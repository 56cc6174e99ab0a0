"""A simulated machine: a clock, a disk that takes its time, and one process at most."""

from __future__ import annotations

import contextvars
import errno
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from .....archive.disk.memory_file_system import MemoryFileSystem
from .....archive.disk.object_store import ObjectStore, OpenObjects
from .....archive.store.worker import Done, Job
from ....runtime.ground.host import Host
from .loop import LocalClock, SimulatedLoop
from .network import Network
from .scheduler import Scheduler

_PID: Final = 4_321
"""Of every process: that of the simulator has more digits on one day than on another, and status is as long as it."""


@dataclass(slots=True)
class DiskTiming:
    """How long a sync or another blocking job takes, in nanoseconds."""

    min_ns: int = 60_000
    mean_ns: int = 150_000
    stall_until_ns: int = 0
    """Until then nothing is done: the disk hangs."""

    def draw(self, random: Random, now_ns: int) -> int:
        """Return one job's time."""
        busy_ns = max(0, self.stall_until_ns - now_ns)
        return busy_ns + self.min_ns + int(random.expovariate(1.0) * (self.mean_ns - self.min_ns))


class Site:
    """What the processes on one machine share: its clock, its power, and how fast its disk is."""

    def __init__(self, scheduler: Scheduler, *, drift_ppm: int = 0, epoch_offset_ns: int = 0) -> None:
        self.clock = LocalClock(scheduler, drift_ppm=drift_ppm, epoch_offset_ns=epoch_offset_ns)
        self.timing = DiskTiming()
        self.has_power = True
        self.boot_count = 1

    def __repr__(self) -> str:
        return f"<Site boot={self.boot_count} power={self.has_power}>"


def no_fault(name: str, path: object, length: int) -> None:
    """The disk does what it is asked."""


def process_gone(name: str, path: object, length: int) -> None:
    """Refuse what a process that has ended still tries to do: it must not reach the disk."""
    raise OSError(errno.EIO, "the process has ended", str(path))


class Machine:
    """One machine and the process on it. A process is started from a coroutine and dies alone or with its machine.

    Where a machine has processes of several groups, each has a `Machine` with a disk of its own, and they share a site.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        random: Random,
        address: str,
        *,
        drift_ppm: int = 0,
        epoch_offset_ns: int = 0,
        site: Site | None = None,
    ) -> None:
        """Make it; with a `site` that is the one of another process on the same machine, and its clock, too."""
        self.address = address
        self.site = site or Site(scheduler, drift_ppm=drift_ppm, epoch_offset_ns=epoch_offset_ns)
        self.timing, self.clock = self.site.timing, self.site.clock
        self.loop: SimulatedLoop | None = None
        self.incarnation = 0
        self.on_exit: Callable[[BaseException | None], None] = lambda error: None
        """Called when the process ends by itself."""
        self.on_error: Callable[[dict[str, Any]], None] = lambda context: None
        """Called with what nobody in the process caught."""
        self._scheduler, self._network, self._random = scheduler, network, random
        self._graves: list[SimulatedLoop] = []
        self.on_disk_operation: Callable[[str, object, int], None] = no_fault
        """Called before each operation of the disk; what it raises the process sees."""
        self.on_remove: Callable[[object], None] = lambda path: None
        """Called before a file is removed."""
        self.spare_sync_delay_us = 0
        self.open_objects: OpenObjects = ObjectStore
        self.disk = self._make_disk()

    def __repr__(self) -> str:
        return f"<Machine {self.address} boot={self.site.boot_count} {self.loop!r}>"

    @property
    def has_power(self) -> bool:
        """Whether the machine is on."""
        return self.site.has_power

    @property
    def is_running(self) -> bool:
        """Whether a process runs here, paused or not."""
        return self.loop is not None

    def host(self) -> Host:
        """Return what a member sees of this machine."""
        random = Random(f"{self.address} {self.incarnation} {self._random.random()}")
        return Host(
            clock=self.clock,
            network=self._network,
            random=random.random,
            file_system=self.disk,
            make_worker=lambda name: _Worker(self),
            open_objects=self.open_objects,
            pid=_PID,
            boot_id=f"{self.address}-boot-{self.site.boot_count}",
            set_session_nice=lambda nice: True,
            read_wait=lambda: 0,
            sched_yield=None,
            copy_state=_CopiedState,
            spare_sync_delay_us=self.spare_sync_delay_us,
        )

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> SimulatedLoop:
        """Start a process; the machine must have power and run none."""
        assert self.loop is None
        self.incarnation += 1
        loop = self.loop = SimulatedLoop(  # type: ignore[abstract]  # what the product uses of a loop
            self._scheduler,
            address=self.address,
            clock=self.clock,
            job_latency_ns=lambda: self.timing.draw(self._random, self._scheduler.now_ns),
            on_error=lambda context: self.on_error(context),
        )
        self.clock.ahead_ns = 0
        context = contextvars.Context()
        loop.call_soon(lambda: loop.create_task(self._run(loop, main), name="main", context=context))
        return loop

    def run_beside(
        self, main: Callable[[], Coroutine[Any, Any, None]], *, context: contextvars.Context | None = None
    ) -> None:
        """Run a coroutine in the process that runs here, from its next turn on; it ends with the process."""
        assert self.loop is not None
        loop, own = self.loop, contextvars.Context() if context is None else context
        loop.call_soon(lambda: loop.create_task(main(), name="beside", context=own))

    async def _run(self, loop: SimulatedLoop, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        failure: BaseException | None = None
        try:
            await main()
        except Exception as error:
            failure = error
        self._scheduler.call_after(0, self._exit, loop, failure)

    def _exit(self, loop: SimulatedLoop, failure: BaseException | None) -> None:
        if self.loop is loop:
            self.kill()
            self.on_exit(failure)

    def kill(self) -> None:
        """End the process at once; what it wrote stays with the kernel."""
        loop = self._end_process()
        if loop is not None:
            self._network.close_process(loop)
            self.disk.crash_process()

    def lose_power(self, keep: Callable[[], bool]) -> None:
        """End everything at once; of what was not synced only what `keep` says survives.

        Each process on the machine has to be told, one right after the other.
        """
        self._end_process()
        if self.site.has_power:
            self.site.has_power = False
            self.site.boot_count += 1
            self._network.lose_power(self.address)
        self.disk.crash(keep)

    def _end_process(self) -> SimulatedLoop | None:
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.kill()
            self._graves.append(loop)
            self.clock.ahead_ns = 0
        return loop

    def regain_power(self) -> None:
        """Start the machine, without a process."""
        self.site.has_power = True
        self._network.regain_power(self.address)

    def replace_disk(self) -> None:
        """Put an empty disk in. No process runs."""
        assert self.loop is None
        self.disk = self._make_disk()

    def bury(self) -> None:
        """Close what dead processes left. Called once nothing runs any more."""
        for loop in self._graves:
            loop.bury()
        self._graves.clear()

    def _make_disk(self) -> MemoryFileSystem:
        disk = MemoryFileSystem()
        disk.on_operation = self._on_disk_operation
        return disk

    def _on_disk_operation(self, name: str, path: object, length: int) -> None:
        self.on_disk_operation(name, path, length)
        if name == "remove":
            self.on_remove(path)
        if name.startswith("sync") and self.loop is not None:
            # In a job this is the thread's time: the loop takes it back.
            self.loop.block(self.timing.draw(self._random, self._scheduler.now_ns))


class _Worker:
    """Runs jobs one after another, each when the disk has had its time for it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._free_ns = 0

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` later, then call `done`."""
        loop = self._machine.loop
        assert loop is not None
        wait_ns = max(0, self._free_ns - loop.scheduler.now_ns)
        self._free_ns = loop.call_job(job, lambda result, error: done(error), delay_ns=wait_ns)

    def close(self) -> None:
        """Nothing is kept."""


class _CopiedState:
    """Messages of a service as they were: the simulator has no processes that could be copied."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = [bytes(message) for message in messages]

    def read_batch(self) -> list[bytes]:
        """Return all messages, the first time."""
        batch, self._messages = self._messages, []
        return batch

    def close(self) -> None:
        """Nothing is held."""
