"""Echo: clients send messages to a replicated service, which sends them back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from ...service_api.errors import ConfigurationError, first_leaf
from ..load.arrivals import Burst
from ..load.client_process import ClientParameters
from ..load.coordination import Event, load_figures, run_clients, share
from ..load.sessions import SESSIONS_PER_PROCESS
from ..logs.long_log import make_long_logs
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..options import Members, Payload, Settings, SyncLevel, TimeLimit, Tls
from ..rig.member_status import wait_until_delivered
from ..rig.meter import METRICS_SETTING, Meter
from ..rig.processes import ClusterProcesses, ProcessGroup, require_connections
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, progress_line

PEAK_INFLIGHT: Final = 1024
PEAK_MESSAGES: Final = 400_000
"""The closed loop whose rate counts as the peak of a cluster."""

_CONNECT_TIMEOUT_S: Final = 60.0
_START_LIMIT_S: Final = 300.0
_FOR_A_TIME: Final = 20_000
_ROUNDS_FOR_A_TIME: Final = 20
_BYTES_FOR_A_TIME: Final = 64 << 20
"""Limits of the warm-up where a time is measured: enough for a steady rate, and not for long."""


@dataclass(slots=True, frozen=True, kw_only=True)
class EchoParameters:
    """Parameters of one run. Counts are totals over all clients.

    Raises:
        ConfigurationError: values that make no run.
    """

    members: Members = 3
    payload: Payload = 32
    inflight: Annotated[int, typer.Option(min=1, help="Messages in flight, over all clients.")] = PEAK_INFLIGHT
    messages: Annotated[int, typer.Option(min=1, help="Messages to measure, over all clients.")] = 300_000
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Measure for about so long, instead of a number of messages.")
    ] = None
    warmup: Annotated[int, typer.Option(min=0, help="Messages before them, not measured.")] = 20_000
    clients: Annotated[int, typer.Option(min=1, help="Client processes.")] = 1
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions that the messages go round. Default: one for each client.")
    ] = None
    share: Annotated[bool, typer.Option("--share", help="The sessions of a process share its connections.")] = False
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Open loop: messages a second, latency from the intended send time.")
    ] = None
    log_mib: Annotated[int, typer.Option(min=0, help="MiB of log that every member starts on.")] = 0
    file_sync_level: SyncLevel = 1
    checksums: Annotated[bool, typer.Option(help="A CRC-32 in every recorded frame.")] = True
    tls: Tls = False
    node_settings: Settings = field(default_factory=dict)
    endpoints: Annotated[
        tuple[str, ...], typer.Option(help="Ingress endpoints of a running cluster, instead of starting one.")
    ] = ()
    time_limit_s: TimeLimit = 300.0
    bursts: tuple[Burst, ...] = ()
    """Open loop: when more is due."""
    slow_ms: float | None = None
    """Open loop of one client: tell the moments in which messages took this long; None: tell none."""
    has_metrics: bool = True
    """Whether members count their syncs, and are asked for the count before and after."""
    service: str = ECHO_SERVICE
    """The service, which echoes what it does not take for a command."""

    def __post_init__(self) -> None:
        if self.endpoints and (self.tls or self.log_mib):
            raise ConfigurationError("endpoints: expected neither tls nor log_mib, which a cluster is started with")
        if self.sessions is not None and (self.rate is not None or self.tls):
            raise ConfigurationError(f"sessions={self.sessions} expected a closed loop without tls")
        least = max(self.client_count, self.sessions or 1)
        if min(self.messages, self.inflight) < least:
            raise ConfigurationError(f"messages={self.messages} inflight={self.inflight} expected at least {least}")

    @property
    def client_count(self) -> int:
        """How many client processes there are: as many as may open the files of so many sessions."""
        return max(self.clients, -(-(self.sessions or 1) // SESSIONS_PER_PROCESS))

    @property
    def settings(self) -> dict[str, str]:
        """What members are given."""
        checksums = "true" if self.checksums else "false"
        settings = {"file_sync_level": str(self.file_sync_level), "checksums": checksums}
        if self.has_metrics:
            settings |= METRICS_SETTING
        if self.sessions is not None:
            settings |= session_settings(self.sessions)
        return {**settings, **self.node_settings}

    @property
    def warmup_count(self) -> int:
        """Messages before what is measured."""
        if self.seconds is None:
            return self.warmup
        count = min(_FOR_A_TIME, _ROUNDS_FOR_A_TIME * self.inflight + 500, _BYTES_FOR_A_TIME // self.payload)
        return max(self.inflight, count)


MakeMeter: TypeAlias = Callable[[ClusterProcesses | None, ProcessGroup], Meter]
"""Makes what looks at the members, and at the clients of the group, while they are measured."""


def open_loop_rate(peak_per_s: float) -> float:
    """Return the rate of an open loop, from the peak of a closed loop: half of it."""
    return peak_per_s / 2


def session_settings(session_count: int) -> dict[str, str]:
    """Return what members need for so many sessions, which are silent for as long as the others take to open."""
    limit = str(max(session_count, 10_000))
    return {"session_limit": limit, "client_session_limit": limit, "session_timeout_ms": "60000"}


def run(
    parameters: EchoParameters,
    *,
    directory: Path | None = None,
    keep: bool = False,
    make_meter: MakeMeter = lambda cluster, clients: Meter(cluster),
) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    `directory` gets the members' files and every process's output; by default a fresh one, on a real disk,
    that is removed at the end unless `keep`.

    Raises:
        ClusterError: it could not be measured: a process failed, the leader changed, the time was up.
    """
    if parameters.sessions is not None:
        connections = parameters.client_count if parameters.share else parameters.sessions
        require_connections(max(connections, -(-connections // parameters.client_count) * parameters.members))
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "echo", keep=keep))
        clients = stack.enter_context(ProcessGroup())
        progress = stack.enter_context(progress_line(parameters.messages))
        cluster, start_s = None, None
        if not parameters.endpoints:
            cluster = _members(parameters, data_dir)
            if parameters.log_mib:
                progress.describe(f"making logs of {parameters.log_mib} MiB")
                members = range(parameters.members)
                log = make_long_logs(cluster, parameters.log_mib << 20, payload=32, member_ids=members)
                cluster = _members(parameters, data_dir)
                progress.describe("starting on the logs")
            begin_ns = time.monotonic_ns()
            stack.enter_context(cluster)
            position = log.stop_position if parameters.log_mib else 1
            asyncio.run(wait_until_delivered(cluster, position, time_limit_s=_START_LIMIT_S))
            start_s = (time.monotonic_ns() - begin_ns) / 1e9
        try:
            report = asyncio.run(_measure(parameters, cluster, clients, progress, data_dir, make_meter))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group
        return report if start_s is None else {**report, "start_s": round(start_s, 3)}


def _members(parameters: EchoParameters, data_dir: Path) -> ClusterProcesses:
    return ClusterProcesses(
        data_dir, parameters.service, parameters.members, settings=parameters.settings, with_tls=parameters.tls
    )


async def _measure(
    parameters: EchoParameters,
    cluster: ClusterProcesses | None,
    group: ProcessGroup,
    progress: ProgressLine,
    data_dir: Path,
    make_meter: MakeMeter,
) -> Report:
    environment = await asyncio.to_thread(describe, data_dir if cluster is not None else None)
    meter = make_meter(cluster, group)
    results, _ = await run_clients(
        [_client_parameters(parameters, index, cluster) for index in range(parameters.client_count)],
        cluster,
        group,
        progress,
        data_dir=data_dir,
        time_limit_s=parameters.time_limit_s,
        meter=meter,
    )
    report = _report(parameters, results, meter)
    settings = await asyncio.to_thread(_node_settings, parameters)
    report["environment"] = {**environment, **settings}
    return report


def _report(parameters: EchoParameters, results: list[Event], meter: Meter) -> Report:
    report: Report = {"scenario": "echo", **load_figures(results, meter.used)}
    members = [usage for name, usage in meter.used.items() if name.startswith("member")]
    if members:
        written = sum(usage.written_bytes or 0 for usage in members) / len(members) / report["messages"]
        syncs = meter.used[report["leader"]].sync_count
        report["written_bytes_per_message"] = round(written, 1)
        report["messages_per_sync"] = round(report["messages"] / syncs, 1) if syncs else None
    memory = {f"client-{index}": result["resident_bytes"] for index, result in enumerate(results)}
    report["resident_bytes"] = {**meter.resident_bytes, **memory}
    if parameters.rate is not None:
        lags = Histogram()
        for result in results:
            lags.add(Histogram.from_json(result["send_lags"]))
        report["send_lag"] = latency_figures(lags)
    if parameters.slow_ms is not None:
        (result,) = results
        report["since_sent"] = latency_figures(Histogram.from_json(result["since_sent"]))
        report["groups"] = {
            name: {**latency_figures(histogram), "messages": histogram.count}
            for name, histogram in ((name, Histogram.from_json(found)) for name, found in result["groups"].items())
        }
        report |= {name: result[name] for name in ("moments", "collections", "started_ns", "ended_ns")}
    report["parameters"] = asdict(parameters)
    return report


def _node_settings(parameters: EchoParameters) -> dict[str, object]:
    """The settings that figures depend on, as the members have them."""
    if parameters.endpoints:
        return {}
    names = ("file_sync_level", "checksums", "term_length_bytes", "segment_length_bytes", "mtu_length_bytes")
    return node_settings((*names, "ingress_window_bytes"), parameters.settings)


def _client_parameters(parameters: EchoParameters, index: int, cluster: ClusterProcesses | None) -> ClientParameters:
    count, warmup = parameters.client_count, parameters.warmup_count
    message_count = parameters.messages if parameters.seconds is None else warmup
    return ClientParameters(
        endpoints=list(parameters.endpoints) if cluster is None else cluster.ingress_endpoints,
        payload_length=parameters.payload,
        inflight=share(parameters.inflight, count, index),
        warmup_count=share(warmup, count, index),
        message_count=share(message_count, count, index),
        measure_s=parameters.seconds,
        rate_per_s=None if parameters.rate is None else parameters.rate / count,
        bursts=parameters.bursts,
        slow_ms=parameters.slow_ms,
        session_count=None if parameters.sessions is None else share(parameters.sessions, count, index),
        is_shared=parameters.share,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        tls=None if cluster is None or cluster.client_tls is None else asdict(cluster.client_tls),
    )
