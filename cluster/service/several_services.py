"""Several services of one node, behind the interface of one service.

A request of a typed client names one service, which alone is given it: another service could take its bytes for
something else. All other requests go to every service that is not typed, as a node of Aeron gives them to all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from ...service_api import ClientSession, ClusteredService, RemoteProtocolError
from ...service_api.service_directory import encode_directory, named_entries, show_entries
from ...service_api.wire.payload_header import addressee_of, schemas_query

Reply = bytes | bytearray | memoryview

logger = structlog.get_logger()

_WHO_RUNS: Final = schemas_query()


class NoReceiverError(RemoteProtocolError):
    """A request that no service of the node takes; it is no service's mistake."""


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

    A request that names a typed service goes to that one. Any other goes to every service that takes requests and is
    not typed. It has one answer, that of the service with the lowest id; a start says which services' answers nobody
    gets.
    """

    def __init__(
        self, services: Sequence[ClusteredService], on_service_error: Callable[[BaseException, ClusteredService], None]
    ) -> None:
        self._on_service_error = on_service_error
        self._callbacks = [(service, service.on_session_message) for service in services if service.takes_messages]
        self._requested = [service for service in services if service.takes_requests and service.typed_name is None]
        self._typed = {number: service for number, service in enumerate(services) if service.typed_name is not None}
        self._services = tuple(services)
        if len(self._requested) > 1:
            self._warn_of_dropped_answers(services)

    @property
    def takes_messages(self) -> bool:
        """Whether any service takes them."""
        return bool(self._callbacks)

    @property
    def takes_requests(self) -> bool:
        """Whether any service answers."""
        return bool(self._requested or self._typed)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Deliver it to each service."""
        for service, on_session_message in self._callbacks:
            try:
                on_session_message(session, timestamp, payload)
            except BaseException as error:
                self._on_service_error(error, service)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> Reply:
        """Deliver it to the service that it names and return its answer.

        Without a name deliver it to each service; return the answer of the first, or raise its exception after all have
        had it.

        Raises:
            NoReceiverError: it names a service that is not there, or none, and no service takes it then.
        """
        service_id = addressee_of(payload) if self._typed else None
        addressed = None if service_id is None else self._typed.get(service_id)
        if addressed is not None:
            return addressed.on_request(session, timestamp, payload)
        if not self._requested:
            raise NoReceiverError(self._why_nobody(service_id))
        answering, *others = self._requested
        try:
            return answering.on_request(session, timestamp, payload)
        finally:
            for service in others:
                try:
                    service.on_request(session, timestamp, payload)
                except BaseException as error:
                    self._on_service_error(error, service)

    def _why_nobody(self, service_id: int | None) -> str:
        names = show_entries(named_entries(self._services))
        if service_id is None:
            return f"the request is of no typed client, and the services here are typed: {names}; use TypedClient"
        return f"no service with service_id={service_id} takes typed requests; the services here: {names}"

    def on_unnamed_query(self, payload: memoryview) -> bytes | None:
        """Answer a typed client that asks which services there are; None: the query is something else."""
        return encode_directory(named_entries(self._services)) if payload == _WHO_RUNS else None

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
