"""The files of a member: its archive, and mark file, node state, recording log, delivery notes, cluster id, members,
which ranges of the log are copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import structlog

from ....archive import Archive, ArchiveConfig
from ....archive.files.mark_file import expect_unused_archive
from ....archive.store.access import restrict_access
from ....service_api import ConfigurationError
from ....service_api.cluster_id import group_cluster_id
from ....service_api.types import MemberId
from ....service_api.wire.checksum import ChecksumKind
from ...settings.config import NodeConfig
from ..ground.host import Host
from ..watching.sync_timer import TimedFileSystem
from .cluster_id_file import ClusterIdFile
from .cluster_identity import settle_cluster_id
from .delivery_notes_file import DeliveryNotesFile
from .error_log import ErrorLog
from .log_copies_file import LogCopiesFile
from .mark_file import ClusterMarkFile
from .members_file import MembersFile
from .node_state_file import NODE_STATE_FILE_NAME, NodeStateFile
from .recording_log_file import RecordingLogFile

_NS_PER_MS: Final = 1_000_000

logger = structlog.get_logger()


class MemberFiles:
    """The small files of a member, locked and open."""

    def __init__(
        self,
        mark: ClusterMarkFile,
        node_state: NodeStateFile,
        recording_log: RecordingLogFile,
        notes: DeliveryNotesFile,
        cluster_id: ClusterIdFile,
        members: MembersFile,
        log_copies: LogCopiesFile,
        *,
        errors: ErrorLog,
        timed_disk: TimedFileSystem,
    ) -> None:
        self.mark = mark
        self.node_state = node_state
        self.recording_log = recording_log
        self.notes = notes
        self.cluster_id = cluster_id
        self.members = members
        self.log_copies = log_copies
        self.errors = errors
        self.timed_disk = timed_disk
        """The archive's disk, whose syncs are timed."""


def may_set_aside(config: NodeConfig) -> bool:
    """Whether there are others from which a member can have again what it cannot trust."""
    return len(config.members) > 1 or bool(config.join)


@contextlib.contextmanager
def open_files(config: NodeConfig, host: Host) -> Iterator[MemberFiles]:
    """Lock the directory and open what is in it; close it in the end.

    Raises:
        ConfigurationError: the directory cannot be used, or is one of another cluster.
        ClusterError: another process uses it, or a file in it cannot be used.
    """
    directory, disk, sync_level = config.directory / "cluster", host.file_system, config.file_sync_level
    with contextlib.ExitStack() as stack:
        try:
            now_ms = host.clock.epoch_time()
            expect_unused_archive(config.directory / "archive", now_ms=now_ms, file_system=disk)
            disk.make_directory(directory)
            mark = ClusterMarkFile.open(
                directory,
                member_id=config.member_id,
                now_ms=now_ms,
                file_system=disk,
                boot_id=host.boot_id,
                has_voted=NODE_STATE_FILE_NAME in disk.list_directory(directory),
            )
            stack.callback(mark.close)
            # The marks first: while another process uses the directory, its rights are not changed either.
            restrict_access(disk, config.directory, with_files=False)  # what else lies there is not the member's
            restrict_access(disk, directory)
            node_state = NodeStateFile.open(
                directory,
                file_sync_level=sync_level,
                file_system=disk,
                sets_aside=may_set_aside(config),
            )
            stack.callback(node_state.close)
            recording_log = RecordingLogFile.open(directory, file_sync_level=sync_level, file_system=disk)
            stack.callback(recording_log.close)
            notes = DeliveryNotesFile.open(directory, file_sync_level=sync_level, file_system=disk)
            cluster_id = ClusterIdFile.open(directory, disk)
            members = MembersFile.open(directory, disk)
            known = {MemberId(each.member_id) for each in config.members}
            if members.newest is not None:
                known |= {each.member_id for each in members.newest.members}
            log_copies = LogCopiesFile.open(directory, disk, known - {MemberId(config.member_id)})
            cluster_id.on_stored = mark.note_cluster_id
            if cluster_id.cluster_id:
                mark.note_cluster_id(cluster_id.cluster_id)
            settle_cluster_id(
                cluster_id,
                configured=group_cluster_id(config.cluster_id, config.own_group),
                certified=group_cluster_id(host.network.cluster_id, config.own_group),
            )
        except OSError as error:
            raise ConfigurationError(f"directory cannot be used: directory={directory} reason={error}") from error
        yield MemberFiles(
            mark,
            node_state,
            recording_log,
            notes,
            cluster_id,
            members,
            log_copies,
            errors=ErrorLog(mark, host.clock.epoch_time),
            timed_disk=TimedFileSystem(disk, host.clock.monotonic_ns, slow_ns=config.sync_slow_ms * _NS_PER_MS),
        )


async def launch_archive(config: NodeConfig, files: MemberFiles, host: Host) -> Archive:
    """Open and repair the archive in the member's directory."""
    archive = await Archive.launch(
        config.directory / "archive",
        ArchiveConfig(
            term_length_bytes=config.term_length_bytes,
            segment_length_bytes=config.segment_length_bytes,
            mtu_length_bytes=config.mtu_length_bytes,
            file_sync_level=config.file_sync_level,
            checksums=config.checksums,
            checksum_kind=ChecksumKind.labelled(config.checksum_kind),
            drops_copied_pages=config.shared_machine != "off",
            spares_readers=False,  # who is spared, and for how long, `retention` decides
        ),
        clock_ms=host.clock.epoch_time,
        file_system=files.timed_disk,
        make_worker=host.make_worker,
        monotonic_ns=host.clock.monotonic_ns,
        is_power_loss_possible=not files.mark.is_same_boot,
        tolerates_damage=True,
    )
    _tell_unknown_checksums(archive)
    return archive


def _tell_unknown_checksums(archive: Archive) -> None:
    """Log which recordings are read without being checked."""
    unknown = [each.recording_id for each in archive.descriptors() if each.checksummed and not each.is_checkable]
    if unknown:
        logger.warning("archive.checksums_unknown", recording_ids=unknown)
