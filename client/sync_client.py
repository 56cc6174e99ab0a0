"""The client for scripts and notebooks: plain calls that block, from any thread.

A `ClusterClient` runs on an event loop of its own, in a daemon thread. A call wakes that loop and waits for it, which
takes many times longer than an offer itself: a program that needs tens of thousands of messages a second uses
`ClusterClient`.

Nothing here is queued twice: offers wait in the client's window, answers in its queue, and at their bounds `offer`
blocks and sockets are not read. What one look at the queue found is handed over at once, at most 1024 messages.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from ..service_api.errors import ClusterError, ClusterTimeoutError, SessionClosedError
from ..service_api.groups.group import Group
from ..service_api.types import ClusterSessionId, MemberId, TermId
from .cluster_client import ClusterClient
from .config import ClientConfig, client_config
from .connection_events import ConnectionEvent
from .credentials import CredentialsSupplier
from .egress import EgressMessage
from .errors import RequestIndeterminateError
from .loop_thread import LoopThread
from .protocol.protocol import CLOSED_BY_CLIENT
from .protocol.queries import QueryResult
from .streams import ConnectionEvents, EgressIterator

_BATCH_LIMIT: Final = 1024
"""Messages taken from the loop at once."""

_END_MARGIN_S: Final = 5.0
"""How much longer than its own `close_timeout_s` a close may take before the thread is left behind."""


class SyncClusterClient:
    """A session with the cluster, for code without asyncio.

        with SyncClusterClient(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as cluster:
            cluster.offer(b"1")
            print(cluster.receive(timeout_s=5).payload)

    It connects when it is made. It works in a notebook, too, where a loop runs in the main thread already. `with` is
    not needed: `close` it, or forget it, or end the interpreter, and the session is closed.

    Any thread may use it, several at once: each message that comes goes to one of them. What it promises is what
    `ClusterClient` promises. A fork of the process cannot use it, and its `close` does nothing there.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] = (),
        *,
        connect_timeout_s: float = 5.0,
        new_leader_timeout_s: float | None = None,
        credentials: bytes | CredentialsSupplier = b"",
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str = "",
        config: ClientConfig | None = None,
    ) -> None:
        """Open a session; the arguments are those of `ClusterClient.connect`.

        `on_challenge` is called in the client's own thread.

        Raises:
            ConfigurationError: an argument cannot be used, or another distribution owns one of our packages.
            ConnectTimeoutError: nobody opened a session in time; says what each endpoint answered.
            ConnectRejectedError: the cluster refused.
        """
        made = client_config(
            config,
            endpoints,
            connect_timeout_s=connect_timeout_s,
            new_leader_timeout_s=new_leader_timeout_s,
            credentials=credentials,
            on_challenge=on_challenge,
            client_info=client_info,
        )
        self._side = side = _LoopSide(made)
        self._thread = LoopThread(on_end=side.close, end_timeout_s=made.close_timeout_s + _END_MARGIN_S)
        # When nobody holds this client any more, and at the interpreter's exit.
        self._finalizer = weakref.finalize(self, self._thread.end)
        try:
            self._client = self._thread.call(side.connect)
        except ClusterError as error:
            self.close()
            # Where in the library it was raised, on another thread and loop, tells the caller nothing.
            raise error.with_traceback(None) from None
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<SyncClusterClient {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cluster_session_id(self) -> ClusterSessionId:
        """The session's id, the same under every leader."""
        return self._client.cluster_session_id

    @property
    def leadership_term_id(self) -> TermId:
        """The term of the leader that messages go to."""
        return self._client.leadership_term_id

    @property
    def leader_member_id(self) -> MemberId:
        """The member that messages go to."""
        return self._client.leader_member_id

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this is a session with; one of one where the cluster has no groups."""
        return self._client.group

    @property
    def has_leader(self) -> bool:
        """Whether the path to a leader stands: without one, offers wait."""
        return self._client.has_leader

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self._thread.is_ending or self._client.is_closed

    def offer(self, payload: bytes | bytearray | memoryview, timeout_s: float | None = None) -> None:
        """Offer a message, waiting for room, or for a leader, but never for its commit.

            cluster.offer(b"1", timeout_s=5)

        Raises:
            ClusterTimeoutError: there was no room, or no leader, in time: the message was not offered.
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: the payload is too long, or this is a fork, or the client's own thread.
        """
        self._thread.call(lambda: self._side.offer(payload, timeout_s))

    def take_snapshot(self, *, timeout_s: float = 60.0) -> int:
        """Have every member of the cluster take a snapshot; give its log position once the leader has it, durably.

            print(cluster.take_snapshot(timeout_s=30))

        See `ClusterClient.take_snapshot` for who may, and for the errors.
        """
        return self._thread.call(lambda: self._client.take_snapshot(timeout_s=timeout_s))

    def transfer_leadership(self, to: int | None = None, *, timeout_s: float = 60.0) -> MemberId:
        """Have the leader hand over to a member, or to any; give the one that leads then.

        See `ClusterClient.transfer_leadership` for who may, and for the errors.
        """
        return self._thread.call(lambda: self._client.transfer_leadership(to, timeout_s=timeout_s))

    def query(
        self,
        payload: bytes | bytearray | memoryview,
        *,
        max_staleness_s: float | None = None,
        min_log_position: int = 0,
        read_from: int | None = None,
        service_id: int | None = None,
        timeout_s: float | None = None,
    ) -> QueryResult:
        """Ask the service's state, without an entry in the log.

            print(cluster.query(b"balance of 17", timeout_s=5).payload)

        See `ClusterClient.query` for what the arguments mean, and for the errors.
        """
        return self._thread.call(
            lambda: self._client.query(
                payload,
                max_staleness_s=max_staleness_s,
                min_log_position=min_log_position,
                read_from=read_from,
                service_id=service_id,
                timeout_s=timeout_s,
            )
        )

    def request(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> bytes:
        """Have the service run a request, exactly once, and give its reply.

            reply = cluster.request(b"transfer 10 from a to b", timeout_s=5)

        See `ClusterClient.request` for what that means, and for the errors; `resolve` is for the one that is unknown.
        """
        return self._thread.call(lambda: self._client.request(payload, timeout_s=timeout_s))

    def resolve(self, error: RequestIndeterminateError, timeout_s: float | None = None) -> bytes:
        """Wait until the outcome of a request is known after all, and give the reply.

            except RequestIndeterminateError as error:
                reply = cluster.resolve(error, timeout_s=30)

        Raises:
            ClusterTimeoutError: it is not known in time.
            ClusterError: see `RequestIndeterminateError.resolve`.
        """
        return self._thread.call(lambda: self._side.resolve(error, timeout_s))

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was offered has been handed to the leader's connection, and no more than that.

            cluster.drain(timeout_s=10)

        See `ClusterClient.drain` for what that means, and for the errors.
        """
        self._thread.call(lambda: self._client.drain(timeout_s))

    def receive(self, timeout_s: float | None = None) -> EgressMessage:
        """Wait for the next message that the service sends to this session.

            total = int(cluster.receive(timeout_s=5).payload)

        Raises:
            ClusterTimeoutError: none came in time.
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        message = self._next(timeout_s)
        if message is None:
            if self.is_closed:
                raise SessionClosedError(CLOSED_BY_CLIENT)
            raise ClusterTimeoutError(f"no message came: timeout_s={timeout_s}")
        return message

    def egress(self, timeout_s: float | None = None) -> Iterator[EgressMessage]:
        """Iterate over the messages that the service sends to this session.

            for message in cluster.egress(timeout_s=1):
                print(message.timestamp, message.payload)

        The iteration ends when none has come for `timeout_s`, which says nothing about later ones; or when this
        client is closed. It raises SessionClosedError when the session ended otherwise, after the messages that came
        before. What is not read when the client is closed is lost.

        Raises:
            SessionClosedError: this client is closed.
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        self._check_usable()
        return iter(lambda: self._next(timeout_s, is_iterating=True), None)

    def connection_events(self, timeout_s: float | None = None) -> Iterator[ConnectionEvent]:
        """Iterate over what happens to the connections and the session, from the beginning.

            for event in cluster.connection_events(timeout_s=0):
                print(event)  # what has happened up to now

        The iteration ends when nothing has happened for `timeout_s`, and after `SessionClosed`, which can be read when
        this client is closed, too. See `ClusterClient.connection_events`.

        Raises:
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        self._thread.check_caller()
        return self._iterate_events(timeout_s)

    def close(self) -> None:
        """Close the session and the connections, and end the thread. More calls do nothing.

        It takes as long as `ClusterClient.aclose`, which bounds it by `close_timeout_s`. Calls that wait in other
        threads end: with SessionClosedError, an iteration as if there were nothing more.

        Raises:
            LocalProtocolError: the client's own thread called.
        """
        if not self._thread.is_forked:
            self._thread.check_caller()
            self._thread.end()
        self._finalizer.detach()

    def _check_usable(self) -> None:
        self._thread.check_caller()
        if self._thread.is_ending:
            raise SessionClosedError(CLOSED_BY_CLIENT)

    def _next(self, timeout_s: float | None, *, is_iterating: bool = False) -> EgressMessage | None:
        """Take a message; None when none came in time, or the client is closed."""
        received = self._side.received
        while True:
            self._thread.check_caller()
            try:
                return received.popleft()
            except IndexError:
                pass
            try:
                if not self._thread.call(lambda: self._side.fetch(timeout_s)):
                    return None
            except SessionClosedError as error:
                if is_iterating and error.reason == CLOSED_BY_CLIENT:
                    return None
                raise

    def _iterate_events(self, timeout_s: float | None) -> Iterator[ConnectionEvent]:
        events = self._side.events()
        try:
            while (event := self._thread.call(lambda: self._side.next_event(events, timeout_s))) is not None:
                yield event
        except SessionClosedError:
            self._thread.end()  # what is left to read does not change any more, and needs no loop
            while (event := events.take_ready()) is not None:
                yield event


class _LoopSide:
    """What runs on the loop. It does not know the facade, which so can be collected."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._client: ClusterClient | None = None
        self._egress: EgressIterator
        self._fetching: asyncio.Lock
        self.received: deque[EgressMessage] = deque()
        """Handed over, and not taken by a caller: a caller that is interrupted loses none."""

    async def connect(self) -> ClusterClient:
        """Open the session."""
        self._fetching = asyncio.Lock()
        self._client = client = await ClusterClient.connect(config=self._config)
        egress = client.egress()
        assert isinstance(egress, EgressIterator)
        self._egress = egress
        return client

    async def close(self) -> None:
        """Close the session, if there is one."""
        if self._client is not None:
            await self._client.aclose()

    async def offer(self, payload: bytes | bytearray | memoryview, timeout_s: float | None) -> None:
        """Offer a message."""
        assert self._client is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.offer(payload)
        except TimeoutError:
            raise ClusterTimeoutError(f"no room or no leader, the message was not offered: {timeout_s=}") from None

    async def resolve(self, error: RequestIndeterminateError, timeout_s: float | None) -> bytes:
        """Wait for the outcome of a request."""
        try:
            async with asyncio.timeout(timeout_s):
                return await error.resolve()
        except TimeoutError:
            raise ClusterTimeoutError(f"the outcome of the request is not known yet: {timeout_s=}") from None

    async def fetch(self, timeout_s: float | None) -> bool:
        """Wait until there is something in `received`; False if nothing came in time, or will."""
        try:
            async with asyncio.timeout(timeout_s), self._fetching:
                if self.received:
                    return True
                self.received.extend(self._egress.take_ready(_BATCH_LIMIT))
                if not self.received:
                    self.received.append(await anext(self._egress))
                    self.received.extend(self._egress.take_ready(_BATCH_LIMIT - 1))
                return True
        except (TimeoutError, StopAsyncIteration):
            return False

    def events(self) -> ConnectionEvents:
        """Begin to read events; reading them is for the loop."""
        assert self._client is not None
        return self._client._events()

    async def next_event(self, events: ConnectionEvents, timeout_s: float | None) -> ConnectionEvent | None:
        """Wait for an event; None if none came in time, or will."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(events)
        except (TimeoutError, StopAsyncIteration):
            return None
