"""What an operator wants of the members, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from . import configuration as cf
from .configuration import ChangeRefusedError, Configuration, MemberKind


class MemberChangeKind(StrEnum):
    """How the members are to change."""

    ADD = "add"
    """As a learner."""
    ADD_WITNESS = "add-witness"
    ADD_STANDBY = "add-standby"
    PROMOTE = "promote"
    REMOVE = "remove"
    MOVE = "move"


_ADDED: Final = {
    MemberChangeKind.ADD: MemberKind.LEARNER,
    MemberChangeKind.ADD_WITNESS: MemberKind.WITNESS,
    MemberChangeKind.ADD_STANDBY: MemberKind.STANDBY,
}


@dataclass(slots=True, frozen=True)
class MemberChange:
    """What an operator wants of the members."""

    kind: MemberChangeKind
    member_id: int | None
    """Whom; None for a new member that gets the next free id."""
    endpoints: tuple[str, str, str, str, str] | None = None
    """Of a new member, and of MOVE."""

    def apply_to(self, current: Configuration) -> Configuration:
        """Make the next configuration.

        Raises:
            ChangeRefusedError: there is none, with what to do.
        """
        if self.kind in _ADDED and self.endpoints is not None:
            return cf.with_member(current, self.member_id, _ADDED[self.kind], self.endpoints)
        if self.member_id is None:
            raise ChangeRefusedError(f"{self.kind}: no member id: the members are {current.describe()}")
        if self.kind is MemberChangeKind.PROMOTE:
            return cf.with_promoted(current, self.member_id)
        if self.kind is MemberChangeKind.REMOVE:
            return cf.without_member(current, self.member_id)
        if self.endpoints is None:
            raise ChangeRefusedError(f"{self.kind}: no endpoints")
        return cf.with_moved(current, self.member_id, self.endpoints)
