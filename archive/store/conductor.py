"""The archive: owns the catalog, the active recordings and the files of one directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, Self

import structlog

from ..config import ArchiveConfig, RecordingLayout
from ..disk.file_system import FileSystem, OsFileSystem
from ..errors import (
    RESTORE_ADVICE,
    ArchiveError,
    ArchiveErrorCode,
    CorruptionError,
    bad_position,
    below_oldest,
    is_damage,
)
from ..files.catalog import Catalog
from ..files.edit_journal import Edit, EditJournal
from ..files.mark_file import ACTIVITY_INTERVAL_S, ArchiveMarkFile
from ..files.reader import FrameReader
from ..files.segment_files import Segment, SegmentFiles, storage_error
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.layout import UNSYNCED_LIMIT_BYTES
from .access import restrict_access
from .cold_segments import ColdSegments, ColdStanding
from .damage import DamageTracker
from .editing import (
    EditContext,
    attach,
    complete,
    perform,
    plan_deletion,
    plan_detachment,
    plan_migration,
    plan_purge,
    plan_truncation,
    refuse_if_read,
    still_active,
)
from .mending import plan_mending, read_back, read_own
from .opening import make_good
from .range_reader import RangeReader
from .recording import Recording, RecordingContext
from .replay_pace import ReplayPace
from .space import SpaceWatch
from .whole_jobs import run_whole
from .worker import ThreadWorker, WorkerFactory

_log = structlog.get_logger(__name__)


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
        self.monotonic_ns: Final = monotonic_ns
        self.damage: Final = DamageTracker(monotonic_ns)
        """What `read` could not read."""
        self._torn_limit_bytes = UNSYNCED_LIMIT_BYTES if is_power_loss_possible else 0
        self._catalog = Catalog(file_system, directory, sync_level=config.file_sync_level)
        self._space = SpaceWatch(file_system, directory, config.space_threshold_bytes)
        self._mark: ArchiveMarkFile | None = None
        self._activity_timer: asyncio.TimerHandle | None = None
        self._active: dict[int, Recording] = {}
        self._changes = asyncio.Lock()
        """Held while the catalog or the set of active recordings changes."""
        self._reader = RangeReader(
            directory,
            file_system,
            refuse_if_purged=self._refuse_if_purged,
            cold_path=lambda descriptor, at: None if self.cold is None else self.cold.find_path(descriptor, at),
        )
        self._editing = EditContext(
            catalog=self._catalog,
            journal=EditJournal(file_system, directory, sync_level=config.file_sync_level),
            file_system=file_system,
            directory=directory,
            sync_level=config.file_sync_level,
            clock_ms=clock_ms,
            active=self._active,
            end_position=self.recorded_position,
            spared_positions=self._spared_positions,
        )
        self.cold: ColdSegments | None = None
        self.cold_standing: ColdStanding | None = None
        """The owner's cold storage: `readable_descriptor` begins there, and replays have fetched what they need."""
        self._readers: dict[object, tuple[int, Callable[[], int]]] = {}
        """Who reads which recording over a longer time, and how far it has come."""
        self.make_replay_pace: Callable[[int], ReplayPace | None] = lambda append_position: None
        """Makes what slows down a replay of a recording that grows, and ends at this position when the replay begins.
        An owner that serves others on the same loop sets it."""

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
        tolerates_damage: bool = False,
    ) -> Self:
        """Open the archive in `directory`, creating it if need be, and repair the tails of a crash.

        `is_power_loss_possible` says that the machine may have gone down since the archive was last open, and not just
        the process: the last batch may then be torn in any order (see `trimaran.archive.store.repair`). With
        `tolerates_damage` it opens where the end of a recording is found behind damage, which `damage` knows of then.

        Raises:
            ArchiveInUseError: another process, or another archive of this one, runs on the directory.
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
        try:
            await run_whole(lambda: archive._open(archive.damage if tolerates_damage else None))
        except BaseException:
            archive._close_files(in_order=True)
            raise
        archive._tell_activity()
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

    def readable_descriptor(self, recording_id: int) -> RecordingDescriptor:
        """Return `present_descriptor` with the start position that a replay may have: that of its cold segments."""
        descriptor = self.present_descriptor(recording_id)
        return descriptor if self.cold is None else self.cold.extend(descriptor)

    def descriptors(
        self,
        *,
        from_recording_id: int = 0,
        limit: int | None = None,
        channel_fragment: str | None = None,
        stream_id: int | None = None,
    ) -> list[RecordingDescriptor]:
        """Return the descriptors of what is recorded here, in order of recording id: `limit` of them at most.

        Neither of what was purged nor of what was marked invalid. `channel_fragment` is part of the original channel.
        """
        found = (
            descriptor
            for descriptor in self._catalog.descriptors()
            if descriptor.state is RecordingState.VALID
            and descriptor.recording_id >= from_recording_id
            and (channel_fragment is None or channel_fragment in descriptor.original_channel)
            and (stream_id is None or descriptor.stream_id == stream_id)
        )
        return list(islice(found, limit))

    def find_last_matching(
        self, *, min_recording_id: int, channel_fragment: str, stream_id: int, session_id: int
    ) -> int | None:
        """Find the newest recording of a stream and a session, from `min_recording_id` on; None if there is none.

        Source: Aeron `AeronArchive.findLastMatchingRecording`.
        """
        found = self.descriptors(
            from_recording_id=min_recording_id, channel_fragment=channel_fragment, stream_id=stream_id
        )
        return next((one.recording_id for one in reversed(found) if one.session_id == session_id), None)

    def active_recording(self, recording_id: int) -> Recording | None:
        """Return the recording if it is active."""
        return self._active.get(recording_id)

    def is_lost(self, recording_id: int) -> bool:
        """Return whether a recording has no segment, though something was recorded: an active one always had a segment.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        descriptor = self.descriptor(recording_id)
        is_blank = self.recorded_position(recording_id) == descriptor.start_position
        if self._editing.files(descriptor).base_positions():
            return False
        return not is_blank or any(place.recording_id == recording_id for place in self.damage.places)

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
        may_use_reserve: bool = False,
        layout: RecordingLayout | None = None,
    ) -> Recording:
        """Begin a new recording. Its first segment and its catalog entry are durable when this returns.

        `preallocate` zero-writes segments ahead, for cheap syncs; a short recording, as a snapshot is, does
        without. With `may_use_reserve` it begins on a disk that is nearly full: a snapshot lets others be purged.
        A copy has the `layout` of what it is a copy of.

        Raises:
            ArchiveError: INVALID_POSITION, or STORAGE_SPACE: the disk is nearly full, or full.
        """
        layout = layout or self.config.layout
        if start_position < 0 or start_position % 32:
            raise bad_position("invalid start position", None, start_position)
        async with self._changing():
            descriptor = RecordingDescriptor(
                recording_id=self._catalog.next_recording_id,
                start_timestamp_ms=self._clock_ms(),
                start_position=start_position,
                initial_term_id=initial_term_id,
                segment_file_length=layout.segment_length_bytes,
                term_buffer_length=layout.term_length_bytes,
                mtu_length=layout.mtu_length_bytes,
                session_id=session_id,
                stream_id=stream_id,
                stripped_channel=channel,
                original_channel=channel,
                source_identity=source_identity,
                checksummed=self.config.checksums,
                checksum_kind=self.config.checksum_kind,
            )
            files = self._editing.files(descriptor)
            base_position = descriptor.segment_base_position(start_position)

            def create() -> Segment:
                # The segment comes first: a segment without an entry is removed at the next start, while an
                # entry without a segment would be a recording that cannot be told from one that lost its
                # data.
                if not may_use_reserve:
                    self._space.refuse_if_low(None)
                files.remove_unpublished()
                files.remove_blank_orphans()
                segment = files.create_first(base_position, zero=preallocate)
                self._catalog.add(descriptor)
                return segment

            segment = await run_whole(create, descriptor.recording_id)
            return self._activate(descriptor, start_position, segment, files, preallocate=preallocate)

    async def extend_recording(self, recording_id: int, *, session_id: int, preallocate: bool = True) -> Recording:
        """Re-open a recording at its stop position, to append to it.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_EXTENSION, or STORAGE_SPACE.
        """
        async with self._changing():
            descriptor, position = self._editing.inactive(recording_id)
            if descriptor.checksum_label != self.config.checksum_label:
                raise ArchiveError(
                    f"recording cannot be extended: checksums={descriptor.checksum_label} configured="
                    f"{self.config.checksum_label}; set checksums and checksum_kind as they were when it was made",
                    code=ArchiveErrorCode.INVALID_EXTENSION,
                    recording_id=recording_id,
                )
            files = self._editing.files(descriptor)
            base_position = descriptor.segment_base_position(position)
            extended = replace(descriptor, session_id=session_id, stop_position=None, stop_timestamp_ms=None)

            def reopen() -> Segment:
                self._space.refuse_if_low(recording_id)
                files.remove_unpublished()
                files.clean_after(base_position, position)
                if base_position in files.base_positions():
                    segment = files.open_segment(base_position)
                elif position in (base_position, descriptor.start_position):
                    segment = files.create_first(base_position, zero=preallocate)
                else:
                    raise CorruptionError(
                        f"segment file missing: expected={descriptor.segment_file_name(base_position)}; "
                        f"{RESTORE_ADVICE}",
                        recording_id=recording_id,
                        position=position,
                    )
                # From here on a crash must look for the end of the recording again.
                self._catalog.update(extended)
                return segment

            segment = await run_whole(reopen, recording_id)
            self._reader.forget(recording_id)
            return self._activate(extended, position, segment, files, preallocate=preallocate)

    async def stop_recording(self, recording_id: int) -> bool:
        """Stop a recording: everything appended, and its stop position, are durable then. False if it was not active.

        Raises:
            ArchiveError: UNKNOWN_RECORDING; or the recording has failed, and has no stop position.
        """
        recording = self._active.get(recording_id)
        if recording is None:
            self.present_descriptor(recording_id)
            return False
        await recording.stop()
        return True

    def read(
        self, recording_id: int, position: int, limit_bytes: int, *, stop_position: int, is_frame_boundary: bool = True
    ) -> bytes:
        """Read whole durable frames from `position`, at most `limit_bytes` unless the first frame alone is longer.

        Never past `stop_position`, nor past the end of a segment; b"" at the end. Every frame is checked, with its
        checksum where the recording has them: what is not valid never leaves the archive. A blocking read of what
        is mostly in the page cache.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or INVALID_POSITION for a range that the recording does not have, or of
                which the segments were removed.
            SegmentColdError: the segment is in cold storage; `cold.fetch` gets it.
            CorruptionError: there is no valid frame at `position`; `damage` knows of it, unless nobody is sure that a
                frame begins there (`is_frame_boundary`). Valid frames before a wrong one are returned.
            ArchiveError: STORAGE_FAILED, the disk refused; `damage` knows of a place that cannot be read.
        """
        descriptor = self.present_descriptor(recording_id)
        active = self._active.get(recording_id)
        end_position = self.recorded_position(recording_id)
        start_position = self.readable_descriptor(recording_id).start_position
        if 0 <= position < start_position:
            raise below_oldest(recording_id, position=position, oldest_position=start_position)
        if not start_position <= position <= stop_position <= end_position or position % 32:
            raise bad_position(
                f"cannot read: start_position={start_position} stop_position={stop_position} "
                f"end_position={end_position}",
                recording_id,
                position,
            )
        if position == stop_position:
            return b""
        try:
            data = self._reader.read(descriptor, active, position, limit_bytes, stop_position=stop_position)
        except CorruptionError as error:
            if self.cold is not None and self.cold.drop(descriptor, position):
                self._reader.forget(recording_id)  # what is fetched again was checked
            elif is_frame_boundary:
                self.damage.on_failed_read(error, descriptor, position)
            raise
        except OSError as error:
            failure = storage_error(error, "read failed", recording_id, position)
            if is_damage(error):
                self.damage.on_failed_read(failure, descriptor, position)
            raise failure from error
        self.damage.on_read(recording_id, position, position + len(data))
        return data

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording that was stopped, frame by frame, in whatever thread.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or ACTIVE_RECORDING.
        """
        return FrameReader(self.directory, self._editing.inactive(recording_id)[0], file_system=self._file_system)

    async def truncate_recording(self, recording_id: int, position: int) -> int:
        """Cut an inactive recording at `position`, where a frame begins; give the number of segments removed.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_POSITION, or GENERIC: it is being read.
        """
        async with self._changing():
            edit = plan_truncation(self._editing, recording_id, position)
            if edit is None:
                return 0
            count = await self._perform(edit)
            self.damage.forget(recording_id, begin_position=position)
            _log.info("recording.truncated", recording_id=recording_id, position=position, segment_count=count)
            return count

    async def purge_recording(self, recording_id: int) -> int:
        """Remove an inactive recording and give the number of its segments: marked as deleted, durably, its files go.

        Does what is left of it where a crash came between the two.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, or GENERIC: it is being read.
        """
        async with self._changing():
            descriptor = self._catalog.get(recording_id)
            if recording_id in self._active:
                raise still_active(recording_id)
            refuse_if_read(self._editing, recording_id, "purge")
            files, is_new = self._editing.files(descriptor), descriptor.state is not RecordingState.DELETED

            def purge() -> int:
                if is_new:
                    self._catalog.update(replace(descriptor, state=RecordingState.DELETED))
                return files.remove_all()

            self._reader.forget(recording_id)
            count = await run_whole(purge, recording_id)
            self.damage.forget(recording_id)
            if is_new:
                _log.info("recording.purged", recording_id=recording_id, segment_count=count)
            return count

    async def purge_segments(self, recording_id: int, position: int) -> int:
        """Remove the segments that lie wholly below `position`; give their number.

        The recording may be active. Segments that were detached before go as well.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, INVALID_POSITION: the recording does not reach so far, or GENERIC: somebody
                reads in these segments.
        """
        async with self._changing():
            edit = plan_purge(self._editing, recording_id, position)
            if edit is None:
                return 0
            count = await self._perform(edit)
            self.damage.forget(recording_id, end_position=edit.position)
            _log.info(
                "recording.segments_purged",
                recording_id=recording_id,
                start_position=edit.position,
                segment_count=count,
            )
            return count

    async def detach_segments(self, recording_id: int, position: int) -> None:
        """Move the start of a recording to `position`, the begin of a segment; the files below stay where they are.

        The recording may be active.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, INVALID_POSITION, or GENERIC: somebody reads in these segments.
        """
        async with self._changing():
            detached = plan_detachment(self._editing, recording_id, position)
            await run_whole(lambda: self._catalog.update(detached), recording_id)
            self._reader.forget(recording_id)
            self.damage.forget(recording_id, end_position=position)
            _log.info("recording.segments_detached", recording_id=recording_id, start_position=position)

    async def delete_detached_segments(self, recording_id: int) -> int:
        """Remove the segments below the start of a recording; give their number.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        async with self._changing():
            return await self._perform(plan_deletion(self._editing, recording_id))

    async def attach_segments(self, recording_id: int) -> int:
        """Take back the detached segments that adjoin the start of a recording, each frame checked; give their number.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
            CorruptionError: something in them is not valid; nothing was changed.
        """
        async with self._changing():
            descriptor = self._editing.valid(recording_id)
            count = await run_whole(lambda: attach(self._editing, descriptor), recording_id)
            _log.info(
                "recording.segments_attached",
                recording_id=recording_id,
                start_position=self._catalog.get(recording_id).start_position,
                segment_count=count,
            )
            return count

    async def migrate_segments(self, src_recording_id: int, dst_recording_id: int) -> int:
        """Move all segments of a recording to the front or the end of another; give their number.

        Where one ends the other begins, at a segment boundary, and both have the same layout. The source is empty then.
        The destination may be active where segments come to its front.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_POSITION: they do not adjoin, or GENERIC: they
                do not have the same layout, the source is being read, or a detached segment is in the way.
        """
        async with self._changing():
            edit = plan_migration(self._editing, src_recording_id, dst_recording_id)
            if edit is None:
                return 0
            count = await self._perform(edit)
            _log.info(
                "recording.segments_migrated",
                src_recording_id=src_recording_id,
                dst_recording_id=dst_recording_id,
                start_position=edit.position,
                stop_position=edit.stop_position,
                segment_count=count,
            )
            return count

    async def mend_recording(self, recording_id: int, position: int, frames: bytes, *, replaces: bool = False) -> int:
        """Put valid frames of another copy in the place of damaged ones; give up to where the recording is right then.

        `frames` lie within one segment and below the end of the recording, which may be active. Where the own frames
        are valid again, the rest is left as it is, unless it `replaces` valid ones: see `mending`.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or INVALID_POSITION.
            CorruptionError: the frames are not valid, a valid frame here differs from them, or the disk does not keep
                what is written to it.
        """
        async with self._changing():
            descriptor = self._editing.valid(recording_id)
            plan = await run_whole(
                lambda: plan_mending(self._editing, descriptor, position, frames, replaces=replaces), recording_id
            )
            if plan.edit is not None:
                await self._perform(plan.edit)
        read_back(self, recording_id, position, plan.end_position)
        return plan.end_position

    def find_damage(self, recording_id: int, position: int) -> int:
        """Find where the damage begins that a read at `position` has met: there, or in the frame of a log before it.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or the segment was removed, or the disk refused.
        """
        descriptor = self.present_descriptor(recording_id)
        try:
            return self._reader.find_damage(descriptor, self._active.get(recording_id), position)
        except OSError as error:
            raise storage_error(error, "read failed", recording_id, position) from error

    async def read_as_it_is(self, recording_id: int, position: int, *, unlike: bytes) -> bytes:
        """Read as many bytes as `unlike` has, of one segment, without a check; for what cannot be read, give those.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or the disk refused for another reason than damage.
        """
        descriptor = self._editing.valid(recording_id)
        return await run_whole(lambda: read_own(self._editing, descriptor, position, unlike=unlike), recording_id)

    async def update_channel(self, recording_id: int, channel: str) -> None:
        """Rename the channel that a recording is listed under.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or the channel is not ASCII.
        """
        async with self._changing():
            renamed = replace(self._editing.valid(recording_id), original_channel=channel, stripped_channel=channel)
            await run_whole(lambda: self._catalog.replace_entry(renamed), recording_id)

    @contextmanager
    def reading(self, recording_id: int, position: Callable[[], int]) -> Iterator[None]:
        """Register a reader of a recording; `position` returns how far it has read."""
        reader = object()
        self._readers[reader] = recording_id, position
        try:
            yield
        finally:
            del self._readers[reader]

    def reader_positions(self, recording_id: int) -> dict[object, int]:
        """Where those are that read a recording just now, each by a key of its own."""
        return {key: position() for key, (read_id, position) in self._readers.items() if read_id == recording_id}

    def _spared_positions(self, recording_id: int) -> list[int]:
        return [*self.reader_positions(recording_id).values()] if self.config.spares_readers else []

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
        self._close_files(in_order=True)

    async def abandon(self) -> None:
        """Close the files as a crash would, without stop positions: for a node that must stop at once."""
        for recording in list(self._active.values()):
            await recording.release()
        self._active.clear()
        self._close_files(in_order=False)

    def _open(self, damage: DamageTracker | None) -> None:
        """Load the catalog and repair what a crash left. Blocks."""
        self._file_system.make_directory(self.directory)
        self._mark = ArchiveMarkFile.open(self.directory, now_ms=self._clock_ms(), file_system=self._file_system)
        # The mark first: while another process uses the directory, its rights are not changed either.
        restrict_access(self._file_system, self.directory)
        self._catalog.open()
        make_good(self._editing, torn_limit_bytes=self._torn_limit_bytes, damage=damage)

    def _tell_activity(self) -> None:
        """Say in the mark file that the archive is alive, now and about once a second from now on."""
        assert self._mark is not None
        try:
            self._mark.update_activity(self._clock_ms())
        except OSError as error:
            # Nothing recorded depends on it: a disk that is broken says so where that matters.
            _log.warning("archive.activity_not_written", directory=str(self.directory), reason=str(error))
        self._activity_timer = asyncio.get_running_loop().call_later(ACTIVITY_INTERVAL_S, self._tell_activity)

    def _close_files(self, *, in_order: bool) -> None:
        if self._activity_timer is not None:
            self._activity_timer.cancel()
        self._reader.forget(None)
        self._catalog.close()
        if self._mark is None:
            return
        try:
            (self._mark.close if in_order else self._mark.release)()
        except OSError as error:
            _log.warning("archive.activity_not_written", directory=str(self.directory), reason=str(error))

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
            monotonic_ns=self.monotonic_ns,
            on_stopped=self._on_stopped,
            inline_sync_limit_bytes=self.config.inline_sync_limit_bytes,
            preallocate=preallocate,
            watch_space=lambda: self._space.warn_if_low(descriptor.recording_id),
            drops_copied_pages=self.config.drops_copied_pages,
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
            await run_whole(lambda: self._catalog.update(stopped), recording.recording_id)
            self._active.pop(recording.recording_id, None)
            _log.info("recording.stopped", recording_id=recording.recording_id, position=recording.recorded_position)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Hold the lock of the catalog and the active recordings, with no edit left half-way by a failure."""
        async with self._changes:
            if self._editing.journal.is_pending:
                await run_whole(lambda: complete(self._editing))
            yield

    async def _perform(self, edit: Edit) -> int:
        """Do what was planned, off the loop. Files kept open for reading may be of another recording then, or gone."""
        try:
            count = await run_whole(lambda: perform(self._editing, edit), edit.recording_id)
        finally:
            self._reader.forget(edit.recording_id)
            self._reader.forget(edit.dst_recording_id)
        return count

    def _refuse_if_purged(self, recording_id: int, position: int) -> None:
        """Raise when what lies at a position was purged, by us or by hand: its lack is no damage then."""
        descriptor = self.present_descriptor(recording_id)
        bases = self._editing.files(descriptor).base_positions()
        oldest_position = max(descriptor.start_position, bases[0] if bases else 0)
        if position < oldest_position:
            raise below_oldest(recording_id, position=position, oldest_position=oldest_position)
