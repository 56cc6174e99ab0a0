"""Several services of one node, behind the interface of one service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from trimaran.service_api import ClientSession, ClusteredService

Reply = bytes | bytearray | memoryview

logger = structlog.get_logger()


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

    A request goes to every service that takes requests, as a message does: a node of Aeron gives it to all, too. It has
    one answer, that of the service with the lowest id. A start says which services' answers nobody gets.
    """

    def __init__(
        self, services: Sequence[ClusteredService], on_service_error: Callable[[BaseException, ClusteredService], None]
    ) -> None:
        self._on_service_error = on_service_error
        self._callbacks = [(service, service.on_session_message) for service in services if service.takes_messages]
        self._requested = [service for service in services if service.takes_requests]
        if len(self._requested) > 1:
            self._warn_of_dropped_answers(services)

    @property
    def takes_messages(self) -> bool:
        """Whether any service takes them."""
        return bool(self._callbacks)

    @property
    def takes_requests(self) -> bool:
        """Whether any service answers."""
        return bool(self._requested)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Deliver it to each service."""
        for service, on_session_message in self._callbacks:
            try:
                on_session_message(session, timestamp, payload)
            except BaseException as error:
                self._on_service_error(error, service)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> Reply:
        """Deliver it to each service; return the answer of the first, or raise its exception after all have had it."""
        answering, *others = self._requested
        try:
            return answering.on_request(session, timestamp, payload)
        finally:
            for service in others:
                try:
                    service.on_request(session, timestamp, payload)
                except BaseException as error:
                    self._on_service_error(error, service)

    def _warn_of_dropped_answers(self, services: Sequence[ClusteredService]) -> None:
        answering, *silent = (
            f"{service_id} {service!r}" for service_id, service in enumerate(services) if service in self._requested
        )
        logger.warning(
            "services.answers_dropped",
            answering=answering,
            silent=silent,
            reason="several services take requests: each is given every request, and a client gets one answer",
            advice="define on_request in one service, and let it offer messages to the others",
        )
