"""Client applications for the user's own service: they send the requests that the service's class makes.

A service says so with a function `simulation_request`, a static method of its class; without one, clients send random
bytes. A service that takes requests gets them with `request`, another as messages. One that takes queries gets these,
too, linearizable and stale ones, from `simulation_query`; without that function they are its requests. Nothing is known
about answers, so they are only counted, and no application sends twice: what holds for a service of any kind is checked
by the referee, on the members.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Final, Protocol

from .....client import (
    ClientConfig,
    ClusterClient,
    QueryRefusedError,
    RejectedError,
    RequestFailedError,
    RequestIndeterminateError,
)
from .....service_api import ClusteredService
from .....service_api.groups.group import GroupTable
from .....service_api.groups.key_hash import GroupKey
from .....service_api.wire.session import EventCode
from ..world.expect import RuleBroken
from ..world.loop import SimulatedLoop
from .history import History
from .paths import NO_SESSION, GroupSessions, OneSession, Path
from .workload import WorkloadSettings

REQUEST_FUNCTION: Final = "simulation_request"
QUERY_FUNCTION: Final = "simulation_query"
KEY_FUNCTION: Final = "simulation_key"
_QUERY_CHANCE: Final = 0.3
_STALENESS_S: Final = 1.0
WORKLOAD_RULE: Final = "clients see what the author of their workload expects"

DrawRequest = Callable[[Random, int], bytes]
"""Gives a client's next request, from its chance and how many it has sent in this session."""

KeyOfRequest = Callable[[bytes], GroupKey]
"""Gives the key that a request is about."""

UseCluster = Callable[[ClusterClient, Random], Awaitable[None]]
"""One round of a client."""

_RANDOM_REQUEST_LIMIT: Final = 200
_RETRY_MIN_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0
FULL_PAUSE_S: Final = 0.02


class ClientApplication(Protocol):
    """One client of a simulation: a coroutine that uses the cluster, and how it ends."""

    config: ClientConfig
    """How it connects from the next time on; its operator corrects where the members are."""

    async def run(self) -> None:
        """Use the cluster until `stop`."""

    def stop(self) -> None:
        """Begin nothing more; `run` ends."""

    def abandon(self) -> None:
        """The process that ran it is dead."""


class MakeWorkload(Protocol):
    """Makes the clients of a run."""

    def __call__(
        self,
        config: ClientConfig,
        number: int,
        *,
        history: History,
        random: Random,
        now_ns: Callable[[], int],
        settings: WorkloadSettings,
    ) -> ClientApplication:
        """Make the client `number`."""


def draw_request_of(service_class: type[ClusteredService]) -> DrawRequest:
    """Return the service's own function, or random bytes."""
    draw_request: DrawRequest = getattr(service_class, REQUEST_FUNCTION, random_request)
    return draw_request


def draw_query_of(service_class: type[ClusteredService]) -> DrawRequest | None:
    """Return what draws the queries of a service; None where it takes none."""
    if service_class.on_query is ClusteredService.on_query:
        return None
    draw_query: DrawRequest = getattr(service_class, QUERY_FUNCTION, draw_request_of(service_class))
    return draw_query


def key_of_request(service_class: type[ClusteredService]) -> KeyOfRequest:
    """Return the service's own function, or one by which the whole request is its key."""
    key_of: KeyOfRequest = getattr(service_class, KEY_FUNCTION, bytes)
    return key_of


def takes_requests(service_class: type[ClusteredService]) -> bool:
    """Whether a service has an `on_request`."""
    return service_class.on_request is not ClusteredService.on_request


def random_request(random: Random, number: int) -> bytes:
    """Draw up to 200 bytes, at least one."""
    return random.randbytes(random.randint(1, _RANDOM_REQUEST_LIMIT))


