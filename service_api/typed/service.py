"""The class that an author of a typed service subclasses.

    class Bank(TypedService):
        accounts: dict[str, int] = state()

        @handles(Deposit)
        def deposit(self, ctx: Context, message: Deposit) -> Balance:
            self.accounts[message.account] = self.accounts.get(message.account, 0) + message.amount
            return Balance(self.accounts[message.account])

A layer on `ClusteredService`: commands are requests, so each runs exactly once; queries are queries. An author may
override what is there, such as `on_take_snapshot`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from ..cluster import Cluster, SnapshotImage, SnapshotPublication
from ..errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ..outbox.effects import EffectKey
from ..outbox.outbox import OutboxCounts, answer_question, find_outbox
from ..outbox.protocol import (
    EffectsQuestion,
    Settlement,
    SettlementReply,
    decode_outbox_message,
    encode_outbox_message,
)
from ..service import ClusteredService
from ..service_directory import ServiceEntry, ServiceSchemas, encode_directory
from ..session import ClientSession
from ..state_digest import StateDigest
from ..types import CloseReason
from ..wire.payload_header import (
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MAGIC,
    PayloadKind,
    split_header,
    tag_of,
)
from .codec import Bytes, MessageCodec, ValueCodec, schema_from_bytes, schema_to_bytes
from .context import Context
from .declared_state import StatePlan, as_builtins, state
from .handlers import Entry, HandlerRole, find_handlers, reply_of
from .journal import Journal
from .messages import Effect, Event, ServiceError, TimerMessage, wire_name
from .outboxes import DeclaredOutbox, outbox_for
from .schema import Schema, fingerprint_of
from .snapshots import declared_messages, read_declared
from .state_digests import DeclaredDigest

SCHEMA_LIMIT_COUNT: Final = 4_096
"""How many schemas clients may announce; bounds what strangers may fill the state with."""


class _Route:
    """What is done with messages of one fingerprint.

    Args:
        codec: Of the class that the messages are.
        call: The method that takes a message.
        reply: Of the answers; None where nobody is answered.
        older: The schema that the messages' bytes are written by, where that is not the codec's.
        upcast: Makes what the method takes of a message.
    """

    __slots__ = ("call", "codec", "encode_reply", "read", "reply", "reply_header")

    def __init__(
        self,
        codec: MessageCodec[Any],
        call: Callable[..., Any],
        reply: ValueCodec[Any] | None,
        *,
        older: Schema | None = None,
        upcast: Callable[[Any], Any] | None = None,
    ) -> None:
        self.codec, self.call, self.reply = codec, call, reply
        self.reply_header = b"" if reply is None else bytes((MAGIC, PayloadKind.REPLY)) + reply.fingerprint
        self.encode_reply: Callable[[Any], bytes] = _write_nothing if reply is None else reply.encode
        self.read: Callable[[Bytes], Any] = codec.decode
        """Read a message, as the method takes it."""
        if older is not None:
            self.read = lambda body: codec.decode_older(body, older)
        elif upcast is not None:
            self.read = lambda body: upcast(codec.decode(body))


def _write_nothing(reply: Any) -> bytes:
    return b""


class _Table:
    """All that a class of services says and is told; made once for a class."""

    def __init__(self, owner: type[TypedService]) -> None:
        self.owner = owner
        self.routes: dict[tuple[int, bytes], _Route] = {}
        self.names: dict[tuple[int, str], _Route] = {}
        self.timers: dict[type, _Route] = {}
        self.upcasts: dict[bytes, Entry] = {}
        self.schemas: dict[bytes, Schema] = {}
        entries = list(find_handlers(owner))
        for entry in entries:
            if entry.role is not HandlerRole.UPCAST:
                self._add(entry)
        for entry in entries:
            if entry.role is HandlerRole.UPCAST:
                self._add_upcast(entry)
        self.events = {event: MessageCodec(event) for event in owner.events}

    def _add(self, entry: Entry) -> None:
        if entry.role is HandlerRole.TIMER:
            route = _Route(MessageCodec(entry.message), entry.function, None)
            self.timers[entry.message] = route
            kind = _TIMER
        else:
            reply = ValueCodec[Any](reply_of(entry.message), f"the reply to {entry.message.__qualname__}")
            route = _Route(MessageCodec(entry.message, reply.schema), entry.function, reply)
            kind = PayloadKind.COMMAND if entry.role is HandlerRole.COMMAND else PayloadKind.QUERY
        self.routes[kind, route.codec.fingerprint] = route
        self.names[kind, route.codec.name] = route
        self.schemas[route.codec.fingerprint] = route.codec.schema

    def _add_upcast(self, entry: Entry) -> None:
        name = wire_name(entry.message)
        for kind in (PayloadKind.COMMAND, PayloadKind.QUERY, _TIMER):
            today = self.names.get((kind, name))
            if today is None:
                continue
            reply = None if kind == _TIMER else ValueCodec[Any](reply_of(entry.message), f"the reply to {name}").schema
            codec: MessageCodec[Any] = MessageCodec(entry.message, reply)
            route = _Route(codec, today.call, today.reply, upcast=entry.function)
            self.routes[kind, codec.fingerprint] = route
            return
        raise ConfigurationError(f"{entry.place}: no method takes {name}, which it makes of the older class")


_RESERVED: Final = (
    "encode_event",
    "announce_event",
    "keep_timer",
    "drop_timer",
    "keep_effect",
    "effect_owner",
    "find_drift",
    "begin_digest",
    "state_types",
)
"""Methods of TypedService that an author cannot mean to override."""

_OWN_FIELDS: Final = ("timers", "next_timer_id", "known_schemas")
_CONTEXT: Final = "_TypedService__ctx"
_SETTLES: Final = "__trimaran_settles__"
"""Marks an `on_start` after which the state is looked at."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

