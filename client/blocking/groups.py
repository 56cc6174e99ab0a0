"""How the blocking client of groups keeps what it gives: the same session and the same typed client each time."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from ...service_api.groups.key_hash import GroupKey
from ..cluster_client import ClusterClient
from .facade import Blocking, BlockingClient, LoopOwner
from .session import SyncOverClient

C = TypeVar("C", bound=SyncOverClient)


class BlockingGroups(BlockingClient):
    """The calls that the blocking client of groups has in a form of its own."""

    def _take(self, target: Any, owner: LoopOwner) -> None:  # Any: as `Blocking`
        super()._take(target, owner)
        self._lock = threading.Lock()
        self._sessions: dict[ClusterClient, Blocking] = {}
        self._typed: dict[tuple[type, Blocking], Any] = {}  # Any: of the type in the key

    def typed_for_key(self, key: GroupKey, kind: type[C]) -> C:
        """Return a typed client of the group that owns a key, the same one each time.

        bank = groups.typed_for_key(account, SyncBankClient)
        """
        session = self._run(lambda: self._target.for_key(key))
        with self._lock:
            made: C | None = self._typed.get((kind, session))
        if made is None:
            made = kind.over(session)
            with self._lock:
                self._typed = {
                    place: typed for place, typed in self._typed.items() if place[1] in self._sessions.values()
                }
                made = self._typed.setdefault((kind, session), made)
        return made

    def _twin_of(self, value: Any) -> Any:  # Any: of any type
        if not isinstance(value, ClusterClient):
            return super()._twin_of(value)
        with self._lock:
            if value not in self._sessions:
                self._sessions = {client: twin for client, twin in self._sessions.items() if not client.is_closed}
                self._sessions[value] = super()._twin_of(value)
            return self._sessions[value]
