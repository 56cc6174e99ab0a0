"""The kinds of rounds, and which faults a round of each kind has."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .schedule import DRAWN, ChaosFault


class ChaosMode(StrEnum):
    """The subject of a round."""

    FAULTS = "faults"
    """Faults of all kinds."""
    HOSTILE = "hostile"
    """Hostile clients, and some faults of processes and of the network."""
    CARELESS = "careless"
    """A careless service, and some faults that leave processes alone."""
    TLS = "tls"
    """Everything encrypted, and certificates and authorities that are replaced."""
    MEMBERSHIP = "membership"
    """An operator adds, removes and replaces members, among faults of processes and of the network."""
    COLD = "cold"
    """Members that send their log to cold storage, among faults of processes and disks."""
    GROUPS = "groups"
    """Machines that have a member of each of two groups; a fault of a machine is one of both."""
    BACKED_UP = "backed_up"
    """Power losses of members with cold storage, and of the backup that is kept of them."""


_F = ChaosFault
_ROTATIONS: Final = frozenset({_F.ROTATE, _F.ROTATE_AUTHORITY})
_USUAL: Final = frozenset({_F.KILL, _F.PAUSE, _F.ISOLATE, _F.RESET, _F.SNAPSHOT})

MODE_FAULTS: Final = {
    ChaosMode.FAULTS: frozenset(DRAWN) - _ROTATIONS,
    ChaosMode.HOSTILE: _USUAL,
    ChaosMode.CARELESS: frozenset({_F.RESET, _F.DELAY, _F.SNAPSHOT}),
    # No clock jumps: a certificate is not valid on a machine whose clock is a day off.
    ChaosMode.TLS: _USUAL | _ROTATIONS | {_F.TERMINATE, _F.DELAY, _F.POWER_LOSS, _F.KILL_ALL},
    ChaosMode.MEMBERSHIP: _USUAL,
    ChaosMode.COLD: frozenset({_F.KILL, _F.POWER_LOSS, _F.WIPE, _F.DISK_FULL, _F.SNAPSHOT}),
    ChaosMode.GROUPS: _USUAL | {_F.TERMINATE, _F.POWER_LOSS, _F.POWER_LOSS_ALL, _F.KILL_ALL},
    ChaosMode.BACKED_UP: frozenset({_F.POWER_LOSS, _F.POWER_LOSS_ALL, _F.SNAPSHOT}),
}

DEFAULT_MODES: Final = (
    ChaosMode.MEMBERSHIP,
    ChaosMode.COLD,
    ChaosMode.GROUPS,
    ChaosMode.TLS,
    ChaosMode.FAULTS,
    ChaosMode.HOSTILE,
    ChaosMode.CARELESS,
)
"""Rounds take turns over these; a campaign of ten minutes has eight rounds or more."""

COLD_MODES: Final = frozenset({ChaosMode.COLD, ChaosMode.BACKED_UP})
"""Modes whose members have cold storage."""

OF_OWN_SERVICE: Final = frozenset({ChaosMode.CARELESS, ChaosMode.GROUPS})
"""Modes that need the campaign's own service."""
