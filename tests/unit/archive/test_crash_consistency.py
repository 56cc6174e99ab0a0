"""Crashes at any moment, of the process or of the machine: what was recorded is there, and a flipped bit is found.

A power loss keeps any subset of the unsynced sectors, in any order. No run may end in a refusal unless something was
damaged on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimaran.archive.store.conductor
import trimaran.archive.store.recording
from tests.unit.archive.streams import (
    DIRECTORY,
    ManualWorker,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    launch,
    read_all,
    small_config,
)
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError, Recording
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.reading.verify import verify_recording

SMALL_LIMIT = 8 << 10
"""Stands in for the 4 MiB of a batch, so that short runs have many full ones."""


@pytest.fixture(autouse=True, scope="module")
def small_limit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trimaran.archive.store.recording, "UNSYNCED_LIMIT_BYTES", SMALL_LIMIT)
        patch.setattr(trimaran.archive.store.conductor, "UNSYNCED_LIMIT_BYTES", SMALL_LIMIT)
        yield


class World:
    """One archive directory through many lives of its process and its machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = MemoryFileSystem()
        self.power = PowerSupply()
        self.disk.on_operation = self.power
        self.config = small_config(
            file_sync_level=self.random.choice((1, 2)),
            inline_sync_limit_bytes=self.random.choice((0, 4096)),
            segment_length_bytes=self.random.choice((1, 2)) << 16,
        )
        self.haste = self.random.choice((0.05, 0.5, 0.9))
        self.written = bytearray()
        self.recorded_position = 0
        self.is_machine_new = False
        self.worker = ManualWorker()
        self.archive: Archive | None = None

    async def live(self) -> None:
        """One life: start, append, and lose power or be killed at some operation, perhaps while starting."""
        self.power.operations_left = self.random.choice((-1, self.random.randrange(60)))
        try:
            recording = await self.start()
            self.append(recording)
        except PowerLoss:
            pass
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.STORAGE_FAILED:
                raise
        self.power.operations_left = -1
        if self.random.random() < 0.3:
            self.disk.crash_process()
        else:
            share = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
            self.disk.crash(lambda: self.random.random() < share)
            self.is_machine_new = True

    async def start(self) -> Recording:
        """Start as a node does: it says that power may have been lost until one start has got through."""
        self.worker = ManualWorker()
        self.archive = await launch(
            self.disk,
            config=self.config,
            make_worker=lambda name: self.worker,
            is_power_loss_possible=self.is_machine_new,
        )
        self.is_machine_new = False
        if self.archive.descriptors():
            self.check()
            recording = await self.archive.extend_recording(0, session_id=1, preallocate=False)
        else:
            assert self.recorded_position == 0
            recording = await self.archive.start_recording(
                stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
            )
        recording.on_recorded = self.on_recorded
        return recording

    def check(self) -> None:
        """Everything recorded is there and nothing else; from here on what is there counts as recorded."""
        assert self.archive is not None
        found = read_all(self.archive)
        assert len(found) >= self.recorded_position
        assert self.written.startswith(found)
        entry = read_catalog(self.disk, DIRECTORY).entries[0]
        assert verify_recording(self.disk, DIRECTORY, entry).problems == []
        del self.written[len(found) :]
        self.recorded_position = len(found)

    def on_recorded(self, position: int) -> None:
        self.recorded_position = position

    def append(self, recording: Recording) -> None:
        """Append, flush and let syncs end, in no particular order."""
        stream = StreamBuilder(position=recording.append_position, seed=self.random.randrange(1000))
        for _ in range(self.random.randrange(60)):
            for chunk in stream.message(self.random.choice((0, 30, 400, 3000, 9000))):
                self.written += chunk
                recording.append(chunk)
            if self.random.random() < self.haste:
                recording.flush()
            if self.worker.pending and self.random.random() < self.haste:
                self.worker.complete()


@settings(max_examples=120)
@given(seed=st.integers(0, 1 << 32))
async def test_what_was_recorded_survives_crashes_of_both_kinds_at_any_operation(seed: int) -> None:
    world = World(seed)

    for _ in range(5):
        await world.live()
    await world.start()

    world.check()


async def record(disk: MemoryFileSystem, length_bytes: int) -> int:
    """Record about `length_bytes`, all durable, in an archive that then loses its process."""
    made = await launch(disk)
    recording = await made.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
    )
    stream = StreamBuilder()
    while recording.append_position < length_bytes:
        for chunk in stream.message(200):
            recording.append(chunk)
        recording.flush()
    disk.crash_process()
    return recording.recorded_position


def flip(disk: MemoryFileSystem, path: Path, offset: int, bit: int) -> None:
    data = disk.durable_read(path, 1, offset)
    disk.damage(path, offset, bytes([data[0] ^ 1 << bit]))


@settings(max_examples=150)
@given(part=st.floats(0, 1), bit=st.integers(0, 7), is_machine_new=st.booleans())
async def test_flip_that_no_tear_explains_is_refused_and_left_as_it_is(
    part: float, bit: int, is_machine_new: bool
) -> None:
    """After a kill any frame but the last; after a power loss any that lies before the last batch."""
    disk = MemoryFileSystem()
    end = await record(disk, 40_000)
    frame_length = 256  # 200 bytes and a header, padded
    tear_length = SMALL_LIMIT if is_machine_new else 0
    frames = (end - tear_length) // frame_length - 1
    offset = int(part * (frames - 1)) * frame_length + 40
    path = DIRECTORY / "0-0.rec"
    flip(disk, path, offset, bit)
    before = disk.content(path)

    with pytest.raises(CorruptionError, match=r"not valid.*position="):
        await launch(disk, is_power_loss_possible=is_machine_new)

    assert disk.content(path) == before


async def test_flip_inside_the_last_batch_looks_like_a_tear_after_a_power_loss() -> None:
    """What cannot be decided, written down: see `trimaran.archive.store.repair`."""
    disk = MemoryFileSystem()
    end = await record(disk, 40_000)
    flip(disk, DIRECTORY / "0-0.rec", end - 1024 + 40, 0)

    with pytest.raises(CorruptionError):
        await launch(disk)
    repaired = await launch(disk, is_power_loss_possible=True)

    assert repaired.descriptor(0).stop_position == end - 1024
    assert not disk.durable_read(DIRECTORY / "0-0.rec", 1 << 20, end - 1024).strip(b"\0")


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_tail_that_was_cut_is_zero_durably_before_the_start_is_over(writes: int) -> None:
    """Else a frame of the old tail could be taken for one of the new after the next power loss."""
    disk = MemoryFileSystem()
    end = await record(disk, 20_000)
    path = DIRECTORY / "0-0.rec"
    for number in range(writes):
        flip(disk, path, end - 1024 * (number + 1) + 40, 0)

    await launch(disk, is_power_loss_possible=True)
    disk.crash()

    assert disk.content(path)[end - 1024 * writes :].strip(b"\0") == b""


async def test_segment_that_was_followed_by_another_cannot_be_torn() -> None:
    """It was durable before the next one got its name: its damage is not forgiven, however near its end."""
    disk = MemoryFileSystem()
    await record(disk, 65536)
    assert "0-65536.rec" in disk.list_directory(DIRECTORY)
    flip(disk, DIRECTORY / "0-0.rec", 65536 - 1024 + 40, 0)

    with pytest.raises(CorruptionError, match="wrong checksum"):
        await launch(disk, is_power_loss_possible=True)
