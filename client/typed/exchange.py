"""What typed clients send and get, without I/O: one `Exchange` for each client.

A client first asks which typed services there are, which schemas they have, and which of them were announced. Before
it sends a class of messages for the first time it compares. A class that the service cannot read is refused here, with
the field that differs, and so is a class whose reply this program cannot read. A schema that is not in the log yet is
announced. So the log alone says how its messages are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

import msgspec

from ...service_api.errors import LocalProtocolError, RemoteProtocolError
from ...service_api.service_directory import ServiceEntry, decode_directory, show_entries
from ...service_api.typed.codec import READ_ANY, MessageCodec, ValueCodec
from ...service_api.typed.handlers import reply_of
from ...service_api.typed.messages import Command, Event, Query, ServiceError, wire_name
from ...service_api.typed.schema import Schema, find_change, find_field_change, fingerprint_of
from ...service_api.wire.payload_header import HEADER_BYTES, MAGIC, SERVICE_ID_LIMIT, PayloadKind, schemas_query


def find_kind_fault(message: type, expected: type[Command[Any] | Query[Any]]) -> str | None:
    """Say why a class of messages cannot be sent as a command or as a query, with the way that can; None if it can."""
    if issubclass(message, expected):
        return None
    ways = {Command: ("call", "calls"), Query: ("ask", "asks")}
    found = next((kind for kind in ways if issubclass(message, kind)), None)
    instead = "" if found is None else f": it is a {found.__name__}, use `{ways[found][0]}` or `{ways[found][1]}`"
    return f"{message.__qualname__} expected a {expected.__name__}{instead}"


def check_kind(message: object, expected: type[Command[Any] | Query[Any]]) -> None:
    """Refuse a message that is to be sent as what it is not.

    Raises:
        LocalProtocolError: a query as a command would be an entry of the log that no service reads.
    """
    if isinstance(message, type) and issubclass(message, expected):
        raise LocalProtocolError(f"{message.__qualname__} is a class, expected an object: {message.__qualname__}(...)")
    fault = find_kind_fault(message if isinstance(message, type) else type(message), expected)
    if fault is not None:
        raise LocalProtocolError(fault)


class UnknownServiceError(ServiceError):
    """The service said no by a class of errors that this program does not have."""

    error_name: str
    values: list[Any]


class Route:
    """How one class of commands or queries is sent to its service, and the replies are read."""

    def __init__(self, message: type) -> None:
        self._kind = PayloadKind.QUERY if issubclass(message, Query) else PayloadKind.COMMAND
        self.is_logged = self._kind is PayloadKind.COMMAND
        """Whether what is sent goes to the log."""
        self.reply: ValueCodec[Any] = ValueCodec(reply_of(message), f"the reply to {message.__qualname__}")
        self.codec: MessageCodec[Any] = MessageCodec(message, self.reply.schema)
        self.header_of_reply = bytes((MAGIC, PayloadKind.REPLY)) + self.reply.fingerprint
        """What a reply of this program's class begins with."""
        self._home = message.__module__
        self.bind(0, self.codec.schema)

    def __repr__(self) -> str:
        return f"<Route {self.codec.name} service={self.service_id}>"

    def bind(self, service_id: int, schema: Schema) -> None:
        """Choose the service; `schema` is what it has for the message."""
        self.service_id = service_id
        self.header = self.codec.header(self._kind, service_id)
        self._their_reply: Schema = schema.get("reply")

    def payload(self, message: Any) -> bytes:
        """Write a message.

        Raises:
            RemoteProtocolError: a field has a value that is not of its type; says which.
        """
        return self.header + self.codec.check(message)

    def payloads(self, messages: Sequence[Any]) -> list[bytes] | None:
        """Write messages in one go; None if `payload` of each has to say which one is at fault."""
        bodies = self.codec.check_many(messages)
        return None if bodies is None else [*map(self.header.__add__, bodies)]

    def replies(self, answers: Sequence[bytes]) -> list[Any] | None:
        """Read answers in one go; None if `read` of each has to say what they are, as with an error among them."""
        if {answer[:HEADER_BYTES] for answer in answers} != {self.header_of_reply}:
            return None
        decode = self.reply.decode
        try:
            return [decode(answer[HEADER_BYTES:]) for answer in answers]
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            return None

    def read(self, data: bytes) -> Any:
        """Read what a service answered.

        Raises:
            ServiceError: the service said no.
            RemoteProtocolError: the reply is of a type that this program's class cannot read, or no value of its type.
        """
        if data.startswith(self.header_of_reply):
            try:
                return self.reply.decode(data[HEADER_BYTES:])
            except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
                raise RemoteProtocolError(f"the reply to {self.codec.name} is none: {error}") from error
        if data[:2] == bytes((MAGIC, PayloadKind.ERROR)):
            raise read_error(data, home=self._home)
        schema = self._their_reply
        if data[:2] != self.header_of_reply[:2] or fingerprint_of(schema) != data[2:HEADER_BYTES]:
            raise RemoteProtocolError(
                f"{self.codec.name}: the answer is no reply that this client knows: {data[:16]!r}"
            )
        return self.reply.decode_older(data[HEADER_BYTES:], schema, f"the reply to {self.codec.name}")


