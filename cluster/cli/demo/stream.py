"""Streams the requests through one client session and takes the replies, across a change of leader.

Replies come in the order of requests, so what is unanswered is the tail of what was sent. When the path to a
leader stands again, that tail is sent again, in order: the sender simply goes back to the first unanswered
request. The service answers what it had applied from memory and ignores what is ahead of its next request, so
that a request offered in the wrong moment does no harm.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Final, Protocol

from client import ClusterClient
from service_api.errors import ClusterError
from service_api.wire.session import EventCode

from .errors import DemoFailedError

RETRY_INTERVAL_S: Final = 0.02
"""How long to wait for a reply or a leader before looking for room again."""


class Offering(Protocol):
    """What the stream needs of a client."""

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""

    def try_offer(self, payload: bytes) -> bool:
        """Offer if there is room and a leader."""


class RequestStream:
    """The sender of all requests and the listener for all replies of one session.

    At most `inflight_limit` requests are unanswered at a time. `on_half_way` is called once, when half of
    them are answered. All times are nanoseconds of one monotonic clock; a latency counts from the first
    sending of a request, so the wait for a new leader is in it.
    """

    def __init__(
        self,
        messages: Sequence[bytes],
        *,
        inflight_limit: int,
        on_half_way: Callable[[], None],
        on_leader: Callable[[int, int], None],
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._messages = messages
        self._inflight_limit = inflight_limit
        self._half_way_count = max(1, len(messages) // 2)
        self._on_half_way = on_half_way
        self._on_leader = on_leader
        self._clock_ns = clock_ns
        self._room = asyncio.Event()
        self._cursor = 0
        self._last_term_id: int | None = None
        self._last_reply_ns = 0
        self.replies: list[bytes | None] = [None] * len(messages)
        self.sent_ns = array("q", bytes(8 * len(messages)))
        self.latencies_ns = array("q", bytes(8 * len(messages)))
        self.answered_count = 0
        self.first_unanswered = 0
        self.repeated_count = 0
        """Replies to requests that had one already: there must be none."""
        self.foreign_count = 0
        """Replies that answer no request: there must be none."""
        self.resent_count = 0
        self.failover_ns: int | None = None
        """From the last reply of one leader to the first of the next."""
        self.elapsed_ns = 0

    async def run(self, client: Offering, *, stall_timeout_s: float) -> None:
        """Send every request until every reply has come.

        Raises:
            DemoFailedError: the session ended, or no reply came for `stall_timeout_s`.
        """
        start_ns = progress_ns = self._clock_ns()
        while self.answered_count < len(self._messages):
            answered_before = self.answered_count
            try:
                await self._turn(client)
            except ClusterError as error:
                raise DemoFailedError(f"the client's session failed: {error}") from error
            if self.answered_count > answered_before:
                progress_ns = self._clock_ns()
            elif self._clock_ns() - progress_ns > stall_timeout_s * 1e9:
                raise DemoFailedError(
                    f"no reply for {stall_timeout_s:g} s: answered={self.answered_count} "
                    f"of {len(self._messages)} sent={self._cursor}"
                )
        self.elapsed_ns = self._last_reply_ns - start_ns

    async def _turn(self, client: Offering) -> None:
        """Send while there is room, then wait for a reply or a new leader.

        It does not wait inside an offer: while it waited, `on_new_leader` could move the cursor back, and the
        request that waited would be sent ahead of those before it, and then again.
        """
        self._room.clear()
        while self._may_send() and client.try_offer(self._messages[self._cursor]):
            self._on_sent(self._cursor)
        if client.is_closed:
            raise DemoFailedError(f"the client's session ended: answered={self.answered_count}")
        if self.answered_count < len(self._messages):
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_INTERVAL_S):
                    await self._room.wait()

    def _may_send(self) -> bool:
        return self._cursor < min(len(self._messages), self.first_unanswered + self._inflight_limit)

    def _on_sent(self, index: int) -> None:
        if self.sent_ns[index]:
            self.resent_count += 1
        else:
            self.sent_ns[index] = self._clock_ns()
        self._cursor = index + 1

    @property
    def inflight_count(self) -> int:
        """Requests sent and not answered."""
        return max(0, self._cursor - self.first_unanswered)

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take one reply."""
        now_ns = self._clock_ns()
        reply = bytes(payload)
        index = _sequence_of(reply) - 1
        if not 0 <= index < len(self.replies):
            self.foreign_count += 1
            return
        if self.replies[index] is not None:
            self.repeated_count += 1
            return
        if self._last_term_id not in (None, leadership_term_id):
            self.failover_ns = now_ns - self._last_reply_ns
        self._last_term_id, self._last_reply_ns = leadership_term_id, now_ns
        self.replies[index] = reply
        self.latencies_ns[index] = now_ns - self.sent_ns[index]
        self.answered_count += 1
        while self.first_unanswered < len(self.replies) and self.replies[self.first_unanswered] is not None:
            self.first_unanswered += 1
        if self.answered_count == self._half_way_count:
            self._on_half_way()
        self._room.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Go back to the first unanswered request."""
        self._cursor = self.first_unanswered
        self._on_leader(leadership_term_id, leader_member_id)
        self._room.set()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Look at the session again: it may have been closed."""
        self._room.set()


def _sequence_of(reply: bytes) -> int:
    """The number that a reply begins with; 0 if there is none."""
    number = reply.partition(b"\t")[0]
    return int(number) if number.isdigit() else 0


async def connect(endpoints: Sequence[str], stream: RequestStream, *, timeout_s: float) -> ClusterClient:
    """Open the session; it takes as long as the nodes need to start and elect a leader.

    Raises:
        DemoFailedError: there was no leader in time.
    """
    try:
        return await ClusterClient.connect(
            endpoints, egress_listener=stream, connect_timeout_s=timeout_s, client_info="quorate demo"
        )
    except ClusterError as error:
        raise DemoFailedError(f"no session with the cluster: {error}") from error
