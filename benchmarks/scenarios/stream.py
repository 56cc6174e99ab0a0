"""Stream: how long after the leader took a message it is in the sink of a Spark query that follows the log.

A cluster of real members, a client that offers messages at a fixed rate, and a query in a process of its own
(`stream_query`) that asks the members what is committed and writes each batch to a Parquet file. All share
one machine and its clock. The time of a message is its timestamp in the log, which the leader gives it when it appends
it: from there to the commit it takes about as long as an echo does, which is measured in the same run, and to the sink
what is reported. Resolution: the cluster's, a millisecond, cut off; so figures are up to one too high.

Every rate is a run of its own: a cluster, a query that has become warm, then the messages that count.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterTimeoutError, first_leaf
from ..load.client_process import ClientParameters
from ..load.coordination import run_clients
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..options import Members, Payload, TimeLimit
from ..rig.member_log import RigMemberLog
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessGroup
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, progress_line
from .stream_query import StreamQueryParameters

COLUMNS: Final = ("position", "frame_length", "timestamp")
CLUSTER_DEFAULTS: Final = ("file_sync_level", "checksums", "leader_heartbeat_interval_ms")

_CONNECT_TIMEOUT_S: Final = 60.0
_CHECK_INTERVAL_S: Final = 0.1


@dataclass(slots=True, frozen=True, kw_only=True)
class StreamParameters:
    """Parameters of one run."""

    rates: Annotated[tuple[int, ...], typer.Option(min=1, help="Messages a second, a run for each.")] = (1_000, 20_000)
    seconds: Annotated[int, typer.Option(min=1, help="Seconds that are measured, for each rate.")] = 30
    warmup_seconds: Annotated[
        int, typer.Option(min=1, help="Seconds before them: the first batches compile what the later ones use.")
    ] = 15
    members: Members = 3
    payload: Payload = 32
    time_limit_s: TimeLimit = 300.0


def run(parameters: StreamParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    import pyspark  # noqa: F401  # here: that it is missing shows before anything is started

    report: Report = {"scenario": "stream"}
    with data_directory(directory, "stream", keep=keep) as data_dir:
        report["environment"] = describe(data_dir) | node_settings(CLUSTER_DEFAULTS, {})
        for rate in parameters.rates:
            rate_dir = data_dir / str(rate)
            rate_dir.mkdir()
            with ExitStack() as stack:
                group = stack.enter_context(ProcessGroup())
                cluster = stack.enter_context(ClusterProcesses(rate_dir / "cluster", ECHO_SERVICE, parameters.members))
                progress = stack.enter_context(progress_line(rate * parameters.seconds))
                try:
                    report[f"{rate}_msgs_per_s"] = asyncio.run(
                        _measure(parameters, rate, cluster, group, progress, rate_dir)
                    )
                except BaseExceptionGroup as errors:
                    raise first_leaf(errors) from errors
    report["parameters"] = asdict(parameters)
    return report


async def _measure(
    parameters: StreamParameters,
    rate: int,
    cluster: ClusterProcesses,
    group: ProcessGroup,
    progress: ProgressLine,
    directory: Path,
) -> Report:
    from ...archive.spark.streaming.stream_status import ask_member  # the other scenarios need no Spark

    progress.describe("starting the query")
    endpoints = [Endpoint("127.0.0.1", port + 1) for port in cluster.base_ports]
    query = _start_query(cluster, endpoints, group, directory)
    deadline_s = time.monotonic() + parameters.time_limit_s
    await _wait_for_sink(query, cluster, 0, deadline_s)
    client = ClientParameters(
        endpoints=cluster.ingress_endpoints,
        payload_length=parameters.payload,
        inflight=1,
        warmup_count=rate * parameters.warmup_seconds,
        message_count=rate * parameters.seconds,
        rate_per_s=rate,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
    )
    [result], cpu_seconds = await run_clients(
        [client], cluster, group, progress, data_dir=directory, time_limit_s=parameters.time_limit_s
    )
    progress.describe("waiting for the sink")
    claims = [said.commit_position for endpoint in endpoints if (said := ask_member(endpoint, 5.0)) is not None]
    await _wait_for_sink(query, cluster, max(claims), deadline_s)
    cpu_seconds["query's Python"] = query.cpu_seconds()
    # The client measures by the monotonic clock, the log and the sink by the time of day.
    day_ns = time.time_ns() - time.monotonic_ns()
    figures = summarize(
        RigMemberLog(query.log_path).events("batch"),
        directory / "sink",
        started_ns=result["started_ns"] + day_ns,
        ended_ns=result["ended_ns"] + day_ns,
    )
    parts = RigMemberLog(query.log_path).events("progress")[-parameters.seconds :]
    for name in sorted({name for part in parts for name in part["durations_ms"]}):
        durations_ms = [part["durations_ms"].get(name, 0) for part in parts]
        figures[f"batch_median_ms_{name}"] = statistics.median(durations_ms)
    echoes = latency_figures(Histogram.from_json(result["latencies"]))
    return {**figures, **{f"echo_{name}": value for name, value in echoes.items()}}


def summarize(batches: Sequence[dict[str, Any]], sink: Path, *, started_ns: int, ended_ns: int) -> Report:
    """Make the figures of the messages that the leader took between two times of day, in nanoseconds."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    latencies, row_counts, sunk_ns = Histogram(), [], []
    for batch in batches:
        timestamps = parquet.read_table(sink / batch["file"], columns=["timestamp"]).column(0)
        times_ns = timestamps.drop_null().cast(pa.int64()).to_numpy() * 1000
        times_ns = times_ns[(times_ns >= started_ns) & (times_ns < ended_ns)]
        if len(times_ns):
            latencies.record_all(np.maximum(batch["sunk_ns"] - times_ns, 0).tolist())
            row_counts.append(len(times_ns))
            sunk_ns.append(batch["sunk_ns"])
    intervals = [later - earlier for earlier, later in pairwise(sunk_ns)]
    return {
        **{f"sink_{name}": value for name, value in latency_figures(latencies).items()},
        "messages": latencies.count,
        "batches": len(row_counts),
        "batch_messages_median": statistics.median(row_counts),
        "batch_interval_median_us": round(statistics.median(intervals) / 1000) if intervals else 0,
    }


def _start_query(
    cluster: ClusterProcesses, endpoints: Sequence[Endpoint], group: ProcessGroup, directory: Path
) -> ManagedProcess:
    sink = directory / "sink"
    sink.mkdir()
    query = StreamQueryParameters(
        path=",".join(str(cluster.directory_of(member_id)) for member_id in cluster.members),
        sink=str(sink),
        checkpoint=str(directory / "checkpoint"),
        columns=list(COLUMNS),
        options={"commitFrom": ",".join(map(str, endpoints))},
    )
    arguments = (sys.executable, "-m", "trimaran.benchmarks.scenarios.stream_query", query.to_json())
    return group.spawn("query", arguments, log_path=directory / "query.log", environment=dict(os.environ))


async def _wait_for_sink(query: ManagedProcess, cluster: ClusterProcesses, position: int, deadline_s: float) -> None:
    """Wait until the sink has a batch, and everything before a position.

    Raises:
        ClusterTimeoutError: the deadline has passed.
        ProcessError: the query or a member has ended.
    """
    while True:
        batches = RigMemberLog(query.log_path).events("batch")
        if batches and batches[-1]["end_position"] >= position:
            return
        query.check_running()
        cluster.check_running()
        if time.monotonic() > deadline_s:
            raise ClusterTimeoutError(f"the sink is late: expected position={position} batches={batches[-1:]}")
        await asyncio.sleep(_CHECK_INTERVAL_S)
