"""Echo: clients send messages to a replicated service, which sends them back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError

from ..client_process import ClientParameters
from ..coordination import ClientProcess, Event, all_events, all_go
from ..data_directory import data_directory
from ..environment import describe, node_settings
from ..histogram import Histogram
from ..load import SEQUENCE
from ..meter import METRICS_SETTING, Meter, Usage, usage_report
from ..processes import ClusterProcesses, ProcessGroup
from ..report import ProgressLine, Report, first_leaf, latency_figures, percentile_curve, progress_line

SERVICE: Final = "trimaran.benchmarks.echo_service:EchoService"

_CONNECT_TIMEOUT_S: Final = 30.0
_CHECK_INTERVAL_S: Final = 0.2


@dataclass(slots=True, frozen=True, kw_only=True)
class EchoParameters:
    """What one run does. Counts are totals over all clients.

    Raises:
        ConfigurationError: values that make no run.
    """

    members: int = 3
    payload: int = 32
    inflight: int = 1024
    """Messages in flight over all clients, closed loop."""
    messages: int = 300_000
    warmup: int = 20_000
    clients: int = 1
    rate: float | None = None
    """Open loop: messages a second over all clients; None: closed loop."""
    file_sync_level: int = 1
    checksums: bool = True
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings for `trimaran node`, by name."""
    endpoints: tuple[str, ...] = ()
    """A cluster that runs already; then no member is started."""
    time_limit_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("members", "inflight", "messages", "clients"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)} expected at least 1")
        if self.warmup < 0:
            raise ConfigurationError(f"warmup={self.warmup} expected at least 0")
        if self.payload < SEQUENCE.size:
            raise ConfigurationError(f"payload={self.payload} expected at least {SEQUENCE.size} bytes")
        if self.rate is not None and self.rate <= 0:
            raise ConfigurationError(f"rate={self.rate} expected more than 0")
        for name in ("messages", "inflight"):
            if getattr(self, name) < self.clients:
                value = getattr(self, name)
                raise ConfigurationError(f"{name}={value} expected at least clients={self.clients}")


def run(parameters: EchoParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    `directory` gets the members' files and every process's output; by default a fresh one, on a real disk,
    that is removed at the end unless `keep`.

    Raises:
        ClusterError: it could not be measured: a process failed, the leader changed, the time was up.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "echo", keep=keep))
        clients = stack.enter_context(ProcessGroup())
        cluster = None
        if not parameters.endpoints:
            settings = {
                "file_sync_level": str(parameters.file_sync_level),
                "checksums": "true" if parameters.checksums else "false",
                **METRICS_SETTING,
                **parameters.node_settings,
            }
            members = ClusterProcesses(data_dir, SERVICE, parameters.members, settings=settings)
            cluster = stack.enter_context(members)
        progress = stack.enter_context(progress_line(parameters.messages))
        try:
            return asyncio.run(_measure(parameters, cluster, clients, progress, data_dir))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group


async def _measure(
    parameters: EchoParameters,
    cluster: ClusterProcesses | None,
    group: ProcessGroup,
    progress: ProgressLine,
    data_dir: Path,
) -> Report:
    environment = await asyncio.to_thread(describe, data_dir if cluster is not None else None)
    endpoints = list(parameters.endpoints) if cluster is None else cluster.ingress_endpoints
    meter = Meter(cluster)
    results, _ = await run_clients(
        [_client_parameters(parameters, index, endpoints) for index in range(parameters.clients)],
        cluster,
        group,
        progress,
        data_dir=data_dir,
        time_limit_s=parameters.time_limit_s,
        meter=meter,
    )
    report = _report(parameters, results, meter.used)
    settings = await asyncio.to_thread(_node_settings, parameters)
    report["environment"] = {**environment, **settings}
    return report


