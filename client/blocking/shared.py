"""How the blocking shared connection and the blocking pool make the clients of services, which have their own twins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from ...service_api.access.credentials import CredentialsSupplier
from .facade import BlockingClient, BlockingScope, LoopOwner
from .session import SyncOverClient

C = TypeVar("C", bound=SyncOverClient)


class BlockingShared(BlockingClient):
    """The call that the blocking shared connection has in a form of its own."""

    def open_client(
        self,
        kind: type[C],
        *,
        credentials: bytes | CredentialsSupplier | None = None,
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str | None = None,
    ) -> C:
        """Open a client of a typed or a ready-made service, such as `SyncKvClient`, with a session of its own.

        with shared.open_client(SyncKvClient) as kv:
            kv.put("a", "1")

        Arguments and errors are those of `open_session`. The session is closed with the client.
        """
        settings = {"credentials": credentials, "on_challenge": on_challenge, "client_info": client_info}
        return kind.over(self._run(lambda: self._target.open_session(**settings)))


class BlockingPool(BlockingClient):
    """The call that the blocking pool has in a form of its own."""

    def client(self, kind: type[C], *, timeout_s: float | None = None) -> AbstractContextManager[C]:
        """Lend a session as a client of a typed or a ready-made service; see `SessionPool.client`.

        with pool.client(SyncLocksClient) as locks, locks.lock("reports/daily"):
            write_report()
        """
        made: Any = kind  # Any: the twin of an asyncio client, which its protocol does not show
        lending: AbstractContextManager[C] = _Lending.of_kind(
            kind, self._target.client(made._of, timeout_s=timeout_s), self._owner
        )
        return lending


class _Lending(BlockingScope):
    """The lending of a client: what the asyncio context gives, as the blocking class that was asked for."""

    _kind: Any  # Any: as above

    @classmethod
    def of_kind(cls, kind: type, target: Any, owner: LoopOwner) -> Any:  # Any: a context of clients of the kind
        """Make the context of a class."""
        made = cls._around(target, owner)
        made._kind = kind
        return made

    def __enter__(self) -> Any:  # Any: a client of the kind
        return self._kind._around(self._owner.thread.call(self._target.__aenter__), self._owner)
