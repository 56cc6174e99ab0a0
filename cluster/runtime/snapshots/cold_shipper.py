"""Ships the segments that retention would delete to cold storage, one after the other, beside everything else.

Retention deletes only below `shipped_position`, which moves once a segment is in the store, in the index there, and in
this directory's record. So while the store is slow or fails, segments stay on the disk, and the member serves on;
status, health and metrics say how many wait, since when, and why.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Self, TypeVar

import structlog

from ....archive import Archive
from ....archive.format.descriptor import RecordingDescriptor
from ....archive.store.cold_segments import ColdSegments, ColdStanding, run_in
from ....archive.store.cold_shipping import ColdShipping
from ....archive.stored.cluster_store import ClusterStore
from ....service_api import ClusterError
from ....service_api.cluster_id import format_cluster_id
from ....service_api.types import MemberId
from ...core.context import ConsensusContext
from ...settings.config import NodeConfig
from ..ground.host import Host

_T = TypeVar("_T")
RETRY_S: Final = 1.0
RETRY_LIMIT_S: Final = 60.0

logger = structlog.get_logger()


class ColdShipper:
    """Keeps cold storage ahead of retention, for one member."""

    def __init__(
        self,
        archive: Archive,
        log_recording_id: int,
        *,
        url: str,
        cache_bytes: int,
        member_id: MemberId,
        cluster_id: Callable[[], str | None],
        host: Host,
    ) -> None:
        self.standing: Final = ColdStanding()
        self.standing.catchup_start_position = self.catchup_start_position
        archive.cold_standing = self.standing
        self.shipped_position = 0
        """Below it every segment of the local log is in the store; nothing may be deleted above it."""
        self._archive = archive
        self._recording_id = log_recording_id
        self._url = url
        self._cache_bytes = cache_bytes
        self._member_id = member_id
        self._cluster_id = cluster_id
        self._host = host
        self._uploads = host.make_worker("cold-upload")
        self._downloads = host.make_worker("cold-fetch")
        self._monotonic_ns = host.clock.monotonic_ns
        self.on_shipped: Callable[[], None] = lambda: None
        """Called when `shipped_position` has moved."""
        self._wanted_position = 0
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ColdShipper shipped={self.shipped_position} wanted={self._wanted_position} url={self._url}>"

    @classmethod
    def of_config(cls, config: NodeConfig, archive: Archive, ctx: ConsensusContext, host: Host) -> Self | None:
        """Make what a member's settings ask for; None without a URL."""
        if not config.cold_storage_url:
            return None
        return cls(
            archive,
            ctx.log_recording_id,
            url=config.cold_storage_url,
            cache_bytes=config.cold_cache_bytes,
            member_id=MemberId(config.member_id),
            cluster_id=lambda: format_cluster_id(ctx.cluster_id),
            host=host,
        )

    def want(self, position: int) -> None:
        """Ship the whole segments below a position."""
        self._wanted_position = max(self._wanted_position, position)
        self._measure()
        self._wake.set()

    def catchup_start_position(self) -> int:
        """Return from where on another member is sent the log.

        That is no more below the log on this disk than the cache holds: for a member that is further behind a snapshot
        is quicker, and its disk need not have room for what has left all others.
        """
        descriptor, cold = self._descriptor(), self._archive.cold
        if cold is None:
            return descriptor.start_position
        return max(cold.extend(descriptor).start_position, descriptor.start_position - self._cache_bytes)

    async def run(self) -> None:
        """Ship what there is to ship, whenever there is something, until cancelled.

        What a thread still does then, for a store that hangs, ends with the process.
        """
        try:
            await self._run()
        finally:
            self._uploads.close()
            self._downloads.close()

    async def _run(self) -> None:
        while (cluster_id := self._cluster_id()) is None:
            await self._wait(RETRY_S)
        disk, open_objects = self._host.file_system, self._host.open_objects
        store = ClusterStore.below(self._url, cluster_id, disk=disk, open_objects=open_objects)
        cold = ColdSegments(
            self._archive.directory,
            self._recording_id,
            store=store,
            cache_bytes=self._cache_bytes,
            worker=self._downloads,
            disk=disk,
        )
        await self._until_done(lambda: run_in(self._uploads, cold.load))
        self._archive.cold = cold
        shipping = ColdShipping(
            store,
            self._archive.directory,
            cluster_id=cluster_id,
            member_id=self._member_id,
            disk=disk,
            clock_ms=self._host.clock.epoch_time,
        )
        cold.add(await self._until_done(lambda: run_in(self._uploads, shipping.load)))
        await self._until_done(lambda: run_in(self._uploads, cold.save))
        logger.info("cold_storage.opened", url=store.url, segment_count=len(cold.index))
        while True:
            base_position = self._next_base()
            if base_position is None:
                await self._wait(None)
                continue
            await self._until_done(partial(self._ship, shipping, cold, base_position))

    async def _ship(self, shipping: ColdShipping, cold: ColdSegments, base_position: int) -> None:
        descriptor, begin_ns = self._descriptor(), self._monotonic_ns()
        segment = await run_in(self._uploads, lambda: shipping.ship(descriptor, base_position))
        cold.add([segment])
        await run_in(self._uploads, cold.save)
        self.shipped_position = base_position + segment.length
        self.standing.shipped_count += 1
        self._measure()
        logger.info(
            "cold_segment.shipped",
            base_position=base_position,
            object=f"{shipping.store.url}/{segment.name}",
            duration_ms=(self._monotonic_ns() - begin_ns) // 1_000_000,
        )
        self.on_shipped()

    async def _until_done(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Try until it goes well, with a pause that doubles up to a minute."""
        pause_s = RETRY_S
        while True:
            try:
                result = await attempt()
            except (ClusterError, OSError) as error:
                self._note_failure(error, pause_s)
            else:
                if self.standing.failing_since_ns is not None:
                    logger.info("cold_storage.recovered", url=self._url)
                self.standing.failing_since_ns, self.standing.failure = None, ""
                return result
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_LIMIT_S)

    async def _wait(self, timeout_s: float | None) -> None:
        """Return when there may be more to do, or after so long."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    def _note_failure(self, error: Exception, pause_s: float) -> None:
        standing = self.standing
        standing.failed_count += 1
        if standing.failing_since_ns is None:
            standing.failing_since_ns = self._monotonic_ns()
        if str(error) != standing.failure:
            standing.failure = str(error)
            logger.warning("cold_storage.failed", url=self._url, reason=str(error), retry_s=pause_s)

    def _next_base(self) -> int | None:
        """Return where the first segment begins that is to be shipped; None if there is none."""
        descriptor = self._descriptor()
        position = max(descriptor.start_position, self.shipped_position)
        base = descriptor.segment_base_position(position)
        return base if base + descriptor.segment_file_length <= self._wanted_position else None

    def _measure(self) -> None:
        descriptor = self._descriptor()
        begin = max(descriptor.start_position, self.shipped_position)
        end = descriptor.segment_base_position(max(begin, self._wanted_position))
        self.standing.pending_bytes = max(0, end - begin)

    def _descriptor(self) -> RecordingDescriptor:
        return self._archive.descriptor(self._recording_id)
