"""Several services of one node, behind the interface of one service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trimaran.service_api import ClientSession, ClusteredService, ConfigurationError

Reply = bytes | bytearray | memoryview


class MessageReceiver(Protocol):
    """The receiver of clients' messages: one service, or all of them."""

    @property
    def takes_messages(self) -> bool:
        """Whether messages are taken."""

    @property
    def takes_requests(self) -> bool:
        """Whether requests are answered."""

    @property
    def on_session_message(self) -> Callable[[ClientSession, int, memoryview], None]:
        """Take a message."""

    @property
    def on_request(self) -> Callable[[ClientSession, int, memoryview], Reply]:
        """Answer a request."""


class EveryService:
    """Gives each message to every service, by service id; what one raises keeps nothing from the others.

    One service at most takes requests, and a request goes to that one.

    Raises:
        ConfigurationError: two take requests.
    """

    def __init__(
        self, services: Sequence[ClusteredService], on_service_error: Callable[[BaseException, ClusteredService], None]
    ) -> None:
        check_request_services(services)
        self._on_service_error = on_service_error
        self._callbacks = [(service, service.on_session_message) for service in services if service.takes_messages]
        self._answering = next((service for service in services if service.takes_requests), None)

    @property
    def takes_messages(self) -> bool:
        """Whether any service takes them."""
        return bool(self._callbacks)

    @property
    def takes_requests(self) -> bool:
        """Whether any service answers."""
        return self._answering is not None

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Deliver it to each service."""
        for service, on_session_message in self._callbacks:
            try:
                on_session_message(session, timestamp, payload)
            except BaseException as error:
                self._on_service_error(error, service)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> Reply:
        """Deliver it to the one service that takes requests."""
        assert self._answering is not None  # `takes_requests` was looked at
        return self._answering.on_request(session, timestamp, payload)


def check_request_services(services: Sequence[ClusteredService]) -> None:
    """Refuse services of which two take requests: a request has one answer, and the other one would be dropped.

    Raises:
        ConfigurationError: the user's; names them.
    """
    taking = [f"{service_id} {type(s).__name__}" for service_id, s in enumerate(services) if s.takes_requests]
    if len(taking) > 1:
        raise ConfigurationError(
            f"several services take requests: {', '.join(taking)}; a request has one answer: define on_request in one "
            "of them, and let it offer messages to the others"
        )
