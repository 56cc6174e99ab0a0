"""Virtual time: one queue of everything that will happen, for every process of a simulation.

Nothing waits for real. When nothing is ready, time jumps to the next entry. Entries of one time run in the order in
which they were made, so a run is a function of its seed.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import Handle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

START_NS: Final = 1_000_000_000
"""Where virtual time begins: not at 0, so that nothing works by accident."""


class Scheduler:
    """Runs the handles of every simulated loop in order of virtual time."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.event_count = 0
        self.environment = Environment()
        self._running: Any = None
        """The loop that asyncio takes for the running one."""
        self._ready: deque[Handle] = deque()
        self._later: list[tuple[int, int, Handle]] = []
        self._sequence = 0

    def __repr__(self) -> str:
        return f"<Scheduler now={self.now_ns / 1e9:.6f}s ready={len(self._ready)} later={len(self._later)}>"

    def soon(self, handle: Handle) -> None:
        """Run a handle after everything that is ready now."""
        self._ready.append(handle)

    def first(self, handles: Sequence[Handle]) -> None:
        """Run handles, in this order, before everything that is ready now."""
        self._ready.extendleft(reversed(handles))

    def at(self, time_ns: int, handle: Handle) -> None:
        """Run a handle at a virtual time; one in the past is run now."""
        self._sequence += 1
        heapq.heappush(self._later, (time_ns, self._sequence, handle))

    def call_at(self, time_ns: int, callback: Callable[..., object], *args: object) -> Handle:
        """Let the environment do something at a virtual time."""
        handle = Handle(callback, args, self.environment)  # type: ignore[arg-type]  # as much of a loop as it needs
        self.at(time_ns, handle)
        return handle

    def call_after(self, delay_ns: int, callback: Callable[..., object], *args: object) -> Handle:
        """Let the environment do something later."""
        return self.call_at(self.now_ns + delay_ns, callback, *args)

    def run_until(self, end_ns: int, *, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `end_ns`, or until `is_done` holds between two instants; say whether it does."""
        later = self._later
        try:
            while True:
                self._run_ready()
                if is_done is not None and is_done():
                    return True
                if not later or later[0][0] > end_ns:
                    self.now_ns = max(self.now_ns, end_ns)
                    return False
                time_ns = max(later[0][0], self.now_ns)
                self.now_ns = time_ns
                while later and later[0][0] <= time_ns:
                    self._ready.append(heapq.heappop(later)[2])
        finally:
            self._running = None
            asyncio._set_running_loop(None)

    def _run_ready(self) -> None:
        ready, environment = self._ready, self.environment
        while ready:
            handle: Any = ready.popleft()  # what every loop looks at is private to asyncio
            if handle._cancelled:
                continue
            loop = handle._loop
            if loop is environment:
                self.event_count += 1
                handle._run()
                continue
            if loop.is_held:
                loop.hold(handle)
                continue
            if loop is not self._running:
                asyncio._set_running_loop(loop)
                self._running = loop
            self.event_count += 1
            handle._run()
            if loop.clock.ahead_ns:
                loop.settle_block()
            if loop.observer is not None:
                loop.observer()


class Environment:
    """Runs what belongs to no process: faults, operators, the end of a stall."""

    is_held = False
    observer = None

    def __init__(self) -> None:
        self.clock = _StandingClock()

    def get_debug(self) -> bool:
        """Debug mode is off."""
        return False

    def hold(self, handle: Handle) -> None:
        """Never needed."""

    def settle_block(self) -> None:
        """Never needed."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A fault of the simulator itself."""
        raise context["exception"]


class _StandingClock:
    ahead_ns = 0
