"""Replay a member's log on Spark: a DataFrame of states, outputs, differences or verdicts. Needs `trimaran[spark]`.

    from examples.replays_on_spark import states_at
    states_at(spark, "past/node-0", "bank:Bank", [576, 1056]).show()

docs/time-travel.md shows each function, and notebooks 03 and 05 use them.

A log is sequential for one service, but every snapshot begins a stretch of its own: the task of a stretch loads the
snapshot and replays to the next one. So a log with n snapshots is replayed by n tasks at once, and what they give is
what one replay gives if the service is deterministic, which `snapshot_verdicts` proves with the same tasks.

The tasks are planned here and are few; what they need goes with them. Executors must reach the member's directory by
its path, and import this module and the service: by name, or as a class, which Spark's own pickling ships where it is
the notebook's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import trimaran.archive.spark  # noqa: F401  # says what is missing, before anything of it is imported

# isort: split
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from trimaran.archive.spark.source.timestamps import to_microseconds
from trimaran.cluster.time_travel.determinism import find_stretches, verify_job
from trimaran.cluster.time_travel.difference import OutputDifference
from trimaran.cluster.time_travel.member_log import Bound, MemberLog, SnapshotSet
from trimaran.cluster.time_travel.outputs import Output, OutputKind
from trimaran.cluster.time_travel.rendering import describe_state
from trimaran.cluster.time_travel.replay import ReplayedService, SnapshotChoice, choose_snapshot, find_target
from trimaran.cluster.time_travel.services import ServiceLike, make_services
from trimaran.cluster.time_travel.what_if import differences, make_comparison
from trimaran.service_api import ClusteredService, ConfigurationError
from trimaran.service_api.types import TimeUnit

OUTPUT_SCHEMA: Final = (
    "position long, ordinal int, timestamp timestamp, kind string, cluster_session_id long, correlation_id long, "
    "code long, deadline timestamp, payload binary"
)
"""Of `replay_outputs`: the fields of `Output`, and its place among those of its entry."""

DIFFERENCE_SCHEMA: Final = (
    "position long, timestamp timestamp, kind string, change string, cluster_session_id long, correlation_id long, "
    "old_code long, new_code long, old_deadline timestamp, new_deadline timestamp, old_payload binary, "
    "new_payload binary, replayed_from long"
)
"""Of `what_if_frame`: one row for each difference; values are NULL on the side that did not make the output."""

VERDICT_SCHEMA: Final = "from_position long, to_position long, message_count long, length_bytes long, problem string"
"""Of `snapshot_verdicts`: the fields of `SnapshotVerdict`."""

_BATCH_ROWS: Final = 8192
_STEP_BYTES: Final = 256 << 10
_UNITS: Final = {TimeUnit.MILLIS: "ms", TimeUnit.MICROS: "us", TimeUnit.NANOS: "ns"}

Services = ServiceLike | Sequence[ServiceLike]
Extract = Callable[[ClusteredService], object]


@dataclass(slots=True, frozen=True, kw_only=True)
class _Task:
    """What one task replays: whole, so that it can be sent to where it runs."""

    directory: str
    service: Services
    service_id: int
    service_count: int
    service_dir: str
    start: int | None
    """The position of the snapshot that it begins with; None is the log's begin."""
    target: int
    positions: tuple[int, ...] = ()
    """Where the state is wanted, ascending."""

    def open(self) -> MemberLog:
        """Read the directory, where the task runs."""
        return MemberLog.open(self.directory)

    def start_of(self, log: MemberLog) -> SnapshotSet | None:
        """Find the snapshot that it begins with."""
        if self.start is None:
            return None
        return choose_snapshot(log, self.start, service_count=self.service_count, target=self.start)

    def replay(self, log: MemberLog, sink: Callable[[Output], None] | None = None) -> ReplayedService:
        """Begin to deliver the log."""
        services = make_services(
            self.service,
            directory=Path(self.service_dir),
            service_id=self.service_id,
            service_count=self.service_count,
            log=log,
        )
        return ReplayedService(
            log, services, self.start_of(log), end_position=self.target, sink=sink, step_bytes=_STEP_BYTES
        )


