"""Keys in order, in short sorted lists: adding and removing one moves at most one list's tail."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import eq
from typing import Final

from ..typed.journal import Journal

_LIST_LIMIT: Final = 1_024


_NO_JOURNAL: Final = Journal({}, eq)
"""Of keys that belong to no service: it is never open."""


class SortedKeys:
    """A sorted set of keys, which a typed service derives from its state: its journal undoes what a message changed."""

    __slots__ = ("_firsts", "_journal", "_lists")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        half = _LIST_LIMIT // 2
        self._lists = [ordered[first : first + half] for first in range(0, len(ordered), half)]
        self._firsts = [some[0] for some in self._lists]
        self._journal = _NO_JOURNAL

    def attach_journal(self, journal: Journal) -> None:
        """Have changes written down in the journal of a service."""
        self._journal = journal

    def undo(self, key: bytes, before: bool) -> bool:
        """Take a key that was added out again, or back in."""
        if before:
            self._insert(key)
        else:
            self._delete(key)
        return False  # derived: the state says what has changed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedKeys) and [*self.between(b"", b"")] == [*other.between(b"", b"")]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<SortedKeys count={sum(map(len, self._lists))}>"

    def add(self, key: bytes) -> None:
        """Add a key that is not there."""
        self._journal.note((self, key, False))
        self._insert(key)

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        self._journal.note((self, key, True))
        self._delete(key)

    def first(self) -> bytes | None:
        """Return the smallest key; None if there is none."""
        return self._firsts[0] if self._firsts else None

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """Iterate over the keys of [begin, end) in order; b"" is no end. Nothing may change meanwhile."""
        for index in range(max(bisect_right(self._firsts, begin) - 1, 0), len(self._lists)):
            some = self._lists[index]
            for position in range(bisect_left(some, begin), len(some)):
                key = some[position]
                if end and key >= end:
                    return
                yield key

    def _insert(self, key: bytes) -> None:
        lists, firsts = self._lists, self._firsts
        if not lists:
            lists.append([key])
            firsts.append(key)
            return
        index = max(bisect_right(firsts, key) - 1, 0)
        some = lists[index]
        insort(some, key)
        if len(some) > _LIST_LIMIT:
            half = len(some) // 2
            lists.insert(index + 1, some[half:])
            firsts.insert(index + 1, some[half])
            del some[half:]
        firsts[index] = some[0]

    def _delete(self, key: bytes) -> None:
        index = bisect_right(self._firsts, key) - 1
        some = self._lists[index]
        del some[bisect_left(some, key)]
        if some:
            self._firsts[index] = some[0]
        else:
            del self._lists[index], self._firsts[index]
