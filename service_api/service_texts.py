"""The words for what a service gets and gives, asked for where two instances, members or versions of it differ.

A service sends and keeps bytes. Whose messages are classes can say more: their names, their fields, and which method
handles them. `typed` registers that for its services; nothing else here knows of it.
"""

from __future__ import annotations

from functools import singledispatch

from .service import ClusteredService


class ServiceTexts:
    """The words of a service whose payloads are bytes: it has none."""

    def message(self, payload: bytes) -> str | None:
        """Show a payload that the service gets or gives as a message; None if it is no known one."""
        return None

    def difference(self, expected: bytes, actual: bytes) -> str | None:
        """Say by field in what two messages differ; None unless both are known ones."""
        return None

    def handler(self, payload: bytes) -> str | None:
        """Name the method that handles a message, with file and line; None if it is not known."""
        return None

    def state(self) -> dict[str, str] | None:
        """Show the state of the service by field, of long values the size and the beginning; None without fields."""
        return None

    def states(self, expected: ClusteredService, actual: ClusteredService) -> str | None:
        """Say by field in what the states of two services differ, "" if in nothing; None if they have no fields."""
        return None

    def snapshot_message(self, header: bytes, expected: bytes, actual: bytes) -> str | None:
        """Say by field in what two messages of a snapshot differ, whose first is `header`; None if it has no fields."""
        return None


@singledispatch
def texts_of(service: ClusteredService) -> ServiceTexts:
    """Return what shows the messages of a service."""
    return ServiceTexts()
