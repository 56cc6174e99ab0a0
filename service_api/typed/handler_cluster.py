"""The cluster and the sessions as a handler of a typed service sees them: what it sends waits until it has returned.

So a handler that raises has sent nothing. What cannot be sent raises at once, while everything can still be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, Protocol

from ..cluster import Cluster
from ..errors import LocalProtocolError
from ..payloads import plain_bytes
from ..session import ClientSession
from ..types import ClusterSessionId
from ..wire.topics import TOPIC_MARK, encode_topic_message, is_topic_message

Payload = bytes | bytearray | memoryview


class DeferredCalls(Protocol):
    """Takes calls that are made when the handler has returned: the context."""

    @property
    def payload_limit_bytes(self) -> int:
        """The longest payload of what is sent."""

    def defer(self, name: str, call: Callable[[], object], *, logged_bytes: int | None = None) -> None:
        """Take a call; of one that puts a message into the log, its length."""


class HandlerSession:
    """A client session, whose messages and whose end wait for the handler."""

    __slots__ = ("_calls", "_session")

    def __init__(self, calls: DeferredCalls, session: ClientSession) -> None:
        self._calls, self._session = calls, session

    def __repr__(self) -> str:
        return f"<HandlerSession {self._session!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandlerSession) and self._session.id == other._session.id

    def __hash__(self) -> int:
        return hash(self._session.id)

    @property
    def id(self) -> ClusterSessionId:
        """The session's id."""
        return self._session.id

    @property
    def encoded_principal(self) -> bytes:
        """The principal of the client."""
        return self._session.encoded_principal

    @property
    def is_closing(self) -> bool:
        """Whether a service of this node has asked for the session to be closed."""
        return self._session.is_closing

    def offer(self, payload: Payload) -> bool:
        """Send a message to the client when the handler has returned; otherwise as `ClientSession.offer`."""
        if self._session.is_closing:
            return False
        data, session = checked_payload(payload, self._calls.payload_limit_bytes), self._session
        self._calls.defer("session.offer", lambda: session.offer(data))
        return True

    def close(self) -> None:
        """Ask for the session to be closed when the handler has returned."""
        self._calls.defer("session.close", self._session.close)


class _HandlerSessions(Mapping[ClusterSessionId, ClientSession]):
    """The open client sessions of a handler."""

    def __init__(self, calls: DeferredCalls, sessions: Mapping[ClusterSessionId, ClientSession]) -> None:
        self._calls, self._sessions = calls, sessions

    def __getitem__(self, session_id: ClusterSessionId) -> ClientSession:
        return HandlerSession(self._calls, self._sessions[session_id])

    def __iter__(self) -> Iterator[ClusterSessionId]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)


class HandlerCluster:
    """Implements `Cluster` for handlers: what reads passes through."""

    __slots__ = ("_calls", "_cluster")

    def __init__(self, calls: DeferredCalls, cluster: Cluster) -> None:
        self._calls, self._cluster = calls, cluster

    def __repr__(self) -> str:
        return f"<HandlerCluster {self._cluster!r}>"

    def __getattr__(self, name: str) -> Any:  # Any: whichever attribute of the cluster
        return getattr(self._cluster, name)

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open client sessions, in ascending order of id."""
        return _HandlerSessions(self._calls, self._cluster.client_sessions)

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        """Ask for a session to be closed when the handler has returned; False if there is no such session."""
        session = self.client_sessions.get(session_id)
        if session is not None:
            session.close()
        return session is not None

    def offer(self, payload: Payload) -> None:
        """Send a message through the log to every service, when the handler has returned; see `Cluster.offer`.

        Raises:
            LocalProtocolError: the payload is no bytes, or too long, or begins as a topic message does.
            BackPressureError: there is no room for it.
        """
        data = checked_payload(payload, self._calls.payload_limit_bytes)
        if is_topic_message(data):
            raise LocalProtocolError(f"payload begins as a topic message does, {TOPIC_MARK!r}: use publish")
        self._calls.defer("cluster.offer", lambda: self._cluster.offer(data), logged_bytes=len(data))

    def publish(self, topic: str, payload: Payload) -> None:
        """Publish bytes to a topic when the handler has returned; see `Cluster.publish`, and errors as for `offer`."""
        data, limit_bytes = bytes(plain_bytes("payload", payload)), self._calls.payload_limit_bytes
        logged_bytes = len(checked_payload(encode_topic_message(topic, data), limit_bytes))
        self._calls.defer("cluster.publish", lambda: self._cluster.publish(topic, data), logged_bytes=logged_bytes)

    def schedule_timer(self, correlation_id: int, deadline: int) -> NoReturn:
        """Refuse a timer that has no message.

        Raises:
            LocalProtocolError: always; says what to use.
        """
        raise LocalProtocolError(f"cluster.schedule_timer({correlation_id}): {_TIMERS}")

    def cancel_timer(self, correlation_id: int) -> NoReturn:
        """Refuse it; otherwise as `schedule_timer`."""
        raise LocalProtocolError(f"cluster.cancel_timer({correlation_id}): {_TIMERS}")


_TIMERS: Final = (
    "the timers of a typed service have messages: use `ctx.schedule(Expire(...), after=seconds)`, "
    "`ctx.cancel(timer_id)` and `@on_timer(Expire)`"
)


def checked_payload(payload: Payload, limit_bytes: int) -> bytes:
    """Return a payload as bytes that do not change.

    Raises:
        LocalProtocolError: it is no bytes, or longer than a message may be.
    """
    data = payload if type(payload) is bytes else bytes(plain_bytes("payload", payload))
    if len(data) > limit_bytes:
        raise LocalProtocolError(f"payload too long: length={len(data)} limit={limit_bytes}")
    return data
