"""The cold segments of a log whose archive runs: which there are, and how those that a replay needs come back.

A read that needs one raises `SegmentColdError`, at once. The replay then has it fetched, in a thread, and reads again.
So the event loop never waits for the store, and a store that hangs holds up who reads there and nobody else. One
segment is fetched at a time: replays that need the same one share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import structlog

from ...service_api.errors import ClusterError
from ..cold.cache import CACHE_DIRECTORY_NAME, SegmentCache
from ..cold.record import ColdIndex, ColdRecord, read_record
from ..disk.file_system import FileSystem, replace_file
from ..errors import ArchiveError, ArchiveErrorCode
from ..format.descriptor import RecordingDescriptor
from ..format.layout import COLD_RECORD_NAME
from ..stored.cluster_store import ClusterStore, StoreError
from ..stored.index import StoredSegment
from .worker import Worker

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class SegmentColdError(ArchiveError):
    """What is to be read lies in cold storage, and not on this disk."""


@dataclass(slots=True)
class ColdCounts:
    """What was fetched since the start."""

    fetched_count: int = 0
    fetched_bytes: int = 0
    failed_count: int = 0


@dataclass(slots=True)
class ColdStanding:
    """How well segments go to the store, for status, health and metrics."""

    pending_bytes: int = 0
    """What retention would delete, and is not in the store yet."""
    shipped_count: int = 0
    """Since the start, with those that another member had written already."""
    failed_count: int = 0
    failing_since_ns: int | None = None
    """By the monotonic clock; None while the last attempt went well."""
    failure: str = ""
    catchup_start_position: Callable[[], int] = lambda: 0
    """From where on a member that comes back gets the log, and not a snapshot."""


class ColdSegments:
    """The cold segments of one recording. All methods are called on the event loop, unless they say that they block."""

    def __init__(
        self,
        directory: Path,
        recording_id: int,
        *,
        store: ClusterStore,
        cache_bytes: int,
        worker: Worker,
        disk: FileSystem,
    ) -> None:
        self.recording_id: Final = recording_id
        self.store: Final = store
        self.cache: Final = SegmentCache(directory / CACHE_DIRECTORY_NAME, limit_bytes=cache_bytes, disk=disk)
        self.index: Final = ColdIndex()
        self.counts: Final = ColdCounts()
        self._directory, self._disk = directory, disk
        self._worker = worker
        self._fetches: dict[int, asyncio.Future[bool]] = {}

    def __repr__(self) -> str:
        return f"<ColdSegments recording={self.recording_id} segments={len(self.index)} store={self.store.url}>"

    def load(self) -> None:
        """Take over what the directory says of this store. Blocks.

        Raises:
            OSError: the disk refused.
        """
        try:
            record = read_record(self._directory, self._disk)
        except ArchiveError as error:
            _log.warning("cold_storage.record_damaged", reason=str(error))
            return
        if record is not None and (record.url, record.recording_id) == (self.store.url, self.recording_id):
            self.index.add(record.segments)

    def save(self) -> None:
        """Write what the directory says, durably. Blocks.

        Raises:
            OSError: the disk refused.
        """
        record = ColdRecord(
            url=self.store.url,
            recording_id=self.recording_id,
            cache_bytes=self.cache.limit_bytes,
            segments=self.index.segments,
        )
        replace_file(self._disk, self._directory / COLD_RECORD_NAME, record.seal())

    def add(self, segments: Sequence[StoredSegment]) -> None:
        """Know of segments that are in the store."""
        self.index.add(segments)

    def extend(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Let the recording begin where its cold segments do."""
        return self.index.extend(descriptor) if descriptor.recording_id == self.recording_id else descriptor

    def find_path(self, descriptor: RecordingDescriptor, position: int) -> Path | None:
        """Name the cached file of the segment of a position; None if it is no cold one.

        Raises:
            SegmentColdError: it is cold, and has to be fetched.
        """
        segment = self._find(descriptor, position)
        if segment is None:
            return None
        if not self.cache.has(segment):
            raise SegmentColdError(
                f"the segment is in cold storage: object={self.store.url}/{segment.name}",
                recording_id=self.recording_id,
                position=position,
            )
        return self.cache.path_of(segment)

    async def fetch(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Return when the segment of a position is on the disk.

        Raises:
            ArchiveError: STORAGE_FAILED: the store, or the disk, refused; it names the URL and the segment.
        """
        segment = self._find(descriptor, position)
        if segment is None:
            return
        fetch = self._fetches.get(segment.base_position)
        if fetch is None:
            fetch = self._fetches[segment.base_position] = run_in(
                self._worker, lambda: self.cache.fetch(self.store, segment)
            )
            fetch.add_done_callback(lambda done: self._on_fetched(segment, done))
        try:
            await asyncio.shield(fetch)
        except (ClusterError, OSError) as error:
            cause = error if isinstance(error, ClusterError) else StoreError(str(error))
            raise ArchiveError(
                f"cold segment not fetched: {error}",
                code=ArchiveErrorCode.STORAGE_FAILED,
                recording_id=self.recording_id,
                position=position,
            ) from cause

    def drop(self, descriptor: RecordingDescriptor, position: int) -> bool:
        """Forget the cached file of a position, whose bytes were found wrong; False if it is no cold one."""
        segment = self._find(descriptor, position)
        if segment is not None:
            self.cache.drop(segment)
        return segment is not None

    def _find(self, descriptor: RecordingDescriptor, position: int) -> StoredSegment | None:
        if descriptor.recording_id != self.recording_id or position >= descriptor.start_position:
            return None
        return self.index.find(descriptor.segment_base_position(position), descriptor)

    def _on_fetched(self, segment: StoredSegment, done: asyncio.Future[bool]) -> None:
        del self._fetches[segment.base_position]
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.counts.failed_count += 1
            _log.warning("cold_segment.fetch_failed", object=f"{self.store.url}/{segment.name}", reason=str(error))
        elif done.result():
            self.counts.fetched_count += 1
            self.counts.fetched_bytes += segment.length
            _log.info("cold_segment.fetched", base_position=segment.base_position, length=segment.length)


def run_in(worker: Worker, job: Callable[[], _T]) -> asyncio.Future[_T]:
    """Run a job in a worker; the future has what it returns or raises."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    results: list[_T] = []

    def settle(failure: BaseException | None) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(results[0])
        else:
            future.set_exception(failure)

    worker.submit(lambda: results.append(job()), settle)
    return future
