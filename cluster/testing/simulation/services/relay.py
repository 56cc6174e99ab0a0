"""A second service of simulated members: it answers no client, and offers messages to the log.

What clients send, and its own timers, have it offer messages to the log. Each holds the number that it was offered as,
so one that is lost, doubled or out of place is seen at once, on every member and across restarts. Its timers have the
same ids as those of `Registers`, the service beside it, if they meet at all.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Final

from .....service_api import (
    BackPressureError,
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)

RELAY: Final = "relay"
"""A second service runs on every member, and talks to the log. Drawn once a seed."""

RELAY_CHANCE: Final = 0.5
SERVICE_ID: Final = 1
_TIMER_COUNT: Final = 4
_FAULT_LIMIT: Final = 20
_LONGEST_PADDING_BYTES: Final = 2_000


class Relay(ClusteredService):
    """Offers messages to the log, and expects each of them once, in order."""

    cluster: Cluster

    def __init__(self) -> None:
        self.faults: list[str] = []
        """What this member was given and should not have been; at most 20 are kept."""
        self.offered_count = 0
        self.received_count = 0
        self._timers: dict[int, int] = {}
        """Deadlines by correlation id."""
        self._digest = bytes(8)

    def __repr__(self) -> str:
        return f"<Relay offered={self.offered_count} received={self.received_count} faults={len(self.faults)}>"

    def state_hash(self) -> int:
        """A number that is the same on members which were given the same entries."""
        return int.from_bytes(self._digest, "little")

    # --- log entries

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Note the session."""
        self._absorb("open", session.id, timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Note the end of the session."""
        self._absorb("close", session.id, timestamp)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Offer something, or set, move or cancel a timer, as the state has it."""
        self._absorb("message", session.id, timestamp, bytes(payload))
        chance = self._digest[0]
        if chance < 70:
            for _ in range(1 + chance % 3):
                self._offer()
        elif chance < 100:
            correlation_id = self._digest[1] % _TIMER_COUNT
            deadline = timestamp + self._digest[2] - 20  # some are past
            self._timers[correlation_id] = deadline
            self.cluster.schedule_timer(correlation_id, deadline)
        elif chance < 110:
            correlation_id = self._digest[1] % _TIMER_COUNT
            was_set = self._timers.pop(correlation_id, None) is not None
            if self.cluster.cancel_timer(correlation_id) is not was_set:
                self._report(f"cancel_timer: correlation_id={correlation_id} expected={was_set}")

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Expect the next message; now and then, offer another one because of it."""
        self._absorb("service message", service_id, timestamp, bytes(payload))
        expected = self.received_count + 1
        number = int.from_bytes(payload[:8], "little")
        if (service_id, number) != (SERVICE_ID, expected) or number > self.offered_count:
            self._report(
                f"message number={number} of service={service_id} expected={expected} offered={self.offered_count}"
            )
        self.received_count = number
        if self._digest[0] < 40:
            self._offer()

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Offer something; a timer that was cancelled while its event was on the way comes all the same."""
        self._absorb("timer", correlation_id, timestamp)
        self._timers.pop(correlation_id, None)
        if correlation_id >= _TIMER_COUNT:
            self._report(f"timer: correlation_id={correlation_id} is not of this service")
        self._offer()

    # --- snapshots

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write everything as one message."""
        state = [self._digest.hex(), self.offered_count, self.received_count, [*self._timers.items()]]
        await snapshot.offer(json.dumps(state).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        self.cluster = cluster
        if snapshot is None:
            return
        async for message in snapshot:
            digest, self.offered_count, self.received_count, timers = json.loads(message)
            self._digest, self._timers = bytes.fromhex(digest), dict(timers)

    # --- inside

    def _offer(self) -> None:
        number = self.offered_count + 1
        padding_length = self._digest[4] if self._digest[5] < 230 else self._digest[4] * _LONGEST_PADDING_BYTES >> 8
        try:
            self.cluster.offer(number.to_bytes(8, "little") + bytes(padding_length))
        except BackPressureError:
            self._absorb("refused", number)
        else:
            self.offered_count = number

    def _absorb(self, *what: object) -> None:
        data = repr((self.cluster.log_position, *what)).encode()
        self._digest = blake2b(self._digest + data, digest_size=8).digest()

    def _report(self, fault: str) -> None:
        if len(self.faults) < _FAULT_LIMIT:
            self.faults.append(fault)
