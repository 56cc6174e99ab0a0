"""The client of a cluster with groups, for asyncio: one session with each group that is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Literal, TypeVar, Unpack, overload

from ...service_api.connecting import ClosedAtExit, Connecting
from ...service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError, LocalProtocolError
from ...service_api.groups.group import Group, GroupTable
from ...service_api.groups.key_hash import GroupKey
from ...service_api.groups.ports import group_endpoint
from ...service_api.payloads import plain_bytes
from ..batches import results_of
from ..cluster_client import ClusterClient, OverClient
from ..config import ClientConfig, ConnectSettings, client_config, with_connect_settings
from ..deadlines import begin_limit, seconds_left
from ..egress import EgressListener
from ..errors import ConnectTimeoutError, RejectedError
from ..protocol.queries import QueryResult
from .group_table import first_config, group_config, learn_table

C = TypeVar("C", bound=OverClient)


class GroupedClient(ClosedAtExit):
    """Sessions with the groups of a cluster: each message goes to the group that owns its key.

        async with GroupedClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as groups:
            reply = await groups.request("account-17", b"deposit 5", timeout_s=5)
            client = await groups.for_key("account-17")  # the ClusterClient of its group

    The endpoints are those of group 0, as the members' settings name them; those of the other groups follow. A session
    with a group is opened when it is needed for the first time, and once more when it has ended. So a group without a
    leader holds up the callers that need it, for `connect_timeout_s` at most, and nobody else.

    Messages to one group are handled in the order of their offers, as with `ClusterClient`. **Nothing orders messages
    to different groups**, also those of one caller.

    It lives on the event loop that made it.
    """

    def __init__(
        self,
        config: ClientConfig,
        table: GroupTable,
        *,
        make_egress_listener: Callable[[Group], EgressListener] | None = None,
    ) -> None:
        """Take the configuration of each session, with endpoints of group 0; applications call `connect`."""
        self.table: Final = table
        """Takes keys to groups."""
        self._config = config
        self._make_egress_listener = make_egress_listener
        self._clients: dict[int, ClusterClient] = {}
        self._typed: dict[tuple[type[OverClient], int], OverClient] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._is_closed = False

    @classmethod
    @with_connect_settings
    def connect(
        cls,
        endpoints: str | Sequence[str] = (),
        *,
        group_count: int | None = None,
        make_egress_listener: Callable[[Group], EgressListener] | None = None,
        **settings: Unpack[ConnectSettings],
    ) -> Connecting[GroupedClient]:
        """Find out how many groups there are; enter what this gives with `async with`, or await it.

        The arguments are those of `ClusterClient.connect`, with endpoints of group 0, and hold for every session. With
        a `group_count` a cluster with another number of groups refuses, and group 0 need not be up to begin; without
        one the cluster says how many there are. `make_egress_listener` makes the listener of each session; without it
        messages come through `egress()` of each client.

        Raises:
            ConfigurationError: an argument cannot be used.

        Raises, when entered or awaited:
            ConfigurationError: the endpoints are those of another group than 0.
            ConnectTimeoutError: no member of group 0 opened a session in time.
            ConnectRejectedError: the cluster refused.
        """
        config = client_config(endpoints, settings)
        first = first_config(config, group_count)

        async def make() -> GroupedClient:
            if group_count is not None:
                return cls(config, GroupTable(group_count), make_egress_listener=make_egress_listener)
            client = await ClusterClient.connect(config=first)
            try:
                made = cls(config, learn_table(client.group, config), make_egress_listener=make_egress_listener)
            except ConfigurationError:
                await client.aclose()
                raise
            if make_egress_listener is None:
                made._clients[0] = client
            else:
                await client.aclose()
            return made

        return Connecting(make)

    def __repr__(self) -> str:
        return f"<GroupedClient groups={self.group_count} sessions={sorted(self._clients)}>"

    @property
    def group_count(self) -> int:
        """How many groups the cluster has."""
        return self.table.group_count

    async def for_key(self, key: GroupKey) -> ClusterClient:
        """Return the client of the group that owns a key.

        Raises:
            LocalProtocolError: it is no key; see `GroupKey`.

        Also what `for_group` raises.
        """
        return await self.for_group(self.table.group_of(key))

    async def typed_for_key(self, key: GroupKey, kind: type[C]) -> C:
        """Return a typed client over that of `for_key`, the same one each time.

        bank = await groups.typed_for_key(account, BankClient)
        await bank.deposit(account=account, amount=5)
        """
        group_index = self.table.group_of(key)
        client = await self.for_group(group_index)
        made = self._typed.get((kind, group_index))
        if made is None or made.cluster is not client:
            made = self._typed[kind, group_index] = kind(client)
        assert isinstance(made, kind)
        return made

    async def for_keys(self, *keys: GroupKey) -> ClusterClient:
        """Return the client of the group that owns all these keys, for a message about several.

        Raises:
            CrossGroupError: they are of different groups, so no log orders a message about all of them.

        Also what `for_key` raises.
        """
        return await self.for_group(self.table.common_group(keys))

    async def for_group(self, group_index: int) -> ClusterClient:
        """Return the client of a group, and open its session if there is none.

        Raises:
            ConfigurationError: there is no such group.
            ConnectTimeoutError: no member of the group opened a session in time; says what each endpoint answered.
            ConnectRejectedError: the group refused, or is another one than was expected; says which.
            LocalProtocolError: this client is closed.
        """
        client = self._clients.get(group_index)
        if client is None or client.is_closed:
            client = await self._open(Group(group_index, self.group_count))
        return client

    async def offer(self, key: GroupKey, payload: bytes | bytearray | memoryview) -> None:
        """Offer a message to the group that owns a key; otherwise as `ClusterClient.offer`."""
        await (await self.for_key(key)).offer(payload)

    async def request(
        self, key: GroupKey, payload: bytes | bytearray | memoryview, *, timeout_s: float | None = None
    ) -> bytes:
        """Make a request of the group that owns a key; otherwise as `ClusterClient.request`.

        `timeout_s` bounds the opening of a session, too.
        """
        try:
            client, left_s = await self._for_group_within(self.table.group_of(key), timeout_s)
        except ClusterTimeoutError as error:
            raise RejectedError(f"timed out before it was sent: {error}") from error
        return await client.request(payload, timeout_s=left_s)

    @overload
    async def request_many(
        self,
        requests: Iterable[tuple[GroupKey, bytes | bytearray | memoryview]],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[bytes]: ...
    @overload
    async def request_many(
        self,
        requests: Iterable[tuple[GroupKey, bytes | bytearray | memoryview]],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool,
    ) -> list[bytes | ClusterError]: ...
    async def request_many(
        self,
        requests: Iterable[tuple[GroupKey, bytes | bytearray | memoryview]],
        *,
        timeout_s: float | None = None,
        return_exceptions: bool = False,
    ) -> list[bytes] | list[bytes | ClusterError]:
        """Make requests in one call, each of the group that owns its key, and give the replies by position.

            replies = await groups.request_many([("account-17", b"deposit 5"), ("account-18", b"deposit 7")])

        The groups run their shares at the same time, each as `ClusterClient.request_many` does: those of one group in
        their order, and nothing orders those of different groups. A group that cannot be reached, or that refuses its
        share, holds up no other one. `timeout_s` bounds the opening of sessions, too.

        With `return_exceptions` errors are in the list, each at the position of its request. Otherwise the first one
        by position is raised, once the outcome of each request is known; its note says the position.

        Raises:
            LocalProtocolError: a key is no key, or a payload is no payload: nothing was sent.

        Also what `request` raises, of each request.
        """
        listed = [(self.table.group_of(key), bytes(plain_bytes("payload", each))) for key, each in requests]
        shares: dict[int, list[int]] = {}
        for position, (group_index, _) in enumerate(listed):
            shares.setdefault(group_index, []).append(position)
        outcomes: list[bytes | ClusterError] = [b""] * len(listed)

        async def ask(group_index: int, positions: list[int]) -> None:
            answers: Sequence[bytes | ClusterError]
            payloads = [listed[position][1] for position in positions]
            try:
                client, left_s = await self._for_group_within(group_index, timeout_s)
                answers = await client.request_many(payloads, timeout_s=left_s, return_exceptions=True)
            except ClusterTimeoutError as error:
                answers = [RejectedError(f"timed out before it was sent: {error}")] * len(positions)
            except ClusterError as error:
                answers = [error] * len(positions)
            for position, answer in zip(positions, answers, strict=True):
                outcomes[position] = answer

        async with asyncio.TaskGroup() as tasks:
            for group_index, positions in shares.items():
                tasks.create_task(ask(group_index, positions))
        return outcomes if return_exceptions else results_of(outcomes)

    async def query(
        self,
        key: GroupKey,
        payload: bytes | bytearray | memoryview,
        *,
        max_staleness_s: float | None = None,
        timeout_s: float | None = None,
    ) -> QueryResult:
        """Query the group that owns a key; otherwise as `ClusterClient.query`.

        `timeout_s` bounds the opening of a session, too.
        """
        client, left_s = await self._for_group_within(self.table.group_of(key), timeout_s)
        return await client.query(payload, max_staleness_s=max_staleness_s, timeout_s=left_s)

    async def aclose(self) -> None:
        """Close every session, all at once."""
        self._is_closed = True
        clients, self._clients = [*self._clients.values()], {}
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.aclose())

    async def _for_group_within(self, group_index: int, timeout_s: float | None) -> tuple[ClusterClient, float]:
        """Return the client of a group, and what is left of the time.

        Raises:
            ClusterTimeoutError: no session was opened in time.
        """
        limit_s = self._config.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with begin_limit(limit_s) as limit:
                client = await self.for_group(group_index)
        except ConnectTimeoutError:
            raise
        except TimeoutError as error:
            raise ClusterTimeoutError(f"no session of the group was opened: timeout_s={limit_s:g}") from error
        return client, seconds_left(limit)

    async def _open(self, group: Group) -> ClusterClient:
        """Open a session with a group; who needs it meanwhile waits for the same."""
        async with self._opening.setdefault(group.index, asyncio.Lock()):
            if self._is_closed:
                raise LocalProtocolError("this client is closed: make a new one")
            client = self._clients.get(group.index)
            if client is None or client.is_closed:
                make_listener = self._make_egress_listener
                listener = None if make_listener is None else make_listener(group)
                config = group_config(replace(self._config, endpoints=self._known_endpoints(group.index)), group)
                client = await ClusterClient.connect(egress_listener=listener, config=config)
                if self._is_closed:  # meanwhile
                    await client.aclose()
                    raise LocalProtocolError("this client was closed while it connected")
                self._clients[group.index] = client
            return client

    def _known_endpoints(self, group_index: int) -> tuple[str, ...]:
        """Return where members may listen, as endpoints of group 0: those of the configuration may all have moved."""
        learned = {
            index: [group_endpoint(endpoint, -index) for endpoint in client.endpoints]
            for index, client in self._clients.items()
        }
        others = chain.from_iterable(learned.values())
        return tuple(dict.fromkeys((*learned.get(group_index, ()), *self._config.endpoints, *others)))
