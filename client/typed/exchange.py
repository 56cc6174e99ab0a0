"""What typed clients send and get, without I/O: one `Exchange` for each client.

A client first asks which schemas the service has, and which of them were announced. Before it sends a class of messages
for the first time it compares: a class that the service cannot read is refused here, with the field that differs, and a
schema that is not in the log yet is announced. So the log alone says how its messages are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.typed.codec import (
    HEADER_BYTES,
    MAGIC,
    READ_ANY,
    MessageCodec,
    PayloadKind,
    ValueCodec,
)
from trimaran.service_api.typed.handlers import reply_of
from trimaran.service_api.typed.messages import Command, Event, Query, ServiceError, wire_name
from trimaran.service_api.typed.schema import Schema, find_field_change, fingerprint_of

SCHEMAS_QUERY: Final = bytes((MAGIC, PayloadKind.SCHEMAS)) + bytes(HEADER_BYTES - 2)


class UnknownServiceError(ServiceError):
    """The service said no by a class of errors that this program does not have."""

    error_name: str
    values: list[Any]


class Route:
    """How one class of commands or queries is sent, and its replies are read."""

    def __init__(self, message: type, exchange: Exchange) -> None:
        kind = PayloadKind.QUERY if issubclass(message, Query) else PayloadKind.COMMAND
        if not issubclass(message, Command | Query):
            raise LocalProtocolError(f"{message.__name__}: expected a Command or a Query")
        self.reply: ValueCodec[Any] = ValueCodec(reply_of(message), f"the reply to {message.__qualname__}")
        self.codec: MessageCodec[Any] = MessageCodec(message, self.reply.schema)
        self.header = self.codec.header(kind)
        self._reply_header = bytes((MAGIC, PayloadKind.REPLY)) + self.reply.fingerprint
        self._exchange = exchange
        self._home = message.__module__

    def __repr__(self) -> str:
        return f"<Route {self.codec.name}>"

    def payload(self, message: Any) -> bytes:
        """Write a message.

        Raises:
            RemoteProtocolError: a field has a value that is not of its type; says which.
        """
        return self.header + self.codec.check(message)

    def read(self, data: bytes) -> Any:
        """Read what a service answered.

        Raises:
            ServiceError: the service said no.
            RemoteProtocolError: the reply is of a type that this program's class cannot read.
        """
        if data[:HEADER_BYTES] == self._reply_header:
            return self.reply.decode(memoryview(data)[HEADER_BYTES:])
        if data[:2] == bytes((MAGIC, PayloadKind.ERROR)):
            raise read_error(data, home=self._home)
        schema = self._exchange.reply_schema(self.codec.name)
        if data[:2] != self._reply_header[:2] or fingerprint_of(schema) != data[2:HEADER_BYTES]:
            raise RemoteProtocolError(
                f"{self.codec.name}: the answer is no reply that this client knows: {data[:16]!r}"
            )
        return self.reply.decode_older(data[HEADER_BYTES:], schema, f"the reply to {self.codec.name}")


class Exchange:
    """What one client knows of the service: whether it can talk to it."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._announced: set[bytes] = set()
        self._service = ""

    def __repr__(self) -> str:
        return f"<Exchange service={self._service} messages={len(self._schemas)}>"

    def load(self, answer: bytes) -> None:
        """Take the service's answer to `SCHEMAS_QUERY`.

        Raises:
            RemoteProtocolError: it is none: the service is not a typed one.
        """
        try:
            found = json.loads(answer)
            self._service = found["service"]
            self._schemas = {schema["name"]: schema for schema in found["schemas"].values()}
            self._announced = {bytes.fromhex(each) for each in found["announced"]}
        except (ValueError, KeyError, TypeError) as error:
            raise RemoteProtocolError(f"the service is no TypedService: it answered {answer[:40]!r}") from error

    def reply_schema(self, name: str) -> Schema:
        """Return the schema of the replies that the service gives; None for a message that it does not have."""
        return self._schemas.get(name, {}).get("reply")

    def route(self, message: type) -> Route:
        """Make ready for a class of messages.

        Raises:
            ConfigurationError: the class cannot be written in bytes.
            LocalProtocolError: the service has no such message, or another one of the name; says what differs.
        """
        route = Route(message, self)
        theirs = self._schemas.get(route.codec.name)
        if theirs is None:
            known = ", ".join(sorted(self._schemas)) or "none"
            raise LocalProtocolError(f"{self._service} takes no {route.codec.name}; it takes: {known}")
        change = find_field_change(route.codec.schema["fields"], theirs["fields"], route.codec.name)
        if change is not None and route.codec.fingerprint not in self._announced:
            raise LocalProtocolError(f"{self._service} has another {route.codec.name}: here {change} there")
        return route

    def announcement(self, route: Route) -> bytes | None:
        """Give the request that announces a schema; None if it is in the log already."""
        if route.codec.fingerprint in self._announced or route.header[1] != PayloadKind.COMMAND:
            return None
        return route.codec.announcement()

    def on_announced(self, route: Route) -> None:
        """The announcement is in the log."""
        self._announced.add(route.codec.fingerprint)


def read_error(data: bytes, *, home: str = "") -> ServiceError:
    """Make the error that a service raised, of the same class where this program has it.

    Two services may have an error of one name: that of the module nearest to `home`, where the message is from, goes
    first. So `bank.errors` goes before `shop.errors` for a message of `bank.messages`.
    """
    fingerprint = data[2:HEADER_BYTES]
    length = int.from_bytes(data[HEADER_BYTES : HEADER_BYTES + 2], "little")
    body_begin = HEADER_BYTES + 2 + length
    name, body = data[HEADER_BYTES + 2 : body_begin].decode(), data[body_begin:]
    named = [kind for kind in _subclasses(ServiceError) if wire_name(kind) == name]
    for kind in sorted(named, key=lambda kind: _nearness(kind.__module__, home), reverse=True):
        codec = MessageCodec(kind)
        if codec.fingerprint == fingerprint:
            return codec.decode(body)
    return UnknownServiceError(name, list(READ_ANY.decode(body)))


def _nearness(module: str, home: str) -> tuple[bool, int]:
    """How near two modules are: the same one, or how many packages they share."""
    pairs = zip(module.split("."), home.split("."), strict=False)
    return module == home, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _subclasses(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


class EventReader:
    """Reads the events of some classes; others are passed over."""

    def __init__(self, kinds: tuple[type[Event], ...]) -> None:
        codecs = [MessageCodec(kind) for kind in kinds]
        self._codecs = {codec.header(PayloadKind.EVENT): codec for codec in codecs}

    def __repr__(self) -> str:
        return f"<EventReader of {len(self._codecs)} classes>"

    def read(self, payload: bytes | memoryview) -> Any:
        """Give the event, or None for what is none of these classes."""
        codec = self._codecs.get(bytes(payload[:HEADER_BYTES]))
        return None if codec is None else codec.decode(payload[HEADER_BYTES:])
