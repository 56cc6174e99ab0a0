"""Compares two snapshots, message by message, with one message of each in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...service_api.service_texts import ServiceTexts
from ...service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from ..messages.snapshot import SERVICE_SNAPSHOT_TYPE_ID


class SnapshotComparison:
    """A `SnapshotPublication` that compares what is offered with what was recorded, and keeps the first difference.

    Args:
        expected: The messages that were recorded.
        texts: The words for the messages of the service that writes.
    """

    def __init__(self, expected: Iterator[bytes], texts: ServiceTexts | None = None) -> None:
        self._expected = expected
        self._texts = ServiceTexts() if texts is None else texts
        self._header: bytes | None = None
        """The first message of the service."""
        self._index = 0
        self._problem: str | None = None

    def compare(self, messages: Iterable[bytes]) -> None:
        """Compare some messages of the container with those that come next."""
        for message in messages:
            self._compare(message)

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Compare one message of the service."""
        data = bytes(message)
        self._header = data if self._header is None else self._header
        self._compare(data)

    def _compare(self, actual: bytes) -> None:
        expected = next(self._expected, None)
        if self._problem is None and actual != expected:
            self._problem = f"message {self._index} {self._describe(expected, actual)}"
        self._index += 1

    def _describe(self, expected: bytes | None, actual: bytes) -> str:
        told = None
        if self._header is not None and expected is not None:
            told = self._texts.snapshot_message(self._header, expected, actual)
        return _describe(expected, actual) if told is None else f"differs: {told}"

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
