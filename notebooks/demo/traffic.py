"""The clients of the demo: front ends that send a morning's web requests in time, a monitor, and one that falls silent.

Requests come from `examples/data`, 1 August 1995 from midnight (in Florida) until shortly before one. They are sent in
the same rhythm, only faster. Every host has its front end, so the order of a host's requests is that of the file, and
the decisions are those of a run without any cluster.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from examples.access_quota import Request
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.cli.shared.examples import REQUESTS_FILE, examples_directory
from trimaran.service_api import SessionClosedError

MIDNIGHT_S: Final = 807_256_800
"""When the file begins: midnight of 1 August 1995 in Florida, in epoch seconds."""

MORNING_S: Final = 13 * 3600
FRONT_ENDS: Final = ("com", "edu", "gov", "net", "abroad", "unnamed")
"""By the last part of a host's name; `unnamed` are hosts that have an address only."""

PACE_S: Final = 0.01
"""How often a front end looks which requests are due."""

REQUEST_TIMEOUT_S: Final = 30.0


def web_requests() -> list[Request]:
    """Every request of the morning, in the order of the file, which is that of time."""
    with gzip.open(examples_directory() / "data" / REQUESTS_FILE, "rt", encoding="utf-8", errors="replace") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        names = next(rows)
        host, time_s, url = (names.index(name) for name in ("host", "time", "url"))
        return [Request(row[host], int(row[time_s]), row[url]) for row in rows]


def front_end_of(host: str) -> str:
    """Which front end a host's requests go through."""
    last = host.rpartition(".")[2]
    if last.isdigit():
        return "unnamed"
    return last if last in FRONT_ENDS else "abroad"


class MorningClock:
    """When what happened in the morning happens again: thirteen hours in `length_s` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, length_s: float) -> None:
        self._loop = loop
        self._start_s = loop.time()
        self._stopped_s: float | None = None
        self._speed = MORNING_S / length_s
        self.limit_s = float(MORNING_S)
        """The time of the morning, in seconds since midnight, at which it stands still until this is raised."""

    def since_midnight_s(self) -> float:
        """The time of the morning now, in seconds since midnight."""
        now_s = self._loop.time() if self._stopped_s is None else self._stopped_s
        beyond_s = (now_s - self._start_s) * self._speed - self.limit_s
        if beyond_s > 0:
            self._start_s += beyond_s / self._speed
            return self.limit_s
        return (now_s - self._start_s) * self._speed

    def stop(self) -> None:
        """Let the time of the morning stand still."""
        self._stopped_s = self._loop.time()

    def go_on(self) -> None:
        """Let it go on where it stopped."""
        if self._stopped_s is not None:
            self._start_s += self._loop.time() - self._stopped_s
            self._stopped_s = None

    async def wait_until(self, since_midnight_s: float) -> None:
        """Wait for a time of the morning."""
        missing_s = since_midnight_s - self.since_midnight_s()
        while missing_s > 0:
            await asyncio.sleep(max(PACE_S, missing_s / self._speed))
            missing_s = since_midnight_s - self.since_midnight_s()


class Traffic:
    """The clients, and what came of their requests."""

    def __init__(self, endpoints: Sequence[str], clock: MorningClock, requests: Sequence[Request]) -> None:
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._requests = requests
        self.decisions: Counter[str] = Counter()
        """Answers by their first word: `allowed` and `denied`."""
        self.session_ids: dict[str, list[int]] = {}
        """The sessions that each client had."""
        self._awaited_count = len(requests)
        self._has_come = asyncio.Event()

    @property
    def answered_count(self) -> int:
        """How many requests have their answer."""
        return self.decisions.total()

    async def run(self, *, monitor_hours: Sequence[int] = (), silent_hour: int | None = None) -> None:
        """Send everything in time; ends when all is answered and every client has left.

        A monitor comes at each of `monitor_hours`, asks how many were refused, and leaves. At `silent_hour` a client
        comes that says one thing and is never heard of again: the cluster closes its session.
        """
        async with asyncio.TaskGroup() as group:
            for name in FRONT_ENDS:
                group.create_task(self._send_all(name, [x for x in self._requests if front_end_of(x.host) == name]))
            for hour in monitor_hours:
                group.create_task(self._ask_once(hour * 3600))
            if silent_hour is not None:
                group.create_task(self._fall_silent(silent_hour * 3600))

    async def wait_for_answers(self, count: int) -> None:
        """Wait until so many requests, at most all, have their answer; for one caller at a time."""
        self._awaited_count = min(count, len(self._requests))
        self._has_come.clear()
        if self.answered_count < self._awaited_count:
            await self._has_come.wait()

    async def _send_all(self, name: str, requests: Sequence[Request]) -> None:
        if not requests:
            return
        await self._clock.wait_until(requests[0].time_s - MIDNIGHT_S)
        async with self._session(name) as client, asyncio.TaskGroup() as group:
            unsent = iter(requests)
            request = next(unsent, None)
            while request is not None:
                due_s = self._clock.since_midnight_s()
                while request is not None and request.time_s - MIDNIGHT_S <= due_s:
                    group.create_task(self._send(client, request))
                    request = next(unsent, None)
                await asyncio.sleep(PACE_S)

    async def _send(self, client: ClusterClient, request: Request) -> None:
        reply = await client.request(request.encode(), timeout_s=REQUEST_TIMEOUT_S)
        self.decisions[reply.partition(b"\t")[0].decode()] += 1
        if self.answered_count >= self._awaited_count:
            self._has_come.set()

    async def _ask_once(self, since_midnight_s: float) -> None:
        await self._clock.wait_until(since_midnight_s)
        async with self._session("monitor") as client:
            await client.offer(b"how many were refused?")
            try:
                async with asyncio.timeout(1):
                    async for _ in client.egress():
                        break
            except TimeoutError:
                return  # the leader died meanwhile: what is offered, and not requested, may stay without an answer

    async def _fall_silent(self, since_midnight_s: float) -> None:
        await self._clock.wait_until(since_midnight_s)
        async with self._session("silent", keep_alive_interval_s=3600) as client:
            await client.offer(b"how many were refused?")
            with suppress(SessionClosedError):
                async for _ in client.egress():
                    pass

    @asynccontextmanager
    async def _session(self, name: str, *, keep_alive_interval_s: float = 0.5) -> AsyncIterator[ClusterClient]:
        config = ClientConfig(
            endpoints=self._endpoints,
            connect_timeout_s=REQUEST_TIMEOUT_S,
            new_leader_timeout_s=REQUEST_TIMEOUT_S,
            keep_alive_interval_s=keep_alive_interval_s,
            credentials=name.encode(),
            client_info=name,
        )
        async with ClusterClient.connect(config=config) as client:
            self.session_ids.setdefault(name, []).append(int(client.cluster_session_id))
            yield client