async def run_clients(
    parameters: Sequence[ClientParameters],
    cluster: ClusterProcesses | None,
    group: ProcessGroup,
    progress: ProgressLine,
    *,
    data_dir: Path,
    time_limit_s: float,
    meter: Meter | None = None,
) -> tuple[list[Event], dict[str, float]]:
    """Start a client process for each of the parameters; give their results and all CPU times.

    A `meter` of the cluster has afterwards what every process used while it was measured, clients included.

    Raises:
        ClusterTimeoutError: it took longer than the time limit. The errors of processes come in a group.
    """
    clients: list[ClientProcess] = []
    meter = meter or Meter(cluster)
    try:
        async with asyncio.timeout(time_limit_s), asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(_watch_members(cluster))
            for index, client_parameters in enumerate(parameters):
                name = f"client-{index}"
                log_path = data_dir / f"{name}.log"
                clients.append(await ClientProcess.spawn(group, name, client_parameters, log_path=log_path))
            results = await _run_phases(clients, meter, progress)
            watch.cancel()
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={time_limit_s:g}") from error
    finally:
        for client in clients:
            client.close()
    return results, {name: usage.cpu_s for name, usage in meter.used.items()}


async def _run_phases(clients: list[ClientProcess], meter: Meter, progress: ProgressLine) -> list[Event]:
    """Lead the clients through connect, warm-up and measurement; give their results."""
    counts = [0] * len(clients)

    def on_opened(index: int, count: int) -> None:
        counts[index] = count
        progress.describe(f"connecting: {sum(counts):,} sessions")

    def on_progress(index: int, count: int) -> None:
        counts[index] = count
        progress.update(sum(counts))

    progress.describe("connecting")
    await all_events(clients, "ready", on_opened)
    progress.describe("warming up")
    all_go(clients)
    await all_events(clients, "warmed")
    progress.describe("measuring")
    counts = [0] * len(clients)
    await meter.begin()
    all_go(clients)
    await all_events(clients, "measured", on_progress)
    await meter.end()
    all_go(clients)
    results = await all_events(clients, "result")
    all_go(clients)
    for client, result in zip(clients, results, strict=True):
        meter.used[client.process.name] = Usage(result["user_seconds"], result["system_seconds"], None)
    return results


async def _watch_members(cluster: ClusterProcesses | None) -> None:
    """End the run as soon as a member ends."""
    while cluster is not None:
        cluster.check_running()
        await asyncio.sleep(_CHECK_INTERVAL_S)


def _report(parameters: EchoParameters, results: list[Event], used: dict[str, Usage]) -> Report:
    report: Report = {"scenario": "echo", **load_figures(results, used)}
    if parameters.rate is not None:
        lags = Histogram()
        for result in results:
            lags.add(Histogram.from_json(result["send_lags"]))
        report["send_lag"] = latency_figures(lags)
    report["parameters"] = asdict(parameters)
    return report


def load_figures(results: list[Event], used: dict[str, Usage]) -> Report:
    """What reports say of one load, from the results of its clients and what every process used meanwhile."""
    latencies = Histogram()
    for result in results:
        latencies.add(Histogram.from_json(result["latencies"]))
    started_ns = min(result["started_ns"] for result in results)
    ended_ns = max(result["ended_ns"] for result in results)
    duration_s = (ended_ns - started_ns) / 1e9
    return {
        "throughput_msgs_per_s": round(latencies.count / duration_s),
        **latency_figures(latencies),
        "messages": latencies.count,
        "duration_s": round(duration_s, 3),
        "leader": f"member-{results[0]['leader_member_id']}",
        **usage_report(used, latencies.count),
        "latency_percentiles_us": percentile_curve(latencies),
    }


def _node_settings(parameters: EchoParameters) -> dict[str, object]:
    """The settings that figures depend on, as the members have them."""
    if parameters.endpoints:
        return {}
    names = ("file_sync_level", "checksums", "term_length_bytes", "segment_length_bytes", "mtu_length_bytes")
    given = {"file_sync_level": parameters.file_sync_level, "checksums": parameters.checksums}
    return node_settings(names, {**given, **parameters.node_settings})


def _client_parameters(parameters: EchoParameters, index: int, endpoints: list[str]) -> ClientParameters:
    return ClientParameters(
        endpoints=endpoints,
        payload_length=parameters.payload,
        inflight=share(parameters.inflight, parameters.clients, index),
        warmup_count=share(parameters.warmup, parameters.clients, index),
        message_count=share(parameters.messages, parameters.clients, index),
        rate_per_s=None if parameters.rate is None else parameters.rate / parameters.clients,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
    )


def share(total: int, count: int, index: int) -> int:
    """Split a total into whole parts that differ by one at most."""
    return total // count + (index < total % count)
