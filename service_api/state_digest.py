"""The digest of a service's state as it is at one position of the log, which may be made while the log goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

LONG: Final = object()
"""Stands for a value that is too long to be shown."""


class DigestedField(NamedTuple):
    """One field of a state."""

    digest: bytes
    """16 bytes, the same in every process."""
    value: object
    """Plain dicts, lists, strings and numbers; `LONG` for many."""
    length_bytes: int
    """How long the value is in bytes."""


class StateDigest(Protocol):
    """The digest of the state that a service had when this was made."""

    @property
    def fields(self) -> Mapping[str, DigestedField]:
        """The fields by name, once `advance` has returned True."""

    def advance(self, is_late: Callable[[], bool]) -> bool:
        """Go on until it is late or all is digested; True in that case."""

    def close(self) -> None:
        """Give up what is not digested."""