def states_at(
    spark: SparkSession,
    directory: Path | str,
    service: Services,
    positions: Sequence[int],
    *,
    extract: Extract = describe_state,
    schema: str | StructType = "state string",
    service_id: int = 0,
    service_count: int | None = None,
    bound: Bound = "committed",
    service_dir: Path | str = ".",
) -> DataFrame:
    """Return what a service's state was at each of some positions: a row for each, in no order.

    `extract` is given the service and gives the values of `schema`: one value, a tuple in its order, or a mapping by
    its names; without it the state is one text. Before them come position (as asked for), log_position (the end of the
    last entry that was delivered) and cluster_time. One task for each snapshot that a position lies behind. The rest is
    as for `replay_service`.

    Raises:
        ConfigurationError: a position that cannot be replayed to, a service that cannot be loaded, or a schema that has
            one of these names.
        ClusterError: a file is damaged; the error says where.
    """
    plan = _plan(directory, service, service_id, service_count, service_dir)
    log = plan.open()
    end_position = log.end_of(bound)
    by_start: dict[int | None, set[int]] = {}
    for position in positions:
        find_target(log, position=position, time=None, end_position=end_position)
        start = choose_snapshot(log, "newest", service_count=plan.service_count, target=position)
        by_start.setdefault(None if start is None else start.log_position, set()).add(position)
    tasks = [
        replace(plan, start=start, target=max(wanted), positions=tuple(sorted(wanted)))
        for start, wanted in by_start.items()
    ]
    own = _struct(schema) if isinstance(schema, str) else schema
    places = _struct("position long, log_position long, cluster_time timestamp")
    if taken := sorted({*places.names} & {*own.names}):
        raise ConfigurationError(f"schema={schema!r}: these names are taken: {taken}")
    whole = StructType([*places.fields, *own.fields])
    arrow = to_arrow_schema(whole, timezone="UTC")
    names, unit = own.names, _UNITS[log.time_unit]
    return _run(spark, tasks, lambda task: _states(task, extract, names, arrow, unit), whole)


def replay_outputs(
    spark: SparkSession,
    directory: Path | str,
    service: Services,
    *,
    kinds: Sequence[OutputKind | str] | None = None,
    snapshot: SnapshotChoice = "oldest",
    position: int | None = None,
    time: int | datetime | None = None,
    service_id: int = 0,
    service_count: int | None = None,
    bound: Bound = "committed",
    service_dir: Path | str = ".",
) -> DataFrame:
    """Return what a service gave out, of all `kinds` or of some: one row for each `Output`, see `OUTPUT_SCHEMA`.

    Rows are in order within a stretch of the log; sort by position and ordinal. One task for each stretch. Begin and
    end are as for `what_if`, the rest as for `replay_service`.

    Raises:
        ConfigurationError: an unknown kind, or as `replay_service`.
        ClusterError: a file is damaged; the error says where.
    """
    wanted = frozenset(OutputKind) if kinds is None else frozenset(map(_kind_of, kinds))
    plan = _plan(directory, service, service_id, service_count, service_dir)
    log = plan.open()
    target = find_target(log, position=position, time=time, end_position=log.end_of(bound))
    unit = _UNITS[log.time_unit]
    return _run(
        spark,
        _stretches(plan, log, snapshot, target),
        lambda task: _outputs(task, wanted, unit),
        _struct(OUTPUT_SCHEMA),
    )


def scheduled_timers(spark: SparkSession, directory: Path | str, service: Services, **arguments: Any) -> DataFrame:
    """Return the timers that a service set and cancelled: what `timers` takes beside the log.

    The columns are kind, correlation_id, position, ordinal and deadline; `arguments` are those of `replay_outputs`.
    """
    kinds = (OutputKind.TIMER_SCHEDULED, OutputKind.TIMER_CANCELLED)
    outputs = replay_outputs(spark, directory, service, kinds=kinds, **arguments)
    return outputs.select("kind", "correlation_id", "position", "ordinal", "deadline")


