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
from collections.abc import AsyncIterator, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar, Unpack, cast, overload

from ...service_api.connecting import Connecting
from ...service_api.errors import ClusterError, ClusterTimeoutError, LocalProtocolError, RemoteProtocolError
from ...service_api.typed import Command, Event, Query
from ..batches import results_of
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
        self._before_call()
        route = self._routes.get(type(command))
        if route is None or self._waiting_count or not route.is_logged:
            check_kind(command, Command)
            timeout_s = await self._find_routes((type(command),), timeout_s)
            route = self._routes[type(command)]
        payload, cluster = route.payload(command), self.cluster
        future = cluster._begin_request(payload, timeout_s)
        if future is None:
            reply = await cluster.request(payload, timeout_s=timeout_s)
        else:
            # As `ClusterClient.request` does.
            try:
                reply = await future
            except asyncio.CancelledError:
                cluster._withdraw(future)
                raise
        answer: R = route.read(reply)
        return answer

    @overload
    async def call_many(
        self,
        commands: Iterable[Command[R]],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...
    @overload
    async def call_many(
        self, commands: Iterable[Command[R]], *, timeout_s: float | None = None, return_exceptions: bool
    ) -> list[R | ClusterError]: ...
    async def call_many(
        self, commands: Iterable[Command[R]], *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[R] | list[R | ClusterError]:
        """Have the service run commands, of one class or of several, and give the replies by position.

        It is to `call` as `ClusterClient.request_many` is to `request`: each command runs exactly once, in its order,
        and whether those before it fail or not. With `return_exceptions` errors are in the list, each at the position
        of its command; otherwise the first one is raised, once every outcome is known.

        Raises:
            RemoteProtocolError: a field has a value that is not of its type; its note says of which command. Nothing
                was sent. Or a reply cannot be read.

        Also what `call` raises, of each command.
        """
        self._before_call()
        listed, routes = [*commands], self._routes
        kinds = dict.fromkeys(map(type, listed))
        if self._waiting_count or not all(kind in routes and routes[kind].is_logged for kind in kinds):
            for each in listed:
                check_kind(each, Command)
            timeout_s = await self._find_routes(kinds, timeout_s)
        only = routes[next(iter(kinds))] if len(kinds) == 1 else None
        payloads = _payloads(listed, routes) if only is None else only.payloads(listed) or _payloads(listed, routes)
        outcomes = await self.cluster.request_many(payloads, timeout_s=timeout_s, return_exceptions=True)
        if only is not None and (replies := _replies(outcomes, only)) is not None:
            return replies
        results: list[R | ClusterError] = []
        for each, outcome in zip(listed, outcomes, strict=True):
            try:
                results.append(outcome if isinstance(outcome, ClusterError) else routes[type(each)].read(outcome))
            except ClusterError as error:
                results.append(error)
        return results if return_exceptions else results_of(results)

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
            timeout_s = await self._wait_for_routes((type(query),), timeout_s)
            route = self._routes[type(query)]
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

    def _before_call(self) -> None:
        """Do what a client does before each of its commands; nothing here."""

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

    async def _find_routes(self, messages: Collection[type], timeout_s: float | None) -> float:
        """As `_wait_for_routes`, of commands.

        Raises:
            RejectedError: the time is over; nothing of the classes was sent.
        """
        try:
            return await self._wait_for_routes(messages, timeout_s)
        except ClusterTimeoutError as error:
            raise RejectedError(f"timed out before it was sent: {error}") from error

    async def _wait_for_routes(self, messages: Collection[type], timeout_s: float | None) -> float:
        """Wait until the calls before have gone on, find the way of each class, and return what is left of the time.

        The lock is given to those who wait in the order in which they came. Who has it makes its request before the
        next one runs.

        Raises:
            ClusterTimeoutError: the time is over; nothing of the classes was sent.
        """
        limit_s = self.cluster.call_timeout_s if timeout_s is None else timeout_s
        self._waiting_count += 1
        try:
            async with begin_limit(limit_s) as limit, self._turn:
                for message in messages:
                    if message not in self._routes:
                        await self._prepare(message)
        except TimeoutError as error:
            names = ", ".join(message.__name__ for message in messages)
            raise ClusterTimeoutError(f"{names} waited for its service: timeout_s={limit_s:g}") from error
        finally:
            self._waiting_count -= 1
        return seconds_left(limit)

    async def _prepare(self, message: type) -> None:
        """Find the service of a class, compare with what it has, and have the schema in the log."""
        self._routes[message] = await self._run(self._exchange.prepare(message))

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


def _payloads(messages: Sequence[Any], routes: Mapping[type, Route]) -> list[bytes]:
    """Write messages one by one.

    Raises:
        RemoteProtocolError: a field has a value that is not of its type; the note says the position of the message.
    """
    payloads: list[bytes] = []
    try:
        payloads.extend(routes[type(each)].payload(each) for each in messages)
    except RemoteProtocolError as error:
        error.add_note(f"position={len(payloads)} of {len(messages)} in the batch; nothing was sent")
        raise
    return payloads


def _replies(outcomes: Sequence[bytes | ClusterError], route: Route) -> list[Any] | None:
    """Read outcomes that are replies to one class of messages; None if another one is among them."""
    return route.replies(cast("Sequence[bytes]", outcomes)) if {*map(type, outcomes)} == {bytes} else None


def client_for(cluster: ClusterClient, service: str) -> TypedClient:
    """Make a client of one service by its name, over a session that is open."""
    kind: type[TypedClient] = type("TypedClient", (TypedClient,), {}, service=service)
    return kind(cluster)


async def route_of(client: TypedClient, message: type) -> Route:
    """Return how a class of messages is sent; its schema is in the log then. What it raises, `TypedClient.call` raises.

    For a command that goes within another request.
    """
    if client._known_route(message) is None:
        await client._wait_for_routes((message,), None)
    return client._routes[message]
