"""An asyncio event loop of one simulated process: virtual time, and no sockets or threads.

Each process has a loop of its own over the one `Scheduler`, so that it can be paused, be slow and die alone: a dead
loop runs nothing more, not even `finally` blocks, as a process that is killed.
"""

from __future__ import annotations

import contextvars
import math
import warnings
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar, TypeVarTuple

from .scheduler import Scheduler

_CLOSE_LIMIT: Final = 20

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class SimulatedTask(Task[_T]):
    """A task whose hash is its number, so that a set of tasks has one order in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class LocalClock:
    """The clock of one machine: runs at its own rate, and says another time of day. Times in nanoseconds."""

    def __init__(self, scheduler: Scheduler, *, drift_ppm: int, epoch_offset_ns: int) -> None:
        self._scheduler = scheduler
        self._base_ns = scheduler.now_ns
        self._local_base_ns = 1_000_000_000_000
        self._drift_ppm = drift_ppm
        self.epoch_offset_ns = epoch_offset_ns
        self.ahead_ns = 0
        """How far a callback that blocks its process has gone beyond the instant it began at."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of this machine's monotonic clock."""
        passed_ns = self._scheduler.now_ns + self.ahead_ns - self._base_ns
        return self._local_base_ns + passed_ns + passed_ns * self._drift_ppm // 1_000_000

    def epoch_time(self) -> int:
        """Milliseconds since the Unix epoch, as this machine believes."""
        return (1_700_000_000_000_000_000 + self.monotonic_ns() + self.epoch_offset_ns) // 1_000_000

    def global_ns(self, local_ns: int) -> int:
        """Virtual time at which the monotonic clock shows `local_ns`."""
        passed_ns = local_ns - self._local_base_ns
        return self._base_ns + passed_ns * 1_000_000 // (1_000_000 + self._drift_ppm) + (1 if self._drift_ppm else 0)


