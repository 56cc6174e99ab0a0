"""Rights follow the state: whether an identity that was shown counts now, asked again whenever that may have changed.

A certificate says who its holder was when it was issued. What it is worth is decided here, by one function for each
role, with what is known now: a member's with the configuration in the log. The function is asked each time a caller
asks for something, so nobody is given anything by what held before. What is open already ends with `review`, which the
owner of that knowledge calls when it changes: each connection that was given what its caller may not have any more.

A role without a function counts as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from .audit import AuditTrail
from .identity import Caller, CallerRole
from .permissions import Permission

Judge = Callable[[Caller], Caller]
"""Returns what the holder of an identity is now: the same, or one of another role, with the reason."""


class Holder(Protocol):
    """A connection, and the permissions that its caller was told of."""

    shown: Caller
    """The identity that it has shown."""

    @property
    def address(self) -> str:
        """The machine that it comes from."""

    @property
    def caller(self) -> Caller:
        """The caller as it counts now."""

    @property
    def lost_permissions(self) -> Sequence[Permission]:
        """The permissions that its caller was given, and may not have any more."""

    def refuse(self, kind: str, detail: str) -> None:
        """End it, and log why."""


class Rights:
    """The roles that the callers of one process have now."""

    def __init__(self, audit: AuditTrail | None = None) -> None:
        self._audit = audit
        self._judges: dict[CallerRole, Judge] = {}

    def __repr__(self) -> str:
        return f"<Rights judged={sorted(self._judges)}>"

    def decide(self, role: CallerRole, judge: Judge) -> None:
        """Have a function decide about the holders of a role, from now on."""
        self._judges[role] = judge

    def judge(self, shown: Caller) -> Caller:
        """Return what a caller is now that shows an identity."""
        judge = self._judges.get(shown.role)
        return shown if judge is None else judge(shown)

    def review(self, holders: Iterable[Holder]) -> None:
        """End the connections that were given what their callers may not have any more; one audit line for a caller."""
        lost: dict[Caller, list[Holder]] = {}
        for connection in holders:
            if connection.lost_permissions:
                lost.setdefault(connection.shown, []).append(connection)
        for shown, connections in lost.items():
            reason = str(connections[0].caller)
            if self._audit is not None:
                self._audit.right_ended(
                    sorted({each for connection in connections for each in connection.lost_permissions}),
                    shown,
                    reason=reason,
                    addresses=sorted({connection.address for connection in connections}),
                    connection_count=len(connections),
                )
            for connection in connections:
                connection.refuse("no_right", reason)
