"""A subscription for scripts and notebooks, which have no event loop."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Final, Self

from ...client.loop_thread import LoopThread
from .entries import LogEntry
from .subscription import Subscription, subscribe

_BATCH_LIMIT: Final = 1024
_END_TIMEOUT_S: Final = 10.0


class SyncSubscription:
    """Iterates over committed entries: `for entry in subscription`. Made by `subscribe_blocking`; use it in `with`."""

    def __init__(self, entries: Subscription) -> None:
        self._entries = entries
        self._ready: deque[LogEntry] = deque()
        self._position = entries.position
        self._thread = LoopThread(on_end=entries.aclose, end_timeout_s=_END_TIMEOUT_S)

    def __repr__(self) -> str:
        return f"<SyncSubscription {self._entries!r}>"

    @property
    def position(self) -> int | None:
        """As that of `Subscription`."""
        return self._position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogEntry:
        """Return the next entry, when there is one; errors as those of `Subscription`."""
        if self._thread.is_ending:
            raise StopIteration
        if not self._ready:
            self._ready.extend(self._thread.call(self._next_batch))
        entry = self._ready.popleft()
        self._position = entry.end_position if self._ready else self._entries.position
        return entry

    def close(self) -> None:
        """Read no more."""
        self._thread.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _next_batch(self) -> list[LogEntry]:
        first = await anext(self._entries)
        return [first, *self._entries.take_ready(_BATCH_LIMIT - 1)]


def subscribe_blocking(*arguments: Any, **settings: Any) -> SyncSubscription:  # Any: as `subscribe` takes them
    """Subscribe as `subscribe` does, for code without an event loop.

        with subscribe_blocking(["10.0.0.1:9001"], from_position=stored_position) as entries:
            for entry in entries:
                print(entry.position, entry.payload)

    Raises:
        ConfigurationError: an argument cannot be used; says which, and what is expected.
    """
    return SyncSubscription(subscribe(*arguments, **settings))
