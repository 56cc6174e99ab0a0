"""The client of a cluster with groups, for scripts and notebooks: one session with each group that is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from ...service_api.errors import LocalProtocolError
from ...service_api.groups.group import Group, GroupTable
from ...service_api.groups.key_hash import GroupKey
from ..config import ClientConfig, client_config
from ..protocol.queries import QueryResult
from ..sync_client import SyncClusterClient
from .group_table import first_config, group_config, learn_table
from .over_client import SyncOverClient

C = TypeVar("C", bound=SyncOverClient)
_AnyClient = SyncClusterClient | SyncOverClient


class SyncGroupedClient:
    """Sessions with the groups of a cluster, for code without asyncio.

        with SyncGroupedClient(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as groups:
            print(groups.request("account-17", b"deposit 5", timeout_s=5))

    What it promises is what `GroupedClient` promises, and any thread may use it. Each session has a thread of its own.
    A typed client, of `typed_for_key(key, SyncBankClient)`, has a session of its own, too.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] = (),
        *,
        group_count: int | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        """Take the arguments of `GroupedClient`, and find out how many groups there are, unless that is known.

        Raises:
            ConfigurationError: an argument cannot be used, or the endpoints are those of another group than 0.
            ConnectTimeoutError: no member of group 0 opened a session in time.
            ConnectRejectedError: the cluster refused.
        """
        self._config = client_config(config, endpoints)
        self._clients: dict[tuple[type | None, int], _AnyClient] = {}
        self._locks: dict[tuple[type | None, int], threading.Lock] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        first = first_config(self._config, group_count)
        if group_count is not None:
            self.table = GroupTable(group_count)
            return
        client = SyncClusterClient(config=first)
        try:
            self.table = learn_table(client.group, self._config)
            """Takes keys to groups."""
        except BaseException:
            client.close()
            raise
        self._clients[None, 0] = client

    def __repr__(self) -> str:
        return f"<SyncGroupedClient groups={self.group_count} sessions={len(self._clients)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def group_count(self) -> int:
        """How many groups the cluster has."""
        return self.table.group_count

    def for_key(self, key: GroupKey) -> SyncClusterClient:
        """As `GroupedClient.for_key`."""
        return self.for_group(self.table.group_of(key))

    def typed_for_key(self, key: GroupKey, kind: type[C]) -> C:
        """Return a typed client of the group that owns a key, the same one each time."""
        group_index = self.table.group_of(key)
        client = self._find(kind, group_index, lambda config: kind(config=config))
        assert isinstance(client, kind)
        return client

    def for_keys(self, *keys: GroupKey) -> SyncClusterClient:
        """As `GroupedClient.for_keys`."""
        return self.for_group(self.table.common_group(keys))

    def for_group(self, group_index: int) -> SyncClusterClient:
        """As `GroupedClient.for_group`."""
        client = self._find(None, group_index, lambda config: SyncClusterClient(config=config))
        assert isinstance(client, SyncClusterClient)
        return client

    def offer(self, key: GroupKey, payload: bytes | bytearray | memoryview, timeout_s: float | None = None) -> None:
        """Offer a message to the group that owns a key; otherwise as `SyncClusterClient.offer`."""
        self.for_key(key).offer(payload, timeout_s)

    def request(
        self, key: GroupKey, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None
    ) -> bytes:
        """Make a request of the group that owns a key; otherwise as `SyncClusterClient.request`."""
        return self.for_key(key).request(payload, timeout_s=timeout_s)

    def query(
        self,
        key: GroupKey,
        payload: bytes | bytearray | memoryview,
        *,
        max_staleness_s: float | None = None,
        timeout_s: float | None = None,
    ) -> QueryResult:
        """Query the group that owns a key; otherwise as `SyncClusterClient.query`."""
        return self.for_key(key).query(payload, max_staleness_s=max_staleness_s, timeout_s=timeout_s)

    def close(self) -> None:
        """Close every session."""
        with self._lock:
            self._is_closed = True
            clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            client.close()

    def _find(self, kind: type | None, group_index: int, make: Callable[[ClientConfig], _AnyClient]) -> _AnyClient:
        """Return the client of a kind for a group; who needs it while it connects waits for the same."""
        group, place = Group(group_index, self.group_count), (kind, group_index)
        with self._lock:
            lock = self._locks.setdefault(place, threading.Lock())
        with lock:
            client = self._clients.get(place)
            if client is not None and not _is_ended(client):
                return client
            client = make(group_config(self._config, group))
            with self._lock:
                if not self._is_closed:
                    self._clients[place] = client
                    return client
            client.close()
            raise LocalProtocolError("this client is closed: make a new one")


def _is_ended(client: _AnyClient) -> bool:
    return (client if isinstance(client, SyncClusterClient) else client.cluster).is_closed
