"""Measures how long the event loop stood still, and names what held it up.

A loop that stands still for longer than the heartbeat timeout loses its leadership, so a stall wants to be seen long
before. Three stop-watches tell who it was, and none of them runs per message:

    callbacks of the service   each that is not called in runs has its own; they are rare
    a run of entries           the log adapter looks at the clock anyway; what no other stop-watch claims of a slow
                               run is the callback that its messages went to: `on_session_message`, `on_request` or
                               `on_service_message`
    the garbage collector      `gc.callbacks`, with the generation
    a tick of the loop         late by what none of the others has claimed: other code, or a process that did not run

    a stage of the log         ingress, append, sync and egress: see `stage_watch`

What takes longer than `slow_ns` is counted by its culprit, and is a stall from `threshold_ns` on.

They nest, and a stall counts once: a span gives away what was slow inside it. The last two belong to the
process and run in `watch_process` only, so that several nodes in one process do not count each other's.

Measured (Python 3.11): 0.04 us per run of entries, of which one of a hundred messages takes 45 us. Which callback it
was is looked up in the log's bytes after a slow run, so it costs nothing per message.

Source: Aeron `DutyCycleStallTracker` (max cycle time, cycle time threshold exceeded).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog

from ....service_api import ClusteredService
from ...service.bounded_log_adapter import (
    MESSAGE_CALLBACK,
    REQUEST_CALLBACK,
    SERVICE_MESSAGE_CALLBACK,
    BoundedLogAdapter,
)
from ...settings.config import NodeConfig
from .sync_timer import DurationHistogram

_UNTIMED_CALLBACKS: Final = (MESSAGE_CALLBACK, REQUEST_CALLBACK, SERVICE_MESSAGE_CALLBACK)
"""Called in runs, which are timed as a whole."""
LOOP: Final = "loop"
"""The culprit of a stall that nothing else explains."""

_LOG_INTERVAL_NS: Final = 10_000_000_000
"""Between two lines about the same culprit: a service that is slow all the time would fill the disk with them."""

_TICKS_PER_THRESHOLD: Final = 4
_RECENT_LIMIT: Final = 64
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_NOTEWORTHY_NS: Final = 5 * _NS_PER_MS
"""Shorter runs are not even looked at for the longest span."""

logger = structlog.get_logger()


@dataclass(slots=True)
class CulpritStalls:
    """The stalls that one culprit has caused."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0
    next_log_ns: int = 0
    logged_count: int = 0


