"""The client of a typed service for code without asyncio.

Written by `python -m tests.blocking_stubs`.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Self, Unpack, overload

from ...service_api.errors import ClusterError
from ...service_api.typed.messages import Command, Query
from ..config import ConnectSettings
from ..sync_clients import SyncClusterClient
from .blocking import BlockingTyped
from .typed_client import R

class SyncTypedClient(BlockingTyped):
    """A session with a typed service, for code without asyncio.

    with SyncBankClient.connect(["127.0.0.1:9000"]) as bank:
        print(bank.deposit(account="a", amount=5))

    Its services are those of `TypedClient`.
    """

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `TypedClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    @property
    def cluster(self) -> SyncClusterClient:
        """As `TypedClient.cluster`."""

    def call(self, command: Command[R], *, timeout_s: float | None = None) -> R:
        """Have the service run a command, exactly once, and give its reply.

        See `TypedClient.call`.
        """

    @overload
    def call_many(
        self,
        commands: Iterable[Command[R]],
        *,
        timeout_s: float | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[R]:
        """Have the service run commands, of one class or of several, and give the replies by position.

        See `TypedClient.call_many`.
        """

    @overload
    def call_many(
        self, commands: Iterable[Command[R]], *, timeout_s: float | None = None, return_exceptions: bool
    ) -> list[R | ClusterError]:
        """Have the service run commands, of one class or of several, and give the replies by position.

        See `TypedClient.call_many`.
        """

    def ask(
        self,
        query: Query[R],
        *,
        max_staleness_s: float | None = None,
        read_from: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask the service's state, without an entry in the log; the arguments are those of `ClusterClient.query`.

        See `TypedClient.ask`.
        """
