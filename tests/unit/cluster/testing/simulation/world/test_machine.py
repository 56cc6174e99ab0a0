"""A machine loses what machines lose: with its process nothing that was written, with its power what was not synced."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.unit.cluster.testing.simulation.small_world import JOB_NS, MS, SECOND, World, forever, world

DIRECTORY = Path("/data")
FILE = DIRECTORY / "file"
SECTOR = 512


def write_file(it: World, *, sync_first: bool, data: bytes) -> None:
    """Let a process write zeros, make them durable if told so, and write over them without another sync."""

    async def main() -> None:
        disk = it.machines["a"].disk
        disk.make_directory(DIRECTORY)
        handle = disk.open_file(FILE, create=True)
        if sync_first:
            disk.pwrite(handle, bytes(len(data)), 0)
            disk.sync_data(handle)
            disk.sync_directory(DIRECTORY)
        disk.pwrite(handle, data, 0)
        assert disk.try_lock(handle)
        await forever()

    it.start("a", main)
    it.run()


def test_a_killed_process_leaves_what_it_wrote_and_no_lock() -> None:
    with world("a") as it:
        write_file(it, sync_first=False, data=b"written")
        machine = it.machines["a"]
        machine.kill()

        assert not machine.is_running
        assert machine.has_power
        assert machine.disk.content(FILE) == b"written"
        assert machine.disk.try_lock(machine.disk.open_file(FILE))


@pytest.mark.parametrize(("keeps", "expected"), [(False, bytes(2000)), (True, b"x" * 2000)])
def test_a_power_loss_takes_or_leaves_what_was_not_synced(keeps: bool, expected: bytes) -> None:
    with world("a") as it:
        write_file(it, sync_first=True, data=b"x" * 2000)
        it.machines["a"].lose_power(lambda: keeps)

        assert it.machines["a"].disk.content(FILE) == expected


def test_a_power_loss_tears_what_was_not_synced_by_sectors_in_any_order() -> None:
    with world("a") as it:
        write_file(it, sync_first=True, data=b"x" * 4 * SECTOR)
        answers = iter((False, True, False, True))
        it.machines["a"].lose_power(lambda: next(answers))

        zeros, written = bytes(SECTOR), b"x" * SECTOR
        assert it.machines["a"].disk.content(FILE) == zeros + written + zeros + written


def test_the_boot_id_changes_with_the_power_only() -> None:
    with world("a", "b") as it:
        machine = it.machines["a"]
        boot_ids = [machine.host().boot_id]
        it.start("a", forever)
        machine.kill()
        boot_ids.append(machine.host().boot_id)
        it.start("a", forever)
        machine.lose_power(lambda: True)
        machine.regain_power()
        boot_ids.append(machine.host().boot_id)

        assert boot_ids[0] == boot_ids[1] != boot_ids[2]
        assert it.machines["b"].host().boot_id not in boot_ids


def test_a_replaced_disk_is_empty_and_is_watched_as_the_one_before() -> None:
    with world("a") as it:
        write_file(it, sync_first=True, data=b"x")
        machine = it.machines["a"]
        machine.kill()
        machine.replace_disk()
        operations: list[str] = []
        machine.on_disk_operation = lambda name, path, length: operations.append(name)
        write_file(it, sync_first=True, data=b"y")

        assert operations == ["create", "pwrite", "sync", "sync_directory", "pwrite"]
        assert machine.disk.content(FILE) == b"y"


def test_a_sync_in_the_loop_makes_the_process_late_and_one_in_a_job_does_not() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop, disk = asyncio.get_running_loop(), it.machines["a"].disk
        disk.make_directory(DIRECTORY)
        handle = disk.open_file(FILE, create=True)
        begin_ns = it.machines["a"].clock.monotonic_ns()
        disk.sync_data(handle)
        seen.append(it.machines["a"].clock.monotonic_ns() - begin_ns)
        await asyncio.sleep(0)
        begin_ns = it.machines["a"].clock.monotonic_ns()
        await loop.run_in_executor(None, disk.sync_data, handle)
        seen.append(it.machines["a"].clock.monotonic_ns() - begin_ns)

    with world("a") as it:
        it.start("a", main)
        it.run()

        assert it.exits == [("a", "None")]
    assert seen == [JOB_NS, JOB_NS]


# --- the worker


def test_a_worker_does_one_job_after_another_and_says_how_each_ended() -> None:
    log: list[tuple[str, object, int]] = []

    def work(number: int) -> None:
        log.append(("job", number, it.now_ns))
        if number == 1:
            raise OSError(5, "no")

    def done(error: BaseException | None) -> None:
        log.append(("done", error and str(error), it.now_ns))

    async def main() -> None:
        worker = it.machines["a"].host().make_worker("disk")
        for number in range(3):
            worker.submit(partial(work, number), done)
        assert log == []
        await asyncio.sleep(1)
        worker.close()

    with world("a") as it:
        begin_ns = it.now_ns
        it.start("a", main)
        it.run()

    assert [(what, value, (at_ns - begin_ns) // JOB_NS) for what, value, at_ns in log] == [
        ("job", 0, 1),
        ("done", None, 1),
        ("job", 1, 2),
        ("done", "[Errno 5] no", 2),
        ("job", 2, 3),
        ("done", None, 3),
    ]


@pytest.mark.parametrize("cut_power", [False, True])
def test_a_job_that_was_not_done_when_its_process_died_has_no_effect(cut_power: bool) -> None:
    effects: list[int] = []

    async def main() -> None:
        worker = it.machines["a"].host().make_worker("disk")
        for number in range(5):
            worker.submit(partial(effects.append, number), lambda error: None)
        await forever()

    with world("a") as it:
        it.start("a", main)
        it.run(2 * JOB_NS + MS)
        if cut_power:
            it.machines["a"].lose_power(lambda: True)
        else:
            it.machines["a"].kill()
        it.run()

    assert effects == [0, 1]


# --- processes


def test_a_machine_starts_another_process_after_one_has_died_and_the_dead_one_is_not_heard_of() -> None:
    seen: list[int] = []

    async def main(number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    with world("a") as it:
        it.start("a", lambda: main(1))
        it.run(SECOND // 2)
        it.machines["a"].kill()
        it.machines["a"].kill()
        it.start("a", lambda: main(2))
        it.run(2 * SECOND)

        assert seen == [2]
        assert it.exits == [("a", "None")]
        assert it.machines["a"].incarnation == 2


def test_a_process_that_blocks_when_it_is_killed_does_not_make_the_next_one_late() -> None:
    seen: list[int] = []

    async def block() -> None:
        it.loop("a").block(SECOND)
        await forever()

    async def note() -> None:
        seen.append(it.now_ns)

    with world("a") as it:
        it.start("a", block)
        it.run(MS)
        it.machines["a"].kill()
        it.start("a", note)
        begin_ns = it.now_ns
        it.run(MS)

    assert seen == [begin_ns]
