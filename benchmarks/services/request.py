"""The service under the request benchmark: every request is its own reply, and is counted."""

from __future__ import annotations

import struct
from typing import Final

from ...service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    LocalProtocolError,
    SnapshotImage,
    SnapshotPublication,
)

COUNTS: Final = struct.Struct("<qq")
"""The reply to an empty request: requests of this session that ran, and how many of them had run before."""

_SEQUENCE: Final = struct.Struct("<q")
_KEPT: Final = struct.Struct("<qqq")
"""In a snapshot, for each session: its id, and its counts."""


class RequestService(ClusteredService):
    """Replies with the request. A session's requests begin with 0, 1, 2, ...: one that is not new ran twice."""

    def __init__(self) -> None:
        self._ran: dict[int, int] = {}
        self._ran_twice: dict[int, int] = {}

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the counts."""
        if snapshot is not None:
            async for message in snapshot:
                session_id, ran, ran_twice = _KEPT.unpack(message)
                self._ran[session_id], self._ran_twice[session_id] = ran, ran_twice

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the counts."""
        for session_id, ran in self._ran.items():
            await snapshot.offer(_KEPT.pack(session_id, ran, self._ran_twice.get(session_id, 0)))

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
