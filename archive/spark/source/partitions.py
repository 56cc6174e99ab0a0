"""Planning a read: options, catalog and the names of files become partitions. Nothing of a log is read but a few heads.

A partition is a range of one recording with whatever its reader has to know, small and picklable; `batch_reader` turns
one into record batches. The streaming reader and the hybrid of Parquet and raw segments make partitions of their own.

What is opened while planning: the catalog; the recording log for `committed=true`; one frame or a few for
`timeUnit=auto`; the highest segment of a recording that has no stop position, of which the headers are read to find
where it ends, unless only what lies before it is asked for; the place where a range of positions begins; the first
frames at some places where a filter asks for terms or times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ....service_api.errors import ConfigurationError
from ....service_api.types import LOG_STREAM_ID, TimeUnit
from ....service_api.wire.frame import FRAME_ALIGNMENT
from ....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ...format.catalog import CatalogEntry
from ...format.descriptor import RecordingDescriptor, RecordingState
from ...log.commit_proof import prove_commit
from ...log.log_file import LogFile, choose_log
from ...log.member_directory import ArchiveLocation, MemberDirectory, locate_archive
from ...reading.frame_batches import ReadProblem, find_archive_time_unit, find_entries
from ...reading.vector.boundaries import GRID_BYTES, CutRules, find_cut, find_start
from .filters import EVERY_ROW, RowFilter
from .intervals import Interval, Intervals
from .options import Committed, ReadMode, ReadOptions, expect_one_log
from .pruning import LogHead, WantedTimes, choose_runs, read_head

FIRST_PARTITION_BYTES: Final = GRID_BYTES
"""The first partition of all is this small: `show()` and `take()` look at nothing else, and come back at once."""

SHORTEST_SPLIT_BYTES: Final = 1 << 25
LONGEST_SPLIT_BYTES: Final = 1 << 27
"""Without `splitBytes` partitions are as long as Spark cuts files, 128 MiB. A task costs 30 ms of processor time
besides its rows (a worker collects all its garbage after each), which is a fifth of what 32 MiB take. They are shorter
where there would not be two for each core."""
PARTITION_LIMIT: Final = 10_000
"""Without `splitBytes` partitions are made longer until there are no more: each costs the driver a millisecond."""

_TIME_GRAIN_BYTES: Final = 4 * GRID_BYTES
"""Times are looked at so far apart at least: a head costs up to 200 kB, so less would read more."""
_SHORT_GAP_BYTES: Final = 1 << 22
_RANGE_LIMIT: Final = 1_000
"""Ranges of wanted positions with a shorter gap between them are read as one, and so are those beyond the limit: to
read the gap costs less than a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How frames are read, the same for all partitions of a read."""

    columns: tuple[str, ...]
    """Those of the DataFrame, in its order."""
    time_unit: TimeUnit
    row_filter: RowFilter = EVERY_ROW
    messages: bool = False
    padding: bool = True
    checksums: bool | None = None
    mode: ReadMode = ReadMode.PERMISSIVE


@dataclass(frozen=True)
class FramePartition:
    """A range of one recording, and how to read it.

    It goes from the cut at `nominal_start` to the cut at `nominal_stop` (see `reading.vector.boundaries`). Where they
    are exact, they are the cuts.
    """

    settings: ReadSettings
    location: ArchiveLocation
    descriptor: RecordingDescriptor
    nominal_start: int
    nominal_stop: int
    cuts: CutRules
    bound_position: int | None = None
    """Frames that end beyond it are left out."""
    wanted: Interval = Interval()  # noqa: RUF009  # it is frozen
    """Rows that begin outside of these positions are left out, and what lies behind is not read."""

    def resolve(self) -> tuple[int, int]:
        """Find the frames where the range begins and ends; there is nothing in it if they are the same.

        Raises:
            OSError: the disk or the store refused.
        """
        start = find_cut(self.location, self.descriptor, self.nominal_start, self.cuts)
        if self.wanted.high < min(start, self.nominal_stop):
            return start, start
        if self.wanted.high < self.nominal_stop:
            # No frame crosses the end of a term: nobody has to look for where the last wanted one ends.
            term_length = self.descriptor.term_buffer_length
            term_end = self.wanted.high - self.wanted.high % term_length + term_length
            return start, min(term_end, self.cuts.end_position)
        return start, max(start, find_cut(self.location, self.descriptor, self.nominal_stop, self.cuts))

    @property
    def is_open(self) -> bool:
        """Whether it goes on to where nothing was written: the last one of a recording without a stop position."""
        end = self.cuts.end_position
        return self.descriptor.stop_position is None and self.nominal_stop >= end and self.wanted.high >= end


@dataclass(frozen=True)
class ReadPlan:
    """The partitions of a read, and the damage of the catalog, of which nothing can be read."""

    partitions: tuple[FramePartition, ...]
    problems: tuple[ReadProblem, ...] = ()


def plan_read(options: ReadOptions, columns: tuple[str, ...]) -> ReadPlan:
    """Plan a batch read.

    Raises:
        ConfigurationError: what the options ask for is not there.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    location = locate_archive(options.path)
    expect_one_log(options)
    chosen, problems = choose_recordings(options, location)
    wanted_ids = options.where.values_of("recording_id")
    chosen = [d for d in chosen if wanted_ids.meets(d.recording_id, d.recording_id)]
    settings = ReadSettings(
        columns=columns,
        time_unit=find_read_time_unit(options, location, columns),
        row_filter=options.where,
        messages=options.messages,
        padding=options.padding,
        checksums=options.checksums,
        mode=options.mode,
    )
    planner = _Planner(options, settings, location, chosen)
    return ReadPlan(tuple(planner.partitions()), problems)


