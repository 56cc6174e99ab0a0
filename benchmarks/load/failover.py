"""Small messages at a steady rate over one session, across leaders; tells when the next leader has answered.

Messages are numbered and never sent again: around a change of leader some are lost, which a real application's
numbers would find. Replies must come in the order of the numbers, each once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from ...client import ClusterClient
from ...service_api.wire.session import EventCode
from .echo import SEQUENCE, LoadError
from .ticker import Ticker


@dataclass(slots=True)
class NextLeader:
    """What is waited for after a fault, and when it came. Times are of the monotonic clock."""

    first_sequence: int
    """The first message that is offered after the fault."""
    old_term_id: int
    leadership_term_id: int = -1
    told_ns: int = 0
    """When the client first heard of a leader of a higher term."""
    replied_ns: int = 0
    """When the first reply came to a message that was offered after the fault and committed in a higher term."""
    replied: asyncio.Event = field(default_factory=asyncio.Event)


class FailoverLoad:
    """Makes the traffic; the egress listener of its own session."""

    def __init__(self, *, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._sent = 0
        self._last_reply = -1
        self._fault: LoadError | None = None
        self._expected: NextLeader | None = None
        self.is_paused = True
        self.replied_count = 0

    async def run(self, cluster: ClusterClient) -> None:
        """Send until cancelled; what finds no leader to go to is not sent at all.

        Raises:
            LoadError: a reply came twice or out of order.
            SessionClosedError: the session did not last.
        """
        with Ticker(1 / self._rate_per_s) as ticker:
            while True:
                await ticker.wait()
                if self._fault is not None:
                    raise self._fault
                if not self.is_paused and cluster.try_offer(SEQUENCE.pack(self._sent)):
                    self._sent += 1

    def expect_next_leader(self, old_term_id: int) -> NextLeader:
        """Look out for the leader after that of `old_term_id`; to be called right before the fault."""
        self._expected = NextLeader(self._sent, old_term_id)
        return self._expected

    # The listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take a reply."""
        now_ns = time.monotonic_ns()
        (sequence,) = SEQUENCE.unpack_from(payload)
        if sequence <= self._last_reply:
            self._fault = LoadError(f"reply out of order: sequence={sequence} last={self._last_reply}")
        self._last_reply = sequence
        self.replied_count += 1
        expected = self._expected
        if expected is not None and sequence >= expected.first_sequence and leadership_term_id > expected.old_term_id:
            self._expected = None
            expected.leadership_term_id, expected.replied_ns = leadership_term_id, now_ns
            expected.replied.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Note when the client heard of a leader."""
        expected = self._expected
        if expected is not None and leadership_term_id > expected.old_term_id and not expected.told_ns:
            expected.told_ns = time.monotonic_ns()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing: a session that ends fails the next offer."""
