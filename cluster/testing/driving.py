"""Drives a coroutine of a test, and the simulated world with it, until it ends or waits in vain.

The world is a queue of what will happen, so the driver decides when it goes on. It may be driven while an event loop
runs in this thread, as in a notebook: the loop and its task are set aside meanwhile, by the functions that asyncio
documents for authors of event loops. So tasks of members never run inside a task of the caller, which Python 3.14
refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from .simulation.cluster import SimulatedCluster
from .simulation.world.machine import Machine
from .simulation.world.quiet import quiet_log
from .waiting import StillWaitingError, Watched, describe_wait

SILENCE_LIMIT_S: Final = 60.0
"""Virtual seconds after which a coroutine without progress counts as hanging, beyond those that `advance` lets pass."""
RUN_LIMIT_S: Final = 3_600.0
"""The most virtual seconds of one run, beyond those that `advance` lets pass."""
_STEP_LIMIT: Final = 100_000
"""Steps of a test at one instant; one beyond that waits with `asyncio.sleep(0)` for what takes time."""
_NS: Final = 1_000_000_000
_FOREVER_NS: Final = 1 << 62

T = TypeVar("T")


class Drive(Generic[T]):
    """One coroutine of a test while it is driven.

    Args:
        cluster: The simulated world.
        machine: Where the coroutine runs.
        coroutine: The coroutine.
        describe: Says how the cluster is, in lines, for a failure.
        is_quiet: Whether members and clients log nothing.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine: Machine,
        coroutine: Coroutine[Any, Any, T],
        describe: Callable[[], list[str]],
        *,
        is_quiet: bool,
    ) -> None:
        self._cluster, self._coroutine, self._describe, self._is_quiet = cluster, coroutine, describe, is_quiet
        self._watched = Watched(coroutine, self._on_step)
        self._progress_ns = self._allowed_until_ns = self._step_ns = cluster.now_ns
        self._end_ns = cluster.now_ns + int(RUN_LIMIT_S * _NS)
        self._step_count = 0
        machine.run_beside(self._watched.run, context=copy_context())

    def __repr__(self) -> str:
        return f"<Drive {self._coroutine!r} done={self._watched.is_done}>"

    def allow(self, seconds: float) -> None:
        """Let so much virtual time pass from now on without progress."""
        duration_ns = int(seconds * _NS)
        self._allowed_until_ns = self._cluster.now_ns + duration_ns
        self._end_ns += duration_ns

    def note_progress(self) -> None:
        """Count the silence from now on."""
        self._progress_ns = self._cluster.now_ns

    def step(self, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Let the world go on until the coroutine is over, or until `is_enough`; return whether it is over.

        Raises:
            StillWaitingError: it waits for something that does not happen.
        """
        self._run_until(lambda: self._is_over() or is_enough(), _FOREVER_NS)
        if self._watched.is_done:
            return True
        if not self._is_over():
            return False
        failure = StillWaitingError(self._describe_hang())
        self.cancel()
        raise failure

    def result(self) -> T:
        """Return what the coroutine has returned, or raise what it has raised."""
        __tracebackhide__ = True  # pytest shows where the test failed, not who drives it
        return self._watched.result()

    def cancel(self) -> None:
        """Cancel the coroutine, and give it a virtual second to end."""
        self._watched.cancel()
        self._run_until(lambda: self._watched.is_done, _NS)

    def _run_until(self, is_done: Callable[[], bool], limit_ns: int) -> None:
        with _loop_set_aside(), quiet_log(is_quiet=self._is_quiet):
            self._cluster.run_until(is_done, limit_ns=limit_ns)

    def _is_over(self) -> bool:
        now_ns = self._cluster.now_ns
        silent_until_ns = max(self._progress_ns, self._allowed_until_ns) + int(SILENCE_LIMIT_S * _NS)
        return self._watched.is_done or now_ns > silent_until_ns or now_ns > self._end_ns

    def _on_step(self, is_progress: bool) -> None:
        now_ns = self._cluster.now_ns
        self._step_count = self._step_count + 1 if now_ns == self._step_ns else 0
        if self._step_count > _STEP_LIMIT:
            lines = [
                f"the test goes round in a loop that lets no virtual time pass: steps={_STEP_LIMIT}",
                *self._describe(),
                "  (between two looks: await cluster.advance(0.01); for a leader: await cluster.wait_for_leader())",
            ]
            raise StillWaitingError("\n".join(lines))
        self._step_ns = now_ns
        if is_progress:
            self._progress_ns = now_ns

    def _describe_hang(self) -> str:
        if self._cluster.now_ns > self._end_ns:
            what = f"the test does not come to an end: it has run for {RUN_LIMIT_S:.0f} virtual seconds"
        else:
            silent_s = (self._cluster.now_ns - max(self._progress_ns, self._allowed_until_ns)) / _NS
            what = f"the test waits for something that does not happen: {silent_s:.0f} virtual seconds have passed"
        return "\n".join(
            [
                what,
                *describe_wait(self._coroutine),
                *self._describe(),
                "  (to let more time pass on purpose: await cluster.advance(seconds))",
            ]
        )


@contextlib.contextmanager
def _loop_set_aside() -> Iterator[None]:
    """Leave the event loop that runs in this thread, and its task, and enter them again."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    task, hooks = asyncio.current_task(loop), sys.get_asyncgen_hooks()
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*hooks)
        asyncio._set_running_loop(loop)
        if task is not None:
            asyncio.tasks._enter_task(loop, task)
