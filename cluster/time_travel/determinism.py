"""Checks a service against its own snapshots: a replay from one to the next must write the same bytes.

A service that depends on something else than the log, a random number, a clock, the iteration order of a set of
strings, writes others, and so do members that differ. Each stretch between two snapshots is a task of its own, so the
tasks can run in as many processes, or on as many executors, as there are snapshots.

Then the snapshot is loaded into a new service, which must be what the old one is: a field that the snapshot forgets is
in both snapshots not there, and no comparison of bytes finds it. Where the service has a `state_hash`, that says so.
Otherwise the loaded service writes a snapshot again, which must be the same bytes, and both go on with the log up to
the next snapshot: what they give out must be the same.

What is compared is all that a member records: the container's sessions and kept replies, what each service writes, and
the module's timers, sessions and messages. Of snapshots that a real Aeron Cluster wrote it is what the services wrote.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...archive.files.reader import MessageReader, StopReason
from ...archive.log.member_directory import ArchiveLocation
from ...service_api import ClusteredService, ClusterError
from ...service_api.service_texts import texts_of
from ...service_api.wire.log.recording_log import RecordingLogEntry
from ...service_api.wire.log.snapshot_marker import SnapshotMarker
from ...service_api.wire.message import decode_message
from ..messages.snapshot import CONSENSUS_MODULE_SNAPSHOT_MESSAGES
from ..runtime.snapshots.snapshot_taker import container_messages
from .container import Bystander
from .loading_check import Collector, compare_loaded
from .member_log import MemberLog, SnapshotSet
from .replay import ReplayedService
from .services import ServiceLike, make_services
from .snapshot_comparison import SnapshotComparison


class SnapshotVerdict(NamedTuple):
    """What came of one stretch of the log between two snapshots."""

    from_position: int
    """Where the replay began: at a snapshot, or where the log begins."""
    to_position: int
    """Of the snapshot that it was held against."""
    message_count: int
    """Of that snapshot, as far as it was read."""
    length_bytes: int
    problem: str | None
    """In what they differ, or why they could not be compared; None if they are the same, byte for byte.

    And if a service that loads the snapshot is what the one was that wrote it.
    """


@dataclass(slots=True, frozen=True)
class Stretch:
    """From one snapshot to the next; None stands for the begin of the log."""

    start: SnapshotSet | None
    end: SnapshotSet
    next_position: int
    """Where the next snapshot was taken, or where the log ends."""


def verify_snapshots(
    directory: Path | str | MemberLog,
    service: ServiceLike | Sequence[ServiceLike],
    *,
    service_id: int = 0,
    service_count: int | None = None,
    processes: int = 1,
    service_dir: Path | str = ".",
) -> list[SnapshotVerdict]:
    """Replay a service from each snapshot to the next, and compare what it writes there with what a member recorded.

    With several `processes` a class must be one that they can import, or a name. The rest is as for `replay_service`.

    Raises:
        ConfigurationError: no member's directory, or a service that cannot be loaded.
        ClusterError: the recording log or the catalog is damaged. Damage elsewhere is the problem of a verdict.
    """
    log = directory if isinstance(directory, MemberLog) else MemberLog.open(directory)
    services = make_services(
        service, directory=Path(service_dir), service_id=service_id, service_count=service_count, log=log
    )
    count = len(find_stretches(log, len(services)))
    jobs = [(log.place, service, service_id, len(services), str(service_dir), index) for index in range(count)]
    if processes == 1 or count < 2:
        return [*map(verify_job, jobs)]
    # Begun again and not forked: another process has another seed of hashes, so that iteration order counts.
    with ProcessPoolExecutor(min(processes, count), multiprocessing.get_context("spawn")) as pool:
        return [*pool.map(verify_job, jobs)]


def find_stretches(log: MemberLog, service_count: int) -> list[Stretch]:
    """Find what lies between the snapshots of a log; the first begins with the log, if all of its state is there."""
    snapshots = log.snapshots(service_count)
    starts: list[SnapshotSet | None] = [None, *snapshots]
    ends = [*(snapshot.log_position for snapshot in snapshots[1:]), log.recorded_position]
    found = [Stretch(*each) for each in zip(starts[: len(snapshots)], snapshots, ends[: len(snapshots)], strict=True)]
    return found[1:] if log.log.start_position > 0 or log.is_seeded else found


def verify_stretch(
    log: MemberLog, services: Sequence[ClusteredService], stretch: Stretch, fresh: Sequence[ClusteredService]
) -> SnapshotVerdict:
    """Replay one stretch and compare; then load its snapshot into `fresh` services and compare these.

    Raises:
        ClusterError: the log cannot be read, or a snapshot.
    """
    recorded = _Recorded(log)
    position, app_version = stretch.end.log_position, recorded.app_version(stretch.end.entries[0])
    end_position = max(position, stretch.next_position)
    collector = Collector()
    replayed = ReplayedService(
        log, services, stretch.start, end_position=end_position, app_version=app_version, sink=collector
    )
    replayed.advance(position)
    problem = _compare(replayed, stretch.end, recorded)
    if problem is None:
        counts = recorded.message_count, recorded.length_bytes
        problem = compare_loaded(
            log, replayed, collector, stretch.end, fresh, messages=recorded.messages, app_version=app_version
        )
        recorded.message_count, recorded.length_bytes = counts
    return SnapshotVerdict(replayed.start_position, position, recorded.message_count, recorded.length_bytes, problem)


def verify_job(
    job: tuple[str | ArchiveLocation, ServiceLike | Sequence[ServiceLike], int, int, str, int],
) -> SnapshotVerdict:
    """Verify one stretch, wherever this runs: directory, service, its id, services, their directory, which stretch.

    What goes wrong is the verdict.
    """
    place, service, service_id, service_count, service_dir, index = job
    log = MemberLog.open(place)
    services, fresh = (
        make_services(service, directory=Path(service_dir), service_id=service_id, service_count=service_count, log=log)
        for _ in range(2)
    )
    stretch = find_stretches(log, service_count)[index]
    try:
        return verify_stretch(log, services, stretch, fresh)
    except Exception as error:
        begin = log.log.start_position if stretch.start is None else stretch.start.log_position
        text = str(error) if isinstance(error, ClusterError) else f"the service failed: {error!r}"
        return SnapshotVerdict(begin, stretch.end.log_position, 0, 0, text)


def _compare(replayed: ReplayedService, snapshot: SnapshotSet, recorded: _Recorded) -> str | None:
    action = replayed.snapshot_action
    if action is None:
        return f"the log has no SNAPSHOT action at this position: log_position={replayed.log_position}"
    is_whole = not any(isinstance(service, Bystander) for service in replayed.services)
    module_entry, *service_entries = snapshot.entries
    for entry, service in zip(service_entries, replayed.services, strict=True):
        if isinstance(service, Bystander):
            continue
        messages = recorded.messages(entry)
        comparing = SnapshotComparison(messages, texts_of(service))
        if is_whole and not recorded.is_by_aeron(entry):
            own = container_messages(replayed.container, entry.service_id, action)
            comparing.compare(message.encode() for message in own)
        else:
            comparing.skip_container()
        replayed.write_snapshot(comparing, entry.service_id)
        if (problem := comparing.finish()) is not None:
            return f"service {entry.service_id}: {problem}"
    if not is_whole or recorded.is_by_aeron(module_entry):
        return None
    comparing = SnapshotComparison(recorded.messages(module_entry))
    comparing.compare(message.encode() for message in action.module_messages)
    problem = comparing.finish()
    return None if problem is None else f"consensus module: {problem}"


class _Recorded:
    """The snapshots of a member, message by message; counts what was read."""

    def __init__(self, log: MemberLog) -> None:
        self._log = log
        self.message_count = 0
        self.length_bytes = 0

    def is_by_aeron(self, entry: RecordingLogEntry) -> bool:
        """Whether a real Aeron Cluster wrote it."""
        return self._log.descriptor(entry.recording_id).stripped_channel.startswith("aeron:")

    def app_version(self, entry: RecordingLogEntry) -> int:
        """The version of the application that the module's snapshot names; the settings of a member say it."""
        first = next(self.messages(entry), b"")
        marker = decode_message(first, registry=CONSENSUS_MODULE_SNAPSHOT_MESSAGES)
        self.message_count = self.length_bytes = 0
        return marker.app_version if isinstance(marker, SnapshotMarker) else 0

    def messages(self, entry: RecordingLogEntry) -> Iterator[bytes]:
        """Read one recording.

        Raises:
            ClusterError: it is not valid.
        """
        frames = self._log.frames(entry.recording_id)
        for message in MessageReader(frames):
            self.message_count += 1
            self.length_bytes += len(message.payload)
            yield message.payload
        if frames.stop_reason is not StopReason.STOP_POSITION:
            where = f"recording_id={entry.recording_id} position={frames.position}"
            raise ClusterError(f"snapshot cannot be read: {where}: {frames.detail}")
