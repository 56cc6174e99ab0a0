"""The service under the benchmark of stops: it holds orders, and writes how long the turns of its member's loop take.

A tick each millisecond looks at the processor time of the loop's thread. What was used since the tick before is at
least what the longest turn between them took, and at most a millisecond more: a process that did not run, on a machine
that is busy, used nothing. The longest is written ten times a second.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from ...service_api import Cluster, SnapshotImage
from .orders import OrdersByCopy, OrdersInPieces

TURN_EVENT: Final = "turns.longest"
"""The event of the longest turn since the one before; `busy_us` is its processor time."""

_TICK_S: Final = 0.001
_TICKS_PER_EVENT: Final = 100

logger = structlog.get_logger()


class TurnWatch:
    """Looks at the processor time of the running loop's thread, tick by tick, as long as the process lives."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick_count = self._longest_ns = 0
        self._before_ns = time.thread_time_ns()
        self._loop.call_later(_TICK_S, self._tick)

    def __repr__(self) -> str:
        return f"<TurnWatch longest_ns={self._longest_ns}>"

    def _tick(self) -> None:
        now_ns = time.thread_time_ns()
        self._longest_ns = max(self._longest_ns, now_ns - self._before_ns)
        self._tick_count += 1
        if self._tick_count == _TICKS_PER_EVENT:
            logger.warning(TURN_EVENT, busy_us=self._longest_ns // 1_000)
            self._tick_count = self._longest_ns = 0
            now_ns = time.thread_time_ns()
        self._before_ns = now_ns
        self._loop.call_later(_TICK_S, self._tick)


class WatchedOrdersInPieces(OrdersInPieces):
    """Writes pieces, and stands still meanwhile."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the orders, and watch the loop."""
        self.watch = TurnWatch()
        await super().on_start(cluster, snapshot)


class WatchedOrdersByCopy(OrdersByCopy):
    """Has a copy of the process write them."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the orders, and watch the loop."""
        self.watch = TurnWatch()
        await super().on_start(cluster, snapshot)
