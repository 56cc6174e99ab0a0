"""Spark: how fast a log is read through the data source, beside the same rows from Parquet, in the same session.

The log is 1 GiB of five million frames in the page cache; the Parquet is what `trimaran archive export` makes of it
(zstd). Every query goes to the noop sink, which takes all rows and keeps none. In each round every query takes its turn
on both, so that whatever else the machine does meets both; the median round counts. The first round, in which Spark
compiles and workers start, is told apart as "cold". Seconds are by the clock; the processor time of the JVM and of all
workers is told, too, which other work on the machine changes less.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ...archive.disk.file_system import OsFileSystem
from ...archive.errors import CorruptionError
from ...archive.log.member_directory import locate_archive
from ...archive.reading.export import MANIFEST_NAME, ExportOptions, export_part, open_export, plan_parts
from ...archive.reading.frame_columns import HEADER_COLUMNS
from ...service_api.errors import ClusterError, ConfigurationError
from ...service_api.types import CorrelationId, MemberId, TermId, TimeUnit
from ...service_api.wire.log.messages import NewLeadershipTermEvent, TimerEvent
from ...service_api.wire.session import (
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE,
    SESSION_MESSAGE_HEADER,
    SessionMessageHeader,
)
from ..logs.recordings import FIRST_TIMESTAMP_MS, SESSION_COUNT, TERM_LENGTH_BYTES, MessageMaker, make_recording
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..statistics.report import ProgressLine, Report, progress_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...archive import RecordingDescriptor

_MIB: Final = 1 << 20
_TIMER_INTERVAL: Final = 100
"""One message of so many is a timer event, for filters to find."""

ORDER: Final = struct.Struct("<qdi4sq")
"""The beginning of each payload: order id, price, quantity, symbol, client's time; then text."""
ORDER_NAMES: Final = ("order_id", "price", "quantity", "symbol", "sent_at", "text")

_FEW_COLUMNS: Final = ("template_id", "timestamp")
_SESSION_COLUMNS: Final = ("cluster_session_id", "frame_length", "timestamp")
_RANGE_BYTES: Final = 100_000


@dataclass(slots=True, frozen=True, kw_only=True)
class SparkParameters:
    """What is read, and how often.

    Raises:
        ConfigurationError: there is no query of such a name.
    """

    mib: Annotated[int, typer.Option(min=16, help="Length of the log, in MiB: whole terms of 16.")] = 1024
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds that count, after one that does not; each asks every query in every way.")
    ] = 5
    only: Annotated[tuple[str, ...], typer.Option(help="Queries. Default: all.")] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.only if name not in QUERIES]
        if unknown:
            raise ConfigurationError(f"only={unknown[0]!r} expected some of {', '.join(QUERIES)}")


@dataclass(slots=True)
class Places:
    """Where the log is, and what was made of it."""

    log: Path
    parquet: Path
    """The export, a file for each segment."""
    most: Path
    """The same without the last file: what an export of a log that grows has."""
    length_bytes: int
    frame_count: int = 0


class Inputs:
    """The same rows in two ways: from the log, and from Parquet."""

    def __init__(self, spark: SparkSession, places: Places) -> None:
        self.spark = spark
        self.places = places

    def raw(self, *columns: str, **options: str) -> DataFrame:
        """The log through the data source, with these columns or all."""
        reader = self.spark.read.format("aeron_archive").options(**options)
        return (reader.option("columns", ",".join(columns)) if columns else reader).load(str(self.places.log))

    def parquet(self, *columns: str) -> DataFrame:
        """The Parquet files."""
        found = self.spark.read.parquet(str(self.places.parquet))
        return found.select(*columns) if columns else found

    def hybrid(self, *columns: str) -> DataFrame:
        """Parquet of all segments but the last, and that raw."""
        from ...archive.spark import read_log

        options = {"columns": ",".join(columns)} if columns else {}
        return read_log(self.spark, self.places.log, parquet=self.places.most, **options)


