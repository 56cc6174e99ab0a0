"""How the requests of a client application reach the log that they are for: one session, or one with each group.

With groups it is the `GroupedClient` that finds the group of a key, and opens the session.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from .....client import (
    ClientConfig,
    ClusterClient,
    ConnectRejectedError,
    EgressListener,
    GroupedClient,
    SharedConnection,
)
from .....service_api import ClusterTimeoutError, SessionClosedError
from .....service_api.groups.group import CrossGroupError, Group, GroupTable
from .....service_api.groups.key_hash import GroupKey

NO_SESSION: Final = (ClusterTimeoutError, ConnectRejectedError, SessionClosedError)
"""What is raised where no session could be opened: nothing was sent."""


class Path(Protocol):
    """Sessions that are open, or are opened when they are needed."""

    @property
    def is_closed(self) -> bool:
        """Whether there is no use in going on with it."""

    async def client_for(self, key: GroupKey) -> ClusterClient:
        """Return the client for messages about a key; raises one of `NO_SESSION` if there is none."""

    async def any_client(self, random: Random) -> ClusterClient:
        """Return one of the clients; raises one of `NO_SESSION` if there is none."""

    async def aclose(self) -> None:
        """Close every session."""


class OneSession:
    """The session of a cluster without groups, or with one group."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client

    def __repr__(self) -> str:
        return f"<OneSession {self.client!r}>"

    @classmethod
    async def open(cls, config: ClientConfig, listener: EgressListener | None) -> OneSession:
        """Open it with a connection of its own; raises one of `NO_SESSION`."""
        return cls(await ClusterClient.connect(egress_listener=listener, config=config))

    @classmethod
    async def open_shared(cls, shared: SharedConnection, listener: EgressListener | None) -> OneSession:
        """Open it over a connection that others use, too; raises one of `NO_SESSION`."""
        return cls(await shared.open_session(egress_listener=listener))

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self.client.is_closed

    async def client_for(self, key: GroupKey) -> ClusterClient:
        """Return the client, whatever the key."""
        return self.client

    async def any_client(self, random: Random) -> ClusterClient:
        """Return the client."""
        return self.client

    async def aclose(self) -> None:
        """Close it."""
        await self.client.aclose()


class GroupSessions:
    """Sessions with the groups of a cluster. One that ends is followed by another, so they go on until they are closed.

    A client that is told the number of groups demands it; another is told by the cluster.
    """

    is_closed = False

    def __init__(self, groups: GroupedClient, table: GroupTable) -> None:
        """`table` is the one of the run, which the client must come to know."""
        self._groups, self._table = groups, table

    def __repr__(self) -> str:
        return f"<GroupSessions {self._groups!r}>"

    @classmethod
    async def open(
        cls, config: ClientConfig, listener: EgressListener | None, table: GroupTable, random: Random
    ) -> GroupSessions:
        """Connect a client; raises one of `NO_SESSION` if it cannot find out how many groups there are."""
        told = table.group_count if random.random() < 0.5 else None
        make_listener: Callable[[Group], EgressListener] | None = None if listener is None else lambda group: listener
        groups = await GroupedClient.connect(group_count=told, make_egress_listener=make_listener, config=config)
        return cls(groups, table)

    async def client_for(self, key: GroupKey) -> ClusterClient:
        """Return the client of the group that the `GroupedClient` takes the key to."""
        return await self._groups.for_key(key)

    async def any_client(self, random: Random) -> ClusterClient:
        """Return the client of some group."""
        return await self._groups.for_group(random.randrange(self._groups.group_count))

    async def find_fault_across(self, one: int, other: int) -> str | None:
        """Ask for two keys at once; say what is wrong: keys of two groups must be refused, those of one must not."""
        first, second = self._table.group_of(one), self._table.group_of(other)
        try:
            await self._groups.for_keys(one, other)
        except CrossGroupError:
            return f"keys of one group are refused: {one=} {other=} group={first}" if first == second else None
        return None if first == second else f"keys of two groups are taken for one: {one=} {first=} {other=} {second=}"

    async def aclose(self) -> None:
        """Close every session."""
        await self._groups.aclose()
