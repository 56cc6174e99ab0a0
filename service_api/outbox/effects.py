"""An effect that a service wants done outside the cluster: its key, and what its outbox keeps of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

E = TypeVar("E")

REASON_LIMIT_BYTES: Final = 400
"""The text of the last error that is kept of an effect that was given up; a longer one is cut."""


class EffectKey(NamedTuple):
    """Which effect it is: the same on every member, in every replay, and of no other effect of the service."""

    log_position: int
    """Of the entry whose callback added it."""
    number: int
    """How many effects this callback had added before."""

    def __str__(self) -> str:
        """Return the key for idempotence, to be given to the receiver."""
        return f"{self.log_position}-{self.number}"


BEGINNING: Final = EffectKey(-1, 0)
"""Before every key."""


class PendingEffect(NamedTuple, Generic[E]):
    """An effect that a worker hands to its handler."""

    key: EffectKey
    payload: E
    """What the service wants done: bytes, or the class of a typed service."""


@dataclass(frozen=True)
class OutboxEntry(Generic[E]):
    """What an outbox keeps of an effect."""

    effect: E
    attempt_count: int = 0
    """The attempts after which it was given up; 0 while it is pending."""
    reason: str = ""
    """The text of the last error of an effect that was given up."""

    @property
    def is_given_up(self) -> bool:
        """Whether it waits for an operator, and no worker does it."""
        return self.attempt_count > 0


def cut_reason(text: str) -> str:
    """Return the text of an error within `REASON_LIMIT_BYTES`."""
    return text.encode(errors="replace")[:REASON_LIMIT_BYTES].decode(errors="ignore")