Query = Callable[[Inputs], dict[str, "DataFrame"]]
"""Gives the same rows in several ways, by name; "parquet" is what the others are held against."""


def _all_columns(inputs: Inputs) -> dict[str, DataFrame]:
    return {
        "log": inputs.raw(),
        "log without checksums": inputs.raw(checksums="off"),
        "hybrid": inputs.hybrid(),
        "parquet": inputs.parquet(),
    }


def _columns(*names: str) -> Query:
    return lambda inputs: {
        "log": inputs.raw(*names),
        "log without checksums": inputs.raw(*names, checksums="off"),
        "hybrid": inputs.hybrid(*names),
        "parquet": inputs.parquet(*names),
    }


def _timers(inputs: Inputs) -> dict[str, DataFrame]:
    condition = f"template_id = {TimerEvent.TEMPLATE_ID}"
    ways = {"log": inputs.raw(), "hybrid": inputs.hybrid(), "parquet": inputs.parquet()}
    return {name: df.where(condition) for name, df in ways.items()}


def _position_range(inputs: Inputs) -> dict[str, DataFrame]:
    start = inputs.places.length_bytes // 2
    condition = f"position >= {start} AND position < {start + _RANGE_BYTES}"
    return {name: df.where(condition) for name, df in {"log": inputs.raw(), "parquet": inputs.parquet()}.items()}


def _by_session(inputs: Inputs) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F  # noqa: N812

    def aggregate(df: DataFrame) -> DataFrame:
        return df.groupBy("cluster_session_id").agg(F.count("*"), F.sum("frame_length"), F.max("timestamp"))

    columns = _SESSION_COLUMNS
    ways = {"log": inputs.raw(*columns), "hybrid": inputs.hybrid(*columns), "parquet": inputs.parquet(*columns)}
    return {name: aggregate(df) for name, df in ways.items()}


def _count(inputs: Inputs) -> dict[str, DataFrame]:
    ways = {"log": inputs.raw("position"), "hybrid": inputs.hybrid("position"), "parquet": inputs.parquet()}
    return {name: df.groupBy().count() for name, df in ways.items()}


def _typed(inputs: Inputs) -> dict[str, DataFrame]:
    from ...archive.spark import log_messages

    columns = ("recording_id", "position", "template_id", "payload")
    ways = {"log": inputs.raw(*columns), "parquet": inputs.parquet(*columns)}
    return {name: log_messages(df, SessionMessageHeader) for name, df in ways.items()}


def _payloads(decoder: Any, **options: Any) -> Query:  # what decode_payload takes
    def query(inputs: Inputs) -> dict[str, DataFrame]:
        from ...archive.spark import decode_payload

        columns = ("position", "template_id", "cluster_session_id", "payload")
        ways = {"log": inputs.raw(*columns), "parquet": inputs.parquet(*columns)}
        return {name: decode_payload(df, decoder, **options).drop("request_sequence") for name, df in ways.items()}

    return query


QUERIES: Final[dict[str, Query]] = {
    "all columns": _all_columns,
    "header columns": _columns(*HEADER_COLUMNS),
    "two columns": _columns(*_FEW_COLUMNS),
    "position range": _position_range,
    "template filter": _timers,
    "count": _count,
    "by session": _by_session,
    "typed messages": _typed,
    "struct payloads": _payloads(ORDER, names=ORDER_NAMES),
    "raw payloads": _payloads(bytes),
}