def choose_recordings(
    options: ReadOptions, location: ArchiveLocation
) -> tuple[list[RecordingDescriptor], tuple[ReadProblem, ...]]:
    """Find the recordings that a read is of, and the damage of the catalog.

    Raises:
        ConfigurationError: there is no log, and no recording is named.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    entries = find_entries(location.directory, options.recording_id, location.file_system)
    problems = tuple(problem for entry in entries if (problem := _catalog_problem(entry)) is not None)
    readable = [entry.descriptor for entry in entries if entry.descriptor is not None and entry.problem is None]
    if options.recording_id is None and not options.all_recordings:
        marks = MemberDirectory.beside(location).read_marks()
        log = choose_log(readable, None if marks is None else marks.log_recording_id)
        if log is None:
            ids = [descriptor.recording_id for descriptor in readable]
            raise ConfigurationError(f"no log of a cluster in {location}: expected recordingId=all, or one of {ids}")
        readable = [log]
    return readable, problems


def find_read_time_unit(options: ReadOptions, location: ArchiveLocation, columns: Sequence[str]) -> TimeUnit:
    """Find the unit of timestamps, if anybody will look at them: as told, or what the archive's messages say.

    Raises:
        OSError: the disk or the store refused.
    """
    if options.time_unit is not None:
        return options.time_unit
    if "timestamp" not in columns and "timestamp" not in options.where.columns:
        return TimeUnit.MILLIS
    return find_archive_time_unit(location)


def find_bound(
    options: ReadOptions, location: ArchiveLocation, descriptor: RecordingDescriptor, end_position: int
) -> int | None:
    """Find the position beyond which no frame may end, by `stopPosition` and `committed`; None if there is none.

    The recording ends at `end_position`.

    Raises:
        ConfigurationError: `committed=true`, and no recording log says anything about this recording.
        CorruptionError: the recording log is damaged.
        OSError: the disk or the store refused.
    """
    bounds = [] if options.stop_position is None else [options.stop_position]
    if options.committed is Committed.BY_RECORDING_LOG:
        bounds.append(_committed_position(location, descriptor, end_position))
    elif isinstance(options.committed, int):
        bounds.append(options.committed)
    return min(bounds, default=None)


def cut_range(descriptor: RecordingDescriptor, start: int, stop: int, rules: CutRules) -> Iterator[tuple[int, int]]:
    """Cut the range [start, stop) of a recording by `rules`: (nominal_start, nominal_stop) of each piece."""
    while start < stop:
        place = min(stop, rules.next_place(descriptor, start))
        yield start, place
        start = place


def choose_split_bytes(options: ReadOptions, total_bytes: int, core_count: int | None = None) -> int:
    """Choose how long partitions are: as told, or 32, 64 or 128 MiB, or longer, so that there are 10,000 at most.

    Of how many cores Spark has a data source is not told: those of this machine are counted.
    """
    if options.split_bytes is not None:
        return options.split_bytes
    wanted_count = 2 * (core_count or os.cpu_count() or 1)
    split_bytes = LONGEST_SPLIT_BYTES
    while split_bytes > SHORTEST_SPLIT_BYTES and split_bytes * wanted_count > total_bytes:
        split_bytes //= 2
    return max(split_bytes, -(-total_bytes // PARTITION_LIMIT))


@dataclass(frozen=True, slots=True)
class _Planner:
    """Makes the partitions of one read."""

    options: ReadOptions
    settings: ReadSettings
    location: ArchiveLocation
    descriptors: Sequence[RecordingDescriptor]

    def partitions(self) -> Iterator[FramePartition]:
        """Yield the partitions of all recordings in order; the first one is small."""
        ends = {descriptor.recording_id: self._find_end(descriptor) for descriptor in self.descriptors}
        total = sum(self._count_wanted_bytes(d, ends[d.recording_id]) for d in self.descriptors)
        split_bytes = choose_split_bytes(self.options, total)
        is_first = True
        for descriptor in self.descriptors:
            rules = CutRules(
                split_bytes=split_bytes,
                end_position=ends[descriptor.recording_id],
                of_messages=self.settings.messages,
            )
            bound = find_bound(self.options, self.location, descriptor, rules.end_position)
            for wanted in self._wanted_positions(bound).merge(_SHORT_GAP_BYTES, _RANGE_LIMIT).parts:
                for start, stop in self._without_excepted(descriptor, self._ranges(descriptor, rules, wanted)):
                    for piece in cut_range(descriptor, start, stop, rules):
                        for begin, end in _split_off_first(piece) if is_first else [piece]:
                            is_first = False
                            yield FramePartition(
                                self.settings, self.location, descriptor, begin, end, rules, bound, wanted
                            )

    def _count_wanted_bytes(self, descriptor: RecordingDescriptor, end: int) -> int:
        """Count what of a recording is asked for by its position: a short range is cut into short partitions."""
        whole = Interval(descriptor.start_position, end - 1)
        wanted = self._wanted_positions(self.options.stop_position).narrow(Intervals.of(whole))
        ranges = [(part.low, part.high + 1) for part in wanted.parts]
        return sum(last - first for first, last in self._without_excepted(descriptor, ranges))

    def _find_end(self, descriptor: RecordingDescriptor) -> int:
        if descriptor.stop_position is not None:
            return max(descriptor.start_position, descriptor.stop_position)
        if descriptor.state is RecordingState.DELETED:
            return descriptor.start_position
        log = LogFile(self.location, descriptor)
        # What begins a segment ends the one before: with frames in it, nobody has to read on for the end.
        high = self._wanted_positions(self.options.stop_position).high
        base = next((base for base in log.segment_base_positions() if base > high), None)
        if base is not None and next(iter(log.reader(max(base, descriptor.start_position))), None) is not None:
            return base
        # Room for one frame, so that there is a partition that looks at what is there.
        return max(descriptor.start_position + FRAME_ALIGNMENT, log.find_reach())

    def _ranges(
        self, descriptor: RecordingDescriptor, rules: CutRules, positions: Interval
    ) -> Iterator[tuple[int, int]]:
        """Yield the ranges of nominal places that may hold wanted rows at these positions."""
        end = rules.end_position
        if positions.high < descriptor.start_position or positions.low >= end:
            return
        start = find_start(self.location, descriptor, max(descriptor.start_position, positions.low), rules)
        stop = end if positions.high >= end else min(end, rules.next_place(descriptor, max(positions.high, start)))
        wanted = self._wanted_times()
        if wanted.is_all or descriptor.stream_id != LOG_STREAM_ID:
            yield start, stop
            return
        grain = min(descriptor.term_buffer_length, _TIME_GRAIN_BYTES)
        first = start - start % grain
        # Nothing behind the last wanted position has to be told apart.
        count = -(-(min(stop, positions.high + 1) - first) // grain)

        def place_of(index: int) -> int:
            return stop if index == count else max(start, first + index * grain)

        def find_head(index: int) -> LogHead | None:
            position = find_cut(self.location, descriptor, place_of(index), rules)
            return read_head(self.location, descriptor, position, self.settings.time_unit)

        for begin, behind in choose_runs(count, find_head, wanted):
            yield place_of(begin), place_of(behind)

    def _without_excepted(
        self, descriptor: RecordingDescriptor, ranges: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Take out of ranges what the option `exceptPositions` leaves out."""
        excepted = sorted(e for e in self.options.excepted if e.recording_id == descriptor.recording_id)
        for start, stop in ranges:
            for _, first, last in excepted:
                if start < first < stop:
                    yield start, first
                if first < stop:
                    start = max(start, min(last, stop))
            if start < stop:
                yield start, stop

    def _wanted_positions(self, bound: int | None) -> Intervals:
        """The positions of the rows that are asked for, by options and by the filter."""
        low = Interval().low if self.options.start_position is None else self.options.start_position
        high = Interval().high if bound is None else bound - 1
        return Intervals.of(Interval(low, high)).narrow(self.settings.row_filter.values_of("position"))

    def _wanted_times(self) -> WantedTimes:
        row_filter = self.settings.row_filter
        return WantedTimes(row_filter.values_of("leadership_term_id"), row_filter.values_of("timestamp"))


