"""A gate without a loop, and connections that it has let in, and what is audited: time passes when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog

from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate, GateLimits
from trimaran.service_api.net.transport import Purpose


class FakeTimer:
    """A callback that is due at a time, or cancelled."""

    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeTime:
    """Timers that fire when the test lets time pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[FakeTimer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(timer := FakeTimer(self.now_s + delay_s, callback))
        return cast(asyncio.TimerHandle, timer)

    def advance(self, duration_s: float) -> None:
        """Let time pass, and fire what is due in its order."""
        end_s = self.now_s + duration_s
        while due := [timer for timer in self.timers if timer.due_s <= end_s and not timer.is_cancelled]:
            timer = min(due, key=lambda timer: timer.due_s)
            self.timers.remove(timer)
            self.now_s = timer.due_s
            timer.callback()
        self.now_s = end_s


def quiet_gate(limits: Mapping[Purpose, GateLimits] | None = None, time: FakeTime | None = None) -> ConnectionGate:
    """A gate whose deadlines pass in `time`, or never."""
    call_later = (FakeTime() if time is None else time).call_later
    return ConnectionGate(limits, call_later=call_later, warn=structlog.get_logger().warning)


def let_in(gate: ConnectionGate, purpose: Purpose, host: str = "127.0.0.1") -> AcceptedConnection:
    """Let a connection in that must not be refused."""
    accepted = gate.enter(purpose, (host, 1))
    assert accepted is not None
    return accepted


class AuditLines:
    """An audit trail and its lines; no time passes in it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.audit = AuditTrail(info=self._log, warn=self._log, monotonic_ns=lambda: 0)

    def _log(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    def told(self, *names: str) -> list[tuple[object, ...]]:
        """Return each line as its event and these of its fields."""
        return [(event, *(fields.get(name) for name in names)) for event, fields in self.lines]
