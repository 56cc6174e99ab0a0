"""A typed client on a service without a cluster."""

from __future__ import annotations

from typing import Any, TypeVar

from trimaran.client.typed.exchange import SCHEMAS_QUERY, EventReader, Exchange, Route
from trimaran.cluster.testing import ServiceHarness
from trimaran.service_api.typed import Command, Event, Query, TypedService

R = TypeVar("R")


class TypedHarness:
    """Calls a service as a typed client does."""

    def __init__(self, service: type[TypedService]) -> None:
        self.harness = ServiceHarness(service)
        self.exchange = Exchange()
        self.exchange.load(self.harness.query(SCHEMAS_QUERY))
        self._routes: dict[type, Route] = {}

    @property
    def service(self) -> Any:
        return self.harness.service

    def call(self, message: Command[R] | Query[R]) -> R:
        route = self._route(type(message))
        send = self.harness.query if isinstance(message, Query) else self.harness.request
        answer: R = route.read(send(route.payload(message)))
        return answer

    def _route(self, message: type) -> Route:
        if message not in self._routes:
            route = self._routes[message] = self.exchange.route(message)
            announcement = self.exchange.announcement(route)
            if announcement is not None:
                self.harness.request(announcement)
                self.exchange.on_announced(route)
        return self._routes[message]

    def events(self, *kinds: type[Event]) -> list[Event]:
        reader = EventReader(kinds)
        return [event for event in map(reader.read, self.harness.egress) if event is not None]
