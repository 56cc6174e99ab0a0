"""Compares a service that loaded a snapshot with the one that was replayed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...service_api import ClusteredService, ClusterError
from ...service_api.service_texts import texts_of
from ...service_api.wire.log.recording_log import RecordingLogEntry
from ..service.state_difference import DERIVED_ADVICE, FORGOTTEN_ADVICE, describe_difference, find_forgotten
from .container import Bystander
from .difference import compare_outputs
from .member_log import READ_BYTES, MemberLog, SnapshotSet
from .output_texts import OutputTexts
from .outputs import Output
from .replay import ReplayedService
from .snapshot_comparison import SnapshotComparison


class Collector:
    """A sink that keeps outputs while it is wanted to."""

    def __init__(self) -> None:
        self.is_on = False
        self.outputs: list[Output] = []

    def __call__(self, output: Output) -> None:
        """Keep one output."""
        if self.is_on:
            self.outputs.append(output)

    def take(self) -> list[Output]:
        """Return what was kept, and keep it no more."""
        outputs, self.outputs = self.outputs, []
        return outputs


def compare_loaded(
    log: MemberLog,
    replayed: ReplayedService,
    collector: Collector,
    snapshot: SnapshotSet,
    fresh: Sequence[ClusteredService],
    *,
    messages: Callable[[RecordingLogEntry], Iterator[bytes]],
    app_version: int,
) -> str | None:
    """Load a snapshot into fresh services, and say in what these are not what `replayed` has come to at its position.

    `collector` is the sink of `replayed`, which is advanced to its end.
    """
    loaded_collector = Collector()
    loaded = ReplayedService(
        log,
        fresh,
        snapshot,
        end_position=replayed.end_position,
        app_version=app_version,
        sink=loaded_collector,
    )
    is_hashed, unkept = True, None
    for entry, service, other in zip(snapshot.entries[1:], replayed.services, loaded.services, strict=True):
        if isinstance(service, Bystander):
            continue
        where = f"service {entry.service_id}"
        if service.has_state_hash:
            if problem := describe_difference(service.state_hash(), other.state_hash()):
                problem = texts_of(service).states(service, other) or problem
                return f"{where}: the state after loading is not the one before: {problem}; {FORGOTTEN_ADVICE}"
            continue
        is_hashed = False
        comparing = SnapshotComparison(messages(entry), texts_of(service))
        comparing.skip_container()
        loaded.write_snapshot(comparing, entry.service_id)
        if (difference := comparing.finish()) is not None:
            return f"{where}: a snapshot after loading is not the one loaded: {difference}; {FORGOTTEN_ADVICE}"
        forgotten = find_forgotten(service, other)
        if forgotten is not None and unkept is None:
            unkept = f"{where}: not in the snapshot: {forgotten}; {FORGOTTEN_ADVICE} {DERIVED_ADVICE}"
    return None if is_hashed else _compare_outputs(replayed, loaded, collector, loaded_collector) or unkept


def _compare_outputs(
    replayed: ReplayedService, loaded: ReplayedService, collector: Collector, loaded_collector: Collector
) -> str | None:
    """Deliver the rest of the log to both, some of it at a time, and compare what they give out."""
    collector.is_on = loaded_collector.is_on = True
    position = replayed.delivered_position
    while position < replayed.end_position:
        position = min(position + READ_BYTES, replayed.end_position)
        try:
            for each in (replayed, loaded):
                each.advance(position)
        except ClusterError:
            return None  # the log is damaged there: that is the verdict of the stretch which ends after it
        difference = next(iter(compare_outputs(collector.take(), loaded_collector.take())), None)
        if difference is not None:
            return (
                f"after loading it gives out another {difference.output.kind} at position={difference.position}: "
                f"{OutputTexts(replayed.services).difference(difference)}; {FORGOTTEN_ADVICE}"
            )
    return None
