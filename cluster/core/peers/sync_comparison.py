"""Whose disk is slow: what a member knows of the others' syncs, compared with its own.

A leader counts a position as committed once it has recorded it itself, so every commit of its term waits for its disk,
however quick the others' are. Another leader commits with any majority, and waits for the slow disk no more.

A member is *slow* while a sync of its own takes at least the limit and a majority of the voters, without it, syncs at
least four times as fast. Both are asked for: where all disks are slow, as on one machine, no leader is better, and
where fewer than a majority are fast, every leader waits for a slow one. A member that is slow stays so until its disk
takes less than half of the limit, or the majority is less than twice as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....service_api.types import MemberId
from ..vocabulary.members import quorum_threshold

_FASTER_FACTOR: Final = 4
_STILL_FASTER_FACTOR: Final = 2
_NS_PER_MS: Final = 1_000_000
_NAMED_LIMIT: Final = 3
"""Members that a sentence names: it is one line of a status."""


def describe_slow_syncs(
    own_ns: int | None, others_ns: Mapping[MemberId, int], *, voter_count: int, slow_ns: int, was_slow: bool
) -> str | None:
    """Say in one line that this member's disk is slow, and a majority's is not; None otherwise.

    `others_ns` has the other voters that can be reached and say how long a sync takes; `voter_count` counts all voters,
    this member included.
    """
    if own_ns is None or own_ns < (slow_ns // 2 if was_slow else slow_ns):
        return None
    faster = find_faster(own_ns, others_ns, was_slow=was_slow)
    if len(faster) < quorum_threshold(voter_count):
        return None
    named = ", ".join(str(member_id) for member_id in [*faster][:_NAMED_LIMIT])
    rest = f" and {len(faster) - _NAMED_LIMIT} more" if len(faster) > _NAMED_LIMIT else ""
    slowest_ms = max(faster.values()) / _NS_PER_MS
    return (
        f"a sync of its disk takes {own_ns / _NS_PER_MS:,.0f} ms, and {slowest_ms:,.1f} ms at most on members "
        f"{named}{rest}"
    )


def find_faster(own_ns: int, others_ns: Mapping[MemberId, int], *, was_slow: bool = False) -> dict[MemberId, int]:
    """Find the members whose syncs are clearly faster than this member's, in order of their ids."""
    factor = _STILL_FASTER_FACTOR if was_slow else _FASTER_FACTOR
    return {member_id: other_ns for member_id, other_ns in sorted(others_ns.items()) if other_ns * factor <= own_ns}
