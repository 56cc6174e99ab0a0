"""The feature level: which behaviour the services have, by number, from an entry of the log on.

A service that is to behave differently from some moment on must do so from one entry on, on every member and in every
replay. Its code has both behaviours, declares the higher number, and asks `cluster.feature_level` which one is in
force. An operator raises the level once every member runs such code: the leader appends an entry that says so.

Members tell each other, when they meet, what the code of their services can. The leader counts only what a member has
said on the link that it has now, for one that is down may come back with older code. So it refuses while a voter or a
learner is down, or can less. A member that joins later with older code, or goes back to it, stops before the entry, or
at its start where the snapshot was taken after it.

The level never falls, since entries were processed by it. Beside it is a level of Trimaran itself: a later version may
write what this one would process wrongly. This version writes 0, and stops where it finds more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....service_api import ClusteredService, ConfigurationError
from ....service_api.types import MemberId
from .configuration import ChangeRefusedError
from .members import KnownLevel

TRIMARAN_LEVEL: Final = 0
"""What this version of Trimaran can itself: nothing that it writes so far needs other members to know it."""

FEATURE_LEVEL_LIMIT: Final = (1 << 31) - 1
"""The highest feature level."""


@dataclass(slots=True, frozen=True)
class FeatureLevels:
    """What is in force at a position of the log."""

    feature_level: int = 0
    """Of the services."""
    trimaran_level: int = 0
    """Of Trimaran itself."""

    def check(self, known_level: int, *, log_position: int) -> None:
        """Refuse to process entries from a position on where levels are in force that the code here does not know.

        Raises:
            ConfigurationError: it knows less than one of them.
        """
        if self.trimaran_level > TRIMARAN_LEVEL:
            raise ConfigurationError(
                f"this Trimaran is too old for the log: trimaran_level={self.trimaran_level} is in force at "
                f"log_position={log_position}, here known up to {TRIMARAN_LEVEL}; install the version that the other "
                "members run"
            )
        if self.feature_level > known_level:
            raise ConfigurationError(
                f"the code of the service is too old for the log: feature_level={self.feature_level} is in force at "
                f"log_position={log_position}, the code here declares feature_level={known_level}; install the code "
                "that the other members run"
            )


NO_FEATURES: Final = FeatureLevels()
"""What is in force until a level is raised."""


def find_known_level(services: Sequence[ClusteredService]) -> KnownLevel:
    """Return the highest feature level that every service of a member knows; of a witness, which runs none, any.

    Raises:
        ConfigurationError: a service declares what is no level.
    """
    for service in services:
        level: object = service.feature_level
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= FEATURE_LEVEL_LIMIT:
            raise ConfigurationError(
                f"service={type(service).__qualname__} feature_level={level!r} expected a whole number from 0 to "
                f"{FEATURE_LEVEL_LIMIT}"
            )
    if not services:
        return KnownLevel(FEATURE_LEVEL_LIMIT)
    level = min(service.feature_level for service in services)
    names = [
        f"service {service_id}, {service.typed_name or type(service).__qualname__}"
        for service_id, service in enumerate(services)
        if service.feature_level == level
    ]
    return KnownLevel(level, " and ".join(names))


def choose_feature_level(current: int, said: Mapping[MemberId, KnownLevel | None], wanted: int | None) -> int:
    """Return the level that comes into force: `wanted`, or without it the highest that every member can.

    `said` is what the members that run the services can; None of one that has not said so on a link that is up.

    Raises:
        ChangeRefusedError: a service of a member cannot, or it is not known of one, or the level would not rise.
    """
    silent = sorted(member_id for member_id, level in said.items() if level is None)
    if silent:
        raise ChangeRefusedError(
            f"members {silent} are not connected, or have not said what they can: start them, or remove them"
        )
    known = {member_id: level for member_id, level in sorted(said.items()) if level is not None}
    highest = min(each.feature_level for each in known.values())
    level = highest if wanted is None else wanted
    lacking = ", ".join(
        f"at most {can.feature_level} on member {member_id}{can.limiting_service and f' ({can.limiting_service})'}"
        for member_id, can in known.items()
        if can.feature_level < max(level, current + 1)
    )
    if level > highest:
        raise ChangeRefusedError(
            f"feature_level={level} is not possible: the code supports {lacking}; install code that declares "
            f"feature_level={level} there"
        )
    if level <= current:
        raise ChangeRefusedError(
            f"feature_level={level} expected above {current}, which is in force: a level never falls; "
            + (f"the code supports {lacking}" if lacking else f"every member supports {highest}")
        )
    return level
