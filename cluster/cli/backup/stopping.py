"""Runs something until the process is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from ....service_api import ClusterError


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until SIGTERM or SIGINT, which cancels it.

    Raises:
        ClusterError: the own disk refused.
    """
    running = asyncio.current_task()
    assert running is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):  # nobody but the handlers cancels this task
            await work
    except OSError as error:
        raise ClusterError(f"the disk refused: {error}") from error
