"""The directory of a backup: like a member's, so that everything that reads one reads it.

    archive/     the log and the snapshots, as recordings
    cluster/     recording.log, cluster-id, and the status of the agent

It holds committed log only, from one position on without a gap. What `recording.log` says is never ahead of what is
durable: a term is noted before the first byte of its log is recorded, as on a member, and a snapshot once its
recordings are whole and the log reaches it. So a crash at any moment leaves a directory that can be restored from.

No process votes here, so there is no node state; a member is made of the directory by `trimaran backup restore`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError
from ....archive.config import ArchiveConfig
from ....archive.disk.file_system import FileSystem
from ....archive.files.mark_file import expect_unused_archive
from ....archive.format.messages import RecordingDescriptorRow
from ....archive.log.log_file import choose_log
from ....archive.log.member_directory import ArchiveLocation
from ....archive.log.time_unit import find_time_unit
from ....archive.net.replication import layout_like
from ....archive.store.recording import Recording
from ....service_api import ClusterError, ConfigurationError
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ....service_api.types import LOG_STREAM_ID, NULL_VALUE, TICKS_PER_MS
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ...core.log.shipped_snapshot import ShippedTerm, append_shipped, make_recording_log
from ...runtime.files.cluster_id_file import ClusterIdFile
from ...runtime.files.mark_file import expect_no_owner
from ...runtime.files.recording_log_file import RecordingLogFile
from ...runtime.ground.host import Host
from ...runtime.snapshots.recording_copies import start_copy
from ...runtime.snapshots.recovery import read_snapshots
from .retention import BackupRetention, choose_kept

SYNC_LEVEL: Final = 2

logger = structlog.get_logger()


@dataclass(slots=True)
class BackupDirectory:
    """An open directory. One process has it at a time."""

    path: Path
    archive: Archive
    disk: FileSystem
    _recording_log_file: RecordingLogFile
    _cluster_id_file: ClusterIdFile
    recording: Recording | None = None
    """The log, while it is written."""
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the recording log is written."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path, config: ArchiveConfig, host: Host) -> AsyncIterator[BackupDirectory]:
        """Make or open the directory, repair what a crash left, and remove copies that were not completed.

        Raises:
            ConfigurationError: the directory cannot be used.
            ClusterError: another process uses it, or a file in it is damaged.
        """
        system, cluster, now_ms = host.file_system, path / "cluster", host.clock.epoch_time()
        try:
            expect_no_owner(cluster, now_ms=now_ms, file_system=system)
            expect_unused_archive(path / "archive", now_ms=now_ms, file_system=system)
            system.make_directory(cluster)
            archive = await Archive.launch(
                path / "archive",
                replace(config, file_sync_level=SYNC_LEVEL),
                clock_ms=host.clock.epoch_time,
                file_system=system,
                make_worker=host.make_worker,
                monotonic_ns=host.clock.monotonic_ns,
                is_power_loss_possible=True,
            )
        except OSError as error:
            raise ConfigurationError(f"directory cannot be used: directory={path} reason={error}") from error
        try:
            recording_log = RecordingLogFile.open(cluster, file_sync_level=SYNC_LEVEL, file_system=system)
            try:
                cluster_id = ClusterIdFile.open(cluster, system)
                directory = cls(path, archive, system, recording_log, cluster_id)
                await directory._remove_leftovers()
                yield directory
            finally:
                recording_log.close()
        finally:
            await archive.aclose()

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster that this is a backup of; null until it is known."""
        return self._cluster_id_file.cluster_id

    @property
    def recording_log(self) -> RecordingLog:
        """The terms and snapshots that are here."""
        return self._recording_log_file.recording_log

    @property
    def log_recording_id(self) -> int | None:
        """The recording of the log; None before there is one."""
        last = self.recording_log.last_term()
        found = choose_log(self.archive.descriptors(), None if last is None else last.recording_id)
        return None if found is None else found.recording_id

    @property
    def log_start_position(self) -> int:
        """Where the log begins here."""
        recording_id = self.log_recording_id
        return 0 if recording_id is None else self.archive.descriptor(recording_id).start_position

    @property
    def recorded_position(self) -> int:
        """Up to where the log is durable here."""
        recording_id = self.log_recording_id
        return 0 if recording_id is None else self.archive.recorded_position(recording_id)

    @property
    def snapshot_positions(self) -> list[int]:
        """Where complete snapshots were taken, in order."""
        count = self.recording_log.latest_service_count()
        if count is None:
            return []
        return sorted({found[0].log_position for found in self.recording_log.complete_snapshots(count)})

    @property
    def last_term_id(self) -> int:
        """The newest term that is noted; -1 before the first."""
        last = self.recording_log.last_term()
        return NULL_VALUE if last is None else last.leadership_term_id

    def adopt(self, cluster_id: ClusterId) -> None:
        """Note whose backup this is, once.

        Raises:
            ConfigurationError: it is another cluster's.
            OSError: the disk refused.
        """
        if self.cluster_id == NULL_CLUSTER_ID:
            self._cluster_id_file.store(cluster_id)
        elif self.cluster_id != cluster_id:
            raise ConfigurationError(
                f"directory={self.path} is a backup of cluster {format_cluster_id(self.cluster_id)}, and the members "
                f"are of cluster {format_cluster_id(cluster_id)}: name another directory"
            )

    async def open_log(self, remote: RecordingDescriptorRow, start_position: int) -> Recording:
        """Open the log for appending; where there is none, begin one at a position, laid out as a member's.

        Raises:
            ArchiveError: the disk refused, or the log cannot be gone on with.
        """
        recording_id = self.log_recording_id
        if self.recording is not None and self.recording.failure is None:
            return self.recording
        if recording_id is not None:
            self.recording = await self.archive.extend_recording(recording_id, session_id=NULL_VALUE)
        else:
            self.recording = await self.begin_copy(remote, LOG_STREAM_ID, start_position)
        return self.recording

    async def begin_copy(self, remote: RecordingDescriptorRow, stream_id: int, start_position: int = 0) -> Recording:
        """Begin the copy of a member's recording.

        Raises:
            ArchiveError: it is none of that stream, or the disk refused.
        """
        if remote.stream_id != stream_id:
            raise ArchiveError(
                f"unexpected recording: stream_id={remote.stream_id} expected={stream_id}",
                recording_id=remote.recording_id,
            )
        return await start_copy(self.archive, remote, start_position, layout_like(remote))

    async def stop_log(self) -> None:
        """Close the log in order: all of it is durable then."""
        recording, self.recording = self.recording, None
        if recording is not None and recording.failure is None:
            await recording.stop()

    async def note_terms(self, terms: Sequence[ShippedTerm]) -> None:
        """Note the terms that are not noted yet, durably.

        Raises:
            ClusterError: they do not go on from those that are noted.
            OSError: the disk refused.
        """
        recording_id = self.log_recording_id
        assert recording_id is not None
        last = self.recording_log.last_term()
        for term in terms:
            known = self.recording_log.term_entry(term.leadership_term_id)
            if known is not None and known.term_base_log_position != term.term_base_log_position:
                raise ClusterError(
                    f"leadership_term_id={term.leadership_term_id} begins at {known.term_base_log_position} here, and "
                    f"at {term.term_base_log_position} on the member: this is a backup of another history"
                )
            if last is None or term.leadership_term_id > last.leadership_term_id:
                self.recording_log.append_term(
                    recording_id=recording_id,
                    leadership_term_id=term.leadership_term_id,
                    term_base_log_position=term.term_base_log_position,
                    timestamp=term.timestamp,
                )
        await self._persist()

    async def note_snapshot(self, snapshot: Sequence[RecordedSnapshot], retention: BackupRetention) -> None:
        """Note a snapshot whose recordings are here, after reading it; remove what need not stay then.

        Raises:
            ClusterError: it cannot be used.
            OSError: the disk refused.
        """
        trial = make_recording_log((), snapshot, log_recording_id=NULL_VALUE)
        await read_snapshots(self.archive, trial.latest_snapshots(len(snapshot) - 1))
        append_shipped(self.recording_log, snapshot)
        await self._persist()
        await self.keep(retention)

    async def keep(self, retention: BackupRetention) -> None:
        """Remove the snapshots and the log that need not stay.

        Entries go first and recordings after them, and log last. So after a crash all that is named is there; the
        recordings go when the directory is opened, and the log at the next time.

        Raises:
            ArchiveError: somebody reads in what is to go.
            OSError: the disk refused.
        """
        recording_id = self.log_recording_id
        if recording_id is None:
            return
        kept = choose_kept(
            self.recording_log,
            retention,
            log_start_position=self.log_start_position,
            ticks_per_ms=await aiofiles.os.wrap(self._find_ticks_per_ms)(),
        )
        old = [entry for entry in self.recording_log.entries if entry.is_valid_snapshot and not kept.has(entry)]
        for entry in sorted(old, key=lambda entry: (entry.log_position, entry.service_id)):
            self.recording_log.remove_entry(entry)
        await self._persist()
        for entry in old:
            await self.archive.purge_recording(entry.recording_id)
        await self.archive.purge_segments(recording_id, kept.log_start_position)

    def _find_ticks_per_ms(self) -> int:
        location = ArchiveLocation(self.disk, self.archive.directory)
        return TICKS_PER_MS[find_time_unit(location, self.archive.descriptors())]

    async def _persist(self) -> None:
        async with self._noting:
            await aiofiles.os.wrap(self._recording_log_file.persist)()

    async def _remove_leftovers(self) -> None:
        """Remove what no entry names: snapshots whose copy was not completed."""
        named = {entry.recording_id for entry in self.recording_log.entries}
        for descriptor in self.archive.descriptors():
            if descriptor.stream_id != LOG_STREAM_ID and descriptor.recording_id not in named:
                logger.info("backup.leftover_removed", recording_id=descriptor.recording_id)
                await self.archive.purge_recording(descriptor.recording_id)
