"""What the sessions of one event loop tell each other: who leads, and which members cannot be reached.

A process may have thousands of sessions, each with connections of its own. Each would ask a follower first, be sent to
the leader, and ask again; and each would dial a member that is gone again and again, ten thousand dials a second for
nothing, just when the others are wanted. So a new session asks first whom another one found leading, and connects to
the other members a little later: they are wanted when the leader is gone, and are half of what it costs to open a
session. And a member that was lost, or could not be reached, is dialled by one session at a time, in turn, until one of
them has got through: then all others may, spread over a while.

Nothing here is relied on: a leader that does not answer is asked no longer, and each session that waits has its turn.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from ...service_api.net.transport import NetworkStack

DIAL_INTERVAL_NS: Final = 20_000_000
"""Between two dials of a member that cannot be reached, of all sessions together."""

_WAIT_MAX_NS: Final = 2_000_000_000
"""How long a session waits for its turn at most, until it asks again."""

_RETURN_NS: Final = 100_000
"""How far apart the dials are when a member can be reached again: ten thousand sessions take a second."""

_SPARED_NS: Final = 2_000_000_000
"""How long after it began a session connects to members that do not lead, where a neighbour knew who leads."""

_SPARED_INTERVAL_NS: Final = 1_000_000
"""How far apart such sessions do that at least: ten thousand take ten seconds, and leave most of a core to others."""

_KEY_LIMIT: Final = 64
"""Lists of endpoints of which the leader is remembered. At the bound the oldest goes."""

_INSTANCES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[NetworkStack, Neighbours]]] = (
    WeakKeyDictionary()
)


class WaitingDial(Protocol):
    """Who waits for its turn to dial."""

    def hurry(self, endpoint: str, dial_at_ns: int) -> None:
        """The member can be reached again: dial it at this time."""

    def dial_spared(self, dial_at_ns: int) -> None:
        """The leader is another one: dial the members that were left for later, at this time."""


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
        self._spared: dict[WaitingDial, tuple[tuple[str, ...], str]] = {}
        """Who has left members for later: the endpoints that it was given, and the leader that it was told."""
        self._spared_at_ns = 0
        """When the last one of them is to dial."""
        self._unreachable: dict[str, _Unreachable] = {}

    def __repr__(self) -> str:
        return f"<Neighbours leaders={len(self._leaders)} unreachable={[*self._unreachable]}>"

    @property
    def spared_count(self) -> int:
        """How many sessions have left members for later."""
        return len(self._spared)

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

    def note_leader(self, endpoints: tuple[str, ...], endpoint: str, now_ns: int) -> None:
        """A session has found a leader.

        Where it is another one, sessions that are connected to the old one alone have nobody to tell them.
        """
        before = self._leaders.get(endpoints)
        if before is None and len(self._leaders) >= _KEY_LIMIT:
            del self._leaders[next(iter(self._leaders))]
        self._leaders[endpoints] = endpoint
        if before != endpoint and self._spared:
            told = [who for who, knows in self._spared.items() if knows[0] == endpoints and knows[1] != endpoint]
            for index, who in enumerate(told):
                del self._spared[who]
                who.dial_spared(now_ns + index * _RETURN_NS)

    def forget_leader(self, endpoints: tuple[str, ...], endpoint: str) -> None:
        """A session has lost its leader."""
        if self._leaders.get(endpoints) == endpoint:
            del self._leaders[endpoints]

    def spare(self, endpoints: tuple[str, ...], who: WaitingDial, now_ns: int) -> int:
        """Return when a session that begins may dial the members that do not lead; `leader_of` has said who does."""
        self._spared[who] = (endpoints, self._leaders[endpoints])
        self._spared_at_ns = max(self._spared_at_ns + _SPARED_INTERVAL_NS, now_ns + _SPARED_NS)
        return self._spared_at_ns

    def spare_no_longer(self, who: WaitingDial) -> None:
        """A session dials all."""
        self._spared.pop(who, None)

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
        self.spare_no_longer(who)
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
