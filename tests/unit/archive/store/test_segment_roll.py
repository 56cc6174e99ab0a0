"""Going on in the next segment costs the loop nothing: no file is made, zeroed, named, synced or closed on it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.archive.streams import TERM_LENGTH, StreamBuilder, launch, read_all, small_config
from tests.waiting import wait_until
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.store.worker import ThreadWorker

SEGMENT_COUNT = 5


@pytest.mark.parametrize("preallocate", [True, False])
async def test_the_loop_does_nothing_but_write_where_segments_roll(preallocate: bool) -> None:
    """Where nothing is prepared, as in a short recording, a sparse file is made on the loop, and no more."""
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(inline_sync_limit_bytes=0), make_worker=ThreadWorker)
    recording = await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=preallocate
    )
    loop_thread, on_loop = threading.get_ident(), list[str]()

    def note(name: str, path: Path, length: int) -> None:
        if threading.get_ident() == loop_thread and path.suffix in (".rec", ".next", ".zero"):
            on_loop.append(name)

    disk.on_operation = note
    written = b""
    for number in range(SEGMENT_COUNT):
        stream = StreamBuilder(position=recording.append_position)
        for chunk in stream.fill_to((number + 1) * TERM_LENGTH):
            if preallocate and recording.append_position >= (number + 1) * TERM_LENGTH - 1408:
                await wait_until(lambda: recording._next.ready is not None, timeout_s=60, what="the next segment")
            recording.append(chunk)
            recording.flush()
            written += chunk
            await recording.wait_recorded(recording.append_position)
    disk.on_operation = None

    assert set(on_loop) == ({"pwrite"} if preallocate else {"pwrite", "create", "set_length"})
    assert on_loop.count("create") == (0 if preallocate else SEGMENT_COUNT)
    assert read_all(archive) == written
    await archive.aclose()