def _split_off_first(piece: tuple[int, int]) -> list[tuple[int, int]]:
    start, stop = piece
    place = start - start % FIRST_PARTITION_BYTES + FIRST_PARTITION_BYTES
    return [piece] if place >= stop else [(start, place), (place, stop)]


def _catalog_problem(entry: CatalogEntry) -> ReadProblem | None:
    if entry.problem is None:
        return None
    recording_id = None if entry.descriptor is None else entry.descriptor.recording_id
    return ReadProblem(recording_id, None, f"catalog entry at offset={entry.offset}: {entry.problem}")


def _committed_position(location: ArchiveLocation, descriptor: RecordingDescriptor, end_position: int) -> int:
    """Ask the recording log of the member that the archive belongs to."""
    member = MemberDirectory.beside(location)
    marks, path = member.read_marks(), member.recording_log
    if marks is None:
        expected = location.directory.parent / "cluster" / RECORDING_LOG_FILE_NAME
        raise ConfigurationError(
            f"committed=true: no recording log beside {location}: expected {expected}, or committed=POSITION"
        )
    if not marks.terms or marks.log_recording_id != descriptor.recording_id:
        log = f"recordingId={marks.log_recording_id}" if marks.terms else "none"
        raise ConfigurationError(
            f"committed=true is about the log: recordingId={descriptor.recording_id} expected {log}, by {path}"
        )
    claim = prove_commit(location.directory, descriptor, marks, location.file_system)
    return 0 if claim is None else min(claim.position, end_position)
