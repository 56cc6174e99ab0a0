"""The time that a call may take: one limit for everything that it does, from the call on."""

from __future__ import annotations

import asyncio
import math


def begin_limit(limit_s: float) -> asyncio.Timeout:
    """Begin a limit of seconds, `math.inf` at the most; enter what this returns."""
    return asyncio.timeout(None if limit_s == math.inf else limit_s)


def seconds_left(limit: asyncio.Timeout) -> float:
    """Return the seconds that are left of a limit, 0 at the least; `math.inf` of one without end."""
    ends_s = limit.when()
    return math.inf if ends_s is None else max(0.0, ends_s - asyncio.get_running_loop().time())
