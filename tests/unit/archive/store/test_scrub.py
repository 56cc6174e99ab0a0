"""A scrub reads everything that is recorded, tells of what is damaged, and goes on after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.archive.store.test_mending import END, PLACE, content, record
from tests.unit.archive.streams import DIRECTORY, TERM_LENGTH, launch
from tests.waiting import until
from trimaran.archive import Archive
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.store.scrub import Scrub

OnDamage = Callable[[int, int], Awaitable[object]]


@asynccontextmanager
async def scrubbing(
    archive: Archive, disk: MemoryFileSystem, on_damage: OnDamage, *, bound: int = END, rate: int = 0
) -> AsyncIterator[Scrub]:
    """Run a scrub that begins a pass only when it is asked."""
    scrub = Scrub(
        archive,
        disk,
        rate_limit_bytes_per_s=rate,
        interval_s=3600,
        bound=lambda recording_id: bound,
        on_damage=on_damage,
        clock_ms=lambda: 1234,
    )
    task = asyncio.create_task(scrub.run())
    try:
        yield scrub
    finally:
        task.cancel()
        await asyncio.wait([task])


async def one_pass(scrub: Scrub) -> None:
    count = scrub.progress.pass_count
    scrub.ask()
    await until(lambda: scrub.progress.pass_count > count)


async def test_a_scrub_finds_every_damaged_place_and_reads_on_after_it() -> None:
    disk, found = MemoryFileSystem(), []
    archive = await launch(disk)
    await record(archive)
    disk.damage(DIRECTORY / "0-0.rec", PLACE + 40, b"\1")
    disk.damage(DIRECTORY / f"0-{TERM_LENGTH}.rec", 1408 * 2, bytes(1408))
    disk.remove(DIRECTORY / f"0-{2 * TERM_LENGTH}.rec")

    async def on_damage(recording_id: int, position: int) -> None:
        found.append((recording_id, position))

    async with scrubbing(archive, disk, on_damage) as scrub:
        await one_pass(scrub)

    assert found == [(0, PLACE), (0, TERM_LENGTH + 2816)]  # the active segment is read through the writer's handle
    assert [place.position for place in archive.damage.places] == [PLACE, TERM_LENGTH + 2816]
    assert (scrub.progress.found_count, scrub.progress.last_pass_ms, scrub.progress.recording_id) == (2, 1234, None)
    assert scrub.progress.read_bytes == END


async def test_what_its_owner_mends_is_damaged_no_more() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    disk.damage(DIRECTORY / "0-0.rec", PLACE + 40, b"\1")

    async def on_damage(recording_id: int, position: int) -> None:
        await archive.mend_recording(recording_id, position, log[position : position + 2816])

    async with scrubbing(archive, disk, on_damage) as scrub:
        await one_pass(scrub)

    assert content(disk) == log
    assert (archive.damage.places, scrub.progress.found_count) == ([], 1)


async def test_a_scrub_does_not_read_beyond_its_bound() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await record(archive)
    disk.damage(DIRECTORY / f"0-{TERM_LENGTH}.rec", 40, b"\1")

    async def on_damage(recording_id: int, position: int) -> None:
        raise AssertionError

    async with scrubbing(archive, disk, on_damage, bound=TERM_LENGTH) as scrub:
        await one_pass(scrub)

    assert scrub.progress.read_bytes == TERM_LENGTH


@pytest.mark.parametrize("is_whole", [True, False])
async def test_what_is_purged_while_it_is_read_is_no_damage(*, is_whole: bool) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await record(archive, is_active=False)

    async with scrubbing(archive, disk, _fail) as scrub:
        scrub.ask()
        await until(lambda: scrub.progress.is_running)
        await (archive.purge_recording(0) if is_whole else archive.purge_segments(0, TERM_LENGTH))
        await until(lambda: scrub.progress.pass_count > 0)

    assert archive.damage.places == []


async def _fail(recording_id: int, position: int) -> None:
    raise AssertionError(f"recording_id={recording_id} position={position}")
