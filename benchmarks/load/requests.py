"""Request traffic of one session: so many callers, each with one call after another, of a request or of a batch.

A request begins with its number, int64, little endian; the rest is zeros. The service gives it back, and counts what
ran: at the end of a phase it is asked, and anything that ran twice, or not at all, ends the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice, repeat

from ...client import ClusterClient
from ...client.typed import TypedClient
from ..services.request import COUNTS
from ..services.typed_request import CountOf, Number
from .echo import SEQUENCE, LoadError, Phase, message_packer


class RequestLoad:
    """Makes the traffic: a closed loop of as many callers as have `inflight` requests under way together."""

    def __init__(self, *, payload_length: int, inflight: int, batch_count: int = 1) -> None:
        self._pack_message = message_packer(payload_length)
        self._caller_count = max(1, inflight // batch_count)
        self._batch_count = batch_count
        self._phase = Phase(0, 0)
        self._next = 0
        self.ran_twice_count = 0

    @property
    def received_count(self) -> int:
        """Replies of the current phase."""
        return len(self._phase.replied_at_ns)

    async def run(self, cluster: ClusterClient, message_count: int) -> Phase:
        """Make requests until all are answered.

        Raises:
            LoadError: a reply is not the request's, or the service did not run each once.
        """
        phase = self._phase = Phase(self._next, message_count)
        numbers = iter(range(self._next, self._next + message_count))
        self._next += message_count
        if message_count:
            phase.started_ns = time.monotonic_ns()
            ask = self._ask if self._batch_count == 1 else self._ask_many
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._caller_count, message_count)):
                    tasks.create_task(ask(cluster, numbers, phase))
            phase.ended_ns = time.monotonic_ns()
        ran_count, self.ran_twice_count = await self._count(cluster)
        if (ran_count, self.ran_twice_count) != (self._next, 0):
            raise LoadError(f"{ran_count=} ran_twice_count={self.ran_twice_count} expected={self._next} and 0")
        return phase

    async def _count(self, cluster: ClusterClient) -> tuple[int, int]:
        """Ask how many requests ran, and how many of them had run before."""
        ran_count, ran_twice_count = COUNTS.unpack(await cluster.request(b""))
        return ran_count, ran_twice_count

    async def _ask(self, cluster: ClusterClient, numbers: Iterator[int], phase: Phase) -> None:
        sent_at_ns, replied_at_ns, now_ns = phase.sent_at_ns, phase.replied_at_ns, time.monotonic_ns
        for number in numbers:
            payload = self._pack_message(number)
            begun_ns = now_ns()
            reply = await cluster.request(payload)
            replied_at_ns.append(now_ns())
            sent_at_ns.append(begun_ns)
            if reply != payload:
                raise LoadError(f"another reply than that to request {number}: length={len(reply)}")

    async def _ask_many(self, cluster: ClusterClient, numbers: Iterator[int], phase: Phase) -> None:
        """Make one batch after another; a request takes as long as its batch."""
        while batch := [*islice(numbers, self._batch_count)]:
            begun_ns = time.monotonic_ns()
            is_right = await self._call_many(cluster, batch)
            ended_ns = time.monotonic_ns()
            phase.replied_at_ns.extend(repeat(ended_ns, len(batch)))
            phase.sent_at_ns.extend(repeat(begun_ns, len(batch)))
            if not is_right:
                raise LoadError(f"other replies than those to the requests from {batch[0]} on: count={len(batch)}")

    async def _call_many(self, cluster: ClusterClient, batch: list[int]) -> bool:
        """Make a batch of requests, and say whether each reply is its own."""
        payloads = [*map(self._pack_message, batch)]
        return await cluster.request_many(payloads) == payloads


class TypedRequestLoad(RequestLoad):
    """The same with commands of a typed service: each makes its message, and reads its reply."""

    def __init__(self, *, payload_length: int, inflight: int, batch_count: int = 1) -> None:
        super().__init__(payload_length=payload_length, inflight=inflight, batch_count=batch_count)
        self._padding = bytes(payload_length - SEQUENCE.size)
        self._typed: TypedClient | None = None

    def _client(self, cluster: ClusterClient) -> TypedClient:
        if self._typed is None:
            self._typed = TypedClient(cluster)
        return self._typed

    async def _count(self, cluster: ClusterClient) -> tuple[int, int]:
        return await self._client(cluster).call(CountOf())

    async def _ask(self, cluster: ClusterClient, numbers: Iterator[int], phase: Phase) -> None:
        sent_at_ns, replied_at_ns, now_ns = phase.sent_at_ns, phase.replied_at_ns, time.monotonic_ns
        typed, padding = self._client(cluster), self._padding
        for number in numbers:
            begun_ns = now_ns()
            reply = await typed.call(Number(number, padding))
            replied_at_ns.append(now_ns())
            sent_at_ns.append(begun_ns)
            if reply.number != number:
                raise LoadError(f"another reply than that to request {number}: {reply}")

    async def _call_many(self, cluster: ClusterClient, batch: list[int]) -> bool:
        padding = self._padding
        replies = await self._client(cluster).call_many([Number(number, padding) for number in batch])
        return [reply.number for reply in replies] == batch
