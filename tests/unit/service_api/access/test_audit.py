"""The audit trail: every action has a line, and refusals do not flood the log."""

from __future__ import annotations

from typing import Any

from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.connection_purpose import Purpose
from trimaran.service_api.access.identity import LOCAL_OPERATOR, Caller, CallerRole, Proof
from trimaran.service_api.access.line_limiter import LINE_INTERVAL_NS
from trimaran.service_api.net.connection_gate import AcceptedConnection


class Trail:
    """An audit trail, its lines, and its time."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.now_ns = 0
        self.audit = AuditTrail(
            info=lambda event, **fields: self.lines.append(("info", event, fields)),
            warn=lambda event, **fields: self.lines.append(("warn", event, fields)),
            monotonic_ns=lambda: self.now_ns,
        )


def asker(caller: Caller | None = None) -> AcceptedConnection:
    accepted = let_in(quiet_gate(), Purpose.CONSENSUS, host="10.0.0.9")
    if caller is not None:
        accepted.identify(caller)
    return accepted


def test_an_action_has_a_line_when_it_begins_and_when_it_ends() -> None:
    trail = Trail()
    who = {
        "action": "suspend",
        "role": "operator",
        "caller": "local",
        "proof": "local socket",
        "address": "10.0.0.9",
        "endpoint": "consensus",
    }

    trail.audit.begun("suspend", asker(LOCAL_OPERATOR), log_position=7)
    trail.audit.ended("suspend", asker(LOCAL_OPERATOR), "done", log_position=64)

    assert trail.lines == [
        ("info", "audit.action_begun", {**who, "log_position": 7}),
        ("info", "audit.action_ended", {**who, "outcome": "done", "log_position": 64}),
    ]


def test_refusals_of_an_action_to_a_role_are_logged_once_in_an_interval_with_their_number() -> None:
    trail = Trail()
    for _ in range(1_000):
        trail.audit.refused("abort", asker(), "no")
    trail.audit.refused("abort", asker(Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE)), "no")
    trail.audit.refused("suspend", asker(), "no")
    trail.now_ns = LINE_INTERVAL_NS
    trail.audit.refused("abort", asker(), "no")

    told = [f"{fields['action']} {fields['role']} {fields['count']}" for _, _, fields in trail.lines]
    assert told == ["abort stranger 1", "abort client 1", "suspend stranger 1", "abort stranger 1000"]
    assert {(level, event) for level, event, _ in trail.lines} == {("warn", "audit.action_refused")}
