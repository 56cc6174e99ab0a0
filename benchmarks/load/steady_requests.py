"""Requests at a steady rate over one session, whatever leads: an open loop that tells the longest wait for a reply.

Requests are numbered; the service counts what ran. A request that is lost, answered with another reply or run twice
ends the run. What is due while no leader answers waits in the client, as an application's would.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ...client import ClusterClient
from ...service_api.wire.session import EventCode
from ..services.request import COUNTS
from .echo import LoadError, message_packer
from .failover import NextLeader
from .ticker import Ticker

_PAYLOAD_BYTES: Final = 32
_INTERVAL_S: Final = 1e-3
_PENDING_LIMIT: Final = 20_000
"""Requests under way at once; beyond that none are made, and the rate falls."""


class SteadyRequests:
    """Makes the traffic; the egress listener of its own session."""

    def __init__(self, *, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._pack = message_packer(_PAYLOAD_BYTES)
        self._sent = 0
        self._pending = 0
        self._last_reply_ns = 0
        self._fault: LoadError | None = None
        self._expected: NextLeader | None = None
        self.is_paused = True
        self.replied_count = 0
        self.longest_gap_ns = 0
        """The longest time between two replies since `expect_next_leader`."""

    async def run(self, cluster: ClusterClient) -> None:
        """Make requests until cancelled.

        Raises:
            LoadError: a request came to nothing, or was answered with another reply.
        """
        due, last_s = 0.0, time.monotonic()
        with Ticker(_INTERVAL_S) as ticker:
            while True:
                await ticker.wait()
                if self._fault is not None:
                    raise self._fault
                now_s = time.monotonic()
                due, last_s = due + (now_s - last_s) * self._rate_per_s, now_s
                count, due = int(due), due % 1
                if not self.is_paused:
                    for _ in range(min(count, _PENDING_LIMIT - self._pending)):
                        self._ask(cluster)

    def _ask(self, cluster: ClusterClient) -> None:
        """Make a request as `ClusterClient.request` does, without a task for each: that takes half of a processor."""
        number, payload = self._sent, self._pack(self._sent)
        self._sent += 1
        self._pending += 1
        future = cluster._conductor.begin_request(payload, None)
        future.add_done_callback(lambda done: self._on_reply(cluster, number, payload, done))

    def _on_reply(self, cluster: ClusterClient, number: int, payload: bytes, done: asyncio.Future[bytes]) -> None:
        now_ns = time.monotonic_ns()
        self._pending -= 1
        self.replied_count += 1
        if done.cancelled() or done.exception() is not None or done.result() != payload:
            self._fault = LoadError(f"request {number} was not answered with its reply: {done!r}")
            return
        if now_ns - self._last_reply_ns > self.longest_gap_ns:
            self.longest_gap_ns = now_ns - self._last_reply_ns
        self._last_reply_ns = now_ns
        expected = self._expected
        if (
            expected is not None
            and number >= expected.first_sequence
            and cluster.leadership_term_id > expected.old_term_id
        ):
            self._expected = None
            expected.leadership_term_id, expected.replied_ns = cluster.leadership_term_id, now_ns
            expected.replied.set()

    def expect_next_leader(self, old_term_id: int) -> NextLeader:
        """Look out for the leader after that of `old_term_id`; to be called right before it is to come."""
        self.longest_gap_ns = 0
        self._expected = NextLeader(self._sent, old_term_id)
        return self._expected

    async def check(self, cluster: ClusterClient) -> None:
        """Hold what ran against what was asked for; nothing may be under way.

        Raises:
            LoadError: a request was lost, or ran twice.
        """
        ran_count, ran_twice_count = COUNTS.unpack(await cluster.request(b""))
        if (ran_count, ran_twice_count) != (self._sent, 0):
            raise LoadError(f"{ran_count=} {ran_twice_count=} expected={self._sent} and 0")

    @property
    def is_answered(self) -> bool:
        """Whether nothing is under way."""
        return self._pending == 0

    # The listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Nothing: the service answers requests only."""

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Note when the client heard of a leader."""
        expected = self._expected
        if expected is not None and leadership_term_id > expected.old_term_id and not expected.told_ns:
            expected.told_ns = time.monotonic_ns()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing: a session that ends fails the requests."""
