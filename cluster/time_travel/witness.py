"""Compares a replay with the log: the log holds the effects of all outputs but egress.

A message that a service offered is in the log, with the id that it got; a timer that was set has fired, or was moved or
cancelled; a session that was closed for the service has an entry that says so. So one service can be held against the
log alone, without the code that ran then. What clients were told is in no log.

What is no contradiction: a timer that fires although it was just moved or cancelled (its event was on the way), and
whatever is asked for so shortly before the end that the log does not show yet what came of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import chain, islice
from typing import Final

from ...service_api import CloseReason
from ...service_api.types import TICKS_PER_MS, ClusterSessionId
from ...service_api.wire.log.messages import (
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from ..core.consensus_module import ConsensusModule
from ..core.service_messages import service_id_of
from ..service.agent import ClusteredServiceAgent
from .container import Bystander
from .difference import Change, OutputDifference
from .outputs import Output, OutputKind

SETTLED_MS: Final = 1000
"""What was asked for so long before the end should have come to something in the log."""

_SEARCH_LIMIT: Final = 1000
"""How many offers are looked at for one that became a message of the log."""

_FORGOTTEN_LIMIT: Final = 100_000
"""Timers that were moved or cancelled and whose events may still come: the newest ones are remembered."""


class LogWitness:
    """Implements `ModuleReplay` for a module, and tells of each entry that the service's outputs do not account for."""

    def __init__(self, on_difference: Callable[[OutputDifference], None]) -> None:
        self._on_difference = on_difference
        self._module: ConsensusModule
        self._container: ClusteredServiceAgent
        self._offers: dict[int, deque[Output]] = {}
        """By service, those that are not delivered yet, whatever their ids: one more gives later ones other ids."""
        self._timers: dict[int, Output] = {}
        """By their ids, those that are set."""
        self._withdrawn: OrderedDict[int, int] = OrderedDict()
        """Ids of timers that were moved or cancelled, and whose events may be on the way."""
        self._closing: dict[int, Output] = {}

    def attach(self, module: ConsensusModule, container: ClusteredServiceAgent) -> None:
        """Take over what is open where the replay begins."""
        self._module, self._container = module, container
        position, timestamp = container.log_position, container.time
        for correlation_id, deadline in module.timers.pending():
            self._timers[correlation_id] = Output(
                position, timestamp, OutputKind.TIMER_SCHEDULED, None, correlation_id, deadline=deadline
            )
        for tracker in module.service_messages.trackers:
            first_id = tracker.next_service_session_id - len(tracker)
            for message_id, payload in enumerate(tracker.payloads, first_id):
                self.on_output(Output(position, timestamp, OutputKind.OFFER, message_id, payload=payload))
        for session in container.sessions.values():
            if session.is_closing:
                self._closing[session.id] = Output(position, timestamp, OutputKind.SESSION_CLOSE, session.id)

    def on_output(self, output: Output) -> None:
        """Take note of what the service asks for."""
        if output.kind is OutputKind.OFFER:
            assert output.cluster_session_id is not None
            self._offers.setdefault(service_id_of(output.cluster_session_id), deque()).append(output)
        elif output.kind is OutputKind.TIMER_SCHEDULED:
            assert output.correlation_id is not None
            if output.correlation_id in self._timers:
                self._withdraw(output.correlation_id)
            self._timers[output.correlation_id] = output
        elif output.kind is OutputKind.TIMER_CANCELLED:
            assert output.correlation_id is not None
            self._timers.pop(output.correlation_id, None)
            self._withdraw(output.correlation_id)
        elif output.kind is OutputKind.SESSION_CLOSE:
            assert output.cluster_session_id is not None
            self._closing[output.cluster_session_id] = output

    def finish(self) -> None:
        """The log ends: tell what should have come to something, and did not."""
        time = self._container.time - SETTLED_MS * TICKS_PER_MS[self._container.time_unit]
        for timer in self._timers.values():
            if timer.deadline is not None and timer.deadline < time:
                self._tell(Change.EXTRA, None, timer)
        for output in (*chain.from_iterable(self._offers.values()), *self._closing.values()):
            if output.timestamp < time:
                self._tell(Change.EXTRA, None, output)

    # --- a `ModuleReplay`

    def on_replay_session_open(self, event: SessionOpenEvent, end_position: int) -> None:
        """A session was opened."""
        self._module.on_replay_session_open(event, end_position)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A session was closed; for a service only if one has asked for it."""
        asked = self._closing.pop(event.cluster_session_id, None)
        if asked is None and event.close_reason is CloseReason.SERVICE_ACTION and self._is_whole:
            self._tell(Change.MISSING, self._entry(OutputKind.SESSION_CLOSE, event.cluster_session_id), None)
        self._module.on_replay_session_close(event)

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: memoryview) -> int | None:
        """A message of a service: it must be the one that was offered next."""
        service_id = service_id_of(session_id)
        if self._is_replayed(service_id):
            self._on_delivered(self._entry(OutputKind.OFFER, session_id, payload=bytes(payload)), service_id)
        return self._module.on_replay_service_message(session_id, payload)

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        """A new leader's first entry."""
        self._module.on_replay_new_leadership_term(event, code_digest)

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        """A timer fired: it must have been set, and not for later."""
        timer = self._timers.pop(event.correlation_id, None)
        withdrawn = self._withdrawn.pop(event.correlation_id, None)
        entry = self._entry(OutputKind.TIMER_SCHEDULED, None, event.correlation_id)
        if withdrawn is None and self._is_whole:
            if timer is None:
                self._tell(Change.MISSING, entry, None)
            elif timer.deadline is not None and timer.deadline > event.timestamp:
                self._tell(Change.CHANGED, entry, timer)
        self._module.on_replay_timer_event(event)

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action."""
        return self._module.on_replay_cluster_action(event, end_position)

    def on_replay_membership_change(self, event: MembershipChangeEvent, end_position: int) -> None:
        """The members changed."""
        self._module.on_replay_membership_change(event, end_position)

    def on_replay_feature_level(self, event: FeatureLevelRaise) -> None:
        """Another feature level is in force behind this entry."""
        self._module.on_replay_feature_level(event)

    def on_replay_entry_skip(self, event: EntrySkip) -> bool:
        """An earlier entry is skipped."""
        return self._module.on_replay_entry_skip(event)

    def _on_delivered(self, entry: Output, service_id: int) -> None:
        """Find the offer that the log's message came of; what was offered before it is not in the log."""
        offers = self._offers.get(service_id, deque())
        for skipped, offer in enumerate(islice(offers, _SEARCH_LIMIT)):
            if offer.payload == entry.payload:
                for _ in range(skipped):
                    self._tell(Change.EXTRA, None, offers.popleft())
                offers.popleft()
                return
        self._tell(Change.MISSING, entry, None)

    @property
    def _is_whole(self) -> bool:
        """Whether every service of the node is replayed: else another one may have set the timer."""
        return not any(isinstance(service, Bystander) for service in self._container.services)

    def _is_replayed(self, service_id: int) -> bool:
        services = self._container.services
        return service_id < len(services) and not isinstance(services[service_id], Bystander)

    def _withdraw(self, correlation_id: int) -> None:
        self._withdrawn[correlation_id] = correlation_id
        self._withdrawn.move_to_end(correlation_id)
        if len(self._withdrawn) > _FORGOTTEN_LIMIT:
            self._withdrawn.popitem(last=False)

    def _entry(
        self,
        kind: OutputKind,
        cluster_session_id: int | None = None,
        correlation_id: int | None = None,
        payload: bytes = b"",
    ) -> Output:
        """What a service must have asked for, by the entry that is being delivered."""
        container = self._container
        return Output(container.log_position, container.time, kind, cluster_session_id, correlation_id, payload=payload)

    def _tell(self, change: Change, old: Output | None, new: Output | None) -> None:
        self._on_difference(OutputDifference(change, old, new))
