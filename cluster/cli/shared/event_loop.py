"""The event loop of commands: uvloop where it exists, asyncio's own elsewhere.

uvloop has no release for Windows, and a new Python may come before one. Everything works on asyncio's own loop, with
fewer messages in a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_command_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop, close the loop, and return the result."""
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        return runner.run(work)


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the function that makes loops of uvloop; None if it is not installed, which stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
