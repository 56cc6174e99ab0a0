"""Lists that a service gives page by page."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Pages(Generic[T]):
    """Iterates over the items of pages; each page is of one moment. A page is read when the one before is used up."""

    def __init__(self, read: Callable[[Any], Awaitable[tuple[Sequence[T], Any]]], begin: Any) -> None:
        """Take what gives a page and where the next one begins, None at the end; and where the first one does."""
        # Any: a place of whichever type the service has
        self._read = read
        self._next = begin
        self._items: deque[T] = deque()

    def __repr__(self) -> str:
        return f"<Pages ready={len(self._items)} next={self._next!r}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._next is None:
                raise StopAsyncIteration
            items, self._next = await self._read(self._next)
            self._items.extend(items)
        return self._items.popleft()

    def take_ready(self, limit: int) -> list[T]:
        """Take items of the page that was read, up to a limit."""
        return [self._items.popleft() for _ in range(min(limit, len(self._items)))]

    async def aclose(self) -> None:
        """Read no more."""
        self._items.clear()
        self._next = None


def pages_after(
    read: Callable[[Any], Awaitable[Sequence[T]]], place_of: Callable[[T], Any], first: Any = ""
) -> Pages[T]:
    """Iterate over pages that are asked for by the place of the last item before, until one is empty."""

    async def read_after(after: Any) -> tuple[Sequence[T], Any]:
        page = await read(after)
        return page, place_of(page[-1]) if page else None

    return Pages(read_after, first)
