"""Sends the requests through one client session and takes the replies, across a change of leader.

Up to a limit of them are under way at once, each as one call of `request`; that each runs once, and is answered,
whichever leader there is, is the client's and the cluster's business. What is left here is to take the times.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import Protocol

from ....client import ClientConfig, ClusterClient, TlsSettings
from ....service_api.errors import ClusterError
from ....service_api.wire.session import EventCode
from .demo_errors import DemoFailedError


class Requester(Protocol):
    """What the stream needs of a client."""

    @property
    def leadership_term_id(self) -> int:
        """The term of the leader that requests go to."""

    async def request(self, payload: bytes) -> bytes:
        """Have a request run, and give its reply."""


class RequestStream:
    """The sender of all requests of one session, and the listener that hears of new leaders.

    At most `inflight_limit` requests are unanswered at a time. `on_half_way` is called once, when half of them are
    answered. All times are nanoseconds of one monotonic clock; a latency counts from the call, so the wait for a new
    leader is in it.
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
        self._ended = asyncio.Event()
        self._failure: DemoFailedError | None = None
        self._last_term_id: int | None = None
        self._last_reply_ns = 0
        self._begun_count = 0
        self.replies: list[bytes | None] = [None] * len(messages)
        self.latencies_ns = array("q", bytes(8 * len(messages)))
        self.answered_count = 0
        self.failover_ns: int | None = None
        """From the last reply of one leader to the first of the next."""
        self.elapsed_ns = 0

    async def run(self, client: Requester, *, stall_timeout_s: float) -> None:
        """Send every request until every reply has come.

        Raises:
            DemoFailedError: a request failed, or no reply came for `stall_timeout_s`.
        """
        start_ns = self._clock_ns()
        indices = iter(range(len(self._messages)))
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(self._send(client, indices)) for _ in range(self._inflight_limit)]
            await self._wait_ended(stall_timeout_s)
            for sender in senders:
                sender.cancel()
        if self._failure is not None:
            raise self._failure
        self.elapsed_ns = self._last_reply_ns - start_ns

    async def _send(self, client: Requester, indices: Iterator[int]) -> None:
        """Send one request after another, of those that nobody has sent."""
        for index in indices:
            self._begun_count += 1
            begun_ns = self._clock_ns()
            try:
                reply = await client.request(self._messages[index])
            except ClusterError as error:
                self._fail(f"request {index + 1} failed: {error}")
                return
            self._on_reply(index, reply, begun_ns, client.leadership_term_id)

    async def _wait_ended(self, stall_timeout_s: float) -> None:
        while not self._ended.is_set():
            before = self.answered_count
            try:
                async with asyncio.timeout(stall_timeout_s):
                    await self._ended.wait()
            except TimeoutError:
                if self.answered_count == before:
                    answered = f"answered={before} of {len(self._messages)} sent={self._begun_count}"
                    self._fail(f"no reply for {stall_timeout_s:g} s: {answered}")

    def _on_reply(self, index: int, reply: bytes, begun_ns: int, leadership_term_id: int) -> None:
        now_ns = self._clock_ns()
        if self._last_term_id not in (None, leadership_term_id):
            self.failover_ns = now_ns - self._last_reply_ns
        self._last_term_id, self._last_reply_ns = leadership_term_id, now_ns
        self.replies[index] = reply
        self.latencies_ns[index] = now_ns - begun_ns
        self.answered_count += 1
        if self.answered_count == self._half_way_count:
            self._on_half_way()
        if self.answered_count == len(self._messages):
            self._ended.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or DemoFailedError(reason)
        self._ended.set()

    @property
    def inflight_count(self) -> int:
        """Requests begun and not answered."""
        return self._begun_count - self.answered_count

    # --- EgressListener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Fail: the service sends nothing but replies."""
        self._fail(f"a message that is no reply: length={len(payload)}")

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Record the new leader."""
        self._on_leader(leadership_term_id, leader_member_id)

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing: the requests of a session that ends say so."""


async def connect(
    endpoints: Sequence[str], stream: RequestStream, *, timeout_s: float, tls: TlsSettings | None = None
) -> ClusterClient:
    """Open the session; it takes as long as the nodes need to start and elect a leader.

    Raises:
        DemoFailedError: there was no leader in time.
    """
    try:
        config = ClientConfig(
            endpoints=tuple(endpoints), connect_timeout_s=timeout_s, client_info="trimaran demo", tls=tls
        )
        return await ClusterClient.connect(egress_listener=stream, config=config)
    except ClusterError as error:
        raise DemoFailedError(f"no session with the cluster: {error}") from error
