"""Planted bugs in what a snapshot holds, when it counts, and where the log goes on after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trimaran.cluster.core.sessions.sessions import ClusterSession, SessionManager
from trimaran.cluster.core.snapshots.snapshot import ModuleSnapshot, SnapshotControl, SnapshotPlace
from trimaran.cluster.messages.snapshot import ClientSessionSnapshot, ModuleMessage, Timer
from trimaran.cluster.runtime.snapshots.snapshot_recording import SnapshotWriter
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.service_api.types import TermId
from trimaran.service_api.wire.log.messages import ClusterActionRequest

from .plant import SNAPSHOT_HUNT_OPTIONS, Plant, Planting


def _count_what_is_not_durable(planting: Planting) -> None:
    """The recording log names a snapshot of which the last bytes are with the kernel, or not even there."""

    async def finish(self: SnapshotWriter) -> int:
        planting.ran()
        return self.recording.recording_id

    planting.replace(SnapshotWriter, "finish", finish)


def _vote_as_the_snapshot_did(planting: Planting) -> None:
    real = SnapshotControl.restore

    def restore(
        self: SnapshotControl, snapshot: ModuleSnapshot, clients: Sequence[ClientSessionSnapshot], timestamp: int
    ) -> None:
        real(self, snapshot, clients, timestamp)
        if self._ctx.candidate_term_id > snapshot.leadership_term_id:
            planting.ran()
            self._ctx.candidate_term_id = TermId(snapshot.leadership_term_id)

    planting.replace(SnapshotControl, "restore", restore)


def _replay_what_the_snapshot_holds(planting: Planting) -> None:
    def start_from(self: BoundedLogAdapter, position: int) -> None:
        planting.ran()

    planting.replace(BoundedLogAdapter, "start_from", start_from)


def _deliver_while_a_snapshot_is_taken(planting: Planting) -> None:
    real = SnapshotControl.on_replay_action

    def on_replay_action(self: SnapshotControl, event: ClusterActionRequest, end_position: int) -> bool:
        if real(self, event, end_position):
            planting.ran()
        return False

    planting.replace(SnapshotControl, "on_replay_action", on_replay_action)


def _forget_timers(planting: Planting) -> None:
    real: Any = SnapshotControl._module_messages

    def module_messages(self: SnapshotControl, place: SnapshotPlace) -> Iterator[ModuleMessage]:
        for message in real(self, place):
            if isinstance(message, Timer):
                planting.ran()
            else:
                yield message

    planting.replace(SnapshotControl, "_module_messages", module_messages)


def _give_a_session_id_again(planting: Planting) -> None:
    real: Any = SessionManager.restore

    def restore(self: SessionManager, sessions: Iterable[ClusterSession], *, next_session_id: int) -> None:
        planting.ran()
        real(self, sessions, next_session_id=max(1, next_session_id - 1))

    planting.replace(SessionManager, "restore", restore)


PLANTS = tuple(
    Plant(name, class_number, rule, break_it, options=SNAPSHOT_HUNT_OPTIONS)
    for name, class_number, rule, break_it in (
        ("snapshot-not-durable", 7, "a snapshot counts once it is complete and durable", _count_what_is_not_durable),
        ("snapshot-term-back", 11, "a snapshot never takes the term back", _vote_as_the_snapshot_did),
        ("snapshot-replayed-too", 12, "a replay begins where the snapshot ends", _replay_what_the_snapshot_holds),
        ("snapshot-timers-lost", 25, "timers are in snapshots", _forget_timers),
        ("snapshot-moves-on", 31, "delivery stands still for a snapshot", _deliver_while_a_snapshot_is_taken),
        ("snapshot-id-again", 31, "session ids go on after a snapshot", _give_a_session_id_again),
    )
)
