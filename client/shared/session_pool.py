"""A pool over one shared connection, for callers that come and go.

    SessionPool ──► SharedConnection
       │   │
       │   └── one session for every `request` and `query`: any number of callers at once
       └────── up to `size` sessions that are lent, each to one caller at a time

A request needs no session of its own: it runs exactly once in any, and the replies of one session are told apart by
the numbers of their requests. So all callers share one session, and what they ask in one turn of the loop is one run of
frames. Messages need one: one task reads those of a session. So `session` and `client` lend a session to one caller,
until the end of its block.

A session is lent again only when every request that was made on it has its outcome. The caller before may have been
cancelled; its request still runs, and may not run between those of the caller after. What a caller began in the
cluster, such as a lock, it ends: the pool cannot know what of that its session keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar, Unpack

from ...service_api.connecting import ClosedAtExit, Connecting
from ...service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError, SessionClosedError
from ..cluster_client import ClusterClient, OverClient
from ..config import ConnectSettings, client_config, with_connect_settings
from ..deadlines import begin_limit, seconds_left
from ..errors import ConnectTimeoutError, RejectedError
from ..protocol.protocol import CLOSED_BY_CLIENT
from ..protocol.queries import QueryResult
from ..streams import EgressIterator
from .shared_connection import SharedConnection

C = TypeVar("C", bound=OverClient)
_EGRESS_PAGE: Final = 1_024


class SessionPool(ClosedAtExit):
    """Sessions over one shared connection, for callers that come and go: the handlers of a web server.

        async with SessionPool.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"], size=16) as pool:
            reply = await pool.request(b"1", timeout_s=5)
            async with pool.session() as cluster:
                await cluster.offer(b"1")
                message = await anext(cluster.egress())

    It lives on the event loop that connected it. A session that has ended is replaced by a new one when it is needed.

    Bounds: `size` sessions that are lent; further callers wait, and are served in the order in which they came. One
    session more for `request` and `query`, with the bounds of a `ClusterClient`.
    """

    shared: SharedConnection
    """The connection, for sessions that last, such as one for each user."""
    size: int
    """How many sessions may be lent at once."""

    def __init__(self, shared: SharedConnection, *, size: int) -> None:
        """Take over a connection, which is closed with the pool; applications call `connect`."""
        if size < 1:
            raise ConfigurationError(f"size={size} expected at least 1")
        self.shared = shared
        self.size = size
        self._places = asyncio.Semaphore(size)
        self._idle: list[_Lendable] = []
        """Used last, lent first: those that were idle for long stay so."""
        self._settling: dict[asyncio.Task[None], None] = {}
        self._common: ClusterClient | None = None
        """The session of `request` and `query`."""
        self._opening = asyncio.Lock()
        self._is_closed = False

    @classmethod
    @with_connect_settings
    def connect(
        cls, endpoints: str | Sequence[str] = (), *, size: int = 8, **settings: Unpack[ConnectSettings]
    ) -> Connecting[SessionPool]:
        """Open the pool; enter what this gives with `async with`, or await it and call `aclose` in the end.

        The arguments but `size` are those of `ClusterClient.connect`, and so is what is raised. They hold for every
        session. Sessions that are lent are opened when they are needed.

        Raises:
            ConfigurationError: an argument cannot be used.
        """
        if size < 1:
            raise ConfigurationError(f"size={size} expected at least 1")
        config = client_config(endpoints, settings)

        async def make() -> SessionPool:
            pool = cls(SharedConnection(config), size=size)
            try:
                await pool._open_common()
            except BaseException:
                await pool.aclose()
                raise
            return pool

        return Connecting(make)

    def __repr__(self) -> str:
        return f"<SessionPool size={self.size} idle={self.idle_count} sessions={self.shared.session_count}>"

    @property
    def idle_count(self) -> int:
        """How many sessions are open that nobody has."""
        return len(self._idle)

    async def request(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> bytes:
        """Have the service run a request, exactly once, and give its reply, as `ClusterClient.request` does.

        Requests of all callers run in one session, in the order in which they were begun.
        """
        cluster = self._common
        if cluster is None or cluster.is_closed:
            try:
                cluster, timeout_s = await self._open_common_within(timeout_s)
            except ClusterTimeoutError as error:
                raise RejectedError(f"timed out before it was sent: {error}") from error
        return await cluster.request(payload, timeout_s=timeout_s)

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
        """Ask the service's state, without an entry in the log, as `ClusterClient.query` does."""
        cluster = self._common
        if cluster is None or cluster.is_closed:
            cluster, timeout_s = await self._open_common_within(timeout_s)
        return await cluster.query(
            payload,
            max_staleness_s=max_staleness_s,
            min_log_position=min_log_position,
            read_from=read_from,
            service_id=service_id,
            timeout_s=timeout_s,
        )

    @asynccontextmanager
    async def session(self, *, timeout_s: float | None = None) -> AsyncIterator[ClusterClient]:
        """Lend a session for a block: nobody else uses it meanwhile, and the messages that come are the caller's.

        It waits up to `timeout_s`, by default the `call_timeout_s` of the configuration, until a session is free and
        open. The session is for the block only. End in it what the cluster keeps for a session, such as a lock or a
        watch: otherwise it stays, with the session. Messages that come later are dropped.

        Raises:
            ClusterTimeoutError: no session was free and open in time.
            SessionClosedError: the pool is closed.

        Also what `SharedConnection.open_session` raises.
        """
        lent = await self._take(timeout_s)
        try:
            yield lent.cluster
        finally:
            self._give_back(lent)

    @asynccontextmanager
    async def client(self, kind: type[C], *, timeout_s: float | None = None) -> AsyncIterator[C]:
        """Lend a session as a client of a typed or a ready-made service; otherwise as `session`.

        async with pool.client(LocksClient) as locks, locks.lock("reports/daily"):
            write_report()
        """
        lent = await self._take(timeout_s)
        try:
            yield lent.client(kind)
        finally:
            self._give_back(lent)

    async def aclose(self) -> None:
        """Close every session, then the connection. Who waits for a session gets a `SessionClosedError`."""
        self._is_closed = True
        self._places.release()  # the first that waits, and each lets the next one go on
        settling = [*self._settling]
        for task in settling:
            task.cancel()
        try:
            await self.shared.aclose()
        finally:
            if settling:
                await asyncio.wait(settling)

    # --- inside

    async def _take(self, timeout_s: float | None) -> _Lendable:
        limit_s = self.shared.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with begin_limit(limit_s):
                await self._places.acquire()
                try:
                    return await self._idle_or_new()
                except BaseException:
                    self._places.release()
                    raise
        except ConnectTimeoutError:
            raise
        except TimeoutError as error:
            message = f"no session was free and open: timeout_s={limit_s:g} size={self.size}"
            raise ClusterTimeoutError(message) from error

    async def _idle_or_new(self) -> _Lendable:
        self._check_open()
        while self._idle:
            lendable = self._idle.pop()
            if not lendable.cluster.is_closed:
                lendable.drop_egress()
                return lendable
        return _Lendable(await self.shared.open_session())

    def _give_back(self, lendable: _Lendable) -> None:
        """Lend a session again, later if a request is under way; one that has ended leaves its place."""
        if self._is_closed or lendable.cluster.is_closed:
            self._places.release()
        elif lendable.cluster.outstanding_request_count or lendable.is_read:
            task = asyncio.get_running_loop().create_task(self._settle(lendable))
            self._settling[task] = None
            task.add_done_callback(self._settling.pop)
        else:
            self._idle.append(lendable)
            self._places.release()

    async def _settle(self, lendable: _Lendable) -> None:
        """Wait for the outcome of requests; close a session whose messages are still being read."""
        cluster = lendable.cluster
        try:
            if lendable.is_read:
                await cluster.aclose()
            with suppress(ClusterError):
                await cluster._conductor.drain_requests()
            if not cluster.is_closed:
                self._idle.append(lendable)
        finally:
            self._places.release()

    async def _open_common_within(self, timeout_s: float | None) -> tuple[ClusterClient, float]:
        """Open the session of all requests again, and return what is left of the time.

        Raises:
            ClusterTimeoutError: it was not open in time.
        """
        limit_s = self.shared.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with begin_limit(limit_s) as limit:
                cluster = await self._open_common()
        except ConnectTimeoutError:
            raise
        except TimeoutError as error:
            raise ClusterTimeoutError(f"no session was opened: timeout_s={limit_s:g}") from error
        return cluster, seconds_left(limit)

    async def _open_common(self) -> ClusterClient:
        """Open the session of all requests; who needs it meanwhile waits for the same."""
        async with self._opening:
            self._check_open()
            if self._common is None or self._common.is_closed:
                self._common = await self.shared.open_session()
            return self._common

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionClosedError(CLOSED_BY_CLIENT)


class _Lendable:
    """A session, with the clients over it: each has found its services once."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self._clients: dict[type[OverClient], OverClient] = {}

    def __repr__(self) -> str:
        return f"<_Lendable {self.cluster!r}>"

    def client(self, kind: type[C]) -> C:
        """Return the client of a class, the same one each time."""
        made = self._clients.get(kind)
        if made is None:
            made = self._clients[kind] = kind(self.cluster)
        assert isinstance(made, kind)
        return made

    @property
    def is_read(self) -> bool:
        """Whether a task waits for its messages."""
        queue = self.cluster._conductor.egress_queue
        return queue is not None and queue.is_awaited

    def drop_egress(self) -> None:
        """Forget the messages that came for who had it before."""
        egress = self.cluster.egress()
        assert isinstance(egress, EgressIterator)
        while egress.take_ready(_EGRESS_PAGE):
            pass
