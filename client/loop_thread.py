"""An event loop in a thread of its own, and calls to it from other threads.

    caller's thread                           loop's thread
    ---------------                           -------------
    call(function)  ── call_soon_threadsafe ─► a task of the thread's task group
         waits      ◄── concurrent Future ──── its result, or error

Calls are admitted under a lock until the end begins, and what was admitted is queued before the end; so the group waits
for it, and every call that was admitted gets an answer. There is one task for each waiting caller: callers bound them.

The thread is a daemon, and does not know who uses it: a user that nobody holds any more can be collected, and ends the
thread then. So does the interpreter's exit, which waits for `end` but not for ever.

A caller may be interrupted between any two steps, as by Ctrl-C. So a user makes this first, sees to it that `end`
will be called, and starts the thread last; and `end` does all of its work again where it was interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ..service_api.errors import LocalProtocolError, SessionClosedError
from .protocol.protocol import CLOSED_BY_CLIENT

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines for other threads, from `start` until `end`."""

    def __init__(self, *, on_end: Callable[[], Coroutine[Any, Any, None]], end_timeout_s: float) -> None:
        """Make the thread. `on_end` is awaited on the loop at the end: it makes every call return."""
        self._on_end = on_end
        self._join_timeout_s = min(end_timeout_s, threading.TIMEOUT_MAX)
        self._process_id = os.getpid()
        # Reentrant, for a collection of garbage may call `end` anywhere.
        self._lock = threading.RLock()
        self._is_ending = False
        """Whether calls are refused; guarded by the lock."""
        self._calls: dict[_Call[Any], None] = {}
        """Those that wait; guarded by the lock."""
        self._loop: asyncio.AbstractEventLoop
        self._tasks: asyncio.TaskGroup
        self._end: asyncio.Event | None = None
        """Set once the loop is to end; None before it runs."""
        self._is_ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="trimaran-client", daemon=True)

    def __repr__(self) -> str:
        return f"<LoopThread {'ending' if self._is_ending else 'running'} calls={len(self._calls)}>"

    # In the threads of callers

    def start(self) -> None:
        """Start the thread, and wait until its loop runs."""
        self._thread.start()
        self._is_ready.result()

    @property
    def is_ending(self) -> bool:
        """Whether calls are refused."""
        return self._is_ending

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return os.getpid() != self._process_id

    def check_caller(self) -> None:
        """Refuse those who could only wait in vain.

        Raises:
            LocalProtocolError: this is a fork of the process that has the thread, or the thread itself.
        """
        if self.is_forked:
            raise LocalProtocolError(
                f"this client belongs to process_id={self._process_id}, of which this process is a fork: connect again"
            )
        if threading.current_thread() is self._thread:
            raise LocalProtocolError("called on this client's own event loop, where it would wait for itself")

    def call(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the loop, and wait for it. A wait that is interrupted cancels the coroutine.

        Raises:
            LocalProtocolError: see `check_caller`.
            SessionClosedError: the end has begun.
            Exception: whatever the coroutine raised.
        """
        self.check_caller()
        call = _Call(function)
        try:
            with self._lock:
                if self._is_ending:
                    raise SessionClosedError(CLOSED_BY_CLIENT)
                self._calls[call] = None
                self._loop.call_soon_threadsafe(call.begin, self._tasks)
            return call.future.result()
        finally:
            with self._lock:
                self._calls.pop(call, None)
                if not call.future.done():
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nothing of the call is left
                        self._loop.call_soon_threadsafe(call.cancel)

    def end(self) -> None:
        """End the thread, and wait for it, but not too long. Further calls only wait.

        In a fork it does nothing: the thread is the parent's.
        """
        if self.is_forked:
            return
        with self._lock:
            self._is_ending = True
            if self._end is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                    self._loop.call_soon_threadsafe(self._end.set)
        if threading.current_thread() is not self._thread:
            with contextlib.suppress(RuntimeError):  # it was never started
                self._thread.join(self._join_timeout_s)

    # In the loop's thread

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._main())
        except BaseException as error:
            if self._is_ready.done():
                raise
            self._is_ready.set_exception(error)
        finally:
            with self._lock:
                self._is_ending = True
                for call in self._calls:
                    call.fail(SessionClosedError(CLOSED_BY_CLIENT))

    async def _main(self) -> None:
        end = asyncio.Event()
        async with asyncio.TaskGroup() as self._tasks:
            with self._lock:
                self._loop, self._end = asyncio.get_running_loop(), end
                if self._is_ending:
                    end.set()
            self._is_ready.set_result(None)
            await end.wait()
            await self._on_end()


class _Call(Generic[_T]):
    """A coroutine that a thread waits for."""

    __slots__ = ("_function", "_task", "future")

    def __init__(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self.future: Future[_T] = Future()
        self._function = function
        self._task: asyncio.Task[None] | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start the task."""
        self._task = tasks.create_task(self._perform())

    def cancel(self) -> None:
        """Cancel the call: its caller no longer waits."""
        if self._task is not None:
            self._task.cancel()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there was an answer."""
        if not self.future.done():
            self.future.set_exception(error)

    async def _perform(self) -> None:
        try:
            self.future.set_result(await self._function())
        except Exception as error:
            self.fail(error)
