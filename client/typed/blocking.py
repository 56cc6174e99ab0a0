"""The calls that the blocking client of a typed service has in a form of its own."""

from __future__ import annotations

from collections.abc import Iterator
from types import new_class
from typing import Any, Self, TypeVar

from ...service_api.typed import Event
from ..blocking.facade import BlockingClient
from ..blocking.session import BlockingSession
from .exchange import EventReader
from .typed_client import TypedClient

E = TypeVar("E", bound=Event)


class BlockingTyped(BlockingClient):
    """A client of a typed service; `service` says which one it is for, as for `TypedClient`."""

    _target: TypedClient

    def __init_subclass__(cls, *, service: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if service is not None:
            cls._of = new_class(cls._of.__name__, (cls._of,), {"service": service})

    @classmethod
    def over(cls, cluster: BlockingSession) -> Self:
        """Make a client over a session that is open, such as one of a `SyncSharedConnection`."""
        kind: Any = cls._of  # Any: takes a session

        async def make() -> Any:
            return kind(cluster._target)

        made = cls._around(cluster._owner.thread.call(make), cluster._owner)
        made._kept[id(cluster._target)] = cluster
        return made

    def events(self, *kinds: type[E], timeout_s: float | None = None) -> Iterator[E]:
        """Iterate over the events of some classes that the service sends to this session; others are passed over.

        The iteration ends when nothing came for `timeout_s`, and when this client is closed.

        for event in bank.events(BalanceChanged, timeout_s=1):
            print(event.account)
        """
        reader = EventReader(kinds, service_id=self._run(self._target._find_service))
        cluster: BlockingSession = self._read("cluster")
        for message in cluster.egress(timeout_s):
            event = reader.read(message.payload)
            if event is not None:
                yield event
