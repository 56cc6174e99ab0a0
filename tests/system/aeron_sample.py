"""The application that wrote the Aeron samples, as a Python service: what a service author has to port, in small.

It counts what it is given, does what messages that begin with `!` ask for, and writes the snapshot that the Java
service wrote, but for the last number of it. So its state can be held against the one in the samples' own snapshots,
at the same log position. Requests change the state, too: each adds its bytes, and the answer is the state.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import asdict, dataclass
from typing import Final

from trimaran.service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)
from trimaran.service_api.types import TICKS_PER_MS, TimeUnit

_STATE: Final = struct.Struct("<8s7q8x")
_MAGIC: Final = b"APPBLOCK"
_REPEATING_TIMER: Final = 7
_REPEATS: Final = 50
_OFFERING_TIMERS: Final = (3, 13, 23)


@dataclass(slots=True)
class Counts:
    """The replicated state."""

    messages: int = 0
    """Of clients and of services."""
    payload_bytes: int = 0
    timers: int = 0
    offers: int = 0
    opened: int = 0
    closed: int = 0
    service_messages: int = 0


class AeronSampleService(ClusteredService):
    """Counts messages, timers, sessions; offers messages and sets timers when a message asks for it."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.repeated = 0
        self.requests = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the state of the Java service, or of this one."""
        self.cluster = cluster
        if snapshot is not None:
            messages = [message async for message in snapshot]
            magic, *counts = _STATE.unpack(messages[0])
            assert magic == _MAGIC
            assert messages[-1].endswith(b"end of state")
            self.counts = Counts(*counts)
            self.repeated = _REPEATS
        self._tell("started", time_unit=cluster.time_unit.name, is_loaded=snapshot is not None)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write what the Java service writes: five messages, one of them of 5,000 bytes and one of none."""
        state = _STATE.pack(_MAGIC, *asdict(self.counts).values())
        for message in (state, state.ljust(5000, b"."), b"", b"A", b"python end of state"):
            await snapshot.offer(message)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A session is opened."""
        self.counts.opened += 1

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """A session is closed."""
        self.counts.closed += 1

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Count it, and do what it asks for."""
        self._count(payload)
        if bytes(payload[:1]) == b"!":
            self._obey(session, timestamp, bytes(payload).decode("ascii", "replace"))

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Add to the state, and answer with it."""
        self.requests += 1
        self._count(payload)
        return json.dumps(asdict(self.counts)).encode()

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """A message of a service."""
        self._count(payload)
        self.counts.service_messages += 1

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A timer fired: one of them goes on for a while, some offer."""
        self.counts.timers += 1
        service_id, service_count = self._place()
        if correlation_id == _REPEATING_TIMER:
            self.repeated += 1
            if self.repeated < _REPEATS:
                self.cluster.schedule_timer(correlation_id, timestamp + 40 * self._ticks_per_ms())
        if correlation_id in _OFFERING_TIMERS and correlation_id % service_count == service_id:
            self._offer(40)

    def on_new_leadership_term_event(self, *, leadership_term_id: int, log_position: int, **fields: object) -> None:
        """Say what the state is where a leader begins: the first one of this cluster's own ends the replay."""
        time_unit = fields["time_unit"]
        assert isinstance(time_unit, TimeUnit)
        self._tell("term", leadership_term_id=leadership_term_id, term_unit=time_unit.name)

    def _place(self) -> tuple[int, int]:
        return 0, 1

    def _ticks_per_ms(self) -> int:
        return TICKS_PER_MS[self.cluster.time_unit]

    def _count(self, payload: memoryview) -> None:
        self.counts.messages += 1
        self.counts.payload_bytes += len(payload)

    def _obey(self, session: ClientSession, timestamp: int, command: str) -> None:
        match command.split():
            case ["!timer", timer_id, delay_ms]:
                self.cluster.schedule_timer(int(timer_id), timestamp + int(delay_ms) * self._ticks_per_ms())
            case ["!cancel", timer_id]:
                self.cluster.cancel_timer(int(timer_id))
            case ["!offer", count, length] | ["!burst", _, count, length]:
                for index in range(int(count)):
                    self._offer(int(length) and int(length) + 3 * (index % 7))
            case ["!close", *_]:
                session.close()
            case _:
                pass

    def _offer(self, length: int) -> None:
        """Offer a text that depends on how many came before, as the Java service does."""
        number = self.counts.offers
        self.counts.offers += 1
        text = bytes(97 + (7 * number + 13 * index) % 26 for index in range(length))
        head = f"service{self._place()[0]} offer{number} ".encode()[:length]
        self.cluster.offer(head + text[len(head) :])

    def _tell(self, event: str, **facts: object) -> None:
        """Print a line that the test reads."""
        place = {"service_id": self._place()[0], "log_position": self.cluster.log_position}
        line = {"event": f"aeron_sample.{event}", **facts, **place, **asdict(self.counts)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class FirstOfTwo(AeronSampleService):
    """Service 0 of the sample with two."""

    def _place(self) -> tuple[int, int]:
        return 0, 2


class SecondOfTwo(AeronSampleService):
    """Service 1 of the sample with two."""

    def _place(self) -> tuple[int, int]:
        return 1, 2
