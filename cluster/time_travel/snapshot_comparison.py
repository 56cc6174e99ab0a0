"""Compares two snapshots, message by message, with one message of each in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from ..messages.snapshot import SERVICE_SNAPSHOT_TYPE_ID


class SnapshotComparison:
    """A `SnapshotPublication` that compares what is offered with what was recorded, and keeps the first difference."""

    def __init__(self, expected: Iterator[bytes]) -> None:
        self._expected = expected
        self._index = 0
        self._problem: str | None = None

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Compare one message."""
        self.compare([bytes(message)])

    def compare(self, messages: Iterable[bytes]) -> None:
        """Compare some messages with those that come next."""
        for message in messages:
            self._compare(message)

    def _compare(self, actual: bytes) -> None:
        expected = next(self._expected, None)
        if self._problem is None and actual != expected:
            self._problem = f"message {self._index} " + _describe(expected, actual)
        self._index += 1

    def skip_container(self) -> None:
        """Leave out what the container wrote before the service."""
        for message in self._expected:
            self._index += 1
            if int.from_bytes(message[2:4], "little") != SnapshotMarker.TEMPLATE_ID:
                continue
            marker = SnapshotMarker.decode(message)
            if marker.type_id == SERVICE_SNAPSHOT_TYPE_ID and marker.mark is SnapshotMark.END:
                return

    def finish(self) -> str | None:
        """Return what differs, once everything was offered."""
        if self._problem is None and (rest := next(self._expected, None)) is not None:
            self._problem = f"message {self._index} is missing: expected={rest[:48]!r}"
        return self._problem


def _describe(expected: bytes | None, actual: bytes) -> str:
    if expected is None:
        return f"is one too many: actual={actual[:48]!r}"
    pairs = enumerate(zip(expected, actual, strict=False))
    offset = next((index for index, (a, b) in pairs if a != b), min(len(expected), len(actual)))
    begin = max(0, offset - 16)
    return (
        f"differs at byte {offset}: expected={expected[begin : offset + 32]!r} "
        f"actual={actual[begin : offset + 32]!r} lengths={len(expected)},{len(actual)}"
    )
