"""A subscription for scripts and notebooks, which have no event loop."""

from __future__ import annotations

from typing import Any, Final

from ...client.blocking.facade import BlockingClient, BlockingIterator
from ...client.blocking.parameters import with_parameters_of
from .entries import LogEntry
from .subscription import Subscription, subscribe

_CLOSE_TIMEOUT_S: Final = 5.0


class SyncSubscription(BlockingClient, BlockingIterator[LogEntry]):
    """Iterates over committed entries: `for entry in subscription`. Made by `subscribe_blocking`; use it in `with`."""

    _target: Subscription

    def __init__(self, entries: Subscription) -> None:
        self._open(entries.__aenter__, _CLOSE_TIMEOUT_S)
        self._position = entries.position

    @property
    def position(self) -> int | None:
        """As that of `Subscription`."""
        return self._position

    @property
    def served_by_member_id(self) -> int | None:
        """The member that is read from; None while there is none."""
        return self._target.served_by_member_id

    def __next__(self) -> LogEntry:
        """Return the next entry, when there is one; errors as those of `Subscription`."""
        if self._owner.thread.is_ending:
            raise StopIteration
        entry = super().__next__()
        self._position = entry.end_position if self._ready else self._target.position
        return entry


@with_parameters_of(subscribe)
def subscribe_blocking(*arguments: Any, **settings: Any) -> SyncSubscription:  # Any: as `subscribe` takes them
    """Subscribe as `subscribe` does, for code without an event loop.

        with subscribe_blocking(["10.0.0.1:9001"], from_position=stored_position) as entries:
            for entry in entries:
                print(entry.position, entry.payload)

    Raises:
        ConfigurationError: an argument cannot be used; says which, and what is expected.
    """
    return SyncSubscription(subscribe(*arguments, **settings))