def what_if_frame(
    spark: SparkSession,
    directory: Path | str,
    *,
    old: Services | None,
    new: Services,
    is_resumed: bool = True,
    snapshot: SnapshotChoice = "oldest",
    position: int | None = None,
    time: int | datetime | None = None,
    service_id: int = 0,
    service_count: int | None = None,
    bound: Bound = "committed",
    service_dir: Path | str = ".",
) -> DataFrame:
    """Return in what other code differs from the old, or from the log alone: `what_if`, one row for each difference.

    `is_resumed` begins at every snapshot again with what the old code wrote there: the stretches run at once, and a
    difference does not go on behind the next snapshot. Without it one task goes through all of the log. The columns
    are those of `DIFFERENCE_SCHEMA`; states are not compared.

    Raises:
        ConfigurationError: as `what_if`.
        ClusterError: a file is damaged; the error says where.
    """
    plan = _plan(directory, new, service_id, service_count, service_dir)
    log = plan.open()
    target = find_target(log, position=position, time=time, end_position=log.end_of(bound))
    tasks = _stretches(plan, log, snapshot, target)
    if not is_resumed:
        tasks = [replace(tasks[0], target=target)]
    comparison: dict[str, Any] = {
        "old": old,
        "new": new,
        "service_id": service_id,
        "service_count": plan.service_count,
    }
    make_comparison(log, snapshot=snapshot, target=target, service_dir=Path(service_dir), **comparison)
    unit = _UNITS[log.time_unit]
    return _run(spark, tasks, lambda task: _differences(task, comparison, unit), _struct(DIFFERENCE_SCHEMA))


def snapshot_verdicts(
    spark: SparkSession,
    directory: Path | str,
    service: Services,
    *,
    service_id: int = 0,
    service_count: int | None = None,
    service_dir: Path | str = ".",
) -> DataFrame:
    """Return what `verify_snapshots` finds, one row and one task for each stretch between two snapshots.

    Raises:
        ConfigurationError: no member's directory, or a service that cannot be loaded.
        ClusterError: the recording log or the catalog is damaged.
    """
    plan = _plan(directory, service, service_id, service_count, service_dir)
    count = len(find_stretches(plan.open(), plan.service_count))
    jobs = [
        (plan.directory, service, service_id, plan.service_count, plan.service_dir, index) for index in range(count)
    ]
    schema = _struct(VERDICT_SCHEMA)
    arrow = to_arrow_schema(schema)
    return _run(
        spark, jobs, lambda job: iter([pa.RecordBatch.from_pylist([verify_job(job)._asdict()], schema=arrow)]), schema
    )


# --- planning, where the query is made


def _plan(
    directory: Path | str, service: Services, service_id: int, service_count: int | None, service_dir: Path | str
) -> _Task:
    """Check that the services can be made, and count them."""
    log = MemberLog.open(directory)
    services = make_services(
        service, directory=Path(service_dir), service_id=service_id, service_count=service_count, log=log
    )
    return _Task(
        directory=str(directory)
        if "," in str(directory) or "://" in str(directory)
        else str(Path(directory).absolute()),
        service=service,
        service_id=service_id,
        service_count=len(services),
        service_dir=str(service_dir),
        start=None,
        target=0,
    )


def _stretches(plan: _Task, log: MemberLog, snapshot: SnapshotChoice, target: int) -> list[_Task]:
    """One task for each stretch between snapshots, from where a replay would begin to its end."""
    first = choose_snapshot(log, snapshot, service_count=plan.service_count, target=target)
    begin = log.log.start_position if first is None else first.log_position
    between = [each.log_position for each in log.snapshots(plan.service_count) if begin < each.log_position < target]
    starts = [None if first is None else first.log_position, *between]
    return [replace(plan, start=start, target=end) for start, end in zip(starts, [*between, target], strict=True)]


def _struct(ddl: str) -> StructType:
    """Read a schema as Spark writes it.

    Raises:
        ConfigurationError: it is no list of columns.
    """
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise ConfigurationError(f"schema={ddl!r} expected columns as in 'balance long, name string'")
    return found


def _kind_of(kind: OutputKind | str) -> OutputKind:
    try:
        return OutputKind(kind)
    except ValueError:
        raise ConfigurationError(f"kind={kind!r} expected one of {[*map(str, OutputKind)]}") from None


def _run(
    spark: SparkSession, tasks: Sequence[Any], run: Callable[[Any], Iterator[Any]], schema: StructType
) -> DataFrame:  # Any: a task, and Arrow's batches, which have no types
    """Make a DataFrame of what each task yields, one task a partition."""
    if not tasks:
        return spark.createDataFrame([], schema)
    sent = [*tasks]

    def run_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from run(sent[index])

    return spark.range(0, len(sent), 1, len(sent)).mapInArrow(run_batches, schema)


# --- what a task does, where it runs


