"""Runs something until the process is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from ....service_api import ClusterError
from ....service_api.stop_signals import on_stop_signal


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until a signal asks this process to stop, which cancels it.

    Raises:
        ClusterError: the own disk refused.
    """
    running = asyncio.current_task()
    assert running is not None
    on_stop_signal(running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):  # nobody but the handlers cancels this task
            await work
    except OSError as error:
        raise ClusterError(f"the disk refused: {error}") from error
