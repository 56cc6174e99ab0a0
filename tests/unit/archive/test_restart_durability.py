"""What a start reads it believes; so it makes it durable first, whatever the process before it had left undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.archive.streams import STREAM_ID, StreamBuilder
from trimaran.archive import Archive, ArchiveConfig
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile

_DIRECTORY = Path("/member/archive")


async def _launch(disk: MemoryFileSystem) -> Archive:
    config = ArchiveConfig(term_length_bytes=65536, segment_length_bytes=65536, mtu_length_bytes=1408)
    return await Archive.launch(_DIRECTORY, config, clock_ms=lambda: 1, file_system=disk)


async def test_tail_that_a_killed_process_left_unsynced_survives_a_power_loss_after_the_restart() -> None:
    """Found by simulation: the member reported these bytes as recorded, and lost them with the power."""
    disk = MemoryFileSystem()
    archive = await _launch(disk)
    recording = await archive.start_recording(stream_id=STREAM_ID, session_id=7, channel="c", source_identity="s")
    (chunk,) = StreamBuilder().message(64)
    recording.append(chunk)
    disk.crash_process()

    restarted = await _launch(disk)
    recorded = restarted.recorded_position(recording.recording_id)
    disk.crash()
    survivor = await _launch(disk)

    assert recorded == len(chunk)
    assert survivor.read(recording.recording_id, 0, 4096, stop_position=recorded) == chunk


@pytest.mark.parametrize("keeps", [True, False])
def test_small_files_are_durable_once_they_were_read(keeps: bool) -> None:
    """The same for the recording log and the node state: written, killed before the sync, read, and then no power."""
    disk = MemoryFileSystem()
    directory = Path("/member/cluster")
    disk.make_directory(directory)
    terms = RecordingLogFile.open(directory, file_system=disk, file_sync_level=0)
    terms.recording_log.append_term(recording_id=0, leadership_term_id=0, term_base_log_position=0, timestamp=1)
    terms.persist()
    state = NodeStateFile.open(directory, file_system=disk, file_sync_level=0)
    state.propose_max_candidate_term_id(3, 0, 1)
    disk.crash_process()

    read = (
        RecordingLogFile.open(directory, file_system=disk).recording_log.last_term(),
        NodeStateFile.open(directory, file_system=disk).candidate_term_id,
    )
    disk.crash(lambda: keeps)
    survived = (
        RecordingLogFile.open(directory, file_system=disk).recording_log.last_term(),
        NodeStateFile.open(directory, file_system=disk).candidate_term_id,
    )

    assert read[1] == 3
    assert survived == read
