"""What the protocol asks its shell to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Dial:
    """Connect to `endpoint`; answer with `on_connected` or `on_disconnected` of `connection_id`."""

    connection_id: int
    endpoint: str


@dataclass(slots=True)
class Disconnect:
    """Give the connection up, or the dial that would make it; nothing more is heard of it."""

    connection_id: int
    reason: str


Effect = Dial | Disconnect
