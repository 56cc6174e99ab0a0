"""Delays the syncs of a spare follower while a majority is durable without it.

The problem: members that share a machine share its disk. Three syncs at once take 136 us there, two take 105, one takes
82, and a client waits for those of the leader and of the quickest follower only. The idea: of several followers as many
sync at once as a majority needs, by order of their ids; the others are spare (`ConsensusContext.is_spare`). A spare one
writes what it gets as always, and syncs it a little later, much of it at once.

Nothing it says changes: it reports what is durable, so it counts for a commit when its own sync is done, as if its disk
were slow. What changes is when. So it does not wait

- where it does not help: with more than a little to sync, or with a batch on its way;
- where it is waited for: if what waited has not been committed meanwhile, those that should have been quicker were not.
  Then it takes their part for a while.

Measured: three members and a client on two cores, one message of 32 bytes in flight, file sync level 1, interleaved:
p50 a fifth lower.

Rejected: letting the leader wait instead, whose own vote two followers make up for (Raft thesis 10.2.1): then the
slower of two followers decides, which gained half as much here, and loses between machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ....archive import Recording
from ....service_api import ClusterError
from ...core.context import ConsensusContext

LATE_LIMIT_BYTES: Final = 16 << 10
"""With more than this to sync it does not wait: its syncs are few then anyway."""

PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 30.0
"""So long it does not wait after it was waited for; twice as long each time in a row, for a slow moment is no habit.

What should be quicker may be busy for minutes, as with a copy of the log: then one wait in 30 s is all that is tried.
"""


class SpareSync:
    """When this member asks for the durability of what it has just appended. All calls on its event loop."""

    def __init__(self, ctx: ConsensusContext, *, delay_us: int, on_failed: Callable[[BaseException], None]) -> None:
        self._ctx = ctx
        self._delay_s = delay_us / 1e6
        self._on_failed = on_failed
        self._timer: asyncio.TimerHandle | None = None
        self._not_before_s = 0.0
        self._pause_s = PAUSE_MIN_S

    def __repr__(self) -> str:
        return f"<SpareSync delay={self._delay_s:g} s is_spare={self._ctx.is_spare} waits={self._timer is not None}>"

    def flush(self, recording: Recording) -> None:
        """Ask for durability of everything appended so far: now, or a little later where nobody waits for it.

        Raises:
            ArchiveError: the recording has failed or was stopped.
        """
        if not (self._ctx.is_spare and self._delay_s and self._may_wait(recording)):
            self.flush_now(recording)

    def flush_now(self, recording: Recording) -> None:
        """Ask for durability of everything appended so far, and for nothing later any more.

        Raises:
            ArchiveError: the recording has failed or was stopped.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        recording.flush()

    def _may_wait(self, recording: Recording) -> bool:
        """Whether the sync may come later; then it will."""
        if recording.is_with_worker or recording.append_position - recording.recorded_position > LATE_LIMIT_BYTES:
            return False
        if self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._not_before_s:
                return False
            self._timer = loop.call_later(self._delay_s, self._sync_late, loop, recording)
        return True

    def _sync_late(self, loop: asyncio.AbstractEventLoop, recording: Recording) -> None:
        self._timer = None
        if recording.append_position == recording.recorded_position:
            return
        if self._ctx.notified_commit_position > recording.recorded_position:
            self._pause_s = PAUSE_MIN_S
        else:  # nothing of what waited is committed: this member may be what the majority lacks
            self._not_before_s = loop.time() + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        try:
            recording.flush()
        except ClusterError as error:
            self._on_failed(error)
