"""A stream transport without a socket: remembers what was written to it, and what was asked of it."""

from __future__ import annotations

import asyncio
from typing import Any


class FakeTransport(asyncio.Transport):
    """Stands in for the loop's transport. Nothing happens by itself: the test calls the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.waiting_bytes = 0
        """What `get_write_buffer_size` tells: how much the other side has yet to read."""
        self.is_reading_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.is_eof_written = False
        self.protocol: asyncio.BaseProtocol | None = None
        """The one that it was handed to."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def is_reading(self) -> bool:
        return not self.is_reading_paused

    def is_closing(self) -> bool:
        return self.is_closed

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_eof_written = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def take_written(self) -> bytes:
        """What was written since the last call."""
        written = bytes(self.written)
        self.written.clear()
        return written


def receive(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Let a buffered protocol receive bytes, as the loop would."""
    while data:
        buffer = memoryview(protocol.get_buffer(-1))
        assert len(buffer), "the loop needs room to receive into"
        taken = data[: len(buffer)]
        buffer[: len(taken)] = taken
        protocol.buffer_updated(len(taken))
        data = data[len(taken) :]
