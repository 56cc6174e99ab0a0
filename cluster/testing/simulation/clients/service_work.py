"""The work of clients of a user's own service, as its class says or as the author of a test wrote it.

A service says what clients send with a function `simulation_request`, a static method of its class; without one,
clients send random bytes. A service that takes requests gets them with `request`, another as messages. One that takes
queries gets these, too, linearizable and stale ones, from `simulation_query`; without that function they are its
requests. Nothing is known about answers, so they are only counted, and no client sends twice: what holds for a service
of any kind is checked by the referee, on the members.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Final

from .....client import (
    ClusterClient,
    QueryRefusedError,
    RejectedError,
    RequestFailedError,
    RequestIndeterminateError,
)
from .....service_api import ClusteredService
from .....service_api.groups.key_hash import GroupKey
from ..world.expect import RuleBroken
from .application import FULL_PAUSE_S, Lane, OperationRow, Pace, Session, end_run, pause_until
from .history import History
from .paths import NO_SESSION, OneSession

REQUEST_FUNCTION: Final = "simulation_request"
QUERY_FUNCTION: Final = "simulation_query"
KEY_FUNCTION: Final = "simulation_key"
WORKLOAD_RULE: Final = "clients see what the author of their workload expects"

_QUERY_WEIGHT: Final = 0.3
"""The weight of queries, where other operations have 1."""
_STALENESS_S: Final = 1.0
_RANDOM_REQUEST_LIMIT: Final = 200

DrawRequest = Callable[[Random, int], bytes]
"""Gives a client's next request, from its chance and how many it has sent in this session."""

KeyOfRequest = Callable[[bytes], GroupKey]
"""Gives the key that a request is about."""

UseCluster = Callable[[ClusterClient, Random], Awaitable[None]]
"""One round of a client."""


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
    """Return True if a service has an `on_request`."""
    return service_class.on_request is not ClusteredService.on_request


def random_request(random: Random, number: int) -> bytes:
    """Draw up to 200 bytes, at least one."""
    return random.randbytes(random.randint(1, _RANDOM_REQUEST_LIMIT))


class ServiceWork:
    """The operations of one client of a user's service."""

    def __init__(
        self,
        number: int,
        *,
        history: History,
        pace: Pace,
        random: Random,
        draw_request: DrawRequest = random_request,
        uses_requests: bool = False,
        draw_query: DrawRequest | None = None,
        key_of: KeyOfRequest = bytes,
    ) -> None:
        """In a cluster with groups each request goes to the group of its key."""
        self.history = history
        self._draw_request, self._draw_query, self._key_of = draw_request, draw_query, key_of
        rows = [OperationRow("request", 1.0, self._ask) if uses_requests else OperationRow("message", 1.0, self._send)]
        if draw_query is not None:
            rows.append(OperationRow("query", _QUERY_WEIGHT, self._query))
        self.lanes = [Lane(rows, pace, random)]

    def make_session(self, number: int) -> ServiceSession:
        """Make a session that counts what it is sent."""
        return ServiceSession(number, self)

    def abandon(self) -> None:
        """Keep nothing about what is under way."""

    async def _send(self, session: ServiceSession, random: Random) -> None:
        """Send a message once there is room; not if the session ends before."""
        message = session.draw(self._draw_request, random)
        try:
            client = await session.path.client_for(self._key_of(message))
            while not session.is_over and not client.try_offer(message):
                await pause_until(session.over, FULL_PAUSE_S)
        except NO_SESSION:
            return

    async def _ask(self, session: ServiceSession, random: Random) -> None:
        """Have a request run; whatever it comes to is an answer, save that the session ended."""
        request = session.draw(self._draw_request, random)
        try:
            await (await session.path.client_for(self._key_of(request))).request(request)
        except RequestFailedError:
            pass
        except (RejectedError, RequestIndeterminateError, *NO_SESSION):
            return
        self.history.acknowledged_count += 1

    async def _query(self, session: ServiceSession, random: Random) -> None:
        """Ask for the state; what the service or the cluster refuses is an answer."""
        assert self._draw_query is not None
        payload = bytes(self._draw_query(random, session.sent_count))
        max_staleness_s = _STALENESS_S if random.random() < 0.5 else None
        try:
            client = await session.path.any_client(random)
            await client.query(payload, max_staleness_s=max_staleness_s)
        except (QueryRefusedError, *NO_SESSION):
            return
        self.history.service_query_count += 1


class ServiceSession(Session):
    """One session, which counts what it is sent."""

    def __init__(self, number: int, work: ServiceWork) -> None:
        super().__init__(number)
        self.sent_count = 0
        self._work = work

    def draw(self, draw_request: DrawRequest, random: Random) -> bytes:
        """Draw the next request of this session."""
        self.sent_count += 1
        return bytes(draw_request(random, self.sent_count - 1))

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Count an answer."""
        self._work.history.acknowledged_count += 1


class RoundsWork:
    """The rounds that the author of a test wrote, one after another.

    What a round raises ends the session if it is among `weather`: what faults do to a client. Anything else ends the
    run: a rule of the author is broken.
    """

    def __init__(
        self,
        number: int,
        *,
        history: History,
        pace: Pace,
        random: Random,
        use: UseCluster,
        weather: tuple[type[Exception], ...],
    ) -> None:
        """Make the work of client `number`; nothing is known about answers, so the history stays empty."""
        pace = replace(pace, in_flight_limit=1, burst_rate=0.0, idle_rate=0.0, close_rate=0.0)
        self.lanes = [Lane([OperationRow("round", 1.0, self._round)], pace, random)]
        self._number, self._use, self._weather = number, use, weather
        self._round_count = 0

    def make_session(self, number: int) -> Session:
        """Make a session whose messages the author's code reads."""
        session = Session(number)
        session.is_listening = False
        return session

    def abandon(self) -> None:
        """Keep nothing about what is under way."""

    async def _round(self, session: Session, random: Random) -> None:
        assert isinstance(session.path, OneSession)
        self._round_count += 1
        try:
            await self._use(session.path.client, random)
        except self._weather:
            session.end()
        except Exception as error:
            session.end()
            end_run(self._broken(error))

    def _broken(self, error: Exception) -> RuleBroken:
        places = [place for place in traceback.extract_tb(error.__traceback__) if place.name == self._use.__name__]
        where = {"file": places[-1].filename, "line": places[-1].lineno} if places else {}
        return RuleBroken(WORKLOAD_RULE, client=self._number, round=self._round_count, error=error, **where)
