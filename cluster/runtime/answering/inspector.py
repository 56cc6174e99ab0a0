"""Answers inspection requests: makes documents of what the consensus module holds at that moment.

Nothing is counted or kept for it, and nothing is changed. An answer of the longest kind, a thousand sessions, takes
some milliseconds of the loop; no more can ask at once than the document server lets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....service_api import Clock, RemoteProtocolError, Role
from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import format_cluster_id
from ....service_api.documents.document import printable_line, read_document
from ....service_api.types import NULL_POSITION, TICKS_PER_MS
from ...core.consensus_module import ConsensusModule
from ...core.membership.membership_control import has_log
from ...core.sessions.pending_sessions import NO_ADDRESS
from ...core.sessions.sessions import ClusterSession
from ...core.vocabulary.configuration import ConfiguredMember
from ...core.vocabulary.members import ClusterMember
from ...core.vocabulary.timers import EVERY_SERVICE, TimerIds
from ...documents.inspection import (
    InspectionRefusal,
    InspectionRequest,
    MembersView,
    MemberView,
    SessionOrder,
    SessionsView,
    SessionView,
    TimersView,
    TimerView,
    Topic,
    View,
)
from ..links.document_server import DocumentRow, answering_once
from ..links.session_traffic import SILENT, SessionRate, SessionTraffic
from ..turns.queries import DeliveredLog
from .status import ROLE_NAMES, member_state_name

_NS_PER_S: Final = 1_000_000_000

_RATES: Final[dict[SessionOrder, Callable[[SessionRate], float]]] = {
    SessionOrder.MESSAGES: lambda rate: rate.messages_per_s,
    SessionOrder.BYTES: lambda rate: rate.bytes_per_s,
}


class Inspector:
    """Makes the documents of `trimaran.cluster.documents.inspection` about one member."""

    def __init__(
        self,
        module: ConsensusModule,
        *,
        clock: Clock,
        delivered: DeliveredLog,
        last_activity_ns: Callable[[int], int | None],
        traffic: SessionTraffic,
    ) -> None:
        self._module = module
        self._clock = clock
        self._delivered = delivered
        self._last_activity_ns = last_activity_ns
        self._traffic = traffic

    def __repr__(self) -> str:
        return f"<Inspector {self._module!r}>"

    @property
    def row(self) -> DocumentRow:
        """How requests of callers are answered."""
        return DocumentRow(answering_once(self.answer), lambda request: Permission.INSPECTION)

    async def answer(self, request: bytes) -> bytes:
        """Make the document that was asked for, or say why there is none."""
        try:
            wanted = read_document(InspectionRequest, request)
        except RemoteProtocolError as error:
            refusal = InspectionRefusal(refused=printable_line(str(error)))
            return refusal.model_dump_json().encode()
        return self.describe(wanted).model_dump_json().encode()

    def describe(self, request: InspectionRequest) -> View:
        """Make the document about a topic."""
        window = slice(request.offset, request.offset + request.limit)
        if request.topic is Topic.MEMBERS:
            return self._describe_members(window)
        if request.topic is Topic.SESSIONS:
            return self._describe_sessions(window, request.order)
        return self._describe_timers(window)

    @property
    def _term_id(self) -> int | None:
        return _id_or_none(self._module.ctx.leadership_term_id)

    def _describe_members(self, window: slice) -> MembersView:
        ctx = self._module.ctx
        configuration = ctx.roster.current
        return MembersView(
            answered_by=ctx.config.member_id,
            cluster_id=format_cluster_id(ctx.cluster_id),
            group=ctx.config.group.label,
            role=ROLE_NAMES[ctx.role],
            state=member_state_name(self._module),
            leader_member_id=ctx.leader_member_id,
            leadership_term_id=self._term_id,
            candidate_term_id=_id_or_none(ctx.candidate_term_id),
            commit_position=ctx.commit_position,
            log_recording_id=ctx.log_recording_id,
            total_count=len(configuration.members),
            configuration_position=configuration.log_position,
            high_member_id=configuration.high_member_id,
            feature_level=ctx.feature_levels.feature_level,
            members=[self._describe_member(member) for member in configuration.members[window]],
        )

    def _describe_member(self, endpoints: ConfiguredMember) -> MemberView:
        ctx = self._module.ctx
        known = ctx.members[endpoints.member_id]
        is_me = known is ctx.me
        position = ctx.append_position if is_me else self._reported_position(known)
        known_level = ctx.config.known_level if is_me else known.known_level
        heard_ns = None if is_me or position is None else known.time_of_last_append_ns
        return MemberView(
            member_id=known.member_id,
            kind=endpoints.kind.value,
            is_leader=known.member_id == ctx.leader_member_id,
            is_connected=is_me or known.is_reachable,
            append_position=position,
            lag_bytes=None if position is None else max(0, ctx.append_position - position),
            silent_s=None if heard_ns is None else self._age_s(heard_ns),
            is_catching_up=known.is_catching_up,
            has_log=has_log(ctx, known) if ctx.role is Role.LEADER else None,
            feature_level=None if known_level is None else known_level.feature_level,
            limiting_service=None if known_level is None else known_level.limiting_service or None,
            ingress=endpoints.ingress,
            consensus=endpoints.consensus,
            log=endpoints.log,
            catchup=endpoints.catchup,
            archive=endpoints.archive,
        )

    def _reported_position(self, member: ClusterMember) -> int | None:
        """Return what a member reported in this term; only a leader is told."""
        ctx = self._module.ctx
        if ctx.role is not Role.LEADER or member.append_leadership_term_id != ctx.leadership_term_id:
            return None
        return None if member.append_position == NULL_POSITION else member.append_position

    def _describe_sessions(self, window: slice, order: SessionOrder) -> SessionsView:
        ctx, manager = self._module.ctx, self._module.sessions
        rates = self._traffic.find_rates()
        ids = sorted(manager.sessions)
        if order is SessionOrder.IDLE:
            ids.sort(key=lambda each: -(self._idle_s(manager.sessions[each]) or 0.0))
        elif order is not SessionOrder.ID:
            rate_of = _RATES[order]
            ids.sort(key=lambda each: -rate_of(rates.get(each, SILENT)))
        return SessionsView(
            answered_by=ctx.config.member_id,
            cluster_id=format_cluster_id(ctx.cluster_id),
            group=ctx.config.group.label,
            role=ROLE_NAMES[ctx.role],
            state=member_state_name(self._module),
            leadership_term_id=self._term_id,
            delivered_position=self._delivered.position,
            total_count=len(ids),
            sessions=[
                self._describe_session(manager.sessions[session_id], rates.get(session_id, SILENT))
                for session_id in ids[window]
            ],
        )

    def _describe_session(self, session: ClusterSession, rate: SessionRate) -> SessionView:
        session_id = session.cluster_session_id
        client, leads = self._traffic.find_client(session_id), self._module.ctx.role is Role.LEADER
        assert client is not None
        return SessionView(
            cluster_session_id=session_id,
            principal=client.principal,
            state=session.state.value,
            opened_log_position=session.opened_log_position,
            idle_s=self._idle_s(session),
            is_connected=self._module.sessions.connection_of(session_id) is not None,
            address=None if client.address == NO_ADDRESS else client.address,
            client_info=client.client_info or None,
            client_version=client.client_version or None,
            messages_per_s=rate.messages_per_s if leads else None,
            bytes_per_s=rate.bytes_per_s if leads else None,
        )

    def _idle_s(self, session: ClusterSession) -> float | None:
        connection_id = self._module.sessions.connection_of(session.cluster_session_id)
        if self._module.ctx.role is not Role.LEADER:
            return None
        heard_ns = None if connection_id is None else self._last_activity_ns(connection_id)
        return self._age_s(max(session.time_of_last_activity_ns, heard_ns or 0))

    def _describe_timers(self, window: slice) -> TimersView:
        ctx = self._module.ctx
        pending, ids = (
            self._module.timers.pending(),
            TimerIds(ctx.config.service_count, is_shared=ctx.config.shared_timer_ids),
        )
        ticks_per_ms = TICKS_PER_MS[ctx.time_unit]
        now_ns, clock = self._clock.monotonic_ns(), ctx.cluster_clock
        is_leader = self._module.leader is not None
        now = clock.read(now_ns) if is_leader else clock.expect(now_ns, self._clock.epoch_time())
        return TimersView(
            answered_by=ctx.config.member_id,
            cluster_id=format_cluster_id(ctx.cluster_id),
            group=ctx.config.group.label,
            role=ROLE_NAMES[ctx.role],
            state=member_state_name(self._module),
            leadership_term_id=self._term_id,
            cluster_time=now,
            total_count=len(pending),
            timers=[
                TimerView(
                    correlation_id=correlation_id,
                    service_id=None if service_id == EVERY_SERVICE else service_id,
                    deadline=deadline,
                    due_in_s=round((deadline - now) / (1_000 * ticks_per_ms), 3),
                )
                for (service_id, correlation_id), deadline in ((ids.decode(key), due) for key, due in pending[window])
            ],
        )

    def _age_s(self, moment_ns: int) -> float:
        """Seconds since a moment; a turn may have read the clock a little later than this one began."""
        return max(0, round((self._clock.monotonic_ns() - moment_ns) / _NS_PER_S, 3))


def _id_or_none(value: int) -> int | None:
    return None if value < 0 else value
