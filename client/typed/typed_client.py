"""The client of a typed service, made of the same classes: for asyncio, and for scripts and notebooks.

class BankApi:
    deposit = calls(Deposit)
    balance = asks(BalanceOf)

class BankClient(BankApi, TypedClient): ...
class SyncBankClient(BankApi, SyncTypedClient): ...

async with BankClient.connect(["127.0.0.1:9000"]) as bank:
    balance = await bank.deposit(account="a", amount=5)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Any, ClassVar, Self, TypeVar, Unpack

from ...service_api.connecting import Connecting
from ...service_api.errors import ClusterTimeoutError, LocalProtocolError
from ...service_api.typed import Command, Event, Query
from ..cluster_client import ClusterClient, OverClient
from ..config import ConnectSettings, with_connect_settings
from ..deadlines import begin_limit, seconds_left
from ..errors import QueryRefusedError, RejectedError
from .exchange import EventReader, Exchange, Question, Route, Step, check_kind

R = TypeVar("R")
T = TypeVar("T")
E = TypeVar("E", bound=Event)


class TypedClient(OverClient):
    """A session with a typed service.

    `call` and `ask` take any message of the service; a subclass has a method for each, see the module. `cluster` is the
    client below, for what is not about messages. Where a cluster runs several typed services,
    `class BankClient(TypedClient, service="bank")` says which one the client is for; without that, each message goes to
    the service that takes it.
    """

    _service: ClassVar[str | None] = None

    def __init_subclass__(cls, *, service: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if service is not None:
            cls._service = service

    def __init__(self, cluster: ClusterClient) -> None:
        super().__init__(cluster)
        self._exchange = Exchange(self._service)
        self._routes: dict[type, Route] = {}
        self._turn = asyncio.Lock()
        self._waiting_count = 0
        """Calls that wait for their turn: while there are some, a new one is behind them."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.cluster!r}>"

    @classmethod
    @with_connect_settings
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Connecting[Self]:
        """Open a session; enter what this gives with `async with`, or await it and call `aclose` in the end.

        The arguments are those of `ClusterClient.connect`, and so is what is raised.
        """
        below = ClusterClient.connect(endpoints, **settings)

        async def make() -> Self:
            return cls(await below)

        return Connecting(make)

    async def call(self, command: Command[R], *, timeout_s: float | None = None) -> R:
        """Have the service run a command, exactly once, and give its reply.

        Commands of one client run in the order in which they were begun, the first of each class among them.
        `timeout_s` bounds all of it: the first of a class finds its service and has its schema put in the log before.

        Raises:
            ServiceError: the service said no, by a class of its own.
            LocalProtocolError: no service, or more than one, has such a message; or another one of that name, or one
                with a reply that cannot be read here: says what differs. Or the service that the client is for does not
                run: says which ones do. Or it is a `Query`: use `ask`.
            RemoteProtocolError: a field has a value that is not of its type; says which. Nothing was sent.
            RequestFailedError: the service has a mistake, and raised; says what.

        Also what `ClusterClient.request` raises.
        """
        check_kind(command, Command)
        route = self._known_route(type(command))
        if route is None:
            try:
                route, timeout_s = await self._find_route(type(command), timeout_s)
            except ClusterTimeoutError as error:
                raise RejectedError(f"timed out before it was sent: {error}") from error
        answer: R = route.read(await self.cluster.request(route.payload(command), timeout_s=timeout_s))
        return answer

    async def ask(
        self,
        query: Query[R],
        *,
        max_staleness_s: float | None = None,
        read_from: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask the service's state, without an entry in the log; the arguments are those of `ClusterClient.query`.

        Raises:
            ServiceError, LocalProtocolError, RemoteProtocolError: as for `call`.
            QueryRefusedError: the service has a mistake, and raised; says what.

        Also what `ClusterClient.query` raises.
        """
        check_kind(query, Query)
        route = self._known_route(type(query))
        if route is None:
            route, timeout_s = await self._find_route(type(query), timeout_s)
        result = await self.cluster.query(
            route.payload(query),
            max_staleness_s=max_staleness_s,
            read_from=read_from,
            service_id=route.service_id,
            timeout_s=timeout_s,
        )
        answer: R = route.read(result.payload)
        return answer

    async def events(self, *kinds: type[E]) -> AsyncIterator[E]:
        """Iterate over the events of some classes that the service sends to this session; others are passed over.

        async for event in bank.events(BalanceChanged):
            print(event.account)
        """
        reader = EventReader(kinds, service_id=await self._find_service())
        async for message in self.cluster.egress():
            event = reader.read(message.payload)
            if event is not None:
                yield event

    async def _find_service(self) -> int | None:
        """Return the id of the service that the client is for; None without one.

        Raises:
            ClusterTimeoutError: nobody said it within `call_timeout_s`.
        """
        if self._service is None:
            return None
        limit_s = self.cluster.call_timeout_s
        try:
            async with begin_limit(limit_s):
                return await self._run(self._exchange.find_services())
        except TimeoutError as error:
            raise ClusterTimeoutError(f"nobody said which services run: timeout_s={limit_s:g}") from error

    def _known_route(self, message: type) -> Route | None:
        return None if self._waiting_count else self._routes.get(message)

    async def _find_route(self, message: type, timeout_s: float | None) -> tuple[Route, float]:
        """Wait until the calls before have gone on, and find the way of a class; return what is left of the time, too.

        The lock is given to those who wait in the order in which they came. Who has it makes its request before the
        next one runs.

        Raises:
            ClusterTimeoutError: the time is over; nothing of the class was sent.
        """
        limit_s = self.cluster.call_timeout_s if timeout_s is None else timeout_s
        self._waiting_count += 1
        try:
            async with begin_limit(limit_s) as limit, self._turn:
                route = self._routes.get(message) or await self._prepare(message)
        except TimeoutError as error:
            raise ClusterTimeoutError(f"{message.__name__} waited for its service: timeout_s={limit_s:g}") from error
        finally:
            self._waiting_count -= 1
        return route, seconds_left(limit)

    async def _prepare(self, message: type) -> Route:
        """Find the service of a class, compare with what it has, and have the schema in the log."""
        route = self._routes[message] = await self._run(self._exchange.prepare(message))
        return route

    async def _run(self, steps: Generator[Step, bytes, T]) -> T:
        """As `run_steps`; the caller limits the time."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Question):
                    found = await self.cluster.query(step.payload, service_id=step.service_id, timeout_s=math.inf)
                    answer = found.payload
                else:
                    answer = await self.cluster.request(step.payload, timeout_s=math.inf)
                step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except QueryRefusedError as error:
            raise LocalProtocolError(f"the service is no TypedService: {error}") from error


def client_for(cluster: ClusterClient, service: str) -> TypedClient:
    """Make a client of one service by its name, over a session that is open."""
    kind: type[TypedClient] = type("TypedClient", (TypedClient,), {}, service=service)
    return kind(cluster)


async def route_of(client: TypedClient, message: type) -> Route:
    """Return how a class of messages is sent; its schema is in the log then. What it raises, `TypedClient.call` raises.

    For a command that goes within another request.
    """
    route = client._known_route(message)
    return (await client._find_route(message, None))[0] if route is None else route
