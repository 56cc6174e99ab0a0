"""A cluster that runs, under load, while a notebook looks on."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from .cluster import MEMBER_COUNT, DemoCluster
from .morning import data_directory
from .notebook_loop import NotebookLoop
from .traffic import MorningClock, Traffic, web_requests

LENGTH_S: Final = 25.0
"""How long the requests of the morning take here; then the load ends by itself."""

WAIT_TIMEOUT_S: Final = 90.0


class KilledLeader(NamedTuple):
    """Who was killed, and when."""

    member_id: int
    at: datetime
    """UTC."""


class LiveCluster:
    """Three members as processes on this machine, and clients that send the morning's requests to them.

        live = LiveCluster()
        live.begin_load()
        ...
        live.stop()

    It runs on an event loop in a thread of its own. The load lasts 25 seconds; the members run until `stop`, or until
    the notebook's kernel ends. Methods block.

    Raises:
        TimeoutError: there was no leader in time.
        ClusterError: a member could not be started.
    """

    def __init__(self) -> None:
        self.directory = data_directory() / "live"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._thread = NotebookLoop("trimaran-live")
        self._cluster = DemoCluster(self.directory)
        self._traffic: Traffic | None = None
        self._load: asyncio.Task[None] | None = None
        try:
            self.leader_member_id = self._thread.run(self._cluster.start())
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        return f"<LiveCluster leader={self.leader_member_id} answered={self.answered_count:,}>"

    def member(self, member_id: int) -> Path:
        """A member's directory."""
        return self.directory / f"node-{member_id}"

    @property
    def path(self) -> str:
        """Every member's directory, as the data source takes them."""
        return ",".join(str(self.member(member_id)) for member_id in range(MEMBER_COUNT))

    @property
    def commit_from(self) -> str:
        """Where members say how far the log is committed, as the data source takes it."""
        return ",".join(self._cluster.consensus_endpoints)

    @property
    def answered_count(self) -> int:
        """How many requests have their answer by now."""
        return 0 if self._traffic is None else self._traffic.answered_count

    def begin_load(self) -> None:
        """Let the clients come, and send the morning's requests in 25 seconds."""
        self._thread.run(self._begin_load())

    def kill_leader(self) -> KilledLeader:
        """End the leader with SIGKILL; the others elect another. Gives who it was, and when."""
        killed = KilledLeader(self.leader_member_id, datetime.now(UTC))
        self._thread.run(self._cluster.kill([killed.member_id]))
        self.leader_member_id = self._thread.run(self._cluster.leader(member_count=MEMBER_COUNT - 1))
        return killed

    def wait_for_answers(self, count: int | None = None) -> int:
        """Wait until so many requests are answered, or all of them; gives how many are.

        Raises:
            TimeoutError: that took too long.
        """
        assert self._traffic is not None, "begin_load comes first"
        assert self._load is not None, "begin_load comes first"
        if count is None:
            self._thread.run(asyncio.wait_for(asyncio.shield(self._load), WAIT_TIMEOUT_S))
        else:
            self._thread.run(asyncio.wait_for(self._traffic.wait_for_answers(count), WAIT_TIMEOUT_S))
        return self.answered_count

    def stop(self) -> None:
        """End the load if it goes on, stop the members in order, and the thread. More calls do nothing."""
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._end_load())
            self._thread.run(self._cluster.stop())
        finally:
            self._end()

    async def _begin_load(self) -> None:
        clock = MorningClock(asyncio.get_running_loop(), length_s=LENGTH_S)
        self._traffic = Traffic(self._cluster.endpoints, clock, web_requests())
        self._load = asyncio.create_task(self._traffic.run(), name="load")

    async def _end_load(self) -> None:
        if self._load is not None:
            self._load.cancel()
            await asyncio.wait([self._load])

    def _end(self) -> None:
        self._thread.run(self._cluster.close())
        self._thread.end()