def run(
    parameters: SparkParameters, *, directory: Path | None, keep: bool, session: SparkSession | None = None
) -> Report:
    """Make the log and its Parquet, ask each query of both in rounds. `session`: one that runs already."""
    import pyspark  # noqa: F401  # here: that it is missing shows before a log is made

    with data_directory(directory, "spark", keep=keep) as path, progress_line(parameters.rounds + 3) as progress:
        places = _make_places(path, parameters.mib * _MIB, progress)
        begin_s = time.perf_counter()
        spark = session or _start_session(progress)
        start_s = time.perf_counter() - begin_s
        try:
            inputs = Inputs(spark, places)
            places.frame_count = inputs.parquet().count()
            opened = _count_opened_segments(inputs)
            names = parameters.only or tuple(QUERIES)
            queries = {name: QUERIES[name](inputs) for name in names}
            seconds = _measure(queries, parameters.rounds, progress)
        finally:
            if session is None:
                spark.stop()
        return {
            "scenario": "spark",
            "log": {
                "MiB": parameters.mib,
                "frames": places.frame_count,
                "bytes a frame": round(places.length_bytes / places.frame_count, 1),
                "MiB of Parquet": round(sum(f.stat().st_size for f in places.parquet.iterdir()) / _MIB, 1),
                "segments": len(list(places.log.glob("*.rec"))),
                "segments opened for a position range": opened,
            },
            **{name: _figures(name, ways, places) for name, ways in seconds.items()},
            "session start": {"seconds": round(start_s, 1)},
            "parameters": {"mib": parameters.mib, "rounds": parameters.rounds},
            "environment": {
                **describe(path),
                "master": spark.conf.get("spark.master"),
                **{name: version(name) for name in ("pyspark", "pyarrow", "numpy")},
                "page_cache": "warm",
            },
        }


def _start_session(progress: ProgressLine) -> SparkSession:
    from ...archive.spark import create_session

    progress.describe("starting Spark")
    return create_session("trimaran-benchmark", master="local[2]")


def orders(pick: random.Random) -> MessageMaker:
    """Make the messages of a log: one new term, timers now and then, session messages with an order and some text."""
    text = bytes(pick.choices(b"acgt", k=TERM_LENGTH_BYTES))
    place = 0

    def make(number: int, length: int) -> bytes:
        nonlocal place
        timestamp = FIRST_TIMESTAMP_MS + number // 100
        if number == 0:
            return NewLeadershipTermEvent(
                leadership_term_id=TermId(0),
                log_position=96,
                timestamp=timestamp,
                term_base_log_position=0,
                leader_member_id=MemberId(0),
                log_session_id=1,
                time_unit=TimeUnit.MILLIS,
            ).encode()
        if number % _TIMER_INTERVAL == 0:
            correlation_id = CorrelationId(number)
            return TimerEvent(leadership_term_id=TermId(0), correlation_id=correlation_id, timestamp=timestamp).encode()
        header = SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, 0, 1 + pick.randrange(SESSION_COUNT), timestamp)
        order = ORDER.pack(number, pick.randrange(10_000) / 100, pick.randrange(1000), b"ABCD", timestamp)
        place += (body := length - SESSION_HEADER_LENGTH - ORDER.size)
        return header + order + text[place - body : place]

    return make


def _order_length(pick: random.Random) -> int:
    """Payloads of 64 to 256 bytes behind the frame's header: 207 bytes a frame, with its padding."""
    return pick.randrange(96, 289)


def _make_places(path: Path, length_bytes: int, progress: ProgressLine) -> Places:
    places = Places(path / "log", path / "parquet", path / "most", length_bytes)
    places.log.mkdir()
    progress.describe("making the log")
    descriptor = make_recording(places.log, length_bytes, _order_length, messages=orders)
    progress.update(1)
    progress.describe("exporting it to Parquet")
    _export(places.log, descriptor, places.parquet)
    places.most.mkdir()
    files = sorted(places.parquet.glob("*.parquet"), key=lambda file: int(file.stem.split("-")[1].split(".")[0]))
    for file in (places.parquet / MANIFEST_NAME, *files[:-1]):
        os.link(file, places.most / file.name)
    progress.update(2)
    return places


def _export(directory: Path, descriptor: RecordingDescriptor, target: Path) -> None:
    options = ExportOptions()
    open_export(target, options, [descriptor], overwrite=False)
    location = locate_archive(directory)
    for part in plan_parts(location, descriptor):
        problem = export_part(location, part, target, options).problem
        if problem is not None:
            raise CorruptionError(problem.reason, recording_id=problem.recording_id, position=problem.position)


