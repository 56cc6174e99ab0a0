"""What two instances of a service ask of their cluster at one entry: the first one's calls happen, the other's do not.

The first instance's calls go to the cluster and are written down, with what came of each. The second instance has to
make the same calls in the same order; it is given what came of the first one's. The first call that differs ends the
callback of the second instance, since what it would do after that says nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol
from uuid import UUID

from ...service_api import Role
from ...service_api.groups.group import Group
from ...service_api.service_texts import ServiceTexts
from ...service_api.session import ClientSession
from ...service_api.types import ClusterSessionId, MemberId, TimeUnit
from .entry_random import EntryRandom
from .service_cluster import ServiceCluster
from .service_logger import OnceLogger
from .state_difference import describe_payloads, shown_payload, shown_value


@dataclass(slots=True)
class _Call:
    """One call of the first instance, and what came of it."""

    name: str
    arguments: tuple[object, ...]
    result: object = None
    error: BaseException | None = None

    def shown(self, texts: ServiceTexts) -> str:
        """Show the call; a payload as the message that it is, where that is known."""
        return f"{self.name}({', '.join(shown_payload(each, texts) for each in self.arguments)})"


class CallDiffersError(BaseException):
    """Ends a callback of the second instance; no `except Exception` of a service may catch it."""


class Calls(Protocol):
    """Where the calls of one instance go."""

    def make(self, name: str, arguments: tuple[object, ...], perform: Callable[[], Any]) -> Any:
        """Take one call, and return what comes of it."""

    def close_session(self, session: ClientSession) -> None:
        """Take a call that closes a session."""

    def is_closing(self, session: ClientSession) -> bool:
        """Whether a session looks closing to this instance."""


class FirstCalls:
    """Performs calls and writes them down, from `begin` to `end`."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.closed: set[ClusterSessionId] = set()
        """Sessions that this entry's calls have closed."""
        self._is_on = False

    def __repr__(self) -> str:
        return f"<FirstCalls {len(self.calls)}>"

    def begin(self) -> None:
        """A callback follows."""
        self.calls.clear()
        self.closed.clear()
        self._is_on = True

    def end(self) -> None:
        """The callback is over; a call from elsewhere is none of the entry's."""
        self._is_on = False

    def make(self, name: str, arguments: tuple[object, ...], perform: Callable[[], Any]) -> Any:
        """Perform a call, and write down what came of it."""
        call = _Call(name, tuple(map(value_now, arguments)))
        if self._is_on:
            self.calls.append(call)
        try:
            call.result = perform()
        except BaseException as error:
            call.error = error
            raise
        return call.result

    def close_session(self, session: ClientSession) -> None:
        """Close a session."""
        was_closing = session.is_closing
        self.make("session.close", (session.id,), session.close)
        if not was_closing:
            self.closed.add(session.id)

    def is_closing(self, session: ClientSession) -> bool:
        """Whether a service has asked for the session to be closed."""
        return session.is_closing


class SecondCalls:
    """Compares calls with those of the first instance; nothing happens."""

    def __init__(self, first: FirstCalls, texts: ServiceTexts) -> None:
        self._first, self._texts = first, texts
        self._index = 0
        self._closed: set[ClusterSessionId] = set()
        self._is_on = False
        self.difference = ""
        """The first call that differs, of this callback; "" where there is none."""

    def __repr__(self) -> str:
        return f"<SecondCalls {self._index}>"

    def begin(self) -> None:
        """A callback follows, which the first instance has had."""
        self._index, self.difference, self._is_on = 0, "", True
        self._closed.clear()

    def end(self) -> None:
        """The callback is over: what the first instance did besides is a difference."""
        self._is_on = False
        if not self.difference and self._index < len(self._first.calls):
            expected = self._first.calls[self._index].shown(self._texts)
            self.difference = f"call {self._index + 1}: expected={expected} actual=none"

    def make(self, name: str, arguments: tuple[object, ...], perform: Callable[[], Any]) -> Any:
        """Compare a call, and give what came of it for the first instance."""
        if not self._is_on:
            return perform()  # outside of the log's order, where the cluster refuses it
        call = _Call(name, tuple(map(value_now, arguments)))
        expected = self._first.calls[self._index] if self._index < len(self._first.calls) else None
        self._index += 1
        if expected is None or (expected.name, expected.arguments) != (call.name, call.arguments):
            self.difference = self.difference or f"call {self._index}: {_describe(expected, call, self._texts)}"
            raise CallDiffersError
        if expected.error is not None:
            raise expected.error
        return expected.result

    def close_session(self, session: ClientSession) -> None:
        """Close a session, as it looks to this instance."""
        self.make("session.close", (session.id,), session.close)
        self._closed.add(session.id)

    def is_closing(self, session: ClientSession) -> bool:
        """Whether a service has asked for the session to be closed: at this entry, this instance itself."""
        if self._is_on and session.id in self._first.closed:
            return session.id in self._closed
        return session.is_closing


