"""Compares the outputs of two services, entry by entry.

Two services are delivered the same log, so outputs are compared that were made at the same entry: replies by session
and request, timers by id, messages by session and order. The ids of offers are left out: with one more offer all later
ones are others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import Final, NamedTuple

from .outputs import Output, OutputKind

_ALIGNED_LIMIT: Final = 256
"""Outputs of one kind and session at one entry that are aligned; more are compared one by one."""


class Change(StrEnum):
    """What became of an output."""

    CHANGED = "changed"
    """Both made it, with another content."""
    MISSING = "missing"
    """Only the old service made it."""
    EXTRA = "extra"
    """Only the new one did."""
    MOVED = "moved"
    """Both made the same at this entry, in another order; this is the first that is out of place."""


class OutputDifference(NamedTuple):
    """One output that is not the same in both; None on the side that does not have it."""

    change: Change
    old: Output | None
    new: Output | None

    @property
    def output(self) -> Output:
        """What the one or the other made: where it was, and what kind it is."""
        found = self.new if self.old is None else self.old
        assert found is not None
        return found

    @property
    def position(self) -> int:
        """The end of the entry at which they differ, in bytes."""
        return self.output.position


def compare_outputs(old: Sequence[Output], new: Sequence[Output]) -> Iterator[OutputDifference]:
    """Compare what two services gave out over one stretch of the log; both in order."""
    if old == new:
        return
    position = attrgetter("position")
    by_position_old = {key: list(group) for key, group in groupby(old, position)}
    by_position_new = {key: list(group) for key, group in groupby(new, position)}
    for key in sorted(by_position_old.keys() | by_position_new.keys()):
        yield from _compare_entry(by_position_old.get(key, []), by_position_new.get(key, []))


def _compare_entry(old: list[Output], new: list[Output]) -> Iterator[OutputDifference]:
    if [_content(output) for output in old] == [_content(output) for output in new]:
        return
    found = False
    by_key_old, by_key_new = _by_key(old), _by_key(new)
    for key in dict.fromkeys((*by_key_old, *by_key_new)):
        for difference in _compare_key(by_key_old.get(key, []), by_key_new.get(key, [])):
            found = True
            yield difference
    if not found:
        for first, second in zip(old, new, strict=True):
            if _content(first) != _content(second):
                yield OutputDifference(Change.MOVED, first, second)
                return


def _compare_key(old: list[Output], new: list[Output]) -> Iterator[OutputDifference]:
    if max(len(old), len(new)) > _ALIGNED_LIMIT or len(old) == len(new) == 1:
        yield from _pair(old, new)
        return
    matcher = SequenceMatcher(None, [_value(o) for o in old], [_value(n) for n in new], autojunk=False)
    for tag, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield from _pair(old[old_begin:old_end], new[new_begin:new_end])


def _pair(old: Sequence[Output], new: Sequence[Output]) -> Iterator[OutputDifference]:
    for first, second in zip_longest(old, new):
        if first is None:
            yield OutputDifference(Change.EXTRA, None, second)
        elif second is None:
            yield OutputDifference(Change.MISSING, first, None)
        elif _value(first) != _value(second):
            yield OutputDifference(Change.CHANGED, first, second)


def _by_key(outputs: list[Output]) -> dict[Hashable, list[Output]]:
    found: dict[Hashable, list[Output]] = {}
    for output in outputs:
        found.setdefault(_key(output), []).append(output)
    return found


def _key(output: Output) -> Hashable:
    session_id = None if output.kind is OutputKind.OFFER else output.cluster_session_id
    return output.kind, session_id, output.correlation_id


def _value(output: Output) -> Hashable:
    return output.code, output.deadline, output.payload


def _content(output: Output) -> Hashable:
    return _key(output), _value(output)
