"""Takes the old past out of a backup: out of its directory, and out of its index in a store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ....archive.config import ArchiveConfig
from ....archive.format.catalog import parse_catalog
from ....archive.stored.index import CATALOG_NAME, RECORDING_LOG_NAME, WriterIndex, decode_file, encode_file
from ....service_api import ConfigurationError
from ....service_api.cluster_id import format_cluster_id
from ....service_api.types import TICKS_PER_MS
from ...core.log.recording_log import RecordingLog
from ...runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, kept_cluster_id
from ...runtime.ground.host import Host
from ...time_travel.member_log import MemberLog
from .directory import BackupDirectory
from .retention import BackupRetention, choose_kept
from .shipping import encode_descriptors, encode_recording_log, keep_reached, snapshot_positions


def shorten(index: WriterIndex, retention: BackupRetention) -> WriterIndex:
    """Give the index that a backup in a store has once its old past is gone; the same one where all of it stays.

    Raises:
        CorruptionError: the catalog or the recording log in the index cannot be read.
    """
    contents = index.backup
    if contents is None:
        return index
    recording_log = RecordingLog.parse(decode_file(contents.files[RECORDING_LOG_NAME]))
    start_position = contents.log_start_position
    kept = choose_kept(recording_log, retention, log_start_position=start_position, ticks_per_ms=contents.ticks_per_ms)
    staying = keep_reached(recording_log, contents.log_stop_position, kept.has)
    named = {entry.recording_id for entry in staying.entries if entry.is_valid_snapshot} | {contents.log_recording_id}
    descriptors = [
        descriptor
        for descriptor in parse_catalog(decode_file(contents.files[CATALOG_NAME])).readable
        if descriptor.recording_id in named
    ]
    log = next(found for found in descriptors if found.recording_id == contents.log_recording_id)
    start_position = max(start_position, log.segment_base_position(kept.log_start_position))
    if start_position == contents.log_start_position and not kept.dropped_positions:
        return index
    files = {
        **contents.files,
        CATALOG_NAME: encode_file(
            encode_descriptors(
                [replace(found, start_position=start_position) if found is log else found for found in descriptors]
            )
        ),
        RECORDING_LOG_NAME: encode_file(encode_recording_log(staying)),
    }
    shortened = contents.model_copy(
        update={
            "log_start_position": start_position,
            "snapshot_positions": snapshot_positions(staying),
            "parts": [
                part
                for part in contents.parts
                if part.recording_id in named
                and (part.kind == "snapshot" or part.base_position + part.file_length > start_position)
            ],
            "files": files,
        }
    )
    segments = [segment for segment in index.segments if segment.end_position > start_position]
    return index.model_copy(update={"segments": segments, "backup": shortened})


@dataclass(slots=True, frozen=True)
class ShortenedDirectory:
    """The outcome for a directory: what went, or would go."""

    log_start_position: int
    """Where the log begins then."""
    snapshot_positions: list[int]
    """Those that stay."""
    removed_snapshot_positions: list[int]
    removed_log_bytes: int


async def shorten_directory(
    path: Path, retention: BackupRetention, *, host: Host, is_dry_run: bool = False
) -> ShortenedDirectory:
    """Remove the old past from a backup's directory on which no agent runs; a dry run only says what would go.

    Raises:
        ConfigurationError: the directory holds no backup.
        ClusterError: an agent runs on it, or a file in it is damaged.
        OSError: the disk refused.
    """
    if format_cluster_id(kept_cluster_id(path / "cluster")) is None:
        raise ConfigurationError(
            f"no backup in {path}: expected cluster/{CLUSTER_ID_FILE_NAME}, which `trimaran backup run` writes"
        )
    log = MemberLog.open(path)
    kept = choose_kept(
        log.recording_log,
        retention,
        log_start_position=log.log.start_position,
        ticks_per_ms=TICKS_PER_MS[log.time_unit],
    )
    snapshots = [entry for entry in log.recording_log.entries if entry.is_valid_snapshot]
    start_position = max(log.log.start_position, log.log.segment_base_position(kept.log_start_position))
    if not is_dry_run:
        async with BackupDirectory.open(path, ArchiveConfig(), host) as directory:
            await directory.keep(retention)
    return ShortenedDirectory(
        start_position,
        sorted({entry.log_position for entry in snapshots if kept.has(entry)}),
        sorted({entry.log_position for entry in snapshots if not kept.has(entry)}),
        start_position - log.log.start_position,
    )
