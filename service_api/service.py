"""The class an application author subclasses.

Callbacks on the log path are plain functions: every member runs the same messages, timers and session events at the
same log positions, and a function that cannot suspend cannot interleave them. What may take long, loading and taking
snapshots, may be a coroutine. A coroutine anywhere else is refused when the class is created, not at the first
message.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final

from .cluster import Cluster, SnapshotImage, SnapshotPublication
from .errors import ConfigurationError, LocalProtocolError
from .session import ClientSession
from .state_digest import StateDigest
from .types import CloseReason, Role, TimeUnit

PLAIN_CALLBACKS: Final = (
    "on_session_open",
    "on_session_message",
    "on_request",
    "on_session_close",
    "on_service_message",
    "on_timer_event",
    "on_query",
    "on_role_change",
    "on_new_leadership_term_event",
    "on_terminate",
)
"""The callbacks that must be plain functions."""


class ClusteredService:
    """A deterministic state machine that every member of the cluster runs from the same log.

    Write `on_request` for clients that want an answer to each request, `on_session_message` for messages, or both.
    State may depend on nothing but the callbacks' arguments and what `Cluster` offers: no wall clock, no random, no
    files, no iteration order of sets of strings.

    What a callback raises because of its state and the message is the same on every member, so it counts as an answer
    and the log goes on; `RecursionError` does, since callbacks have the same headroom everywhere. What this member
    alone has met does not count, and stops it before it answers: `MemoryError`, an `OSError` of the operating system
    or of a library, an interrupt or a cancellation, and what is raised while one of these is handled. A service may
    raise `PermissionError`, `FileNotFoundError` and `FileExistsError` in words of its own. `sys.exit` in the callback
    of an entry is an answer, too: it ends no member. `os._exit`, a signal, and an exit in `on_start` or
    `on_role_change` do.

    Source: Aeron `ClusteredService`.
    """

    feature_level: int = 0
    """The highest feature level that this code knows: see `Cluster.feature_level`. A whole number of 31 bits."""

    typed_name: str | None = None
    """The name of a `TypedService`, which sets it; None for any other. Where a node runs several services, a typed one
    is given the requests that name it, and no others."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in (*PLAIN_CALLBACKS, "snapshot_messages"):
            callback = getattr(cls, name)
            if inspect.iscoroutinefunction(callback) or inspect.isasyncgenfunction(callback):
                raise ConfigurationError(
                    f"callback must be a plain function: service={cls.__qualname__} callback={name} "
                    f"expected=def actual=async def (only on_start and on_take_snapshot may be coroutines)"
                )

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> Awaitable[None] | None:
        """Called once before any log entry, with the state to load or None. May be a coroutine."""

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A client session was opened at this log position. `timestamp` is cluster time."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """A committed message of a client session.

        `payload` is a read-only view of the log itself: copy what outlives the call. `timestamp` is cluster time. A
        service without this method takes no messages: `offer` of a client raises, and the leader ends the connection
        of a client that sends one all the same.
        """
        raise LocalProtocolError(f"the service has no on_session_message: service={type(self).__qualname__}")

    @property
    def takes_messages(self) -> bool:
        """Whether there is an `on_session_message`; a service that wraps another answers for that one."""
        return type(self).on_session_message is not ClusteredService.on_session_message

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes | bytearray | memoryview:
        """A committed request of a client session; the return value is the reply.

        It is called once for each request, however often the client had to send it. The reply is kept, on every member
        and in snapshots, until the client has it. An exception is an answer too: the client gets its text, on every
        member the same, so it should say nothing that differs between them. A service without this method takes no
        requests, and clients are told so. Where a node runs several services, each that has this method is given every
        request, and the one with the lowest id answers; but a request of a typed client goes to the service that it
        names. `payload` and `timestamp` are as for `on_session_message`.
        """
        raise LocalProtocolError(f"the service has no on_request: service={type(self).__qualname__}")

    @property
    def takes_requests(self) -> bool:
        """Whether there is an `on_request`; a service that wraps another answers for that one."""
        return type(self).on_request is not ClusteredService.on_request

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """A client session was closed at this log position."""

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """A committed message that a service of the cluster offered with `Cluster.offer`.

        Every service of every member is given it, the one that offered it too; `service_id` says which one that was: 0
        where a node runs one service. `payload` is a read-only view of the log itself: copy what outlives the call.
        """

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A timer of this service fired, at the same log position on every member."""

    def on_query(self, payload: memoryview) -> bytes:
        """Answer a client's query from the state as it is, and leave everything as it is.

        It comes between log entries, on one member only, so nothing may change here that the log decides: to schedule
        a timer, to offer or to close a session raises at once. `payload` is the client's, read-only; the answer is
        bytes. What is raised here is told to the client, and changes nothing else. `cluster.log_position` and
        `cluster.time` are those of the entry processed last.

            def on_query(self, payload):
                return str(self.balances[bytes(payload)]).encode()
        """
        raise LocalProtocolError(f"the service has no on_query: service={type(self).__qualname__}")

    @property
    def takes_queries(self) -> bool:
        """Whether there is an `on_query`; a service that wraps another answers for that one."""
        return type(self).on_query is not ClusteredService.on_query

    @property
    def undoes_queries(self) -> bool:
        """True if the service finds and undoes by itself what a query changes, so its state need not be compared."""
        return False

    def state_hash(self) -> object:
        """Return what stands for the state: the same on every member that was delivered the same entries.

        Members compare it at positions that all of them reach, and when a snapshot is taken or loaded; `trimaran sim`
        compares it after each entry, `trimaran replay --verify-snapshots` before and after a snapshot is loaded. Return
        bytes, a str, a number, None, or a tuple, list, dict, set or dataclass of these. If you return the state itself,
        differences are shown. Include every field that counts, above all what a snapshot may forget. Change nothing.
        `hash()` of a str differs from process to process: do not use it here.

        While an upgrade is in progress, members with different code compare what you return field by field: return a
        dict with a name for each field, or a dataclass. Then a field that only the new code has is not compared.

        The method is optional. A member calls it about twice for each MiB of log, more rarely where it takes long. If
        it takes 100 ms twice in a row, the member calls it no more until it starts again. The state of a `TypedService`
        is digested without it, in pieces, unless the author writes one.
        """
        raise LocalProtocolError(f"the service has no state_hash: service={type(self).__qualname__}")

    def find_drift(self) -> str | None:
        """Say which derived value is another one than a start would make of the state; None if there is none.

        A `TypedService` knows what is derived; any other service has nothing to say.
        """
        return None

    def begin_digest(self) -> StateDigest | None:
        """Begin a digest of the state as it is now, to be made in pieces; None where `state_hash` says what counts.

        A `TypedService` has one. It is called between log entries, and the next ones may come before it is done.
        """
        return None

    def outbox_counts(self) -> Sequence[tuple[str, int, int]]:
        """Return the name of each outbox, and how many effects are pending and given up: for the member's metrics.

        A `TypedService` counts what it declares. It is called between log entries; change nothing.
        """
        return ()

    @property
    def has_state_hash(self) -> bool:
        """Whether there is a `state_hash`; a service that wraps another answers for that one."""
        return type(self).state_hash is not ClusteredService.state_hash

    @property
    def state_types(self) -> Mapping[str, bytes]:
        """The digest of the type that each field is declared with, 8 bytes by the field's name; empty without types.

        The fields are those that `state_hash` returns. Members whose code differs compare the fields whose types are
        equal. A service that wraps another answers for that one.
        """
        return {}

    def on_take_snapshot(self, snapshot: SnapshotPublication) -> Awaitable[None] | None:
        """Write all state to `snapshot`. May be a coroutine, so that a large state is written in pieces.

        No log entry is processed meanwhile. A service without this method and without `snapshot_messages` has no
        snapshots: each that is asked for fails, none is taken by itself, and every start replays the whole log. One
        without state may write nothing.
        """
        if self.yields_snapshots:
            return _write_messages(self.snapshot_messages(), snapshot)
        raise LocalProtocolError(f"the service has no on_take_snapshot: service={type(self).__qualname__}")

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield all state, as the messages of a snapshot: instead of `on_take_snapshot`, for a state that is large.

        Members compare digests of them, so yield the same on every member, in one order.

        On Linux a member runs what is more than a little of it in a copy of its process, made by `fork`, and goes on
        with the log at once. So read the state and change nothing; take no lock, start or use no thread, open no file
        or connection. The copy sees the state as it was at the snapshot's position. `encode_pieces` makes the messages
        quickly:

            def snapshot_messages(self):
                yield from encode_pieces("orders", self.orders.values())
        """
        raise LocalProtocolError(f"the service has no snapshot_messages: service={type(self).__qualname__}")

    @property
    def yields_snapshots(self) -> bool:
        """Whether `snapshot_messages` is what writes the snapshot; a service that wraps another answers for that one.

        It is, unless a class derived from the one that has it writes an `on_take_snapshot` of its own.
        """
        for each in type(self).__mro__:
            if "snapshot_messages" in vars(each):
                return each is not ClusteredService
            if "on_take_snapshot" in vars(each):
                return False
        return False

    @property
    def takes_snapshots(self) -> bool:
        """Whether it writes snapshots, in one of the two ways; a service that wraps another answers for that one."""
        return self.yields_snapshots or type(self).on_take_snapshot is not ClusteredService.on_take_snapshot

    def on_role_change(self, role: Role) -> None:
        """This member leads from now on, or no longer does: `role` is LEADER or FOLLOWER.

        LEADER comes when a term begins that this member leads, after all older entries have been delivered and before
        the first one of the term; FOLLOWER when the term is over for this member. It comes outside the log's order:
        replicated state must not change here.
        """

    def on_new_leadership_term_event(
        self,
        *,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        """A new leader's first log entry. `log_position` is the end of that entry, in bytes."""

    def on_terminate(self, cluster: Cluster) -> None:
        """This member is about to stop in order. No more callbacks follow."""


async def _write_messages(messages: Iterator[bytes], snapshot: SnapshotPublication) -> None:
    for message in messages:
        await snapshot.offer(message)