class StallTracker:
    """Counts the stalls of one loop. `max_ns` is the longest span ever seen, also where it was no stall."""

    def __init__(self, monotonic_ns: Callable[[], int], *, threshold_ns: int, slow_ns: int | None = None) -> None:
        self.threshold_ns: Final = threshold_ns
        self.slow_ns: Final = threshold_ns if slow_ns is None else min(slow_ns, threshold_ns)
        self.slow_spans = {LOOP: DurationHistogram()}
        """What took longer than `slow_ns`, by culprit, in the order of the first."""
        self.max_ns = 0
        self.culprits: dict[str, CulpritStalls] = {}
        """By name, in the order of their first stall: callbacks of the service, `delivery`, `gc0` to `gc2`, `loop`."""
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT_LIMIT)
        """When the last slow spans ended, and how long they were."""
        self._monotonic_ns = monotonic_ns
        self._collection_began_ns: int | None = None

    def __repr__(self) -> str:
        return f"<StallTracker stalls={self.count} max_ms={self.max_ns / _NS_PER_MS:g}>"

    @property
    def count(self) -> int:
        """How many stalls there were."""
        return sum(stalls.count for stalls in self.culprits.values())

    def on_span(self, culprit: str, begin_ns: int, end_ns: int) -> None:
        """Take in a span in which the loop did one thing. Spans inside another come before it."""
        duration_ns = end_ns - begin_ns
        self.max_ns = max(self.max_ns, duration_ns)
        if duration_ns < self.slow_ns:
            return
        own_ns = duration_ns - sum(claimed_ns for ended_ns, claimed_ns in self._recent if ended_ns > begin_ns)
        if own_ns < self.slow_ns:
            return
        self._recent.append((end_ns, own_ns))
        self.slow_spans.setdefault(culprit, DurationHistogram()).add(own_ns)
        if own_ns >= self.threshold_ns:
            self._on_stall(culprit, own_ns, end_ns)

    def timed(self, culprit: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Put a stop-watch on a function; for functions that are called rarely."""
        clock = self._monotonic_ns

        def call(*arguments: Any, **options: Any) -> Any:
            begin_ns = clock()
            try:
                return function(*arguments, **options)
            finally:
                self.on_span(culprit, begin_ns, clock())

        return call

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Take in the beginning or the end of a garbage collection; to be put into `gc.callbacks`."""
        now_ns = self._monotonic_ns()
        if phase == "start":
            self._collection_began_ns = now_ns
        elif self._collection_began_ns is not None:
            begin_ns, self._collection_began_ns = self._collection_began_ns, None
            self.on_span(f"gc{info['generation']}", begin_ns, now_ns)

    @contextlib.contextmanager
    def watch_process(self) -> Iterator[None]:
        """Watch the garbage collector and the running loop until the block ends; for the one node of a process."""
        ticker = _LoopTicker(self, asyncio.get_running_loop(), self._monotonic_ns)
        gc.callbacks.append(self.on_collection)
        ticker.start()
        try:
            yield
        finally:
            ticker.stop()
            gc.callbacks.remove(self.on_collection)

    def _on_stall(self, culprit: str, duration_ns: int, now_ns: int) -> None:
        stalls = self.culprits.setdefault(culprit, CulpritStalls())
        stalls.count += 1
        stalls.total_ns += duration_ns
        stalls.max_ns = max(stalls.max_ns, duration_ns)
        if now_ns < stalls.next_log_ns:
            return
        stalls.next_log_ns = now_ns + _LOG_INTERVAL_NS
        untold_count, stalls.logged_count = stalls.count - stalls.logged_count, stalls.count
        logger.warning(
            "loop.stalled",
            culprit=culprit,
            duration_ms=round(duration_ns / _NS_PER_MS, 1),
            threshold_ms=self.threshold_ns // _NS_PER_MS,
            count=untold_count,
        )


def make_stall_tracker(config: NodeConfig, monotonic_ns: Callable[[], int]) -> StallTracker:
    """Make the tracker of a node with these settings."""
    return StallTracker(
        monotonic_ns,
        threshold_ns=config.stall_threshold_ms * _NS_PER_MS,
        slow_ns=config.loop_slow_ms * _NS_PER_MS,
    )


def watch_delivery(adapter: BoundedLogAdapter, stalls: StallTracker) -> None:
    """Measure slow runs of entries: time that nothing else claims is that of the callback that took the messages."""
    adapter.slow_ns = min(stalls.slow_ns, _NOTEWORTHY_NS)
    adapter.on_slow = stalls.on_span


def with_stop_watches(service: ClusteredService, stalls: StallTracker) -> ClusteredService:
    """Put a stop-watch on every callback of a service but those that are called in runs, which stay what they are."""
    return cast(ClusteredService, _TimedService(service, stalls))


class _TimedService:
    """Stands for a service: what is not a callback is the service's own."""

    def __init__(self, service: ClusteredService, stalls: StallTracker) -> None:
        self._service = service
        for name in dir(type(service)):
            if name.startswith("on_"):
                callback = getattr(service, name)
                self.__dict__[name] = callback if name in _UNTIMED_CALLBACKS else stalls.timed(name, callback)

    def __repr__(self) -> str:
        return repr(self._service)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


class _LoopTicker:
    """Asks to be called several times per threshold, and sees by how much it is called too late."""

    def __init__(self, stalls: StallTracker, loop: asyncio.AbstractEventLoop, monotonic_ns: Callable[[], int]) -> None:
        self._stalls = stalls
        self._loop = loop
        self._monotonic_ns = monotonic_ns
        self._interval_ns = max(_NS_PER_MS, stalls.threshold_ns // _TICKS_PER_THRESHOLD)
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        """Ask for the next tick."""
        self._due_ns = self._monotonic_ns() + self._interval_ns
        self._handle = self._loop.call_later(self._interval_ns / _NS_PER_S, self._tick)

    def stop(self) -> None:
        """Tick no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _tick(self) -> None:
        now_ns = max(self._monotonic_ns(), self._due_ns)
        self._stalls.on_span(LOOP, self._due_ns, now_ns)
        self.start()