def _states(task: _Task, extract: Extract, names: Sequence[str], schema: Any, unit: str) -> Iterator[Any]:
    replayed = task.replay(task.open())
    for position in task.positions:
        replayed.advance(position)
        found = extract(replayed.service)
        if isinstance(found, Mapping):
            values = [found.get(name) for name in names]
        else:
            values = [*found] if isinstance(found, tuple) else [found]
        if len(values) != len(names):
            raise ConfigurationError(f"extract gave values={len(values)} expected={len(names)}: {names}")
        columns = [
            pa.array([position], pa.int64()),
            pa.array([replayed.log_position], pa.int64()),
            _times([replayed.cluster_time], unit),
            *(pa.array([value], field.type) for value, field in zip(values, [*schema][3:], strict=True)),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["position", "log_position", "cluster_time", *names])


def _outputs(task: _Task, kinds: frozenset[OutputKind], unit: str) -> Iterator[Any]:
    outputs: list[Output] = []
    ordinals = _Ordinals()
    replayed = task.replay(task.open(), outputs.append)
    is_left = True
    while is_left:
        is_left = replayed.step(task.target)
        if len(outputs) >= _BATCH_ROWS or not is_left:
            rows = [(output, ordinal) for output, ordinal in ordinals.of(outputs) if output.kind in kinds]
            if rows:
                yield _output_batch([row[0] for row in rows], [row[1] for row in rows], unit)
            outputs.clear()


class _Ordinals:
    """Counts the outputs of each entry from 0, also across batches."""

    def __init__(self) -> None:
        self._position = -1
        self._next = 0

    def of(self, outputs: Sequence[Output]) -> Iterator[tuple[Output, int]]:
        """Give each output with its number."""
        for output in outputs:
            if output.position != self._position:
                self._position, self._next = output.position, 0
            yield output, self._next
            self._next += 1


def _output_batch(outputs: Sequence[Output], ordinals: Sequence[int], unit: str) -> Any:
    position, timestamp, kind, session, correlation, code, deadline, payload = zip(*outputs, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "position": pa.array(position, pa.int64()),
            "ordinal": pa.array(ordinals, pa.int32()),
            "timestamp": _times(timestamp, unit),
            "kind": pa.array([str(each) for each in kind], pa.string()),
            "cluster_session_id": pa.array(session, pa.int64()),
            "correlation_id": pa.array(correlation, pa.int64()),
            "code": pa.array(code, pa.int64()),
            "deadline": _times(deadline, unit),
            "payload": pa.array(payload, pa.binary()),
        }
    )


def _differences(task: _Task, comparison: Mapping[str, Any], unit: str) -> Iterator[Any]:
    log = task.open()
    made = make_comparison(
        log,
        snapshot="none" if task.start is None else task.start,
        target=task.target,
        service_dir=Path(task.service_dir),
        **comparison,
    )
    begin = log.log.start_position if task.start is None else task.start
    for found in differences(made):
        for index in range(0, len(found), _BATCH_ROWS):
            yield _difference_batch(found[index : index + _BATCH_ROWS], begin, unit)


def _difference_batch(found: Sequence[OutputDifference], replayed_from: int, unit: str) -> Any:
    outputs = [difference.output for difference in found]

    def of(side: str, name: str) -> list[Any]:  # Any: a field of an Output
        made = [getattr(difference, side) for difference in found]
        return [None if output is None else getattr(output, name) for output in made]

    columns = {
        "position": pa.array([output.position for output in outputs], pa.int64()),
        "timestamp": _times([output.timestamp for output in outputs], unit),
        "kind": pa.array([str(output.kind) for output in outputs], pa.string()),
        "change": pa.array([str(difference.change) for difference in found], pa.string()),
        "cluster_session_id": pa.array([output.cluster_session_id for output in outputs], pa.int64()),
        "correlation_id": pa.array([output.correlation_id for output in outputs], pa.int64()),
    }
    for name, make in (("code", _numbers), ("deadline", lambda values: _times(values, unit)), ("payload", _binary)):
        for side in ("old", "new"):
            columns[f"{side}_{name}"] = make(of(side, name))
    columns["replayed_from"] = pa.array([replayed_from] * len(found), pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _numbers(values: Sequence[int | None]) -> Any:
    return pa.array(values, pa.int64())


def _binary(values: Sequence[bytes | None]) -> Any:
    return pa.array(values, pa.binary())


def _times(values: Sequence[int | None], unit: str) -> Any:
    """Cluster times as Spark has them: in microseconds, NULL where that cannot be."""
    return to_microseconds(pa.array(values, pa.int64()).view(pa.timestamp(unit, tz="UTC")))
