"""Waiting for conditions in real time: every limit of a test grows with how slow the machine is now.

A limit says how long something may take on a quiet machine. `slowness` says how many times longer it may take at this
moment: how many threads wait for each core, and how quick a core is. A `Deadline` spends its seconds at that rate, so
it lasts as long as the machine needs; it counts at most `LONGEST_LOOK_S` for the time between two looks, since a
process that looks less often than it wants has not been running. `patient` stretches a limit once, for calls that take
their own timeout. Neither makes a limit shorter than it is written. The simulator's virtual time needs none of this.
`tests/test_waiting_rules.py` holds that no test waits in another way.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

POLL_INTERVAL_S: Final = 0.02
SOON_S: Final = 60.0
"""Limit of what needs a few passes of the loop, a socket on loopback or a small file."""
EAGER_PASSES: Final = 100
"""Passes of the loop that `until` looks in before it begins to sleep."""

LEAST_PATIENCE: Final = 2.0
"""Factor of `patient` on a quiet machine, since the load may come after the call."""

LONGEST_LOOK_S: Final = 1.0
"""What counts of the time between two looks at a deadline: the rest of a longer one the process was kept waiting."""

QUICK_CORE_S: Final = 0.0016
"""Time that `_count` takes on a core of the machine on which the limits were chosen."""

T = TypeVar("T")


def slowness() -> float:
    """Return how many times longer than on a quiet machine something may take now; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.getloadavg()[0]
    with suppress(OSError):  # only Linux says how many threads can run at this moment
        threads = max(threads, float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]))
    return max(1.0, threads / cores) * _core_slowness()


def patient(limit_s: float) -> float:
    """Stretch a limit for a call that counts it by itself, such as `subprocess.run(timeout=...)`."""
    return limit_s * max(LEAST_PATIENCE, slowness())


class Deadline:
    """A limit that is spent more slowly while the machine is slow."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._left_s = limit_s
        self._counted_at_s = clock()

    def has_passed(self) -> bool:
        """Count the time since the last call, at most `LONGEST_LOOK_S` of it; True once the limit is spent."""
        now_s = self._clock()
        self._left_s -= min(now_s - self._counted_at_s, LONGEST_LOOK_S) / slowness()
        self._counted_at_s = now_s
        return self._left_s < 0


@asynccontextmanager
async def within(limit_s: float) -> AsyncIterator[None]:
    """Limit what the block may take, as `asyncio.timeout` does, but by a `Deadline`.

    Raises:
        TimeoutError: the limit is spent.
    """
    deadline, look_interval_s = Deadline(limit_s), min(LONGEST_LOOK_S, limit_s) / 4
    loop = asyncio.get_running_loop()
    next_look: asyncio.TimerHandle | None = None
    async with asyncio.timeout(None) as timeout:

        def look() -> None:
            nonlocal next_look
            if deadline.has_passed():
                timeout.reschedule(loop.time())
            else:
                next_look = loop.call_later(look_interval_s, look)

        look()
        try:
            yield
        finally:
            if next_look is not None:  # the process may have stood still until the limit was spent at the first look
                next_look.cancel()


async def wait_for(find: Callable[[], T | None], *, timeout_s: float, what: str | Callable[[], str]) -> T:
    """Wait until `find` returns something.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    deadline = Deadline(timeout_s)
    while True:
        found = find()
        if found is not None:
            return found
        if deadline.has_passed():
            raise AssertionError(_waited(deadline, what))
        await asyncio.sleep(POLL_INTERVAL_S)


async def wait_until(holds: Callable[[], bool], *, timeout_s: float, what: str | Callable[[], str]) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    await wait_for(lambda: True if holds() else None, timeout_s=timeout_s, what=what)


async def until(holds: Callable[[], object], *, timeout_s: float = SOON_S) -> None:
    """Let the loop run until a condition holds, which is soon; the first passes of the loop do not sleep.

    Raises:
        AssertionError: the deadline passed.
    """
    for _ in range(EAGER_PASSES):
        if holds():
            return
        await asyncio.sleep(0)
    deadline = Deadline(timeout_s)
    while not holds():  # nobody announces it
        if deadline.has_passed():
            raise AssertionError(_waited(deadline, "a condition"))
        await asyncio.sleep(0.001)


async def passes(count: int) -> None:
    """Let the loop make some passes: only for what takes part in them alone, without a socket, a file or a thread."""
    for _ in range(count):
        await asyncio.sleep(0)


async def let_pass(time_s: float) -> None:
    """Let time pass in which something must not happen: a slow machine may hide that it does, and makes no test red."""
    await asyncio.sleep(time_s)


async def ask_until(ask: Callable[[], Awaitable[T | None]], *, timeout_s: float, what: str | Callable[[], str]) -> T:
    """Ask again and again until an answer is something; what asks may have a limit of its own.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    deadline = Deadline(timeout_s)
    while (answer := await ask()) is None:
        if deadline.has_passed():
            raise AssertionError(_waited(deadline, what))
        await asyncio.sleep(POLL_INTERVAL_S)
    return answer


def wait_blocking(find: Callable[[], T | None], *, timeout_s: float, what: str | Callable[[], str]) -> T:
    """Wait until `find` returns something, in a test that has no event loop.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    deadline = Deadline(timeout_s)
    while True:
        found = find()
        if found is not None:
            return found
        if deadline.has_passed():
            raise AssertionError(_waited(deadline, what))
        time.sleep(POLL_INTERVAL_S)


def _waited(deadline: Deadline, what: str | Callable[[], str]) -> str:
    return f"waited {deadline.limit_s:g} s, if the machine were quiet, for {what if isinstance(what, str) else what()}"


@cache
def _core_slowness() -> float:
    """Return how much slower a core is than the one that limits were chosen on; at least 1. Measured once."""
    return max(1.0, min(_count() for _ in range(5)) / QUICK_CORE_S)


def _count() -> float:
    """Return the seconds that a fixed piece of work takes."""
    begun_s = time.perf_counter()
    sum(number % 7 for number in range(40_000))
    return time.perf_counter() - begun_s
