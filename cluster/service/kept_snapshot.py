"""Snapshots that are kept in memory: what a service has written, and the same to be loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from trimaran.service_api.payloads import plain_bytes


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
