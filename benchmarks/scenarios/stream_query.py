"""A streaming query in a process of its own, to be measured or killed.

Run it with `python -m trimaran.benchmarks.scenarios.stream_query PARAMETERS`.
PARAMETERS is the JSON of `StreamQueryParameters`. It follows a cluster's log into Parquet files, one for each batch.
A file is named by the positions of its first and last row, and gets that name when it is whole: a batch done again
after a crash writes the same file. It says in lines of JSON what it does:

    {"event": "started"}
    {"event": "batch", "batch_id": 3, "rows": 812, "end_position": 91232, "sunk_ns": ..., "file": ...}
    {"event": "progress", "batch_id": 3, "durations_ms": {...}}   once a second: what of the last batch took how long
    {"event": "ended"}   with the trigger availableNow, when all is done

`sunk_ns` is the time of day in nanoseconds at which the file had its name; `end_position` is where its last row ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..load.lines import ProcessParameters, emit

PROGRESS_INTERVAL_S: Final = 1


@dataclass(slots=True, frozen=True, kw_only=True)
class StreamQueryParameters(ProcessParameters):
    """What the query reads, and where it puts it."""

    path: str
    """Members' directories, separated by commas."""
    sink: str
    """The directory of the Parquet files; there must be one."""
    checkpoint: str
    columns: list[str]
    """`position` and `frame_length` must be among them."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""
    is_drain: bool = False
    """End when everything is read that is committed at the start; otherwise go on until killed."""


def run(parameters: StreamQueryParameters) -> None:
    """Run the query to its end, if it has one."""
    from ...archive.spark import create_session, register

    spark = create_session("stream-query", master="local[2]", config={"spark.driver.memory": "1g", **parameters.config})
    register(spark)
    reader = spark.readStream.format("aeron_archive").options(**parameters.options)
    stream = reader.option("columns", ",".join(parameters.columns)).load(parameters.path)
    writer = stream.writeStream.option("checkpointLocation", parameters.checkpoint)
    writer = writer.trigger(availableNow=True) if parameters.is_drain else writer.trigger(processingTime="0 seconds")

    def sink(batch: Any, batch_id: int) -> None:  # a DataFrame
        write_batch(batch.toArrow(), batch_id, Path(parameters.sink))

    query = writer.foreachBatch(sink).start()
    emit("started")
    while not query.awaitTermination(PROGRESS_INTERVAL_S):
        if query.lastProgress is not None:
            emit("progress", batch_id=query.lastProgress["batchId"], durations_ms=query.lastProgress["durationMs"])
    emit("ended")
    spark.stop()


def write_batch(table: Any, batch_id: int, sink: Path) -> None:
    """Write a batch, a `pyarrow.Table` in the order of positions, to the file that it has for good."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    if not table.num_rows:
        return
    ends = pc.min_max(table.column("position")).as_py()
    end_position = ends["max"] + (table.column("frame_length")[-1].as_py() + 31 & -32)
    name = f"{ends['min']:019d}-{ends['max']:019d}.parquet"
    parquet.write_table(table, sink / f".{name}")
    os.replace(sink / f".{name}", sink / name)
    sunk_ns = time.time_ns()
    emit("batch", batch_id=batch_id, rows=table.num_rows, end_position=end_position, sunk_ns=sunk_ns, file=name)


if __name__ == "__main__":
    run(StreamQueryParameters.from_json(sys.argv[1]))
