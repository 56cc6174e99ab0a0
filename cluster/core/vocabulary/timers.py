"""Timers by correlation id: the same on every member, because they change only at log positions.

A timer is scheduled, moved and cancelled by the service, in the callbacks that every member runs at the same
positions. Only the leader looks at the clock: an expired timer becomes a TimerEvent in the log, and the timer is
gone, on every member, when that entry is delivered. Until then the leader only remembers that it has been appended;
so a leader that loses its place has nothing to undo but that memory, and the next leader fires the timer again.

Source: aeron.md §3.9.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from ....service_api import LocalProtocolError

EVERY_SERVICE: Final = -1
"""Whose timer it is where services share the ids of timers."""

_COMPACT_FACTOR: Final = 4
_SERVICE_ID_SHIFT: Final = 56
_SHARED_ID_MAX: Final = (1 << _SERVICE_ID_SHIFT) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class TimerIds:
    """The ids that the timers of several services have in the log, where there is room for one number only.

    A node with one service uses that service's own ids. With several, the highest byte is the service's id; unless they
    share their ids, as the services of an Aeron node do: then an id is the same to all of them, and all are told when
    it fires.
    """

    __slots__ = ("_has_own", "_service_count")

    def __init__(self, service_count: int, *, is_shared: bool = False) -> None:
        self._service_count = service_count
        self._has_own = service_count > 1 and not is_shared

    def encode(self, service_id: int, correlation_id: int) -> int:
        """Return a timer's id in the log.

        Raises:
            LocalProtocolError: there is no room for the service's own id.
        """
        if not self._has_own:
            if not _INT64_MIN <= correlation_id <= _INT64_MAX:
                raise LocalProtocolError(
                    f"timer id out of range: correlation_id={correlation_id} expected={_INT64_MIN}..{_INT64_MAX}"
                )
            return correlation_id
        if not 0 <= correlation_id <= _SHARED_ID_MAX:
            raise LocalProtocolError(
                f"timer id out of range: correlation_id={correlation_id} expected=0..{_SHARED_ID_MAX} "
                f"in a node of {self._service_count} services"
            )
        return service_id << _SERVICE_ID_SHIFT | correlation_id

    def decode(self, log_id: int) -> tuple[int, int]:
        """Return which service a timer belongs to, `EVERY_SERVICE` if to all, and its id there."""
        if not self._has_own:
            return (0 if self._service_count == 1 else EVERY_SERVICE), log_id
        return log_id >> _SERVICE_ID_SHIFT, log_id & _SHARED_ID_MAX


def check_deadline(deadline: int) -> None:
    """Refuse a deadline that no log entry and no snapshot can hold.

    Raises:
        LocalProtocolError: it is no 64-bit number.
    """
    if not _INT64_MIN <= deadline <= _INT64_MAX:
        raise LocalProtocolError(f"deadline out of range: deadline={deadline} expected={_INT64_MIN}..{_INT64_MAX}")


class TimerService:
    """Deadlines by correlation id, in the cluster's time unit."""

    __slots__ = ("_deadlines", "_fired", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._fired: set[int] = set()

    def __repr__(self) -> str:
        return f"<TimerService timers={len(self._deadlines)} fired={len(self._fired)}>"

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer."""
        self._deadlines[correlation_id] = deadline
        heappush(self._heap, (deadline, correlation_id))
        if len(self._heap) > 64 + _COMPACT_FACTOR * len(self._deadlines):
            self._rebuild()

    def cancel(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none."""
        return self._deadlines.pop(correlation_id, None) is not None

    def on_fired(self, correlation_id: int) -> None:
        """A TimerEvent was delivered: the timer is gone."""
        self._deadlines.pop(correlation_id, None)
        self._fired.discard(correlation_id)

    def expired(self, now: int, *, limit: int) -> list[int]:
        """Leader: take up to `limit` timers due at `now`, in order of deadline, each once while this member leads."""
        due: list[int] = []
        heap = self._heap
        while heap and len(due) < limit and heap[0][0] <= now:
            deadline, correlation_id = heappop(heap)
            if self._deadlines.get(correlation_id) == deadline and correlation_id not in self._fired:
                self._fired.add(correlation_id)
                due.append(correlation_id)
        return due

    def next_deadline(self) -> int | None:
        """The earliest deadline that may be due next; it may belong to a timer that was moved since."""
        return self._heap[0][0] if self._heap else None

    def pending(self) -> list[tuple[int, int]]:
        """Every timer whose event was not delivered, as (correlation_id, deadline), by deadline and then id."""
        return sorted(self._deadlines.items(), key=lambda timer: (timer[1], timer[0]))

    def rearm(self) -> None:
        """Leadership changed: what was appended and not delivered may never be, so it is due again."""
        self._fired.clear()
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [
            (deadline, correlation_id)
            for correlation_id, deadline in self._deadlines.items()
            if correlation_id not in self._fired
        ]
        heapify(self._heap)
