"""Echo traffic of one session: closed loop (a fixed number in flight) or open loop (a fixed rate).

A message begins with its sequence number, int64, little endian; the rest is zeros. Replies must come in
order, each
once: anything else ends the run, for a benchmark of wrong answers is worth nothing.

A closed loop sends the next message when a reply comes, so a stall of the cluster stops the traffic and shows
in few latencies. An open loop sends at the intended times whatever happens, and measures from those: a stall
counts for every message that should have gone out meanwhile.
"""

from __future__ import annotations

import asyncio
import struct
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from client import ClusterClient
from service_api.errors import ClusterError
from service_api.wire.session import EventCode

from .ticker import Ticker

SEQUENCE: Final = struct.Struct("<q")

_NANOS_PER_SECOND: Final = 1_000_000_000


class LoadError(ClusterError):
    """The cluster did not answer as an echo does."""


@dataclass(slots=True)
class Phase:
    """One run of messages and what was measured; 8 bytes a message in each array."""

    first: int
    """The sequence number of its first message."""
    message_limit: int
    sent_at_ns: array[int] = field(default_factory=lambda: array("q"))
    """By message: when it was offered, or, open loop, when it should have been."""
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    send_lags_ns: array[int] = field(default_factory=lambda: array("q"))
    """Open loop: how late messages were offered; the load generator's own share of the latencies."""
    started_ns: int = 0
    ended_ns: int = 0


class WaitingLoad:
    """What waits for replies, and gives up when something goes wrong."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._error: ClusterError | None = None

    def fail(self, reason: str) -> None:
        """Give up at the next wait."""
        self._error = self._error or LoadError(reason)
        self._wake.set()

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._wake.clear()
            self._check()
            await self._wake.wait()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


class EchoLoad(WaitingLoad):
    """Makes the traffic; the egress listener of its own session."""

    def __init__(self, *, payload_length: int, inflight: int, rate_per_s: float | None) -> None:
        super().__init__()
        self._filler = bytes(payload_length - SEQUENCE.size)
        self._inflight = inflight
        self._rate_per_s = rate_per_s
        self._cluster: ClusterClient | None = None
        self._phase = Phase(0, 0)
        self._sent = 0
        self._received = 0
        self._is_direct = False
        """Whether `on_message` sends the next message itself; False while a coroutine does."""

    @property
    def received_count(self) -> int:
        """Replies of the current phase."""
        return self._received - self._phase.first

    async def run(self, cluster: ClusterClient, message_count: int) -> Phase:
        """Send messages and wait for their replies.

        Raises:
            LoadError: the replies are not those of an echo, or the session did not last.
        """
        self._cluster = cluster
        phase = self._phase = Phase(self._sent, message_count)
        if message_count:
            phase.started_ns = time.monotonic_ns()
            if self._rate_per_s is None:
                await self._send_closed_loop(cluster, phase)
            else:
                await self._send_open_loop(cluster, phase, self._rate_per_s)
            await self._wait_for(lambda: self.received_count == message_count)
            phase.ended_ns = time.monotonic_ns()
        return phase

    # The listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take a reply and, in a closed loop, send the next message."""
        now_ns = time.monotonic_ns()
        (sequence,) = SEQUENCE.unpack_from(payload)
        received = self._received
        if sequence != received:
            self.fail(f"reply out of order: sequence={sequence} expected={received}")
        self._received = received = received + 1
        phase = self._phase
        phase.latencies_ns.append(now_ns - phase.sent_at_ns[sequence - phase.first])
        sent = self._sent
        if self._is_direct and sent - phase.first < phase.message_limit:
            cluster = self._cluster
            if cluster is not None and cluster.try_offer(SEQUENCE.pack(sent) + self._filler):
                phase.sent_at_ns.append(now_ns)
                self._sent = sent + 1
            else:
                self._is_direct = False
                self._wake.set()
        elif received - phase.first == phase.message_limit:
            self._wake.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Give up: replies may be lost, and figures over a fail-over are another benchmark's."""
        self.fail(f"leader changed: {leadership_term_id=} {leader_member_id=}")

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Give up when the session ends."""
        if code is not EventCode.OK:
            self.fail(f"session event: code={code.name} detail={detail!r}")

    # Sending

    async def _send_closed_loop(self, cluster: ClusterClient, phase: Phase) -> None:
        limit = phase.first + phase.message_limit
        while self._sent < limit:
            # Fill the window, waiting for room where messages are large; then replies keep it full.
            while self._sent < limit and self._sent - self._received < self._inflight:
                phase.sent_at_ns.append(time.monotonic_ns())
                payload = SEQUENCE.pack(self._sent) + self._filler
                self._sent += 1
                await cluster.offer(payload)
            self._is_direct = True
            await self._wait_for(lambda: not self._is_direct or self._sent == limit)
            self._is_direct = False

    async def _send_open_loop(self, cluster: ClusterClient, phase: Phase, rate_per_s: float) -> None:
        period_ns = _NANOS_PER_SECOND / rate_per_s
        limit = phase.message_limit
        sent = 0
        with Ticker(1 / rate_per_s) as ticker:
            phase.started_ns = start_ns = time.monotonic_ns()
            while sent < limit:
                now_ns = time.monotonic_ns()
                due = min(int((now_ns - start_ns) / period_ns) + 1, limit)
                while sent < due:
                    intended_ns = start_ns + int(sent * period_ns)
                    phase.sent_at_ns.append(intended_ns)
                    phase.send_lags_ns.append(now_ns - intended_ns)
                    payload = SEQUENCE.pack(self._sent) + self._filler
                    self._sent += 1
                    sent += 1
                    if not cluster.try_offer(payload):
                        await cluster.offer(payload)
                        now_ns = time.monotonic_ns()
                self._check()
                await ticker.wait()
