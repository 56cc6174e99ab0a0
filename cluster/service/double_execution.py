"""Double execution: two instances of a service are given the same entries, and must do the same.

The problem: what makes members differ, such as a clock, `id()`, random numbers or an attribute of the class, is found
by members' digests minutes later, at another entry than the one that did it, and in one process not at all.

The idea: a second instance of the service in the same member. Both are given each entry; then their calls, replies and
errors are compared, and their states. The first entry that they do not agree on stops the member, before anything of it
goes out. The second instance has no effect: its calls are compared and dropped (`recorded_calls`).

States are compared by what the entry changed, where the service writes that down, as a typed one does (`StatePair`):
that costs as much as the entry is large. Any other service with a `state_hash` is compared by that, which costs two
states at each entry. One that takes longer than `_ALWAYS_NS` to compare is compared as often as takes half of the time.

At each snapshot the whole states are compared, and the second instance is made again from what the first one wrote. So
a field that a snapshot forgets is found at that snapshot by the state, or at the first entry after it that shows it;
and what a typed service changed past its journal is found at the next snapshot.

What is not found: what is the same twice in one process. `hash()` of a str is, and so is the order of a set of them; a
clock that has not gone on is. `trimaran check`, strict mode and members' digests find these.

The cost is that of a second service and of the comparison. Measured on a typed service of one dict: 33 us an entry with
two `state_hash`, 10 us with what the entry changed, of which the two instances take 6.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import structlog

from ...service_api import (
    CloseReason,
    Cluster,
    ClusteredService,
    ConfigurationError,
    Role,
    ServiceDivergedError,
    SnapshotImage,
    SnapshotPublication,
)
from ...service_api.service_texts import ServiceTexts, texts_of
from ...service_api.session import ClientSession
from ...service_api.state_digest import StateDigest
from ...service_api.state_pair import StatePair, pair_states
from .client_session import ContainerClientSession
from .failures import foreign_cause
from .kept_snapshot import KeptImage, KeptPublication
from .recorded_calls import FirstCalls, InstanceCluster, SecondCalls, value_now
from .service_cluster import ServiceCluster
from .state_difference import describe_difference, describe_payload_difference, describe_payloads, shown_payload

_ALWAYS_NS: Final = 1_000_000
_SNAPSHOT_LIMIT_BYTES: Final = 256 << 20
"""A longer snapshot is not kept for the second instance."""
_SNAPSHOT_ADVICE: Final = "does on_take_snapshot write every field, and on_start read it?"

logger = structlog.get_logger()


class DoubledService(ClusteredService):
    """Stands for a service, and runs a second instance of it.

    Args:
        service: The first instance: what it does happens, and its queries and snapshots count.
        make: Makes an instance.
        monotonic_ns: The clock by which a state that takes long is compared more rarely.
    """

    def __init__(
        self,
        service: ClusteredService,
        make: Callable[[], ClusteredService],
        *,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.service = service
        self.make = make
        self.feature_level = service.feature_level
        self.typed_name = service.typed_name
        self._second: ClusteredService | None = None
        """None until the start, and where a snapshot is too long to be kept for it."""
        self._texts = texts_of(service)
        self._first_calls = FirstCalls()
        self._second_calls = SecondCalls(self._first_calls, self._texts)
        self._monotonic_ns = monotonic_ns
        self._compared_ns = self._duration_ns = 0
        self._agreed_position: int | None = None
        """Where the states were equal last, where not every entry is compared."""
        self._loaded_position: int | None = None
        """Of the snapshot that the second instance comes from."""
        self._has_state = service.has_state_hash
        self._pair: StatePair | None = None
        """What the two instances are compared by at each entry; None where only whole states can be."""
        self._cluster: ServiceCluster
        self._views: tuple[InstanceCluster, InstanceCluster]

    def __repr__(self) -> str:
        return repr(self.service)

    # --- what the first instance answers alone

    @property
    def takes_messages(self) -> bool:
        """Whether there is an `on_session_message`."""
        return self.service.takes_messages

    @property
    def takes_requests(self) -> bool:
        """Whether there is an `on_request`."""
        return self.service.takes_requests

    @property
    def takes_queries(self) -> bool:
        """Whether there is an `on_query`."""
        return self.service.takes_queries

    @property
    def undoes_queries(self) -> bool:
        """True if the service undoes by itself what a query changes."""
        return self.service.undoes_queries

    @property
    def takes_snapshots(self) -> bool:
        """Whether there is an `on_take_snapshot`."""
        return self.service.takes_snapshots

    @property
    def has_state_hash(self) -> bool:
        """Whether there is a `state_hash`."""
        return self.service.has_state_hash

    def state_hash(self) -> object:
        """Return what stands for the state."""
        return self.service.state_hash()

    def find_drift(self) -> str | None:
        """Say which derived value is another one than a start would make of the state."""
        return self.service.find_drift()

    def begin_digest(self) -> StateDigest | None:
        """Begin a digest of the state."""
        return self.service.begin_digest()

    @property
    def state_types(self) -> Mapping[str, bytes]:
        """A digest of the type of each field of the state, by name."""
        return self.service.state_types

    def outbox_counts(self) -> Sequence[tuple[str, int, int]]:
        """Count the effects of each outbox."""
        return self.service.outbox_counts()

    def on_query(self, payload: memoryview) -> bytes:
        """Answer a query."""
        return self.service.on_query(payload)

    def on_take_snapshot(self, snapshot: SnapshotPublication) -> Any:
        """Write the state; `take_snapshot` also has it loaded."""
        return self.service.on_take_snapshot(snapshot)

    # --- starts and snapshots

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Start both instances from the same snapshot.

        Raises:
            ServiceDivergedError: they have not come to the same state.
        """
        self._cluster = cast(ServiceCluster, cluster)
        self._views = (
            InstanceCluster(self._cluster, self._first_calls, is_silent=False),
            InstanceCluster(self._cluster, self._second_calls, is_silent=True),
        )
        image = None if snapshot is None else _KeptWhileRead(snapshot)
        await _wait_for(self.service.on_start(self._views[0], image))
        if image is None:
            await self._start_second(None)
            return
        await image.drain()
        if image.kept.is_whole:
            await self._start_second(image.kept.messages)
        else:
            self._tell_too_long("service.not_doubled")

    async def take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the state, and start the second instance again from that.

        Raises:
            ServiceDivergedError: it writes something else, or has not come to the same state.
        """
        if self._second is None:
            await _wait_for(self.service.on_take_snapshot(snapshot))
            return
        publication = _KeptWhileWritten(snapshot)
        await _wait_for(self.service.on_take_snapshot(publication))
        kept = publication.kept
        if not kept.is_whole:
            self._tell_too_long("service.not_loaded")
            return
        self._check(self._compare_whole_states(is_forced=True), "on_take_snapshot")
        if not self._has_state:
            self._check(await self._compare_written(kept.messages), "on_take_snapshot")
        await self._start_second(kept.messages)

    async def _start_second(self, messages: list[bytes] | None) -> None:
        """Make the second instance, and start it from a snapshot."""
        if self._pair is not None:
            self._pair.close()
            self._pair = None
        second = self._second = self._make()
        image = None if messages is None else KeptImage(messages)
        self._loaded_position = None if messages is None else self._cluster.log_position
        self._check(await _error_of(lambda: second.on_start(self._views[1], image)), "on_start")
        self._check(self._compare_whole_states(is_forced=True), "on_start")
        if messages is not None and not self._has_state:
            self._check(await self._compare_written(messages), "on_start")
        if self._has_state:
            self._pair = pair_states(self.service, second)

    def _make(self) -> ClusteredService:
        try:
            return self.make()
        except TypeError as error:
            raise ConfigurationError(
                f"double execution makes two instances of the service: {self.make!r} expected to be called without "
                f"arguments, error={error}"
            ) from error

    async def _compare_written(self, messages: list[bytes]) -> str:
        """Have the second instance write a snapshot, and compare."""
        assert self._second is not None
        second, publication = self._second, KeptPublication()
        error = await _error_of(lambda: second.on_take_snapshot(publication))
        actual = publication.messages
        if error:
            return error
        if actual == messages:
            return ""
        if len(actual) != len(messages):
            return f"messages of the snapshot: expected={len(messages)} actual={len(actual)}"
        at = next(index for index, pair in enumerate(zip(messages, actual, strict=True)) if pair[0] != pair[1])
        return f"message {at + 1} of the snapshot: {describe_payload_difference(messages[at], actual[at])}"

    def _tell_too_long(self, event: str) -> None:
        logger.warning(event, service=repr(self), reason="its snapshot is too long", limit_bytes=_SNAPSHOT_LIMIT_BYTES)

    # --- callbacks

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A client session was opened."""
        self._run("on_session_open", session, timestamp)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """A message of a client."""
        self._run("on_session_message", session, timestamp, payload)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """A request of a client."""
        reply: bytes = self._run("on_request", session, timestamp, payload)
        return reply

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """A client session was closed."""
        self._run("on_session_close", session, timestamp, close_reason)
        for view in self._views:
            view.forget(session.id)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """A message of a service."""
        self._run("on_service_message", service_id, timestamp, payload)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A timer fired."""
        self._run("on_timer_event", correlation_id, timestamp)

    def on_new_leadership_term_event(self, **fields: Any) -> None:
        """A new leader's first entry."""
        self._run("on_new_leadership_term_event", **fields)

    def on_role_change(self, role: Role) -> None:
        """This member leads from now on, or no longer does."""
        self._run("on_role_change", role)

    def on_terminate(self, cluster: Cluster) -> None:
        """This member is about to stop."""
        self.service.on_terminate(self._views[0])
        if self._second is not None:
            self._second.on_terminate(self._views[1])

    def _run(self, callback: str, *arguments: Any, **fields: Any) -> Any:
        """Call both instances, compare what they did, and give what came of the first.

        Raises:
            ServiceDivergedError: they did not do the same.
        """
        calls = self._first_calls
        reply: Any = None  # Any: what the callback gives
        error: BaseException | None = None
        seen = arguments
        if arguments and isinstance(arguments[0], ContainerClientSession):
            seen = (self._views[0].session(arguments[0]), *arguments[1:])
        calls.begin()
        try:
            reply = getattr(self.service, callback)(*seen, **fields)
        except BaseException as raised:
            error = raised
        finally:
            calls.end()
        if error is not None and foreign_cause(error) is not None:
            raise error  # this member alone has met it: there is nothing to compare
        if self._second is not None:
            problem = self._run_second(callback, arguments, fields, reply, error) or self._compare_states()
            if problem:
                self._check(problem, callback, arguments)
        if error is not None:
            raise error
        return reply

    def _run_second(
        self,
        callback: str,
        arguments: tuple[Any, ...],
        fields: dict[str, Any],
        expected: object,
        expected_error: BaseException | None,
    ) -> str:
        """Call the second instance, and say in what it differs from the first; "" if in nothing."""
        calls, view = self._second_calls, self._views[1]
        reply: Any = None  # Any: what the callback gives
        error: BaseException | None = None
        # Bytes of its own: a view's identity and what it is part of say nothing.
        own = [memoryview(bytes(each)) if type(each) is memoryview else each for each in arguments]
        if own and isinstance(own[0], ContainerClientSession):
            own[0] = view.session(own[0])
        calls.begin()
        try:
            reply = getattr(self._second, callback)(*own, **fields)
        except BaseException as raised:
            error = raised
        finally:
            calls.end()
        if calls.difference:
            return calls.difference
        if error is not None or expected_error is not None:
            if error is not None and foreign_cause(error) is not None:
                raise error
            told, actual_told = (_told(each, with_text=callback == "on_request") for each in (expected_error, error))
            if told != actual_told:
                return f"error: expected={told or 'none'} actual={actual_told or 'none'}"
        if type(expected) is bytes and type(reply) is bytes and expected == reply:
            return ""
        before, after = map(value_now, (expected, reply))
        return "" if before == after else f"reply: {describe_payloads(before, after, self._texts)}"

    # --- comparing

    def _compare_states(self) -> str:
        """Say in what the entry has made the states differ; "" if in nothing, or if it is not time to compare them."""
        if self._pair is None:
            return self._compare_whole_states()
        try:
            problem = self._pair.find_difference()
        except Exception as error:
            return self._give_up(error)
        return f"state: {problem}" if problem else ""

    def _compare_whole_states(self, *, is_forced: bool = False) -> str:
        """Say in what the states differ; "" if in nothing, or if it is not time to compare them."""
        if not self._has_state or self._second is None:
            return ""
        begin_ns = self._monotonic_ns()
        if not is_forced and self._duration_ns > _ALWAYS_NS and begin_ns - self._compared_ns < self._duration_ns:
            return ""
        try:
            states = self.service.state_hash(), self._second.state_hash()
            # Equality is a hundred times faster than the digest of a dict; that 1 is not 1.0, members' digests find.
            problem = "" if states[0] == states[1] else self._describe_states(*states)
            if is_forced and not problem:
                problem = self.service.find_drift() or ""
        except Exception as error:
            return self._give_up(error)
        self._compared_ns = self._monotonic_ns()
        is_rare, self._duration_ns = self._duration_ns > _ALWAYS_NS, self._compared_ns - begin_ns
        if problem:
            since = f", equal at log_position={self._agreed_position}" if is_rare else ""
            return f"state{since}: {problem}"
        self._agreed_position = self._cluster.log_position
        return ""

    def _give_up(self, error: Exception) -> str:
        """Compare states no more: the service cannot say what its state is."""
        self._has_state, self._pair = False, None
        logger.error("service.state_hash_failed", service=repr(self), error=repr(error), exc_info=error)
        return ""

    def _describe_states(self, expected: object, actual: object) -> str:
        """Say in what the states differ: by field where there are some, however many values these have."""
        assert self._second is not None
        told = None
        with suppress(Exception):  # of a snapshot that an author overrides: `state_hash` is what counts
            told = self._texts.states(self.service, self._second)
        return told or describe_difference(expected, actual)

    def _check(self, problem: str, callback: str, arguments: tuple[Any, ...] = ()) -> None:
        if not problem:
            return
        kind = type(self.service)
        where = f"{callback}({', '.join(_named(each, self._texts) for each in arguments)})"
        payloads = (bytes(each) for each in arguments if isinstance(each, memoryview))
        handler = next(filter(None, map(self._texts.handler, payloads)), None)
        where += f" handler={handler}" if handler else ""
        loaded = ""
        if self._loaded_position is not None:
            loaded = (
                f". The second instance was loaded from the snapshot at log_position={self._loaded_position}: "
                f"{_SNAPSHOT_ADVICE}"
            )
        raise ServiceDivergedError(
            f"double execution: two instances of {kind.__qualname__} were given the same log and differ: "
            f"log_position={self._cluster.log_position} {where} {problem}. Members would differ too, so this one "
            f"stops before it answers{loaded}. To find what the service depends on besides its state and the message, "
            f"such as a clock, random numbers, id() or an attribute of the class: `trimaran check "
            f"{kind.__module__}:{kind.__qualname__}`"
        )


