"""The signals that ask a process to stop, and a process that is the first one of its container.

SIGTERM comes from supervisors, SIGINT from Ctrl-C, SIGHUP from a terminal that closes. A leader hands over at each.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_FIRST_PROCESS: Final = 1
_KILLED_BY: Final = 128
"""A shell gives a process that a signal ended this exit status, and the signal's number."""


def on_stop_signal(callback: Callable[..., object], *args: Any) -> None:
    """Have the running loop call `callback(*args)` at each signal that asks this process to stop.

    SIGHUP stays ignored if it was: `nohup` starts a process so that it outlives its terminal.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, callback, *args)


def end_first_process_on_signals() -> None:
    """Have SIGTERM and SIGHUP end a process without handlers of its own, also the first process of a container.

    The kernel ignores signals of such a process that have no handler: what it was asked while it imported modules or
    opened its files was lost, and the container was killed after its time-out.
    """
    if os.getpid() == _FIRST_PROCESS:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_KILLED_BY + number)
