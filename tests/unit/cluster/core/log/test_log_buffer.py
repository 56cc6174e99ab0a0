"""The window of the log: what is found where, what is dropped, and how far a reader that lags has to look."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.service_api import InvariantViolation


class CountingList(list[int]):
    """Counts how many of its elements are looked at."""

    look_count = 0

    def __getitem__(self, index: Any) -> Any:  # an index or a slice, as in a list
        self.look_count += 1
        return super().__getitem__(index)


def test_reader_far_behind_finds_its_chunk_in_a_few_looks() -> None:
    """A commit that comes late finds thousands of small chunks to deliver.

    Looking through them from the newest for each took 5.6 s for 10,000 chunks, in which the loop stood still: longer
    than the heartbeat timeout, so a slow sync ended in an election.
    """
    log_buffer = LogBuffer(position=0, retained_bytes=1 << 30)
    for _ in range(10_000):
        log_buffer.append(bytes(32))
    log_buffer._starts = starts = CountingList(log_buffer._starts)

    for position in (0, 32 * 10, 32 * 5_000, 32 * 9_998):
        starts.look_count = 0
        assert log_buffer.chunk_at(position) == (bytes(32), 0)
        assert starts.look_count <= 20


@pytest.mark.parametrize("seed", range(20))
def test_window_agrees_with_a_plain_string_of_bytes(seed: int) -> None:
    random = Random(seed)
    base = 32 * random.randrange(100)
    log_buffer, log = LogBuffer(position=base, retained_bytes=32 * random.randrange(30)), b""
    pending = b""

    for _ in range(200 if seed else 6000):
        match random.randrange(4):
            case 0 | 1:
                chunk = random.randbytes(32 * random.randint(1, 6))
                log_buffer.append(chunk)
                log, pending = log + chunk, pending + chunk
            case 2:
                assert log_buffer.flushed_position == base + len(log) - len(pending)
                assert b"".join(log_buffer.take_pending()) == pending
                pending = b""
            case 3:
                log_buffer.discard_before(base + 32 * random.randint(0, len(log) // 32))

        assert log_buffer.append_position == base + len(log)
        position = random.randrange(log_buffer.base_position, log_buffer.append_position + 32, 32)
        assert b"".join(log_buffer.chunks_from(position)) == log[position - base :]
        found = log_buffer.chunk_at(position)
        if position == log_buffer.append_position:
            assert found is None
        else:
            assert found is not None
            chunk, offset = found
            start = position - offset - base
            assert 0 <= offset < len(chunk)
            assert log[start : start + len(chunk)] == chunk


def test_dropped_chunks_are_not_kept() -> None:
    """The lists may begin with places of dropped chunks, but not for ever, and not with their bytes."""
    log_buffer = LogBuffer(position=0, retained_bytes=320)
    for position in range(32, 32 * 100_000, 32):
        log_buffer.append(bytes(32))
        log_buffer.take_pending()
        log_buffer.discard_before(position)

    assert log_buffer.append_position - log_buffer.base_position == 320
    assert len(log_buffer._chunks) == len(log_buffer._starts) < 3_000
    assert sum(map(len, log_buffer._chunks)) == 320


def test_window_keeps_what_is_to_be_retained_and_what_is_not_committed() -> None:
    log_buffer = LogBuffer(position=0, retained_bytes=96)
    for _ in range(10):
        log_buffer.append(bytes(32))

    log_buffer.discard_before(32 * 4)
    assert log_buffer.base_position == 32 * 4
    log_buffer.discard_before(32 * 10)

    assert log_buffer.base_position == 32 * 7


@pytest.mark.parametrize("position", [0, 32 * 11])
def test_read_outside_the_window_is_a_bug_that_stops_the_node(position: int) -> None:
    log_buffer = LogBuffer(position=32, retained_bytes=0)
    log_buffer.append(bytes(32 * 9))

    with pytest.raises(InvariantViolation, match="outside the window"):
        log_buffer.chunk_at(position)
    with pytest.raises(InvariantViolation, match="outside the window"):
        list(log_buffer.chunks_from(position))


def test_window_that_is_reset_goes_on_elsewhere() -> None:
    log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)
    log_buffer.append(bytes(64))

    log_buffer.reset(640)
    log_buffer.append(b"x" * 32)

    assert (log_buffer.base_position, log_buffer.append_position) == (640, 672)
    assert log_buffer.take_pending() == [b"x" * 32]
    assert log_buffer.chunk_at(640) == (b"x" * 32, 0)
