"""Reads everything that is recorded, over and over and slowly, so that damage is found while another copy is whole.

A disk loses what nobody reads, and says so only when somebody does: that may be years later, or on the day on which the
last other copy is lost. A scrub is that reader. It takes the recordings one after the other, each from its start to a
bound that its owner gives (of a log: what is committed, because what is beyond may be truncated), in a thread, at
`rate_limit_bytes_per_s` at most. It reads past the page cache, for what the kernel remembers says nothing about the
disk. It checks what every reader checks, so what no checksum covers stays unseen: see `frame_rules`.

What it finds goes to the `DamageTracker`, as from every other reader, and to its owner, who may mend it; then the scrub
goes on after that place. Nothing is written here.

Bounds: one pass at a time, one chunk in memory, `CHUNK_LENGTH_BYTES` but for a longer frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from ..disk.file_system import FileSystem
from ..errors import ArchiveError, CorruptionError, is_damage
from ..files.log_end import FollowingBytes
from ..format.descriptor import RecordingDescriptor
from .conductor import Archive
from .range_reader import RangeReader

CHUNK_LENGTH_BYTES: Final = 256 << 10
FIRST_PASS_AFTER_S: Final = 60.0
"""When the first pass begins: after the start, which has work of its own."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ScrubProgress:
    """Where a scrub is and what it has found, since this archive was opened."""

    is_running: bool = False
    recording_id: int | None = None
    """The recording that is being read; None between passes."""
    position: int = 0
    """Up to where that recording was read in this pass."""
    read_bytes: int = 0
    """In this pass, or in the last one."""
    found_count: int = 0
    """Places of damage that scrubs have found."""
    pass_count: int = 0
    """Passes that came to their end."""
    last_pass_ms: int | None = None
    """When the last pass came to its end, in ms since the epoch; None: there was none yet."""


class Scrub:
    """Reads the recordings of one archive; `run` goes on until it is cancelled."""

    def __init__(
        self,
        archive: Archive,
        file_system: FileSystem,
        *,
        rate_limit_bytes_per_s: int,
        interval_s: float,
        bound: Callable[[int], int],
        on_damage: Callable[[int, int], Awaitable[object]],
        clock_ms: Callable[[], int],
    ) -> None:
        """Make a scrub that begins a pass `interval_s` after the end of the last one, or when it is asked.

        The first one begins a minute after the start at the latest, since nobody remembers when the last one was.

        With a rate of 0 it begins none by itself, and one that is asked for is not slowed down. `bound` gives up to
        which position a recording is to be read; `on_damage` is told the recording and position of each place.
        """
        self.progress: Final = ScrubProgress()
        self._archive = archive
        self._file_system = file_system
        self._rate_limit = rate_limit_bytes_per_s
        self._interval_s = interval_s
        self._bound = bound
        self._on_damage = on_damage
        self._clock_ms = clock_ms
        self._asked = asyncio.Event()
        self._reader = RangeReader(
            archive.directory, file_system, refuse_if_purged=_leave_to_archive, evict=file_system.evict
        )

    def __repr__(self) -> str:
        return f"<Scrub {self.progress}>"

    def ask(self) -> None:
        """Have a pass begin now; the one that runs goes on, and is not begun again."""
        if not self.progress.is_running:
            self._asked.set()

    async def run(self) -> None:
        """Read everything, again and again.

        Raises:
            OSError: the disk refuses for another reason than damage.
        """
        while True:
            await self._wait_until_due()
            await self._run_pass()

    async def _wait_until_due(self) -> None:
        wait_s = self._interval_s if self.progress.pass_count else min(FIRST_PASS_AFTER_S, self._interval_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s if self._rate_limit else None):
                await self._asked.wait()
        self._asked.clear()

    async def _run_pass(self) -> None:
        progress, found_before = self.progress, self.progress.found_count
        progress.is_running, progress.read_bytes = True, 0
        _log.info("scrub.started", rate_limit_bytes_per_s=self._rate_limit)
        try:
            for descriptor in self._archive.descriptors():
                await self._read_recording(descriptor.recording_id)
        finally:
            progress.is_running, progress.recording_id = False, None
        progress.pass_count += 1
        progress.last_pass_ms = self._clock_ms()
        _log.info("scrub.completed", read_bytes=progress.read_bytes, found_count=progress.found_count - found_before)

    async def _read_recording(self, recording_id: int) -> None:
        """Read one recording up to its bound, which may move meanwhile, as its start may; or until it is purged."""
        progress = self.progress
        progress.recording_id, progress.position = recording_id, 0
        while True:
            try:
                descriptor = self._archive.present_descriptor(recording_id)
                end_position = min(self._archive.recorded_position(recording_id), self._bound(recording_id))
            except ArchiveError:
                return  # it was purged
            progress.position = max(progress.position, descriptor.start_position)
            if progress.position >= end_position:
                return
            await self._read_chunk(descriptor, end_position)

    async def _read_chunk(self, descriptor: RecordingDescriptor, end_position: int) -> None:
        position = self.progress.position
        read = asyncio.get_running_loop().run_in_executor(None, self._read, descriptor, position, end_position)
        try:
            length = await asyncio.shield(read)
        except asyncio.CancelledError:
            await asyncio.wait([read])  # a thread cannot be stopped, and must not read what is closed
            raise
        if length:
            self.progress.position += length
        else:
            await self._on_fault(descriptor, position, end_position)
            length = self.progress.position - position
        self.progress.read_bytes += length
        await asyncio.sleep(length / self._rate_limit if self._rate_limit else 0)

    def _read(self, descriptor: RecordingDescriptor, position: int, end_position: int) -> int:
        """Read a chunk from the disk; give the length of its valid frames, 0 where there is none. Blocks."""
        try:
            data = self._reader.read(descriptor, None, position, CHUNK_LENGTH_BYTES, stop_position=end_position)
            return len(data)
        except CorruptionError:
            return 0
        except OSError as error:
            if not is_damage(error):
                raise
            return 0
        finally:
            self._reader.forget(None)

    async def _on_fault(self, descriptor: RecordingDescriptor, position: int, end_position: int) -> None:
        """Have the archive read the place, which tells of it; have it mended; and go on after it."""
        recording_id = descriptor.recording_id
        try:
            data = self._archive.read(recording_id, position, 0, stop_position=end_position)
        except ArchiveError as error:
            if not is_damage(error):
                # It was purged meanwhile, and so was what lies before it.
                self.progress.position = descriptor.segment_base_position(position) + descriptor.segment_file_length
                return
        else:
            self.progress.position += len(data)
            return
        self.progress.found_count += 1
        await self._on_damage(recording_id, position)
        try:
            data = self._archive.read(recording_id, position, 0, stop_position=end_position)
            self.progress.position += len(data)
        except ArchiveError:
            find = asyncio.get_running_loop().run_in_executor(None, self._find_frame, descriptor, position)
            resumes_at = await find
            self.progress.position = end_position if resumes_at is None else resumes_at

    def _find_frame(self, descriptor: RecordingDescriptor, position: int) -> int | None:
        """Find the next valid frame after a place of damage; None if there is none, or one cannot be looked for."""
        try:
            following = FollowingBytes(self._file_system, self._archive.directory, descriptor, position)
            return following.find_frame()
        except OSError:
            return None


def _leave_to_archive(recording_id: int, position: int) -> None:
    """A file that is not there is looked for once more by the archive, which knows what was purged."""
