"""The service under the echo benchmark: every message goes back as it came."""

from __future__ import annotations

from ...service_api import ClientSession, ClusteredService


class EchoService(ClusteredService):
    """Sends each message back to the session that sent it; has no state."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Echo."""
        session.offer(payload)

    def on_query(self, payload: memoryview) -> bytes:
        """Echo."""
        return bytes(payload)
