"""One typed service without a cluster: messages as classes, as its clients send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...client.typed.exchange import EventReader, Exchange, Route, check_kind, run_steps
from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.typed import Command, Event, Query, TypedService
from .harness import START_TIME, ServiceHarness

S = TypeVar("S", bound=TypedService)
R = TypeVar("R")
E = TypeVar("E", bound=Event)


class TypedHarness(ServiceHarness[S]):
    """Runs one typed service by hand.

        bank = TypedHarness(Bank)
        assert bank.call(Deposit("a", 5)) == Balance(5)
        with pytest.raises(Overdrawn):
            bank.call(Withdraw("a", 6))

    `call`, `ask` and `events` are those of a typed client, on the session `client`. A `ServiceError` of the service is
    raised as the client gets it; what else a handler raises passes through as it is. All else is of `ServiceHarness`.
    """

    def __init__(
        self,
        service: Callable[[], S],
        *,
        snapshot: list[bytes] | None = None,
        time: int = START_TIME,
        strict: bool = True,
        double_execution: bool = False,
        group: Group = ONLY_GROUP,
        term_length_bytes: int = 64 << 20,
    ) -> None:
        super().__init__(
            service,
            snapshot=snapshot,
            time=time,
            strict=strict,
            double_execution=double_execution,
            group=group,
            term_length_bytes=term_length_bytes,
        )
        if not isinstance(self.service, TypedService):
            name = type(self.service).__qualname__
            raise ConfigurationError(f"service={name} expected a TypedService; ServiceHarness takes any")
        self._begin()

    def _begin(self) -> None:
        self.exchange = Exchange()
        """What a typed client knows of the service."""
        self._routes: dict[type, Route] = {}

    def restart(self, service: Callable[[], Any] | None = None) -> None:  # Any: the next version of S
        """Take a snapshot and go on from it with a new instance: of other code if `service` says so."""
        super().restart(service)
        self._begin()

    def call(self, command: Command[R]) -> R:
        """Have the service run a command, and return its reply.

        Raises:
            ServiceError: the service said no.
            Exception: what else its handler raises.
        """
        check_kind(command, Command)
        route = self.route(type(command))
        answer: R = route.read(self.request(route.payload(command)))
        return answer

    def ask(self, query: Query[R]) -> R:
        """Ask the service's state; otherwise as `call`."""
        check_kind(query, Query)
        route = self.route(type(query))
        answer: R = route.read(self.query(route.payload(query)))
        return answer

    def events(self, *kinds: type[E]) -> list[E]:
        """Return the events of some classes that the service has sent to `client`, in order."""
        reader = EventReader(kinds)
        return [event for event in map(reader.read, self.egress) if event is not None]

    def route(self, message: type[Any]) -> Route:
        """Return how a class of messages is sent: for a test that changes the bytes; otherwise as `call`."""
        route = self._routes.get(message)
        if route is None:
            route = self._routes[message] = run_steps(
                self.exchange.prepare(message),
                lambda question: self.query(question.payload),
                lambda announcement: self.request(announcement.payload),
            )
        return route
