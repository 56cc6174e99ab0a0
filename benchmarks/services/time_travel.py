"""The services under the time-travel benchmark: one counts and says nothing, one answers each message."""

from __future__ import annotations

import json
import struct
from typing import Final

from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

KEY_COUNT: Final = 1000
KEY_AND_AMOUNT: Final = struct.Struct("<qq")
"""What a message begins with."""


class SumService(ClusteredService):
    """Adds the amount of each message to the sum of its key."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.message_count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the sums."""
        if snapshot is not None:
            async for message in snapshot:
                pairs, self.message_count = json.loads(message)
                self.sums = dict(pairs)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the sums."""
        await snapshot.offer(json.dumps([[*self.sums.items()], self.message_count]).encode())

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Add."""
        key, amount = KEY_AND_AMOUNT.unpack_from(payload)
        self.sums[key] = self.sums.get(key, 0) + amount
        self.message_count += 1


class AnsweringSumService(SumService):
    """Adds, and tells the client what the sum is now."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Add, and answer."""
        super().on_session_message(session, timestamp, payload)
        session.offer(b"%d" % self.message_count)


class RoundingSumService(AnsweringSumService):
    """The same, but it neither counts nor adds what one key of a thousand gets: soon every answer is another one."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Add, and answer."""
        if KEY_AND_AMOUNT.unpack_from(payload)[0] == 7:
            session.offer(b"seven")
            return
        super().on_session_message(session, timestamp, payload)
