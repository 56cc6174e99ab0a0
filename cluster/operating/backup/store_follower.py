"""Keeps an object store up with the directory of a backup: a copy, a pause, the next copy, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiofiles.os
import structlog

from ....service_api import ClusterError, ConfigurationError
from ...runtime.ground.host import Host
from .shipping import Shipped, ship_backup
from .store_status import StoreStatus, without_secret, write_store_status

logger = structlog.get_logger()


class StoreFollower:
    """Copies until it is cancelled. A copy that has begun when that happens is ended first, in its thread."""

    def __init__(self, directory: Path, url: str, *, interval_s: float, host: Host) -> None:
        self._directory = directory
        self._url = url
        self._host = host
        self._clock = clock = host.clock
        self.status = StoreStatus(
            url=without_secret(url),
            log_stop_position=None,
            as_of_ms=None,
            interval_s=interval_s,
            copy_count=0,
            written_bytes=0,
            failure_count=0,
            last_failure="",
            pid=host.pid,
            written_ms=clock.epoch_time(),
        )
        self.on_copied: Callable[[StoreStatus], None] = lambda status: None
        """Told after each copy, and each one that failed."""

    def __repr__(self) -> str:
        return f"<StoreFollower {self.status.url} to={self.status.log_stop_position}>"

    async def run(self) -> None:
        """Copy again `interval_s` after the last copy began, or at once if it took longer.

        Raises:
            ConfigurationError: the directory is no backup, or an older Trimaran wrote the store: no later copy can
                succeed.
            OSError: the status cannot be written to the own disk.
        """
        host, interval_ns = self._host, int(self.status.interval_s * 1e9)
        while True:
            began_ns, as_of_ms = self._clock.monotonic_ns(), self._clock.epoch_time()
            try:
                shipped = await aiofiles.os.wrap(ship_backup)(
                    self._directory,
                    self._url,
                    clock_ms=self._clock.epoch_time,
                    disk=host.file_system,
                    open_objects=host.open_objects,
                )
            except ConfigurationError:
                raise
            except (ClusterError, OSError) as error:
                self._note_failure(error)
            else:
                self._note(shipped, as_of_ms)
            await aiofiles.os.wrap(write_store_status)(host.file_system, self._directory, self.status)
            self.on_copied(self.status)
            took_ns = self._clock.monotonic_ns() - began_ns
            await asyncio.sleep(max(0, interval_ns - took_ns) / 1e9)

    def _note(self, shipped: Shipped, as_of_ms: int) -> None:
        contents, before = shipped.contents, self.status
        self.status = before.model_copy(
            update={
                "log_stop_position": contents.log_stop_position,
                "as_of_ms": as_of_ms,
                "copy_count": before.copy_count + 1,
                "written_bytes": before.written_bytes + shipped.written_bytes,
                "written_count": before.written_count + shipped.written_count,
                "written_ms": self._clock.epoch_time(),
            }
        )
        is_new = before.log_stop_position is None
        (logger.info if is_new else logger.debug)(
            "backup.shipped",
            url=before.url,
            log_stop_position=contents.log_stop_position,
            written_bytes=shipped.written_bytes,
            removed_count=shipped.removed_count,
        )

    def _note_failure(self, error: Exception) -> None:
        failure = f"{type(error).__name__}: {error}"[:1_000]
        self.status = self.status.model_copy(
            update={
                "failure_count": self.status.failure_count + 1,
                "last_failure": failure,
                "written_ms": self._clock.epoch_time(),
            }
        )
        logger.warning("backup.ship_failed", url=self.status.url, error=failure)
