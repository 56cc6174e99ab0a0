"""Carries the entries of a subscription to a sink, and notes how far the sink has them.

Each entry reaches the sink once, unless the process dies between the delivery of a batch and the saving of its
position: then the sink gets that batch again after the restart. An entry's `position` tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from .entries import LogEntry
from .position_store import PositionStore
from .subscription import Subscription

BATCH_LIMIT: Final = 256


class Sink(Protocol):
    """Where entries go."""

    async def deliver(self, entries: Sequence[LogEntry]) -> None:
        """Return once every entry is where it should be, in order. What this raises ends the pump."""


async def pump(
    entries: Subscription, sink: Sink, store: PositionStore | None = None, *, entry_limit: int | None = None
) -> int:
    """Deliver entries until the subscription ends, or `entry_limit` are delivered; return how many that were.

    Raises:
        SubscriptionError: the subscription cannot go on.
        OSError: the position could not be saved. What the sink raises is passed on.
    """
    count = 0
    while entry_limit is None or count < entry_limit:
        try:
            first = await anext(entries)
        except StopAsyncIteration:
            break
        room = BATCH_LIMIT if entry_limit is None else min(BATCH_LIMIT, entry_limit - count)
        batch = [first, *entries.take_ready(room - 1)]
        await sink.deliver(batch)
        count += len(batch)
        if store is not None and entries.position is not None:
            store.save(entries.position)
    return count