_TIMER: Final = 0
"""PayloadKind of a route that no client takes."""


_Lane = tuple[
    Mapping[bytes, _Route], Context, Journal, dict[str, Any], Callable[[dict[str, Any], dict[str, Any]], None], int
]
"""What a service needs for each request, read at once: the commands by the header of their payloads, the context, the
journal, the attributes, what checks these, and the longest answer in bytes. A plain tuple is what is unpacked fast."""


class TypedService(ClusteredService):
    """A service whose messages are classes, and whose state is declared. See the module, and docs/typed-services.md.

    `class Bank(TypedService, name="bank")` gives it the name by which clients find it among several services of a node.
    Without one it has the name of the class; a subclass of a service that was named keeps that name.

    `events` are the classes of events that it sends. Everything that is wrong with its methods, messages and state is
    told when the class is defined.
    """

    events: ClassVar[tuple[type[Event], ...]] = ()

    removed: ClassVar[tuple[str, ...]] = ()
    """Fields of the state that older snapshots have, and that are meant to be gone."""

    __table: ClassVar[_Table]
    __plan: ClassVar[StatePlan]
    __journal: Journal
    __is_named: ClassVar[bool] = False
    """Whether the class, or one that it is made of, was given a name."""
    __service_id = 0
    __queries: Mapping[bytes, _Route] = MappingProxyType({})
    """By the header of their payloads, from the start on."""
    __events: Mapping[type, tuple[bytes, Callable[[Any], bytes]]] = MappingProxyType({})
    """The headers of the events that it sends, and what writes the rest; from the start on."""
    __command_tag = tag_of(PayloadKind.COMMAND, 0)
    """Byte 1 of the commands that are for this service."""

    timers: dict[int, tuple[str, bytes]] = state()
    """The timers that have not fired: the name of the class, and the message."""
    next_timer_id: int = state(default=1)
    known_schemas: dict[bytes, bytes] = state()
    """By which schemas the messages in the log are written: what clients have announced, and published events."""

    # What is private has two underscores: a subclass may use any other name that begins with one.

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__take_name(name)
        taken = {*_RESERVED, *_OWN_FIELDS}
        for name in vars(cls):
            if name in taken:
                raise ConfigurationError(
                    f"{cls.__qualname__}.{name}: the name is taken by TypedService; choose another"
                )
        cls.__table = _Table(cls)
        cls.__plan = StatePlan(cls, TypedService, keeps_more=not _writes_declared_alone(cls))
        if cls.on_start is not TypedService.on_start and not hasattr(cls.on_start, _SETTLES):
            cls.on_start = TypedService.__then_settle(cls.on_start)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Give the service its first state, before any constructor of an author runs."""
        service = super().__new__(cls)
        cls.__plan.begin(service)
        return service

    @classmethod
    def __take_name(cls, name: str | None) -> None:
        if name is not None:
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{cls.__qualname__}: name={name!r} expected letters, digits, '-', '_' and '.', such as 'bank'"
                )
            cls.typed_name, cls.__is_named = name, True
        elif not cls.__is_named:
            cls.typed_name = cls.__name__

    @staticmethod
    def __then_settle(on_start: Callable[..., Any]) -> Callable[..., Any]:
        """Have the state looked at when an author's `on_start` is done, with those that it calls."""

        @wraps(on_start)
        async def settled(self: TypedService, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
            result = on_start(self, cluster, snapshot)
            if isawaitable(result):
                await result
            if type(self).on_start is settled:
                self.__settle()

        setattr(settled, _SETTLES, True)
        return settled

    def __settle(self) -> None:
        if _CONTEXT not in self.__dict__:
            raise ConfigurationError(
                f"{type(self).__qualname__}.on_start does not load the state: expected "
                "`await super().on_start(cluster, snapshot)` in it"
            )
        self.__plan.settle(self)

    # --- what an author may say

    def on_opened(self, ctx: Context) -> None:
        """A session was opened: `ctx.session`."""

    def on_closed(self, ctx: Context, reason: CloseReason) -> None:
        """A session was closed: `ctx.session`."""

    # --- the log

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> Any:
        """Load the declared state. An override that is a coroutine calls `await super().on_start(...)`."""
        self.__plan.check_untouched(self)
        self.__ctx = Context(self, cluster)
        self.__service_id = cluster.service_id
        self.__command_tag = tag_of(PayloadKind.COMMAND, cluster.service_id)
        commands, self.__queries = (
            {
                bytes((MAGIC, tag_of(kind, cluster.service_id))) + fingerprint: route
                for (one, fingerprint), route in self.__table.routes.items()
                if one == kind
            }
            for kind in (PayloadKind.COMMAND, PayloadKind.QUERY)
        )
        self.__events = {
            event: (codec.header(PayloadKind.EVENT, cluster.service_id), codec.check)
            for event, codec in self.__table.events.items()
        }
        self.__lane: _Lane = (
            commands,
            self.__ctx,
            self.__journal,
            self.__dict__,
            self.__plan.check,
            self.__ctx.payload_limit_bytes,
        )
        return self.__load(snapshot)

    async def __load(self, snapshot: SnapshotImage | None) -> None:
        if snapshot is not None:
            await read_declared(self.__plan, self, snapshot)
        if type(self).on_start is TypedService.on_start:
            self.__plan.settle(self)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Run a command; the answer is a reply or an error of the service."""
        commands, ctx, journal, attributes, check, limit_bytes = self.__lane
        route = commands.get(payload[:HEADER_BYTES].tobytes())
        if route is None:
            if len(payload) < HEADER_BYTES or payload[0] != MAGIC or payload[1] != self.__command_tag:
                return self.__take_other(session, timestamp, payload)
            route = self.__find(PayloadKind.COMMAND, bytes(payload[2:HEADER_BYTES]))
        message = route.read(payload[HEADER_BYTES:])
        ctx.begin(session)
        journal.begin()
        try:
            answer = _answer(route, route.call(self, ctx, message), limit_bytes)
            check(attributes, journal.before)
            if journal.handed:
                journal.check()
            if ctx.calls:
                ctx.perform()
        except ServiceError as error:
            journal.roll_back()
            return _encode_error(error)
        except BaseException:
            journal.roll_back()
            raise
        journal.commit()
        return answer

    def __take_other(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        kind = self.__kind_of(payload)
        if kind == PayloadKind.OUTBOX:
            return self.__settle_effects(session, timestamp, decode_outbox_message(payload, Settlement))
        if kind != PayloadKind.SCHEMA:
            raise RemoteProtocolError(
                "the payload is no command of a typed client; use TypedClient, and see its `call`"
            )
        return self.__announce(payload[HEADER_BYTES:])

    def __settle_effects(self, session: ClientSession, timestamp: int, settlement: Settlement) -> bytes:
        """Settle effects, and run the command that is the result of one.

        An effect stays settled if the command is refused: it has happened.
        """
        result = memoryview(settlement.result)
        if result and (len(settlement.rows) != 1 or self.__kind_of(result) != PayloadKind.COMMAND):
            raise RemoteProtocolError(
                f"result of {len(settlement.rows)} effects expected a command of {self.typed_name} for one effect"
            )
        reply = find_outbox(self.__outboxes, settlement.outbox).settle(settlement.rows)
        if result and reply.settled_count:
            answer = self.on_request(session, timestamp, result)
            reply = SettlementReply(reply.settled_count, reply.refused, answer)
        return encode_outbox_message(reply, self.__service_id)

    @property
    def __outboxes(self) -> list[DeclaredOutbox[Any]]:
        return [DeclaredOutbox(each, self) for each in self.__plan.outboxes]

    def __kind_of(self, payload: memoryview) -> int | None:
        """Return the kind of a payload for this service, None for what is not typed.

        Raises:
            RemoteProtocolError: it is for another service.
        """
        header = split_header(payload)
        if header is None:
            return None
        kind, service_id = header
        if service_id != self.__service_id:
            raise RemoteProtocolError(
                f"the payload is for service_id={service_id}, which does not run here; "
                f"{self.typed_name} has service_id={self.__service_id}"
            )
        return kind

    def on_query(self, payload: memoryview) -> bytes:
        """Answer a query from the state, which it cannot change."""
        route = self.__queries.get(payload[:HEADER_BYTES].tobytes())
        if route is None:
            kind = self.__kind_of(payload)
            if kind == PayloadKind.SCHEMAS:
                return self.__say_schemas()
            if kind == PayloadKind.OUTBOX:
                question = decode_outbox_message(payload, EffectsQuestion)
                return answer_question(question, self.__outboxes, self.__service_id)
            if kind != PayloadKind.QUERY:
                raise RemoteProtocolError(
                    "the payload is no query of a typed client; use TypedClient, and see its `ask`"
                )
            route = self.__find(PayloadKind.QUERY, bytes(payload[2:HEADER_BYTES]))
        message = route.read(payload[HEADER_BYTES:])
        ctx, journal = self.__ctx, self.__journal
        ctx.begin(None, is_query=True)
        journal.begin_query()
        try:
            answer = _answer(route, route.call(self, ctx, message), ctx.payload_limit_bytes)
        except ServiceError as error:
            answer = _encode_error(error)
        finally:
            is_changed = journal.roll_back()
        if is_changed:
            raise LocalProtocolError(f"a query may not change the state: {route.codec.name}; it was undone")
        return answer

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Call the method of a timer that fires."""
        kept = self.timers.get(correlation_id)
        if kept is None:
            return  # it was cancelled when its event was in the log already
        del self.timers[correlation_id]
        name, data = kept
        route = self.__table.names.get((_TIMER, name))
        if route is None:
            raise LocalProtocolError(f"no method takes the timer {name}, which an earlier version of this service set")
        self.__tell(None, route.call, self.__read_timer(route, data))

    def __read_timer(self, route: _Route, data: bytes) -> Any:
        fingerprint, body = data[:FINGERPRINT_BYTES], data[FINGERPRINT_BYTES:]
        if fingerprint == route.codec.fingerprint:
            return route.codec.decode(body)
        return self.__find(_TIMER, fingerprint).read(body)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Tell the author."""
        self.__tell(session, type(self).on_opened)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Tell the author."""
        self.__tell(session, type(self).on_closed, close_reason)

    def __tell(self, session: ClientSession | None, method: Callable[..., Any], *arguments: Any) -> None:
        ctx, journal = self.__ctx, self.__journal
        ctx.begin(session)
        journal.begin()
        try:
            method(self, ctx, *arguments)
            self.__plan.check(self.__dict__, journal.before)
            journal.check()
            ctx.perform()
        except BaseException:
            journal.roll_back()
            raise
        journal.commit()

    # --- snapshots

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield the declared state: a large one is written by a copy of the process."""
        return declared_messages(self.__plan, self)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the declared state; what an override calls, to write more."""
        for message in self.snapshot_messages():
            await snapshot.offer(message)

    @property
    def undoes_queries(self) -> bool:
        """True if the journal sees all that a query may change: the author overrides neither answers nor state."""
        kind = type(self)
        return (
            kind.on_query is TypedService.on_query
            and kind.state_hash is TypedService.state_hash
            and _writes_declared_alone(kind)
        )

    def state_hash(self) -> object:
        """Give the declared state."""
        return {name: as_builtins(self.__dict__[name]) for name in self.__plan.fields}

    def begin_digest(self) -> StateDigest | None:
        """Begin the digest of the declared state; None if the author has a `state_hash` that says more."""
        return None if type(self).state_hash is not TypedService.state_hash else DeclaredDigest(self)

    def find_drift(self) -> str | None:
        """Say which derived value is another one than a start would make of the state; None if there is none."""
        return self.__plan.find_drift(self)

    @property
    def state_types(self) -> Mapping[str, bytes]:
        """The fingerprint of the type of each declared field, by its name."""
        return {name: field.codec.fingerprint for name, field in self.__plan.fields.items()}

    def outbox_counts(self) -> list[OutboxCounts]:
        """Count the effects of each declared outbox."""
        return [each.counts for each in self.__outboxes]

    # --- for the context

    def encode_event(self, event: Event) -> bytes:
        """Write an event that the service declares.

        Raises:
            LocalProtocolError: it does not declare it.
        """
        written = self.__events.get(type(event))
        if written is None:
            raise LocalProtocolError(
                f"{type(event).__name__} is not among the events of {type(self).__qualname__}: "
                f"events = ({type(event).__name__}, ...)"
            )
        header, check = written
        return header + check(event)

    def announce_event(self, event: Event) -> bytes | None:
        """Give what tells the log by which schema an event of this class is written; None if the log has it."""
        codec = self.__table.events[type(event)]
        if codec.fingerprint in self.known_schemas:
            return None
        self.known_schemas[codec.fingerprint] = schema_to_bytes(codec.schema)
        return codec.announcement(self.__service_id)

    def keep_timer(self, timer: TimerMessage) -> int:
        """Keep a timer's message until it fires; gives its id.

        Raises:
            LocalProtocolError: no method takes it.
        """
        route = self.__table.timers.get(type(timer))
        if route is None:
            raise LocalProtocolError(
                f"no method takes {type(timer).__name__}: write one with @on_timer({type(timer).__name__})"
            )
        timer_id = self.next_timer_id
        self.next_timer_id = timer_id + 1
        self.timers[timer_id] = (route.codec.name, route.codec.fingerprint + route.codec.check(timer))
        return timer_id

    def drop_timer(self, timer_id: int) -> bool:
        """Forget a timer; False if there is none."""
        return self.timers.pop(timer_id, None) is not None

    def keep_effect(self, effect: Effect) -> EffectKey:
        """Keep an effect in the outbox that takes it, until it is settled; gives its key.

        Raises:
            LocalProtocolError: no outbox takes it, or several do.
        """
        return outbox_for(self.__outboxes, effect).add(effect)

    def effect_owner(self) -> Context:
        """Return what numbers effects.

        Raises:
            LocalProtocolError: the service has not started.
        """
        ctx: Context | None = self.__dict__.get(_CONTEXT)
        if ctx is None:
            raise LocalProtocolError("the service has not started: add effects in a handler")
        return ctx

    # --- schemas

    def __find(self, kind: int, fingerprint: bytes) -> _Route:
        """Find what is done with messages of a fingerprint.

        Raises:
            RemoteProtocolError: nobody has announced it, or no method takes it, or a field is in the way.
        """
        table = self.__table
        route = table.routes.get((kind, fingerprint))
        if route is not None:
            return route
        data = self.known_schemas.get(fingerprint)
        if data is None:
            raise RemoteProtocolError(f"fingerprint={fingerprint.hex()} is of no message that this service knows")
        schema = schema_from_bytes(data)
        today = table.names.get((kind, schema["name"]))
        if today is None:
            known = ", ".join(sorted(name for one, name in table.names if one == kind)) or "none"
            raise RemoteProtocolError(f"{schema['name']}: no method takes it; this service has: {known}")
        return _Route(today.codec, today.call, today.reply, older=schema)

    def __announce(self, data: Bytes) -> bytes:
        """Note by which schema a client writes; what is written so can be read as long as the log is kept."""
        schema = schema_from_bytes(data)
        codec_bytes = schema_to_bytes(schema)
        fingerprint = fingerprint_of(schema)
        if fingerprint not in self.known_schemas:
            if len(self.known_schemas) >= SCHEMA_LIMIT_COUNT:
                raise RemoteProtocolError(f"schemas={len(self.known_schemas)} expected less than {SCHEMA_LIMIT_COUNT}")
            self.known_schemas[fingerprint] = codec_bytes
        return b""

    def __say_schemas(self) -> bytes:
        by_name = {schema["name"]: schema for schema in self.__table.schemas.values()}
        schemas = ServiceSchemas(by_name, frozenset(self.known_schemas))
        return encode_directory([ServiceEntry(self.__service_id, str(self.typed_name), schemas)])


def _writes_declared_alone(kind: type[TypedService]) -> bool:
    """Whether a snapshot has the declared state and nothing else."""
    return (
        kind.on_take_snapshot is TypedService.on_take_snapshot
        and kind.snapshot_messages is TypedService.snapshot_messages
    )


def _answer(route: _Route, reply: object, limit_bytes: int) -> bytes:
    try:
        answer = route.reply_header + route.encode_reply(reply)
    except (TypeError, OverflowError, ValueError) as error:
        raise LocalProtocolError(
            f"{route.codec.name}: the reply {type(reply).__name__} cannot be written: {error}"
        ) from error
    if len(answer) > limit_bytes:
        raise LocalProtocolError(
            f"the answer to {route.codec.name} has {len(answer)} bytes, expected at most {limit_bytes}: answer page by "
            "page, with `ctx.payload_limit_bytes` in mind"
        )
    return answer


def _encode_error(error: ServiceError) -> bytes:
    codec = _ERROR_CODECS.get(type(error))
    if codec is None:
        codec = _ERROR_CODECS[type(error)] = MessageCodec(type(error))
    return codec.header(PayloadKind.ERROR) + schema_prefix(codec) + codec.check(error)


def schema_prefix(codec: MessageCodec[Any]) -> bytes:
    """The name of an error, with its length before it: a client that does not know the class can say it."""
    name = codec.name.encode()
    return len(name).to_bytes(2, "little") + name


_ERROR_CODECS: Final[dict[type[ServiceError], MessageCodec[Any]]] = {}
