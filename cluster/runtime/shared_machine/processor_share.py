"""Lowers the CPU share of a member that copies a log, for the members that serve on the same machine.

The problem: where members share a machine, one that catches up is busy for seconds without a pause, and what the others
do for each message waits for a tick of the kernel's scheduler, 4 ms, again and again. The idea: say to the kernel that
this process may wait. Linux shares a busy processor out among sessions first ("autogroups"), so that what counts is how
nice the session is; that may be raised and lowered again, down to 0, without any privilege.

Only a process that leads its session does so, as a daemon, a service or a container's first process does: another
session is not this process's to slow down. Where there are no autogroups, or control groups with shares of their own,
nothing changes. It only matters where processors are short: a member alone with its log copies as quickly as ever.

Its turns are short ones meanwhile (since Linux 6.12 a task may say how long): who wakes up has to wait for the end of
the slice that has begun, and where that is not over the kernel looks again with its next tick only.

A copy must not starve: where everybody else wants all there is, the log could grow faster than it is copied. So a copy
that goes slowly waits for nobody any more.

Rejected: the nice value of the process, which one without privileges never gets back and which counts within its
session only; SCHED_BATCH and SCHED_IDLE, which count there only, too, and did nothing to the others' latencies.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...core import effects as fx
from ...core.vocabulary.election_state import ElectionState

COPYING_NICE: Final = 10
"""How nice a member is that copies a log: its share is a ninth of another's where both want all of a processor."""

COPYING_SLICE_NS: Final = 100_000
"""How long a turn of its loop's thread is then, the least that Linux takes; the usual is 1.4 ms on two cores."""

_COPYING: Final = frozenset(
    (
        ElectionState.FOLLOWER_LOG_REPLICATION,
        ElectionState.FOLLOWER_CATCHUP_INIT,
        ElectionState.FOLLOWER_CATCHUP_AWAIT,
        ElectionState.FOLLOWER_CATCHUP,
    )
)
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_THREADS: Final = Path("/proc/self/task")
_RETRY_S: Final = 0.15
"""The kernel takes a change of an unprivileged process every 100 ms."""

_SLICE: Final = struct.Struct("<IIQiIQQQ")
"""size, policy, flags, nice, priority, runtime, which is the slice without real time, deadline, period. Source:
`struct sched_attr` of sched_setattr(2)."""

_SET_SLICE_CALLS: Final = {"x86_64": 314, "aarch64": 274}
"""The number of sched_setattr(2) by machine: C libraries before 2024 have no function for it."""

LEAST_BYTES_PER_LOOK: Final = 64 << 20
"""A copy that got less far between two looks, a second apart, is slow: a log may grow by half of that."""

SetNice = Callable[[int], bool]
"""Sets a nice value; False where the kernel wants to be asked again a little later."""


def set_session_nice(nice: int, *, path: Path = _AUTOGROUP) -> bool:
    """Set how nice the session of this process is, from 0 to 19, where it is its own and the kernel has such a thing.

    The turns of the calling thread become short ones, too, and with 0 what they usually are.

    False where the kernel is to be asked again a little later.
    """
    if os.getsid(0) != os.getpid():
        return True
    set_slice(COPYING_SLICE_NS if nice else 0)
    try:
        with path.open("r+") as autogroup:
            autogroup.write(str(nice))
    except BlockingIOError:
        return False
    except OSError:
        pass  # no such thing here: then there is nothing to be had
    return True


def set_slice(slice_ns: int) -> bool:
    """Set how long the turns of this thread on a processor are; 0: as long as the kernel finds good.

    With 0 those of every thread of the process, too: the ones that began meanwhile have them from this one.
    False where this is not done. Before 6.12 Linux takes the number and does nothing with it.
    """
    number = _SET_SLICE_CALLS.get(os.uname().machine) if os.uname().sysname == "Linux" else None
    if number is None:
        return False
    try:
        import ctypes  # not every Python has it

        call = ctypes.CDLL(None).syscall
        threads = [0] if slice_ns else [int(each.name) for each in _THREADS.iterdir()]
        done = [_set_slice_of(thread, slice_ns, lambda *arguments: call(number, *arguments)) for thread in threads]
    except (ImportError, OSError, AttributeError):
        return False  # a system that does not let it: then there is nothing to be had
    return all(done)


def _set_slice_of(thread: int, slice_ns: int, call: Callable[[int, bytes, int], int]) -> bool:
    if os.sched_getscheduler(thread) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    return call(thread, _SLICE.pack(_SLICE.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0), 0) == 0


class ProcessorShare:
    """How much of the processor this member claims: less while it copies a log than while it takes part in a term."""

    def __init__(self, set_nice: SetNice) -> None:
        self._set_nice = set_nice
        self._nice = 0
        """What is wanted; what the kernel knows, unless a retry is due."""
        self._retry: asyncio.TimerHandle | None = None
        self._is_slow = False
        """Whether the copy under way went slowly; until the member takes part in a term."""
        self._looked_position: int | None = None

    def __repr__(self) -> str:
        return f"<ProcessorShare nice={self._nice}{'' if self._retry is None else ' retrying'}>"

    def on_state_changed(self, effect: fx.StateChanged) -> None:
        """Claim what the new state of the election is worth."""
        if effect.new is ElectionState.CLOSED:
            self._is_slow = False
        self._looked_position = None
        self._want(COPYING_NICE if effect.new in _COPYING and not self._is_slow else 0)

    def look(self, append_position: int) -> None:
        """See, once a second, how far the copy has come."""
        if self._nice and self._looked_position is not None:
            self._is_slow = append_position - self._looked_position < LEAST_BYTES_PER_LOOK
            if self._is_slow:
                self._want(0)
        self._looked_position = append_position

    def close(self) -> None:
        """Claim all again, for code that goes on in this process."""
        self._want(0)
        if self._retry is not None:
            self._retry.cancel()

    def _want(self, nice: int) -> None:
        if nice != self._nice:
            self._nice = nice
            self._apply()

    def _apply(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        is_taken = self._set_nice(self._nice)
        self._retry = None if is_taken else asyncio.get_running_loop().call_later(_RETRY_S, self._apply)
