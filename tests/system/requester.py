"""A client of `AppendListService` that numbers its requests, resends what was not answered, and checks the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.system.append_list import ANSWER, FLOODED, REQUEST, TOO_EARLY, Answer
from tests.waiting import patient, wait_until, within
from trimaran.client import ClientConfig, ClusterClient
from trimaran.service_api import SessionClosedError
from trimaran.service_api.wire.session import EventCode

IN_FLIGHT: int = 256
"""Requests sent and not answered, at most."""

LOAD_IN_FLIGHT: int = 16
"""The same for a load that runs on: a few thousand requests a second, so that the logs stay short enough to check."""


class Requester:
    """One session. Use it as `async with Requester(endpoints) as requester:`."""

    def __init__(self, endpoints: Sequence[str], **config: Any) -> None:  # Any: fields of ClientConfig
        limits: dict[str, Any] = {"connect_timeout_s": patient(60.0), "new_leader_timeout_s": patient(60.0)}
        self._config = ClientConfig(endpoints=tuple(endpoints), **(limits | config))
        self._bodies: list[bytes] = []
        self._next = 1
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._load: asyncio.Task[None] | None = None
        self.client: ClusterClient
        self.answers: dict[int, Answer] = {}
        self.echoes: dict[int, bytes] = {}
        self.leaders: list[tuple[int, int]] = []
        self.events: list[tuple[EventCode, str]] = []
        self.faults: list[str] = []
        self.resent_count = 0
        self.flood_count = 0
        self.closed_reason: str | None = None

    async def __aenter__(self) -> Self:
        self.client = await ClusterClient.connect([], egress_listener=self, config=self._config)
        self._sender = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in (self._load, self._sender):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self.client.aclose()
        if kind is None:
            assert not self.faults, self.faults

    def __repr__(self) -> str:
        sending = self.client._protocol._sending
        waiting_bytes = None if sending is None else len(sending.outgoing)
        return (
            f"<Requester submitted={len(self._bodies)} answered={len(self.answers)} next={self._next} "
            f"resent={self.resent_count} sender={self._sender!r} waiting_bytes={waiting_bytes} {self.client!r}>"
        )

    @property
    def session_id(self) -> int:
        return self.client.cluster_session_id

    @property
    def submitted_count(self) -> int:
        return len(self._bodies)

    def submit(self, *bodies: bytes) -> int:
        """Queue requests for sending; gives the sequence of the last one."""
        self._bodies += bodies
        self._wake.set()
        return len(self._bodies)

    def submit_many(self, count: int, *, length: int = 200) -> int:
        """Queue requests that differ from each other."""
        first = len(self._bodies) + 1
        return self.submit(*(f"request {first + index} ".encode().ljust(length, b".") for index in range(count)))

    async def wait_answered(self, sequence: int | None = None, *, timeout_s: float = 60.0) -> None:
        """Wait until every request up to `sequence`, or every one that was submitted, is answered."""
        wanted, sender = len(self._bodies) if sequence is None else sequence, self._sender
        assert sender is not None
        await wait_until(
            lambda: len(self.answers) >= wanted or sender.done(),
            timeout_s=timeout_s,
            what=lambda: f"{wanted} answers: {self!r}",
        )
        if sender.done():
            sender.result()
        assert len(self.answers) >= wanted, f"session closed: {self.closed_reason} {self!r}"

    async def wait_sent(self) -> None:
        """Submit one more request and wait until it is on its way: while the leader stands still, nobody answers it."""
        sequence = self.submit_many(1)
        await wait_until(lambda: self._next > sequence, timeout_s=60.0, what=lambda: f"{sequence} sent: {self!r}")

    async def quiesce(self) -> None:
        """Wait until every request is answered and none is on its way a second time, resent in a term that began.

        Whatever was sent is before the last request, which nothing made this client send twice.
        """
        await self.wait_answered()
        await self.request()

    async def request(self, count: int = 1, *, length: int = 200, timeout_s: float = 60.0) -> None:
        """Send requests and wait for their answers."""
        self.submit_many(count, length=length)
        await self.wait_answered(timeout_s=timeout_s)

    def start_load(self, *, length: int = 200) -> None:
        """Keep requests in flight until `stop_load`."""
        self._load = asyncio.create_task(self._keep_loaded(length))

    async def stop_load(self, *, timeout_s: float = 60.0) -> None:
        """Submit no more, and wait for what was submitted."""
        assert self._load is not None
        self._load.cancel()
        await asyncio.wait([self._load])
        await self.wait_answered(timeout_s=timeout_s)

    # --- EgressListener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        answer = Answer(*ANSWER.unpack_from(payload))
        if answer.place == FLOODED:
            self.flood_count += 1
            return
        if answer.place == TOO_EARLY:
            self._send_again()
            return
        known = self.answers.setdefault(answer.sequence, answer)
        if known != answer:
            self.faults.append(f"request {answer.sequence} was answered {known} and then {answer}")
        if len(payload) > ANSWER.size:
            self.echoes[answer.sequence] = bytes(payload[ANSWER.size :])
        self._wake.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        self.leaders.append((leadership_term_id, leader_member_id))
        self._send_again()

    def on_session_event(self, code: EventCode, detail: str) -> None:
        self.events.append((code, detail))

    # --- helpers

    def _send_again(self) -> None:
        first = next((i for i in range(1, self._next) if i not in self.answers), self._next)
        self.resent_count += self._next - first
        self._next = first
        self._wake.set()

    async def _send(self) -> None:
        client = self.client
        while True:
            try:
                while (
                    self._next <= len(self._bodies)
                    and self._next - len(self.answers) <= IN_FLIGHT
                    and client.try_offer(REQUEST.pack(self._next) + self._bodies[self._next - 1])
                ):
                    self._next += 1
            except SessionClosedError as error:
                self.closed_reason = error.reason
                return
            self._wake.clear()
            try:
                async with within(0.05):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _keep_loaded(self, length: int) -> None:
        while True:
            waiting = len(self._bodies) - len(self.answers)
            if waiting < LOAD_IN_FLIGHT:
                self.submit_many(LOAD_IN_FLIGHT - waiting, length=length)
            await asyncio.sleep(0.005)