def value_now(value: object) -> object:
    """Return an argument or a reply as it is now: the service may go on writing to its buffer."""
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _describe(expected: _Call | None, actual: _Call, texts: ServiceTexts) -> str:
    if expected is not None and expected.name == actual.name and expected.arguments[:-1] == actual.arguments[:-1]:
        before, after = expected.arguments[-1], actual.arguments[-1]
        if isinstance(before, bytes) and isinstance(after, bytes):
            where = ", ".join(map(shown_value, actual.arguments[:-1]))
            return f"{actual.name}({where}): {describe_payloads(before, after, texts)}"
    return f"expected={'none' if expected is None else expected.shown(texts)} actual={actual.shown(texts)}"


class InstanceSession:
    """A client session as one instance sees it."""

    __slots__ = ("_calls", "_session")

    def __init__(self, session: ClientSession, calls: Calls) -> None:
        self._session, self._calls = session, calls

    def __repr__(self) -> str:
        return repr(self._session)

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
        return self._calls.is_closing(self._session)

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client."""
        session = self._session
        is_taken: bool = self._calls.make("session.offer", (session.id, payload), lambda: session.offer(payload))
        return is_taken

    def close(self) -> None:
        """Ask for the session to be closed."""
        self._calls.close_session(self._session)


class _InstanceSessions(Mapping[ClusterSessionId, ClientSession]):
    """The open client sessions as one instance sees them."""

    def __init__(self, cluster: InstanceCluster, sessions: Mapping[ClusterSessionId, ClientSession]) -> None:
        self._cluster, self._sessions = cluster, sessions

    def __getitem__(self, session_id: ClusterSessionId) -> ClientSession:
        return self._cluster.session(self._sessions[session_id])

    def __iter__(self) -> Iterator[ClusterSessionId]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)


class InstanceCluster:
    """Implements `Cluster` for one instance."""

    def __init__(self, cluster: ServiceCluster, calls: Calls, *, is_silent: bool) -> None:
        self._cluster, self._calls = cluster, calls
        self._sessions: dict[ClusterSessionId, InstanceSession] = {}
        self.client_sessions: Mapping[ClusterSessionId, ClientSession] = _InstanceSessions(
            self, cluster.client_sessions
        )
        self._random = EntryRandom(cluster, cluster.service_id)
        self.logger = OnceLogger(_Silent(), cluster.service_id) if is_silent else cluster.logger

    def __repr__(self) -> str:
        return repr(self._cluster)

    def session(self, session: ClientSession) -> InstanceSession:
        """Return what stands for a session: one object as long as the session is open."""
        found = self._sessions.get(session.id)
        if found is None:
            found = self._sessions[session.id] = InstanceSession(session, self._calls)
        return found

    def forget(self, session_id: ClusterSessionId) -> None:
        """A session is closed."""
        self._sessions.pop(session_id, None)

    @property
    def member_id(self) -> MemberId:
        """The id of this member."""
        return self._cluster.member_id

    @property
    def service_id(self) -> int:
        """The id of the service."""
        return self._cluster.service_id

    @property
    def role(self) -> Role:
        """LEADER in a term that this member leads, else FOLLOWER."""
        return self._cluster.role

    @property
    def is_replaying(self) -> bool:
        """Whether entries come that were in the log before the current term."""
        return self._cluster.is_replaying

    @property
    def time(self) -> int:
        """Cluster time of the entry being processed."""
        return self._cluster.time

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of cluster time."""
        return self._cluster.time_unit

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this one is."""
        return self._cluster.group

    @property
    def log_position(self) -> int:
        """The end of the entry being processed."""
        return self._cluster.log_position

    @property
    def feature_level(self) -> int:
        """Which behaviour the service has to have at the entry being processed."""
        return self._cluster.feature_level

    @property
    def payload_limit_bytes(self) -> int:
        """The longest payload of whatever a service sends or answers."""
        return self._cluster.payload_limit_bytes

    @property
    def random(self) -> Random:
        """Random numbers that the entry being processed decides."""
        return self._random

    def uuid(self) -> UUID:
        """Return a UUID that the entry being processed decides."""
        return self._random.uuid()

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        """Ask for a client session to be closed; False if there is no such session."""
        given: object = session_id  # a caller may not check types
        session = self._cluster.client_sessions.get(session_id) if isinstance(given, int) else None
        if session is None:
            return self._cluster.close_client_session(session_id)
        self._calls.close_session(session)
        return True

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set or move a timer."""
        self._calls.make(
            "schedule_timer",
            (correlation_id, deadline),
            lambda: self._cluster.schedule_timer(correlation_id, deadline),
        )

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none."""
        is_cancelled: bool = self._calls.make(
            "cancel_timer", (correlation_id,), lambda: self._cluster.cancel_timer(correlation_id)
        )
        return is_cancelled

    def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Send a message through the log to every service of the cluster."""
        self._calls.make("offer", (payload,), lambda: self._cluster.offer(payload))

    def check_room(self, lengths: Sequence[int]) -> None:
        """Make sure that messages of these lengths can all be sent through the log now."""
        self._calls.make("check_room", tuple(lengths), lambda: self._cluster.check_room(lengths))

    def publish(self, topic: str, payload: bytes | bytearray | memoryview) -> None:
        """Send an event through the log to those who subscribe to a topic."""
        self._calls.make("publish", (topic, payload), lambda: self._cluster.publish(topic, payload))


class _Silent:
    """Where an instance is that has nothing to say: what it would log, the first one does."""

    role: Final = Role.FOLLOWER
    is_replaying: Final = True
    log_position: Final = 0
