"""What a cluster is asked to do, what its consensus module is asked for, and what the audit trail says of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.session_selection import SessionSelection
from trimaran.cluster.documents.operations import Operation, OperationProgress, OperationRequest, SessionsRequest
from trimaran.cluster.runtime.answering.operation_handler import _OF_ONE_MEMBER, _TOGGLES, OperationHandler
from trimaran.cluster.runtime.answering.order_relay import OrderRelay
from trimaran.cluster.runtime.files.process_log import ProcessLog
from trimaran.cluster.runtime.repair.comparing import LogComparer
from trimaran.cluster.runtime.repair.upkeep import Upkeep
from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent
from trimaran.cluster.runtime.turns.departure import Departure
from trimaran.service_api import ClusterError, RemoteProtocolError
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.connection_purpose import Purpose
from trimaran.service_api.access.identity import LOCAL_OPERATOR, Caller, CallerRole, Proof
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.documents.document import read_document
from trimaran.service_api.net.connection_gate import AcceptedConnection
from trimaran.service_api.types import ClusterSessionId, CorrelationId

CLUSTER = ClusterId(0xABCDEF)


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_every_operation_is_the_action_and_the_permission_of_its_name(operation: Operation) -> None:
    """Nobody reads one name as the other: a table holds them together."""
    if operation not in _OF_ONE_MEMBER:
        assert operation is Operation.TRANSFER or _TOGGLES[operation].name == operation.name
    assert Permission(operation.value).name == operation.name


class Asked:
    """A handler whose agent does what the test says, and the lines of its audit trail."""

    def __init__(self, *steps: fx.ActionProgressed, error: ClusterError | None = None) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.actions: list[tuple[ControlToggle, int | None]] = []
        self.selections: list[SessionSelection] = []
        config = SimpleNamespace(member_id=0)
        module = SimpleNamespace(ctx=SimpleNamespace(cluster_id=CLUSTER, whole_cluster_id=0, config=config))
        relay = SimpleNamespace(passes_on=lambda order: False)

        async def run_action(wanted: ActionRequested) -> AsyncGenerator[fx.ActionProgressed, None]:
            self.actions.append((wanted.action, wanted.log_position))
            self.selections += [wanted.sessions] if wanted.sessions is not None else []
            for step in steps:
                yield step
            if error is not None:
                raise error

        def log(event: str, **fields: object) -> None:
            self.lines.append((event, fields))

        self.scrubs: list[bool] = []
        self.handler = OperationHandler(
            cast(ConsensusModuleAgent, SimpleNamespace(module=module, run_action=run_action)),
            relay=cast(OrderRelay, relay),
            departure=cast(
                Departure, SimpleNamespace(run=lambda: run_action(ActionRequested(0, ControlToggle.INACTIVE)))
            ),
            comparer=cast(LogComparer, SimpleNamespace(trust=lambda member_id: None)),
            upkeep=cast(Upkeep, SimpleNamespace(ask=lambda: self.scrubs.append(True))),
            audit=AuditTrail(info=log, warn=log, monotonic_ns=lambda: 0),
        )
        self.asker: AcceptedConnection = let_in(quiet_gate(), Purpose.DOCUMENTS)
        self.asker.identify(LOCAL_OPERATOR)

    def answer(self, request: OperationRequest) -> AsyncGenerator[bytes, None]:
        return self.handler.answer(request.model_dump_json().encode(), self.asker)

    def told(self, *names: str) -> list[tuple[object, ...]]:
        return [(event, *(fields.get(name) for name in names)) for event, fields in self.lines]


def step(name: ActionStep, log_position: int | None = None, *, is_final: bool = False) -> fx.ActionProgressed:
    return fx.ActionProgressed(
        request_id=1, step=name, log_position=log_position, detail="", member_id=None, is_final=is_final
    )


async def test_an_operation_is_told_when_it_begins_and_with_its_outcome() -> None:
    asked = Asked(step(ActionStep.APPENDED, 64), step(ActionStep.DONE, is_final=True))

    request = OperationRequest(operation=Operation.SKIP_ENTRY, log_position=32)
    steps = [read_document(OperationProgress, each) async for each in asked.answer(request)]

    assert [each.step for each in steps] == ["appended", "done"]
    assert asked.actions == [(ControlToggle.SKIP_ENTRY, 32)]
    assert asked.told("action", "role", "outcome", "log_position") == [
        ("audit.action_begun", "skip-entry", "operator", None, 32),
        ("audit.action_ended", "skip-entry", "operator", "done", 64),
    ]


async def test_an_end_is_in_the_audit_trail_before_the_caller_hears_of_it() -> None:
    """Who was told "done" and read the log at once did not always find the line."""
    asked = Asked(step(ActionStep.DONE, 64, is_final=True))
    answers = asked.answer(OperationRequest(operation=Operation.SUSPEND))

    await anext(answers)

    assert asked.told("outcome")[-1] == ("audit.action_ended", "done")
    await answers.aclose()
    assert len(asked.lines) == 2


async def test_an_operation_that_fails_says_why_in_the_audit_trail() -> None:
    asked = Asked(error=ClusterError("no leader"))

    with pytest.raises(ClusterError):
        [each async for each in asked.answer(OperationRequest(operation=Operation.SUSPEND))]

    assert asked.told("outcome", "detail")[-1] == ("audit.action_ended", "failed", "no leader")


async def test_a_caller_that_leaves_early_leaves_an_outcome_too() -> None:
    asked = Asked(step(ActionStep.APPENDED, 64), step(ActionStep.DONE, is_final=True))
    answers = asked.answer(OperationRequest(operation=Operation.SUSPEND))

    await anext(answers)
    await answers.aclose()

    assert asked.told("outcome", "log_position")[-1] == ("audit.action_ended", "appended", 64)


async def test_an_operation_on_another_cluster_is_refused_and_nothing_is_done() -> None:
    asked = Asked()

    request = OperationRequest(operation=Operation.ABORT, cluster_id="0000000000000001")
    (refused,) = [read_document(OperationProgress, each) async for each in asked.answer(request)]

    assert (refused.step, asked.actions) == ("refused", [])
    assert asked.told("outcome", "cluster_id")[-1] == ("audit.action_ended", "refused", "0000000000000001")


def test_a_clients_admin_request_has_lines_in_the_audit_trail_too() -> None:
    """Only what came to the consensus port had some: a snapshot over a session left no trace of who wanted it."""
    asked, caller = Asked(), Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE)
    asker = ev.AdminAsker(ClusterSessionId(4), CorrelationId(9), b"app\n", caller, "10.0.0.9")

    asked.handler.on_admin_progressed(fx.AdminProgressed(asker, None))
    asked.handler.on_admin_progressed(fx.AdminProgressed(asker, ActionStep.DONE, 64))
    for _ in range(3):
        asked.handler.on_admin_progressed(fx.AdminProgressed(asker, ActionStep.REFUSED, detail="no"))

    assert asked.told("outcome", "log_position") == [
        ("audit.action_begun", None, None),
        ("audit.action_ended", "done", 64),
        ("audit.action_refused", "refused", None),
    ]
    who = ("action", "role", "caller", "address", "endpoint", "session_id", "principal")
    assert {line[1:] for line in asked.told(*who)} == {("snapshot", "client", "app", "10.0.0.9", "ingress", 4, "app")}


async def test_what_is_no_request_needs_no_permission() -> None:
    with pytest.raises(RemoteProtocolError):
        Asked().handler.row.permission(b"{}")


async def test_a_scrub_of_the_member_that_is_asked_begins_at_once() -> None:
    asked = Asked()

    steps = [step async for step in asked.answer(OperationRequest(operation=Operation.SCRUB))]

    assert len(asked.scrubs) == 1
    assert [read_document(OperationProgress, step).step for step in steps] == [ActionStep.DONE]
    assert asked.actions == []


async def test_the_log_level_is_changed_with_an_audit_line_and_without_a_log_refused() -> None:
    asked = Asked()
    request = OperationRequest(operation=Operation.LOG_LEVEL, log_level="debug")
    (refused,) = [read_document(OperationProgress, each) async for each in asked.answer(request)]
    log = asked.handler.process_log = ProcessLog()
    try:
        (done,) = [read_document(OperationProgress, each) async for each in asked.answer(request)]
        wrong = OperationRequest(operation=Operation.LOG_LEVEL, log_level="error")
        (unknown,) = [read_document(OperationProgress, each) async for each in asked.answer(wrong)]

        assert [each.step for each in (refused, done, unknown)] == ["refused", "done", "refused"]
        assert log.level == "debug"
        assert asked.told("outcome", "log_level")[2:4] == [
            ("audit.action_begun", None, "debug"),
            ("audit.action_ended", "done", "debug"),
        ]
    finally:
        log.set_level("info")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (SessionsRequest(cluster_session_id=17), SessionSelection(ClusterSessionId(17))),
        (SessionsRequest(principal="importer"), SessionSelection(encoded_principal=b"importer")),
        (SessionsRequest(address="10.0.0.7"), SessionSelection(address="10.0.0.7")),
        (SessionsRequest(address="2001:db8::5"), SessionSelection(address="2001:db8::/64")),
        (SessionsRequest(address="2001:db8::/64"), SessionSelection(address="2001:db8::/64")),
    ],
)
async def test_sessions_that_are_to_end_are_named_in_one_way(
    wanted: SessionsRequest, expected: SessionSelection
) -> None:
    asked = Asked(step(ActionStep.DONE, is_final=True))

    [each async for each in asked.answer(OperationRequest(operation=Operation.CLOSE_SESSIONS, sessions=wanted))]

    assert asked.selections == [expected]
    ((_, parameters), _) = asked.told("sessions")
    assert parameters == wanted.model_dump(exclude_defaults=True)


@pytest.mark.parametrize("wanted", [None, SessionsRequest(), SessionsRequest(cluster_session_id=1, principal="a")])
async def test_sessions_that_are_named_in_no_way_or_two_do_not_end(wanted: SessionsRequest | None) -> None:
    asked = Asked()

    with pytest.raises(RemoteProtocolError, match="expected one of cluster_session_id, principal and address"):
        [each async for each in asked.answer(OperationRequest(operation=Operation.CLOSE_SESSIONS, sessions=wanted))]

    assert asked.selections == []


def test_sessions_of_a_principal_that_is_gone_have_a_line_with_the_reason() -> None:
    asked = Asked()
    ids = tuple(map(ClusterSessionId, range(150)))

    asked.handler.on_sessions_revoked(fx.SessionsRevoked(b"app\n", ids, ("10.0.0.7",), "it was removed"))

    names = ("actions", "role", "caller", "proof", "addresses", "session_count", "reason")
    (line,) = asked.told(*names)
    principal = line[3]
    assert line == (
        *("audit.right_ended", ["session"], "client", principal, "password", ("10.0.0.7",), 150, "it was removed"),
    )
    assert "\n" not in str(principal)
