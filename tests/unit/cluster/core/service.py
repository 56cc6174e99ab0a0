"""A small replicated state machine that uses everything a service may use, and shows the referee what it was given."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.cluster.core.checks import Referee, RuleBroken
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.service_api import CloseReason, Cluster, ClusteredService
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import ClusterSessionId, TimeUnit

TIMER = b"T"
"""A message that begins so asks for a timer: its id, its delay in ms."""
CLOSE = b"C"
"""A message that begins so asks the service to close its session."""
OFFER = b"O"
"""A message that begins so has the service offer as many messages to the log as its second byte says."""


class HistoryService(ClusteredService):
    """Does what messages ask for; every member must be given the same at the same positions."""

    cluster: Cluster

    def __init__(self, referee: Referee, member_id: int) -> None:
        self._referee = referee
        self._member_id = member_id
        self.messages: list[bytes] = []
        self.timers: list[int] = []
        self.offered_count = self.received_count = 0
        """Messages of the service's own: each holds the number that it was offered as."""
        self.error: RuleBroken | None = None
        """The rule that a delivery broke."""

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._tell(timestamp, "open", session.id)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        data = bytes(payload)
        self.messages.append(data)
        self._tell(timestamp, "message", session.id, data)
        if data.startswith(TIMER):
            correlation_id, delay_ms = data[1], data[2]
            self.cluster.schedule_timer(correlation_id, timestamp + delay_ms)
        elif data.startswith(CLOSE):
            session.close()
        elif data.startswith(OFFER):
            for _ in range(data[1]):
                self.offered_count += 1
                self.cluster.offer(b"%d" % self.offered_count)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.received_count += 1
        if bytes(payload) != b"%d" % self.received_count:
            self.error = RuleBroken(f"messages of a service come once, in order: {self.received_count} {payload!r}")
        self._tell(timestamp, "service message", service_id, bytes(payload))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._tell(timestamp, "close", session.id, close_reason)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.timers.append(correlation_id)
        self._tell(timestamp, "timer", correlation_id)

    def on_new_leadership_term_event(
        self,
        *,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        self._tell(timestamp, "term", leadership_term_id, leader_member_id, term_base_log_position)

    def _tell(self, timestamp: int, *what: object) -> None:
        try:
            self._referee.on_delivered(self._member_id, self.cluster.log_position, timestamp, what)
        except RuleBroken as error:
            self.error = error  # an exception that left a callback would pass for a fault of the service


class Requests:
    """What a service asks of its consensus module."""

    def __init__(self, module: ConsensusModule) -> None:
        self._module = module

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        self._module.timers.schedule(correlation_id, deadline)

    def cancel_timer(self, correlation_id: int) -> bool:
        return self._module.timers.cancel(correlation_id)

    def close_session(self, session_id: ClusterSessionId) -> None:
        self._module.sessions.on_service_close(session_id)

    def offer(self, service_id: int, payload: bytes) -> None:
        self._module.service_messages.offer(service_id, payload)

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        self._module.service_messages.trackers[service_id].check_room(lengths)
