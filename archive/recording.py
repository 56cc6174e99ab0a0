"""One active recording: bytes in, durable bytes out, with at most one sync in flight.

The problem: a sync takes 100 us at best, a write 1 to 5 us, and nothing may be acknowledged before it is
durable. The idea is group commit: whatever arrives while a sync is in flight is the next batch, so the cost
of a sync is shared by all that waited for it. When nothing else is going on, a small batch is synced right
here on the event loop, because handing it to a thread and back (33 us and a wake-up) costs more than it
saves; if the disk turns out slow, it never is.

Invariant: recorded_position <= append_position, and every byte below recorded_position is durable (sync level
0: is with the kernel). A segment file gets its final name only when everything before it is durable, so after
a crash only the highest segment can be torn.

A failed write or sync ends the recording: the kernel may have dropped the pages, so trying again would lie.
Rejected: a queue of chunks written by the thread (the write is cheaper than the hand-over), and O_DSYNC (a
sync per chunk instead of per batch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from service_api.errors import LocalProtocolError, invariant

from .descriptor import RecordingDescriptor
from .errors import ArchiveError, ArchiveErrorCode
from .segment_files import Segment, SegmentFiles, storage_error
from .worker import Worker

SLOW_SYNC_NS: Final = 500_000
"""When syncs take longer than this on average, none is done on the event loop."""

_NEVER: Final = 1 << 62
_EWMA_SHIFT: Final = 3


@dataclass(slots=True)
class _GroupCommit:
    """The state of the syncs: one batch in flight at most, and what is known about the disk's speed."""

    busy: bool = False
    again: bool = False
    """A flush was asked for while one was in flight."""
    sync_ns_average: int = 0
    last_end_ns: int = 0
    """When the last sync ended. A flush that comes sooner after it than a sync takes means there is more to
    come.
    """
    worker: Worker | None = None
    idle: asyncio.Future[None] | None = None
    """Resolved when the batch in flight is over; present only while somebody waits for that."""
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)


@dataclass(slots=True)
class _NextSegment:
    """The segment after the current one, being zero-written or ready."""

    prepare_at_position: int
    """The append position from which the next segment is prepared; never, once that has begun."""
    ready: Segment | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class RecordingContext:
    """What a recording needs from the archive that owns it."""

    files: SegmentFiles
    make_worker: Callable[[], Worker]
    monotonic_ns: Callable[[], int]
    on_stopped: Callable[[Recording], Awaitable[None]]
    """Writes the stop position into the catalog, durably."""
    inline_sync_limit_bytes: int
    preallocate: bool


