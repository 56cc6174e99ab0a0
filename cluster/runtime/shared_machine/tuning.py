"""All tuning for members that share a machine: one object, one setting, `shared_machine`.

The problem: members on one machine share its disk and its processors. Each member is quickest when it takes what it
can get; the cluster is quickest when a member leaves a resource to the member that somebody waits for.

The idea: five small parts, each with its own essay and its own measurement. No part changes what is durable,
committed or answered; each part changes only when something happens:

- `spare_sync`: a follower that no majority needs syncs later, so that the others have the disk;
- `processor_pressure`: a leader sends fewer and longer batches while processors are short, or while its log is copied;
- `processor_share`: a member that copies a log lowers its priority;
- `time_share`: a member whose log is copied keeps most of its loop's time for its clients;
- `idle_strategy`: a member yields the processor for a moment before its loop sleeps.

`MachineTuning` is the seam: the node, the agent, the log and the archive know its methods and nothing else of this
folder. The class itself does nothing, which is what `shared_machine=off` means: read it first.

Rejected: a switch for each part. Nobody can set them without the benchmark that each part came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....archive import Archive, Recording
from ....archive.store.replay_pace import ReplayPace
from ...core import effects as fx
from ...core.context import ConsensusContext
from ..ground.host import Host
from .idle_strategy import BackoffIdleStrategy
from .processor_pressure import ProcessorPressure
from .processor_share import ProcessorShare
from .spare_sync import SpareSync
from .time_share import TimeShare

LONG_BATCH_S: Final = 0.002
"""How long a leader collects a batch where processors are short, unless the batch before it is committed earlier.

Messages wait several times as long as this then (`processor_pressure`). While its log is being copied processors are
short in any case, where members share a machine.
"""

IDLE_YIELD_LIMIT_NS: Final = 250_000
"""How long a member stays awake after work, for work that may follow."""

REPLAY_TIME_SHARE: Final = 0.25
"""How much of its loop's time a member spends on each replay of its log, while the log grows."""


class MachineTuning:
    """How a member uses its machine. This class takes no other member into account. All calls on the event loop."""

    def flush(self, recording: Recording) -> None:
        """Ask for durability of everything appended so far, now or a little later.

        Raises:
            ArchiveError: the recording has failed or was stopped.
        """
        recording.flush()

    def flush_now(self, recording: Recording) -> None:
        """Ask for durability of everything appended so far now, also of what was to come later.

        Raises:
            ArchiveError: the recording has failed or was stopped.
        """
        recording.flush()

    def batch_delay_s(self) -> float:
        """Return how long a leader collects a batch, if the batch before it is not committed earlier. 0: no time."""
        return 0

    def make_replay_pace(self, append_position: int) -> ReplayPace | None:
        """Make what slows down a new replay of a recording that grows, and ends at `append_position` now. None: no."""
        return None

    def on_loop_shared(self, until_ns: int) -> None:
        """Note that a replay shares the loop with those who record, up to `until_ns` of the monotonic clock."""

    def on_state_changed(self, effect: fx.StateChanged) -> None:
        """Note that the election has a new state."""

    def on_worked(self, now_ns: int) -> None:
        """Note that the agent has done something, at `now_ns`."""

    def on_second(self, append_position: int) -> None:
        """Note, once a second, how far the log has come."""

    def close(self) -> None:
        """Undo every request to the kernel."""


class SharedMachineTuning(MachineTuning):
    """A member that leaves the disk and the processors to other members where somebody waits for those."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        host: Host,
        *,
        is_disk_shared: bool,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._monotonic_ns = host.clock.monotonic_ns
        delay_us = host.spare_sync_delay_us if is_disk_shared else 0
        self._spare_sync = SpareSync(ctx, delay_us=delay_us, on_failed=on_failed)
        self._pressure = ProcessorPressure(host.read_wait, self._monotonic_ns)
        self._share = ProcessorShare(host.set_session_nice)
        self._copied_until_ns = 0
        """Up to when a replay counts as under way that shares the loop with those who record."""

        def may_yield() -> bool:
            recording = archive.active_recording(ctx.log_recording_id)
            is_busy = recording is not None and recording.is_with_worker
            return not (is_busy or (delay_us > 0 and ctx.is_spare))

        self._idle_strategy = host.sched_yield and BackoffIdleStrategy(
            yield_limit_ns=IDLE_YIELD_LIMIT_NS,
            may_yield=may_yield,
            monotonic_ns=self._monotonic_ns,
            sched_yield=host.sched_yield,
        )

    def __repr__(self) -> str:
        return f"<SharedMachineTuning {self._spare_sync!r} {self._pressure!r} {self._share!r}>"

    def flush(self, recording: Recording) -> None:
        """Ask for durability later if no majority needs this member, otherwise now."""
        self._spare_sync.flush(recording)

    def flush_now(self, recording: Recording) -> None:
        """Ask for durability now: somebody waits for it."""
        self._spare_sync.flush_now(recording)

    def batch_delay_s(self) -> float:
        """Return `LONG_BATCH_S` where processors are short or somebody copies the log."""
        is_contended = self._pressure.is_short() or self._monotonic_ns() < self._copied_until_ns
        return LONG_BATCH_S if is_contended else 0

    def make_replay_pace(self, append_position: int) -> ReplayPace:
        """Make what keeps a replay to its share of the loop's time."""
        return TimeShare(REPLAY_TIME_SHARE, append_position, on_shared=self.on_loop_shared)

    def on_loop_shared(self, until_ns: int) -> None:
        """Collect longer batches until then."""
        self._copied_until_ns = until_ns

    def on_state_changed(self, effect: fx.StateChanged) -> None:
        """Claim less of the processors while the log is copied to this member."""
        self._share.on_state_changed(effect)

    def on_worked(self, now_ns: int) -> None:
        """Stay awake for a moment if work comes often."""
        if self._idle_strategy is not None:
            self._idle_strategy.worked(now_ns)

    def on_second(self, append_position: int) -> None:
        """See how far a copy has come: a slow copy gets the processors back."""
        self._share.look(append_position)

    def close(self) -> None:
        """Claim all of the processors again."""
        self._share.close()
