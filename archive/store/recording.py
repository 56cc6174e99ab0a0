"""One active recording: bytes in, durable bytes out, with at most one sync in flight.

The problem: a sync takes 100 us at best, a write 1 to 5 us, and nothing may be acknowledged before it is
durable. The idea is group commit: whatever arrives while a sync is in flight is the next batch, so the cost
of a sync is shared by all that waited for it. When nothing else is going on, a small batch is synced right
here on the event loop, because handing it to a thread and back (33 us and a wake-up) costs more than it
saves; if the disk turns out slow, it never is.

After a power loss any subset of the sectors that were written and not synced may be there, in any order. To tell such
a tear from corruption, its reach has to be known: so while a batch is in flight nothing else is written. What is
appended then is held in memory, and is the next batch: written, synced, and so on, `UNSYNCED_LIMIT_BYTES` at most at a
time. While none is in flight a chunk is written at once.

Invariants (sync level 1 and 2): every byte below recorded_position is durable; every byte on disk that is neither zero
nor durable lies within `UNSYNCED_LIMIT_BYTES` after it; a segment file gets its final name only when everything before
it is durable, so that after a crash only the highest segment can be torn. At level 0 everything is written at once, and
recorded_position says what is with the kernel.

A failed write or sync ends the recording: the kernel may have dropped the pages, so trying again would lie.
Rejected: handing every chunk to the thread (a write is cheaper than the hand-over), and O_DSYNC (a sync per chunk
instead of per batch).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ...service_api.errors import LocalProtocolError, invariant
from ...service_api.wire.frame import iter_headers
from ..disk.file_system import write_fully
from ..errors import ArchiveError, ArchiveErrorCode
from ..files.segment_files import ZERO_STEP_BYTES, Segment, SegmentFiles, storage_error
from ..format.descriptor import RecordingDescriptor
from ..format.layout import UNSYNCED_LIMIT_BYTES
from .worker import Worker

SLOW_SYNC_NS: Final = 500_000
"""When syncs take longer than this on average, none is done on the event loop."""

SMALL_BATCH_BYTES: Final = 1536
"""So little is synced on the event loop also right after another sync: handing it over takes longer."""

BULK_BATCH_BYTES: Final = 256 << 10
"""Where this much is synced at once on average, zero-writing the next segment costs more than it saves: every byte
would go to the disk twice, for syncs that are few."""

_PREPARING_SHARE: Final = 60
"""How much of the time until the next segment is needed its zero-writing may take, in percent: the log may speed up."""

_LONGEST_PAUSE_NS: Final = 50_000_000
"""Between two steps of it: on an idle log a segment is ready after some seconds all the same."""

_LONG_CHUNK_BYTES: Final = 64 << 10
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
    count: int = 0
    """How many batches are done."""


@dataclass(slots=True)
class _Held:
    """What was appended and is not written yet."""

    chunks: deque[bytes] = field(default_factory=deque)
    length_bytes: int = 0


@dataclass(slots=True)
class _Write:
    """A run of chunks that lie one after the other in one segment file."""

    handle: int
    offset: int
    chunks: list[bytes]

    def pieces(self) -> list[bytes]:
        """What is written in one call each: everything, or long chunks as they are, which are not worth copying."""
        if sum(map(len, self.chunks)) >= len(self.chunks) * _LONG_CHUNK_BYTES:
            return self.chunks
        return [b"".join(self.chunks)]


@dataclass(slots=True)
class _NextSegment:
    """The segment after the current one, being zero-written or ready."""

    prepare_at_position: int
    """The append position from which the next segment is prepared; never, once that has begun."""
    planned_position: int = 0
    """The append position when that was planned, and how many batches were done then."""
    planned_count: int = 0
    ready: Segment | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, frozen=True)
class _Pace:
    """How quickly the log grows, from a moment and a position on."""

    begin_ns: int
    begin_position: int

    def time_left_ns(self, now_ns: int, append_position: int, end_position: int) -> int:
        """Guess how long it will take to get to a position; long, where nothing was appended."""
        appended = append_position - self.begin_position
        return (end_position - append_position) * (now_ns - self.begin_ns) // appended if appended else _NEVER


def _pause_ns(step_ns: int, left_ns: int, step_count: int) -> int:
    """Return how long to wait after a step that took `step_ns`, with `step_count` to come and `left_ns` for them."""
    if not step_count:
        return 0
    return max(step_ns, min(_LONGEST_PAUSE_NS, left_ns * _PREPARING_SHARE // 100 // step_count - step_ns))


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
    watch_space: Callable[[], None]
    """Warns when the disk has little room left; called in any thread before a segment is made."""
    drops_copied_pages: bool
    """Whether a long batch of a copy leaves the page cache once it is durable."""


class Recording:
    """One active recording: the hot path. All methods are called on the event loop.

    `append_position` is what was taken, `recorded_position` what is durable and may be read, in bytes from the start of
    the stream. What lies between them may be held in memory: the appender bounds it, by bringing no more until it
    is recorded. The owner sets `on_recorded(position)`, called when recorded_position has moved, and
    `on_failed(error)`, called once when a write or sync failed; both on the event loop, possibly inside `append` or
    `flush`.
    """

    def __init__(
        self, descriptor: RecordingDescriptor, *, position: int, segment: Segment, context: RecordingContext
    ) -> None:
        self.descriptor: Final = descriptor
        self.append_position = position
        self.recorded_position = position
        self.on_recorded: Callable[[int], None] | None = None
        self.on_failed: Callable[[BaseException], None] | None = None
        self.is_copy = False
        """Whether what comes is copied from another archive, and is not going to be read here soon."""
        self._context = context
        self._failure: ArchiveError | None = None
        self._pwrite = context.files.file_system.pwrite
        self._segments = [segment]
        """Open segments, oldest first: the last one is written, the others wait for their sync."""
        self._term_end_position = 0
        self._write_limit_position = _NEVER
        """Up to where a chunk may be written at once: -1 while a batch is in flight, or while older ones are held."""
        self._held = _Held()
        self._commit = _GroupCommit()
        self._next = _NextSegment(_NEVER)
        self._enter_term()
        self._plan_preparation()
        self._become_idle()

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
        """Take whole frames, contiguous at `append_position`. A chunk never crosses the end of a term.

        They are written at once, or with the next batch while one is in flight.

        Raises:
            LocalProtocolError: the chunk is empty, not a multiple of 32 long, or crosses a term.
            ArchiveError: the disk refused, now or before; `on_failed` has been called. A write of the next batch
                that fails is told to `on_failed` only.
        """
        length = len(chunk)
        position = self.append_position
        room = self._term_end_position - position
        if length > room or length & 31 or not length or self._failure is not None:
            self._refuse(length, room)
        if position + length > self._write_limit_position:
            self._hold(chunk, is_end_of_term=length == room)
            return
        segment = self._segments[-1]
        offset = position - segment.base_position
        try:
            written = self._pwrite(segment.handle, chunk, offset)
            if written != length:
                rest = memoryview(chunk)[written:]
                write_fully(self._context.files.file_system, segment.handle, rest, offset + written)
        except OSError as error:
            raise self._fail(storage_error(error, "write failed", self.recording_id, position)) from error
        self.append_position = position + length
        if length == room:
            self._enter_term()
            self._on_written(self.append_position)
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
            self._start_batch(inline_allowed=True)

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
            await self._discard(ready)
        if self._commit.worker is not None:
            self._commit.worker.close()

    @property
    def is_with_worker(self) -> bool:
        """Whether a batch is in flight, in the worker's thread."""
        return self._commit.busy

    def handle_at(self, base_position: int) -> int | None:
        """Return the open handle of the segment at `base_position`, or None when it is not open here."""
        for segment in self._segments:
            if segment.base_position == base_position:
                return segment.handle
        return None

    def _start_batch(self, *, inline_allowed: bool) -> None:
        self._commit.busy = True
        if self._context.files.sync_level:
            self._write_limit_position = -1
        self._run_batches(inline_allowed=inline_allowed)

    def _run_batches(self, *, inline_allowed: bool) -> None:
        """Run batch after batch until nothing more was asked for, or one is with the worker."""
        commit = self._commit
        try:
            while True:
                commit.again = False
                writes = self._plan_writes() if self._held.chunks else []
                if self._failure is not None:
                    break
                position = self._written_position
                if self._context.files.sync_level and not (
                    inline_allowed and not writes and self._sync_inline(position)
                ):
                    if self._failure is None:
                        self._submit_batch(position, writes)
                    return
                self._advance(position)
                # Most often nothing more came, and then the call is saved.
                if not (commit.again or self._held.chunks) or not self._wants_batch():
                    break
                inline_allowed = False
        except BaseException:
            self._become_idle()
            raise
        self._become_idle()

    def _wants_batch(self) -> bool:
        """Whether there is more to do at the end of a batch: what is held is always the next one."""
        is_behind = self._commit.again and self.append_position != self.recorded_position
        return self._failure is None and (is_behind or bool(self._held.chunks))

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
        if (
            begin_ns - commit.last_end_ns < commit.sync_ns_average
            and position - self.recorded_position > SMALL_BATCH_BYTES
        ):
            return False
        try:
            context.files.sync(self._segments[0])
        except OSError as error:
            self._become_idle()
            self._fail(storage_error(error, "sync failed", self.recording_id, self.recorded_position))
            return False
        self._observe(begin_ns, context.monotonic_ns())
        return True

    def _submit_batch(self, position: int, writes: list[_Write]) -> None:
        """Hand the writes, and then the sync of everything below `position`, to the worker.

        A long batch of a copy leaves the page cache then: its pages are written again while the processor's caches
        still know them, instead of taking new ones for every byte.
        """
        context, segments = self._context, self._segments.copy()
        files, clock = context.files, context.monotonic_ns
        begin_position = self.recorded_position
        is_dropped = context.drops_copied_pages and self.is_copy and position - begin_position >= BULK_BATCH_BYTES
        begin_ns = end_ns = 0
        step = "write failed"

        def job() -> None:
            nonlocal begin_ns, end_ns, step
            for write in writes:
                offset = write.offset
                for data in write.pieces():
                    write_fully(files.file_system, write.handle, data, offset)
                    offset += len(data)
            step = "sync failed"
            begin_ns = clock()
            for segment in segments:
                if not segment.named:
                    files.publish(segment)
                files.sync(segment)
            end_ns = clock()
            for segment in segments if is_dropped else ():
                files.evict(segment, begin_position, position)

        def done(failure: BaseException | None) -> None:
            if isinstance(failure, OSError):
                failure = storage_error(failure, step, self.recording_id, self.recorded_position)
            elif failure is None and len(segments) == 1:
                self._observe(begin_ns, end_ns)
            self._on_batch_done(position, segments, failure)

        if self._commit.worker is None:
            self._commit.worker = self._context.make_worker()
        self._commit.worker.submit(job, done)

    def _on_batch_done(self, position: int, segments: list[Segment], failure: BaseException | None) -> None:
        """Handle the end of the batch in flight, on the event loop."""
        if failure is not None:
            self._become_idle()
            self._fail(failure)
            return
        try:
            for segment in segments[:-1]:
                self._segments.remove(segment)
                self._context.files.file_system.close_file(segment.handle)
        except OSError as error:  # of a network's file system, which may tell only now that it kept nothing
            self._become_idle()
            self._fail(storage_error(error, "close failed", self.recording_id, self.recorded_position))
            return
        try:
            self._advance(position)
        except BaseException:
            self._become_idle()
            raise
        if self._wants_batch():
            self._run_batches(inline_allowed=False)
        else:
            self._become_idle()

    def _advance(self, position: int) -> None:
        """Publish a new recorded position."""
        if not self.recorded_position <= position <= self.append_position:
            invariant(
                False,
                "recorded position moves forward within what was appended",
                recorded=self.recorded_position,
                position=position,
                appended=self.append_position,
            )
        self.recorded_position = position
        self._commit.count += 1
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
        if self._context.files.sync_level:
            self._write_limit_position = -1 if self._held.chunks else self.recorded_position + UNSYNCED_LIMIT_BYTES
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

    @property
    def _written_position(self) -> int:
        """The end of what was given to the disk, or is about to be."""
        return self.append_position - self._held.length_bytes

    def _hold(self, chunk: bytes, *, is_end_of_term: bool) -> None:
        """Keep a chunk for the next batch, and begin that when none is in flight."""
        self._held.chunks.append(chunk)
        self._held.length_bytes += len(chunk)
        self.append_position += len(chunk)
        if is_end_of_term:
            self._enter_term()
        if not self._commit.busy:
            self._start_batch(inline_allowed=False)

    def _plan_writes(self) -> list[_Write]:
        """Take as much of what is held as may be unsynced at once, and say where it goes. Rolls where a segment ends.

        Nothing when what is written already leaves no room: that is synced first.
        """
        held, writes = self._held, list[_Write]()
        position = self._written_position
        limit_position = self.recorded_position + UNSYNCED_LIMIT_BYTES
        while held.chunks:
            chunk = held.chunks[0]
            if position + len(chunk) > limit_position:
                if position != self.recorded_position:
                    break
                chunk = self._split_held(chunk)
            held.chunks.popleft()
            held.length_bytes -= len(chunk)
            segment = self._segments[-1]
            offset = position - segment.base_position
            if writes and writes[-1].handle == segment.handle:
                writes[-1].chunks.append(chunk)
            else:
                writes.append(_Write(segment.handle, offset, [chunk]))
            position += len(chunk)
            try:
                self._on_written(position)
            except ArchiveError:
                return []  # the recording has failed, and its owner was told
        return writes

    def _split_held(self, chunk: bytes) -> bytes:
        """Cut the first chunk, which is longer than a batch, after the last frame that fits; return what is in front.

        A single frame that long is padding: zeros but for its header, so it may go whole.
        """
        frames = iter_headers(memoryview(chunk)[:UNSYNCED_LIMIT_BYTES])
        end = max((offset + header.aligned_length for offset, header in frames), default=len(chunk))
        if end < len(chunk):
            self._held.chunks[0] = chunk[end:]
            self._held.chunks.appendleft(chunk[:end])
        return self._held.chunks[0]

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
            self._held = _Held()
            self._wake_waiters()
            if self.on_failed is not None:
                self.on_failed(self._failure)
        return error

    def _enter_term(self) -> None:
        term_length = self.descriptor.term_buffer_length
        self._term_end_position = self.append_position - self.append_position % term_length + term_length

    def _on_written(self, position: int) -> None:
        """Roll when the segment ends at `position`, after the last byte written; else prepare the next one in time."""
        segment = self._segments[-1]
        if position == segment.base_position + self.descriptor.segment_file_length:
            try:
                self._roll(position)
            except ArchiveError as error:
                self._fail(error)
                raise
            except OSError as error:
                failure = storage_error(error, "segment not created", self.recording_id, position)
                raise self._fail(failure) from error
        elif position >= self._next.prepare_at_position:
            self._start_preparing()

    def _roll(self, base_position: int) -> None:
        """Go on in the next segment: the prepared one, or a new one when the disk was not quick enough."""
        files = self._context.files
        segment, self._next.ready = self._next.ready, None
        if segment is None:
            self._context.watch_space()
            segment = files.create_sparse(base_position)
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
            self._next.planned_position, self._next.planned_count = self.append_position, self._commit.count

    def _start_preparing(self) -> None:
        """Zero-write the next segment in the background, unless an earlier preparation has yet to notice it
        is late, or what comes is a bulk of data.
        """
        self._next.prepare_at_position = _NEVER
        if self._next.task is None and self._next.ready is None and not self._is_bulk():
            base = self._segments[-1].base_position + self.descriptor.segment_file_length
            self._next.task = asyncio.get_running_loop().create_task(self._prepare(base))

    def _is_bulk(self) -> bool:
        """Whether the batches of late were long on average: a copy, as of a member that catches up, and no messages."""
        batch_count = self._commit.count - self._next.planned_count + 1  # with the one under way
        return self.append_position - self._next.planned_position > BULK_BATCH_BYTES * batch_count

    async def _prepare(self, base_position: int) -> None:
        """Make and zero-write the segment at `base_position` in steps, spread over most of the time until it is needed.

        They take half of the disk's time at most. One after the other they would hold up every sync meanwhile.

        A disk that refuses here is not fatal yet: the roll tries again, and fails loudly.
        """
        loop = asyncio.get_running_loop()
        files, clock = self._context.files, self._context.monotonic_ns
        segment: Segment | None = None
        offset = 0
        pace = _Pace(clock(), self.append_position)
        try:
            await loop.run_in_executor(None, self._context.watch_space)
            segment = await loop.run_in_executor(None, files.create_for_zeroing, base_position)
            while offset < files.segment_length_bytes and self._wants(base_position):
                begin_ns = clock()
                offset = await loop.run_in_executor(None, files.zero_step, segment, offset)
                step_count = -(-(files.segment_length_bytes - offset) // ZERO_STEP_BYTES)
                now_ns = clock()
                left_ns = pace.time_left_ns(now_ns, self.append_position, base_position)
                await asyncio.sleep(_pause_ns(now_ns - begin_ns, left_ns, step_count) / 1e9)
        except (OSError, ArchiveError):
            offset = 0
        # Cancelled (the loop ends without `release`): the file is left to the next start, a step may still
        # run in it.
        if segment is not None:
            if offset == files.segment_length_bytes and self._wants(base_position):
                self._next.ready = segment
            else:
                await self._discard(segment)
        self._next.task = None

    async def _discard(self, prepared: Segment) -> None:
        """Remove a prepared segment that is not needed; where that fails, the next start removes it."""
        with suppress(OSError):
            await asyncio.get_running_loop().run_in_executor(None, self._context.files.discard, prepared)

    def _wants(self, base_position: int) -> bool:
        """Whether the segment at `base_position` is still the next one."""
        return (
            self._failure is None
            and self._segments[-1].base_position + self.descriptor.segment_file_length == base_position
        )
