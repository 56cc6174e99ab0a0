"""Which effect a worker does next: those of one lane one after the other, each when it is due. No I/O.

A worker reads all that is pending again and again, in walks. Between a question and its answer an effect may be
settled, so an answer may name what is settled already. Invariant: an effect that was settled after a walk began is not
taken in from that walk.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from ...service_api.outbox.effects import EffectKey, PendingEffect

_DOUBLING_LIMIT: Final = 60


@dataclass(slots=True, eq=False)
class HeldEffect:
    """An effect that the worker has read."""

    effect: PendingEffect[Any]
    lane: Hashable
    walk: int
    """The walk that it was read in."""
    attempt_count: int = 0
    due_s: float = 0.0
    """When it may be done, by the clock of the loop."""
    lonely_failure_count: int = 0
    """Failures in a row between which no other effect was done, and the one before."""
    others_done_count: int = 0
    """How many effects the worker had done when this one failed last."""

    def on_failed(self, done_count: int) -> int:
        """Count a failure; return the doublings of the pause that follows.

        While other effects are done, the receiver is there, and a longer pause would protect nobody: then the pause is
        doubled once at most.
        """
        self.attempt_count += 1
        if done_count > self.others_done_count:
            self.lonely_failure_count = min(self.lonely_failure_count, 1)
        self.others_done_count = done_count
        self.lonely_failure_count += 1
        return min(self.lonely_failure_count - 1, _DOUBLING_LIMIT)

    @property
    def key(self) -> EffectKey:
        """The key of the effect."""
        return self.effect.key


class EffectLanes:
    """The effects that a worker has read and not settled."""

    def __init__(self, lane_of: Callable[[PendingEffect[Any]], Hashable]) -> None:
        self._lane_of = lane_of
        self._waiting: dict[Hashable, list[HeldEffect]] = {}
        """By lane, in ascending order of keys."""
        self._busy: set[Hashable] = set()
        self._keys: set[EffectKey] = set()
        """Of all that is waiting, under way or about to be settled."""
        self._settled: dict[EffectKey, int] = {}
        """The walk that was under way, or the last one, when an effect was settled."""
        self._heads: list[tuple[float, EffectKey, int, HeldEffect]] = []
        """The first ones of lanes by the time when they are due; also some that are that no more."""
        self._numbers = count()
        self._walk = 0
        self._seen: set[EffectKey] = set()

    def __repr__(self) -> str:
        return f"<EffectLanes lanes={len(self._waiting)} effects={len(self._keys)} busy={len(self._busy)}>"

    def __len__(self) -> int:
        return len(self._keys)

    # --- walks

    def begin_walk(self) -> None:
        """All that is pending is read from the beginning."""
        self._walk += 1
        self._seen.clear()

    def add(self, effect: PendingEffect[Any]) -> bool:
        """Take in an effect that the walk has met; False if it is held or settled already."""
        key = effect.key
        self._seen.add(key)
        if key in self._keys or self._settled.get(key, -1) >= self._walk:
            return False
        self._settled.pop(key, None)
        self._keys.add(key)
        self._put(HeldEffect(effect, self._lane_of(effect), self._walk))
        return True

    def end_walk(self) -> None:
        """The walk has met all that is pending: forget what is waiting and was not met; another worker settled it."""
        self._settled = {key: walk for key, walk in self._settled.items() if walk >= self._walk}
        for lane, waiting in [*self._waiting.items()]:
            kept = [held for held in waiting if held.walk == self._walk or held.key in self._seen]
            if len(kept) == len(waiting):
                continue
            self._keys.difference_update({held.key for held in waiting} - {held.key for held in kept})
            self._waiting[lane] = kept
            self._push_head(lane)

    # --- effects

    def take(self, now_s: float) -> HeldEffect | None:
        """Take the next effect that is due; its lane waits until it is done or has failed."""
        for held in self._due_heads(now_s):
            heappop(self._heads)
            self._waiting[held.lane].pop(0)
            self._busy.add(held.lane)
            return held
        return None

    def next_due_s(self) -> float | None:
        """Return when the next effect is due that is not under way; None if all is."""
        for held in self._due_heads(float("inf")):
            return held.due_s
        return None

    def release(self, held: HeldEffect) -> None:
        """Let the next one of its lane go on: the effect is done, or was given up, and is about to be settled."""
        self._busy.discard(held.lane)
        self._push_head(held.lane)

    def put_back(self, held: HeldEffect, due_s: float) -> None:
        """Have an effect done again later."""
        held.due_s = due_s
        self._busy.discard(held.lane)
        self._put(held)

    def settle(self, key: EffectKey) -> None:
        """Forget an effect that is settled."""
        self._keys.discard(key)
        self._settled[key] = self._walk

    def _put(self, held: HeldEffect) -> None:
        insort(self._waiting.setdefault(held.lane, []), held, key=lambda each: each.key)
        self._push_head(held.lane)

    def _push_head(self, lane: Hashable) -> None:
        waiting = self._waiting.get(lane)
        if not waiting:
            self._waiting.pop(lane, None)
        elif lane not in self._busy:
            head = waiting[0]
            heappush(self._heads, (head.due_s, head.key, next(self._numbers), head))

    def _due_heads(self, now_s: float) -> Iterator[HeldEffect]:
        """Yield the first one of the heads that is due, and leave out those that are heads no more."""
        while self._heads and self._heads[0][0] <= now_s:
            due_s, _, _, held = self._heads[0]
            waiting = self._waiting.get(held.lane)
            if waiting and waiting[0] is held and held.due_s == due_s and held.lane not in self._busy:
                yield held
                return
            heappop(self._heads)
