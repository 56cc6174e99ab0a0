"""Ends the process of a member whose event loop does not turn any more, so that a supervisor can start it again.

The problem: a member that stands still keeps its ports, answers nothing and does not hear SIGTERM. Python itself does
that where memory runs out: `Thread.start` waits without end for a thread that died before it could say that it runs.

The idea: a thread that is made at the start counts ticks. The loop makes its pulse move several times in a limit; at
the tenth tick in a row without a pulse the thread ends the process (`process_end`). It counts ticks and no time, so a
stop of the whole process (SIGSTOP, a suspended machine) costs one tick, however long it takes. While the member
closes, a pulse counts for nothing: a loop that turns and waits for what never comes is a hang, too.

Not a hang, since it ends by itself or is not ours to judge:

    a callback of the service    a function of `USERS_CODE` is on the loop's stack, as in `on_start`
    a disk that does not answer  a function of `archive/disk` is on the stack, or the kernel says that the thread waits
                                 for a disk ("D"); of any thread while the member closes

Invariant: the thread takes no lock, allocates next to nothing, and ends the process where even that fails. The loop
looks after the thread in turn: at a pulse it sees whether there were ticks.

Rejected: `faulthandler.dump_traceback_later` counts time, so it kills a process that was stopped when it goes on, and
every rearming starts a thread, which needs the memory that is missing.
"""

from __future__ import annotations

import _thread
import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from ....archive.disk import file_system
from .process_end import end_process

_TICK_COUNT: Final = 10
"""Ticks in a limit."""

_PULSES_PER_TICK: Final = 2
_SILENT_PULSE_LIMIT: Final = 4 * _TICK_COUNT * _PULSES_PER_TICK
"""Pulses without a tick from which on the thread counts as dead."""

_DISK_CODE: Final = str(Path(file_system.__file__).parent) + os.sep
_STAT_BYTES: Final = 512
_DISK_SLEEP: Final = b"D"
_TASKS: Final = "/proc/self/task"


class Watchdog:
    """Watches one event loop from a thread; `limit_s` is how long it may stand still, 0 without end."""

    def __init__(
        self,
        limit_s: float,
        *,
        last_words: bytes,
        excused_code: Container[CodeType] = (),
        end: Callable[[bytes], object] = end_process,
    ) -> None:
        self.limit_s: Final = limit_s
        self._tick_s = limit_s / _TICK_COUNT
        self._last_words = last_words
        self._excused_code = excused_code
        self._end = end
        self._loop_thread_id = threading.get_ident()
        self._loop_task_path = f"{_TASKS}/{threading.get_native_id()}/stat"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse_count = self._counted_pulse = 0
        self._tick_count = self._seen_tick = 0
        self._silent_pulse_count = 0
        self._still_tick_count = 0
        """Ticks in a row in which nothing moved that should have."""
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<Watchdog limit_s={self.limit_s:g} still={self._still_tick_count} closing={self._is_closing}>"

    def start(self) -> None:
        """Watch the running loop, which the calling thread runs, until the process ends."""
        if not self.limit_s:
            return
        self._loop = asyncio.get_running_loop()
        self._pulse()
        # `Thread.start` would wait for the thread, without end if there is no memory for it.
        _thread.start_new_thread(self._run, ())

    def expect_turns(self) -> None:
        """The member works from now on: its loop has to turn."""
        self._is_closing = False

    def expect_end(self) -> None:
        """The member closes from now on: this process has to end, or to say `expect_turns`."""
        self._is_closing = True

    # --- the loop

    def _pulse(self) -> None:
        """Show that the loop turns, and see that the thread does."""
        assert self._loop is not None
        self._pulse_count += 1
        if self._tick_count != self._seen_tick:
            self._seen_tick, self._silent_pulse_count = self._tick_count, 0
        self._silent_pulse_count += 1
        if self._silent_pulse_count > _SILENT_PULSE_LIMIT:
            self._end(self._last_words)
        self._loop.call_later(self._tick_s / _PULSES_PER_TICK, self._pulse)

    # --- the thread

    def _run(self) -> None:
        never = _thread.allocate_lock()
        never.acquire()
        while True:
            try:
                never.acquire(timeout=self._tick_s)
                self.tick()
            except BaseException:  # no memory even for this
                self._end(self._last_words)

    def tick(self) -> None:
        """Look whether the loop has turned; end the process at the last tick of a limit without."""
        self._tick_count += 1
        if self._has_moved() or self._is_excused():
            self._still_tick_count = 0
            return
        self._still_tick_count += 1
        if self._still_tick_count >= _TICK_COUNT:
            self._end(self._last_words)

    def _has_moved(self) -> bool:
        before, self._counted_pulse = self._counted_pulse, self._pulse_count
        return before != self._pulse_count and not self._is_closing

    def _is_excused(self) -> bool:
        """Return whether what stands still waits for a disk, or for code of users."""
        frames = sys._current_frames()
        if self._is_closing and _is_any_in_disk_call(frames):
            return True
        frame: FrameType | None = frames[self._loop_thread_id]
        while frame is not None:
            if frame.f_code in self._excused_code or _is_of_disk(frame.f_code):
                return True
            frame = frame.f_back
        return is_waiting_for_disk(self._loop_task_path)


def last_words_of(event: str, reason: str, *, member_id: int) -> bytes:
    """Make the log line of a process that will have no memory to make one."""
    return json.dumps({"event": event, "reason": reason, "member_id": member_id, "level": "critical"}).encode() + b"\n"


def is_waiting_for_disk(stat_path: str) -> bool:
    """Return whether the kernel says of a thread that it waits for a disk. False where there is no such file."""
    try:
        handle = os.open(stat_path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.read(handle, _STAT_BYTES).rpartition(b")")[2].lstrip()[:1] == _DISK_SLEEP
    finally:
        os.close(handle)


def _is_any_in_disk_call(frames: Mapping[int, FrameType]) -> bool:
    """Return whether a thread of this process is in a call of the disk, so that an end in order has to wait for it."""
    for each in frames.values():
        frame: FrameType | None = each
        while frame is not None:
            if _is_of_disk(frame.f_code):
                return True
            frame = frame.f_back
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return False
    return any(is_waiting_for_disk(f"{_TASKS}/{task}/stat") for task in tasks)


def _is_of_disk(code: CodeType) -> bool:
    return code.co_filename.startswith(_DISK_CODE)
