"""The service under the flood scenario: one message brings back many, and a request brings back itself."""

from __future__ import annotations

import struct
from typing import Final

from ...service_api import ClientSession, ClusteredService

COUNT: Final = struct.Struct("<i")
"""The beginning of a message: how often it is to come back."""


class FanOutService(ClusteredService):
    """Sends each message back as often as it asks for; has no state."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Send it back."""
        for _ in range(COUNT.unpack_from(payload)[0]):
            session.offer(payload)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Reply with the request."""
        return bytes(payload)

    def on_query(self, payload: memoryview) -> bytes:
        """Answer with the query."""
        return bytes(payload)
