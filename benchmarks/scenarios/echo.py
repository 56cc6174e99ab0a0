"""Echo: clients send messages to a replicated service, which sends them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from trimaran.service_api.errors import ConfigurationError, first_leaf

from ..load.arrivals import Burst
from ..load.client_process import ClientParameters
from ..load.coordination import Event, load_figures, run_clients, share
from ..load.echo import SEQUENCE
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..rig.meter import METRICS_SETTING, Meter, Usage
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, progress_line

PEAK_INFLIGHT: Final = 1024
PEAK_MESSAGES: Final = 400_000
"""The closed loop whose rate counts as the peak of a cluster."""

_CONNECT_TIMEOUT_S: Final = 30.0


@dataclass(slots=True, frozen=True, kw_only=True)
class EchoParameters:
    """What one run does. Counts are totals over all clients.

    Raises:
        ConfigurationError: values that make no run.
    """

    members: int = 3
    payload: int = 32
    inflight: int = PEAK_INFLIGHT
    """Messages in flight over all clients, closed loop."""
    messages: int = 300_000
    warmup: int = 20_000
    clients: int = 1
    rate: float | None = None
    """Open loop: messages a second over all clients; None: closed loop."""
    bursts: tuple[Burst, ...] = ()
    """Open loop: when more is due."""
    slow_ms: float | None = None
    """Open loop of one client: tell the moments in which messages took this long; None: tell none."""
    service: str = ECHO_SERVICE
    """The service, which echoes what it does not take for a command."""
    file_sync_level: int = 1
    checksums: bool = True
    tls: bool = False
    """Whether members and clients encrypt, with certificates made for the run."""
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
        if self.tls and self.endpoints:
            raise ConfigurationError("tls with endpoints: certificates are made for a cluster that is started here")
        if self.slow_ms is not None and (self.rate is None or self.clients != 1):
            raise ConfigurationError(f"slow_ms={self.slow_ms:g} expected a rate and one client")
        for name in ("messages", "inflight"):
            if getattr(self, name) < self.clients:
                value = getattr(self, name)
                raise ConfigurationError(f"{name}={value} expected at least clients={self.clients}")


MakeMeter: TypeAlias = Callable[[ClusterProcesses | None], Meter]


def open_loop_rate(peak_per_s: float) -> float:
    """Return the rate of an open loop, from the peak of a closed loop: half of it."""
    return peak_per_s / 2


def run(
    parameters: EchoParameters, *, directory: Path | None = None, keep: bool = False, make_meter: MakeMeter = Meter
) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    `directory` gets the members' files and every process's output; by default a fresh one, on a real disk,
    that is removed at the end unless `keep`. `make_meter` makes what looks at the cluster while it is measured.

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
            members = ClusterProcesses(
                data_dir, parameters.service, parameters.members, settings=settings, with_tls=parameters.tls
            )
            cluster = stack.enter_context(members)
        progress = stack.enter_context(progress_line(parameters.messages))
        try:
            return asyncio.run(_measure(parameters, cluster, clients, progress, data_dir, make_meter(cluster)))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group


async def _measure(
    parameters: EchoParameters,
    cluster: ClusterProcesses | None,
    group: ProcessGroup,
    progress: ProgressLine,
    data_dir: Path,
    meter: Meter,
) -> Report:
    environment = await asyncio.to_thread(describe, data_dir if cluster is not None else None)
    endpoints = list(parameters.endpoints) if cluster is None else cluster.ingress_endpoints
    results, _ = await run_clients(
        [_client_parameters(parameters, index, endpoints, cluster) for index in range(parameters.clients)],
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


def _report(parameters: EchoParameters, results: list[Event], used: dict[str, Usage]) -> Report:
    report: Report = {"scenario": "echo", **load_figures(results, used)}
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
    given = {"file_sync_level": parameters.file_sync_level, "checksums": parameters.checksums}
    return node_settings(names, {**given, **parameters.node_settings})


def _client_parameters(
    parameters: EchoParameters, index: int, endpoints: list[str], cluster: ClusterProcesses | None
) -> ClientParameters:
    return ClientParameters(
        endpoints=endpoints,
        payload_length=parameters.payload,
        inflight=share(parameters.inflight, parameters.clients, index),
        warmup_count=share(parameters.warmup, parameters.clients, index),
        message_count=share(parameters.messages, parameters.clients, index),
        rate_per_s=None if parameters.rate is None else parameters.rate / parameters.clients,
        bursts=parameters.bursts,
        slow_ms=parameters.slow_ms,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        tls=None if cluster is None or cluster.client_tls is None else asdict(cluster.client_tls),
    )
