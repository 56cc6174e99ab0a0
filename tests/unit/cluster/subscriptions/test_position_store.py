"""The file in which a subscriber keeps its position, and the pump that writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from trimaran import ConfigurationError
from trimaran.cluster.subscriptions import FilePositionStore, LogEntry, pump
from trimaran.cluster.testing import MemoryCluster

from .test_subscription import Echo, numbers, request_many


def test_a_position_survives_in_its_file(tmp_path: Path) -> None:
    store = FilePositionStore(tmp_path / "position")
    assert store.load() is None

    store.save(4096)
    store.save(8192)

    assert FilePositionStore(tmp_path / "position").load() == 8192
    assert [path.name for path in tmp_path.iterdir()] == ["position"]


@pytest.mark.parametrize("content", [b"", b"-32", b"half a posi", b"0x20"])
def test_a_file_with_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "position").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"no position.*position: .*bytes"):
        FilePositionStore(tmp_path / "position").load()


class FailingSink:
    """Takes in batches, until it fails at a number."""

    def __init__(self, fails_at: int) -> None:
        self.delivered: list[LogEntry] = []
        self._fails_at = fails_at

    async def deliver(self, entries: Sequence[LogEntry]) -> None:
        if self._fails_at in numbers([*entries]):
            raise ConnectionError("the receiver is down")
        self.delivered += entries


def test_a_pump_goes_on_behind_the_last_batch_that_its_sink_took(tmp_path: Path) -> None:
    store = FilePositionStore(tmp_path / "position")

    async def run(memory: MemoryCluster) -> None:
        await request_many(memory, 0, 5)
        first, second = FailingSink(7), FailingSink(-1)
        async with memory.subscribe(kinds=["request"]) as entries:
            assert await pump(entries, first, store, entry_limit=5) == 5
            await request_many(memory, 5, 5)
            with pytest.raises(ConnectionError):
                await pump(entries, first, store)
        async with memory.subscribe(from_position=store.load(), kinds=["request"]) as entries:
            await pump(entries, second, store, entry_limit=10 - len(first.delivered))
        assert numbers(first.delivered + second.delivered) == [*range(10)]

    with MemoryCluster(Echo) as memory:
        memory.run(run(memory))
