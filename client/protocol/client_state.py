"""The states of a client's session, and its times; what leads from one state to another is told in `protocol`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ...service_api.wire.session import DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS
from ..config import ClientConfig, to_ns

_NEW_LEADER_MARGIN_NS: Final = 5_000_000_000
"""Added to 2 x heartbeat timeout: an election with failed ballots takes seconds, an idle session lives 10."""

_KEEP_ALIVE_INTERVAL_NS: Final = 1_000_000_000
"""How often the leader hears from a session of a cluster that does not say how long one may be silent."""

_KEEP_ALIVES_PER_TIMEOUT: Final = 4
"""So three in a row may be lost, or late."""


class ClientState(Enum):
    """Where the session stands."""

    CONNECTING = auto()
    OPEN = auto()
    AWAIT_NEW_LEADER = auto()
    AWAIT_NEW_LEADER_CONNECTION = auto()
    CLOSING = auto()
    CLOSED = auto()


LIVE_STATES: Final = frozenset(
    (ClientState.OPEN, ClientState.AWAIT_NEW_LEADER, ClientState.AWAIT_NEW_LEADER_CONNECTION)
)
LEGAL_TRANSITIONS: Final[dict[ClientState, frozenset[ClientState]]] = {
    ClientState.CONNECTING: frozenset((ClientState.OPEN, ClientState.CLOSED)),
    **{state: LIVE_STATES | {ClientState.CLOSING, ClientState.CLOSED} for state in LIVE_STATES},
    ClientState.CLOSING: frozenset((ClientState.CLOSED,)),
    ClientState.CLOSED: frozenset(),
}


@dataclass(slots=True)
class SessionTimes:
    """When things are due; each is read only in the states that it belongs to."""

    now_ns: int = 0
    """The time of the last input."""
    connect_by_ns: int = 0
    keep_alive_at_ns: int = 0
    new_leader_by_ns: int = 0
    close_by_ns: int = 0
    new_leader_timeout_ns: int = 0
    heartbeat_timeout_ns: int = DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS
    """The leader's: one that is silent for less is not given up."""


def new_leader_timeout_ns(config: ClientConfig, heartbeat_timeout_ns: int) -> int:
    """Return how long a session waits for a new leader, of a cluster with this heartbeat timeout."""
    if config.new_leader_timeout_s is not None:
        return to_ns(config.new_leader_timeout_s)
    return 2 * heartbeat_timeout_ns + _NEW_LEADER_MARGIN_NS


def known_heartbeat_timeout_ns(told_ns: int | None) -> int:
    """Return the leader's heartbeat timeout, also of one that does not say it."""
    return told_ns if told_ns is not None and told_ns > 0 else DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS


def keep_alive_interval_ns(config: ClientConfig, session_timeout_ms: int | None = None) -> int:
    """Return how often the leader is to hear from a session, where the cluster says how long one may be silent."""
    if config.keep_alive_interval_s is not None:
        return to_ns(config.keep_alive_interval_s)
    if session_timeout_ms is None or session_timeout_ms <= 0:
        return _KEEP_ALIVE_INTERVAL_NS
    return session_timeout_ms * 1_000_000 // _KEEP_ALIVES_PER_TIMEOUT
