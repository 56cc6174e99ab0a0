"""Many recordings at once: each byte for byte, none held up by another, and none brought down by one that fails."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

from tests.unit.archive.streams import TERM_LENGTH, ManualWorker, StreamBuilder, launch, read_all, small_config
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, Recording
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.reading.verify import verify_recording

COUNT = 50


async def start(archive: Archive, *, preallocate: bool = False) -> Recording:
    return await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=preallocate
    )


async def record_at_random(recording: Recording, random: Random) -> bytes:
    """Append about one and a half segments of messages of any length, in batches of any size, and stop."""
    stream, written = StreamBuilder(seed=recording.recording_id), bytearray()
    while len(written) < 1.5 * TERM_LENGTH:
        for chunk in stream.message(random.randrange(8000)):
            recording.append(chunk)
            written += chunk
        if random.random() < 0.3:
            recording.flush()
            await asyncio.sleep(0)
        if random.random() < 0.1:
            recording.flush()
            await recording.wait_recorded(recording.append_position - 20_000)
    await recording.stop()
    return bytes(written)


async def test_fifty_recordings_at_once_are_recorded_byte_for_byte(tmp_path: Path) -> None:
    directory, random = tmp_path / "archive", Random(5)
    archive = await launch(OsFileSystem(), directory)
    recordings = [await start(archive, preallocate=bool(number % 2)) for number in range(COUNT)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(record_at_random(one, Random(random.random()))) for one in recordings]
    await archive.aclose()

    archive = await launch(OsFileSystem(), directory)
    written = [task.result() for task in tasks]
    assert [read_all(archive, recording_id) for recording_id in range(COUNT)] == written
    assert [d.stop_position for d in archive.descriptors()] == [len(log) for log in written]
    entries = read_catalog(OsFileSystem(), directory).entries
    assert [verify_recording(OsFileSystem(), directory, entry).problems for entry in entries] == [[]] * COUNT
    await archive.aclose()


async def test_a_sync_that_takes_long_holds_up_no_other_recording() -> None:
    """Each has its own group commit: what one waits for the others do not, and one flush is one batch for each."""
    workers: list[ManualWorker] = []

    def make_worker(name: str) -> ManualWorker:
        workers.append(ManualWorker())
        return workers[-1]

    archive = await launch(MemoryFileSystem(), config=small_config(inline_sync_limit_bytes=0), make_worker=make_worker)
    recordings = [await start(archive) for _ in range(COUNT)]
    streams = [StreamBuilder(seed=number) for number in range(COUNT)]

    for _ in range(5):
        for recording, stream in zip(recordings, streams, strict=True):
            recording.append(stream.message(2000)[0])
            recording.flush()
        for worker in workers[1:]:
            worker.complete()
            assert worker.pending is None

    behind = [one.append_position - one.recorded_position for one in recordings]
    assert behind[0] == recordings[0].append_position > 0
    assert behind[1:] == [0] * (COUNT - 1)
    assert [worker.submitted for worker in workers] == [1] + [5] * (COUNT - 1)
    workers[0].complete()
    workers[0].complete()
    assert recordings[0].recorded_position == recordings[0].append_position
    await archive.abandon()


async def test_a_recording_that_fails_stops_no_other() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recordings = [await start(archive) for _ in range(COUNT)]
    failed: list[int] = []
    for recording in recordings:
        recording.on_failed = lambda error, recording_id=recording.recording_id: failed.append(recording_id)

    def fail_two(name: str, path: Path, length: int) -> None:
        if (name, path.name) in (("pwrite", "7-0.rec"), ("sync", "9-0.rec")):
            raise OSError(errno.EIO, "input/output error", str(path))

    disk.on_operation = fail_two
    written, refusals = [], []
    for recording in recordings:
        chunk = StreamBuilder(seed=recording.recording_id).message(1000)[0]
        try:
            recording.append(chunk)
            recording.flush()
            await recording.wait_recorded(len(chunk))
        except ArchiveError as error:
            refusals.append((error.recording_id, error.code))
        else:
            written.append((recording.recording_id, chunk))

    assert refusals == [(7, ArchiveErrorCode.STORAGE_FAILED), (9, ArchiveErrorCode.STORAGE_FAILED)]
    assert failed == [7, 9]
    disk.on_operation = None
    await archive.aclose()
    stops = [d.stop_position for d in archive.descriptors()]
    assert [number for number, stop in enumerate(stops) if stop is None] == failed
    archive = await launch(disk)
    assert [(number, read_all(archive, number)) for number, _ in written] == written
    await archive.aclose()
