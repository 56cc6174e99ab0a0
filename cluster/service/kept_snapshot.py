"""Snapshots that are kept in memory: what a service has written, and the same to be loaded.

Also how a service writes or loads one where nothing may wait: between two entries of a member, or in a test.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from ...service_api import ClusteredService, LocalProtocolError, SnapshotPublication
from ...service_api.payloads import plain_bytes

_STEP_LIMIT: Final = 10_000
"""How often a coroutine may let others run, of whom there are none."""


class KeptPublication:
    """Keeps what a service writes to a snapshot, up to a limit: beyond it, writing fails."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.messages: list[bytes] = []
        self._limit_bytes, self._length_bytes = limit_bytes, 0

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Keep one message."""
        self.messages.append(bytes(plain_bytes("message", message)))
        self._length_bytes += len(self.messages[-1])
        if self._limit_bytes is not None and self._length_bytes > self._limit_bytes:
            raise LocalProtocolError(f"snapshot too long to be kept: limit_bytes={self._limit_bytes}")


class KeptImage:
    """A snapshot to load, from its messages."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._left = iter(messages)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._left:
            yield message


def write_snapshot(service: ClusteredService, publication: SnapshotPublication) -> None:
    """Have a service write its state, without an event loop.

    Raises:
        LocalProtocolError: it writes none, or waits for something while it writes.
    """
    result = service.on_take_snapshot(publication)
    if inspect.isawaitable(result):
        run_without_waiting(result, "on_take_snapshot")


def state_of(
    service: ClusteredService,
    *,
    write: Callable[[ClusteredService, SnapshotPublication], None] = write_snapshot,
    limit_bytes: int | None = None,
) -> object:
    """Return what stands for the state: its `state_hash`, or the messages of a snapshot; None where it has neither.

    Raises:
        Exception: what the service raises.
        LocalProtocolError: the snapshot is longer than the limit, or `write_snapshot` raised it.
    """
    if service.has_state_hash:
        return service.state_hash()
    if not service.takes_snapshots:
        return None
    publication = KeptPublication(limit_bytes)
    write(service, publication)
    return publication.messages


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
