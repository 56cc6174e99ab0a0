"""Many sessions of one process over one connection to each member: for web servers, pools and gateways.

    SharedConnection ──► SharedLink (one for each member, one socket)
          │                   │  ▲
          │                   ▼  │
          └──► a session: ClusterClient, ClientConductor, ClientProtocol, SessionChannel (one for each link)

Each session is a `ClusterClient` like any other: it has its id, its order, its egress and its deadlines, and follows
the leader by itself. What it takes for its connections are channels of the links.

One secret shows for all sessions whose they are. So each new connection says it once, and one keep-alive a second on
each connection is enough for all: members bind the sessions of one secret together. Who the users are is decided for
each session by its credentials, as with connections of their own; a certificate is the connection's.

A session that nobody here knows is closed: the one who asked for it has given up before the answer came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar, Unpack

from ...service_api.access.credentials import CredentialsSupplier
from ...service_api.connecting import ClosedAtExit, Connecting
from ...service_api.errors import BackPressureError, LocalProtocolError, SessionClosedError
from ..cluster_client import SYSTEM_RANDOM, ClusterClient, OverClient, connect_client, open_session
from ..conductor import ClientConductor
from ..config import ClientConfig, ConnectSettings, client_config, with_connect_settings
from ..egress import EgressListener
from ..protocol.client_state import ClientState
from ..protocol.protocol import ClientProtocol
from ..protocol.session_identity import (
    SHARED_NUMBER_LIMIT,
    SessionShare,
    close_request_of,
    proof_of,
)
from ..reopening import Reopening
from .frame_owner import FrameOwner
from .session_channel import SessionChannel
from .shared_link import SharedLink

_BASE_LIMIT = 1 << 20
C = TypeVar("C", bound=OverClient)


class SharedConnection(ClosedAtExit):
    """One connection to each member of a cluster, with any number of sessions on it.

        async with SharedConnection.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as shared:
            async with shared.open_session(client_info="user 17") as cluster:
                reply = await cluster.request(b"1", timeout_s=5)

    It lives on the event loop that runs when its first session is opened. Sessions are opened and closed at any time;
    connections stand while there is a session. A session that writes without end, does not read what it is sent, or
    ends, holds up no other: sessions write in turns, and one whose `egress_queue_limit` messages are not read is
    ended with a `BackPressureError` as the cause.

    Bounds: the cluster's `connection_session_limit` and `session_limit`, 10,000 each unless set otherwise, and its
    `client_session_limit`, 2,500.
    """

    def __init__(self, config: ClientConfig) -> None:
        """Take a configuration, which holds for every session; applications call `connect`."""
        self._secret = config.make_secret()
        self._config = replace(config, make_secret=lambda: self._secret)
        self._random = config.random or SYSTEM_RANDOM.random
        self._base = int(self._random() * _BASE_LIMIT)
        self._next_number = 0
        self._sessions: dict[int, SharedSession] = {}
        """By their numbers."""
        self._by_session_id: dict[int, SharedSession] = {}
        self._links: dict[str, SharedLink] = {}
        self._known: tuple[str, ...] = ()
        """Where the members listened when a session ended: those of the configuration may all have moved."""
        self._deferred: list[Callable[[], None]] = []
        self._deferred_links: list[SharedLink] = []
        self._is_pass_scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._reopening: dict[Reopening, None] = {}
        """Of the clients that would open other sessions."""
        self._ending: dict[asyncio.Future[None], None] = {}
        """Cancelled dials and closed connections that have not come to their end."""

    @classmethod
    @with_connect_settings
    def connect(
        cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]
    ) -> Connecting[SharedConnection]:
        """Make ready for sessions, with the arguments of `ClusterClient.connect`; what they say holds for each session.

        Enter what this gives with `async with`, or await it and call `aclose` in the end. Members are dialled when the
        first session is opened.

        Raises:
            ConfigurationError: an argument cannot be used.
        """
        config = client_config(endpoints, settings)

        async def make() -> SharedConnection:
            return cls(config)

        return Connecting(make)

    def __repr__(self) -> str:
        return f"<SharedConnection sessions={len(self._sessions)} links={len(self._links)}>"

    @property
    def session_count(self) -> int:
        """How many sessions are open, or are being opened or closed."""
        return len(self._sessions)

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that is given no `timeout_s`, as `ClientConfig.call_timeout_s` says."""
        return self._config.call_timeout_s

    def open_session(
        self,
        *,
        egress_listener: EgressListener | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str | None = None,
    ) -> Connecting[ClusterClient]:
        """Open a session.

        Enter what this gives with `async with`, or await it and call `aclose` in the end. What is given counts for
        this session, in place of what the connection was given. Raises, when entered or awaited, what
        `ClusterClient.connect` does, and:

            LocalProtocolError: the shared connection is closed, or belongs to another event loop.
            SessionClosedError: the shared connection was closed while this waited.
            BackPressureError: four million sessions are open.
        """
        config = self._config
        if credentials is not None:
            config = replace(config, credentials=credentials, on_challenge=on_challenge)
        if client_info is not None:
            config = replace(config, client_info=client_info)

        async def open_one(known: tuple[str, ...]) -> ClientConductor:
            return await self._open_session(config, egress_listener)

        return Connecting(lambda: connect_client(open_one, reopens=config.reopen, siblings=self._reopening))

    def open_client(
        self,
        kind: type[C],
        *,
        credentials: bytes | CredentialsSupplier | None = None,
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str | None = None,
    ) -> Connecting[C]:
        """Open a client of a typed or a ready-made service, such as `KvClient`, with a session of its own.

        async with shared.open_client(KvClient) as kv:
            await kv.put("a", "1")

        Arguments and errors are those of `open_session`. The session is closed with the client.
        """
        below = self.open_session(credentials=credentials, on_challenge=on_challenge, client_info=client_info)

        async def make() -> C:
            return kind(await below)

        return Connecting(make)

    async def aclose(self) -> None:
        """Close every session, then the connections. More calls do nothing.

        Raises:
            LocalProtocolError: this is not its event loop.
        """
        self._is_closed = True
        if self._loop is None:
            return
        self._check_loop()
        for reopening in [*self._reopening]:
            await reopening.close()
        sessions = [*self._sessions.values()]
        for session in sessions:
            session.conductor.close()
        try:
            for session in sessions:
                await session.conductor.wait_until(session.has_ended)
        finally:
            for session in sessions:
                session.conductor.abort()
        for session in sessions:
            await session.conductor.wait_ended()
        if self._ending:
            await asyncio.wait([*self._ending], timeout=self._config.close_timeout_s)

    # --- sessions

    async def _open_session(self, config: ClientConfig, listener: EgressListener | None) -> ClientConductor:
        """Open one more session, by the connections that stand: the members may have moved since the first one.

        Members take one request at a time until a session is open on a connection.
        """
        if self._loop is None:
            self._loop, self._opening = asyncio.get_running_loop(), asyncio.Lock()
        self._check_loop()
        if self._is_closed:
            raise LocalProtocolError("this shared connection is closed: make a new one")
        async with self._turn_to_open():
            if self._is_closed:
                raise SessionClosedError("the shared connection was closed")
            session = SharedSession(self, SessionShare(self._base, self._free_number()))
            endpoints = tuple(dict.fromkeys((*self._links, *self._known, *config.endpoints)))
            if endpoints != config.endpoints:
                config = replace(config, endpoints=endpoints)
            session.conductor = ClientConductor(config, listener, random=self._random, share=session)
            self._sessions[session.session.number] = session
            return await open_session(session.conductor)

    def _turn_to_open(self) -> AbstractAsyncContextManager[object]:
        assert self._opening is not None
        return nullcontext() if self._by_session_id else self._opening

    def _free_number(self) -> int:
        if len(self._sessions) >= SHARED_NUMBER_LIMIT:
            raise BackPressureError(f"too many sessions on one connection: limit={SHARED_NUMBER_LIMIT}")
        while self._next_number in self._sessions:
            self._next_number = (self._next_number + 1) % SHARED_NUMBER_LIMIT
        number, self._next_number = self._next_number, (self._next_number + 1) % SHARED_NUMBER_LIMIT
        return number

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise LocalProtocolError("this shared connection belongs to another event loop: use it in its coroutines")

    async def attach(self, session: SharedSession, connection_id: int, endpoint: str) -> SessionChannel:
        """Return a session's channel to an endpoint."""
        link = self._links.get(endpoint)
        if link is None:
            link = self._links[endpoint] = SharedLink(self, self._config, endpoint, self._random)
        is_patient = session.conductor.protocol.state is not ClientState.CONNECTING
        channel = await link.attach(session.conductor, connection_id, is_patient=is_patient)
        if session.has_missed:
            session.has_missed = False
            link.keep_alive(session.conductor.protocol.session)
        return channel

    def look(self, session: SharedSession) -> None:
        """Note a session that has opened or ended."""
        protocol = session.conductor.protocol
        session_id = protocol.session.cluster_session_id
        if protocol.state is ClientState.CLOSED:
            self._forget(session, session_id)
        elif protocol.state is not ClientState.CONNECTING and session_id not in self._by_session_id:
            self._by_session_id[session_id] = session
            for link in self._links.values():
                if link.is_up and not link.is_introduced:
                    self.introduce(link)
            if self._timer is None:
                self._set_timer(protocol)

    def _forget(self, session: SharedSession, session_id: int) -> None:
        if self._sessions.get(session.session.number) is not session:
            return
        del self._sessions[session.session.number]
        self._known = session.conductor.protocol.endpoints
        if self._by_session_id.pop(session_id, None) is None or session.conductor.protocol.is_close_confirmed:
            return
        # The connection stays, and would keep the session alive: nobody else says that it has ended.
        protocol = session.conductor.protocol
        for link in self._links.values():
            if link.is_up:
                self._close_session(link, session_id, protocol.session.leadership_term_id)

    def _close_session(self, link: SharedLink, session_id: int, leadership_term_id: int) -> None:
        link.publisher.publish(close_request_of(session_id, leadership_term_id))
        link.defer_flush()

    # --- what one session says for all

    def introduce(self, link: SharedLink) -> None:
        """Show on a connection whose the sessions are, if there are any."""
        protocol = self._speaker()
        if protocol is not None:
            link.is_introduced = True
            link.publisher.publish(proof_of(self._secret, protocol.session.cluster_session_id))
            link.keep_alive(protocol.session)

    def _speaker(self) -> ClientProtocol | None:
        """The session whose turn it is to say that all are alive: each in turn, so none is forgotten for good."""
        if not self._by_session_id:
            return None
        session_id = next(iter(self._by_session_id))
        session = self._by_session_id[session_id] = self._by_session_id.pop(session_id)
        return session.conductor.protocol

    def _set_timer(self, protocol: ClientProtocol) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(protocol.keep_alive_interval_ns / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        protocol = self._speaker()
        if protocol is None:
            return
        assert self._loop is not None
        now_ns = int(self._loop.time() * 1e9)
        for link in [link for link in self._links.values() if link.is_introduced and link.is_up]:
            if link.watch.is_silent(now_ns, least_ns=protocol.silence_limit_ns):
                link.give_up()
            else:
                link.keep_alive(protocol.session)
        self._set_timer(protocol)

    # --- links

    def find_channel(self, link: SharedLink, owner: FrameOwner) -> SessionChannel | None:
        """Find whose a control message is; a session that is nobody's is closed."""
        session = None
        if owner.correlation_id is not None:
            base, number = SessionShare.split(owner.correlation_id)
            session = self._sessions.get(number) if base == self._base else None
        if session is None and owner.session_id is not None:
            session = self._by_session_id.get(owner.session_id)
        if session is not None:
            return self._channel(link, session)
        opened_id = owner.session_id if owner.is_new_leader else owner.opened_session_id
        if opened_id is not None:
            self._close_session(link, opened_id, owner.leadership_term_id)
        return None

    def channel_of_session(self, link: SharedLink, session_id: int) -> SessionChannel | None:
        """Find the channel of an open session."""
        session = self._by_session_id.get(session_id)
        return None if session is None else self._channel(link, session)

    def _channel(self, link: SharedLink, session: SharedSession) -> SessionChannel | None:
        channel = link.channels.get(session.conductor)
        if channel is None and not session.has_missed:
            # The member is new to the session: once that uses the link, it asks what it has missed.
            session.has_missed = True
            session.conductor.want(link.endpoint)
        return channel

    def on_link_idle(self, link: SharedLink) -> None:
        """End a connection that no session uses."""
        if self._links.get(link.endpoint) is link:
            del self._links[link.endpoint]
            ending = link.close()
            if ending is not None and not ending.done():
                self._ending[ending] = None
                ending.add_done_callback(self._ending.pop)

    # --- the end of a turn of the loop

    def defer(self, call: Callable[[], None]) -> None:
        """Call a function at the end of this turn of the loop, before the links write."""
        self._deferred.append(call)
        self._schedule_pass()

    def defer_link(self, link: SharedLink) -> None:
        """Flush a link at the end of this turn of the loop."""
        self._deferred_links.append(link)
        self._schedule_pass()

    def _schedule_pass(self) -> None:
        if not self._is_pass_scheduled:
            assert self._loop is not None
            self._is_pass_scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        deferred, self._deferred = self._deferred, []
        for call in deferred:
            call()
        links, self._deferred_links = self._deferred_links, []
        for link in links:
            link.flush()
        self._is_pass_scheduled = False
        if self._deferred or self._deferred_links:
            self._schedule_pass()


class SharedSession:
    """One session of a shared connection, as its conductor sees that."""

    conductor: ClientConductor

    def __init__(self, connection: SharedConnection, share: SessionShare) -> None:
        self._connection = connection
        self.has_missed = False
        """Whether something was sent to it on a link that it did not use."""
        self.session = share

    def __repr__(self) -> str:
        return f"<SharedSession {self.session.number}>"

    def has_ended(self) -> bool:
        """Whether it is closed."""
        return self.conductor.protocol.state is ClientState.CLOSED

    def defer(self, call: Callable[[], None]) -> None:
        """Call a function at the end of this turn of the loop."""
        self._connection.defer(call)

    async def attach(self, connection_id: int, endpoint: str) -> SessionChannel:
        """Return the session's channel to an endpoint, once the connection stands."""
        return await self._connection.attach(self, connection_id, endpoint)

    def look(self) -> None:
        """Note a session that has opened or ended."""
        self._connection.look(self)
