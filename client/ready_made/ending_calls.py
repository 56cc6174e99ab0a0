"""Commands that end something, such as a claim, a watch or a wait: they go on when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

GIVE_UP_S: Final = 1.0
"""How long a caller that is cancelled waits for what it ends."""


class EndingCalls:
    """The commands of one client that end something. Bound: one for each thing that was begun."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()  # Any: whichever reply

    def __repr__(self) -> str:
        return f"<EndingCalls count={len(self._tasks)}>"

    def begin(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a call to its end: once there is a leader, or the session ends."""
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait_briefly(self, call: Coroutine[Any, Any, object]) -> None:
        """Run a call to its end, and wait for it `GIVE_UP_S` at most."""
        await asyncio.wait({self.begin(call)}, timeout=GIVE_UP_S)

    def _on_done(self, task: asyncio.Task[Any]) -> None:  # Any: as above
        self._tasks.discard(task)
        # Where nobody waits any more, an error says that the session has ended, and with it what was to end.
        if not task.cancelled():
            task.exception()
