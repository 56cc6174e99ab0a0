"""Lists in one answer: names in their order, and pages that end before they are longer than an answer may be.

How long an answer may be depends on the log's term length, so it is equal on every member. What is written is refused
if it could not be read back alone (`check_fits`); so a page always has room for its first entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final, TypeVar

from ..typed import Context, ServiceError

ENTRY_BYTES: Final = 256
"""Room for the numbers and marks of one entry, beside its texts and bytes; as much for what is around the entries."""

E = TypeVar("E")


def room_in_answer(ctx: Context) -> int:
    """Return how many bytes the entries of one answer may have, those of `ENTRY_BYTES` for each included."""
    return ctx.payload_limit_bytes - ENTRY_BYTES


def check_fits(ctx: Context, what: str, size_bytes: int, error: type[ServiceError], *, reserved_bytes: int = 0) -> None:
    """Refuse what could never be in an answer, where `reserved_bytes` beside it may be needed.

    Raises:
        ServiceError: of the class `error`, whose only field is the text.
    """
    limit = ctx.payload_limit_bytes - 2 * ENTRY_BYTES - reserved_bytes
    if size_bytes > limit:
        raise error(f"{what} has {size_bytes} bytes, expected at most {limit}; term_length_bytes limits it")


class AnswerPage:
    """Counts the entries of one answer."""

    def __init__(self, ctx: Context, limit_count: int, *, limit_bytes: int = 1 << 20) -> None:
        self._room_bytes = min(limit_bytes, room_in_answer(ctx))
        self._left_count = limit_count
        self._is_empty = True

    def takes(self, size_bytes: int) -> bool:
        """Count an entry whose texts and bytes are this long; False if the page ends before it."""
        size_bytes += ENTRY_BYTES
        if self._left_count <= 0 or (size_bytes > self._room_bytes and not self._is_empty):
            return False
        self._left_count -= 1
        self._room_bytes -= size_bytes
        self._is_empty = False
        return True


def _size_of_name(name: str) -> int:
    return len(name.encode())


def name_page(
    ctx: Context,
    names: Iterable[str],
    prefix: str,
    after: str,
    limit_count: int,
    *,
    size_of: Callable[[str], int] = _size_of_name,
) -> Iterator[str]:
    """Yield the first names of a prefix after `after`, in order, as many as one answer takes.

    "" as `after` begins at the first. `size_of` gives the length of what the answer has of a name, by default the name.
    """
    page = AnswerPage(ctx, limit_count)
    for name in nsmallest(limit_count, (name for name in names if name > after and name.startswith(prefix))):
        if not page.takes(size_of(name)):
            return
        yield name
