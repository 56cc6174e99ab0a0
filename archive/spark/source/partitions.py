"""Planning a read: options, catalog and the names of files become partitions. Nothing of a log is read but a few heads.

A partition is a range of one recording with whatever its reader has to know, small and picklable; `batch_reader` turns
one into record batches. The streaming reader and the hybrid of Parquet and raw segments make partitions of their own.

What is opened while planning: the catalog; the recording log for `committed=true`; one frame or a few for
`timeUnit=auto`; the highest segment of a recording that has no stop position, of which the headers are read to find
where it ends; heads of segments where a filter asks for terms or times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import LOG_STREAM_ID, TimeUnit
from trimaran.service_api.wire.frame import FRAME_ALIGNMENT
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME

from ...files.catalog import CatalogEntry
from ...format.descriptor import RecordingDescriptor, RecordingState
from ...log.commit_proof import prove_commit
from ...log.log_file import LogFile, choose_log
from ...log.member_directory import ArchiveLocation, MemberDirectory, locate_archive
from ...reading.frame_batches import ReadProblem, find_archive_time_unit, find_entries
from .boundaries import CutRules, find_cut
from .filters import ANY_VALUE, NO_CONDITIONS, Condition, Conditions, Interval
from .options import Committed, ReadMode, ReadOptions
from .pruning import WantedTimes, choose_segments, read_segment_head

FIRST_PARTITION_BYTES: Final = 1 << 16
"""The first partition of all is this small: `show()` and `take()` look at nothing else, and come back at once."""

SHORTEST_SPLIT_BYTES: Final = 1 << 25
LONGEST_SPLIT_BYTES: Final = 1 << 27
"""Without `splitBytes` partitions are as long as Spark cuts files, 128 MiB. A task costs 30 ms of processor time
besides its rows (a worker collects all its garbage after each), which is a fifth of what 32 MiB take. They are shorter
where there would not be two for each core."""
PARTITION_LIMIT: Final = 10_000
"""Without `splitBytes` partitions are made longer until there are no more: each costs the driver a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How frames are read, the same for all partitions of a read."""

    columns: tuple[str, ...]
    """Those of the DataFrame, in its order."""
    time_unit: TimeUnit
    conditions: Conditions = NO_CONDITIONS
    messages: bool = False
    padding: bool = True
    checksums: bool | None = None
    mode: ReadMode = ReadMode.PERMISSIVE


@dataclass(frozen=True)
class FramePartition(InputPartition):
    """A range of one recording, and how to read it.

    It goes from the cut at `nominal_start` to the cut at `nominal_stop` (see `boundaries`). Where they are exact, they
    are the cuts.
    """

    settings: ReadSettings
    location: ArchiveLocation
    descriptor: RecordingDescriptor
    nominal_start: int
    nominal_stop: int
    cuts: CutRules
    bound_position: int | None = None
    """Frames that end beyond it are left out."""

    def resolve(self) -> tuple[int, int]:
        """Find the frames where the range begins and ends; there is nothing in it if they are the same.

        Raises:
            OSError: the disk or the store refused.
        """
        start = find_cut(self.location, self.descriptor, self.nominal_start, self.cuts)
        return start, max(start, find_cut(self.location, self.descriptor, self.nominal_stop, self.cuts))

    @property
    def is_last(self) -> bool:
        """Whether the recording ends with it."""
        return self.nominal_stop >= self.cuts.end_position


@dataclass(frozen=True)
class ReadPlan:
    """The partitions of a read, and the damage of the catalog, of which nothing can be read."""

    partitions: tuple[FramePartition, ...]
    problems: tuple[ReadProblem, ...] = ()


def plan_read(options: ReadOptions, columns: tuple[str, ...], pushed: Conditions = NO_CONDITIONS) -> ReadPlan:
    """Plan a batch read of what the option `where` asks for, and the filters pushed down.

    Raises:
        ConfigurationError: what the options ask for is not there.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    conditions = options.where.also(pushed).also(_starting_from(options.start_position))
    location = locate_archive(options.path)
    chosen, problems = choose_recordings(options, location)
    wanted_ids = conditions.interval("recording_id")
    chosen = [d for d in chosen if wanted_ids.meets(d.recording_id, d.recording_id)]
    settings = ReadSettings(
        columns=columns,
        time_unit=find_read_time_unit(options, location, columns, conditions),
        conditions=conditions,
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


def find_read_time_unit(
    options: ReadOptions, location: ArchiveLocation, columns: Sequence[str], conditions: Conditions
) -> TimeUnit:
    """Find the unit of timestamps, if anybody will look at them: as told, or what the archive's messages say.

    Raises:
        OSError: the disk or the store refused.
    """
    if options.time_unit is not None:
        return options.time_unit
    if "timestamp" not in columns and "timestamp" not in conditions.columns:
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
            for start, stop in self._without_excepted(descriptor, self._ranges(descriptor, rules, bound)):
                for piece in cut_range(descriptor, start, stop, rules):
                    for begin, end in _split_off_first(piece) if is_first else [piece]:
                        is_first = False
                        yield FramePartition(self.settings, self.location, descriptor, begin, end, rules, bound)

    def _count_wanted_bytes(self, descriptor: RecordingDescriptor, end: int) -> int:
        """Count what of a recording is asked for by its position: a short range is cut into short partitions."""
        positions = self._wanted_positions(self.options.stop_position)
        start, stop = max(descriptor.start_position, positions.low), min(end, positions.high + 1)
        return sum(last - first for first, last in self._without_excepted(descriptor, [(start, stop)]))

    def _find_end(self, descriptor: RecordingDescriptor) -> int:
        if descriptor.stop_position is not None:
            return max(descriptor.start_position, descriptor.stop_position)
        if descriptor.state is RecordingState.DELETED:
            return descriptor.start_position
        # Room for one frame, so that there is a partition that looks at what is there.
        return max(descriptor.start_position + FRAME_ALIGNMENT, LogFile(self.location, descriptor).find_reach())

    def _ranges(self, descriptor: RecordingDescriptor, rules: CutRules, bound: int | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges that may hold wanted rows."""
        positions, end = self._wanted_positions(bound), rules.end_position
        if not positions.meets(descriptor.start_position, end - 1):
            return
        start = self._nominal_start(descriptor, rules, positions.low)
        stop = end if positions.high >= end else min(end, rules.next_place(descriptor, max(positions.high, start)))
        wanted = self._wanted_times()
        if wanted.is_all or descriptor.stream_id != LOG_STREAM_ID:
            yield start, stop
            return
        base = descriptor.segment_base_position(start)
        bases = range(base, stop, descriptor.segment_file_length)
        chosen = choose_segments(
            bases,
            lambda base: read_segment_head(self.location, descriptor, base, self.settings.time_unit),
            wanted,
        )
        for first, last in _join_runs(chosen, descriptor.segment_file_length):
            yield max(start, first), min(stop, last + descriptor.segment_file_length)

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

    def _wanted_positions(self, bound: int | None) -> Interval:
        """The positions of the rows that are asked for, by options and by filters."""
        below_bound = ANY_VALUE if bound is None else Interval(high=bound - 1)
        return below_bound.narrow(self.settings.conditions.interval("position"))

    def _wanted_times(self) -> WantedTimes:
        conditions = self.settings.conditions
        return WantedTimes(conditions.interval("leadership_term_id"), conditions.interval("timestamp"))

    def _nominal_start(self, descriptor: RecordingDescriptor, rules: CutRules, low: int) -> int:
        """Find the last place whose cut is not behind the first wanted position."""
        first = descriptor.start_position
        if low <= first:
            return first
        low = min(low, rules.end_position)
        term_start = max(first, low - low % descriptor.term_buffer_length)
        place = max(first, descriptor.segment_base_position(term_start))
        places = [place]
        while (place := rules.next_place(descriptor, place)) < low:
            places.append(place)
        return next(place for place in reversed(places) if find_cut(self.location, descriptor, place, rules) <= low)


def _join_runs(base_positions: Sequence[int], segment_length: int) -> Iterator[tuple[int, int]]:
    """Join segments that follow each other: the first and the last one of each run."""
    runs: list[tuple[int, int]] = []
    for base in base_positions:
        if runs and base == runs[-1][1] + segment_length:
            runs[-1] = (runs[-1][0], base)
        else:
            runs.append((base, base))
    return iter(runs)


def _split_off_first(piece: tuple[int, int]) -> list[tuple[int, int]]:
    start, stop = piece
    place = start - start % FIRST_PARTITION_BYTES + FIRST_PARTITION_BYTES
    return [piece] if place >= stop else [(start, place), (place, stop)]


def _starting_from(position: int | None) -> Conditions:
    return NO_CONDITIONS if position is None else Conditions((Condition("position", "greater_equal", (position,)),))


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
