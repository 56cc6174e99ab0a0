"""The clients for scripts and notebooks: plain calls that block, from any thread.

A call wakes the loop of the client's thread and waits for it, which takes many times longer than an offer itself: a
program that needs tens of thousands of messages a second uses `ClusterClient`.

Written by `python -m tests.blocking_stubs`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Self, Unpack, overload

from ..service_api.access.credentials import CredentialsSupplier
from ..service_api.errors import ClusterError
from ..service_api.groups.group import Group
from ..service_api.groups.key_hash import GroupKey
from ..service_api.types import ClusterSessionId, MemberId, TermId
from .blocking.groups import BlockingGroups
from .blocking.session import BlockingSession
from .blocking.shared import BlockingPool, BlockingShared
from .config import ConnectSettings
from .egress import EgressListener
from .protocol.queries import QueryResult

class SyncClusterClient(BlockingSession):
    """A session with the cluster, for code without asyncio.

        with SyncClusterClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as cluster:
            cluster.offer(b"1")
            print(cluster.receive(timeout_s=5).payload)

    It works in a notebook, too, where a loop runs in the main thread already. `with` is
    not needed: `close` it, or forget it, or end the interpreter, and the session is closed.

    Any thread may use it, several at once: each message that comes goes to one of them. What it promises is what
    `ClusterClient` promises. A fork of the process cannot use it, and its `close` does nothing there.
    """

    @classmethod
    def connect(
        cls,
        endpoints: str | Sequence[str] = (),
        *,
        egress_listener: EgressListener | None = None,
        **settings: Unpack[ConnectSettings],
    ) -> Self:
        """Open the client. Arguments and errors are those of `ClusterClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    @property
    def cluster_session_id(self) -> ClusterSessionId:
        """The session's id, the same under every leader."""

    @property
    def leadership_term_id(self) -> TermId:
        """The term of the leader that messages go to."""

    @property
    def leader_member_id(self) -> MemberId:
        """The member that messages go to."""

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this is a session with; one of one where the cluster has no groups."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where the members listen, as far as the session knows: what to connect to again when it has ended.

        The cluster tells it when a session opens and with each new leader.
        """

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that is given no `timeout_s`, as `ClientConfig.call_timeout_s` says."""

    @property
    def has_leader(self) -> bool:
        """Whether the path to a leader stands: without one, offers wait."""

    @property
    def dropped_egress_count(self) -> int:
        """Messages received and dropped, because they were of an earlier term or another session."""

    @property
    def outstanding_request_count(self) -> int:
        """How many requests have no outcome, also those for which no caller waits any more."""

    @property
    def resent_request_count(self) -> int:
        """How often a request was sent again, because a leader went away before it had answered."""

    def try_offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Offer a message if there is room for it and a leader just now; False if not.

        See `ClusterClient.try_offer`.
        """

    def offer(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> None:
        """Offer a message, waiting for room, or for a leader, but never for its commit.

        See `ClusterClient.offer`. Raises ClusterTimeoutError after `timeout_s`.
        """

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

        See `ClusterClient.query`.
        """

    def take_snapshot(self, *, timeout_s: float = 60.0) -> int:
        """Have every member of the cluster take a snapshot; give its log position once the leader has it, durably.

        See `ClusterClient.take_snapshot`.
        """

    def transfer_leadership(self, to: int | None = None, *, timeout_s: float = 60.0) -> MemberId:
        """Have the leader hand over to the member `to`, or to the one that fits best; give the member that leads then.

        See `ClusterClient.transfer_leadership`.
        """

    def request(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> bytes:
        """Have the service run a request, exactly once, and give its reply.

        See `ClusterClient.request`.
        """

    @overload
    def request_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[bytes]:
        """Make requests in one call, each of them as `request` does, and give the replies by position.

        See `ClusterClient.request_many`.
        """

    @overload
    def request_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool,
    ) -> list[bytes | ClusterError]:
        """Make requests in one call, each of them as `request` does, and give the replies by position.

        See `ClusterClient.request_many`.
        """

    def drain(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was offered has been handed to the leader's connection.

        See `ClusterClient.drain`.
        """

class SyncSharedConnection(BlockingShared):
    """One connection to each member of a cluster, with any number of sessions on it, for code without asyncio.

        with SyncSharedConnection.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as shared:
            with shared.open_session(client_info="user 17") as cluster:
                reply = cluster.request(b"1", timeout_s=5)

    All sessions run in one thread. What it promises is what `SharedConnection` promises.
    """

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `SharedConnection.connect`.

        Functions that you pass are called in the client's own thread.
        """

    @property
    def session_count(self) -> int:
        """How many sessions are open, or are being opened or closed."""

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that is given no `timeout_s`, as `ClientConfig.call_timeout_s` says."""

    def open_session(
        self,
        *,
        egress_listener: EgressListener | None = None,
        credentials: bytes | CredentialsSupplier | None = None,
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str | None = None,
    ) -> SyncClusterClient:
        """Open a session.

        See `SharedConnection.open_session`.
        """

class SyncSessionPool(BlockingPool):
    """Sessions over one shared connection, for threads that come and go: the handlers of a web server.

        with SyncSessionPool.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"], size=16) as pool:
            reply = pool.request(b"1", timeout_s=5)

    All sessions run in one thread. What it promises is what `SessionPool` promises.
    """

    @classmethod
    def connect(
        cls, endpoints: str | Sequence[str] = (), *, size: int = 8, **settings: Unpack[ConnectSettings]
    ) -> Self:
        """Open the client. Arguments and errors are those of `SessionPool.connect`.

        Functions that you pass are called in the client's own thread.
        """

    @property
    def shared(self) -> SyncSharedConnection:
        """As `SessionPool.shared`."""

    @property
    def size(self) -> int:
        """As `SessionPool.size`."""

    @property
    def idle_count(self) -> int:
        """How many sessions are open that nobody has."""

    def request(self, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> bytes:
        """Have the service run a request, exactly once, and give its reply, as `ClusterClient.request` does.

        See `SessionPool.request`.
        """

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
        """Ask the service's state, without an entry in the log, as `ClusterClient.query` does.

        See `SessionPool.query`.
        """

    def session(self, *, timeout_s: float | None = None) -> AbstractContextManager[SyncClusterClient]:
        """Lend a session for a block: nobody else uses it meanwhile, and the messages that come are the caller's.

        See `SessionPool.session`.
        """

class SyncGroupedClient(BlockingGroups):
    """Sessions with the groups of a cluster, for code without asyncio.

        with SyncGroupedClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as groups:
            print(groups.request("account-17", b"deposit 5", timeout_s=5))

    All sessions run in one thread. What it promises is what `GroupedClient` promises.
    """

    @classmethod
    def connect(
        cls,
        endpoints: str | Sequence[str] = (),
        *,
        group_count: int | None = None,
        make_egress_listener: Callable[[Group], EgressListener] | None = None,
        **settings: Unpack[ConnectSettings],
    ) -> Self:
        """Open the client. Arguments and errors are those of `GroupedClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    @property
    def group_count(self) -> int:
        """How many groups the cluster has."""

    def for_key(self, key: GroupKey, *, timeout_s: float | None = None) -> SyncClusterClient:
        """Return the client of the group that owns a key.

        See `GroupedClient.for_key`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def for_keys(self, *keys: GroupKey, timeout_s: float | None = None) -> SyncClusterClient:
        """Return the client of the group that owns all these keys, for a message about several.

        See `GroupedClient.for_keys`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def for_group(self, group_index: int, *, timeout_s: float | None = None) -> SyncClusterClient:
        """Return the client of a group, and open its session if there is none.

        See `GroupedClient.for_group`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def offer(self, key: GroupKey, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None) -> None:
        """Offer a message to the group that owns a key; otherwise as `ClusterClient.offer`.

        See `GroupedClient.offer`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def request(
        self, key: GroupKey, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None
    ) -> bytes:
        """Make a request of the group that owns a key; otherwise as `ClusterClient.request`.

        See `GroupedClient.request`.
        """

    @overload
    def request_many(
        self,
        requests: Iterable[tuple[GroupKey, bytes | bytearray | memoryview]],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[bytes]:
        """Make requests in one call, each of the group that owns its key, and give the replies by position.

        See `GroupedClient.request_many`.
        """

    @overload
    def request_many(
        self,
        requests: Iterable[tuple[GroupKey, bytes | bytearray | memoryview]],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool,
    ) -> list[bytes | ClusterError]:
        """Make requests in one call, each of the group that owns its key, and give the replies by position.

        See `GroupedClient.request_many`.
        """

    def query(
        self,
        key: GroupKey,
        payload: bytes | bytearray | memoryview,
        *,
        max_staleness_s: float | None = None,
        timeout_s: float | None = None,
    ) -> QueryResult:
        """Query the group that owns a key; otherwise as `ClusterClient.query`.

        See `GroupedClient.query`.
        """
