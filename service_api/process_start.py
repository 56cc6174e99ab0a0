"""The first steps of a process, before it opens or imports anything: streams that are missing, and early signals.

A process may be started with one of descriptors 0 to 2 closed, as by `<&-`. The next file or socket that it opens takes
the free number. What is written to standard output then goes into it, and libuv aborts the process at its end, because
it expects a stream there.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Attribute of `sys` and mode, by descriptor."""
_FIRST_PROCESS: Final = 1
_KILLED_BY: Final = 128
"""A shell gives a process that a signal ended this exit status, and the signal's number."""


def open_missing_streams() -> None:
    """Open the null device for each of descriptors 0 to 2 that is closed; call it before anything else is opened."""
    for descriptor, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(opened, True)  # children have standard streams, too
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def end_first_process_on_signals() -> None:
    """Have SIGTERM and SIGHUP end a process without handlers of its own, also the first process of a container.

    The kernel ignores signals of such a process that have no handler: what it was asked while it imported modules or
    opened its files was lost, and the container was killed after its time-out.
    """
    if os.getpid() == _FIRST_PROCESS:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name)
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_KILLED_BY + number)
