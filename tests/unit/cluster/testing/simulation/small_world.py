"""Simulated machines without a cluster on them: one scheduler, one network, and processes that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from trimaran.cluster.testing.simulation.world.loop import SimulatedLoop
from trimaran.cluster.testing.simulation.world.machine import Machine
from trimaran.cluster.testing.simulation.world.network import LinkQuality, Network
from trimaran.cluster.testing.simulation.world.scheduler import Scheduler

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS

JOB_NS: Final = 2 * MS
"""What each blocking job and each sync of a file takes."""

Main = Callable[[], Coroutine[Any, Any, None]]


class World:
    """A few machines whose every segment takes one millisecond and every job two."""

    def __init__(self, *names: str, drift_ppm: int = 0, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(seed))
        self.network.quality = LinkQuality(MS, MS)
        self.errors: list[tuple[str, str]] = []
        """What nobody caught: the machine, and the error as text."""
        self.exits: list[tuple[str, str]] = []
        """Processes that ended by themselves: the machine, and why."""
        self.machines = {name: self._make(name, seed, drift_ppm) for name in names or ("a", "b")}

    def _make(self, name: str, seed: int, drift_ppm: int) -> Machine:
        machine = Machine(self.scheduler, self.network, Random(f"{seed} {name}"), name, drift_ppm=drift_ppm)
        machine.timing.min_ns = machine.timing.mean_ns = JOB_NS
        machine.on_error = lambda context: self.errors.append((name, str(context.get("exception", context["message"]))))
        machine.on_exit = lambda error: self.exits.append((name, repr(error)))
        return machine

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.scheduler.now_ns

    def start(self, name: str, main: Main) -> SimulatedLoop:
        """Start a process."""
        return self.machines[name].start(main)

    def loop(self, name: str) -> SimulatedLoop:
        """Give the loop of a running process."""
        loop = self.machines[name].loop
        assert loop is not None
        return loop

    def run(self, duration_ns: int = SECOND) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.now_ns + duration_ns)

    def run_until(self, is_done: Callable[[], bool], *, limit_ns: int = 60 * SECOND) -> int:
        """Let time pass until something holds; give how long it took."""
        begin_ns = self.now_ns
        assert self.scheduler.run_until(begin_ns + limit_ns, is_done=is_done)
        return self.now_ns - begin_ns

    def after(self, delay_ns: int, action: Callable[..., object], *args: object) -> None:
        """Let the environment do something later."""
        self.scheduler.call_after(delay_ns, action, *args)

    def cut(self, first: str, second: str) -> None:
        """Block both directions."""
        self.network.block(first, second)
        self.network.block(second, first)

    def mend(self, first: str, second: str) -> None:
        """Unblock both directions."""
        self.network.unblock(first, second)
        self.network.unblock(second, first)

    def close(self) -> None:
        """End every process."""
        for machine in self.machines.values():
            machine.kill()
        for machine in self.machines.values():
            machine.bury()


@contextmanager
def world(*names: str, drift_ppm: int = 0, seed: int = 1, is_quiet: bool = True) -> Iterator[World]:
    """Make a world, and bury it in the end; unless told otherwise no process may leave an error behind."""
    made = World(*names, drift_ppm=drift_ppm, seed=seed)
    try:
        yield made
    finally:
        made.close()
    if is_quiet:
        assert made.errors == []


async def forever() -> None:
    """A process that does nothing and does not end."""
    await asyncio.Event().wait()
