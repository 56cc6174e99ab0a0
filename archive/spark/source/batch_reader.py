"""Reading a partition: its frames, checked, filtered and shaped into Arrow record batches. No Python object per frame.

Reading goes on after damage, where the next valid frame begins, as `trimaran archive verify --fault-tolerant` does;
each place is told to `on_problem`, which may raise. `files.log_end` says what is damage.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from ...files.reader import StopReason
from ...files.vector.scan import MIN_BLOCK_LENGTH_BYTES, FrameBlock, FrameScanner
from ...reading.frame_batches import DEFAULT_BATCH_LENGTH_BYTES, ReadProblem
from ...reading.vector.columns import BatchMaker, frame_schema
from ...reading.vector.messages import MessageBlockJoiner
from .intervals import Interval
from .partitions import FramePartition, ReadSettings
from .timestamps import MICROSECONDS, to_microseconds

OnProblem = Callable[[ReadProblem], None]

_ANY_POSITION: Final = Interval()


def read_partition(partition: FramePartition, schema: Any, on_problem: OnProblem) -> Iterator[Any]:
    """Yield the record batches of a partition with the columns of a `pyarrow.Schema`.

    Raises:
        OSError: the disk or the store refused.
    """
    if _is_task():
        _spare_modules()
    shaper = BatchShaper(partition.settings, partition.descriptor.recording_id, schema, partition.wanted)
    start, stop = partition.resolve()
    yield from _read_blocks(partition, start, stop, shaper, on_problem)


def find_problems(partition: FramePartition, on_problem: OnProblem) -> None:
    """Read a partition for nothing but its problems. A torn write at the end of a recording is one, too: a row is lost.

    Raises:
        OSError: the disk or the store refused.
    """
    start, stop = partition.resolve()
    for _ in _read_blocks(partition, start, stop, None, on_problem):
        pass


def _tell_torn_write(partition: FramePartition, scanner: FrameScanner, on_problem: OnProblem) -> None:
    end = scanner.ending()
    if end.torn_write is not None:
        on_problem(ReadProblem(partition.descriptor.recording_id, end.position, end.torn_write))


def _is_task() -> bool:
    """Whether this is a worker of Spark; the report reads partitions without it."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.TaskContext.get() is not None


@functools.cache
def _spare_modules() -> None:
    """Leave what a worker has now, which is modules, out of garbage collections, once for all its tasks.

    Spark collects all garbage of a worker after each task. That looked at 53,000 objects of modules for 15 ms, 6 % of
    the time of a query for the header's columns.
    """
    gc.collect()
    gc.freeze()


class BatchShaper:
    """Makes record batches of blocks of one recording: the rows that are wanted, with the columns of a schema.

    `schema` has columns of a frame with timestamps in microseconds; `wanted` are the positions of the rows.
    """

    def __init__(
        self, settings: ReadSettings, recording_id: int, schema: Any, wanted: Interval = _ANY_POSITION
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._wanted = wanted
        self._maker = _Maker(tuple(schema.names), settings, recording_id)
        columns = settings.row_filter.columns
        self._filter_maker = _Maker(columns, settings, recording_id) if columns else None

    def shape(self, block: FrameBlock) -> Any:
        """Make the batch of a block; None if no row of it is wanted."""
        wanted: FrameBlock | None = block if self._settings.padding else block.without_padding()
        if wanted is not None and not self._are_all_wanted(wanted):
            positions = wanted.positions
            wanted = wanted.choose((positions >= self._wanted.low) & (positions <= self._wanted.high))
        if wanted is not None and self._filter_maker is not None:
            wanted = wanted.choose(self._settings.row_filter.find_rows(self._filter_maker.make(wanted)))
        if wanted is None:
            return None
        return pa.RecordBatch.from_arrays(self._maker.make(wanted).columns, schema=self._schema)

    def _are_all_wanted(self, block: FrameBlock) -> bool:
        return self._wanted.low <= block.first_position and block.last_position <= self._wanted.high


class _Maker:
    """Makes batches of some columns with timestamps in microseconds."""

    def __init__(self, columns: tuple[str, ...], settings: ReadSettings, recording_id: int) -> None:
        schema = frame_schema(columns, time_unit=settings.time_unit)
        self._maker = BatchMaker(schema, recording_id)
        index = schema.get_field_index("timestamp")
        self._timestamp_index = None if index < 0 else index

    def make(self, block: FrameBlock) -> Any:
        batch = self._maker.make(block)
        index = self._timestamp_index
        if index is None:
            return batch
        return batch.set_column(index, pa.field("timestamp", MICROSECONDS), to_microseconds(batch.column(index)))


def _read_blocks(
    partition: FramePartition, start: int, stop: int, shaper: BatchShaper | None, on_problem: OnProblem
) -> Iterator[Any]:
    """Yield the batches of [start, stop), and of nothing without a shaper; goes on behind damage."""
    is_open, last_position = partition.is_open, partition.wanted.high
    wanted_end = min(stop, last_position + partition.descriptor.mtu_length)
    block_length_bytes = max(MIN_BLOCK_LENGTH_BYTES, min(DEFAULT_BATCH_LENGTH_BYTES, wanted_end - start))
    position: int | None = start
    while position is not None and (is_open or position < stop):
        scanner = FrameScanner(
            partition.location.directory,
            partition.descriptor,
            start_position=position,
            stop_position=None if is_open else stop,
            bound_position=partition.bound_position,
            checksummed=partition.settings.checksums,
            block_length_bytes=block_length_bytes,
            file_system=partition.location.file_system,
        )
        blocks: Iterator[FrameBlock] = iter(MessageBlockJoiner(scanner) if partition.settings.messages else scanner)
        for block in blocks:
            if block.first_position > last_position:
                return
            batch = None if shaper is None else shaper.shape(block)
            if batch is not None:
                yield batch
        position = _go_on(partition, scanner, on_problem)
        if shaper is None and position is None:
            _tell_torn_write(partition, scanner, on_problem)


def _go_on(partition: FramePartition, scanner: FrameScanner, on_problem: OnProblem) -> int | None:
    """Tell of the damage that ended a scan, if any, and find where to go on; None if nowhere."""
    descriptor, end = partition.descriptor, scanner.ending()
    if end.damage is None:
        return None
    # Of a missing segment only the partition tells that holds its beginning, not all that lie in it.
    is_inside_gap = scanner.stop_reason is StopReason.NO_SEGMENT and end.position > max(
        descriptor.start_position, descriptor.segment_base_position(end.position)
    )
    if not is_inside_gap:
        on_problem(ReadProblem(descriptor.recording_id, end.position, end.damage))
    return end.resumes_at
