"""Planted bugs in messages that services offer, and in what several services of a node share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimaran.cluster.core.service_messages import PendingServiceMessageTracker, ServiceMessages, TrackerState
from trimaran.cluster.core.vocabulary.timers import TimerIds
from trimaran.service_api.types import ClusterSessionId

from .plant import RELAY_HUNT_OPTIONS, Plant, Planting


def _forget_what_was_appended(planting: Planting) -> None:
    """Whoever leads next takes what is queued by then for appended: the leader before has seen to it."""

    def roll_back(self: PendingServiceMessageTracker) -> None:
        if self._unsent:
            planting.ran()
        self._appended.extend(self._unsent)
        self._unsent.clear()

    planting.replace(PendingServiceMessageTracker, "roll_back", roll_back)


def _append_twice(planting: Planting) -> None:
    """What was appended stays in line until it is delivered, and is appended meanwhile."""
    real = PendingServiceMessageTracker.take_unsent

    def take_unsent(self: PendingServiceMessageTracker) -> Iterator[tuple[int, bytes]]:
        taken = [*real(self)]
        yield from taken
        if len(taken) > 2:
            planting.ran()
            yield taken[-1]

    planting.replace(PendingServiceMessageTracker, "take_unsent", take_unsent)


def _leave_trackers_out_of_snapshots(planting: Planting) -> None:
    def restore(self: ServiceMessages, states: Sequence[TrackerState]) -> None:
        if any(state != tracker.state() for state, tracker in zip(states, self.trackers, strict=True)):
            planting.ran()

    planting.replace(ServiceMessages, "restore", restore)


def _leave_the_queue_out_of_snapshots(planting: Planting) -> None:
    """Only what has no place in the log yet: on the leader, which has appended it, that is another state."""
    real = PendingServiceMessageTracker.state

    def state(self: PendingServiceMessageTracker) -> TrackerState:
        found = real(self)
        if not self._appended:
            return found
        planting.ran()
        next_id = found.next_service_session_id - len(self._unsent)
        return TrackerState(found.service_id, next_id, found.log_service_session_id + len(self._appended), ())

    planting.replace(PendingServiceMessageTracker, "state", state)


def _deliver_what_was_delivered(planting: Planting) -> None:
    """Ids are counted, but what the log has delivered stays queued where this member leads."""
    real = PendingServiceMessageTracker.on_delivered

    def on_delivered(self: PendingServiceMessageTracker, session_id: int, payload: bytes | memoryview) -> str | None:
        if self._appended or len(self._unsent) < 2:
            return real(self, session_id, payload)
        planting.ran()
        self.log_service_session_id = session_id
        return None

    planting.replace(PendingServiceMessageTracker, "on_delivered", on_delivered)


def _give_timers_to_the_first_service(planting: Planting) -> None:
    real = TimerIds.decode

    def decode(self: TimerIds, log_id: int) -> tuple[int, int]:
        service_id, correlation_id = real(self, log_id)
        if service_id:
            planting.ran()
        return 0, correlation_id

    planting.replace(TimerIds, "decode", decode)


def _keep_a_message_from_followers(planting: Planting) -> None:
    """Only the member that appended a message takes it off its queue."""
    real = ServiceMessages.on_replay_service_message

    def on_replay(self: ServiceMessages, session_id: ClusterSessionId, payload: bytes | memoryview) -> int | None:
        if any(tracker._appended for tracker in self.trackers):
            return real(self, session_id, payload)
        planting.ran()
        return 1

    planting.replace(ServiceMessages, "on_replay_service_message", on_replay)


PLANTS = tuple(
    Plant(name, class_number, rule, break_it, options=RELAY_HUNT_OPTIONS, scenario=scenario)
    for name, class_number, rule, break_it, scenario in (
        (
            "relay-not-sent-again",
            32,
            "messages that a deposed leader appended become pending again",
            _forget_what_was_appended,
            "lost-offers",
        ),
        ("relay-sent-twice", 35, "a message of a service is appended once", _append_twice, None),
        (
            "relay-tracker-lost",
            31,
            "the ids of services' messages are in snapshots",
            _leave_trackers_out_of_snapshots,
            None,
        ),
        (
            "relay-queue-lost",
            31,
            "messages that services offered are in snapshots",
            _leave_the_queue_out_of_snapshots,
            None,
        ),
        (
            "relay-log-unseen",
            32,
            "a message that is in the log is pending on no member",
            _deliver_what_was_delivered,
            None,
        ),
        (
            "relay-followers-keep",
            32,
            "followers drop pending messages that they see in the log",
            _keep_a_message_from_followers,
            None,
        ),
        ("relay-timer-astray", 25, "a timer fires in the service that set it", _give_timers_to_the_first_service, None),
    )
)