@texts_of.register
def _texts_of_doubled(service: DoubledService) -> ServiceTexts:
    return texts_of(service.service)


def double_services(services: Sequence[ClusteredService], monotonic_ns: Callable[[], int]) -> dict[int, DoubledService]:
    """Double the services of a node, whose classes are called without arguments; by service id."""
    doubles = (DoubledService(service, type(service), monotonic_ns=monotonic_ns) for service in services)
    return dict(enumerate(doubles))


async def _wait_for(result: Any) -> None:  # Any: nothing, or what a coroutine gives
    if inspect.isawaitable(result):
        await result


async def _error_of(callback: Callable[[], Any]) -> str:  # Any: as of `_wait_for`
    """Call the second instance where the first has raised nothing; say what it raised, or ""."""
    try:
        await _wait_for(callback())
    except Exception as error:
        if foreign_cause(error) is not None:
            raise
        return f"error: expected=none actual={_told(error, with_text=True)}"
    return ""


def _told(error: BaseException | None, *, with_text: bool) -> str:
    """Say what others are told of an error: a client gets its text."""
    name = "" if error is None else type(error).__qualname__
    return f"{name}: {error}" if name and with_text else name


def _named(argument: object, texts: ServiceTexts) -> str:
    """Show an argument of a callback; a payload as the message that it is, where that is known."""
    if isinstance(argument, ContainerClientSession):
        return f"session={argument.id}"
    return shown_payload(bytes(argument) if isinstance(argument, memoryview) else argument, texts)


class _Kept:
    """Messages of a snapshot, up to a limit."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self._length_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether all messages are there."""
        return self._length_bytes <= _SNAPSHOT_LIMIT_BYTES

    def add(self, message: bytes) -> None:
        """Keep one more; none at all beyond the limit."""
        self._length_bytes += len(message)
        if self.is_whole:
            self.messages.append(message)
        else:
            self.messages.clear()


class _KeptWhileRead:
    """A `SnapshotImage` that keeps what is read of it."""

    def __init__(self, image: SnapshotImage) -> None:
        self._left = aiter(image)
        """One for all that read: what was read is not read again."""
        self.kept = _Kept()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._left:
            self.kept.add(message)
            yield message

    async def drain(self) -> None:
        """Read what the service has not."""
        async for message in self._left:
            self.kept.add(message)


class _KeptWhileWritten:
    """A `SnapshotPublication` that keeps what is written to another one."""

    def __init__(self, publication: SnapshotPublication) -> None:
        self._publication = publication
        self.kept = _Kept()

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Write one message."""
        await self._publication.offer(message)
        self.kept.add(bytes(message))
