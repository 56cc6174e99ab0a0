"""The end of a process that cannot end in order: one line, the stacks of its threads, an exit status.

A member without memory cannot be trusted to run its own clean-up: a thread that fails to start leaves its starter
waiting, a job whose thread died is never done. Other members go on without a member that is gone, and a supervisor
starts it again; neither can do anything about one that stands still. So a lack of memory, wherever it shows, ends the
process, and what ends it needs next to no memory itself.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

_STDERR: Final = 2
_EXIT_STATUS: Final = 1
"""The exit status of a command which failed, as `EXIT_FAILED` of all commands."""


def end_process(last_words: bytes) -> NoReturn:
    """Write a line and the stacks of all threads to standard error, and end this process at once."""
    try:
        was_blocking = os.get_blocking(_STDERR)
        os.set_blocking(_STDERR, False)  # standard error may be a pipe that nobody reads
        os.write(_STDERR, last_words)
        faulthandler.dump_traceback(_STDERR, all_threads=True)
        os.set_blocking(_STDERR, was_blocking)  # a terminal is shared with the shell
    finally:
        os._exit(_EXIT_STATUS)


def end_on_lost_memory(last_words: bytes, *, end: Callable[[bytes], object] = end_process) -> None:
    """End the process where Python only prints that memory ran out: in threads, finalizers and workers of executors.

    These are the places where an exception has no caller: what it interrupted is never finished, and nobody is told.
    """
    report_unraisable, report_thread = sys.unraisablehook, threading.excepthook

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, MemoryError):
            end(last_words)
        report_unraisable(unraisable)

    def on_thread_failed(failed: threading.ExceptHookArgs) -> None:
        if issubclass(failed.exc_type, MemoryError):
            end(last_words)
        report_thread(failed)

    sys.unraisablehook, threading.excepthook = on_unraisable, on_thread_failed
    executors = logging.getLogger("concurrent.futures")
    executors.__class__ = _NeverDisabled
    executors.addHandler(_ExecutorFailures(lambda: end(last_words)))


class _NeverDisabled(logging.Logger):
    """A logger that stays on: a service that configures logging disables, by default, every logger it does not name."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Return whether an error is told, also where `logging.disable` holds."""
        return level >= logging.ERROR

    @property
    def disabled(self) -> bool:
        """Return False."""
        return False

    @disabled.setter
    def disabled(self, _: bool) -> None:
        """Stay as it is."""


class _ExecutorFailures(logging.Handler):
    """Hears of a worker that died, or of a result that reached nobody: executors log these, and go on."""

    def __init__(self, end: Callable[[], object]) -> None:
        super().__init__(logging.ERROR)
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        """End the process if memory ran out; print the record otherwise, as without this handler."""
        if record.exc_info and isinstance(record.exc_info[1], MemoryError):
            self._end()
        assert logging.lastResort is not None
        logging.lastResort.handle(record)
