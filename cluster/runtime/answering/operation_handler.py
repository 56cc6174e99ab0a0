"""Runs the operations that operators request, through the agent of the leader."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from ....service_api import ClusterError, ConfigurationError, NotLeaderError, RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.identity import Caller, CallerRole, Proof
from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import (
    NULL_CLUSTER_ID,
    describe_other_cluster,
    format_cluster_id,
    parse_cluster_id,
)
from ....service_api.documents.document import printable_line, read_document
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import AcceptedConnection, address_of
from ....service_api.types import NULL_VALUE, ClusterSessionId, MemberId
from ...core import effects as fx
from ...core.events import ActionRequested
from ...core.log.log_comparison import LogDifference
from ...core.vocabulary.configuration import PORTS_PER_MEMBER
from ...core.vocabulary.control_toggle import ActionStep, ControlToggle
from ...core.vocabulary.member_change import MemberChange
from ...core.vocabulary.session_selection import SessionSelection
from ...documents.operations import ActionRefusedError, Operation, OperationProgress, OperationRequest
from ..files.process_log import ProcessLog
from ..links.document_server import DocumentRow
from ..repair.comparing import LogComparer
from ..repair.upkeep import Upkeep
from ..turns.agent import ConsensusModuleAgent
from ..turns.departure import Departure
from .order_relay import OrderRelay

_TOGGLES: Final = {
    Operation.SUSPEND: ControlToggle.SUSPEND,
    Operation.RESUME: ControlToggle.RESUME,
    Operation.SNAPSHOT: ControlToggle.SNAPSHOT,
    Operation.SHUTDOWN: ControlToggle.SHUTDOWN,
    Operation.ABORT: ControlToggle.ABORT,
    Operation.SKIP_ENTRY: ControlToggle.SKIP_ENTRY,
    Operation.CHANGE_MEMBERS: ControlToggle.CHANGE_MEMBERS,
    Operation.RAISE_FEATURE_LEVEL: ControlToggle.RAISE_FEATURE_LEVEL,
    Operation.STANDBY_SNAPSHOT: ControlToggle.STANDBY_SNAPSHOT,
    Operation.CLOSE_SESSIONS: ControlToggle.CLOSE_SESSIONS,
}
"""The actions of the whole cluster that the consensus module is asked for; `OperationHandler._begin` has the others."""

_SHOWN_SESSIONS: Final = 100
"""Sessions that an audit line names; beyond that it has their number."""

_OF_ONE_MEMBER: Final = frozenset({Operation.STOP_MEMBER, Operation.SCRUB, Operation.TRUST_LOG, Operation.LOG_LEVEL})
"""The operations that the asked member does itself, whether it leads or not."""


class OperationHandler:
    """Where this member is asked: by its own process, on the consensus endpoint, or at its control socket."""

    def __init__(
        self,
        agent: ConsensusModuleAgent,
        *,
        relay: OrderRelay,
        audit: AuditTrail,
        departure: Departure,
        upkeep: Upkeep,
        comparer: LogComparer,
    ) -> None:
        self._agent = agent
        self._relay = relay
        self._departure = departure
        self._upkeep = upkeep
        self._comparer = comparer
        self._audit = audit
        self.process_log: ProcessLog | None = None
        """The log of this process; None where the process is not a member's alone."""

    def __repr__(self) -> str:
        return f"<OperationHandler {self._agent!r}>"

    async def run(
        self, operation: Operation, *, log_position: int | None = None, target_member_id: int | None = None
    ) -> int:
        """Have the cluster do something; give its log position once this member has done it.

        Raises:
            NotLeaderError: another member leads, or none.
            ActionRefusedError: nothing was done, as things are.
            ClusterError: it was not done here, or it is not known whether it will be.
        """
        module = self._agent.module
        if module.leader is None:
            raise NotLeaderError(
                module.ctx.leader_member_id, [member.ingress for member in module.ctx.roster.latest.members]
            )
        request = OperationRequest(operation=operation, log_position=log_position, target_member_id=target_member_id)
        async with aclosing(self._begin(request)) as steps:
            *_, last = [step async for step in steps]
        if last.step is ActionStep.REFUSED:
            raise ActionRefusedError(f"{operation} refused: {last.detail}")
        if last.step is not ActionStep.DONE or last.log_position is None:
            raise ClusterError(f"{operation} {last.step}: {last.detail}")
        return last.log_position

    @property
    def row(self) -> DocumentRow:
        """How requests of callers are answered."""
        return DocumentRow(self.answer, self._find_permission)

    def _find_permission(self, request: bytes) -> Permission:
        """Return what the caller has to be allowed for a request.

        Raises:
            RemoteProtocolError: it is no request, or one of another schema version.
        """
        return Permission(read_document(OperationRequest, request).operation.value)

    async def answer(self, request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        """Do what a caller asks for that may, and tell each step; the audit trail has its begin and its end.

        The end is in the audit trail before the caller hears of it.

        Raises:
            RemoteProtocolError: it is no request, or one of another schema version.
        """
        document = read_document(OperationRequest, request)
        operation, parameters = document.operation, document.model_dump(exclude={"operation"}, exclude_defaults=True)
        self._audit.begun(operation, asker, **parameters)
        outcome, log_position, detail = "unknown", None, "the caller left before the end"
        last: fx.ActionProgressed | None = None
        try:
            async with aclosing(self._run(document, asker)) as steps:
                async for step in steps:
                    outcome, detail = str(step.step), step.detail
                    log_position = log_position if step.log_position is None else step.log_position
                    if step.is_final:
                        last = step
                        break
                    yield self._describe(operation, step)
        except ClusterError as error:
            outcome, detail = "failed", str(error)
            raise
        finally:
            facts = {**parameters, "log_position": log_position, "detail": printable_line(detail)}
            self._audit.ended(operation, asker, outcome, **facts)
        if last is not None:
            yield self._describe(operation, last)

    def on_admin_progressed(self, effect: fx.AdminProgressed) -> None:
        """Write the audit line of a client's admin request.

        What is refused because of what goes on already is limited, too: a client may ask for it without end.
        """
        asker, action = effect.asker, effect.asker.permission
        facts = {
            "session_id": asker.cluster_session_id,
            "principal": printable_line(asker.principal.decode(errors="replace")),
        }
        if effect.step is ActionStep.REFUSED:
            self._audit.refused(action, asker, effect.detail, **facts)
        elif effect.step is None:
            self._audit.begun(action, asker, **facts)
        else:
            detail = printable_line(effect.detail)
            self._audit.ended(action, asker, str(effect.step), **facts, log_position=effect.log_position, detail=detail)

    def on_sessions_revoked(self, effect: fx.SessionsRevoked) -> None:
        """Write the audit line of sessions that end because their principal is gone."""
        principal = printable_line(effect.encoded_principal.decode(errors="replace"))
        self._audit.right_ended(
            [Permission.SESSION],
            Caller(CallerRole.CLIENT, principal, Proof.PASSWORD),
            reason=printable_line(effect.reason),
            addresses=effect.addresses,
            session_ids=effect.cluster_session_ids[:_SHOWN_SESSIONS],
            session_count=len(effect.cluster_session_ids),
        )

    async def _run(
        self, document: OperationRequest, asker: AcceptedConnection
    ) -> AsyncGenerator[fx.ActionProgressed, None]:
        """Do it, or have the leader do it, unless another cluster was meant."""
        ctx, demanded = self._agent.module.ctx, parse_cluster_id(document.cluster_id or "")
        if demanded not in (NULL_CLUSTER_ID, ctx.cluster_id, ctx.whole_cluster_id):
            running = self._tell(ActionStep.REFUSED, describe_other_cluster(ctx.cluster_id, expected=demanded))
        elif document.operation not in _OF_ONE_MEMBER and self._relay.passes_on(document):
            running = self._relay.run(document, asker)
        else:
            running = self._begin(document)
        async with aclosing(running) as steps:
            async for step in steps:
                yield step

    def _begin(self, document: OperationRequest) -> AsyncGenerator[fx.ActionProgressed, None]:
        if document.operation is Operation.TRANSFER:
            return self._agent.run_transfer(document.target_member_id)
        if document.operation is Operation.STOP_MEMBER:
            return self._departure.run()
        if document.operation is Operation.SCRUB:
            self._upkeep.ask()
            return self._tell(ActionStep.DONE, "it reads everything that it has recorded")
        if document.operation is Operation.TRUST_LOG:
            return self._trust_log(document.target_member_id)
        if document.operation is Operation.LOG_LEVEL:
            return self._set_log_level(document.log_level)
        wanted = ActionRequested(
            NULL_VALUE,
            _TOGGLES[document.operation],
            document.log_position,
            _read_change(document),
            document.feature_level,
            _read_selection(document),
        )
        return self._agent.run_action(wanted)

    def _trust_log(self, member_id: int | None) -> AsyncGenerator[fx.ActionProgressed, None]:
        ctx = self._agent.module.ctx
        held = ctx.held
        if not isinstance(held, LogDifference):
            return self._tell(ActionStep.DONE, "this member does not hold: nothing is to be decided here")
        if member_id is None or member_id not in held.member_ids:
            expected = sorted(held.member_ids)
            return self._tell(ActionStep.REFUSED, f"member_id={member_id} expected one of {expected}, which differ")
        self._comparer.trust(MemberId(member_id))
        return self._tell(ActionStep.DONE, f"it takes the log of member {member_id} for the valid one")

    def _set_log_level(self, level: str | None) -> AsyncGenerator[fx.ActionProgressed, None]:
        log = self.process_log
        if log is None:
            return self._tell(ActionStep.REFUSED, "the log of this process is not the member's alone")
        before = log.level
        try:
            log.set_level(level or "")
        except ConfigurationError as error:
            return self._tell(ActionStep.REFUSED, str(error))
        return self._tell(ActionStep.DONE, f"it logs from {level} on, before from {before} on")

    async def _tell(self, step: ActionStep, detail: str) -> AsyncGenerator[fx.ActionProgressed, None]:
        yield fx.ActionProgressed(
            request_id=NULL_VALUE, step=step, log_position=None, detail=detail, member_id=None, is_final=True
        )

    def _describe(self, operation: Operation, step: fx.ActionProgressed) -> bytes:
        member_id = self._agent.module.ctx.config.member_id
        progress = OperationProgress(
            operation=operation,
            step=step.step,
            cluster_id=format_cluster_id(self._agent.module.ctx.cluster_id),
            member_id=member_id if step.member_id is None else step.member_id,
            log_position=step.log_position,
            detail=printable_line(step.detail),
            is_final=step.is_final,
        )
        return progress.model_dump_json().encode()


def _read_change(document: OperationRequest) -> MemberChange | None:
    """Return how the members are to change; None for other operations.

    Raises:
        RemoteProtocolError: it does not say how, or an endpoint is none.
    """
    if document.operation is not Operation.CHANGE_MEMBERS:
        return None
    change = document.change
    if change is None:
        raise RemoteProtocolError(f"{document.operation}: no change: expected how the members are to change")
    if not change.endpoints:
        return MemberChange(change.kind, change.member_id)
    if len(change.endpoints) != PORTS_PER_MEMBER:
        raise RemoteProtocolError(f"endpoints={len(change.endpoints)} expected {PORTS_PER_MEMBER}")
    try:
        ingress, consensus, log, catchup, archive = (str(Endpoint.parse(each)) for each in change.endpoints)
    except ConfigurationError as error:
        raise RemoteProtocolError(str(error)) from error
    return MemberChange(change.kind, change.member_id, (ingress, consensus, log, catchup, archive))


def _read_selection(document: OperationRequest) -> SessionSelection | None:
    """Return which sessions are to be closed; None for other operations.

    Raises:
        RemoteProtocolError: it does not say which, or says it in two ways.
    """
    if document.operation is not Operation.CLOSE_SESSIONS:
        return None
    given = {} if document.sessions is None else document.sessions.model_dump(exclude_none=True)
    if len(given) != 1:
        raise RemoteProtocolError(
            f"{document.operation}: given={sorted(given)} expected one of cluster_session_id, principal and address"
        )
    if "principal" in given:
        return SessionSelection(encoded_principal=given["principal"].encode())
    if "address" in given:
        return SessionSelection(address=address_of((given["address"], 0)))
    return SessionSelection(ClusterSessionId(given["cluster_session_id"]))
