"""Snapshots that are kept in memory: what a service has written, and the same to be loaded.

Also how a service writes or loads one where nothing may wait: between two entries of a member, or in a test.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from typing import Any, Final

from ...service_api import ClusteredService, LocalProtocolError, SnapshotPublication
from ...service_api.payloads import plain_bytes

_STEP_LIMIT: Final = 10_000
"""How often a coroutine may let others run, of whom there are none."""


class KeptPublication:
    """Keeps what a service writes to a snapshot."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Keep one message."""
        self.messages.append(bytes(plain_bytes("message", message)))


class KeptImage:
    """A snapshot to load, from its messages."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._messages:
            yield message


def write_snapshot(service: ClusteredService, publication: SnapshotPublication) -> None:
    """Have a service write its state, without an event loop.

    Raises:
        LocalProtocolError: it writes none, or waits for something while it writes.
    """
    result = service.on_take_snapshot(publication)
    if inspect.isawaitable(result):
        run_without_waiting(result, "on_take_snapshot")


def run_without_waiting(awaitable: Awaitable[None], callback: str) -> None:
    """Run a coroutine that has nothing to wait for to its end, without an event loop.

    Raises:
        LocalProtocolError: it waits for something.
    """
    steps: Iterator[Any] = iter(awaitable.__await__())
    try:
        for _ in range(_STEP_LIMIT):
            if next(steps) is not None:
                break
    except StopIteration:
        return
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    raise LocalProtocolError(f"{callback} waits for something outside of the service")
