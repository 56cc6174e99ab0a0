"""Writes the log lines of a process to a descriptor, and never lets a line decide the life of the process.

A line can fail: the reader of a pipe is gone, the disk of a log file is full, the descriptor is closed. A line can also
wait for ever, when nobody reads a pipe or a terminal is stopped. Each would end a member, or its loop would stand
still, for a reason that has nothing to do with its data. All members of a machine share that reason.

So a line that cannot be written is counted and left out. The first one is logged as `log.write_failed`, which reaches
the error log of a member even though this line is lost, too. The first line that succeeds again is followed by
`log.lines_lost` with their number.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from .printable import without_addresses

STANDARD_ERROR: Final = 2
"""The descriptor itself, which stays where it is while `sys.stderr` may be replaced."""

_WAIT_MS: Final = 50.0
"""How long a line waits for a reader, once; later lines do not wait until one succeeds again."""
_PIECE_BYTES: Final[int] = getattr(select, "PIPE_BUF", 512)
"""A descriptor that is ready takes so much without waiting."""
_LOCK_TIMEOUT_S: Final = 1.0
"""A thread that holds the lock for longer stands still; the line of the thread that says so is written anyway."""


class LogLineWriter:
    """A logger that structlog calls with finished lines, from any thread.

    Lines that were lost since one succeeded are counted in `lost_count`.
    """

    def __init__(self, descriptor: int, report: Callable[..., object]) -> None:
        """Write to `descriptor`; `report` logs an event with its fields by name, and may call this writer again."""
        self._descriptor = descriptor
        self._report = report
        self._lock = threading.Lock()
        self._is_line_open = False
        """A line was written in part; the next one begins a line of its own."""
        self.lost_count = 0

    def __repr__(self) -> str:
        return f"<LogLineWriter descriptor={self._descriptor} lost_count={self.lost_count}>"

    def __call__(self, *args: object) -> LogLineWriter:
        """Be the factory that structlog asks for a logger."""
        return self

    def msg(self, line: str) -> None:
        """Write a line, without addresses of objects. It raises nothing, and takes at most 50 ms when nobody reads."""
        is_locked = self._lock.acquire(timeout=_LOCK_TIMEOUT_S)
        try:
            lost_before = self.lost_count
            reason = self._write(
                f"{without_addresses(line)}\n".encode("utf-8", "backslashreplace"), 0.0 if lost_before else _WAIT_MS
            )
            self.lost_count = 0 if reason is None else lost_before + 1
        finally:
            if is_locked:
                self._lock.release()
        if reason is None and lost_before:
            self._report("log.lines_lost", line_count=lost_before)
        elif reason is not None and not lost_before:
            self._report("log.write_failed", error=reason)

    debug = info = warning = error = critical = exception = msg

    def _poller(self) -> Any:  # `select.poll` is a function: its objects have no public class
        """Return what tells whether a line would wait; None on Windows, where a line waits for its reader."""
        if sys.platform == "win32" or not hasattr(select, "poll"):
            return None
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        return ready

    def _write(self, data: bytes, wait_ms: float) -> str | None:
        """Write all of it, or return why not."""
        try:
            if self._is_line_open:
                data = b"\n" + data
            ready = self._poller()
            while data:
                if ready is not None and not ready.poll(wait_ms):
                    return "nobody reads what is written to it"
                written = os.write(self._descriptor, data[:_PIECE_BYTES])
                data = data[written:]
                self._is_line_open = bool(data)
        except OSError as error:
            return str(error)
        return None