class Recording:
    """One active recording: the hot path. All methods are called on the event loop.

    `append_position` is what was written, `recorded_position` what is durable, in bytes from the start of the
    stream. The owner sets `on_recorded(position)`, called when recorded_position has moved, and
    `on_failed(error)`, called once when a write or sync failed; both on the event loop, possibly inside
    `append` or `flush`.
    """

    def __init__(
        self, descriptor: RecordingDescriptor, *, position: int, segment: Segment, context: RecordingContext
    ) -> None:
        self.descriptor: Final = descriptor
        self.append_position = position
        self.recorded_position = position
        self.on_recorded: Callable[[int], None] | None = None
        self.on_failed: Callable[[BaseException], None] | None = None
        self._context = context
        self._failure: ArchiveError | None = None
        self._pwrite = context.files.file_system.pwrite
        self._segments = [segment]
        """Open segments, oldest first: the last one is written, the others wait for their sync."""
        self._term_end_position = 0
        self._commit = _GroupCommit()
        self._next = _NextSegment(_NEVER)
        self._enter_term()
        self._plan_preparation()

    def __repr__(self) -> str:
        return (
            f"<Recording id={self.recording_id} append={self.append_position} "
            f"recorded={self.recorded_position}{' failed' if self._failure else ''}>"
        )

    @property
    def recording_id(self) -> int:
        """The id of the recording in the catalog."""
        return self.descriptor.recording_id

    @property
    def failure(self) -> ArchiveError | None:
        """Why the recording refuses everything, or None while it is active."""
        return self._failure

    def append(self, chunk: bytes) -> None:
        """Write whole frames, contiguous at `append_position`. A chunk never crosses the end of a term.

        Raises:
            LocalProtocolError: the chunk is empty, not a multiple of 32 long, or crosses a term.
            ArchiveError: the disk refused, now or before; `on_failed` has been called.
        """
        length = len(chunk)
        position = self.append_position
        room = self._term_end_position - position
        if length > room or length & 31 or not length or self._failure is not None:
            self._refuse(length, room)
        segment = self._segments[-1]
        try:
            written = self._pwrite(segment.handle, chunk, position - segment.base_position)
            if written != length:
                self._write_rest(segment, chunk, written, position)
        except OSError as error:
            raise self._fail(storage_error(error, "write failed", self.recording_id, position)) from error
        self.append_position = position + length
        if length == room:
            self._on_term_filled()
        elif position >= self._next.prepare_at_position:
            self._start_preparing()

    def flush(self) -> None:
        """Ask for durability of everything appended so far.

        Starts a batch unless one is in flight; what is asked for meanwhile is the next batch.

        Raises:
            ArchiveError: the recording has failed or was stopped.
        """
        if self._commit.busy:
            self._commit.again = True
            return
        if self._failure is not None:
            raise self._failure
        if self.append_position != self.recorded_position:
            self._commit.busy = True
            self._run_batches(inline_allowed=True)

    async def wait_recorded(self, position: int) -> None:
        """Return once everything below `position` is durable. Does not ask for it: that is `flush`.

        Raises:
            ArchiveError: the recording failed or stopped before.
        """
        if self.recorded_position >= position:
            return
        if self._failure is not None:
            raise self._failure
        waiter = asyncio.get_running_loop().create_future()
        entry = (position, waiter)
        self._commit.waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in self._commit.waiters:
                self._commit.waiters.remove(entry)

    async def stop(self) -> int:
        """Make everything durable, write the stop position durably, and return it. The recording is closed
        then.

        Raises:
            ArchiveError: the recording has failed: it has no stop position, the next start repairs its tail.
        """
        while self.recorded_position != self.append_position:
            self.flush()
            await self.wait_recorded(self.append_position)
        if self._failure is not None:
            raise self._failure
        await self.release()
        await self._context.on_stopped(self)
        return self.recorded_position

    async def release(self) -> None:
        """Close the files without writing a stop position, and refuse everything from here on.

        After this, as after a crash, the next start of the archive finds the stop position itself.
        """
        if self._failure is None:
            self._failure = ArchiveError(
                "recording is closed", code=ArchiveErrorCode.CLOSED, recording_id=self.recording_id
            )
        if self._commit.busy:
            self._commit.idle = self._commit.idle or asyncio.get_running_loop().create_future()
            await self._commit.idle
        self._wake_waiters()
        if self._next.task is not None:
            await self._next.task
        files, segments = self._context.files, self._segments
        self._segments = []
        for segment in segments:
            files.file_system.close_file(segment.handle)
        ready, self._next.ready = self._next.ready, None
        if ready is not None:
            await asyncio.get_running_loop().run_in_executor(None, files.discard, ready)
        if self._commit.worker is not None:
            self._commit.worker.close()

    def handle_at(self, base_position: int) -> int | None:
        """Return the open handle of the segment at `base_position`, or None when it is not open here."""
        for segment in self._segments:
            if segment.base_position == base_position:
                return segment.handle
        return None

    def _run_batches(self, *, inline_allowed: bool) -> None:
        """Sync batch after batch until nothing more was asked for, or one is with the worker."""
        commit = self._commit
        try:
            while True:
                commit.again = False
                position = self.append_position
                if self._context.files.sync_level and not (inline_allowed and self._sync_inline(position)):
                    if self._failure is None:
                        self._submit_batch(position)
                    return
                self._advance(position)
                if not commit.again or self.append_position == position or self._failure is not None:
                    break
                inline_allowed = False
        except BaseException:
            self._become_idle()
            raise
        self._become_idle()

    def _sync_inline(self, position: int) -> bool:
        """Sync on the event loop if that is the quicker way; False when it was not done."""
        context, commit = self._context, self._commit
        if (
            position - self.recorded_position > context.inline_sync_limit_bytes
            or commit.sync_ns_average > SLOW_SYNC_NS
            or len(self._segments) != 1
        ):
            return False
        begin_ns = context.monotonic_ns()
        if begin_ns - commit.last_end_ns < commit.sync_ns_average:
            return False
        try:
            context.files.sync(self._segments[0])
        except OSError as error:
            self._become_idle()
            self._fail(storage_error(error, "sync failed", self.recording_id, self.recorded_position))
            return False
        self._observe(begin_ns, context.monotonic_ns())
        return True

    def _submit_batch(self, position: int) -> None:
        """Hand the sync of everything below `position` to the worker."""
        files, clock = self._context.files, self._context.monotonic_ns
        segments = self._segments.copy()
        begin_ns = end_ns = 0

        def job() -> None:
            nonlocal begin_ns, end_ns
            begin_ns = clock()
            for segment in segments:
                if not segment.named:
                    files.publish(segment)
                files.sync(segment)
            end_ns = clock()

        def done(failure: BaseException | None) -> None:
            if len(segments) == 1:
                self._observe(begin_ns, end_ns)
            self._on_batch_done(position, segments, failure)

        if self._commit.worker is None:
            self._commit.worker = self._context.make_worker()
        self._commit.worker.submit(job, done)

    def _on_batch_done(self, position: int, segments: list[Segment], failure: BaseException | None) -> None:
        """Handle the end of the batch in flight, on the event loop."""
        if failure is not None:
            self._become_idle()
            if isinstance(failure, OSError):
                failure = storage_error(failure, "sync failed", self.recording_id, self.recorded_position)
            self._fail(failure)
            return
        for segment in segments[:-1]:
            self._context.files.file_system.close_file(segment.handle)
            self._segments.remove(segment)
        try:
            self._advance(position)
        except BaseException:
            self._become_idle()
            raise
        if self._commit.again and self._failure is None and self.append_position != self.recorded_position:
            self._run_batches(inline_allowed=False)
        else:
            self._become_idle()

    def _advance(self, position: int) -> None:
        """Publish a new recorded position."""
        invariant(
            self.recorded_position <= position <= self.append_position,
            "recorded position moves forward within what was appended",
            recorded=self.recorded_position,
            position=position,
            appended=self.append_position,
        )
        self.recorded_position = position
        if self.on_recorded is not None:
            self.on_recorded(position)
        if self._commit.waiters:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for position, waiter in self._commit.waiters:
            if waiter.done():
                continue
            if position <= self.recorded_position:
                waiter.set_result(None)
            elif self._failure is not None:
                waiter.set_exception(self._failure)
            else:
                still.append((position, waiter))
        self._commit.waiters = still

    def _become_idle(self) -> None:
        self._commit.busy = False
        self._commit.again = False
        if self._commit.idle is not None:
            self._commit.idle.set_result(None)
            self._commit.idle = None

    def _observe(self, begin_ns: int, end_ns: int) -> None:
        """Learn how long a sync takes: an average that remembers about eight of them."""
        commit = self._commit
        commit.sync_ns_average += (end_ns - begin_ns - commit.sync_ns_average) >> _EWMA_SHIFT
        commit.last_end_ns = end_ns

    def _refuse(self, length: int, room: int) -> None:
        if self._failure is not None:
            raise self._failure
        raise LocalProtocolError(
            f"chunk refused: length={length} expected a multiple of 32, at least 32, "
            f"at most {room}, the rest of the term"
        )

    def _write_rest(self, segment: Segment, chunk: bytes, written: int, position: int) -> None:
        """Go on after a short write; the disk says why if it cannot."""
        view = memoryview(chunk)
        while written < len(chunk):
            more = self._pwrite(segment.handle, view[written:], position + written - segment.base_position)
            if more <= 0:
                raise OSError(f"write took nothing: written={written} length={len(chunk)}")
            written += more

    def _fail(self, error: BaseException) -> BaseException:
        """Refuse everything from here on and tell the owner, once; return the error."""
        if self._failure is None or self._failure.code is ArchiveErrorCode.CLOSED:
            if isinstance(error, ArchiveError):
                self._failure = error
            else:
                self._failure = ArchiveError(
                    f"recording failed: {error!r}",
                    code=ArchiveErrorCode.STORAGE_FAILED,
                    recording_id=self.recording_id,
                )
                self._failure.__cause__ = error
            self._wake_waiters()
            if self.on_failed is not None:
                self.on_failed(self._failure)
        return error

    def _enter_term(self) -> None:
        term_length = self.descriptor.term_buffer_length
        self._term_end_position = self.append_position - self.append_position % term_length + term_length

    def _on_term_filled(self) -> None:
        self._enter_term()
        segment = self._segments[-1]
        if self.append_position == segment.base_position + self.descriptor.segment_file_length:
            try:
                self._roll()
            except (OSError, ArchiveError) as error:
                failure = (
                    storage_error(error, "segment not created", self.recording_id, self.append_position)
                    if isinstance(error, OSError)
                    else error
                )
                raise self._fail(failure) from error
        elif self.append_position >= self._next.prepare_at_position:
            self._start_preparing()

    def _roll(self) -> None:
        """Go on in the next segment: the prepared one, or a new one when the disk was not quick enough."""
        files = self._context.files
        segment, self._next.ready = self._next.ready, None
        if segment is None:
            segment = files.create_sparse(self.append_position)
        self._segments.append(segment)
        if not files.sync_level:
            files.publish(segment)
            files.file_system.close_file(self._segments.pop(0).handle)
        self._plan_preparation()

    def _plan_preparation(self) -> None:
        """Say from which position on the next segment is prepared: when this one is half full."""
        if self._context.preallocate:
            segment_length = self.descriptor.segment_file_length
            self._next.prepare_at_position = self._segments[-1].base_position + segment_length // 2

    def _start_preparing(self) -> None:
        """Zero-write the next segment in the background, unless an earlier preparation has yet to notice it
        is late.
        """
        self._next.prepare_at_position = _NEVER
        if self._next.task is None and self._next.ready is None:
            base = self._segments[-1].base_position + self.descriptor.segment_file_length
            self._next.task = asyncio.get_running_loop().create_task(self._prepare(base))

    async def _prepare(self, base_position: int) -> None:
        """Make and zero-write the segment at `base_position` in steps, taking half of the disk's time at
        most.

        A disk that refuses here is not fatal yet: the roll tries again, and fails loudly.
        """
        loop = asyncio.get_running_loop()
        files, clock = self._context.files, self._context.monotonic_ns
        segment: Segment | None = None
        offset = 0
        try:
            segment = await loop.run_in_executor(None, files.create_for_zeroing, base_position)
            while offset < files.segment_length_bytes and self._wants(base_position):
                begin_ns = clock()
                offset = await loop.run_in_executor(None, files.zero_step, segment, offset)
                await asyncio.sleep((clock() - begin_ns) / 1e9)
        except (OSError, ArchiveError):
            offset = 0
        # Cancelled (the loop ends without `release`): the file is left to the next start, a step may still
        # run in it.
        if segment is not None:
            if offset == files.segment_length_bytes and self._wants(base_position):
                self._next.ready = segment
            else:
                await loop.run_in_executor(None, files.discard, segment)
        self._next.task = None

    def _wants(self, base_position: int) -> bool:
        """Whether the segment at `base_position` is still the next one."""
        return (
            self._failure is None
            and self._segments[-1].base_position + self.descriptor.segment_file_length == base_position
        )
