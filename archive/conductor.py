"""The archive: owns the catalog, the active recordings and the files of one directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self, TypeVar

import structlog

from service_api.wire.frame import HEADER_LENGTH

from .catalog import Catalog
from .descriptor import RecordingDescriptor, RecordingState
from .errors import ArchiveError, ArchiveErrorCode, CorruptionError, behind_oldest
from .file_system import FileSystem, OsFileSystem, read_fully
from .frame_check import FrameRules
from .reader import FrameReader
from .recording import UNSYNCED_LIMIT_BYTES, Recording, RecordingContext
from .repair import RepairResult, repair_tail
from .segment_files import Segment, SegmentFiles, storage_error
from .worker import ThreadWorker, WorkerFactory

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

READ_HANDLE_LIMIT: Final = 16
"""How many segment files are kept open for reading; the one used longest ago is closed for another."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ArchiveConfig:
    """How an archive lays out new recordings and how durable they are. Lengths in bytes, powers of two for
    terms.
    """

    term_length_bytes: int = 64 << 20
    segment_length_bytes: int = 128 << 20
    mtu_length_bytes: int = 65504
    file_sync_level: int = 1
    """0: with the kernel; 1: data durable (fdatasync); 2: data and metadata (fsync)."""
    checksums: bool = True
    """Whether the data frames of new recordings carry a CRC-32; whoever builds the frames computes it."""
    inline_sync_limit_bytes: int = 256 << 10
    """A batch up to this size may be synced on the event loop when the disk is quick.

    Measured with three members on two cores, 1,024 messages of 32 bytes in flight: 4 KiB gave 182k and 221k msg/s,
    1 MiB 197k and 252k in interleaved runs. A thread hop costs more than the 0.1 ms that the loop stands still.
    """


