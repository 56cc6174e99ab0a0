"""Which seeds have groups, and which have many sessions; and which keys a group has."""

from __future__ import annotations

from itertools import count, islice
from random import Random
from typing import Final

from .....service_api.groups.group import Group

GROUPS: Final = "groups"
"""The cluster has several groups, on the same machines. Drawn once a seed."""
SESSIONS: Final = "sessions"
"""Many more clients, with a session and one request in flight each. Drawn once a seed."""

_GROUPS_CHANCE: Final = 0.12
_SESSIONS_CHANCE: Final = 0.12
_MANY_MEMBERS: Final = 4
"""From so many members on a drawn cluster has two groups at most, and fewer sessions: a seed is to end soon."""


def draw_group_count(seed: int, member_count: int) -> int:
    """Draw how many groups the cluster of a seed has: mostly 1, for no groups."""
    random = Random(f"{seed} {GROUPS}")
    if random.random() >= _GROUPS_CHANCE:
        return 1
    drawn = random.choice((2, 2, 3, 4))
    return 2 if member_count >= _MANY_MEMBERS else drawn


def draw_session_count(seed: int, member_count: int) -> int:
    """Draw how many further clients a seed has: mostly none."""
    random = Random(f"{seed} {SESSIONS}")
    if random.random() >= _SESSIONS_CHANCE:
        return 0
    return random.randint(50, 80 if member_count >= _MANY_MEMBERS else 200)


def seed_of_group(seed: int, group_index: int) -> int:
    """Return what everything is drawn from that concerns one group alone; of the first it is the seed of the run."""
    return seed if group_index == 0 else Random(f"{seed} group {group_index}").getrandbits(48)


def keys_of(group: Group, key_count: int) -> tuple[int, ...]:
    """Return the lowest numbers that are keys of a group."""
    return tuple(islice((key for key in count() if group.owns(key)), key_count))
