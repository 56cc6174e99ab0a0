"""A task group that ends by cancelling its tasks: it owns what a node runs beside its turns.

A bare `asyncio.TaskGroup` waits for its children when its body is done. The children here go on for ever (dialling,
replays, the mark file), so leaving the scope cancels them first and then waits. A child that fails ends the scope, as
in a task group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class ActivityScope:
    """Owns tasks; leaving it cancels and joins them."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self.is_open = True
        """Whether it takes tasks: until it is left."""
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order of their start: cancelling has one order

    def __repr__(self) -> str:
        return f"<ActivityScope {sorted(task.get_name() for task in self._tasks)}>"

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_open = False
        for task in [*self._tasks]:
            task.cancel()
        try:
            await self._group.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            # One failure is the rule, and the caller wants to see it, not the wrapping.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise

    def create_task(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Start a task that ends with this scope at the latest."""
        task = self._group.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task
