"""Checks a backup: every recording from its first frame to its last, every snapshot, and what `recording.log` says.

In a store every object is held against its digest in the index first: Aeron's CRC does not cover all of a frame. For
that a store is read twice.

With a service the state is checked, too: the service replays the log from each snapshot to the next, and has to write
what is recorded there. A backup on this machine may be checked while its agent runs, one in a store by its URL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ....archive.log.member_directory import ArchiveLocation, MemberDirectory, locate
from ....archive.reading.verify import verify_recording
from ....archive.stored.backup_files import FoundBackup, StoredBackup
from ....archive.stored.cluster_store import StoreError
from ....service_api import ClusterError
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...runtime.snapshots.recovery import read_snapshots
from ...time_travel.determinism import verify_snapshots
from ...time_travel.member_log import MemberLog
from ...time_travel.services import ServiceLike
from .fetching import require_backup


@dataclass(slots=True, frozen=True)
class BackupCheck:
    """One thing that was checked."""

    what: str
    detail: str
    problem: str | None = None
    """What is wrong; None if nothing is."""


def verify_backup(
    name: str,
    *,
    service: ServiceLike | None = None,
    service_dir: Path | str = ".",
    on_progress: Callable[[int], None] = lambda position: None,
) -> Iterator[BackupCheck]:
    """Check the backup at a path or URL; give each thing as it is done. Damage is a problem of a check.

    Where objects of a store are missing, nothing but the objects is checked.

    Raises:
        ConfigurationError: there is no archive, or the service cannot be loaded.
        ClusterError: the catalog or the recording log cannot be read at all.
        OSError: the disk or the store refused.
    """
    place = locate(name)
    if "://" in name:
        backup = require_backup(name)
        missing_count = yield from _check_objects(backup)
        if missing_count:
            return  # recordings cannot be read without them
        place = ArchiveLocation(StoredBackup(backup.store.url, backup.index), Path())
    member = MemberDirectory.find(place)
    for entry in member.read_catalog().entries:
        verdict = verify_recording(member.archive.file_system, member.archive.directory, entry, on_progress=on_progress)
        if not verdict.skipped:
            yield BackupCheck(
                f"recording {verdict.recording_id}",
                f"positions {verdict.start_position} to {verdict.stop_position}, {verdict.frame_count} frames, "
                f"checksums {verdict.checksum}",
                "; ".join(verdict.problems) or None,
            )
    log = MemberLog.open(place)
    yield _check_terms(log)
    count = log.recording_log.latest_service_count() or 0
    for snapshot in log.snapshots(count):
        yield _check_snapshot(log, snapshot.entries)
    if log.log.start_position > 0 and not log.snapshots(count):
        problem = f"the log begins at {log.log.start_position}, and no snapshot is there to begin with"
        yield BackupCheck("begin", f"log from {log.log.start_position}", problem)
    if service is not None:
        for found in verify_snapshots(log, service, service_dir=service_dir):
            yield BackupCheck(
                f"state at {found.to_position}",
                f"replayed from {found.from_position}, {found.length_bytes} bytes compared",
                found.problem,
            )


def _check_objects(found: FoundBackup) -> Generator[BackupCheck, None, int]:
    """One check for each file whose objects are not as the index says; else one for all. Returns how many lack one."""
    files, problem_count, missing_count = found.index.files, 0, 0
    for file in files:
        try:
            found.store.check(file.objects, file.sha256)
        except StoreError as error:
            problem_count += 1
            missing_count += isinstance(error.__cause__, FileNotFoundError)
            yield BackupCheck(f"objects of {file.path}", "are not what the index says", str(error))
    if not problem_count:
        length, count = sum(file.length for file in files), sum(len(file.objects) for file in files)
        yield BackupCheck("objects", f"{count} objects, {length} bytes, digests as in the index")
    return missing_count


def _check_terms(log: MemberLog) -> BackupCheck:
    """Terms follow each other, and the log reaches the newest."""
    terms = [entry for entry in log.recording_log.entries if entry.is_valid_term]
    detail = f"{len(terms)} terms, log to {log.recorded_position}"
    for before, after in pairwise(terms):
        if after.leadership_term_id != before.leadership_term_id + 1:
            return BackupCheck("recording.log", detail, f"no term between {before} and {after}")
        if after.term_base_log_position < before.term_base_log_position:
            return BackupCheck("recording.log", detail, f"{after} begins before {before}")
    if terms and terms[-1].term_base_log_position > log.recorded_position:
        problem = f"term {terms[-1].leadership_term_id} begins at {terms[-1].term_base_log_position}"
        return BackupCheck("recording.log", detail, f"{problem}, after the log's end")
    return BackupCheck("recording.log", detail)


def _check_snapshot(log: MemberLog, entries: tuple[RecordingLogEntry, ...]) -> BackupCheck:
    what = f"snapshot at {entries[0].log_position}"
    try:
        message_count = asyncio.run(_read_to_the_end(log, entries))
    except ClusterError as error:
        return BackupCheck(what, "cannot be used", str(error))
    return BackupCheck(what, f"{message_count} messages of services")


async def _read_to_the_end(log: MemberLog, entries: tuple[RecordingLogEntry, ...]) -> int:
    recovered = await read_snapshots(log, entries)
    return sum([1 for image in recovered.images async for _ in image])
