"""Request: one client process has requests run, exactly once, by a service that counts them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from ...service_api.errors import first_leaf
from ..load.client_process import ClientParameters
from ..load.coordination import run_clients
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..options import Members, Payload, Settings, SyncLevel, TimeLimit
from ..rig.meter import METRICS_SETTING, Meter, usage_report
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..services import REQUEST_SERVICE, TYPED_REQUEST_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, percentile_curve, progress_line

_CONNECT_TIMEOUT_S: Final = 30.0


@dataclass(slots=True, frozen=True, kw_only=True)
class RequestParameters:
    """Parameters of one run."""

    members: Members = 3
    payload: Payload = 32
    inflight: Annotated[
        int, typer.Option(min=1, help="Requests in flight, of callers that each make one call after another.")
    ] = 1024
    requests: Annotated[int, typer.Option(min=1, help="Requests to measure.")] = 300_000
    warmup: Annotated[int, typer.Option(min=0, help="Requests before them, not measured.")] = 20_000
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)
    time_limit_s: TimeLimit = 300.0
    batch: Annotated[int, typer.Option(min=1, help="Requests that a caller makes in one call. 1: each by itself.")] = 1
    is_typed: bool = False
    """Whether requests are commands of a typed service."""


def run(parameters: RequestParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured, or a request did not run exactly once.
    """
    level = {"file_sync_level": str(parameters.file_sync_level)}
    settings = {**level, **METRICS_SETTING, **parameters.node_settings}
    service = TYPED_REQUEST_SERVICE if parameters.is_typed else REQUEST_SERVICE
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "request", keep=keep))
        clients = stack.enter_context(ProcessGroup())
        cluster = stack.enter_context(ClusterProcesses(data_dir, service, parameters.members, settings=settings))
        progress = stack.enter_context(progress_line(parameters.requests))
        try:
            return asyncio.run(_measure(parameters, cluster, clients, progress, data_dir))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group


async def _measure(
    parameters: RequestParameters,
    cluster: ClusterProcesses,
    group: ProcessGroup,
    progress: ProgressLine,
    data_dir: Path,
) -> Report:
    environment = await asyncio.to_thread(describe, data_dir)
    meter = Meter(cluster)
    (result,), _ = await run_clients(
        [_client_parameters(parameters, cluster.ingress_endpoints)],
        cluster,
        group,
        progress,
        data_dir=data_dir,
        time_limit_s=parameters.time_limit_s,
        meter=meter,
    )
    latencies = Histogram.from_json(result["latencies"])
    duration_s = (result["ended_ns"] - result["started_ns"]) / 1e9
    given = {"file_sync_level": parameters.file_sync_level, **parameters.node_settings}
    names = ("file_sync_level", "checksums", "term_length_bytes", "segment_length_bytes", "mtu_length_bytes")
    return {
        "scenario": "request",
        "requests_per_s": round(latencies.count / duration_s),
        **latency_figures(latencies),
        "latency_percentiles_us": percentile_curve(latencies),
        "requests": latencies.count,
        "in_flight": parameters.inflight,
        "batch": parameters.batch,
        "file_sync_level": parameters.file_sync_level,
        "ran_twice": result["ran_twice_count"],
        "duration_s": round(duration_s, 3),
        "leader": f"member-{result['leader_member_id']}",
        **usage_report(meter.used, latencies.count),
        "parameters": asdict(parameters),
        "environment": {**environment, **await asyncio.to_thread(node_settings, names, given)},
    }


def _client_parameters(parameters: RequestParameters, endpoints: list[str]) -> ClientParameters:
    return ClientParameters(
        endpoints=endpoints,
        payload_length=parameters.payload,
        inflight=parameters.inflight,
        warmup_count=parameters.warmup,
        message_count=parameters.requests,
        rate_per_s=None,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        uses_requests=True,
        is_typed=parameters.is_typed,
        batch_count=parameters.batch,
    )
