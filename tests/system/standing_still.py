"""A service whose process stands still in ways that a test chooses, by the words of requests and by files.

`sleep S` blocks in the callback. `thread`: the next thread that starts never says that it runs, as where it has no
memory. While the file `$STANDING_STILL/disk` exists no sync ends; `start` there has `on_start` block, `load` has it
wait for ever, and `executor` leaves a job behind that never ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from trimaran.archive.disk import file_system
from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, synced_files

PLACE = Path(os.environ.get("STANDING_STILL", "/nonexistent"))
_LOOK_S = 0.02
_AFTER_REPLY_S = 0.2


def _wait_while(name: str) -> None:
    while (PLACE / name).exists():
        time.sleep(_LOOK_S)


def _freeze_disk() -> None:
    sync = synced_files.sync_data

    def sync_when_it_answers(handle: int) -> None:
        if (PLACE / "disk").exists():
            (PLACE / "frozen").touch()
            _wait_while("disk")
        sync(handle)

    file_system.__dict__["sync_data"] = sync_when_it_answers


_freeze_disk()


class StandingStill(ClusteredService):
    """Counts requests."""

    def __init__(self) -> None:
        self.count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        if (PLACE / "start").exists():
            (PLACE / "started").touch()
        _wait_while("start")
        if (PLACE / "load").exists():
            (PLACE / "started").touch()
            await asyncio.Event().wait()
        if (PLACE / "executor").exists():
            asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        word, _, rest = bytes(payload).decode().partition(" ")
        if word == "sleep":
            time.sleep(float(rest))
        elif word == "thread":
            asyncio.get_running_loop().call_later(_AFTER_REPLY_S, _start_thread_without_memory)
        self.count += 1
        return b"%d" % self.count


def _start_thread_without_memory() -> None:
    thread = threading.Thread(target=lambda: None)
    thread._started.set = lambda: None  # type: ignore[attr-defined]
    thread.start()
