"""A member's archive with its retention and its cold storage, for tests of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.unit.archive.streams import TERM_LENGTH, BytesSink, StreamBuilder, launch, small_config
from tests.waiting import wait_until
from trimaran.archive import Archive
from trimaran.archive.cold.cache import CACHE_DIRECTORY_NAME
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.store.replay import ReplaySession
from trimaran.cluster.core import effects as fx
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.runtime.snapshots.cold_shipper import ColdShipper
from trimaran.cluster.runtime.snapshots.retention import Retention
from trimaran.service_api.types import MemberId

END = 6 * TERM_LENGTH
NEEDED = 5 * TERM_LENGTH
CLUSTER_ID = "00000000000000c1"
CACHED = 2


class Rig:
    """The retention and the cold storage of one member, over an archive with a log of six segments."""

    def __init__(self, archive: Archive, url: str, member_id: int) -> None:
        self.archive = archive
        self.url = url
        self.shipper = ColdShipper(
            archive,
            0,
            url=url,
            cache_bytes=CACHED * TERM_LENGTH,
            member_id=MemberId(member_id),
            cluster_id=lambda: CLUSTER_ID,
            host=Host.of_operating_system(),
        )
        self.failures: list[BaseException] = []
        self.retention = Retention(
            archive,
            0,
            member_positions=dict,
            monotonic_ns=lambda: 0,
            on_failed=self.failures.append,
            cold=self.shipper,
        )

    @property
    def start_position(self) -> int:
        return self.archive.descriptor(0).start_position

    @property
    def cache(self) -> list[str]:
        return sorted(path.name.partition("-")[0] for path in (self.archive.directory / CACHE_DIRECTORY_NAME).iterdir())

    def want(self, position: int = NEEDED) -> None:
        """Say that the log is not needed below a position."""
        self.retention.purge(fx.PurgeArchive((), position))

    async def fail(self) -> None:
        """Return when an attempt has failed."""
        await wait_until(lambda: self.shipper.standing.failed_count > 0, timeout_s=20, what="a failure")

    async def purge(self, position: int = NEEDED) -> None:
        self.want(position)
        await wait_until(lambda: self.start_position == position, timeout_s=20, what=lambda: repr(self.shipper))

    async def replay(self, position: int = 0) -> bytes:
        sink = BytesSink()
        session = ReplaySession(self.archive, 0, position=position, stop_position=END, sink=sink)
        await session.run()
        return bytes(sink.data)


@asynccontextmanager
async def member(directory: Path, url: str, *, member_id: int = 0) -> AsyncIterator[Rig]:
    """Run a member's archive, whose log is made if it is not there, with its retention and cold storage."""
    is_new = not directory.exists()
    archive = await launch(OsFileSystem(), directory, config=small_config(spares_readers=False))
    if is_new:
        recording = await archive.start_recording(
            stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
        )
        for chunk in StreamBuilder().fill_to(END):
            recording.append(chunk)
        recording.flush()
        await recording.wait_recorded(END)
    rig = Rig(archive, url, member_id)
    tasks = [asyncio.create_task(rig.shipper.run()), asyncio.create_task(rig.retention.run())]
    try:
        yield rig
        assert not [task for task in tasks if task.done()]
        assert rig.failures == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await archive.aclose()


def whole_log() -> bytes:
    return b"".join(StreamBuilder().fill_to(END))
