"""The dialer's end of an archive connection, on a transport that only remembers what it was told."""

from __future__ import annotations

import asyncio

from trimaran.archive.net.connection import RECEIVE_BYTES, STREAM_BUFFER_BYTES, ArchiveConnection
from trimaran.service_api.endpoint import Endpoint


class Transport(asyncio.Transport):
    """Says whether it is to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading_paused = False

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


async def test_stream_is_bounded_while_its_reader_is_about_to_run() -> None:
    """A loop may receive many times before it lets the reader run that the first arrival has woken."""
    transport, connection = Transport(), ArchiveConnection(Endpoint("127.0.0.1", 1), timeout_s=1)
    connection.connection_made(transport)
    connection.is_stream = True
    reader = asyncio.create_task(connection.wait_for_data(None))
    await asyncio.sleep(0)

    arrival_count = 0
    while not transport.is_reading_paused and arrival_count < 100:
        connection.get_buffer(-1)
        connection.buffer_updated(RECEIVE_BYTES)
        arrival_count += 1
    await reader

    assert STREAM_BUFFER_BYTES < len(connection.buffer) <= STREAM_BUFFER_BYTES + RECEIVE_BYTES
    connection.buffer.clear()
    reader = asyncio.create_task(connection.wait_for_data(None))
    await asyncio.sleep(0)
    assert not transport.is_reading_paused
    reader.cancel()
