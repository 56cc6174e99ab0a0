"""A second service of simulated members: it answers no client, and offers messages to the log.

What clients send, and its own timers, have it offer messages to the log. Each holds the number that it was offered as,
so one that is lost, doubled or out of place is seen at once, on every member and across restarts. Its timers have the
same ids as those of `Registers`, the service beside it, if they meet at all.
"""

from __future__ import annotations

import json
from typing import Final

from .....service_api import (
    BackPressureError,
    ClientSession,
    CloseReason,
    Cluster,
    SnapshotImage,
    SnapshotPublication,
)
from .digesting_service import DigestingService

RELAY: Final = "relay"
"""A second service runs on every member, and talks to the log. Drawn once a seed."""

RELAY_CHANCE: Final = 0.5
SERVICE_ID: Final = 1
_TIMER_COUNT: Final = 4
_LONGEST_PADDING_BYTES: Final = 2_000


class Relay(DigestingService):
    """Offers messages to the log, and expects each of them once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.offered_count = 0
        self.received_count = 0
        self._timers: dict[int, int] = {}
        """Deadlines by correlation id."""

    def __repr__(self) -> str:
        return f"<Relay offered={self.offered_count} received={self.received_count} faults={len(self.faults)}>"

    # --- log entries

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Note the session."""
        self.absorb("open", session.id, timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Note the end of the session."""
        self.absorb("close", session.id, timestamp)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Offer something, or set, move or cancel a timer, as the state has it."""
        self.absorb("message", session.id, timestamp, payload)
        chance = self.digest[0]
        if chance < 70:
            for _ in range(1 + chance % 3):
                self._offer()
        elif chance < 100:
            correlation_id = self.digest[1] % _TIMER_COUNT
            deadline = timestamp + self.digest[2] - 20  # some are past
            self._timers[correlation_id] = deadline
            self.cluster.schedule_timer(correlation_id, deadline)
        elif chance < 110:
            correlation_id = self.digest[1] % _TIMER_COUNT
            was_set = self._timers.pop(correlation_id, None) is not None
            if self.cluster.cancel_timer(correlation_id) is not was_set:
                self.report(f"cancel_timer: correlation_id={correlation_id} expected={was_set}")

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Expect the next message; now and then, offer another one because of it."""
        self.absorb("service message", service_id, timestamp, payload)
        expected = self.received_count + 1
        number = int.from_bytes(payload[:8], "little")
        if (service_id, number) != (SERVICE_ID, expected) or number > self.offered_count:
            self.report(
                f"message number={number} of service={service_id} expected={expected} offered={self.offered_count}"
            )
        self.received_count = number
        if self.digest[0] < 40:
            self._offer()

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Offer something; a timer that was cancelled while its event was on the way comes all the same."""
        self.absorb("timer", correlation_id, timestamp)
        self._timers.pop(correlation_id, None)
        if correlation_id >= _TIMER_COUNT:
            self.report(f"timer: correlation_id={correlation_id} is not of this service")
        self._offer()

    # --- snapshots

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write everything as one message."""
        state = [self.digest.hex(), self.offered_count, self.received_count, [*self._timers.items()]]
        await snapshot.offer(json.dumps(state).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        self.cluster = cluster
        if snapshot is None:
            return
        async for message in snapshot:
            digest, self.offered_count, self.received_count, timers = json.loads(message)
            self.digest, self._timers = bytes.fromhex(digest), dict(timers)

    # --- inside

    def _offer(self) -> None:
        number = self.offered_count + 1
        padding_length = self.digest[4] if self.digest[5] < 230 else self.digest[4] * _LONGEST_PADDING_BYTES >> 8
        try:
            self.cluster.offer(number.to_bytes(8, "little") + bytes(padding_length))
        except BackPressureError:
            self.absorb("refused", number)
        else:
            self.offered_count = number

    def absorb(self, *what: object) -> None:
        """Take in the place, too."""
        super().absorb(self.cluster.log_position, *what)
