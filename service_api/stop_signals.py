"""The signals that ask a process to stop.

SIGTERM comes from supervisors, SIGINT from Ctrl-C, SIGHUP from a terminal that closes. A leader hands over at each.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return those that this system has: Windows has no SIGHUP."""
    return (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


def on_stop_signal(callback: Callable[..., object], *args: Any) -> None:
    """Have the running loop call `callback(*args)` at each signal that asks this process to stop.

    SIGHUP stays ignored if it was: `nohup` starts a process so that it outlives its terminal.
    """
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        if number in (signal.SIGTERM, signal.SIGINT) or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, callback, *args)
