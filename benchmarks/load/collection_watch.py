"""The garbage collections of a load process."""

from __future__ import annotations

import gc
from time import monotonic_ns
from types import TracebackType
from typing import Any, Final, Self

_NEVER_NS: Final = 1 << 62


class CollectionWatch:
    """Times the garbage collections of this process while the block lasts."""

    def __init__(self) -> None:
        from ...cluster.runtime.watching.stall_tracker import StallTracker  # other loads do without a member

        # A threshold that nothing reaches: a stall would be a line on standard output, which is the harness's.
        self._stalls = StallTracker(monotonic_ns, threshold_ns=_NEVER_NS, slow_ns=0)

    def __enter__(self) -> Self:
        gc.callbacks.append(self._stalls.on_collection)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._stalls.on_collection)

    def to_json(self) -> dict[str, Any]:
        """Return how many there were and the longest, in milliseconds, by generation: `gc0` to `gc2`."""
        return {
            name: {"count": spans.count, "longest_ms": round(spans.max_ns / 1e6, 2)}
            for name, spans in self._stalls.slow_spans.items()
            if spans.count
        }
