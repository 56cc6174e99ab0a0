"""Waiting for conditions, with a deadline and never for luck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

POLL_INTERVAL_S: float = 0.02

T = TypeVar("T")


async def wait_for(find: Callable[[], T | None], *, timeout_s: float, what: str | Callable[[], str]) -> T:
    """Wait until `find` gives something.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = find()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what if isinstance(what, str) else what()}")
        await asyncio.sleep(POLL_INTERVAL_S)


async def wait_until(holds: Callable[[], bool], *, timeout_s: float, what: str | Callable[[], str]) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: the deadline passed; says what was waited for.
    """
    await wait_for(lambda: True if holds() else None, timeout_s=timeout_s, what=what)