class SimulatedLoop(AbstractEventLoop):
    """The event loop of one process."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        address: str,
        clock: LocalClock,
        job_latency_ns: Callable[[], int],
        on_error: Callable[[dict[str, Any]], None],
    ) -> None:
        self.address = address
        self.clock = clock
        self.scheduler = scheduler
        self.is_dead = False
        self.is_paused = False
        self.is_held = False
        """Whether nothing may run here just now: dead, paused, or busy with a blocking call."""
        self.observer: Callable[[], None] | None = None
        """Called after everything that ran here: where invariants are looked at."""
        self._job_latency_ns = job_latency_ns
        self._on_error = on_error
        self._backlog: deque[Handle] = deque()
        self._busy_until_ns = 0
        self._job_wait_ns = 0
        self._task_count = 0
        self._tasks: dict[Task[Any], None] = {}

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "paused" if self.is_paused else "running"
        return f"<SimulatedLoop {self.address} {state}>"

    # --- the process

    def kill(self) -> None:
        """Run nothing more, ever."""
        self.is_dead = self.is_held = True
        self._backlog.clear()

    def pause(self) -> None:
        """Stand still, as after SIGSTOP, until `resume`."""
        self.is_paused = self.is_held = True

    def resume(self) -> None:
        """Go on with what has waited."""
        self.is_paused = False
        self._release()

    def block(self, duration_ns: int) -> None:
        """Let a callback take time: the process does nothing else until then, and its clock goes on."""
        self.clock.ahead_ns += duration_ns

    def settle_block(self) -> None:
        """Stand still for as long as the callback that just ended has blocked."""
        self._busy_until_ns = self.scheduler.now_ns + self.clock.ahead_ns
        self.clock.ahead_ns = 0
        self.is_held = True
        # The environment wakes it: a handle of its own would be held.
        self.scheduler.call_at(self._busy_until_ns, self._release)

    def hold(self, handle: Handle) -> None:
        """Keep a handle until this loop may run again; a dead one drops it."""
        if not self.is_dead:
            self._backlog.append(handle)

    def _release(self) -> None:
        if self.is_dead or self.is_paused or self.scheduler.now_ns < self._busy_until_ns:
            return
        self.is_held = False
        # Before what has become ready since: bytes that came later must not overtake those that have waited.
        self.scheduler.first(self._backlog)
        self._backlog.clear()

    def bury(self) -> None:
        """Close what a dead process left behind; nothing in it can do anything any more.

        A coroutine that awaits in a `finally` block goes on to that await when it is closed, so it takes a few times.
        """
        with warnings.catch_warnings():
            # A coroutine that was made and had not begun when its process died is not one that somebody forgot.
            warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
            for task in [*self._tasks]:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be pending
                coroutine = task.get_coro()
                for _ in range(_CLOSE_LIMIT):
                    try:
                        coroutine.close()
                        break
                    except BaseException:
                        continue  # whatever it says, it is dead
        self._tasks.clear()

    # --- asyncio

    def time(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return self.clock.monotonic_ns() / 1e9

    def get_debug(self) -> bool:
        """Debug mode is off."""
        return False

    def is_running(self) -> bool:
        """A simulated loop runs as long as its process."""
        return not self.is_dead

    def is_closed(self) -> bool:
        """Whether its process is dead."""
        return self.is_dead

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Handle:
        """Run a callback after what is ready now."""
        handle = Handle(callback, args, self, context)
        self.scheduler.soon(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        """Run a callback after `delay` seconds of this machine's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        """Run a callback when this machine's clock shows `when` seconds."""
        handle = TimerHandle(when, callback, args, self, context)
        local_ns = math.ceil(when * 1e9)
        if local_ns / 1e9 < when:
            local_ns += 1  # the product was rounded down: a loop that waits for `when` would wait without end
        self.scheduler.at(self.clock.global_ns(local_ns), handle)
        return handle

    def create_future(self) -> Future[Any]:
        """Make a future of this loop."""
        return Future(loop=self)

    def create_task(
        self,
        coro: Any,  # a generator or a coroutine, as for every loop
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **kwargs: Any,
    ) -> Task[Any]:
        """Start a task."""
        task: SimulatedTask[Any] = SimulatedTask.__new__(SimulatedTask)
        self._task_count += 1
        task.number = self._task_count
        task.__init__(coro, loop=self, name=name or f"task-{task.number}", context=context)  # type: ignore[misc]
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_in_executor(self, executor: Any, func: Callable[[*_Ts], _T], *args: *_Ts) -> Future[_T]:
        """Run a blocking job: it is done, in one piece, when the disk has had its time."""
        future: Future[_T] = self.create_future()
        self.call_job(lambda: func(*args), lambda result, error: _resolve(future, result, error))
        return future

    def call_job(
        self, job: Callable[[], _T], done: Callable[[_T | None, BaseException | None], None], *, delay_ns: int = 0
    ) -> int:
        """Run a job after `delay_ns` and the disk's latency, then say how it ended; give when that will be."""
        end_ns = self.scheduler.now_ns + self.clock.ahead_ns + delay_ns + self._job_latency_ns()
        self.scheduler.at(end_ns, Handle(self._run_job, (job, done), self))
        return end_ns

    def wait_in_job(self, duration_ns: int) -> None:
        """Let the job that runs take so much longer: nobody hears of its end before."""
        self._job_wait_ns += duration_ns

    def _run_job(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        ahead_ns = self.clock.ahead_ns
        try:
            result, error = job(), None
        except Exception as failure:  # handed to the job's caller
            result, error = None, failure
        self.clock.ahead_ns = ahead_ns  # a thread waited for the disk, not the loop
        wait_ns, self._job_wait_ns = self._job_wait_ns, 0
        # In a pass of its own: a process may die between the end of a sync and its hearing of it.
        if wait_ns:
            self.scheduler.at(self.scheduler.now_ns + wait_ns, Handle(done, (result, error), self))
        else:
            self.call_soon(done, result, error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what nobody caught; the last words of a dead process count for nothing."""
        if not self.is_dead:
            self._on_error(context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Leave it in the queue, where it is skipped."""


def _resolve(future: Future[_T], result: _T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # a job that did not fail has a result
