"""The audit trail: one log line for each privileged action that begins, ends, or is refused.

Each line says what (`action`), who (`role`, `caller`, `proof`), from where (`address`, `endpoint`), the parameters of
the action, and how it ended (`outcome`). Refusals are somebody else's doing, so their number is not in our hands: of
each action and role the first is logged at once, and further ones every 10 seconds, with their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..connection_purpose import Purpose
from ..identity import Caller

REFUSAL_INTERVAL_NS: Final = 10_000_000_000

Log = Callable[..., Any]  # what a logger's method returns is nobody's business
"""Logs an event, and its fields by name."""


class Asker(Protocol):
    """Who asks, and from where: an accepted connection, or what was noted of one."""

    @property
    def caller(self) -> Caller:
        """Who it has shown to be."""

    @property
    def address(self) -> str:
        """The machine that it comes from."""

    @property
    def purpose(self) -> Purpose:
        """The endpoint that it has asked at."""


@dataclass(slots=True)
class _Refusals:
    """Refusals of one action to one role."""

    count: int = 0
    logged_ns: int | None = None


class AuditTrail:
    """Writes the audit trail of one process."""

    def __init__(self, *, info: Log, warn: Log, monotonic_ns: Callable[[], int]) -> None:
        self._info = info
        self._warn = warn
        self._monotonic_ns = monotonic_ns
        self._refusals: dict[tuple[str, str], _Refusals] = {}
        """By action and role: as many as there are of both."""

    def __repr__(self) -> str:
        return f"<AuditTrail refusals={len(self._refusals)}>"

    def begun(self, action: str, asker: Asker, **parameters: object) -> None:
        """A privileged action begins."""
        self._info("audit.action_begun", **_describe(action, asker), **parameters)

    def ended(self, action: str, asker: Asker, outcome: str, **facts: object) -> None:
        """It has ended; `facts` are its parameters and what became of it."""
        self._info("audit.action_ended", **_describe(action, asker), outcome=outcome, **facts)

    def refused(self, action: str, asker: Asker, reason: str, **parameters: object) -> None:
        """Somebody asked for what it may not have."""
        refusals, now_ns = self._refusals.setdefault((action, asker.caller.role), _Refusals()), self._monotonic_ns()
        refusals.count += 1
        if refusals.logged_ns is not None and now_ns - refusals.logged_ns < REFUSAL_INTERVAL_NS:
            return
        described = _describe(action, asker)
        self._warn(
            "audit.action_refused",
            **described,
            outcome="refused",
            reason=reason,
            count=refusals.count,
            **parameters,
        )
        refusals.count, refusals.logged_ns = 0, now_ns


def _describe(action: str, asker: Asker) -> dict[str, object]:
    caller = asker.caller
    return {
        "action": str(action),
        "role": str(caller.role),
        "caller": caller.name,
        "proof": str(caller.proof),
        "address": asker.address,
        "endpoint": asker.purpose.value,
    }
