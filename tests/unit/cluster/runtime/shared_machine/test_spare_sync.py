"""When a follower that no majority needs syncs: a little later, unless somebody waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.archive.streams import failing
from tests.unit.cluster.runtime.log_member import Member, member
from tests.waiting import until
from trimaran.cluster.runtime.shared_machine.spare_sync import LATE_LIMIT_BYTES

DELAY_US = 10_000
NEVER_US = 3_600_000_000
"""A late sync that no test lives to see."""


@asynccontextmanager
async def spare(delay_us: int) -> AsyncIterator[Member]:
    async with member(spare_sync_delay_us=delay_us) as me:
        me.ctx.is_spare = True
        yield me


def record(me: Member, count: int = 1, *, length: int = 32) -> int:
    """Append messages and flush, as a follower does with what it was sent; give where the log ends."""
    me.append(count, length=length)
    me.control.flush()
    return me.ctx.log_buffer.append_position


async def test_spare_follower_tells_what_it_has_once_it_is_durable() -> None:
    async with spare(DELAY_US) as me:
        end = record(me) and record(me)
        assert me.recorded == []

        await until(lambda: me.recorded)

        assert me.recorded == [end]


async def test_what_waits_is_written_and_neither_synced_nor_told() -> None:
    async with spare(NEVER_US) as me:
        operations: list[str] = []
        me.disk.on_operation = lambda name, path, length: operations.append(name)

        record(me)

        assert operations == ["pwrite"]
        assert me.recorded == []


@pytest.mark.parametrize("is_spare", [True, False])
async def test_only_a_spare_follower_waits(is_spare: bool) -> None:
    async with spare(NEVER_US) as me:
        me.ctx.is_spare = is_spare

        end = record(me)

        assert me.recorded == ([] if is_spare else [end])


async def test_nobody_waits_where_that_is_switched_off() -> None:
    async with spare(0) as me:
        end = record(me)

        assert me.recorded == [end]


async def test_much_does_not_wait() -> None:
    async with spare(NEVER_US) as me:
        while record(me, length=1024) <= LATE_LIMIT_BYTES:
            assert me.recorded == []

        await until(lambda: me.recorded)
        assert me.recorded == [me.ctx.log_buffer.append_position]


async def test_stop_does_not_wait() -> None:
    async with spare(NEVER_US) as me:
        end = record(me)

        assert await me.control.stop() == end
        assert me.recorded == [end]


async def test_whoever_reads_here_does_not_wait() -> None:
    async with spare(NEVER_US) as me:
        end = record(me)

        me.control.sync()

        assert me.recorded == [end]


async def test_follower_that_was_waited_for_does_not_wait_again_soon() -> None:
    """Nothing of what waited was committed before it was synced: those who should be quicker are not."""
    async with spare(DELAY_US) as me:
        record(me)
        await until(lambda: me.recorded)

        end = record(me)

        assert me.recorded[-1] == end


async def test_follower_that_nobody_waited_for_waits_again() -> None:
    async with spare(DELAY_US) as me:
        me.ctx.notified_commit_position = record(me)
        await until(lambda: me.recorded)

        before = me.recorded[:]
        end = record(me)
        assert me.recorded == before

        await until(lambda: me.recorded != before)
        assert me.recorded[-1] == end


async def test_late_sync_that_fails_is_told() -> None:
    """Source: peers.md C4 class 4."""
    async with spare(DELAY_US) as me:
        record(me)
        me.disk.on_operation = failing(OSError(5, "Input/output error"), "sync")

        await until(lambda: me.failures)

        assert "Input/output error" in str(me.failures[0])
        assert me.recorded == []


async def test_recording_that_has_failed_meanwhile_is_told_and_not_synced() -> None:
    async with spare(DELAY_US) as me:
        record(me)
        me.disk.on_operation = failing(OSError(28, "No space left on device"), "pwrite")
        me.append(1)
        me.control._on_frames(None)
        assert len(me.failures) == 2  # the recording's word, and that of who was appending

        await until(lambda: len(me.failures) > 2)

        assert {str(error) for error in me.failures} == {str(me.failures[0])}