class Archive:
    """Recordings in one directory, in Aeron's format. All methods are called on one event loop.

    `launch` opens it; `aclose` stops what is active. Positions are bytes from the start of a stream.
    """

    def __init__(
        self,
        directory: Path,
        config: ArchiveConfig,
        *,
        clock_ms: Callable[[], int],
        file_system: FileSystem,
        make_worker: WorkerFactory,
        monotonic_ns: Callable[[], int],
        is_power_loss_possible: bool,
    ) -> None:
        self.directory: Final = directory
        self.config: Final = config
        self._clock_ms = clock_ms
        self._file_system = file_system
        self._make_worker = make_worker
        self._monotonic_ns = monotonic_ns
        self.on_corruption: Callable[[CorruptionError], None] | None = None
        """Called by `read`, before it raises, for whoever is to stop when what was recorded is not there any more."""
        self._torn_limit_bytes = UNSYNCED_LIMIT_BYTES if is_power_loss_possible else 0
        self._catalog = Catalog(file_system, directory, sync_level=config.file_sync_level)
        self._active: dict[int, Recording] = {}
        self._changes = asyncio.Lock()
        """Held while the catalog or the set of active recordings changes."""
        self._read_handles: dict[tuple[int, int], int] = {}
        self._readers: dict[object, tuple[int, Callable[[], int]]] = {}
        """Who reads which recording over a longer time, and how far it has come."""

    def __repr__(self) -> str:
        return f"<Archive directory={str(self.directory)!r} active={sorted(self._active)}>"

    @classmethod
    async def launch(
        cls,
        directory: Path,
        config: ArchiveConfig,
        *,
        clock_ms: Callable[[], int],
        file_system: FileSystem | None = None,
        make_worker: WorkerFactory = ThreadWorker,
        monotonic_ns: Callable[[], int] = time.perf_counter_ns,
        is_power_loss_possible: bool = False,
    ) -> Self:
        """Open the archive in `directory`, creating it if need be, and repair the tails of a crash.

        `is_power_loss_possible` says that the machine may have gone down since the archive was last open, and not just
        the process: the last batch may then be torn in any order (see `archive.repair`).

        Raises:
            CorruptionError: something is wrong that is not a torn tail; nothing was changed.
            ArchiveError: the disk refused.
        """
        archive = cls(
            directory,
            config,
            clock_ms=clock_ms,
            file_system=OsFileSystem() if file_system is None else file_system,
            make_worker=make_worker,
            monotonic_ns=monotonic_ns,
            is_power_loss_possible=is_power_loss_possible,
        )
        await archive._blocking(archive._open)
        return archive

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """Return what the catalog knows about a recording.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        return self._catalog.get(recording_id)

    def present_descriptor(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording whose files are here: of one that was purged, their lack is no damage.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, also when it was purged.
        """
        descriptor = self._catalog.get(recording_id)
        if descriptor.state is RecordingState.DELETED:
            raise ArchiveError(
                "recording was purged", code=ArchiveErrorCode.UNKNOWN_RECORDING, recording_id=recording_id
            )
        return descriptor

    def descriptors(self) -> list[RecordingDescriptor]:
        """Return every descriptor, in order of recording id."""
        return self._catalog.descriptors()

    def active_recording(self, recording_id: int) -> Recording | None:
        """Return the recording if it is active."""
        return self._active.get(recording_id)

    def recorded_position(self, recording_id: int) -> int:
        """Return up to where a recording is durable: its stop position when it is not active.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        active = self._active.get(recording_id)
        if active is not None:
            return active.recorded_position
        descriptor = self.descriptor(recording_id)
        return descriptor.start_position if descriptor.stop_position is None else descriptor.stop_position

    async def start_recording(
        self,
        *,
        stream_id: int,
        session_id: int,
        initial_term_id: int = 0,
        start_position: int = 0,
        channel: str,
        source_identity: str,
        preallocate: bool = True,
    ) -> Recording:
        """Begin a new recording. Its first segment and its catalog entry are durable when this returns.

        `preallocate` zero-writes segments ahead, for cheap syncs; a short recording, as a snapshot is, does
        without.
        """
        config = self.config
        if start_position < 0 or start_position % 32:
            raise self._bad_position("start position impossible", None, start_position)
        async with self._changes:
            descriptor = RecordingDescriptor(
                recording_id=self._catalog.next_recording_id,
                start_timestamp_ms=self._clock_ms(),
                start_position=start_position,
                initial_term_id=initial_term_id,
                segment_file_length=max(config.segment_length_bytes, config.term_length_bytes),
                term_buffer_length=config.term_length_bytes,
                mtu_length=config.mtu_length_bytes,
                session_id=session_id,
                stream_id=stream_id,
                stripped_channel=channel,
                original_channel=channel,
                source_identity=source_identity,
                checksummed=config.checksums,
            )
            files = self._files(descriptor)
            base_position = descriptor.segment_base_position(start_position)

            def create() -> Segment:
                # The segment comes first: a segment without an entry is removed at the next start, while an
                # entry without a segment would be a recording that cannot be told from one that lost its
                # data.
                files.remove_unpublished()
                files.remove_blank_orphans()
                segment = _create_segment(files, base_position, zero=preallocate)
                self._catalog.add(descriptor)
                return segment

            segment = await self._blocking(create, descriptor.recording_id)
            return self._activate(descriptor, start_position, segment, files, preallocate=preallocate)

    async def extend_recording(self, recording_id: int, *, session_id: int, preallocate: bool = True) -> Recording:
        """Re-open a recording at its stop position, to append to it.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, or INVALID_EXTENSION.
        """
        async with self._changes:
            descriptor = self._inactive(recording_id)
            if descriptor.checksummed != self.config.checksums:
                raise ArchiveError(
                    f"recording cannot be extended: checksums={descriptor.checksummed} configured="
                    f"{self.config.checksums}; set checksums as they were when the recording was made",
                    code=ArchiveErrorCode.INVALID_EXTENSION,
                    recording_id=recording_id,
                )
            position = _stop_position(descriptor)
            files = self._files(descriptor)
            base_position = descriptor.segment_base_position(position)
            extended = replace(descriptor, session_id=session_id, stop_position=None, stop_timestamp_ms=None)

            def reopen() -> Segment:
                files.remove_unpublished()
                files.clean_after(base_position, position)
                if base_position in files.base_positions():
                    segment = files.open_segment(base_position)
                elif position in (base_position, descriptor.start_position):
                    segment = _create_segment(files, base_position, zero=preallocate)
                else:
                    raise CorruptionError(
                        f"segment file missing: expected={descriptor.segment_file_name(base_position)}",
                        recording_id=recording_id,
                        position=position,
                    )
                # From here on a crash must look for the end of the recording again.
                self._catalog.update(extended)
                return segment

            segment = await self._blocking(reopen, recording_id)
            self._forget_read_handles(recording_id)
            return self._activate(extended, position, segment, files, preallocate=preallocate)

    async def truncate_recording(self, recording_id: int, position: int) -> None:
        """Cut an inactive recording at `position`, which must be a frame boundary. Durable when this returns.

        The stop position goes first: should the machine fail before the old bytes are gone, they lie behind
        the stop position, and are removed when the recording is next extended.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, or INVALID_POSITION.
        """
        async with self._changes:
            descriptor = self._inactive(recording_id)
            stop_position = _stop_position(descriptor)
            if not descriptor.start_position <= position <= stop_position or position % 32:
                raise self._bad_position(
                    f"cannot truncate: start_position={descriptor.start_position} stop_position={stop_position}",
                    recording_id,
                    position,
                )
            if position == stop_position:
                return
            files = self._files(descriptor)
            self._forget_read_handles(recording_id)
            truncated = replace(descriptor, stop_position=position, stop_timestamp_ms=self._clock_ms())

            def cut() -> None:
                self._check_frame_boundary(descriptor, position)
                self._catalog.update(truncated)
                files.clean_after(descriptor.segment_base_position(position), position)

            await self._blocking(cut, recording_id)
            _log.info(
                "recording.truncated",
                recording_id=recording_id,
                position=position,
                old_position=stop_position,
            )

    def read(self, recording_id: int, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Read whole durable frames from `position`, at most `limit_bytes` unless the first frame alone is longer.

        Never past `stop_position`, nor past the end of a segment; b"" at the end. Every frame is checked, with its
        checksum where the recording has them: what does not check out never leaves the archive. A blocking read of what
        is mostly in the page cache.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or INVALID_POSITION for a range that the recording does not have, or of
                which the segments were removed.
            CorruptionError: there is no right frame at `position`; `on_corruption` has been told. Right frames before
                a wrong one are returned.
            ArchiveError: STORAGE_FAILED, the disk refused.
        """
        descriptor = self.present_descriptor(recording_id)
        active = self._active.get(recording_id)
        end_position = self.recorded_position(recording_id)
        if 0 <= position < descriptor.start_position:
            raise behind_oldest(recording_id, position=position, oldest_position=descriptor.start_position)
        if not descriptor.start_position <= position <= stop_position <= end_position or position % 32:
            raise self._bad_position(
                f"cannot read: start_position={descriptor.start_position} stop_position={stop_position} "
                f"end_position={end_position}",
                recording_id,
                position,
            )
        if position == stop_position:
            return b""
        try:
            return self._read_frames(descriptor, active, position, limit_bytes, stop_position)
        except CorruptionError as error:
            _log.error("recording.damaged", recording_id=recording_id, position=position, reason=str(error))
            if self.on_corruption is not None:
                self.on_corruption(error)
            raise
        except OSError as error:
            raise storage_error(error, "read failed", recording_id, position) from error

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording that was stopped, frame by frame, in whatever thread.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or ACTIVE_RECORDING.
        """
        return FrameReader(self.directory, self._inactive(recording_id), file_system=self._file_system)

    async def purge_recording(self, recording_id: int) -> None:
        """Remove an inactive recording: it is marked as deleted, durably, and then its files go.

        Does what is left of it where a crash came between the two.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or ACTIVE_RECORDING.
        """
        async with self._changes:
            descriptor = self._catalog.get(recording_id)
            if recording_id in self._active:
                raise ArchiveError(
                    "recording is active", code=ArchiveErrorCode.ACTIVE_RECORDING, recording_id=recording_id
                )
            self._forget_read_handles(recording_id)
            files, is_new = self._files(descriptor), descriptor.state is not RecordingState.DELETED

            def purge() -> None:
                if is_new:
                    self._catalog.update(replace(descriptor, state=RecordingState.DELETED))
                files.remove_all()

            await self._blocking(purge, recording_id)
            if is_new:
                _log.info("recording.purged", recording_id=recording_id)

    async def purge_segments(self, recording_id: int, position: int) -> int:
        """Remove the segments that lie wholly below `position`; give the position that the recording starts at now.

        The recording may be active. The new start position is durable before the first file goes: what a crash leaves
        of them lies below the start, and the next start removes it. A reader that is further back is refused from here
        on: who wants to spare it asks `reader_positions` first.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or INVALID_POSITION: the recording does not reach so far.
        """
        async with self._changes:
            descriptor = self._catalog.get(recording_id)
            end_position = self.recorded_position(recording_id)
            if descriptor.state is not RecordingState.VALID or position > end_position:
                raise self._bad_position(
                    f"cannot purge: state={descriptor.state.name} end_position={end_position}", recording_id, position
                )
            if position <= descriptor.start_position:
                return descriptor.start_position
            base_position = descriptor.segment_base_position(position)
            if base_position <= descriptor.start_position:
                return descriptor.start_position
            files, purged = self._files(descriptor), replace(descriptor, start_position=base_position)
            self._forget_read_handles(recording_id)

            def purge() -> int:
                self._catalog.update(purged)
                return files.remove_below(base_position)

            count = await self._blocking(purge, recording_id)
            _log.info(
                "recording.segments_purged",
                recording_id=recording_id,
                start_position=base_position,
                old_position=descriptor.start_position,
                segment_count=count,
            )
            return base_position

    @contextmanager
    def reading(self, recording_id: int, position: Callable[[], int]) -> Iterator[None]:
        """Say that somebody reads a recording over a longer time; `position` says how far that has come."""
        reader = object()
        self._readers[reader] = recording_id, position
        try:
            yield
        finally:
            del self._readers[reader]

    def reader_positions(self, recording_id: int) -> dict[object, int]:
        """Where those are that read a recording just now, each by a key of its own."""
        return {key: position() for key, (read_id, position) in self._readers.items() if read_id == recording_id}

    async def aclose(self) -> None:
        """Stop every active recording and close the files. A recording that has failed keeps no stop
        position.
        """
        for recording in list(self._active.values()):
            if recording.failure is None:
                await recording.stop()
            else:
                await recording.release()
                self._active.pop(recording.recording_id, None)
        self._forget_read_handles(None)
        self._catalog.close()

    async def abandon(self) -> None:
        """Close the files as a crash would, without stop positions: for a node that must stop at once."""
        for recording in list(self._active.values()):
            await recording.release()
        self._active.clear()
        self._forget_read_handles(None)
        self._catalog.close()

    def _read_frames(
        self,
        descriptor: RecordingDescriptor,
        active: Recording | None,
        position: int,
        limit_bytes: int,
        stop_position: int,
    ) -> bytes:
        """Read the right frames from `position` on: as many as fit, but one at least."""
        base_position = descriptor.segment_base_position(position)
        handle = self._read_handle(descriptor, position, active)
        available = min(stop_position, base_position + descriptor.segment_file_length) - position
        offset = position - base_position
        rules = FrameRules.of(descriptor)
        data = read_fully(self._file_system, handle, max(HEADER_LENGTH, min(limit_bytes, available)), offset)
        whole = _right_frames_length(rules, data, position)
        if not whole:
            frame_length = int.from_bytes(data[:4], "little", signed=True)
            if len(data) < (frame_length + 31) & -32 <= available:
                data = read_fully(self._file_system, handle, (frame_length + 31) & -32, offset)
                whole = _right_frames_length(rules, data, position)
        if not whole:
            fault = rules.find_fault(data, 0, position) or f"frame runs past the end: end={position + available}"
            raise CorruptionError(
                f"recorded frame does not check out: {fault}; run `quorate archive verify`, then restore this "
                "directory from a copy, or remove it to let the member catch up",
                recording_id=descriptor.recording_id,
                position=position,
            )
        return data if whole == len(data) else data[:whole]

    def _open(self) -> None:
        """Load the catalog and repair what a crash left. Blocks."""
        self._file_system.make_directory(self.directory)
        self._catalog.open()
        names = self._file_system.list_directory(self.directory)
        present = {name.partition("-")[0] for name in names}
        for descriptor in self._catalog.descriptors():
            # What a crash left of a purge: the catalog was told first.
            if descriptor.state is RecordingState.DELETED and str(descriptor.recording_id) in present:
                self._files(descriptor).remove_all()
            elif descriptor.state is RecordingState.VALID and descriptor.start_position:
                self._files(descriptor).remove_below(descriptor.segment_base_position(descriptor.start_position))
            if descriptor.state is RecordingState.VALID and descriptor.stop_position is None:
                result: RepairResult = repair_tail(
                    self._files(descriptor), descriptor, torn_limit_bytes=self._torn_limit_bytes
                )
                self._catalog.update(
                    replace(descriptor, stop_position=result.stop_position, stop_timestamp_ms=self._clock_ms())
                )
                _log.info(
                    "recording.tail_repaired",
                    recording_id=descriptor.recording_id,
                    stop_position=result.stop_position,
                    reason=result.reason,
                    cut=result.cut,
                )

    def _activate(
        self,
        descriptor: RecordingDescriptor,
        position: int,
        segment: Segment,
        files: SegmentFiles,
        *,
        preallocate: bool,
    ) -> Recording:
        context = RecordingContext(
            files=files,
            make_worker=lambda: self._make_worker(f"archive-sync-{descriptor.recording_id}"),
            monotonic_ns=self._monotonic_ns,
            on_stopped=self._on_stopped,
            inline_sync_limit_bytes=self.config.inline_sync_limit_bytes,
            preallocate=preallocate,
        )
        recording = Recording(descriptor, position=position, segment=segment, context=context)
        self._active[descriptor.recording_id] = recording
        _log.info("recording.opened", recording_id=descriptor.recording_id, position=position)
        return recording

    async def _on_stopped(self, recording: Recording) -> None:
        async with self._changes:
            stopped = replace(
                self._catalog.get(recording.recording_id),
                stop_position=recording.recorded_position,
                stop_timestamp_ms=self._clock_ms(),
            )
            await self._blocking(lambda: self._catalog.update(stopped), recording.recording_id)
            self._active.pop(recording.recording_id, None)
            _log.info("recording.stopped", recording_id=recording.recording_id, position=recording.recorded_position)

    def _inactive(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording that may be changed."""
        descriptor = self._catalog.get(recording_id)
        if recording_id in self._active:
            raise ArchiveError("recording is active", code=ArchiveErrorCode.ACTIVE_RECORDING, recording_id=recording_id)
        if descriptor.state is not RecordingState.VALID or descriptor.stop_position is None:
            raise ArchiveError(
                f"recording is not usable: state={descriptor.state.name}",
                code=ArchiveErrorCode.UNKNOWN_RECORDING,
                recording_id=recording_id,
            )
        return descriptor

    def _check_frame_boundary(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Walk the frames of the segment that holds `position` to see that one begins there. Blocks."""
        base_position = descriptor.segment_base_position(position)
        at = max(base_position, descriptor.start_position)
        if at == position:
            return
        rules = FrameRules.of(descriptor, checksummed=False)
        path = self.directory / descriptor.segment_file_name(base_position)
        handle = self._file_system.open_file(path, writable=False)
        try:
            while at < position:
                data = read_fully(self._file_system, handle, min(1 << 24, position - at), at - base_position)
                length, last = rules.skip_right_frames(data, 0, at, len(data))
                if last is None:
                    raise self._bad_position("not a frame boundary", descriptor.recording_id, position)
                at += length
        finally:
            self._file_system.close_file(handle)

    def _files(self, descriptor: RecordingDescriptor) -> SegmentFiles:
        return SegmentFiles(self._file_system, self.directory, descriptor, sync_level=self.config.file_sync_level)

    def _read_handle(self, descriptor: RecordingDescriptor, position: int, active: Recording | None) -> int:
        """Return an open handle of the segment of `position`: the writer's own, or else one of a few kept open."""
        base_position = descriptor.segment_base_position(position)
        if active is not None:
            handle = active.handle_at(base_position)
            if handle is not None:
                return handle
        key = (descriptor.recording_id, base_position)
        handle = self._read_handles.pop(key, None)
        if handle is None:
            path = self.directory / descriptor.segment_file_name(base_position)
            try:
                handle = self._file_system.open_file(path, writable=False)
            except FileNotFoundError as error:
                self.present_descriptor(descriptor.recording_id)
                self._refuse_if_below_oldest(descriptor, position)
                raise CorruptionError(
                    f"segment file missing: expected={path.name}",
                    recording_id=descriptor.recording_id,
                    position=base_position,
                ) from error
            if len(self._read_handles) >= READ_HANDLE_LIMIT:
                oldest = next(iter(self._read_handles))
                self._file_system.close_file(self._read_handles.pop(oldest))
        self._read_handles[key] = handle
        return handle

    def _refuse_if_below_oldest(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Raise when the segment of `position` is not just missing, but older than all that are here."""
        bases = self._files(descriptor).base_positions()
        if bases and position < bases[0]:
            raise behind_oldest(descriptor.recording_id, position=position, oldest_position=bases[0])

    def _forget_read_handles(self, recording_id: int | None) -> None:
        """Close the handles kept for a recording, or for all."""
        for key in [key for key in self._read_handles if recording_id in (None, key[0])]:
            self._file_system.close_file(self._read_handles.pop(key))

    def _bad_position(self, message: str, recording_id: int | None, position: int) -> ArchiveError:
        return ArchiveError(
            message, code=ArchiveErrorCode.INVALID_POSITION, recording_id=recording_id, position=position
        )

    async def _blocking(self, job: Callable[[], _T], recording_id: int | None = None) -> _T:
        """Run `job` in a thread, to its end even if the caller is cancelled: half a change is worse."""
        work = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, job))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        except OSError as error:
            raise storage_error(error, "disk refused", recording_id, None) from error


def _create_segment(files: SegmentFiles, base_position: int, *, zero: bool) -> Segment:
    """Make the segment a recording begins or goes on with, under its final name, durably. Blocks."""
    segment = files.create_for_zeroing(base_position)
    try:
        if zero:
            offset = 0
            while offset < files.segment_length_bytes:
                offset = files.zero_step(segment, offset)
        files.sync(segment)
        files.publish(segment)
    except BaseException:
        files.file_system.close_file(segment.handle)
        raise
    return segment


def _stop_position(descriptor: RecordingDescriptor) -> int:
    assert descriptor.stop_position is not None
    return descriptor.stop_position


def _right_frames_length(rules: FrameRules, data: bytes, position: int) -> int:
    """How many bytes of `data`, which begins at `position`, are whole frames that check out."""
    end = 0
    while end < len(data):
        following, _ = rules.skip_right_frames(data, end, position + end, len(data))
        if following == end:
            break
        end = following
    return end
