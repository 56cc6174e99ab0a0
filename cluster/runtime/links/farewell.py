"""The end of a client's connection that was told why it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LINGER_S: Final = 10.0
"""How long a connection that ends may take to read what it was sent."""


class FarewellHub(Protocol):
    """What ending connections share."""

    farewells: dict[asyncio.Transport, None]

    @property
    def free_view(self) -> memoryview:
        """Where the next connection receives."""


class Farewell(asyncio.BufferedProtocol):
    """A connection that ends, while its client reads the last message: what still comes is dropped.

    Closing at once would reset the connection where something of the client is unread, and the reset would overtake
    the message.
    """

    def __init__(
        self, transport: asyncio.Transport, hub: FarewellHub, on_lost: Callable[[Exception | None], None]
    ) -> None:
        self._hub = hub
        self._on_lost = on_lost
        self._transport = transport
        hub.farewells[transport] = None
        self._deadline = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for what is dropped."""
        return self._hub.free_view

    def buffer_updated(self, nbytes: int) -> None:
        """Drop it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left."""
        self._deadline.cancel()
        self._hub.farewells.pop(self._transport, None)
        self._on_lost(exc)
