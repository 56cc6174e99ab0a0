"""The entry before which a member stands still, because its service fails there each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HELD_ADVICE: Final = (
    "give the member what it lacks and restart it; where a majority stands there, see the entry "
    "(`trimaran archive grep DIR --log`) and skip it: `trimaran log skip --log-position POSITION --confirm`"
)
"""What an operator can do about it."""


DIFFERENCE_ADVICE: Final = (
    "look at the range on each member (`trimaran archive grep DIR --log`, `trimaran archive diff`), start members that "
    "are down, or say whose is valid: `trimaran log trust --member ID --confirm`"
)
"""The advice where the logs of members differ and no majority of independent copies agrees."""


@dataclass(slots=True, frozen=True)
class HeldEntry:
    """The entry before which a member stands still, because its service fails there."""

    log_position: int
    """Where the entry ends."""
    callback: str
    """The callback that failed."""
    failure: str
    """What it raised."""

    def __str__(self) -> str:
        return f"the entry that ends at log_position={self.log_position}, where {self.callback} raised {self.failure}"
