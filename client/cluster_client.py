"""The client that applications use: one cluster session, on one event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from random import SystemRandom
from threading import get_ident
from typing import Final, Literal, Unpack, overload

from ..service_api.connecting import ClosedAtExit, Connecting
from ..service_api.errors import ClusterError, ClusterTimeoutError, LocalProtocolError, SessionClosedError
from ..service_api.groups.group import Group
from ..service_api.payloads import plain_bytes
from ..service_api.types import ClusterSessionId, MemberId, TermId
from ..service_api.wire.session import AdminRequestType
from . import asking
from .batches import request_batch, request_batch_in_any_session, results_of
from .conductor import ClientConductor
from .config import ClientConfig, ConnectSettings, client_config, with_connect_settings
from .egress import EgressListener, EgressMessage
from .errors import RejectedError
from .protocol.admin import SNAPSHOT_WISH, AdminWish
from .protocol.client_state import ClientState
from .protocol.queries import QueryResult
from .reopening import OpenSession, Reopening
from .streams import ConnectionEvents, EgressIterator


class ClusterClient(ClosedAtExit):
    """A session with the cluster: offer messages to the replicated service, receive what it answers.

        async with ClusterClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as cluster:
            await cluster.offer(b"1")
            async for message in cluster.egress():
                print(message.payload)

    Made by `connect`. It lives on the event loop that made it: every method refuses other loops and threads, for which
    there is `SyncClusterClient`. It stays connected to every member, keeps the session alive, and follows the leader
    when that changes.

    Messages of one client are handled in the order of their offers, and so are the answers. With a new leader
    the session goes on, but what was offered and not answered may be lost or not. Use `request` for what must be
    run exactly once; it asks for that again by itself.

    Times are in seconds. Errors are of `trimaran.service_api.errors`, and those of `trimaran.client.errors`.
    """

    def __init__(
        self,
        conductor: ClientConductor,
        open_session: OpenSession | None = None,
        siblings: dict[Reopening, None] | None = None,
    ) -> None:
        """Take over a session that is open; applications call `connect`. `open_session` opens the next one.

        `siblings` are those of `Reopening`.
        """
        self._conductor = conductor
        config = conductor.protocol.config
        self._reopening = (
            None
            if open_session is None
            else Reopening(
                conductor,
                open_session,
                random=config.random or SYSTEM_RANDOM.random,
                on_opened=self._on_reopened,
                siblings=siblings,
            )
        )
        self._protocol = conductor.protocol
        self._loop = conductor.loop
        self._thread_id = get_ident()

    @classmethod
    @with_connect_settings
    def connect(
        cls,
        endpoints: str | Sequence[str] = (),
        *,
        egress_listener: EgressListener | None = None,
        **settings: Unpack[ConnectSettings],
    ) -> Connecting[ClusterClient]:
        """Open a session; enter what this gives with `async with`, or await it and call `aclose` in the end.

            async with ClusterClient.connect(["127.0.0.1:9000"], client_info="importer") as cluster: ...
            cluster = await ClusterClient.connect(config=ClientConfig(endpoints=("127.0.0.1:9000",)))

        `endpoints` are "host:port" of the ingress of any members; one that is up is enough. With an
        `egress_listener` messages come as calls, otherwise through `egress()`. The other keywords are those of
        `ConnectSettings`, which every client takes: fields of `ClientConfig` by their names, or a `config` in the
        place of all of them.

        With `reopen=True` the client opens another session by itself where one has ended otherwise than by `aclose`,
        and calls `on_reopen` with the error that the session before has ended with. Calls that are made meanwhile wait
        for it. Requests run exactly once **within a session**: one that was sent and not answered when its session
        ended raises `RequestIndeterminateError`, and asking for it again may run it twice.

        Raises:
            ConfigurationError: an argument cannot be used.

        Raises, when entered or awaited:
            ConfigurationError: another distribution owns one of our packages.
            LocalProtocolError: it was entered or awaited before.
            ConnectTimeoutError: nobody opened a session in time; says what each endpoint answered.
            ConnectRejectedError: the cluster refused; says which credentials it asks for, if there were none.
        """
        config = client_config(endpoints, settings)
        return Connecting(lambda: connect_client(session_opener(config, egress_listener), reopens=config.reopen))

    def __repr__(self) -> str:
        protocol = self._protocol
        return (
            f"<ClusterClient {protocol.state.name} session={self.cluster_session_id}"
            f" term={self.leadership_term_id} leader={self.leader_member_id}>"
        )

    @property
    def cluster_session_id(self) -> ClusterSessionId:
        """The session's id, the same under every leader."""
        return ClusterSessionId(self._protocol.session.cluster_session_id)

    @property
    def leadership_term_id(self) -> TermId:
        """The term of the leader that messages go to."""
        return TermId(self._protocol.session.leadership_term_id)

    @property
    def leader_member_id(self) -> MemberId:
        """The member that messages go to."""
        return MemberId(self._protocol.leader_member_id)

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this is a session with; one of one where the cluster has no groups."""
        return self._protocol.session.group

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where the members listen, as far as the session knows: what to connect to again when it has ended.

        The cluster tells it when a session opens and with each new leader.
        """
        return self._protocol.endpoints

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that is given no `timeout_s`, as `ClientConfig.call_timeout_s` says."""
        return self._protocol.config.call_timeout_s

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended, and no other one will be opened."""
        return not self._conductor.has_session and (self._reopening is None or self._reopening.is_closed)

    @property
    def has_leader(self) -> bool:
        """Whether the path to a leader stands: without one, offers wait."""
        return self._protocol.state is ClientState.OPEN

    @property
    def dropped_egress_count(self) -> int:
        """Messages received and dropped, because they were of an earlier term or another session."""
        session = self._protocol.session
        return session.stale_egress_count + session.foreign_egress_count

    @property
    def outstanding_request_count(self) -> int:
        """How many requests have no outcome, also those for which no caller waits any more."""
        return self._protocol.requests.outstanding_count

    @property
    def resent_request_count(self) -> int:
        """How often a request was sent again, because a leader went away before it had answered."""
        return self._protocol.requests.resent_count

    def try_offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Offer a message if there is room for it and a leader just now; False if not.

            if not cluster.try_offer(b"1"):
                skipped += 1

        It is copied, and sent at the end of this turn of the loop.

        Raises:
            SessionClosedError: the session has ended; says why.
            LocalProtocolError: the payload is too long, or this is not the client's event loop.
        """
        conductor = self._conductor
        # Offers are many, and asking for the running loop is a system call before Python 3.12: once a turn is enough.
        if not conductor.is_flush_scheduled or get_ident() != self._thread_id:
            self._check_loop()
        if type(payload) is not bytes:
            payload = plain_bytes("payload", payload)
        try:
            if not self._protocol.offer(payload):
                return False
        except SessionClosedError:
            if self.is_closed:
                raise
            return False
        if not conductor.is_flush_scheduled:
            conductor.schedule_flush()
        return True

    async def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Offer a message, waiting for room, or for a leader, but never for its commit.

            async with asyncio.timeout(5):
                await cluster.offer(b"1")

        A wait that is cancelled, as by that timeout, has not offered the message.

        Raises:
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: the payload is too long, or this is not the client's event loop.
        """
        while not self.try_offer(payload):
            if self._reopening is not None:
                await self._reopening.wait(math.inf)
            await self._conductor.wait_until(self._is_not_waiting)

    async def query(
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

            result = await cluster.query(b"balance of 17", timeout_s=5)
            print(result.payload, result.log_position)

        Without `max_staleness_s` it is linearizable: the answer reflects everything that was acknowledged to anybody
        before this call. The leader answers, once a majority has confirmed, after the query came, that it leads. What
        this client has offered and has no answer of may be in it or not.

        With `max_staleness_s` any member answers that can tell how old its state is, or the one with the id
        `read_from`; the answer says how old. `min_log_position`, that of an earlier result, makes sure that it is not
        older than what was seen before. With 0 seconds it is as good as linearizable, and any member's.

        Where nodes run several services, the one with the id `service_id` answers, or the first that takes queries.

        A query changes nothing. It is asked again, of another member or a new leader, until one answers; `timeout_s`,
        by default the `call_timeout_s` of the configuration, bounds that. Answers come on the sockets that egress comes
        on: while nobody reads `egress()`, and its queue is full, they wait.

        Raises:
            QueryRefusedError: the service takes no queries, or raised, or this client may not ask; says what.
            ClusterTimeoutError: nobody answered in time; says what each member said instead.
            BackPressureError: 65,536 queries are under way.
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: the arguments make no sense, or this is not the client's event loop.
        """
        self._check_loop()

        def ask(limit_s: float) -> Awaitable[QueryResult]:
            return asking.query(
                self._conductor,
                payload,
                max_staleness_s=max_staleness_s,
                min_log_position=min_log_position,
                read_from=read_from,
                service_id=service_id,
                timeout_s=limit_s,
            )

        limit_s = self.call_timeout_s if timeout_s is None else timeout_s
        return await (ask(limit_s) if self._reopening is None else self._reopening.run(ask, limit_s))

    async def take_snapshot(self, *, timeout_s: float = 60.0) -> int:
        """Have every member of the cluster take a snapshot; give its log position once the leader has it, durably.

            position = await cluster.take_snapshot(timeout_s=30)

        A client with an operator's certificate may. For others the cluster's authorisation service decides, by the
        principal; by default it refuses all of them.

        Raises:
            AdminRefusedError: this client may not, or it is not done as things are, or it failed; says what.
            IndeterminateError: the leader was lost, or did not answer in time: it may be taken or not.
            BackPressureError: 64 admin requests are under way.
            SessionClosedError: the session had ended before.
            LocalProtocolError: this is not the client's event loop.
        """
        self._check_loop()
        return await self._ask_admin(SNAPSHOT_WISH, timeout_s)

    async def transfer_leadership(self, to: int | None = None, *, timeout_s: float = 60.0) -> MemberId:
        """Have the leader hand over to the member `to`, or to the one that fits best; give the member that leads then.

            leader_member_id = await cluster.transfer_leadership(2)

        The session goes on, and requests run once. Who may, as for `take_snapshot`.

        Raises:
            AdminRefusedError: this client may not, or the leader cannot hand over to that member, or gave it up and
                goes on; says why.
            IndeterminateError: no leader was heard of in time.
            BackPressureError, SessionClosedError, LocalProtocolError: as for `take_snapshot`.
        """
        self._check_loop()
        wish = AdminWish(AdminRequestType.TRANSFER, to)
        return MemberId(await self._ask_admin(wish, timeout_s))

    async def _ask_admin(self, wish: AdminWish, timeout_s: float) -> int:
        def ask(limit_s: float) -> Awaitable[int]:
            return asking.ask_admin(self._conductor, wish, limit_s)

        return await (ask(timeout_s) if self._reopening is None else self._reopening.run(ask, timeout_s))

    async def request(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> bytes:
        """Have the service run a request, exactly once, and give its reply.

            reply = await cluster.request(b"transfer 10 from a to b", timeout_s=5)

        The service's `on_request` is called once, whatever happens to leaders, connections and members meanwhile: this
        client sends again what is unanswered, in order, and the cluster answers what it has run before with the reply
        that it gave then. Requests of one client run in the order in which they were begun. Many may be under way at
        once, up to `request_window_count`; more wait for their turn.

        After `timeout_s`, by default the `call_timeout_s` of the configuration, it says what is known. A caller that
        cancels it instead gives up the reply, not the request.

        Raises:
            RejectedError: it was certainly not applied, and never will be: it had not been sent to any leader when the
                time was over or the session ended; or the service takes no requests.
            RequestIndeterminateError: it was sent, and no reply came in time, or before the session ended. Its
                `resolve` waits for the outcome.
            RequestFailedError: the service raised; says what.
            SessionClosedError: the session had ended before.
            LocalProtocolError: the payload is too long, or this is not the client's event loop.
        """
        plain = payload if type(payload) is bytes else bytes(plain_bytes("payload", payload))
        future = self._begin_request(plain, timeout_s)
        if future is None:
            return await self._request_in_any_session(plain, timeout_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(future)
            raise

    @overload
    async def request_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[bytes]: ...
    @overload
    async def request_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool,
    ) -> list[bytes | ClusterError]: ...
    async def request_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool = False,
    ) -> list[bytes] | list[bytes | ClusterError]:
        """Make requests in one call, each of them as `request` does, and give the replies by position.

            replies = await cluster.request_many([b"add 1", b"add 2", b"add 3"], timeout_s=5)

        Each runs exactly once, is an entry of the log of its own, and runs whether those before it fail or not. They
        run in their order, with no other request of this session between them. It takes much less time than as many
        calls of `request`. There is no limit to how many they are: what does not fit in `request_window_count` or
        `request_window_bytes` is sent as replies come. Requests that are begun later wait for all of them.

        `timeout_s` bounds all of it. A caller that cancels it gives up the replies, and what is not sent; what is sent
        runs.

        With `return_exceptions` errors are in the list, each at the position of its request. Otherwise the first one
        by position is raised, once the outcome of each request is known, or the time is over; its note says the
        position.

        Raises:
            LocalProtocolError: one is too long, or no payload: nothing was sent. Or this is not the client's event
                loop.
            SessionClosedError: the session had ended before.

        Also what `request` raises, of each request: one of a session that ends may be sent and not the next one.
        """
        self._check_loop()
        plain = [each if type(each) is bytes else bytes(plain_bytes("payload", each)) for each in payloads]
        outcomes = await self._request_each(plain, timeout_s)
        return outcomes if return_exceptions else results_of(outcomes)

    async def _request_each(self, payloads: Sequence[bytes], timeout_s: float | None) -> list[bytes | ClusterError]:
        if not payloads:
            return []
        if self._reopening is None:
            return await request_batch(self._conductor, payloads, timeout_s)
        limit_s = self.call_timeout_s if timeout_s is None else timeout_s
        return await request_batch_in_any_session(self._reopening, payloads, limit_s)

    def _begin_request(self, payload: bytes, timeout_s: float | None) -> asyncio.Future[bytes] | None:
        """Begin a request in this session; None if one that it certainly does not run goes to the next session.

        For callers that await the reply themselves: a coroutine more takes a tenth of a request.
        """
        conductor = self._conductor
        if not conductor.is_flush_scheduled or get_ident() != self._thread_id:
            self._check_loop()
        return conductor.begin_request(payload, timeout_s) if self._reopening is None else None

    def _withdraw(self, future: asyncio.Future[bytes]) -> None:
        """Withdraw what `_begin_request` has begun, for a caller that no longer waits."""
        self._protocol.requests.withdraw(future)

    async def _request_in_any_session(self, payload: bytes, timeout_s: float | None) -> bytes:
        assert self._reopening is not None

        async def ask(left_s: float) -> bytes:
            window = self._protocol.requests
            future = self._conductor.begin_request(payload, left_s)
            try:
                return await future
            except asyncio.CancelledError:
                window.withdraw(future)
                raise

        try:
            return await self._reopening.run(ask, self.call_timeout_s if timeout_s is None else timeout_s)
        except ClusterTimeoutError as error:
            raise RejectedError(f"timed out before it was sent: {error}") from error

    def egress(self) -> AsyncIterator[EgressMessage]:
        """Iterate over the messages that the service sends to this session.

            async for message in cluster.egress():
                print(message.timestamp, message.payload)

        The iteration ends when this client is closed; it raises SessionClosedError when the session ended
        otherwise, after the messages that came before. Up to `egress_queue_limit` messages wait for it; then
        the sockets rest.

        Raises:
            LocalProtocolError: the client has a listener, or this is not its event loop.
        """
        self._check_loop()
        if self._conductor.egress_queue is None:
            raise LocalProtocolError("egress() is for clients without egress_listener, which gets the messages")
        return EgressIterator(self._conductor, self._check_loop, self._reopening)

    def connection_events(self) -> ConnectionEvents:
        """Iterate over what happens to the connections and the session, from the beginning.

            async for event in cluster.connection_events():
                match event:
                    case Disconnected(endpoint, member_id, reason):
                        print(f"{endpoint} is gone: {reason}")
                    case NewLeader(term_id, member_id):
                        print(f"member {member_id} leads")

        Events: `Connected`, `Disconnected`, `SessionOpened`, `LeaderLost`, `NewLeader`, and in the end
        `SessionClosed`, after which the iteration ends. The newest `connection_event_limit` are kept for any
        number of readers; the `dropped_count` of what this gives says how many were gone before they were read.

        Raises:
            LocalProtocolError: this is not the client's event loop.
        """
        self._check_loop()
        return self._events()

    def _events(self) -> ConnectionEvents:
        """Begin to read events; for any thread, but only the loop may go on with it."""
        return ConnectionEvents(self._conductor, self._check_loop, self._reopening)

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was offered has been handed to the leader's connection.

            for line in file:
                await cluster.offer(line)
            await cluster.drain(timeout_s=10)

        That is: the operating system of this machine has taken all bytes for the leader that the client follows.
        It does not say that the leader has received them, and not that they are committed: the cluster acknowledges
        no single messages, only the service's answers tell. Calls of `offer` that still wait have offered nothing.
        Of requests more is known: it waits until each that was begun has its outcome, also those that timed out.

        Raises:
            IndeterminateError: the leader was lost or replaced after something was offered, since the last drain:
                what was not answered may be lost.
            ClusterTimeoutError: not everything was sent in time; it still may be.
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: this is not the client's event loop.
        """
        self._check_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await self._conductor.drain()
                await self._conductor.drain_requests()
        except TimeoutError:
            raise ClusterTimeoutError(f"not everything was sent: timeout_s={timeout_s}") from None

    async def aclose(self) -> None:
        """Close the session and the connections, in this order. More calls do nothing.

            cluster = await ClusterClient.connect(["127.0.0.1:9000"])
            try: ...
            finally:
                await cluster.aclose()

        The request to close follows what was offered, on the same connection; so when the leader confirms, it has
        received all of that. It may wait `close_timeout_s` for that, and no longer: then, or when there is no leader,
        or when it is cancelled, the connections are dropped with what is not sent, and the cluster keeps the session
        until it has been silent for too long. `SessionClosed.is_confirmed` of `connection_events` tells which it was.
        Egress that comes meanwhile can still be read.

        Raises:
            LocalProtocolError: this is not the client's event loop.
        """
        self._check_loop()
        if self._reopening is not None:
            await self._reopening.close()
        conductor = self._conductor
        conductor.close()
        try:
            await conductor.wait_until(lambda: self.is_closed)
        finally:
            conductor.abort()
        await conductor.wait_ended()

    def call_at_session_end(self, call: Callable[[], None]) -> None:
        """Have a function called once the present session has ended, also where another one follows.

        Raises:
            LocalProtocolError: this is not the client's event loop.
        """
        self._check_loop()
        self._conductor.call_at_end(call)

    def forget_at_session_end(self, call: Callable[[], None]) -> None:
        """Call a function no more; `LocalProtocolError` as for `call_at_session_end`."""
        self._check_loop()
        self._conductor.forget_at_end(call)

    def _on_reopened(self, conductor: ClientConductor, error: ClusterError) -> None:
        self._conductor, self._protocol = conductor, conductor.protocol
        on_reopen = conductor.protocol.config.on_reopen
        if on_reopen is not None:
            on_reopen(error)

    def _is_not_waiting(self) -> bool:
        return not self._protocol.is_waiting

    def _check_loop(self) -> None:
        # None: no loop runs in this thread, or this is a fork of the process in which one did.
        if asyncio._get_running_loop() is not self._loop:
            raise LocalProtocolError(
                "this client belongs to another event loop: use it in the coroutines of the loop that connected it,"
                " or use SyncClusterClient"
            )


class OverClient(ClosedAtExit):
    """A client over a session, such as a typed one."""

    cluster: ClusterClient
    """The session."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster

    async def aclose(self) -> None:
        """Close the session."""
        await self.cluster.aclose()


SYSTEM_RANDOM: Final = SystemRandom()
"""Of all clients of the process, and of its forks: to seed a generator for each took longer than to ask the system."""


async def connect_client(
    open_one: OpenSession, *, reopens: bool, siblings: dict[Reopening, None] | None = None
) -> ClusterClient:
    """Open a session, and return the client of it. If it `reopens`, it opens the next one in the same way."""
    return ClusterClient(await open_one(()), open_one if reopens else None, siblings)


def session_opener(config: ClientConfig, listener: EgressListener | None) -> OpenSession:
    """Return what opens a session, the first or the next: members may have moved from where the configuration says."""

    async def open_one(known: tuple[str, ...]) -> ClientConductor:
        endpoints = tuple(dict.fromkeys((*known, *config.endpoints)))
        used = config if endpoints == config.endpoints else replace(config, endpoints=endpoints)
        return await open_session(ClientConductor(used, listener, random=config.random or SYSTEM_RANDOM.random))

    return open_one


async def open_session(conductor: ClientConductor) -> ClientConductor:
    """Open a conductor's session, and return it.

    Raises:
        ConnectTimeoutError: nobody opened a session in time; says what each endpoint answered.
        ConnectRejectedError: the cluster refused.
    """
    protocol = conductor.protocol
    try:
        conductor.start()
        await conductor.wait_until(lambda: protocol.state is not ClientState.CONNECTING)
    except BaseException:
        conductor.abort()
        raise
    if protocol.close_error is not None:
        await conductor.wait_ended()
        raise protocol.close_error
    if protocol.state is ClientState.CLOSED:
        await conductor.wait_ended()
        raise protocol.closed_error()
    return conductor
