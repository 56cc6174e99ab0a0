"""A second service beside a user's own: it offers the messages that the user's class draws.

The user's service is then given them in `on_service_message`, on every member, across fail-overs and restarts. A class
says with `simulation_service_message(random, number)`, a static method, what such messages are; without it there is no
second service. What the user's service offers itself is delivered in any case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
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
from .....service_api.types import TICKS_PER_MS

MESSAGE_FUNCTION: Final = "simulation_service_message"
_TIMER_ID: Final = 1
_INTERVAL_MS: Final = 40

DrawMessage = Callable[[Random, int], bytes]
"""Gives the next message, from chance and how many were offered before."""


def draw_message_of(make_service: object) -> DrawMessage | None:
    """Return what draws the messages of a second service; None where the class says nothing about them."""
    draw_message: DrawMessage | None = getattr(make_service, MESSAGE_FUNCTION, None)
    return draw_message


class Messenger(ClusteredService):
    """Offers a message at every timer event, while a client session is open."""

    cluster: Cluster

    def __init__(self, draw_message: DrawMessage) -> None:
        self.faults: list[str] = []
        """As `Relay.faults`; nothing is expected of what comes back."""
        self.offered_count = 0
        self.received_count = 0
        self._draw_message = draw_message
        self._is_set = False

    def __repr__(self) -> str:
        return f"<Messenger offered={self.offered_count} received={self.received_count}>"

    def state_hash(self) -> object:
        """What it has offered and received."""
        return self.offered_count, self.received_count, self._is_set

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Begin."""
        self._set_timer(timestamp)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """A message for the service beside this one."""

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Go on until the next timer event."""

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Offer a message."""
        self._is_set = False
        if self.cluster.client_sessions:
            random = Random(self.cluster.log_position)
            try:
                self.cluster.offer(bytes(self._draw_message(random, self.offered_count)))
                self.offered_count += 1
            except BackPressureError:
                pass
            self._set_timer(timestamp)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Count what comes back, and what the service beside this one offers."""
        self.received_count += 1

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write everything as one message."""
        await snapshot.offer(json.dumps([self.offered_count, self.received_count, self._is_set]).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        self.cluster = cluster
        if snapshot is not None:
            async for message in snapshot:
                self.offered_count, self.received_count, self._is_set = json.loads(message)

    def _set_timer(self, timestamp: int) -> None:
        if not self._is_set:
            self._is_set = True
            self.cluster.schedule_timer(_TIMER_ID, timestamp + _INTERVAL_MS * TICKS_PER_MS[self.cluster.time_unit])
