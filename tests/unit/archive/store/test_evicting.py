"""What a copy leaves in the page cache: none of its long batches, once they are durable."""

from __future__ import annotations

import pytest

from tests.unit.archive.store.test_recording import Rig
from tests.unit.archive.streams import read_all, small_config
from trimaran.archive.store.recording import BULK_BATCH_BYTES


@pytest.mark.parametrize(
    ("is_copy", "length", "operations"),
    [
        (True, BULK_BATCH_BYTES, ["sync", "evict"]),
        (True, BULK_BATCH_BYTES - 64, ["sync"]),
        (False, BULK_BATCH_BYTES, ["sync"]),
    ],
)
async def test_a_long_batch_of_a_copy_leaves_memory_once_it_is_durable(
    is_copy: bool, length: int, operations: list[str]
) -> None:
    config = small_config(segment_length_bytes=4 * BULK_BATCH_BYTES, inline_sync_limit_bytes=0)
    rig = await Rig.make(config=config)
    rig.recording.is_copy = is_copy
    seen: list[str] = []
    rig.disk.on_operation = lambda name, path, length: seen.append(name)
    rig.disk.evict = lambda handle, offset, length: seen.append("evict")  # type: ignore[method-assign]  # to see it
    rig.append()
    rig.recording.flush()
    rig.worker.complete()
    seen.clear()

    for chunk in rig.stream.fill_to(rig.recording.append_position + length):
        rig.recording.append(chunk)
    rig.recording.flush()
    rig.worker.complete()

    assert [name for name in seen if name in ("sync", "evict")] == operations
    assert rig.recording.recorded_position == rig.recording.append_position
    assert len(read_all(rig.archive, limit_bytes=2 * length)) == rig.recording.recorded_position


async def test_what_leaves_memory_at_a_roll_is_the_durable_part_of_each_segment() -> None:
    segment_length = 2 * BULK_BATCH_BYTES
    config = small_config(segment_length_bytes=segment_length, inline_sync_limit_bytes=0)
    rig = await Rig.make(config=config)
    rig.recording.is_copy = True
    evicted: list[tuple[int | None, int, int]] = []
    rig.disk.evict = lambda handle, offset, length: evicted.append((handle, offset, length))  # type: ignore[method-assign]  # to see the range

    for chunk in rig.stream.fill_to(segment_length + 3200):
        rig.recording.append(chunk)
    handles = [rig.recording.handle_at(base_position) for base_position in (0, segment_length)]
    rig.recording.flush()
    rig.worker.complete()

    assert evicted == [(handles[0], 0, segment_length), (handles[1], 0, 3200)]
