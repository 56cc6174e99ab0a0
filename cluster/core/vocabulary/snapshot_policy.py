"""How old the newest snapshot may become before a leader has another one taken: see `snapshot_schedule`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True, frozen=True, kw_only=True)
class SnapshotPolicy:
    """The limits. A limit of 0 is none."""

    interval_ns: int = 0
    """The age of the newest snapshot, by cluster time; without one, the age of the log."""
    log_bytes: int = 0
    """How much committed log there is after the newest snapshot; without one, in all."""

    @property
    def is_on(self) -> bool:
        """Whether snapshots are taken that nobody asked for."""
        return bool(self.interval_ns or self.log_bytes)


ON_REQUEST_ONLY: Final = SnapshotPolicy()
