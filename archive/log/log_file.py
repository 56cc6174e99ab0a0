"""The log of a member on a disk or behind a URL: its recording, segments, frames and end.

The member may run, be stopped or be dead; nothing is changed, locked or asked. A reader of a recording outside of the
archive that writes it does so here; only a start judges by itself (`store.repair`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...service_api.errors import ConfigurationError
from ...service_api.types import LOG_STREAM_ID, NULL_VALUE, TimeUnit
from ..cold.file_system import readable_disk
from ..disk.file_system import opened, read_fully
from ..errors import CorruptionError
from ..files.catalog import read_catalog
from ..files.fast_forward import skip_valid_frames
from ..files.log_end import LogEnd
from ..files.reader import FrameReader
from ..format.catalog import CATALOG_FILE_NAME
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.segment_names import segment_base_positions
from .member_directory import ArchiveLocation, MemberDirectory
from .time_unit import find_time_unit


def is_log(descriptor: RecordingDescriptor) -> bool:
    """Whether this is a recording of a cluster's log that was not purged."""
    return descriptor.stream_id == LOG_STREAM_ID and descriptor.state is RecordingState.VALID


def choose_log(descriptors: Iterable[RecordingDescriptor], named_id: int | None = None) -> RecordingDescriptor | None:
    """Choose the recording that is the log: the one that the recording log names, else the newest; None without one.

    `named_id` is None or `NULL_VALUE` where there is no recording log, or no leadership term in it.
    """
    logs = [descriptor for descriptor in descriptors if is_log(descriptor)]
    if named_id is not None and named_id != NULL_VALUE:
        logs = [descriptor for descriptor in logs if descriptor.recording_id == named_id]
    return max(logs, key=lambda descriptor: descriptor.recording_id, default=None)


class LogFile:
    """One recording of an archive directory: the log, or another one that is read in the same way."""

    def __init__(self, location: ArchiveLocation, descriptor: RecordingDescriptor) -> None:
        self.location = location
        self.descriptor = descriptor

    def __repr__(self) -> str:
        return f"<LogFile location={self.location} recording={self.descriptor.recording_id}>"

    @classmethod
    def find(cls, directory: MemberDirectory) -> LogFile:
        """Find the log of a member, or of an archive without a cluster.

        Raises:
            ConfigurationError: there is none.
            CorruptionError: the files that say which it is are damaged.
            OSError: the disk or the store refused.
        """
        try:
            content = directory.read_catalog()
        except CorruptionError as error:
            raise CorruptionError(f"bad catalog: path={directory.archive}/{CATALOG_FILE_NAME}: {error}") from error
        marks = directory.read_marks()
        named_id = None if marks is None else marks.log_recording_id
        log = choose_log(content.readable, named_id)
        if log is None:
            known = [descriptor.recording_id for descriptor in content.readable]
            named = "" if named_id in (None, NULL_VALUE) else f" expected={named_id}, by {directory.recording_log}"
            raise ConfigurationError(f"no log of a cluster in {directory.archive}: known={known}{named}")
        return cls(directory.archive, log)

    @classmethod
    def of(cls, directory: Path, descriptor: RecordingDescriptor) -> LogFile:
        """Take a recording of a local archive directory."""
        return cls(ArchiveLocation(readable_disk(directory), directory), descriptor)

    def segment_base_positions(self) -> list[int]:
        """Return where the segments begin that are there now, ascending."""
        names = self.location.file_system.list_directory(self.location.directory)
        return segment_base_positions(names, self.descriptor.recording_id)

    def segment_path(self, position: int) -> Path:
        """Name the file that holds the frame at a position."""
        return self.location.directory / self.descriptor.segment_file_name(
            self.descriptor.segment_base_position(position)
        )

    def changed_at_ns(self, base_position: int) -> int | None:
        """Return when a segment was last changed; 0 for one in a store, which never changes; None if it is not there.

        Raises:
            OSError: the disk or the store refused.
        """
        if not self.location.is_local:
            return 0  # a store gets new objects, and nobody cuts a log back there
        try:
            return self.segment_path(base_position).stat().st_mtime_ns
        except FileNotFoundError:
            return 0 if base_position in self.segment_base_positions() else None

    def read(self, position: int, length: int) -> bytes:
        """Read bytes of one segment, unchecked: fewer where its file ends, none where it is not there.

        Raises:
            OSError: the disk or the store refused.
        """
        file_system = self.location.file_system
        try:
            with opened(file_system, self.segment_path(position)) as handle:
                return read_fully(
                    file_system, handle, length, position - self.descriptor.segment_base_position(position)
                )
        except FileNotFoundError:
            return b""

    def find_gap(self, position: int | None = None) -> int | None:
        """Find where the first missing segment begins that others follow, or the stop position does; None without one.

        Those before `position` are not asked for.
        """
        descriptor, bases = self.descriptor, self.segment_base_positions()
        start = descriptor.start_position if position is None else max(descriptor.start_position, position)
        end = max(bases, default=0) if descriptor.stop_position is None else descriptor.stop_position
        expected = range(descriptor.segment_base_position(start), end, descriptor.segment_file_length)
        return next((max(base, start) for base in expected if base not in bases), None)

    def reader(
        self, position: int | None = None, *, stop_position: int | None = None, checksummed: bool | None = None
    ) -> FrameReader:
        """Read the frames from a position on, by default from the oldest.

        Raises:
            ArchiveError: the position is before the oldest, or no place where a frame can begin.
        """
        return FrameReader(
            self.location.directory,
            self.descriptor,
            start_position=position,
            stop_position=stop_position,
            checksummed=checksummed,
            file_system=self.location.file_system,
        )

    def ending(self, position: int | None = None) -> LogEnd:
        """Check the frames from a position on, by default from the oldest, and say how the log ends."""
        descriptor = self.descriptor
        _, last = skip_valid_frames(
            self.location.file_system,
            self.location.directory,
            descriptor,
            start_position=descriptor.start_position if position is None else position,
            checksummed=descriptor.is_checkable,
        )
        reader = self.reader(last)
        for _ in reader:
            pass
        return reader.ending()

    def time_unit(self) -> TimeUnit:
        """Find the unit of the timestamps: what the log says, or if its beginning was purged, a snapshot beside it.

        Raises:
            CorruptionError: the catalog is damaged.
            OSError: the disk or the store refused.
        """
        beside: list[RecordingDescriptor] = []
        if self.descriptor.stream_id == LOG_STREAM_ID:
            known = read_catalog(self.location.file_system, self.location.directory).readable
            beside = [descriptor for descriptor in known if descriptor.stream_id != LOG_STREAM_ID]
        return find_time_unit(self.location, [self.descriptor, *beside])

    def corruption(self, end: LogEnd) -> CorruptionError:
        """Make the error that every reader raises at the damage with which this log ends."""
        return CorruptionError(
            f"recording is damaged: {end.damage}", recording_id=self.descriptor.recording_id, position=end.position
        )

    def find_reach(self) -> int:
        """Find where the last valid frame ends, whatever is damaged before it: the stop position, if there is one.

        Reads the highest segment that holds frames; one that was made ahead is passed over.
        """
        start, stop_position = self.descriptor.start_position, self.descriptor.stop_position
        if stop_position is not None:
            return max(start, stop_position)
        for base in reversed(self.segment_base_positions()):
            position = max(base, start)
            end = self.ending(position)
            while end.resumes_at is not None:
                end = self.ending(end.resumes_at)
            if end.position > position:
                return end.position
        return start
