"""A member's log and snapshots on a disk or behind a URL, ours or a real Aeron Cluster's, read and never changed.

The member may run. Then the log grows while it is read, its end is what was there when the directory was opened, and
what is purged meanwhile is missed with an error that says so.

What is committed: `commit_proof` says what a directory proves, and why. What a member recorded behind that was
delivered to its service or was not: only a majority of members knows. So that is the bound unless another is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from ...archive import ArchiveError, RecordingDescriptor
from ...archive.errors import CorruptionError
from ...archive.files.reader import FrameReader
from ...archive.log.commit_proof import marks_of, prove_commit
from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import ArchiveLocation
from ...archive.store.range_reader import RangeReader
from ...service_api import ConfigurationError
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.types import LOG_STREAM_ID, TimeUnit
from ...service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, iter_headers
from ...service_api.wire.log.fields import read_log_fields
from ...service_api.wire.log.messages import EntrySkip
from ...service_api.wire.log.recording_log import RecordingLogEntry
from ..core.log.recording_log import RecordingLog
from ..core.vocabulary.configuration import find_configurations
from ..directories.source import Source, read_source
from ..service.skipped_entries import ENTRY_SKIP_BEGIN, find_entry_skips
from .frame_check import make_frame_check

Bound = Literal["committed", "recorded"] | int
"""How far a log is read: what its recording log knows to be committed, all that is recorded, or a position."""

READ_BYTES: Final = 1 << 20
_AERON_CHANNEL: Final = "aeron:"


@dataclass(slots=True, frozen=True)
class SnapshotSet:
    """A complete, valid set of snapshots of one log position: the module's, then each service's in order of id."""

    log_position: int
    leadership_term_id: int
    timestamp: int
    """Cluster time."""
    entries: tuple[RecordingLogEntry, ...]


class MemberLog:
    """The log of one member, and the snapshots that lie in it."""

    def __init__(self, source: Source, place: str | ArchiveLocation) -> None:
        self._source = source
        self.place: Final = place
        """Where the log is read, for who opens it again."""
        self.log: Final = source.descriptor(source.log_recording_id)
        """The recording that holds the log."""
        if self.log.stream_id != LOG_STREAM_ID:
            raise ConfigurationError(
                f"log recording_id={self.log.recording_id} stream_id={self.log.stream_id} expected={LOG_STREAM_ID}"
            )
        self._file = LogFile(source.location, self.log)
        self._reader = RangeReader(source.archive, source.location.file_system, refuse_if_purged=self._refuse_if_purged)
        self._frame_check = make_frame_check(self._file)
        self._newest_read: tuple[tuple[int, int, int], bytes] = (-1, 0, 0), b""
        """What was read of the log last, and its arguments: two services that are compared read the same."""
        self._skipped_entries: dict[tuple[int, int], dict[int, int]] = {}
        """By the range of the log that was looked through."""

    def __repr__(self) -> str:
        return f"<MemberLog {self._source.name} start={self.log.start_position} end={self.recorded_position}>"

    @classmethod
    def open(cls, directory: Path | str | ArchiveLocation) -> MemberLog:
        """Read the small files of a member's directory; of an Aeron member's also as CLUSTER_DIR,ARCHIVE_DIR.

        Raises:
            ConfigurationError: it is no member's directory.
            ClusterError: a file is damaged.
        """
        place = directory if isinstance(directory, ArchiveLocation) else str(directory)
        return cls(read_source(place, now_ms=None), place)

    @property
    def name(self) -> str:
        """The directory, as the user named it."""
        return self._source.name

    @property
    def recording_log(self) -> RecordingLog:
        """The leadership terms, and the snapshots."""
        return self._source.recording_log

    @property
    def is_by_aeron(self) -> bool:
        """Whether a real Aeron Cluster began this log: its services share the ids of timers."""
        return self.log.stripped_channel.startswith(_AERON_CHANNEL)

    @property
    def is_seeded(self) -> bool:
        """Whether the log begins with the state of a snapshot: it alone gives another state."""
        return self._source.is_seeded

    @cached_property
    def time_unit(self) -> TimeUnit:
        """The unit of the log's times: what the log says, or a snapshot beside it."""
        return self._file.time_unit()

    @cached_property
    def recorded_position(self) -> int:
        """Where the last valid frame of the log ends, when first asked for; a replay up to there finds damage."""
        return self._file.find_reach()

    @property
    def committed_position(self) -> int:
        """How much of the log is known to be committed by what this directory says."""
        claim = prove_commit(
            self._source.archive, self.log, marks_of(self.recording_log.entries), self._source.location.file_system
        )
        return self.log.start_position if claim is None else min(claim.position, self.recorded_position)

    @cached_property
    def segment_base_positions(self) -> tuple[int, ...]:
        """Where the files of the log begin that are there, in order."""
        return tuple(self._file.segment_base_positions())

    def end_of(self, bound: Bound) -> int:
        """Return the position that a bound stands for.

        Raises:
            ConfigurationError: it is none, or a position behind what is recorded.
        """
        if bound == "committed":
            return self.committed_position
        if bound == "recorded":
            return self.recorded_position
        if not isinstance(bound, int):
            raise ConfigurationError(f"bound={bound!r} expected committed, recorded or a position")
        if not self.log.start_position <= bound <= self.recorded_position:
            raise ConfigurationError(
                f"bound={bound} expected {self.log.start_position} to {self.recorded_position}, which is recorded"
            )
        return bound

    def snapshots(self, service_count: int) -> list[SnapshotSet]:
        """Find the complete, valid sets of so many services that a replay can go on from, oldest first.

        One that a member took before it learned that an earlier entry is skipped is none of them.
        """
        complete = self.recording_log.complete_snapshots(service_count)
        positions = [sets[0].log_position for sets in complete if sets[0].log_position >= self.log.start_position]
        skipped = self.skipped_entries(min(positions, default=self.recorded_position), 0).items()
        found = [
            SnapshotSet(sets[0].log_position, sets[0].leadership_term_id, sets[0].timestamp, sets)
            for sets in complete
            if self.log.start_position <= sets[0].log_position <= self.recorded_position
            and not any(entry <= sets[0].log_position < skip for entry, skip in skipped)
        ]
        return sorted(found, key=lambda snapshot: snapshot.log_position)

    def skipped_entries(self, begin_position: int, end_position: int) -> dict[int, int]:
        """Find the entries that an operator has skipped, by where they end: where the entry ends that says so.

        What says so lies after `begin_position`, where a replay begins, and is committed, or lies before
        `end_position`. That much of the log is looked through, once, for the bytes that such an entry begins with.
        """
        bounds = begin_position, max(end_position, self.committed_position)
        if bounds not in self._skipped_entries:
            self._skipped_entries[bounds] = self._look_for_skips(*bounds)
        return self._skipped_entries[bounds]

    def _look_for_skips(self, begin_position: int, end_position: int) -> dict[int, int]:
        found = dict[int, int]()
        for base in self.segment_base_positions:
            if base + self.log.segment_file_length <= begin_position:
                continue
            begin = max(base, self.log.start_position)
            if begin < end_position and self._may_skip_entries(begin, end_position):
                self._find_entry_skips(begin, min(base + self.log.segment_file_length, end_position), found)
        return found

    def _may_skip_entries(self, begin: int, end_position: int) -> bool:
        """Whether a segment holds bytes like those that an entry begins with which has another one skipped."""
        position = begin
        while position < end_position and (data := self._file.read(position, READ_BYTES)):
            if ENTRY_SKIP_BEGIN in data:
                return True
            position += len(data)
            if position % self.log.segment_file_length == 0:
                break
        return False

    def _find_entry_skips(self, position: int, end_position: int, found: dict[int, int]) -> None:
        def note(skip: EntrySkip) -> None:
            found[skip.skipped_log_position] = skip.log_position

        while data := self._read_log(position, end_position):
            find_entry_skips(data, position, note)
            position += len(data)

    @cached_property
    def group(self) -> Group:
        """Which of the cluster's groups has the log, by its first entries; where they are gone, a snapshot says it."""
        if self.log.start_position > 0:
            return ONLY_GROUP
        first = next(find_configurations(self._read_log(0, self.committed_position), 0), None)
        return ONLY_GROUP if first is None else first.group

    def position_at(self, time: int, *, end_position: int) -> int:
        """Return where the first message begins that is later than this cluster time; `end_position` if there is none.

        The segment is found by bisection, the message in it by reading on.
        """
        bases = [base for base in self.segment_base_positions if base < end_position]
        low, high = 0, len(bases)
        while low < high:
            middle = (low + high) // 2
            first = self._first_timestamp(max(bases[middle], self.log.start_position), end_position)
            if first is None or first > time:
                high = middle
            else:
                low = middle + 1
        position = self.log.start_position if low == 0 else max(bases[low - 1], self.log.start_position)
        data = self._read_log(position, end_position)
        while data:
            following = self._read_log(position + len(data), end_position)
            first = next((timestamp for _, timestamp in _times(following)), None)
            if first is None or first > time:
                found = position + len(data)
                return next((position + begin for begin, timestamp in _times(data) if timestamp > time), found)
            position, data = position + len(data), following
        return position

    def close_files(self) -> None:
        """Close the files that were opened for reading; a later read opens them again."""
        self._reader.forget(None)
        if self._frame_check is not None:
            self._frame_check.forget()

    # --- a `SnapshotSource`

    @property
    def directory(self) -> Path:
        """The directory of the archive."""
        return self._source.archive

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What the catalog says about a recording.

        Raises:
            ArchiveError: it says nothing, or nothing that can be used.
        """
        return self._source.descriptor(recording_id)

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording.

        Raises:
            ArchiveError: it cannot be read.
        """
        return LogFile(self._source.location, self.descriptor(recording_id)).reader()

    def read(self, recording_id: int, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Whole frames of a recording that check out, at least one.

        Raises:
            ArchiveError: there is no valid frame at `position`.
        """
        if recording_id != self.log.recording_id:
            descriptor = self.descriptor(recording_id)
            return self._reader.read(descriptor, None, position, limit_bytes, stop_position=stop_position)
        arguments = position, limit_bytes, stop_position
        if self._newest_read[0] != arguments:
            self._newest_read = arguments, self._read_checked(*arguments)
        return self._newest_read[1]

    def _read_checked(self, position: int, limit_bytes: int, stop_position: int) -> bytes:
        if self._frame_check is not None:
            data = self._frame_check.read(position, limit_bytes, stop_position)
            if data:
                return data
        try:
            return self._reader.read(self.log, None, position, limit_bytes, stop_position=stop_position)
        except CorruptionError as error:
            end = self._file.ending(position)
            raise error if end.damage is None else self._file.corruption(end) from error

    def _read_log(self, position: int, end_position: int) -> bytes:
        if position >= end_position:
            return b""
        return self.read(self.log.recording_id, position, READ_BYTES, stop_position=end_position)

    def _first_timestamp(self, position: int, end_position: int) -> int | None:
        while data := self._read_log(position, end_position):
            for _, timestamp in _times(data):
                return timestamp
            position += len(data)
        return None

    def _refuse_if_purged(self, recording_id: int, position: int) -> None:
        """Say so if the member has purged what is to be read."""
        now = read_source(self.place, now_ms=None).descriptor(recording_id)
        if position < now.start_position:
            raise ArchiveError(
                f"the log was purged while it was read: start_position={now.start_position}",
                recording_id=recording_id,
                position=position,
            )


def _times(data: bytes) -> Iterator[tuple[int, int]]:
    """Where in `data` each message begins that has a time, and that time."""
    for offset, header in iter_headers(data):
        if header.type == TYPE_DATA and header.flags & FLAG_BEGIN:
            timestamp = read_log_fields(data[offset + HEADER_LENGTH : offset + header.frame_length]).timestamp
            if timestamp is not None:
                yield offset, timestamp
