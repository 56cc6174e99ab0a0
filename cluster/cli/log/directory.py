"""Finding and reading a log on a disk, whether its member runs, is stopped or is dead; nothing is changed or locked.

The log of a member that runs grows while it is read. What is there of it ends where nothing was written yet, or in the
middle of what was being written: that is its end, and no damage. A bad frame with more of the log behind it in another
file, or before the position at which a recording was stopped, is damage.

A frame that is being written is told from one that is written by its checksum. In a log without checksums, as Aeron
writes it by default, the newest entry of a member that runs may be shown before all of its payload is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.errors import CorruptionError
from trimaran.archive.files.catalog import CATALOG_FILE_NAME, find_impossible, read_catalog
from trimaran.archive.files.reader import FrameReader, MessageReader, RecordedMessage, StopReason
from trimaran.archive.format.descriptor import RecordingDescriptor, RecordingState
from trimaran.archive.format.layout import parse_segment_file_name
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import LOG_STREAM_ID, NULL_VALUE, RecordingId

from ...runtime.files.recording_log_file import read_recording_log
from ..shared.member_directory import find_archive_directory, find_recording_log
from .entry import LogEntry, make_entry


class LogDirectory:
    """The log recording of one member."""

    def __init__(self, archive_directory: Path, descriptor: RecordingDescriptor) -> None:
        self.archive_directory = archive_directory
        self.descriptor = descriptor

    def __repr__(self) -> str:
        return f"<LogDirectory directory={self.archive_directory} recording={self.descriptor.recording_id}>"

    @classmethod
    def find(cls, directory: Path) -> LogDirectory:
        """Find the log in a member's directory, or in an archive's.

        Raises:
            ConfigurationError: there is none.
            ClusterError: the files that say where it is are damaged.
        """
        archive_directory = find_archive_directory(directory)
        try:
            entries = read_catalog(OsFileSystem(), archive_directory).entries
        except CorruptionError as error:
            raise CorruptionError(f"bad catalog: path={archive_directory / CATALOG_FILE_NAME}: {error}") from error
        found = {
            entry.descriptor.recording_id: entry.descriptor
            for entry in entries
            if entry.descriptor is not None
            and find_impossible(entry.descriptor) is None
            and entry.descriptor.stream_id == LOG_STREAM_ID
            and entry.descriptor.state is RecordingState.VALID
        }
        if not found:
            raise ConfigurationError(f"no log has been recorded here: directory={archive_directory}")
        named_id = _recording_id_in_recording_log(directory)
        return cls(archive_directory, found[max(found) if named_id not in found else named_id])

    def reader(self, position: int | None = None) -> LogReader:
        """Read the entries from a position on, or from the oldest.

        Raises:
            ArchiveError: the position is before the oldest, or no place where an entry can begin.
        """
        return LogReader(self, position)

    def segment_base_positions(self) -> list[int]:
        """Give where the files of the recording begin, in order."""
        parsed = (parse_segment_file_name(path.name) for path in self.archive_directory.iterdir())
        return sorted(p[1] for p in parsed if p is not None and p[0] == self.descriptor.recording_id)

    def last_entries(self, count: int) -> tuple[list[LogEntry], LogReader]:
        """Give the last entries, and the reader that came to the end; only as many files are read as are needed."""
        start = self.descriptor.start_position
        bases = [start, *(base for base in self.segment_base_positions() if base > start)]
        for base in reversed(bases):
            reader = self.reader(base)
            messages = deque(reader.messages(), maxlen=count)
            if len(messages) == count or base == start:
                break
        return [make_entry(message) for message in messages], reader

    def end_position(self) -> int:
        """Give where the log ends."""
        stop_position = self.descriptor.stop_position
        return self.last_entries(1)[1].position if stop_position is None else stop_position

    def find_damage(self, frames: FrameReader) -> str | None:
        """Say that the reading ended in front of damage, and not at the end of the log."""
        if frames.stop_reason in (None, StopReason.STOP_POSITION):
            return None
        has_stopped = self.descriptor.stop_position is not None
        has_more = any(base > frames.position for base in self.segment_base_positions())
        is_gap = frames.stop_reason is StopReason.BLANK and not has_stopped
        if not has_stopped and (not has_more or is_gap):
            return None  # the next file may be there before the first byte of it is written
        base_position = self.descriptor.segment_base_position(frames.position)
        path = self.archive_directory / self.descriptor.segment_file_name(base_position)
        return (
            f"log is damaged: file={path} recording_id={self.descriptor.recording_id} position={frames.position}: "
            f"{frames.stop_reason.value}: {frames.detail}"
        )


def _recording_id_in_recording_log(directory: Path) -> RecordingId:
    """Give the recording that holds the log, where a recording log says so; -1 where there is none."""
    path = find_recording_log(directory)
    last_term = None if path is None else read_recording_log(path).last_term()
    return RecordingId(NULL_VALUE if last_term is None else last_term.recording_id)


class LogReader:
    """Iterates over the entries of a log, once, up to its end as it is now; `damage` says what is wrong there."""

    def __init__(self, directory: LogDirectory, position: int | None) -> None:
        self._directory = directory
        self._frames = FrameReader(directory.archive_directory, directory.descriptor, start_position=position)
        self.position = self._frames.position
        """Where the last entry that was given ends: the reading can go on there later."""
        self.damage: str | None = None

    def __iter__(self) -> Iterator[LogEntry]:
        return map(make_entry, self.messages())

    def messages(self) -> Iterator[RecordedMessage]:
        """Give the messages that the entries are made of."""
        reader = MessageReader(self._frames)
        for message in reader:
            self.position = message.end_position
            yield message
        if not reader.incomplete_message_count:
            self.position = self._frames.position  # padding may follow the last entry
        self.damage = self._directory.find_damage(self._frames)
