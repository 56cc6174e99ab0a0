"""Two instances of a service that are given the same entries, and in what they differ after each.

A service whose state is bytes and attributes is compared as a whole. One that writes down what each entry changes can
be compared by that, which costs as much as the entry is large and not as the state is. `typed` registers that for its
services; nothing else here knows of it.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Protocol

from .service import ClusteredService


class StatePair(Protocol):
    """Two instances, from a position on at which their states are equal."""

    def find_difference(self) -> str:
        """Say by field in what the entries since the last call have made them differ; "" if in nothing."""

    def close(self) -> None:
        """Listen no more: one of the instances is given up."""


@singledispatch
def pair_states(first: ClusteredService, second: ClusteredService) -> StatePair | None:
    """Pair two instances of one class that have the same state; None if only their whole states can be compared."""
    return None
