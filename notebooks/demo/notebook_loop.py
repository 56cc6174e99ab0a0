"""An event loop in a thread of its own: a notebook's thread has one already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Thread
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class NotebookLoop:
    """Runs coroutines from another thread, which waits for them. `end` stops it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<NotebookLoop {self._thread.name} running={self.is_running}>"

    @property
    def is_running(self) -> bool:
        """Whether it was not ended."""
        return self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine there, and give what it gives, or raise what it raises."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def end(self) -> None:
        """Stop the loop, and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
