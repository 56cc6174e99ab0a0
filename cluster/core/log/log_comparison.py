"""Decides which bytes of the log are valid where members' recordings differ in a range that all have committed.

No checksum and no rule of frames says which ones: each member's frames are valid by themselves. So the members vote by
what is on their disks, and copies of one source have one vote together (`log_copies`):

    a majority of the voters has other bytes than this member     this member's are damaged
    a majority has this member's bytes                            the others' are, and they find that themselves
    neither                                                       nobody can say; with who does not answer now, maybe

The majority is of all voters, not of those that answer. An operator who has looked may name a member whose bytes are
valid; then nobody votes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from ....service_api.types import MemberId
from ..vocabulary.members import quorum_threshold
from .log_copies import LogCopies, count_independent


class LogVerdict(Enum):
    """Whose bytes are valid."""

    OWN_VALID = "own valid"
    OTHERS_VALID = "others valid"
    UNDECIDED = "undecided"


@dataclass(slots=True, frozen=True)
class Decision:
    """Whose bytes are valid, and which members have them; of an undecided range the members of all answers."""

    verdict: LogVerdict
    member_ids: tuple[MemberId, ...]


@dataclass(slots=True, frozen=True)
class LogDifference:
    """A range of the log that members have with different bytes, and nobody can say whose are valid."""

    log_position: int
    """Where this member's first entry of the range ends: delivery holds before it."""
    position: int
    stop_position: int
    groups: tuple[tuple[MemberId, ...], ...]
    """The members, those with the same bytes together."""
    file_name: str
    """The segment file of this member that has the range."""
    is_mended: bool = False
    """True where this member has begun to put other members' bytes there: then only the rest is missing."""

    def __str__(self) -> str:
        groups = " against ".join(",".join(map(str, group)) for group in self.groups)
        return (
            f"the log from position={self.position} to stop_position={self.stop_position}, file={self.file_name}: it "
            f"differs among members {groups}"
        )

    @property
    def member_ids(self) -> frozenset[MemberId]:
        """Every member whose bytes are compared."""
        return frozenset(member_id for group in self.groups for member_id in group)


def decide_range(
    position: int,
    stop_position: int,
    *,
    own_id: MemberId,
    found: Mapping[MemberId, bytes],
    copies: Mapping[MemberId, LogCopies],
    voter_ids: Collection[MemberId],
    trusted_id: MemberId | None = None,
) -> Decision:
    """Decide whose bytes of [position, stop_position) are valid.

    `found` has a digest of the bytes of each member that answered, this one included.
    """
    groups: dict[bytes, list[MemberId]] = {}
    for member_id in sorted(found):
        groups.setdefault(found[member_id], []).append(member_id)
    threshold = quorum_threshold(len(voter_ids))
    for member_ids in groups.values():
        votes = count_independent((each for each in member_ids if each in voter_ids), copies, position, stop_position)
        is_valid = votes >= threshold if trusted_id is None else trusted_id in member_ids
        if is_valid:
            verdict = LogVerdict.OWN_VALID if own_id in member_ids else LogVerdict.OTHERS_VALID
            return Decision(verdict, tuple(member_ids))
    return Decision(LogVerdict.UNDECIDED, tuple(found))
