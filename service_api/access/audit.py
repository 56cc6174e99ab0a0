"""The audit trail: one log line for each privileged action that begins, ends, or is refused, and each lost right.

Each line says what (`action`), who (`role`, `caller`, `proof`), from where (`address`, `endpoint`), the parameters of
the action, and how it ended (`outcome`). Refusals are somebody else's doing, so their number is not in our hands: of
each action and role the first is logged at once, and further ones every 10 seconds, with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .connection_purpose import Purpose
from .identity import Caller
from .line_limiter import LineLimiter

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


class AuditTrail:
    """Writes the audit trail of one process."""

    def __init__(self, *, info: Log, warn: Log, monotonic_ns: Callable[[], int]) -> None:
        self._info = info
        self._warn = warn
        self._monotonic_ns = monotonic_ns
        self._refusals = LineLimiter[tuple[str, str]]()
        """By action and role."""

    def __repr__(self) -> str:
        return f"<AuditTrail refusals={self._refusals!r}>"

    def begun(self, action: str, asker: Asker, **parameters: object) -> None:
        """A privileged action begins."""
        self._info("audit.action_begun", **_describe(action, asker), **parameters)

    def ended(self, action: str, asker: Asker, outcome: str, **facts: object) -> None:
        """It has ended; `facts` are its parameters and what became of it."""
        self._info("audit.action_ended", **_describe(action, asker), outcome=outcome, **facts)

    def right_ended(self, actions: Sequence[str], caller: Caller, **facts: object) -> None:
        """A caller may not do any more what it was let in for, and its connections end."""
        self._warn("audit.right_ended", actions=[str(each) for each in actions], **_describe_caller(caller), **facts)

    def refused(self, action: str, asker: Asker, reason: str, **parameters: object) -> None:
        """Somebody asked for what it may not have."""
        count = self._refusals.count((action, asker.caller.role), self._monotonic_ns())
        if count is None:
            return
        described = _describe(action, asker)
        self._warn(
            "audit.action_refused",
            **described,
            outcome="refused",
            reason=reason,
            count=count,
            **parameters,
        )


def _describe(action: str, asker: Asker) -> dict[str, object]:
    return {
        "action": str(action),
        **_describe_caller(asker.caller),
        "address": asker.address,
        "endpoint": asker.purpose.value,
    }


def _describe_caller(caller: Caller) -> dict[str, object]:
    return {"role": str(caller.role), "caller": caller.name, "proof": str(caller.proof)}