@dataclass(slots=True, frozen=True)
class Question:
    """A query that the client must send before a message."""

    payload: bytes
    service_id: int | None


@dataclass(slots=True, frozen=True)
class SchemaRequest:
    """A request that the client must send before a message: it puts the schema of the message in the log."""

    payload: bytes


class Exchange:
    """What one client knows of the typed services: whether it can talk to them.

    `service` is the name of the one that the client is for; without it each class of messages finds its own.
    """

    def __init__(self, service: str | None = None) -> None:
        self._service = service
        self._entries: list[ServiceEntry] = []
        self._announced: set[tuple[int, bytes]] = set()

    def __repr__(self) -> str:
        return f"<Exchange services={show_entries(self._entries)}>"

    def prepare(self, message: type) -> Generator[Question | SchemaRequest, bytes, Route]:
        """Make ready for a class of messages; send what this yields, and give it the answer.

        Raises:
            ConfigurationError: the class cannot be written in bytes.
            LocalProtocolError: no service has such a message, or several do, or the one that has it has another one of
                the name; says what differs.
            RemoteProtocolError: an answer is none: the service is not a typed one.
        """
        yield from self.find_services()
        for number, entry in enumerate(self._entries):
            if entry.schemas is None and self._service in (None, entry.name):
                question = Question(schemas_query(entry.service_id), entry.service_id)
                (self._entries[number],) = decode_directory((yield question))
        route = self._route(message)
        known = route.service_id, route.codec.fingerprint
        if route.is_logged and known not in self._announced:
            yield SchemaRequest(route.codec.announcement(route.service_id))
            self._announced.add(known)
        return route

    def find_services(self) -> Generator[Question, bytes, int | None]:
        """Learn which services there are, and give the id of the one that the client is for; otherwise as `prepare`.

        Raises:
            LocalProtocolError: it does not run.
        """
        if not self._entries:
            self._entries = decode_directory((yield Question(schemas_query(), None)))
        return self._named.service_id if self._service is not None else None

    @property
    def _named(self) -> ServiceEntry:
        named = [entry for entry in self._entries if entry.name == self._service]
        if not named:
            raise LocalProtocolError(
                f"no service {self._service} runs in this cluster; its typed services: {show_entries(self._entries)}"
            )
        return named[0]

    def _route(self, message: type) -> Route:
        route = Route(message)
        name = route.codec.name
        entries = self._entries if self._service is None else [self._named]
        found = [(entry, entry.schemas) for entry in entries if entry.schemas and name in entry.schemas.by_name]
        if not found:
            takers = "; ".join(f"{entry.name} takes {_names(entry)}" for entry in entries) or "none runs"
            raise LocalProtocolError(f"no typed service takes {name}: {takers}")
        same = [each for each in found if each[1].by_name[name] == route.codec.schema]
        if len(found) > 1 and len(same) != 1:
            raise LocalProtocolError(
                f"several services take {name}: {show_entries(entry for entry, _ in found)}; say which one the client "
                f"is for: class OwnClient(TypedClient, service='{found[0][0].name}')"
            )
        entry, schemas = same[0] if len(found) > 1 else found[0]
        fingerprint = route.codec.fingerprint
        if fingerprint in schemas.announced:
            self._announced.add((entry.service_id, fingerprint))
        change = find_field_change(route.codec.schema["fields"], schemas.by_name[name]["fields"], name)
        if change is not None and fingerprint not in schemas.announced:
            raise LocalProtocolError(f"{entry.name} has another {name}: here {change} there")
        answered = schemas.by_name[name].get("reply")
        change = None if answered is None else find_change(answered, route.reply.schema, f"the reply to {name}")
        if change is not None:
            raise LocalProtocolError(f"{entry.name} answers {name} otherwise: there {change} here")
        route.bind(entry.service_id, schemas.by_name[name])
        return route


T = TypeVar("T")
Step = Question | SchemaRequest


def run_steps(
    steps: Generator[Step, bytes, T], ask: Callable[[Question], bytes], announce: Callable[[SchemaRequest], bytes]
) -> T:
    """Send what an exchange wants sent, one after another, and return what it comes to."""
    try:
        step = next(steps)
        while True:
            step = steps.send(ask(step) if isinstance(step, Question) else announce(step))
    except StopIteration as stop:
        result: T = stop.value
        return result


def _names(entry: ServiceEntry) -> str:
    return ", ".join(sorted(entry.schemas.by_name)) if entry.schemas and entry.schemas.by_name else "nothing"


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
    """Reads the events of some classes, of any service or of one; others are passed over."""

    def __init__(self, kinds: tuple[type[Event], ...], *, service_id: int | None = None) -> None:
        codecs = [MessageCodec(kind) for kind in kinds]
        ids = range(SERVICE_ID_LIMIT) if service_id is None else [service_id]
        self._codecs = {codec.header(PayloadKind.EVENT, each): codec for codec in codecs for each in ids}

    def __repr__(self) -> str:
        return f"<EventReader of {[*dict.fromkeys(codec.name for codec in self._codecs.values())]}>"

    def read(self, payload: bytes | memoryview) -> Any:
        """Give the event, or None for what is none of these classes."""
        codec = self._codecs.get(bytes(payload[:HEADER_BYTES]))
        return None if codec is None else codec.decode(payload[HEADER_BYTES:])
