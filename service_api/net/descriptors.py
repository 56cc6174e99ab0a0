"""The file descriptors of a process, and who may have them."""

from __future__ import annotations

import contextlib
import os
from typing import Final, Self

from ..operating_system import optional_flag, optional_module

resource: Final = optional_module("resource")
"""None on Windows, which has no such limit."""

DESCRIPTOR_LIMIT_MAX: Final = 1 << 20
"""A higher hard limit is not made use of: some programs count through all descriptors."""

_LOWER_LIMITS: Final = (65_536, 24_576, 10_240)
"""The limits to ask for where more is refused: macOS names no limit, and has one (10,240 or more, by its version)."""
_LIMIT_WITHOUT_RESOURCE: Final = 8_192
"""The number of files that the C library of Windows can have open."""

_SPARE_COUNT: Final = 4
"""Descriptors held for the moment in which there are no others."""


class DescriptorBudget:
    """The file descriptors of this process: how many there are, who may have them, and a few in hand."""

    def __init__(self, limit: int, *, reserved: int) -> None:
        self.limit: Final = limit
        self.reserved: Final = min(reserved, limit // 2)
        """For members, operators and files: clients never have these."""
        self._spares: list[int] = []
        self.renew_spares()

    def __repr__(self) -> str:
        return f"<DescriptorBudget limit={self.limit} reserved={self.reserved}>"

    @classmethod
    def of_process(cls, *, reserved: int) -> Self:
        """Raise this process's limit as far as it may, and count with that."""
        return cls(raise_descriptor_limit(), reserved=reserved)

    @property
    def client_limit(self) -> int:
        """How many descriptors clients may have."""
        return self.limit - self.reserved

    @property
    def used_count(self) -> int:
        """How many descriptors are in use; 0 where the system does not tell."""
        try:
            return len(os.listdir("/proc/self/fd")) - 1  # the listing has one itself
        except OSError:
            return 0

    def release_spare(self) -> None:
        """Free one of those in hand."""
        if self._spares:
            os.close(self._spares.pop())

    def renew_spares(self) -> None:
        """Take again what was freed, if there is any."""
        with contextlib.suppress(OSError):
            while len(self._spares) < _SPARE_COUNT:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | optional_flag("O_CLOEXEC")))

    def close(self) -> None:
        """Free all in hand."""
        while self._spares:
            self.release_spare()


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, or as near to it as the system permits; return what holds."""
    if resource is None:
        return _LIMIT_WITHOUT_RESOURCE
    soft: int
    hard: int
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTOR_LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTOR_LIMIT_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    for limit in (wanted, *(lower for lower in _LOWER_LIMITS if soft < lower < wanted)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):  # macOS has a limit below the one that it tells
            continue
        return limit
    return soft
