"""What the sessions of one event loop tell each other: who leads, and which members cannot be reached.

A process may have thousands of sessions, each with connections of its own. Each would ask a follower first, be sent to
the leader, and ask again; and each would dial a member that is gone again and again, ten thousand dials a second for
nothing, just when the others are wanted. So a new session asks first whom another one found leading. And a member that
was lost, or could not be reached, is dialled by one session at a time, in turn, until one of them has got through: then
all others may, spread over a while.

Nothing here is relied on: a leader that does not answer is asked no longer, and each session that waits has its turn.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from trimaran.service_api.transport import NetworkStack

DIAL_INTERVAL_NS: Final = 20_000_000
"""Between two dials of a member that cannot be reached, of all sessions together."""

_WAIT_MAX_NS: Final = 2_000_000_000
"""How long a session waits for its turn at most, until it asks again."""

_RETURN_NS: Final = 100_000
"""How far apart the dials are when a member can be reached again: ten thousand sessions take a second."""

_KEY_LIMIT: Final = 64
"""Lists of endpoints of which the leader is remembered. At the bound the oldest goes."""

_INSTANCES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[NetworkStack, Neighbours]]] = (
    WeakKeyDictionary()
)


class WaitingDial(Protocol):
    """Who waits for its turn to dial."""

    def hurry(self, endpoint: str, dial_at_ns: int) -> None:
        """The member can be reached again: dial it at this time."""


class _Unreachable:
    """A member that was lost, or could not be reached."""

    __slots__ = ("next_dial_ns", "waiting")

    def __init__(self, next_dial_ns: int) -> None:
        self.next_dial_ns = next_dial_ns
        self.waiting: dict[WaitingDial, None] = {}


class Neighbours:
    """The sessions that dial by the same network on one event loop. Bounds: what the sessions have, each once."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, ...], str] = {}
        self._unreachable: dict[str, _Unreachable] = {}

    def __repr__(self) -> str:
        return f"<Neighbours leaders={len(self._leaders)} unreachable={[*self._unreachable]}>"

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, network: NetworkStack) -> Neighbours:
        """Return those of a loop and a network."""
        instances = _INSTANCES.setdefault(loop, WeakKeyDictionary())
        found = instances.get(network)
        if found is None:
            found = instances[network] = cls()
        return found

    # --- who leads

    def leader_of(self, endpoints: tuple[str, ...]) -> str | None:
        """Return the endpoint of the member that led last, of those who were given the same endpoints."""
        return self._leaders.get(endpoints)

    def note_leader(self, endpoints: tuple[str, ...], endpoint: str) -> None:
        """A session has found a leader."""
        if endpoints not in self._leaders and len(self._leaders) >= _KEY_LIMIT:
            del self._leaders[next(iter(self._leaders))]
        self._leaders[endpoints] = endpoint

    def forget_leader(self, endpoints: tuple[str, ...], endpoint: str) -> None:
        """A session has lost its leader."""
        if self._leaders.get(endpoints) == endpoint:
            del self._leaders[endpoints]

    # --- who cannot be reached

    def note_lost(self, endpoint: str, now_ns: int) -> None:
        """A connection was lost, or a dial has failed."""
        if endpoint not in self._unreachable:
            self._unreachable[endpoint] = _Unreachable(now_ns)

    def turn_ns(self, endpoint: str, who: WaitingDial, now_ns: int) -> int:
        """Return when a session may dial: now, or when to ask again."""
        unreachable = self._unreachable.get(endpoint)
        if unreachable is None:
            return now_ns
        if now_ns >= unreachable.next_dial_ns:
            unreachable.next_dial_ns = now_ns + DIAL_INTERVAL_NS
            unreachable.waiting.pop(who, None)
            return now_ns
        unreachable.waiting[who] = None
        wait_ns = min(DIAL_INTERVAL_NS * len(unreachable.waiting), _WAIT_MAX_NS)
        return max(unreachable.next_dial_ns, now_ns + wait_ns)

    def forget(self, who: WaitingDial) -> None:
        """A session dials no more."""
        for endpoint, unreachable in [*self._unreachable.items()]:
            unreachable.waiting.pop(who, None)
            if not unreachable.waiting:
                del self._unreachable[endpoint]

    def note_reached(self, endpoint: str, now_ns: int) -> None:
        """A dial has got through: let the others dial as well."""
        unreachable = self._unreachable.pop(endpoint, None)
        if unreachable is not None:
            for index, who in enumerate(unreachable.waiting):
                who.hurry(endpoint, now_ns + index * _RETURN_NS)