class Duration(NamedTuple):
    """How long a query took."""

    clock_s: float
    processor_s: float
    """Of this process and all below it: the JVM, and the workers below that."""


def _measure(
    queries: dict[str, dict[str, DataFrame]], rounds: int, progress: ProgressLine
) -> dict[str, dict[str, list[Duration]]]:
    """Ask every query in every way, round by round; the cold round comes first."""
    found: dict[str, dict[str, list[Duration]]] = {name: {way: [] for way in ways} for name, ways in queries.items()}
    for number in range(rounds + 1):
        for name, ways in queries.items():
            progress.describe(f"round {number} of {rounds}: {name}")
            for way, df in ways.items():
                begin_s, begin_processor_s = time.perf_counter(), _processor_s(os.getpid())
                df.write.format("noop").mode("overwrite").save()
                duration_s = time.perf_counter() - begin_s
                found[name][way].append(Duration(duration_s, _processor_s(os.getpid()) - begin_processor_s))
        progress.update(3 + number)
    return found


def _processor_s(process_id: int) -> float:
    """Add up the processor time of a process, of what it has waited for, and of all below it."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        children = Path("/proc").glob(f"{process_id}/task/*/children")
        below = [int(child) for path in children for child in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has just ended, and its time is its parent's
    own_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(_processor_s, below))


def _figures(name: str, ways: dict[str, list[Duration]], places: Places) -> dict[str, float]:
    figures: dict[str, float] = {}
    for way, durations in ways.items():
        cold, *warm = durations
        figures[f"{way}, s"] = round(median(one.clock_s for one in warm), 3)
        figures[f"{way}, processor s"] = round(median(one.processor_s for one in warm), 2)
        figures[f"{way}, cold, s"] = round(cold.clock_s, 2)
    if name == "all columns":
        figures["log, MiB/s"] = round(places.length_bytes / _MIB / figures["log, s"], 1)
        figures["log, million rows/s"] = round(places.frame_count / figures["log, s"] / 1e6, 2)
    for way in ways:
        if way != "parquet":
            pairs = list(zip(ways[way][1:], ways["parquet"][1:], strict=True))
            figures[f"{way}, times of parquet"] = round(median(own.clock_s / known.clock_s for own, known in pairs), 2)
    return figures


def _count_opened_segments(inputs: Inputs) -> int:
    """Read a position range as a worker of Spark does, and count the segments opened.

    Raises:
        ClusterError: others than those of the range were opened.
    """
    from ...archive.spark.source.columns import frame_struct
    from ...archive.spark.source.data_source import AeronArchiveDataSource, AeronArchiveReader

    start = inputs.places.length_bytes // 2
    where = f"position >= {start} AND position < {start + _RANGE_BYTES}"
    reader = AeronArchiveDataSource({"path": str(inputs.places.log), "where": where}).reader(frame_struct())
    assert isinstance(reader, AeronArchiveReader)
    with _opened_segments() as names:
        rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
    wanted = {f"0-{start - start % _segment_length(inputs.places)}.rec"}
    # The first segment says which unit timestamps have.
    if not rows or not names <= wanted | {"0-0.rec"}:
        raise ClusterError(f"position range: opened={sorted(names)} expected={sorted(wanted)} rows={rows}")
    return len(names & wanted)


def _segment_length(places: Places) -> int:
    return next(places.log.glob("*.rec")).stat().st_size


@contextmanager
def _opened_segments() -> Iterator[set[str]]:
    """Note the names of the segments that anything in this process opens."""
    names: set[str] = set()
    original = OsFileSystem.open_file

    def noting(self: OsFileSystem, path: Path, *, create: bool = False, writable: bool = True) -> int:
        if path.suffix == ".rec":
            names.add(path.name)
        return original(self, path, create=create, writable=writable)

    OsFileSystem.open_file = noting  # type: ignore[method-assign]
    try:
        yield names
    finally:
        OsFileSystem.open_file = original  # type: ignore[method-assign]
