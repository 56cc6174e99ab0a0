"""A service that fails on one member alone: no memory, a full disk of its own, an interrupt.

Such a failure is no answer, since the other members do not share it. The member has to stop before it answers or
acknowledges the entry, and to deliver the entry again when it starts again. The failure comes before the service has
seen the entry or after: in the second case the state that the member drops already has it.
"""

from __future__ import annotations

import errno
from asyncio import CancelledError
from collections.abc import Callable
from random import Random
from typing import Final

FAILURES: Final[tuple[Callable[[], BaseException], ...]] = (
    MemoryError,
    lambda: OSError(errno.ENOSPC, "simulated: a file that the service writes"),
    GeneratorExit,
    KeyboardInterrupt,
    CancelledError,
)


class ServiceFailure:
    """Ends one callback of one member with an error that is none of its answers, when it is armed.

    An entry at which the member failed twice in a row is held for an operator, so no entry fails twice.
    """

    def __init__(self) -> None:
        self._is_armed = self._is_after = False
        self._make_error: Callable[[], BaseException] = MemoryError
        self._failed_position = -1
        """Where the newest entry ends at which this member failed."""

    def __repr__(self) -> str:
        return f"<ServiceFailure armed={self._is_armed} failed_position={self._failed_position}>"

    def arm(self, random: Random) -> None:
        """Fail at the next entry."""
        self._is_armed, self._is_after = True, random.random() < 0.5
        self._make_error = random.choice(FAILURES)

    def disarm(self) -> None:
        """Fail no more."""
        self._is_armed = False

    def on_entry(self, log_position: int, is_after: bool) -> None:
        """Fail if it is time to: before the service has been given the entry, and after.

        Raises:
            BaseException: one of `FAILURES`.
        """
        if self._is_armed and is_after == self._is_after and log_position > self._failed_position:
            self._is_armed, self._failed_position = False, log_position
            raise self._make_error()
