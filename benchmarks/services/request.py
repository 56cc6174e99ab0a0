"""The service under the request benchmark: every request is its own reply, and is counted."""

from __future__ import annotations

import struct
from typing import Final

from trimaran.service_api import ClientSession, CloseReason, ClusteredService, LocalProtocolError

COUNTS: Final = struct.Struct("<qq")
"""The reply to an empty request: requests of this session that ran, and how many of them had run before."""

_SEQUENCE: Final = struct.Struct("<q")


class RequestService(ClusteredService):
    """Replies with the request. A session's requests begin with 0, 1, 2, ...: one that is not new ran twice."""

    def __init__(self) -> None:
        self._ran: dict[int, int] = {}
        self._ran_twice: dict[int, int] = {}

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Refuse: this service is for requests."""
        raise LocalProtocolError(f"a message where requests are expected: length={len(payload)}")

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes | memoryview:
        """Count, and give back."""
        ran = self._ran.get(session.id, 0)
        if not payload:
            return COUNTS.pack(ran, self._ran_twice.get(session.id, 0))
        (sequence,) = _SEQUENCE.unpack_from(payload)
        if sequence != ran:
            self._ran_twice[session.id] = self._ran_twice.get(session.id, 0) + 1
        self._ran[session.id] = ran + 1
        return payload

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Forget a session."""
        self._ran.pop(session.id, None)
        self._ran_twice.pop(session.id, None)
