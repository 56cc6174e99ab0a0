"""The watchdog of a process: what is a hang, and what only takes long."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from trimaran.archive.disk import file_system
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk_errors import explain_error
from trimaran.cluster.runtime.watching.process_end import end_on_lost_memory
from trimaran.cluster.runtime.watching.watchdog import Watchdog, is_waiting_for_disk, last_words_of
from trimaran.service_api.users_code import USERS_CODE, calls_users_code

LIMIT_TICKS = 10
SAID = b"hung\n"


class Rig:
    """A watchdog of this thread, which ticks when it is told to."""

    def __init__(self) -> None:
        self.ends: list[bytes] = []
        self.watchdog = Watchdog(3_600.0, last_words=SAID, excused_code=USERS_CODE, end=self.ends.append)

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.watchdog.tick()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_loop_that_stands_still_for_the_limit_ends_the_process(rig: Rig) -> None:
    rig.tick(LIMIT_TICKS - 1)
    assert rig.ends == []

    rig.tick(1)

    assert rig.ends == [SAID]


async def test_each_pulse_of_the_loop_begins_the_limit_again(rig: Rig) -> None:
    rig.watchdog.start()  # which is one pulse
    rig.tick(LIMIT_TICKS)
    assert rig.ends == []

    rig.tick(1)

    assert rig.ends == [SAID]


async def test_a_pulse_does_not_count_while_the_member_closes(rig: Rig) -> None:
    rig.watchdog.start()
    rig.watchdog.expect_end()
    rig.tick(LIMIT_TICKS)
    assert rig.ends == [SAID]


def test_a_member_that_opens_again_has_the_whole_limit(rig: Rig) -> None:
    rig.watchdog.expect_end()
    rig.tick(LIMIT_TICKS - 1)
    rig.watchdog.expect_turns()
    rig.watchdog._pulse_count += 1
    rig.tick(LIMIT_TICKS)
    assert rig.ends == []


def test_a_callback_of_the_service_may_take_as_long_as_it_wants(rig: Rig) -> None:
    @calls_users_code
    def deliver() -> None:
        on_request()

    def on_request() -> None:
        rig.tick(10 * LIMIT_TICKS)

    deliver()

    assert rig.ends == []


def test_a_coroutine_of_the_service_that_blocks_may_take_as_long_as_it_wants(rig: Rig) -> None:
    @calls_users_code
    async def start() -> None:
        await on_start()

    async def on_start() -> None:
        rig.tick(10 * LIMIT_TICKS)

    asyncio.run(start())

    assert rig.ends == []


def test_what_users_code_has_left_counts_again(rig: Rig) -> None:
    test_a_callback_of_the_service_may_take_as_long_as_it_wants(rig)

    rig.tick(LIMIT_TICKS)

    assert rig.ends == [SAID]


def test_a_disk_that_does_not_answer_is_no_hang(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system, "sync_file", lambda handle: rig.tick(10 * LIMIT_TICKS))

    OsFileSystem().sync_file(0)

    assert rig.ends == []


def test_a_hang_in_what_lies_beside_the_file_systems_is_one(rig: Rig) -> None:
    """Issue 44 §2: a loop without end in `disk_errors` was taken for a disk that does not answer."""

    class Endless:
        def __str__(self) -> str:
            rig.tick(LIMIT_TICKS)
            return "0"

    explain_error(OSError(5, "input/output error"), "read", offset=Endless())

    assert rig.ends == [SAID]


def test_a_sync_in_another_thread_is_waited_for_while_the_member_closes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, done = threading.Event(), threading.Event()

    def sync(handle: int) -> None:
        waiting.set()
        done.wait()

    monkeypatch.setattr(file_system, "sync_file", sync)
    disk = threading.Thread(target=OsFileSystem().sync_file, args=(0,))
    disk.start()
    waiting.wait()
    rig.watchdog.expect_end()
    rig.tick(10 * LIMIT_TICKS)
    done.set()
    disk.join()
    assert rig.ends == []

    rig.tick(LIMIT_TICKS)

    assert rig.ends == [SAID]


@pytest.mark.parametrize(
    ("stat", "is_waiting"), [(b"12 (a) D) D 1 1", True), (b"12 (python) S 1 1", False), (b"12 (D) R 1", False)]
)
def test_the_kernel_says_which_thread_waits_for_a_disk(tmp_path: Path, stat: bytes, is_waiting: bool) -> None:
    path = tmp_path / "stat"
    path.write_bytes(stat)

    assert is_waiting_for_disk(str(path)) is is_waiting


def test_where_the_kernel_says_nothing_no_thread_waits_for_a_disk(tmp_path: Path) -> None:
    assert not is_waiting_for_disk(str(tmp_path / "none"))


async def test_a_thread_that_ticks_no_more_ends_the_process() -> None:
    """The loop looks after what looks after it."""
    ends: list[bytes] = []
    watchdog = Watchdog(0.001, last_words=SAID, end=ends.append)
    watchdog._run = lambda: None  # type: ignore[method-assign]  # a thread that ends at once
    watchdog.start()
    await until(lambda: ends)
    watchdog._tick_s = 3_600.0

    assert ends[0] == SAID


async def test_a_thread_that_has_no_memory_to_look_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bytes] = []

    def end(said: bytes) -> None:
        ends.append(said)
        raise SystemExit  # as the end of the process would, this leaves the thread

    def tick() -> None:
        raise MemoryError

    watchdog = Watchdog(0.01, last_words=SAID, end=end)
    watchdog.tick = tick  # type: ignore[method-assign]
    watchdog.start()
    await until(lambda: ends)
    watchdog._tick_s = 3_600.0

    assert ends == [SAID]


def test_the_last_words_are_a_line_of_the_log() -> None:
    line = last_words_of("node.hung", "a reason", member_id=2)

    assert line.endswith(b"}\n")
    assert json.loads(line) == {"event": "node.hung", "reason": "a reason", "member_id": 2, "level": "critical"}


@pytest.fixture
def memory_ends() -> Iterator[list[bytes]]:
    """Return what `end_on_lost_memory` ends the process with; how Python reports is left as it was."""
    hooks, logger = (sys.unraisablehook, threading.excepthook), logging.getLogger("concurrent.futures")
    ends: list[bytes] = []
    sys.unraisablehook = lambda failed: None
    threading.excepthook = lambda failed: None
    handlers, kind = [*logger.handlers], logger.__class__
    end_on_lost_memory(SAID, end=ends.append)
    try:
        yield ends
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        logger.handlers[:], logger.__class__ = handlers, kind


class FailingAtEnd:
    """Raises when it is collected."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def fail_in_finalizer(error: BaseException) -> None:
    FailingAtEnd(error)


def fail_in_thread(error: BaseException) -> None:
    def run() -> None:
        raise error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def fail_in_worker(error: BaseException) -> None:
    try:
        raise error
    except BaseException:
        logging.getLogger("concurrent.futures").critical("Exception in worker", exc_info=True)


@pytest.mark.parametrize("fail", [fail_in_finalizer, fail_in_thread, fail_in_worker])
def test_memory_that_runs_out_where_nobody_is_told_ends_the_process(memory_ends: list[bytes], fail: object) -> None:
    assert callable(fail)

    fail(ValueError("one thing's own"))
    assert memory_ends == []

    fail(MemoryError())
    assert memory_ends == [SAID]


def test_a_service_that_configures_logging_does_not_hide_that_memory_ran_out(
    memory_ends: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default `logging.config` disables every logger that it does not name."""
    logging.getLogger("concurrent.futures").disabled = True
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)

    fail_in_worker(MemoryError())

    assert memory_ends == [SAID]
