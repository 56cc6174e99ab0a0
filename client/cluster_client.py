"""The client that applications use: one cluster session, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

from service_api.distribution import check_package_owners_once
from service_api.errors import LocalProtocolError
from service_api.types import ClusterSessionId, MemberId, TermId

from .config import ClientConfig
from .connection import ClientConductor
from .egress import EgressListener, EgressMessage, EgressQueue
from .protocol import CLOSED_BY_CLIENT, ClientState


class ClusterClient:
    """A session with the cluster: offer messages to the replicated service, receive what it answers.

    Made by `connect`. It lives on the event loop that made it and is not for other threads or loops. It stays
    connected to every member, keeps the session alive, and follows the leader when that changes.

    Messages of one client are handled in the order of their offers, and so are the answers. With a new leader
    the session goes on, but what was offered and not answered may be lost or not: number your messages,
    resend the unanswered ones when the listener's `on_new_leader` is called, and let the service check the
    numbers.
    """

    def __init__(self, conductor: ClientConductor) -> None:
        self._conductor = conductor
        self._protocol = conductor.protocol
        self._loop = conductor.loop

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str],
        *,
        egress_listener: EgressListener | None = None,
        connect_timeout_s: float = 5.0,
        new_leader_timeout_s: float | None = None,
        credentials: bytes = b"",
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str = "",
        config: ClientConfig | None = None,
    ) -> Connecting:
        """Open a session; use it as `async with ClusterClient.connect(...) as cluster:`, or await it.

        `endpoints` are "host:port" of the ingress of any members; one that is up is enough. With an
        `egress_listener` messages come as calls, otherwise through `egress()`. `config` sets everything else,
        and then alone counts.

        Raises, when entered or awaited:
            ConfigurationError: an argument cannot be used, or another distribution owns one of our packages.
            ConnectTimeoutError: nobody opened a session in time; says what each endpoint answered.
            ConnectRejectedError: the cluster refused.
        """
        if isinstance(endpoints, str):
            endpoints = [endpoints]
        if config is None:
            config = ClientConfig(
                endpoints=tuple(endpoints),
                connect_timeout_s=connect_timeout_s,
                new_leader_timeout_s=new_leader_timeout_s,
                credentials=credentials,
                on_challenge=on_challenge,
                client_info=client_info,
            )
        return Connecting(config, egress_listener)

    def __repr__(self) -> str:
        protocol = self._protocol
        return (
            f"<ClusterClient {protocol.state.name} session={self.cluster_session_id}"
            f" term={self.leadership_term_id} leader={self.leader_member_id}>"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

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
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self._protocol.state is ClientState.CLOSED

    @property
    def has_leader(self) -> bool:
        """Whether the path to a leader stands: without one, offers wait."""
        return self._protocol.state is ClientState.OPEN

    @property
    def dropped_egress_count(self) -> int:
        """Messages received and dropped, because they were of an earlier term or another session."""
        session = self._protocol.session
        return session.stale_egress_count + session.foreign_egress_count

    def try_offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Offer a message if there is room for it and a leader just now.

        It is copied, and sent at the end of this turn of the loop.

        Raises:
            SessionClosedError: the session has ended; says why.
            LocalProtocolError: the payload is too long, or this is not the client's event loop.
        """
        try:
            if asyncio.get_running_loop() is not self._loop:
                raise self._wrong_loop()
        except RuntimeError:
            raise self._wrong_loop() from None
        if type(payload) is memoryview:
            payload = payload.cast("B")
        if not self._protocol.offer(payload):
            return False
        self._conductor.schedule_flush()
        return True

    async def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Offer a message, waiting for room, or for a leader, but never for its commit.

        Raises:
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: the payload is too long, or this is not the client's event loop.
        """
        while not self.try_offer(payload):
            await self._conductor.wait_until(self._is_not_waiting)

    def egress(self) -> AsyncIterator[EgressMessage]:
        """Iterate over the messages that the service sends to this session.

        The iteration ends when this client is closed; it raises SessionClosedError when the session ended
        otherwise, after the messages that came before. Up to `egress_queue_limit` messages wait for it; then
        the sockets rest.

        Raises:
            LocalProtocolError: the client has a listener, or this is not its event loop.
        """
        self._check_loop()
        queue = self._conductor.egress_queue
        if queue is None:
            raise LocalProtocolError("egress() is for clients without egress_listener, which gets the messages")
        return _EgressIterator(self._conductor, queue)

    async def aclose(self) -> None:
        """Close the session and the connections.

        Waits up to `close_timeout_s` for the leader to confirm. More calls do nothing.
        """
        self._check_loop()
        conductor = self._conductor
        conductor.close()
        try:
            await conductor.wait_until(lambda: self.is_closed)
        finally:
            conductor.abort()
        await conductor.wait_ended()

    def _is_not_waiting(self) -> bool:
        return not self._protocol.is_waiting

    def _check_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise self._wrong_loop() from None
        if running is not self._loop:
            raise self._wrong_loop()

    def _wrong_loop(self) -> LocalProtocolError:
        return LocalProtocolError("this client belongs to another event loop: use it where it was connected")


class _EgressIterator:
    """Iterates over a client's egress queue; one task at a time may wait for it."""

    __slots__ = ("_conductor", "_messages", "_protocol", "_queue")

    def __init__(self, conductor: ClientConductor, queue: EgressQueue) -> None:
        self._conductor = conductor
        self._protocol = conductor.protocol
        self._queue = queue
        self._messages = queue.messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EgressMessage:
        if not self._messages:
            await self._wait()
        message = self._messages.popleft()
        if not self._conductor.is_reading:
            self._conductor.on_room()
        return message

    async def _wait(self) -> None:
        queue = self._queue
        if queue.is_awaited:
            raise LocalProtocolError("another task is waiting for the egress of this client")
        queue.is_awaited = True
        try:
            await self._conductor.wait_until(self._is_ready)
        finally:
            queue.is_awaited = False
        if not self._messages:
            if self._protocol.close_reason == CLOSED_BY_CLIENT:
                raise StopAsyncIteration
            raise self._protocol.closed_error()

    def _is_ready(self) -> bool:
        return bool(self._messages) or self._protocol.state is ClientState.CLOSED


class Connecting:
    """A connect that is entered with `async with`, or awaited."""

    def __init__(self, config: ClientConfig, listener: EgressListener | None) -> None:
        self._config = config
        self._listener = listener
        self._client: ClusterClient | None = None

    def __await__(self) -> Generator[Any, None, ClusterClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> ClusterClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _connect(self) -> ClusterClient:
        check_package_owners_once()
        random = self._config.random or Random().random
        conductor = ClientConductor(self._config, self._listener, random=random)
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
        return ClusterClient(conductor)
