"""What is known of members whose services differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....service_api.types import MemberId
from ...messages.digests import DigestKind


@dataclass(slots=True)
class Divergence:
    """Members whose digests of one kind and service differ, at the first position where that was seen."""

    kind: int
    service_id: int
    log_position: int
    values: dict[MemberId, str]
    """What each member found there, as far as it is known."""
    differing: set[MemberId]
    """Those that are not with a majority; without a majority, all."""
    has_majority: bool
    is_doubtful: bool = False
    """True where that majority may be of one source: members of it have copied their log from others of it."""
    equal_position: int = 0
    """Up to where all voters are known to have had the same state."""
    restarted: set[MemberId] = field(default_factory=set)
    """Those of them whose process has ended since."""

    def __str__(self) -> str:
        values = " ".join(f"{member_id}={value}" for member_id, value in sorted(self.values.items()))
        return f"{self.what} at log_position={self.log_position} by member: {values}"

    @property
    def agreeing(self) -> set[MemberId]:
        """The members of the majority, if there is one."""
        return self.values.keys() - self.differing

    @property
    def what(self) -> str:
        """What differs, in words."""
        if self.kind == DigestKind.OUTPUTS:
            return "outputs of the services differ"
        if self.kind == DigestKind.SNAPSHOT:
            who = "the consensus module" if self.service_id < 0 else f"service {self.service_id}"
            return f"snapshots of {who} differ"
        return f"states of service {self.service_id} differ"


@dataclass(slots=True)
class FieldDifference:
    """A field of a service's state in which members with different code differ, where that was first seen."""

    service_id: int
    field: str
    log_position: int
    values: dict[MemberId, str]
    """What this member found there, and each member that differs from it."""

    def __str__(self) -> str:
        values = " ".join(f"{member_id}={value}" for member_id, value in sorted(self.values.items()))
        return (
            f"states differ while code differs: field={self.field} service_id={self.service_id} "
            f"log_position={self.log_position} by member: {values}"
        )