class ServiceWorkload:
    """One client application. A session that is lost is followed by another one."""

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        *,
        history: History,
        random: Random,
        now_ns: Callable[[], int],
        settings: WorkloadSettings,
        draw_request: DrawRequest = random_request,
        uses_requests: bool = False,
        draw_query: DrawRequest | None = None,
        key_of: KeyOfRequest = bytes,
        group_count: int = 1,
    ) -> None:
        """In a cluster with groups each request goes to the group of its key."""
        self.number = number
        self._key_of, self._table = key_of, GroupTable(group_count)
        self.sent_count = 0
        self.session_count = 0
        self.config, self._settings, self._random = config, settings, random
        self._history, self._draw_request, self._uses_requests = history, draw_request, uses_requests
        self._draw_query = draw_query
        self._query_random = random if draw_query is None else Random(random.getrandbits(64))
        self._asking_count = 0
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ServiceWorkload {self.number} sent={self.sent_count} sessions={self.session_count}>"

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped.set()

    def abandon(self) -> None:
        """Nothing is kept about what was in flight."""

    async def run(self) -> None:
        """Use the cluster until `stop`, in one session after another."""
        pause_s = _RETRY_MIN_S
        while not self._stopped.is_set():
            config = replace(self.config, random=Random(self._random.getrandbits(64)).random)
            try:
                path = await self._connect(config)
                try:
                    self.session_count += 1
                    pause_s = _RETRY_MIN_S
                    await self._use(path)
                finally:
                    await path.aclose()
            except NO_SESSION:
                await self._pause(pause_s * (1 - self._random.random() / 2))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)

    async def _connect(self, config: ClientConfig) -> Path:
        if self._table.group_count == 1:
            return OneSession(await ClusterClient.connect([], egress_listener=self, config=config))
        return await GroupSessions.open(config, self._table, self._random, lambda group: self)

    async def _use(self, path: Path) -> None:
        """Send requests until the session is lost, or ends as sessions do; then wait for what is under way."""
        chance, settings = self._random, self._settings
        number = 0
        async with asyncio.TaskGroup() as tasks:
            while not (path.is_closed or self._stopped.is_set()):
                if self.sent_count == settings.operation_limit:
                    await self._stopped.wait()
                    return
                request = bytes(self._draw_request(chance, number))
                if not await self._send(path, request, tasks):
                    return
                if self._draw_query is not None and self._query_random.random() < _QUERY_CHANCE:
                    tasks.create_task(self._query(path, bytes(self._draw_query(self._query_random, number))))
                number += 1
                self.sent_count += 1
                if chance.random() < settings.close_rate:
                    return
                is_idle = chance.random() < settings.idle_rate
                await self._pause(
                    chance.random() * settings.idle_max_s if is_idle else chance.expovariate(1 / settings.think_mean_s)
                )

    async def _send(self, path: Path, request: bytes, tasks: asyncio.TaskGroup) -> bool:
        """Send one request once there is room; False if the session ends before, or it is time to stop."""
        while not (path.is_closed or self._stopped.is_set()):
            if not self._uses_requests:
                if (await path.client_for(self._key_of(request))).try_offer(request):
                    return True
            elif self._asking_count < self._settings.in_flight_limit:
                self._asking_count += 1
                tasks.create_task(self._ask(path, request))
                return True
            await self._pause(FULL_PAUSE_S)
        return False

    async def _ask(self, path: Path, request: bytes) -> None:
        """Have a request run; whatever it comes to is an answer, save that the session ended."""
        try:
            await (await path.client_for(self._key_of(request))).request(request)
            self._history.acknowledged_count += 1
        except RequestFailedError:
            self._history.acknowledged_count += 1
        except (RejectedError, RequestIndeterminateError, *NO_SESSION):
            return
        finally:
            self._asking_count -= 1

    async def _query(self, path: Path, payload: bytes) -> None:
        """Ask for the state; what the service or the cluster refuses is an answer."""
        is_stale = self._query_random.random() < 0.5
        try:
            client = await path.any_client(self._query_random)
            await client.query(payload, max_staleness_s=_STALENESS_S if is_stale else None)
            self._history.service_query_count += 1
        except (QueryRefusedError, *NO_SESSION):
            return

    async def _pause(self, duration_s: float) -> None:
        await pause_until(self._stopped, duration_s)

    # --- EgressListener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Count an answer."""
        self._history.acknowledged_count += 1

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing is sent again."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """A session that ended is seen at the next request."""


class RoundsWorkload:
    """One client application that does what its author wrote, round after round, in one session after another.

    What a round raises ends the session if it is among `weather`: what faults do to a client. Anything else ends the
    run: a rule of the author is broken.
    """

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        *,
        random: Random,
        settings: WorkloadSettings,
        use: UseCluster,
        weather: tuple[type[Exception], ...],
    ) -> None:
        self.number, self.config = number, config
        self.round_count = 0
        self._random, self._settings, self._use, self._weather = random, settings, use, weather
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RoundsWorkload {self.number} rounds={self.round_count}>"

    def stop(self) -> None:
        """Begin no more rounds."""
        self._stopped.set()

    def abandon(self) -> None:
        """Nothing is kept about what was in flight."""

    async def run(self) -> None:
        """Use the cluster until `stop`."""
        while not self._stopped.is_set():
            config = replace(self.config, random=Random(self._random.getrandbits(64)).random)
            try:
                async with await ClusterClient.connect([], config=config) as client:
                    await self._use_session(client)
            except self._weather:
                await self._pause(_RETRY_MIN_S + self._random.random() * _RETRY_MIN_S)
            except Exception as error:
                end_run(self._broken(error))
                return

    def _broken(self, error: Exception) -> RuleBroken:
        places = [place for place in traceback.extract_tb(error.__traceback__) if place.name == self._use.__name__]
        where = {"file": places[-1].filename, "line": places[-1].lineno} if places else {}
        return RuleBroken(WORKLOAD_RULE, client=self.number, round=self.round_count, error=error, **where)

    async def _use_session(self, client: ClusterClient) -> None:
        while not (client.is_closed or self._stopped.is_set()):
            if self.round_count == self._settings.operation_limit:
                await self._stopped.wait()
                return
            self.round_count += 1
            await self._use(client, self._random)
            await self._pause(self._random.expovariate(1 / self._settings.think_mean_s))

    async def _pause(self, duration_s: float) -> None:
        await pause_until(self._stopped, duration_s)


def end_run(broken: RuleBroken) -> None:
    """Let the environment raise it, out of the run: in the process of a client it would end that one only."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.scheduler.call_after(0, _raise, broken)


def _raise(error: Exception) -> None:
    raise error


async def pause_until(stopped: asyncio.Event, duration_s: float) -> None:
    """Let time pass; stopping ends it."""
    try:
        async with asyncio.timeout(duration_s):
            await stopped.wait()
    except TimeoutError:
        return
