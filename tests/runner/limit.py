"""The limit of one test: it ends that test, shows every stack, and the run goes on.

A thread counts a `Deadline` for each phase of a test (set-up, call, tear-down), which lasts longer on a slow machine.
Once it has passed, the thread interrupts the main thread by a signal, and again until the phase has ended, since a task
may swallow what the signal raises. A phase that cannot be interrupted costs its process: xdist starts another worker,
and the scheduler gives it the rest of the file.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import pytest

from tests.waiting import LONGEST_LOOK_S, Deadline

TEST_LIMIT_S: Final = 300.0
"""Limit for each phase of a test, in seconds of a quiet machine."""

INTERRUPT_LIMIT: Final = 10
INTERRUPT_INTERVAL_S: Final = 0.5
SILENCE_LIMIT_S: Final = 300.0
"""Time without a turn of the counting thread after which the process ends: something holds Python's global lock."""


@dataclass
class _Phase:
    name: str
    deadline: Deadline
    interrupt_count: int = 0
    has_ended: threading.Event = field(default_factory=threading.Event)


class TestLimit:
    """Plugin that limits the time of each phase of the tests of this process."""

    __test__ = False

    def __init__(self, limit_s: float = TEST_LIMIT_S) -> None:
        """Start the thread; in the main thread, while output is not captured."""
        self._limit_s = limit_s
        self._phase: _Phase | None = None
        self._has_begun = threading.Event()
        self._errors = os.dup(2)
        signal.signal(signal.SIGALRM, self._on_alarm)
        threading.Thread(target=self._watch, name="test limit", daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Limit the set-up of fixtures."""
        with self._limited(f"set-up of {item.nodeid}"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Limit the test itself."""
        with self._limited(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Limit the end of fixtures."""
        with self._limited(f"tear-down of {item.nodeid}"):
            return (yield)

    @contextmanager
    def _limited(self, name: str) -> Iterator[None]:
        self._phase = phase = _Phase(name, Deadline(self._limit_s))
        self._has_begun.set()
        try:
            yield
        finally:
            self._phase = None
            phase.has_ended.set()

    def _watch(self) -> None:
        tick_s = min(LONGEST_LOOK_S, self._limit_s / 5)
        while True:
            self._has_begun.wait()
            self._has_begun.clear()
            while (phase := self._phase) is not None:
                if phase.has_ended.wait(tick_s):
                    faulthandler.cancel_dump_traceback_later()
                elif phase.deadline.has_passed():
                    self._interrupt(phase)
                else:
                    faulthandler.dump_traceback_later(SILENCE_LIMIT_S, exit=True, file=self._errors)
            faulthandler.cancel_dump_traceback_later()  # a phase may end while it is armed

    def _interrupt(self, phase: _Phase) -> None:
        """Have the main thread leave a phase, or end this process."""
        while phase.interrupt_count < INTERRUPT_LIMIT:
            phase.interrupt_count += 1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            if phase.has_ended.wait(INTERRUPT_INTERVAL_S):
                return
        os.write(self._errors, f"\n{phase.name}: cannot be interrupted; this process ends\n{stacks()}\n".encode())
        os._exit(1)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        phase = self._phase
        if phase is not None and phase.interrupt_count > 0:
            pytest.fail(f"{phase.name} took over {self._limit_s:g} s of a quiet machine\n{stacks()}", pytrace=False)


def stacks() -> str:
    """Return the stacks of all threads of this process, and of the tasks of the loop that runs in this thread."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        threads = file.read().decode(errors="replace")
    loop = asyncio._get_running_loop()
    tasks = [] if loop is None else sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "\n".join([threads, *(_stack_of(task) for task in tasks)])


def _stack_of(task: asyncio.Task[Any]) -> str:
    """Return where a task waits, the outermost coroutine first."""
    lines = [f"{task.get_name()}:"]
    awaited: Any = task.get_coro()  # Any: a coroutine, a generator, or something that is awaited
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_qualname}')
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "\n".join(lines)
